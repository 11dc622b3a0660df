"""`/docs` shows the OpenAPI document, with nothing from elsewhere."""

import hashlib
import re
from typing import get_args

import aiohttp
import pytest

from parley.gateway.docs_page import FILES, POLICY, STATIC, SWAGGER_UI, FileName
from tests.integration.gateway.serving import Place

FOREIGN = re.compile(r"""(?:src|href|url|action)\s*[=:(]\s*["']?(?:https?:)?//""")


async def headers_of(session: aiohttp.ClientSession, method: str, url: str) -> tuple[dict[str, str], bytes]:
    async with session.request(method, url) as answer:
        assert answer.status == 200, url
        return dict(answer.headers), await answer.read()


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_the_page_and_its_files_are_served_without_a_token(place: Place, method: str) -> None:
    """Every file that the page names is there, with its type and under the strict policy."""
    async with place.serving() as served, aiohttp.ClientSession() as session:
        url = f"{served.http.url}/docs"
        headers, body = await headers_of(session, method, url)
        assert headers["Content-Type"] == "text/html; charset=utf-8"
        assert headers["Cache-Control"] == "no-cache"
        assert (b"<main" in body) == (method == "GET")
        for name in FILES:
            found, _ = await headers_of(session, method, f"{url}/{name}")
            kind = "text/css" if name.endswith(".css") else "text/javascript"
            assert found["Content-Type"] == f"{kind}; charset=utf-8"
            assert ("immutable" in found["Cache-Control"]) == name.startswith(SWAGGER_UI)
            assert found["X-Content-Type-Options"] == "nosniff"
            assert found["Content-Security-Policy"] == POLICY


async def test_a_file_that_is_not_of_the_page_is_not_found(place: Place) -> None:
    """Only the files that the page needs are served, whatever path is asked for."""
    async with place.serving() as served:
        for name in ("README.md", "LICENSE", "..%2Fdocs_page.py", "%2e%2e%2fserver.py", "docs.html"):
            answer = await served.http.get(f"/docs/{name}")
            assert (answer.status, answer.body["code"]) == (404, "not_found"), name


def test_the_policy_allows_only_this_server() -> None:
    """No inline script or style, no frame, and no other origin."""
    rules = dict(rule.split(" ", 1) for rule in POLICY.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in POLICY
    assert "http" not in POLICY


def test_the_page_names_its_own_files_and_no_foreign_address() -> None:
    """What the page loads is what the server serves; neither it nor its style names another origin."""
    page = (STATIC / "docs.html").read_text(encoding="utf-8")
    assert set(re.findall(r'(?:src|href)="docs/([^"]+)"', page)) == set(FILES) == set(get_args(FileName))
    assert "<style" not in page
    assert not re.search(r"<script(?! src=)|\son\w+=|style=", page)
    styles = [path for name, path in FILES.items() if name.endswith(".css")]
    for path in (STATIC / "docs.html", STATIC / "docs.js", *styles):
        assert not FOREIGN.search(path.read_text(encoding="utf-8")), path


def test_swagger_ui_is_the_copy_that_was_recorded() -> None:
    """No byte of the vendored files was changed, and none was added."""
    folder = STATIC / SWAGGER_UI
    lines = (folder / "SHA256SUMS").read_text(encoding="ascii").splitlines()
    recorded = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != "SHA256SUMS"
    }
    assert found == recorded
    assert "Apache License" in (folder / "LICENSE").read_text(encoding="utf-8")
    assert SWAGGER_UI.rpartition("-")[2] in (STATIC / "README.md").read_text(encoding="utf-8")
