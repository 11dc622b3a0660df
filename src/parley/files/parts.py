"""The bytes of files in an object store: parts of one size, written once, in order.

Parts are the same in a folder and in a bucket, need no state beside the objects, and let an upload go on
after any crash: what is there says how far it is. Nothing holds more than a part in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256

from parley.core.attachments import Attachment, next_part, part_key
from parley.objects.ports import ObjectExists, ObjectMissing, Objects
from parley.wire.limits import ATTACHMENT_PART_BYTES, MIB

READ_BYTES = 1 * MIB
"""So much of a file is in memory while it is downloaded."""


class FileParts:
    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    @property
    def where(self) -> str:
        return self._objects.where

    async def stored_parts(self, attachment: Attachment) -> int:
        """How many parts are there, without a hole."""
        found = await self._objects.find(_folder(attachment))
        numbers = [(one.key.rpartition("/")[2], one.size_bytes) for one in found]
        return next_part(attachment, [(int(name), size) for name, size in numbers if name.isdecimal()])

    async def write(self, attachment: Attachment, number: int, data: bytes) -> bool:
        """Durable when it returns. False if there is such a part already, which stays as it is."""
        try:
            await self._objects.create(_key(attachment, number), data)
        except ObjectExists:
            return False
        return True

    async def read(self, attachment: Attachment, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes from `start` to before `end`, a little at a time. ObjectMissing if one is not there."""
        place = start
        while place < end:
            number, within = divmod(place, ATTACHMENT_PART_BYTES)
            wanted = min(READ_BYTES, end - place, ATTACHMENT_PART_BYTES - within)
            data = await self._objects.read_range(_key(attachment, number), within, wanted)
            if not data:
                raise ObjectMissing(self.where, _key(attachment, number))
            yield data
            place += len(data)

    async def digest(self, attachment: Attachment) -> str:
        """The SHA-256 of the whole file, read again."""
        digest = sha256()
        async for data in self.read(attachment, 0, attachment.size):
            digest.update(data)
        return digest.hexdigest()

    async def delete(self, attachment: Attachment) -> None:
        """Every part is gone when it returns. May be repeated."""
        for one in await self._objects.find(_folder(attachment)):
            await self._objects.delete(one.key)


def _folder(attachment: Attachment) -> str:
    return f"{attachment.attachment_id}/"


def _key(attachment: Attachment, number: int) -> str:
    return part_key(attachment.attachment_id, number)
