"""What an image is: its format, its size, and a small preview. Runs in a process of its own.

What people upload may be made to break a decoder, or to cost it seconds and gigabytes. `ImageDecoder` starts
this module for one image: it takes little time, memory and nothing else, reads the bytes from its standard
input, and tells what it found, first from the header, then with the preview. Only four formats are tried, by
their content. Only the first picture of an animation is decoded.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from parley.core.images import (
    IMAGE_BYTES_MAX,
    IMAGE_TYPES,
    PIXEL_BYTES,
    PIXELS_MAX,
    PREVIEW_PREFIX,
    ImageFacts,
    is_a_size,
    may_decode,
    webp_size,
    written,
)
from parley.wire.limits import MIB, PREVIEW_CHARS_MAX

if TYPE_CHECKING:
    from PIL import Image

CPU_SECONDS_MAX = 4
"""For one image, with the start of its process; the largest that are decoded take one."""
MEMORY_BYTES_MAX = 384 * MIB
"""Of addresses, with those of the libraries."""
DECODE_SECONDS_MAX = 20
"""An image that takes longer has no preview, on a machine however slow."""
assert all(
    PIXELS_MAX[image_format] * PIXEL_BYTES[image_format] + IMAGE_BYTES_MAX < MEMORY_BYTES_MAX
    for image_format in IMAGE_TYPES
), "an image within the limits of its format can be decoded"
FILES_OPEN_MAX = 16
POLITENESS = 5
"""The server and its messages go first."""
PREVIEWS = ((64, 60), (64, 30), (32, 30))
"""Side in pixels and quality: the first that is small enough is taken."""
SAMPLE_PIXELS_MAX = 512
"""A side of what a preview is made from: of a larger image some pixels are taken, without a copy of it."""
SAMPLES_PER_PIXEL = 3
PICTURE_QUALITY = 80
EXIF_ORIENTATION = 0x0112
WITH_EXIF = frozenset({"JPEG", "WEBP"})
"""Where what a camera wrote is in the header; of a PNG one would have to decode the pixels first."""
ALIASES = {"MPO": "JPEG"}
"""Several pictures in one JPEG, as phones write them: the first one counts."""
TURNED = frozenset({5, 6, 7, 8})
"""Orientations in which width and height change places."""
WHOLE = "whole"
"""The argument that says that the input is all of the file."""


def look_at(
    data: bytes, *, is_whole: bool, seen: Callable[[ImageFacts], None] = lambda _: None
) -> ImageFacts | None:
    """What is in a file, or in its beginning; None if that is no image. Raises nothing.

    `seen` is called with what the header says, before anything is decoded.
    """
    from PIL import Image

    size = webp_size(data)
    if size is not None and not may_decode("WEBP", *size, data):
        return ImageFacts("WEBP", *size) if is_a_size(*size) else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pixels, which are counted here
        try:
            with Image.open(io.BytesIO(data), formats=list(IMAGE_TYPES)) as image:
                return _facts(image, data, seen, is_whole=is_whole)
        except Exception:  # whatever a decoder makes of bytes that somebody sent
            return None


def _facts(
    image: Image.Image, data: bytes, seen: Callable[[ImageFacts], None], *, is_whole: bool
) -> ImageFacts | None:
    image_format, (width, height) = ALIASES.get(image.format or "", image.format or ""), image.size
    if image_format not in IMAGE_TYPES or not is_a_size(width, height):
        return None
    is_turned = image_format in WITH_EXIF and image.getexif().get(EXIF_ORIENTATION) in TURNED
    facts = ImageFacts(image_format, *((height, width) if is_turned else (width, height)))
    seen(facts)
    if not is_whole or not may_decode(image_format, width, height, data):
        return facts
    try:
        return facts._replace(preview=_preview(image))
    except Exception:  # its header is one, its pixels are not
        return facts


def _preview(image: Image.Image) -> str:
    """As a `data:` URL, without what the file says beside its pixels; empty if none is small enough."""
    from PIL import Image, ImageOps

    side = PREVIEWS[0][0]
    image.draft("RGB", (side * 2, side * 2))
    sampled = _sampled(image)
    upright = ImageOps.exif_transpose(sampled) if image.format != "PNG" else sampled
    has_alpha = upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info
    small = upright.convert("RGBA" if has_alpha else "RGB")
    for side, quality in PREVIEWS:
        small.thumbnail((side, side))
        bare = Image.new(small.mode, small.size)
        bare.paste(small)
        encoded = io.BytesIO()
        bare.save(encoded, "WEBP", quality=quality, method=4)
        preview = PREVIEW_PREFIX + base64.b64encode(encoded.getvalue()).decode()
        if len(preview) <= PREVIEW_CHARS_MAX:
            return preview
    return ""


def shrink(data: bytes, side: int) -> bytes:
    """An image as a WebP with this longer side at most, without what the file says beside its pixels.

    Empty if it cannot be made. Raises nothing.
    """
    from PIL import Image, ImageOps

    facts = look_at(data, is_whole=False)
    if facts is None or not may_decode(facts.image_format, facts.width, facts.height, data):
        return b""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(io.BytesIO(data), formats=list(IMAGE_TYPES)) as image:
                image.draft("RGB", (side * 2, side * 2))
                sampled = _sampled(image, side * SAMPLES_PER_PIXEL)
                upright = ImageOps.exif_transpose(sampled) if image.format != "PNG" else sampled
                has_alpha = upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info
                small = upright.convert("RGBA" if has_alpha else "RGB")
                small.thumbnail((side, side))
                bare = Image.new(small.mode, small.size)
                bare.paste(small)
                encoded = io.BytesIO()
                bare.save(encoded, "WEBP", quality=PICTURE_QUALITY, method=4)
                return encoded.getvalue()
        except Exception:  # whatever a decoder makes of bytes that somebody sent
            return b""


def _sampled(image: Image.Image, most: int = SAMPLE_PIXELS_MAX) -> Image.Image:
    from PIL import Image

    image.load()
    scale = most / max(image.size)
    if scale >= 1:
        return image
    width, height = (max(1, round(side * scale)) for side in image.size)
    return image.resize((width, height), Image.Resampling.NEAREST)


# The process


def limit_process() -> None:
    """What this process may take from now on; beyond that it ends. It opens and starts nothing."""
    for name, most in (
        (resource.RLIMIT_CPU, CPU_SECONDS_MAX),
        (resource.RLIMIT_AS, MEMORY_BYTES_MAX),
        (resource.RLIMIT_NOFILE, FILES_OPEN_MAX),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(name)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(ValueError):  # macOS has no limit of addresses
            resource.setrlimit(name, (least, least))
    os.nice(POLITENESS)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # of a group that ends: the server decides
    signal.alarm(DECODE_SECONDS_MAX)  # also if the server is gone


def main() -> None:
    limit_process()

    def tell(facts: ImageFacts) -> None:
        sys.stdout.buffer.write(written(facts))
        sys.stdout.buffer.flush()

    data = sys.stdin.buffer.read(IMAGE_BYTES_MAX)
    if sys.argv[1:] and sys.argv[1].isdigit():
        sys.stdout.buffer.write(shrink(data, int(sys.argv[1])))
        return
    found = look_at(data, is_whole=sys.argv[1:] == [WHOLE], seen=tell)
    if found is not None:
        tell(found)


if __name__ == "__main__":
    main()
