"""What of an image may be decoded: counted in its bytes, before a decoder sees them."""

import pytest

from parley.core.images import (
    JPEG_SCANS_MAX,
    PIXELS_MAX,
    PREVIEW_PREFIX,
    ImageFacts,
    jpeg_scans,
    last_told,
    may_decode,
    webp_size,
    written,
)
from tests.integration.gateway.uploading import image_bytes
from tests.security.hostile_images import jpeg_of_scans, webp_of_pixels

MANY = 10_000


def test_scans_are_counted() -> None:
    """One of an ordinary JPEG, about ten of a progressive one, and all of those that are repeated."""
    assert jpeg_scans(image_bytes("JPEG"), MANY) == 1
    assert jpeg_scans(image_bytes("JPEG", progressive=True), MANY) == 10
    assert jpeg_scans(jpeg_of_scans(0), MANY) + 700 == jpeg_scans(jpeg_of_scans(700), MANY)
    assert jpeg_scans(jpeg_of_scans(700), 65) == 65


@pytest.mark.parametrize(
    ("data", "scans"),
    [
        (b"", 0),
        (b"\xff", 0),
        (b"\xff\xd8\xff", 0),
        (b"\xff\xd8\xff\xda", 1),
        (b"\xff\xd8\xff\xe1\x00\x06\xff\xda\xff\xda\xff\xda\x00\x02", 1),  # a thumbnail in a segment
        (b"\xff\xd8\xff\xda\x00\x02\xff\x00\xff\xd0\xff\xff\xff\xda\x00\x02", 2),  # data, a restart, filling
        (b"\xff\xd8\xff\xda\x00\x02\xff\xd9\xff\xda\x00\x02", 1),  # what follows its end is no part of it
        (b"\xff" * 100_000 + b"\x00", 0),
    ],
)
def test_markers_are_read_as_the_decoder_reads_them(data: bytes, scans: int) -> None:
    """Segments are skipped by their length, the data of a scan up to the next marker."""
    assert jpeg_scans(data, MANY) == scans


def test_a_size_is_in_the_header_of_each_kind_of_webp() -> None:
    """Lossy, lossless, and with an alpha channel or an animation."""
    assert webp_size(image_bytes("WEBP")) == (300, 200)
    assert webp_size(image_bytes("WEBP", lossless=True)) == (300, 200)
    assert webp_size(image_bytes("WEBP", exif=b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x00")) == (300, 200)
    assert webp_size(webp_of_pixels(8_000, 5_000)) == (8_000, 5_000)
    for no_webp in (b"", b"RIFF\x00\x00\x00\x00WEBP", image_bytes("PNG"), b"RIFF____WAVE" + bytes(30)):
        assert webp_size(no_webp) is None


def test_limits_are_those_of_the_format() -> None:
    """Exactly as many pixels as it may have are decoded, and not one more."""
    for image_format, most in PIXELS_MAX.items():
        data = image_bytes(image_format)
        assert may_decode(image_format, most, 1, data)
        assert not may_decode(image_format, most + 1, 1, data)
    few = jpeg_scans(jpeg_of_scans(0), MANY)
    assert may_decode("JPEG", 1, 1, jpeg_of_scans(JPEG_SCANS_MAX - few))
    assert not may_decode("JPEG", 1, 1, jpeg_of_scans(JPEG_SCANS_MAX - few + 1))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"PNG 1 1 ",
        b"PNG 0 1 \n",
        b"PNG 1 99999999999 \n",
        b"SVG 1 1 \n",
        b"PNG 1 1 data:image/webp;base64,\n",
        b"PNG 1 1 data:text/html;base64,AAAA\n",
        b'PNG 1 1 data:image/webp;base64,AAAA"onload=\n',
        b"PNG 1 1 data:image/webp;base64," + b"A" * 4_000 + b"\n",
    ],
)
def test_only_what_is_well_formed_is_believed(line: bytes) -> None:
    """A process that was taken over by what it decoded cannot say what it likes."""
    assert last_told(line) is None


def test_the_last_line_of_a_process_counts() -> None:
    """What it told before, if it ended within a line."""
    first = ImageFacts("PNG", 300, 200)
    second = ImageFacts("PNG", 300, 200, PREVIEW_PREFIX + "AAAA")
    assert last_told(written(first)) == first
    assert last_told(written(first) + written(second)) == second
    assert last_told(written(first) + written(second)[:-1]) == first
