"""Smaller pictures of images, made when first asked for, by a process of its own like every decoding.

They are kept in the memory of this node while there is room, and nowhere else: nothing has to be removed with
a message, and a browser keeps what it got.
"""

from __future__ import annotations

from collections import OrderedDict

from parley.core.attachments import Attachment
from parley.errors import NOT_FOUND, Refused
from parley.files.decoder import ImageDecoder
from parley.files.downloads import Downloads
from parley.wire.limits import MIB

SIDES = (320, 960)
"""The longer side, in pixels; a smaller image stays as large as it is."""
CONTENT_TYPE = "image/webp"
KEPT_BYTES_MAX = 16 * MIB
FAILED_MAX = 10_000
"""Of so many pictures it is remembered that they could not be made."""
NO_PICTURE = NOT_FOUND.because("there is no such picture of this file")


def has_pictures(file: Attachment) -> bool:
    """Whether smaller pictures of a file can be made: only of an image that was decoded within its limits."""
    return bool(file.preview)


class Renditions:
    def __init__(self, downloads: Downloads, decoder: ImageDecoder) -> None:
        self._downloads = downloads
        self._decoder = decoder
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._kept_bytes = 0
        self._failed: OrderedDict[tuple[str, int], None] = OrderedDict()
        """A picture that took too much is not tried each time that somebody asks for it."""

    async def picture(self, file: Attachment, side: int) -> bytes:
        """A WebP with this longer side at most. Refused if none can be made of the file."""
        if side not in SIDES or not has_pictures(file):
            raise Refused(NO_PICTURE)
        found = self._find(file, side)
        if found is not None:
            return found
        async with self._decoder.turn(file.user_id):
            found = self._find(file, side)  # somebody else asked for it at the same time
            if found is None:
                data = bytearray()
                async for some in self._downloads.read(file, 0, file.size):
                    data += some
                found = await self._decoder.shrink(bytes(data), side)
        if found is None:
            self._note_failed(file, side)
            raise Refused(NO_PICTURE)
        self._keep(file, side, found)
        return found

    def _note_failed(self, file: Attachment, side: int) -> None:
        self._failed[file.attachment_id, side] = None
        while len(self._failed) > FAILED_MAX:
            self._failed.popitem(last=False)

    def _find(self, file: Attachment, side: int) -> bytes | None:
        """What was made of it; None if nothing was. Refused if it could not be made."""
        key = file.attachment_id, side
        if key in self._failed:
            raise Refused(NO_PICTURE)
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def _keep(self, file: Attachment, side: int, picture: bytes) -> None:
        key = file.attachment_id, side
        self._kept_bytes += len(picture) - len(self._kept.get(key, b""))
        self._kept[key] = picture
        while self._kept_bytes > KEPT_BYTES_MAX:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= len(oldest)
