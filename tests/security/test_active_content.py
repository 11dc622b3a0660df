"""Files that a browser would run, sent by a member: none comes back as something that runs."""

from itertools import product

from parley.core.attachments import INERT_TYPES, OCTETS
from tests.integration.gateway.serving import Place, Served
from tests.integration.gateway.uploading import Sharing, image_bytes

SCRIPT = b"<script>alert(document.domain)</script>"
CONTENTS = {
    "html": b"<!DOCTYPE html><html><body>" + SCRIPT,
    "html after spaces": b" \t\r\n\xef\xbb\xbf<HTML>" + SCRIPT,
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>',
    "xml": b'<?xml version="1.0"?><?xml-stylesheet type="text/xsl" href="data:,x"?><x/>',
    "xhtml": b'<html xmlns="http://www.w3.org/1999/xhtml">' + SCRIPT + b"</html>",
    "javascript": b"alert(document.domain)",
    "pdf": b"%PDF-1.7\n1 0 obj<</OpenAction<</S/JavaScript/JS(app.alert(1))>>>>endobj",
    "flash": b"FWS\x0a" + bytes(40),
    "mhtml": b"MIME-Version: 1.0\r\nContent-Type: multipart/related\r\n\r\n" + SCRIPT,
    "wasm": b"\x00asm\x01\x00\x00\x00",
    "a picture with a page in it": image_bytes("GIF") + SCRIPT,
}
DISGUISED = ("html", "html after spaces", "svg", "a picture with a page in it")
TYPES = [
    "text/html",
    "TEXT/HTML; charset=utf-7",
    "application/xhtml+xml",
    "image/svg+xml",
    "text/xml",
    "application/xml",
    "application/rss+xml",
    "application/mathml+xml",
    "text/xsl",
    "application/xslt+xml",
    "text/javascript",
    "application/javascript",
    "application/x-javascript",
    "application/ecmascript",
    "text/vbscript",
    "application/wasm",
    "application/pdf",
    "application/x-shockwave-flash",
    "application/java-archive",
    "application/x-java-applet",
    "message/rfc822",
    "multipart/related",
    "multipart/x-mixed-replace",
    "application/x-mimearchive",
    "text/cache-manifest",
    "text/css",
    "text/plain",
    "application/x-unknown",
    "unknown/unknown",
    "*/*",
]
NAMES = [
    "page.html", "page.htm", "page.xhtml", "drawing.svg", "feed.xml", "style.xsl", "code.js", "code.mjs",
    "paper.pdf", "movie.swf", "mail.mht", "mail.mhtml", "mail.eml", "app.hta", "link.url", "applet.jar",
    'quote".html', "line\r\nX-Evil: 1.html", "..\\..\\page.html", "../../page.html", "\u202elmth.gpj",
]  # fmt: skip
SHOWN = {
    "image/png": image_bytes("PNG"),
    "image/jpeg": image_bytes("JPEG"),
    "image/gif": image_bytes("GIF"),
    "image/webp": image_bytes("WEBP"),
    "audio/mpeg": b"ID3" + bytes(100),
    "audio/ogg": b"OggS" + bytes(100),
    "audio/wav": b"RIFF\x00\x00\x00\x00WAVE" + bytes(100),
    "video/mp4": b"\x00\x00\x00\x20ftypisom" + bytes(100),
    "video/webm": b"\x1a\x45\xdf\xa3" + bytes(100),
}


async def sharing(served: Served) -> Sharing:
    (ann,) = await served.people("ann")
    return Sharing(served, ann, await served.as_(ann).create_group())


async def assert_harmless(ann: Sharing, data: bytes, name: str, content_type: str) -> dict[str, str]:
    """It is served as bytes to be saved, or as one of a few types that never run, and not guessed at."""
    announced = await ann.announce(data, name, content_type=content_type)
    if announced.status == 400:
        return {}
    assert announced.status == 201, announced
    answer = await ann.put(announced.body["upload_url"], data)
    assert answer.status == 201, answer
    response, read = await ann.read(announced.body["attachment_id"])
    assert (response.status, read) == (200, data)
    headers = response.headers
    told = headers["Content-Type"]
    assert told == OCTETS or told in INERT_TYPES
    is_saved = headers["Content-Disposition"].startswith("attachment;")
    assert is_saved or told in INERT_TYPES
    assert headers.get("X-Content-Type-Options") == "nosniff"
    assert headers.get("Content-Security-Policy") == "sandbox; default-src 'none'"
    for name in headers:
        assert len(headers.getall(name)) == 1, name
    assert "X-Evil" not in headers
    return dict(headers)


async def test_a_type_that_browsers_run_is_only_saved(place: Place) -> None:
    """Whatever the content is."""
    async with place.serving() as served:
        ann = await sharing(served)
        contents = [*CONTENTS.values()]
        for number, content_type in enumerate(TYPES):
            data = contents[number % len(contents)]
            headers = await assert_harmless(ann, data, "file", content_type)
            assert headers.get("Content-Type", OCTETS) == OCTETS
            assert headers.get("Content-Disposition", "attachment").startswith("attachment")


async def test_a_page_that_says_it_is_a_picture_is_only_saved(place: Place) -> None:
    """A type that browsers show must be what it says; a picture with a page after it stays a picture."""
    async with place.serving() as served:
        ann = await sharing(served)
        for content_type, what in product(sorted(INERT_TYPES), DISGUISED):
            data = CONTENTS[what]
            headers = await assert_harmless(ann, data, "file", content_type)
            is_picture = what == "a picture with a page in it" and content_type == "image/gif"
            assert headers["Content-Type"] == ("image/gif" if is_picture else OCTETS), what


async def test_a_name_that_browsers_run_is_only_a_name(place: Place) -> None:
    """In a header it ends where it should, leads to no other folder, and cannot hide its ending."""
    async with place.serving() as served:
        ann = await sharing(served)
        for name in NAMES:
            headers = await assert_harmless(ann, CONTENTS["html"], name, "text/html")
            disposition = headers["Content-Disposition"]
            assert disposition.count('"') == 2
            for bad in ("/", "\\", "\r", "\n", "\u202e", "%2F", "%5C", "%0D", "%E2%80%AE"):
                assert bad not in disposition


async def test_what_browsers_show_is_shown(place: Place) -> None:
    """Pictures, sound and video of these types come as what they are; the list has no other."""
    assert SHOWN.keys() == INERT_TYPES
    async with place.serving() as served:
        ann = await sharing(served)
        for content_type, data in SHOWN.items():
            headers = await assert_harmless(ann, data, "file", content_type)
            assert headers["Content-Type"] == content_type
            assert headers["Content-Disposition"].startswith("inline;")
