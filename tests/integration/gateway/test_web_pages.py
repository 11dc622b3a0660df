"""The pages in a browser are served as they were built: fast, kept, and with nothing of anybody else's."""

import gzip
from pathlib import Path

import pytest

from parley.core import rates
from parley.gateway import web_pages
from parley.gateway.web_pages import POLICY, REPORTS_PATH
from tests.harness.clients import HttpClient
from tests.harness.clock import VirtualClock
from tests.integration.gateway.built_pages import CODE, PAGES, SCRIPT, build_pages
from tests.integration.gateway.serving import Place, Served, assert_refused

EXPOSED = {"PARLEY_SERVER_HOSTS": "chat.example,127.0.0.1"}
REPORT = '{"csp-report": {"effective-directive": "script-src-elem", "blocked-uri": "inline"}}'


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with built pages, where the server looks for them."""
    build_pages(tmp_path)
    monkeypatch.setattr(web_pages, "ROOTS", {name: (tmp_path / name,) for name in PAGES})
    return tmp_path


@pytest.fixture
def unbuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_pages, "ROOTS", dict.fromkeys(PAGES, (tmp_path / "nowhere",)))


async def asked(served: Served, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Without a token, and the body as it came over the line."""
    sent = {"Accept-Encoding": "identity", **{name.replace("_", "-"): text for name, text in headers.items()}}
    async with served.session.get(
        f"{served.url}{path}", headers=sent, allow_redirects=False, auto_decompress=False
    ) as answer:
        return answer.status, dict(answer.headers), await answer.read()


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("path", "content_type", "caching"),
    [
        ("/", "text/html; charset=utf-8", "no-cache"),
        ("/console", "text/html; charset=utf-8", "no-cache"),
        ("/sw.js", "text/javascript; charset=utf-8", "no-cache"),
        ("/manifest.webmanifest", "application/manifest+json", "no-cache"),
        (f"/{SCRIPT}", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable"),
        ("/assets/ops-0123abcd.css", "text/css; charset=utf-8", "public, max-age=31536000, immutable"),
        ("/assets/icon.svg", "image/svg+xml", "no-cache"),
    ],
)
async def test_pages_are_kept_only_where_their_name_changes_with_them(
    place: Place, path: str, content_type: str, caching: str
) -> None:
    """A name with a hash is kept for ever, all else is asked for again, each under the policy."""
    async with place.serving() as served:
        status, headers, _ = await asked(served, path)
        assert (status, headers["Content-Type"], headers["Cache-Control"]) == (200, content_type, caching)
        assert headers["Content-Security-Policy"] == POLICY
        assert headers["Vary"] == "Accept-Encoding"
        again, _, body = await asked(served, path, If_None_Match=headers["Etag"])
        assert (again, body) == (304, b"")


def test_the_policy_allows_no_inline_code_and_no_other_origin() -> None:
    """Scripts, styles and requests are this server's, text never becomes code, and nobody frames a page."""
    rules = {rule.split(" ", 1)[0]: rule.split(" ", 1)[1] for rule in POLICY.split("; ")}
    assert rules["default-src"] == rules["frame-src"] == rules["frame-ancestors"] == "'none'"
    assert rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert rules["trusted-types"] == "parley"
    assert "unsafe" not in POLICY
    assert "http" not in POLICY


@pytest.mark.usefixtures("built")
async def test_a_page_is_apart_from_pages_of_others(place: Place) -> None:
    """No other window holds it, nothing of it is embedded elsewhere, and no link says where it leads from."""
    async with place.serving() as served:
        for path in ("/", "/console", "/sw.js", f"/{SCRIPT}"):
            _, headers, _ = await asked(served, path)
            assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
            assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
            assert headers["Referrer-Policy"] == "no-referrer"
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Permissions-Policy"] == "camera=(), microphone=(), geolocation=()"


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("accepted", "encoding", "body"),
    [
        ("gzip, deflate, br", "br", b"as brotli"),
        ("gzip", "gzip", gzip.compress(CODE.encode())[10:]),
        ("identity", None, CODE.encode()),
    ],
)
async def test_files_are_sent_as_they_were_compressed_before(
    place: Place, accepted: str, encoding: str | None, body: bytes
) -> None:
    """The best that the browser takes, with the type of the file itself."""
    async with place.serving() as served:
        status, headers, sent = await asked(served, f"/{SCRIPT}", Accept_Encoding=accepted)
        assert (status, headers.get("Content-Encoding")) == (200, encoding)
        assert headers["Content-Type"] == "text/javascript; charset=utf-8"
        assert sent.endswith(body)


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    "path",
    [
        "/assets/notes.md",
        f"/{SCRIPT}.gz",
        f"/{SCRIPT}.br",
        "/assets/missing-12345678.js",
        "/assets/..%2findex.html",
        "/assets/%2e%2e%2fsw.js",
        "/assets/.js",
        "/assets/",
        "/index.html",
    ],
)
async def test_only_files_of_the_pages_are_served(place: Place, path: str) -> None:
    """Nothing beside them, nothing above them, and no compressed file by its own name."""
    async with place.serving() as served:
        answer = await served.http.get(path)
        assert answer.status == 404, answer
        assert_refused(answer, 404, "not_found")


