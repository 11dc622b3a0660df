"""Images that people upload: what they are, and those that are made to break a decoder."""

import base64
import io
import struct
import zlib

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from parley.core.images import PREVIEW_PREFIX, ImageFacts
from parley.files.images import look_at
from parley.wire.limits import PREVIEW_CHARS_MAX
from tests.integration.gateway.uploading import image_bytes


def png(width: int, height: int, pixels: bytes = b"") -> bytes:
    """A picture that says that it is so large."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def test_a_bomb_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture of many pixels in a few bytes has its size and no preview; of far too many, not even that."""

    decoded: list[object] = []
    monkeypatch.setattr(PngImageFile, "load", lambda image: decoded.append(image))
    pixels = zlib.compress(bytes(1_000))
    assert look_at(png(10_000, 4_001, pixels), is_whole=True) == ImageFacts("PNG", 10_000, 4_001)
    assert look_at(png(50_000, 40_000, pixels), is_whole=True) is None
    assert decoded == []
    look_at(png(100, 100, pixels), is_whole=True)
    assert decoded != []


def test_a_picture_of_a_phone_is_a_jpeg() -> None:
    """Also with a second picture in it."""
    first, second = (Image.new("RGB", (80, 40), colour) for colour in ("red", "blue"))
    written = io.BytesIO()
    first.save(written, "MPO", save_all=True, append_images=[second])
    facts = look_at(written.getvalue(), is_whole=True)
    assert facts is not None
    assert (facts.image_format, facts.width, facts.height) == ("JPEG", 80, 40)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x89PNG\r\n\x1a\n",
        b"GIF89a",
        b"\xff\xd8\xff",
        b"RIFF\x00\x00\x00\x00WEBP",
        png(0, 10),
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
        b"BM" + bytes(60),
        b"II*\x00" + bytes(60),
    ],
)
def test_what_is_no_image_of_these_is_none(data: bytes) -> None:
    """Other formats are not even tried, and half a picture is none."""
    assert look_at(data, is_whole=True) is None


def test_broken_pixels_leave_the_size() -> None:
    """The header is enough for it; there is no preview."""
    whole = image_bytes("PNG")
    assert look_at(whole[: len(whole) // 2], is_whole=True) == ImageFacts("PNG", 300, 200)
    assert look_at(whole[: len(whole) // 2], is_whole=False) == ImageFacts("PNG", 300, 200)


def test_a_picture_is_shown_upright_and_bare() -> None:
    """By the orientation that a camera wrote; the preview has nothing of what else it wrote."""
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010E] = "at home, in secret"
    facts = look_at(image_bytes("JPEG", exif=exif.tobytes()), is_whole=True)
    assert facts is not None
    assert (facts.width, facts.height) == (200, 300)
    preview = _preview_of(facts)
    assert preview.size == (43, 64)
    assert dict(preview.getexif()) == {}
    assert "icc_profile" not in preview.info


def test_noise_fits_into_an_entry_too() -> None:
    """What does not compress gets a coarser preview."""
    noise = Image.effect_noise((600, 600), 100).convert("RGB")
    written = io.BytesIO()
    noise.save(written, "PNG")
    facts = look_at(written.getvalue(), is_whole=True)
    assert facts is not None
    assert len(facts.preview) <= PREVIEW_CHARS_MAX
    assert facts.preview.startswith(PREVIEW_PREFIX)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16", "CMYK"])
def test_every_kind_of_pixels_has_a_preview(mode: str) -> None:
    """Also few colours, many bits, and those that are not there."""
    image_format = "JPEG" if mode == "CMYK" else "PNG"
    written = io.BytesIO()
    base = Image.radial_gradient("L").resize((100, 100))
    base.convert(mode if mode != "I;16" else "I").convert(mode).save(written, image_format)
    facts = look_at(written.getvalue(), is_whole=True)
    assert facts is not None
    assert facts.preview.startswith(PREVIEW_PREFIX)


def _preview_of(facts: ImageFacts) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(facts.preview.removeprefix(PREVIEW_PREFIX))))
