"""Images that are small to send and dear to decode, made by code."""

import io
import re
import struct

from PIL import Image


def jpeg_of_scans(repeats: int, side: int = 600) -> bytes:
    """A progressive JPEG whose last scan comes so many times more. Each costs as much as all its pixels."""
    written = io.BytesIO()
    Image.new("L", (side, side), 128).save(written, "JPEG", progressive=True, quality=50)
    data = written.getvalue()
    starts = [found.start() for found in re.finditer(b"\xff\xda", data)]
    end = data.rindex(b"\xff\xd9")
    scans = [data[start:until] for start, until in zip(starts, [*starts[1:], end], strict=True)]
    return data[:end] + min(scans, key=len) * repeats + data[end:]


def webp_of_pixels(width: int, height: int) -> bytes:
    """One red rectangle. A decoder takes 20 bytes of memory for each of its pixels."""
    written = io.BytesIO()
    Image.new("RGB", (1, 1), "red").save(written, "WEBP", lossless=True)
    data = bytearray(written.getvalue())
    assert data[12:16] == b"VP8L"
    bits = struct.unpack_from("<I", data, 21)[0] >> 28
    struct.pack_into("<I", data, 21, bits << 28 | (height - 1) << 14 | (width - 1))
    return bytes(data)
