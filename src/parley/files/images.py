"""What an image is: its format, its size, and a small preview. Runs in a thread, one image at a time.

What people upload may be made to break a decoder: only four formats are tried, by their content, the header
is read first, and an image with too many pixels is never decoded.

The decoders are imported with the first image: a server without any starts faster.
"""

from __future__ import annotations

import base64
import io
import warnings
from typing import TYPE_CHECKING

from msgspec import Struct

from parley.core.attachments import IMAGE_TYPES
from parley.wire.limits import MIB, PREVIEW_LETTERS_MAX

if TYPE_CHECKING:
    from PIL import Image

PIXELS_MAX = 40_000_000
"""A larger image is not decoded, and has no preview: so many pixels take 160 MB of memory."""
SIDE_PIXELS_MAX = 2**31 - 1
IMAGE_BYTES_MAX = 32 * MIB
"""A larger file is not decoded either; its header is in its first part."""
PREVIEWS = ((64, 60), (64, 30), (32, 30))
"""Side in pixels and quality: the first that is small enough is taken."""
PREVIEW_PREFIX = "data:image/webp;base64,"
EXIF_ORIENTATION = 0x0112
WITH_EXIF = frozenset({"JPEG", "WEBP"})
"""Where what a camera wrote is in the header; of a PNG one would have to decode the pixels first."""
ALIASES = {"MPO": "JPEG"}
"""Several pictures in one JPEG, as phones write them: the first one counts."""
TURNED = frozenset({5, 6, 7, 8})
"""Orientations in which width and height change places."""


class ImageFacts(Struct, frozen=True):
    """`image_format`: one of `IMAGE_TYPES`."""

    image_format: str
    width: int
    height: int
    preview: str = ""


def look_at(data: bytes, *, is_whole: bool) -> ImageFacts | None:
    """What is in a file, or in its beginning; None if that is no image. Raises nothing."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pixels, which are counted here
        try:
            with Image.open(io.BytesIO(data), formats=list(IMAGE_TYPES)) as image:
                return _facts(image, may_decode=is_whole)
        except Exception:  # whatever a decoder makes of bytes that somebody sent
            return None


def _facts(image: Image.Image, *, may_decode: bool) -> ImageFacts | None:
    image_format, (width, height) = ALIASES.get(image.format or "", image.format or ""), image.size
    if image_format not in IMAGE_TYPES or not (
        0 < width <= SIDE_PIXELS_MAX and 0 < height <= SIDE_PIXELS_MAX
    ):
        return None
    is_turned = image_format in WITH_EXIF and image.getexif().get(EXIF_ORIENTATION) in TURNED
    shown = (height, width) if is_turned else (width, height)
    facts = ImageFacts(image_format, *shown)
    if not may_decode or width * height > PIXELS_MAX:
        return facts
    try:
        return ImageFacts(image_format, *shown, _preview(image))
    except Exception:  # its header is one, its pixels are not
        return facts


def _preview(image: Image.Image) -> str:
    """As a `data:` URL, without what the file says beside its pixels; empty if none is small enough."""
    from PIL import Image, ImageOps

    side = PREVIEWS[0][0]
    image.draft("RGB", (side * 2, side * 2))
    upright = ImageOps.exif_transpose(image) if image.format != "PNG" else image
    has_alpha = upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info
    small = upright.convert("RGBA" if has_alpha else "RGB")
    for side, quality in PREVIEWS:
        small.thumbnail((side, side))
        bare = Image.new(small.mode, small.size)
        bare.paste(small)
        written = io.BytesIO()
        bare.save(written, "WEBP", quality=quality, method=4)
        preview = PREVIEW_PREFIX + base64.b64encode(written.getvalue()).decode()
        if len(preview) <= PREVIEW_LETTERS_MAX:
            return preview
    return ""
