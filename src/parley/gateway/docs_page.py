"""The page `/docs`: the OpenAPI document for people, with everything it needs from this server."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Literal

from aiohttp import web

from parley.errors import NOT_FOUND, Refused
from parley.gateway.routes import Operation, Parameter

SWAGGER_UI = "swagger-ui-5.34.1"
STATIC = Path(str(files("parley.gateway") / "static"))
FileName = Literal["docs.css", "docs.js", "swagger-ui-5.34.1.css", "swagger-ui-5.34.1.js"]
FILES = {
    "docs.css": STATIC / "docs.css",
    "docs.js": STATIC / "docs.js",
    f"{SWAGGER_UI}.css": STATIC / SWAGGER_UI / "swagger-ui.css",
    f"{SWAGGER_UI}.js": STATIC / SWAGGER_UI / "swagger-ui-bundle.js",
}
CONTENT_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
HTML = "text/html; charset=utf-8"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
ASK_AGAIN = "no-cache"
FOR_EVER = "public, max-age=31536000, immutable"
"""For what has its version in its name."""

PAGE = Operation(
    method="GET",
    path="/docs",
    tag="Server",
    name="docs",
    summary="This document as a page",
    description="For people, in a browser; it needs nothing but this server.",
    answers={200: str},
    needs="nothing",
    cost=1,
    media=HTML,
)
FILE = Operation(
    method="GET",
    path="/docs/{file}",
    tag="Server",
    name="docs_file",
    summary="A file of that page",
    description="Scripts and styles.",
    answers={200: str},
    path_parameters=(Parameter("file", FileName, "The file.", "docs.js", is_required=True),),
    refusals=(NOT_FOUND,),
    needs="nothing",
    cost=1,
    media="text/*",
)


async def show_page(request: web.Request) -> web.StreamResponse:
    return file_response(STATIC / "docs.html", HTML, ASK_AGAIN)


async def show_file(request: web.Request) -> web.StreamResponse:
    name = request.match_info["file"]
    path = FILES.get(name)
    if path is None:
        raise Refused(NOT_FOUND)
    return file_response(
        path, CONTENT_TYPES[path.suffix], FOR_EVER if name.startswith(SWAGGER_UI) else ASK_AGAIN
    )


def file_response(path: Path, content_type: str, caching: str) -> web.FileResponse:
    headers = {"Content-Type": content_type, "Cache-Control": caching, **SECURITY_HEADERS}
    return web.FileResponse(path, headers=headers)
