"""Images that are made to cost a server its time and memory: files like others, without a preview."""

import asyncio
import sys
from functools import partial

import pytest

from parley.errors import SHUTTING_DOWN
from parley.files import uploads
from parley.files.decoder import ImageDecoder
from tests.integration.gateway.serving import Place, assert_refused
from tests.integration.gateway.uploading import Sharing, image_bytes
from tests.security.hostile_images import jpeg_of_scans, webp_of_pixels
from tests.waiting import eventually

ENDLESS = (sys.executable, "-c", "import time\nwhile True: time.sleep(1)")
"""A decoder that hangs, whatever it is given."""


@pytest.mark.parametrize(
    ("data", "content_type", "width", "height"),
    [
        (jpeg_of_scans(repeats=100), "image/jpeg", 600, 600),
        (webp_of_pixels(8_000, 5_000), "image/webp", 8_000, 5_000),
        (webp_of_pixels(16_384, 16_384), "image/webp", 16_384, 16_384),
    ],
    ids=["many scans", "many pixels", "as many pixels as there can be"],
)
async def test_an_image_that_is_dear_to_decode_has_no_preview(
    place: Place, data: bytes, content_type: str, width: int, height: int
) -> None:
    """It keeps its type and its size, and can be sent and read."""
    async with place.serving() as served:
        (person,) = await served.people("ann")
        ann = Sharing(served, person, await served.as_(person).create_group())
        file, _ = await ann.share(data, content_type=content_type)
        assert (file["content_type"], file["width"], file["height"]) == (content_type, width, height)
        assert "preview" not in file
        assert (await ann.read(file["attachment_id"]))[1] == data
        assert served.metric("parley_attachments_total", event="without_preview") == 1


async def test_a_decoder_that_hangs_ends_with_the_server(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upload is refused as temporary, and goes on at the next server."""
    monkeypatch.setattr(uploads, "ImageDecoder", partial(ImageDecoder, ENDLESS))
    async with place.serving() as served:
        (person,) = await served.people("ann")
        ann = Sharing(served, person, await served.as_(person).create_group())
        url = (await ann.announce(image_bytes(), content_type="image/png")).body["upload_url"]
        files = served.app.files
        assert files is not None

        uploading = asyncio.ensure_future(ann.put(url, image_bytes()))
        await eventually(lambda: bool(files.uploads.decoder.processes))
        (process,) = files.uploads.decoder.processes
        files.close()
        assert_refused(await uploading, 503, SHUTTING_DOWN.code)
        assert process.returncode is not None
    monkeypatch.undo()
    async with place.serving() as served:
        ann = Sharing(served, await served.http.login("ann"), ann.chat)
        done = await ann.put(url, b"", **{"Content-Range": f"bytes */{len(image_bytes())}"})
        assert done.body["attachment"]["preview"]