@pytest.mark.usefixtures("built")
async def test_a_page_costs_its_address_nothing(place: Place) -> None:
    """Many people behind one address open the chat at once, and still log in."""
    async with place.serving({"PARLEY_LIMITS_RATES": "on"}, VirtualClock()) as served:
        for path in ("/", f"/{SCRIPT}", "/sw.js", "/manifest.webmanifest"):
            for _ in range(int(rates.COST_PER_ADDRESS.burst) + 1):
                assert (await asked(served, path))[0] == 200
        assert (await served.http.get("/docs")).status == 200


@pytest.mark.usefixtures("unbuilt")
async def test_without_built_pages_the_server_says_how_to_get_them(place: Place) -> None:
    """A plain page under the same policy, with where the API is described; there are no files."""
    async with place.serving() as served:
        for path in ("/", "/console"):
            status, headers, body = await asked(served, path)
            assert (status, headers["Content-Security-Policy"]) == (200, POLICY)
            assert b"make run" in body
            assert b'href="/docs"' in body
        assert_refused(await served.http.get("/sw.js"), 404, "not_found")
        assert_refused(await served.http.get(f"/{SCRIPT}"), 404, "not_found")


def test_pages_of_the_wheel_are_preferred(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was installed with the server fits it; a checkout has what was built last."""
    assert web_pages.built_pages("web") == built / "web"
    wheel = built / "wheel"
    wheel.mkdir()
    monkeypatch.setattr(web_pages, "ROOTS", {"web": (wheel, built / "web")})
    assert web_pages.built_pages("web") == built / "web"
    (wheel / "index.html").touch()
    assert web_pages.built_pages("web") == wheel


async def reported(http: HttpClient, text: str) -> int:
    headers = {"Content-Type": "application/csp-report"}
    async with http._session.post(http.url + REPORTS_PATH, data=text, headers=headers) as answer:
        return answer.status


async def test_what_the_policy_stopped_is_counted(place: Place) -> None:
    """By the directive that was broken, in both forms in which browsers report; other words are one."""
    later = '[{"type": "csp-violation", "body": {"effectiveDirective": "%s"}}, 7, {"body": 3}]'
    async with place.serving() as served:
        for text in (REPORT, REPORT, later % "connect-src", later % "x" * 3):
            assert await reported(served.http, text) in (204, 400)
        assert served.metric("parley_page_reports_total", directive="script-src-elem") == 2
        assert served.metric("parley_page_reports_total", directive="connect-src") == 1
        assert served.metric("parley_page_reports_total", directive="other") == 2
        assert await reported(served.http, "no json") == 400
        assert await reported(served.http, " " * web_pages.REPORT_BYTES_MAX + REPORT) == 413


async def test_a_flood_of_reports_is_refused(place: Place) -> None:
    """Whoever sends reports pays with the budget of the address."""
    async with place.serving({"PARLEY_LIMITS_RATES": "on"}, VirtualClock()) as served:
        found = [await reported(served.http, REPORT) for _ in range(int(rates.COST_PER_ADDRESS.burst) + 1)]
        assert found.count(204) == rates.COST_PER_ADDRESS.burst
        assert found[-1] == 429


# Where the console is


async def seen_at(served: Served, port: int, host: str) -> tuple[bool, bool]:
    """Whether the chat, and the console, are served at this port for this name."""
    found = []
    for path in ("/", "/console"):
        async with served.session.get(
            f"http://127.0.0.1:{port}{path}", headers={"Host": host}, allow_redirects=False
        ) as answer:
            found.append(answer.status == 200)
    return found[0], found[1]


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("settings", "host", "has_console"),
    [
        ({}, "127.0.0.1", True),
        ({"PARLEY_CONSOLE_ENABLED": "false"}, "127.0.0.1", False),
        (EXPOSED, "chat.example", False),
        (EXPOSED | {"PARLEY_CONSOLE_ENABLED": "true"}, "chat.example", True),
        (EXPOSED | {"PARLEY_CONSOLE_HOST": "ops.example"}, "ops.example", True),
        (EXPOSED | {"PARLEY_CONSOLE_HOST": "ops.example"}, "chat.example", False),
        ({"PARLEY_CONSOLE_LISTEN": "127.0.0.1:0"}, "127.0.0.1", False),
    ],
)
async def test_the_console_is_off_on_a_public_name_unless_asked_for(
    place: Place, settings: dict[str, str], host: str, has_console: bool
) -> None:
    """A server at this machine has it; an exposed one only where a setting says so."""
    async with place.serving(settings) as served:
        assert await seen_at(served, served.port, host) == (True, has_console)


@pytest.mark.usefixtures("built")
async def test_the_console_has_a_listener_of_its_own(place: Place) -> None:
    """There it is with the API, and no chat; the address of everybody has none."""
    settings = EXPOSED | {"PARLEY_CONSOLE_LISTEN": "127.0.0.1:0"}
    async with place.serving(settings) as served:
        port = served.app.gateway.console_port
        assert await seen_at(served, port, "127.0.0.1") == (False, True)
        assert await seen_at(served, served.port, "chat.example") == (True, False)
        async with served.session.get(f"http://127.0.0.1:{port}/v1/me") as answer:
            assert answer.status == 401
        async with served.session.get(f"http://127.0.0.1:{port}/", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (302, "/console")
        async with served.session.get(
            f"http://127.0.0.1:{port}/console", headers={"Host": "evil.example"}
        ) as answer:
            assert answer.status == 400
