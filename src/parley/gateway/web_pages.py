"""The pages in a browser: the chat at `/`, the console at `/console`, and the files that they load.

They were built before, from `clients/`; the files beside them with `.br` and `.gz` are what is sent to
browsers that take them. Pages and files are the same for everybody, so they cost nothing of an address's
budget: many people behind one address open them at the same time.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta

from parley.config import Config
from parley.errors import BAD_REQUEST, NOT_FOUND, TOO_LARGE, UNSUPPORTED_MEDIA, Refused
from parley.gateway.calls import IS_APART, has_console
from parley.gateway.docs_page import ASK_AGAIN, FOR_EVER, HTML, STATIC
from parley.gateway.routes import Operation, Parameter
from parley.telemetry import Metrics

CHAT, CONSOLE = "web", "console"
PACKAGE = Path(str(files("parley")))
ROOTS = {
    name: (PACKAGE / "pages" / name, PACKAGE.parents[1] / "clients" / name / "dist")
    for name in (CHAT, CONSOLE)
}
"""Where the built pages may be: in the wheel, or where a checkout builds them."""
REPORTS_PATH = "/v1/web/reports"
REPORTS_NAME = "parley"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:;"
    " media-src 'self' blob:; font-src 'self'; connect-src 'self'; worker-src 'self'; manifest-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-src 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types parley;"
    f" report-uri {REPORTS_PATH}; report-to {REPORTS_NAME}"
)
"""Nothing in a page is inline, so it is the same for every answer."""
PAGE_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Reporting-Endpoints": f'{REPORTS_NAME}="{REPORTS_PATH}"',
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Vary": "Accept-Encoding",
}
FILE_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
}
AssetName = Annotated[str, Meta(max_length=200)]
FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
HASHED_NAME = re.compile(r".+-[A-Za-z0-9_-]{8,}\.[a-z0-9]+")
"""A file with a hash of its content in its name."""
REPORT_TYPES = ("application/csp-report", "application/reports+json", "application/json")
REPORT_BYTES_MAX = 64 * 1024
REPORTS_MAX = 20
"""Reports in one request that are counted."""
DIRECTIVES = frozenset(
    rule.split()[0] for rule in POLICY.split("; ") if not rule.startswith("report-")
) | frozenset(("script-src-elem", "script-src-attr", "style-src-elem", "style-src-attr"))
OTHER = "other"
NO_CONSOLE = NOT_FOUND.because("there is no such address")

PAGE = Operation(
    method="GET",
    path="/",
    tag="Server",
    name="chat_page",
    summary="The chat",
    description="For people, in a browser.",
    answers={200: str},
    needs="nothing",
    media=HTML,
)
CONSOLE_PAGE = Operation(
    method="GET",
    path="/console",
    tag="Server",
    name="console_page",
    summary="The console",
    description="For operators, in a browser, where `console.enabled`, `console.listen` and `console.host`"
    " let it be served.",
    answers={200: str},
    refusals=(NOT_FOUND,),
    needs="nothing",
    media=HTML,
)
ASSET = Operation(
    method="GET",
    path="/assets/{asset}",
    tag="Server",
    name="page_asset",
    summary="A file of these pages",
    description="Scripts, styles and pictures. A name with a hash in it never changes what it means.",
    answers={200: str},
    path_parameters=(Parameter("asset", AssetName, "The file.", "main-Abc12345.js", is_required=True),),
    refusals=(NOT_FOUND,),
    needs="nothing",
    media="*/*",
)
WORKER = Operation(
    method="GET",
    path="/sw.js",
    tag="Server",
    name="service_worker",
    summary="The service worker of the chat",
    description="It keeps files of the chat, and shows notifications.",
    answers={200: str},
    refusals=(NOT_FOUND,),
    needs="nothing",
    media="text/javascript",
)
MANIFEST = Operation(
    method="GET",
    path="/manifest.webmanifest",
    tag="Server",
    name="web_manifest",
    summary="How the chat is installed",
    description="For browsers that install pages as applications.",
    answers={200: str},
    refusals=(NOT_FOUND,),
    needs="nothing",
    media="application/manifest+json",
)
REPORTS = Operation(
    method="POST",
    path=REPORTS_PATH,
    tag="Server",
    name="report_violation",
    summary="What a browser kept a page from doing",
    description="Browsers send it when something in a page breaks the Content-Security-Policy, as the"
    " Reporting API or `report-uri` has it. It is counted in `parley_page_reports`, and not kept.",
    answers={204: None},
    refusals=(TOO_LARGE, UNSUPPORTED_MEDIA),
    needs="nothing",
    cost=1,
)
OPERATIONS = (PAGE, CONSOLE_PAGE, ASSET, WORKER, MANIFEST, REPORTS)

Serve = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebPages:
    """On the listener of `console.listen` there is no chat."""

    def __init__(self, config: Config, metrics: Metrics) -> None:
        self._config = config
        self._metrics = metrics
        self.operations: list[tuple[Operation, Serve]] = [
            (PAGE, self.chat),
            (CONSOLE_PAGE, self.console),
            (ASSET, self.asset),
            (WORKER, self.worker),
            (MANIFEST, self.manifest),
            (REPORTS, self.reports),
        ]

    async def chat(self, request: web.Request) -> web.StreamResponse:
        if request.app[IS_APART]:
            return web.Response(status=302, headers={"Location": CONSOLE_PAGE.path})
        return _page(CHAT)

    async def console(self, request: web.Request) -> web.StreamResponse:
        if not has_console(request, self._config):
            raise Refused(NO_CONSOLE)
        return _page(CONSOLE)

    async def asset(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["asset"]
        if not FILE_NAME.fullmatch(name):
            raise Refused(NOT_FOUND)
        caching = FOR_EVER if HASHED_NAME.fullmatch(name) else ASK_AGAIN
        return _file((CONSOLE,) if request.app[IS_APART] else (CHAT, CONSOLE), f"assets/{name}", caching)

    async def worker(self, request: web.Request) -> web.StreamResponse:
        return _file((CHAT,), "sw.js", ASK_AGAIN)

    async def manifest(self, request: web.Request) -> web.StreamResponse:
        return _file((CHAT,), "manifest.webmanifest", ASK_AGAIN)

    async def reports(self, request: web.Request) -> web.StreamResponse:
        if request.content_type not in REPORT_TYPES:
            raise Refused(UNSUPPORTED_MEDIA)
        if (request.content_length or 0) > REPORT_BYTES_MAX:
            raise Refused(TOO_LARGE)
        for directive in _directives(await request.read()):
            self._metrics.page_reports.labels(directive).inc()
        return web.Response(status=204)


def built_pages(name: str) -> Path | None:
    """The folder with these pages; None if nobody has built them."""
    return next((root for root in ROOTS[name] if (root / "index.html").is_file()), None)


def _page(name: str) -> web.StreamResponse:
    folder = built_pages(name)
    path = STATIC / "no_pages.html" if folder is None else folder / "index.html"
    return _response(path, HTML, ASK_AGAIN)


def _file(names: tuple[str, ...], place: str, caching: str) -> web.StreamResponse:
    """The first of these pages that has the file. Refused if none has it."""
    content_type = FILE_TYPES.get(Path(place).suffix)
    for name in names:
        folder = built_pages(name)
        if content_type and folder is not None and (folder / place).is_file():
            return _response(folder / place, content_type, caching)
    raise Refused(NOT_FOUND)


def _response(path: Path, content_type: str, caching: str) -> web.FileResponse:
    headers = {"Content-Type": content_type, "Cache-Control": caching, **PAGE_HEADERS}
    return web.FileResponse(path, headers=headers)


def _directives(body: bytes) -> list[str]:
    """What the reports of a request say was broken, in words that this server knows."""
    try:
        sent = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(BAD_REQUEST.because("a report is JSON")) from error
    found = []
    for report in (sent if isinstance(sent, list) else [sent])[:REPORTS_MAX]:
        said = report if isinstance(report, dict) else {}
        inner = said.get("body") or said.get("csp-report") or {}
        inner = inner if isinstance(inner, dict) else {}
        name = (
            inner.get("effectiveDirective")
            or inner.get("effective-directive")
            or inner.get("violated-directive")
        )
        word = name.split(" ")[0] if isinstance(name, str) else ""
        found.append(word if word in DIRECTIVES else OTHER)
    return found
