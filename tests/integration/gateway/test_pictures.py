"""Smaller pictures of images: of the right size, kept by browsers, and no way to the file itself."""

import io
from typing import Any

import pytest
from PIL import Image

from parley.clock import MS_PER_DAY
from parley.files import renditions
from tests.harness.clock import VirtualClock
from tests.integration.gateway.serving import Place, Served, assert_refused
from tests.integration.gateway.test_message_life import about
from tests.integration.gateway.uploading import Sharing, image_bytes
from tests.security.hostile_images import jpeg_of_scans


async def shared_image(
    served: Served, image: bytes, content_type: str = "image/png"
) -> tuple[Sharing, Any, Any]:
    """Ann's image in a chat with Ben: who shares it, the file, and what is told of it."""
    ann, ben = await served.people("ann", "ben")
    sharing = Sharing(served, ann, await served.as_(ann).create_group(ben))
    file, sent = await sharing.share(image, "cat", content_type=content_type)
    told = (await sharing.find(file["attachment_id"])).body
    return sharing, told, sent.body


async def picture(served: Served, address: str) -> tuple[int, dict[str, str], bytes]:
    async with served.session.get(served.url + address) as answer:
        return answer.status, dict(answer.headers), await answer.read()


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "GIF", "WEBP"])
async def test_an_image_has_smaller_pictures(place: Place, image_format: str) -> None:
    """Of 320 and 960 pixels at the longer side, in one format, for browsers to keep; none is made larger."""
    async with place.serving() as served:
        content_type = f"image/{image_format.lower()}"
        _, told, _ = await shared_image(served, image_bytes(image_format, (1_200, 600)), content_type)
        for side, size in (("320", (320, 160)), ("960", (960, 480))):
            status, headers, body = await picture(served, told["pictures"][side])
            assert (status, headers["Content-Type"]) == (200, "image/webp")
            assert headers["Cache-Control"] == "private, max-age=31536000, immutable"
            assert headers["X-Content-Type-Options"] == "nosniff"
            with Image.open(io.BytesIO(body)) as found:
                assert (found.format, found.size) == ("WEBP", size)


async def test_a_small_image_stays_as_small(place: Place) -> None:
    """Nothing is gained by more pixels."""
    async with place.serving() as served:
        _, told, _ = await shared_image(served, image_bytes("PNG", (100, 50)))
        _, _, body = await picture(served, told["pictures"]["960"])
        with Image.open(io.BytesIO(body)) as found:
            assert found.size == (100, 50)


async def test_what_a_camera_wrote_is_not_in_a_picture(place: Place) -> None:
    """It is upright, and without a place or a name."""
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "at home"
    async with place.serving() as served:
        _, told, _ = await shared_image(served, image_bytes("JPEG", (400, 200), exif=exif), "image/jpeg")
        _, _, body = await picture(served, told["pictures"]["320"])
        assert b"at home" not in body
        with Image.open(io.BytesIO(body)) as found:
            assert found.size == (160, 320)


async def test_an_address_of_a_picture_is_the_same_for_a_day(place: Place) -> None:
    """A browser that scrolls by again asks for nothing; an old address ends the day after."""
    clock = VirtualClock()
    clock.set(clock.now_ms // MS_PER_DAY * MS_PER_DAY)
    async with place.serving(clock=clock) as served:
        sharing, told, _ = await shared_image(served, image_bytes())
        clock.advance(MS_PER_DAY - 1)
        again = (await sharing.find(told["attachment_id"])).body
        assert again["pictures"] == told["pictures"]
        assert again["url"] != told["url"]
        clock.advance(1)
        await served.http.login("ann", "pad")
        assert (await sharing.find(told["attachment_id"])).body["pictures"] != told["pictures"]
        assert (await picture(served, told["pictures"]["320"]))[0] == 200
        clock.advance(MS_PER_DAY)
        assert (await picture(served, told["pictures"]["320"]))[0] == 404


async def test_a_picture_is_no_way_to_the_file(place: Place) -> None:
    """Its address opens the pictures alone, in the two sizes; that of the file opens no picture."""
    async with place.serving() as served:
        _, told, _ = await shared_image(served, image_bytes())
        address = told["pictures"]["320"].partition("?")[0]
        assert_refused(await served.http.get(address), 404, "not_found")
        for size in ("321", "", "x", "0320"):
            assert_refused(await served.http.get(address, size=size), 400, "bad_request")
        assert_refused(await served.http.get(told["url"], size="320"), 404, "not_found")
        assert_refused(await served.http.get(f"{address}x", size="320"), 404, "not_found")


async def test_a_deleted_image_has_no_pictures(place: Place) -> None:
    """From the answer to its deletion on, though the server had made one before."""
    async with place.serving() as served:
        sharing, told, sent = await shared_image(served, image_bytes())
        assert (await picture(served, told["pictures"]["320"]))[0] == 200
        ann = await served.http.login("ann", "pad")
        async with served.client(ann) as client:
            await client.request("delete_message", **about(sharing.chat, sent["message_id"]))
        assert (await picture(served, told["pictures"]["320"]))[0] == 404
        assert (await picture(served, told["pictures"]["960"]))[0] == 404


async def test_a_file_that_is_no_image_has_no_pictures(place: Place) -> None:
    """Whatever it says that it is."""
    async with place.serving() as served:
        _, told, _ = await shared_image(served, b"\x89PNG\r\n\x1a\n and then nothing")
        assert "pictures" not in told


async def test_a_picture_is_made_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks again gets what was made, while there is room for it."""
    async with place.serving() as served:
        _, told, _ = await shared_image(served, image_bytes())
        files = served.app.files
        assert files is not None
        made: list[int] = []
        shrink = files.uploads.decoder.shrink

        async def counted(data: bytes, side: int) -> bytes | None:
            made.append(side)
            return await shrink(data, side)

        monkeypatch.setattr(files.uploads.decoder, "shrink", counted)
        for _ in range(3):
            await picture(served, told["pictures"]["320"])
        assert made == [320]
        monkeypatch.setattr(renditions, "KEPT_BYTES_MAX", 0)
        for _ in range(2):
            await picture(served, told["pictures"]["960"])
        assert made == [320, 960, 960]


async def test_an_image_that_is_dear_to_decode_has_no_pictures(place: Place) -> None:
    """Whoever asks for them again and again would have each of them tried again."""
    async with place.serving() as served:
        _, told, _ = await shared_image(served, jpeg_of_scans(repeats=100), "image/jpeg")
        assert told["attachment"]["width"] == 600
        assert "pictures" not in told


async def test_a_picture_that_cannot_be_made_is_tried_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While this is remembered, which is so of a bounded number."""
    async with place.serving() as served:
        _, told, _ = await shared_image(served, image_bytes())
        files = served.app.files
        assert files is not None
        tried: list[int] = []

        async def failing(data: bytes, side: int) -> bytes | None:
            tried.append(side)
            return None

        monkeypatch.setattr(files.uploads.decoder, "shrink", failing)
        for _ in range(3):
            assert (await picture(served, told["pictures"]["320"]))[0] == 404
        assert tried == [320]
        monkeypatch.setattr(renditions, "FAILED_MAX", 1)
        for side in ("960", "320", "960"):
            await picture(served, told["pictures"][side])
        assert tried == [320, 960, 320, 960]
