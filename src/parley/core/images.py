"""What of an image may be decoded: limits of each format, found in its bytes before any decoder runs. Pure.

The process that decodes imports this module, so it needs nothing beside the standard library.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from parley.wire.limits import MIB, PREVIEW_CHARS_MAX

IMAGE_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
"""The images that get a preview, by the names that Pillow has for them."""
PIXELS_MAX = {"PNG": 40_000_000, "JPEG": 40_000_000, "GIF": 40_000_000, "WEBP": 12_000_000}
"""A larger image is not decoded, and has no preview."""
PIXEL_BYTES = {"PNG": 4, "JPEG": 8, "GIF": 8, "WEBP": 20}
"""So much memory may a decoder take for each."""
JPEG_SCANS_MAX = 64
"""Of a progressive JPEG. Each costs as much as all its pixels; encoders write about ten."""
SIDE_PIXELS_MAX = 2**31 - 1
IMAGE_BYTES_MAX = 32 * MIB
"""A larger file is not decoded either; its header is in its first part."""
PREVIEW_PREFIX = "data:image/webp;base64,"

BEGINNINGS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF")
START_OF_SCAN, END_OF_IMAGE = 0xDA, 0xD9
MARKER = re.compile(rb"\xff([^\x00\x01\xd0-\xd8\xff])", re.DOTALL)
"""Of a segment of a JPEG, or of its end; those without a length do not count: TEM, RST0 to RST7 and SOI."""
TOLD = re.compile(
    rb"(?P<format>%s) (?P<width>[0-9]{1,10}) (?P<height>[0-9]{1,10}) (?P<preview>(?:%s[A-Za-z0-9+/=]+)?)"
    % ("|".join(IMAGE_TYPES).encode(), re.escape(PREVIEW_PREFIX).encode())
)


class ImageFacts(NamedTuple):
    """`image_format`: one of `IMAGE_TYPES`. `preview`: a `data:` URL, or empty."""

    image_format: str
    width: int
    height: int
    preview: str = ""


def begins_as_image(data: bytes) -> bool:
    """Whether it is worth to start a process for it."""
    return data.startswith(BEGINNINGS)


def may_decode(image_format: str, width: int, height: int, data: bytes) -> bool:
    """Whether the pixels of a whole image are within the limits of its format."""
    if width * height > PIXELS_MAX[image_format]:
        return False
    return image_format != "JPEG" or jpeg_scans(data, JPEG_SCANS_MAX + 1) <= JPEG_SCANS_MAX


def jpeg_scans(data: bytes, most: int) -> int:
    """How many scans a JPEG has, counted up to `most`, by the markers that its decoder stops at."""
    scans, place = 0, 0
    while scans < most and (found := MARKER.search(data, place)) is not None:
        marker, place = found[1][0], found.end()
        if marker == END_OF_IMAGE:
            break
        scans += marker == START_OF_SCAN
        place += int.from_bytes(data[place : place + 2], "big")
    return scans


def is_webp(data: bytes) -> bool:
    return data[:4] == b"RIFF" and data[8:12] == b"WEBP"


def webp_size(data: bytes) -> tuple[int, int] | None:
    """Width and height in the header of a WebP, whose decoder takes memory for its pixels when it is made.

    None if that is no WebP.
    """
    if not is_webp(data) or len(data) < 30:
        return None
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        return (
            int.from_bytes(data[26:28], "little") & 0x3FFF,
            int.from_bytes(data[28:30], "little") & 0x3FFF,
        )
    return None


# What the process that decodes tells the server


def written(facts: ImageFacts) -> bytes:
    """As one line."""
    return f"{facts.image_format} {facts.width} {facts.height} {facts.preview}\n".encode()


def last_told(output: bytes) -> ImageFacts | None:
    """The last whole line of what was written. The process may have been broken by what it decoded: nothing
    else is believed.
    """
    lines = output.split(b"\n")[:-1]
    found = TOLD.fullmatch(lines[-1]) if lines else None
    if found is None or len(found["preview"]) > PREVIEW_CHARS_MAX:
        return None
    facts = ImageFacts(
        found["format"].decode(), int(found["width"]), int(found["height"]), found["preview"].decode()
    )
    return facts if is_a_size(facts.width, facts.height) else None


def is_a_size(width: int, height: int) -> bool:
    return 0 < width <= SIDE_PIXELS_MAX and 0 < height <= SIDE_PIXELS_MAX
