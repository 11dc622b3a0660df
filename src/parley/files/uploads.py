"""Uploads: announced by a member, sent in ranges to a signed address, verified with the last one."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from typing import TYPE_CHECKING

import structlog
from msgspec import Struct

from parley import ids
from parley.clock import Clock
from parley.core.attachments import (
    HEAD_BYTES,
    Attachment,
    AttachmentRules,
    AttachmentState,
    clean_name,
    clean_type,
    is_whole_range,
    seen_type,
)
from parley.core.images import IMAGE_BYTES_MAX, ImageFacts
from parley.core.upload_slots import part_seconds_max
from parley.errors import (
    BAD_REQUEST,
    CHECKSUM_MISMATCH,
    NO_SUCH_ATTACHMENT,
    NOT_A_MEMBER,
    NOT_UPLOADED,
    QUOTA_EXCEEDED,
    WRONG_RANGE,
    Refused,
)
from parley.files.decoder import ImageDecoder
from parley.files.parts import FileParts
from parley.files.removal import FileRemoval
from parley.files.rights import UploadRights
from parley.files.slots import UploadSlot, UploadSlots
from parley.files.turns import FairTurns
from parley.records.attachments import Attachments
from parley.store.ports import Directory
from parley.telemetry import Metrics
from parley.wire.limits import ATTACHMENT_PART_BYTES

if TYPE_CHECKING:
    from hashlib import _Hash

ANNOUNCED_AT_ONCE_MAX = 64
"""On one node, by as many people."""
HASHES_KEPT_MAX = 256
"""Uploads whose hash so far is remembered; the others are read again when they are complete."""
WRITE_SECONDS_MAX = 120.0
"""So long may an object store take for a part."""
NOT_WHOLE = WRONG_RANGE.because(
    f"a range starts at a multiple of {ATTACHMENT_PART_BYTES} and ends at one, or with the file"
)
CUT_SHORT = BAD_REQUEST.because("the body ended before its range did; go on from `received`")
TOO_LONG = BAD_REQUEST.because("the body is longer than its range")

log = structlog.get_logger("parley.files")


class UploadProgress(Struct, frozen=True):
    """How much of a file is stored: what comes next starts there."""

    attachment: Attachment
    received: int


class Uploads:
    """`quota_bytes`: the room of a person, 0 for any. `upload_ms`: how long an upload may take."""

    def __init__(
        self,
        *,
        files: Attachments,
        parts: FileParts,
        removal: FileRemoval,
        directory: Directory,
        rules: AttachmentRules,
        rights: UploadRights,
        clock: Clock,
        make_ids: ids.Ids,
        metrics: Metrics,
        quota_bytes: int,
        upload_ms: int,
        fault_point: Callable[[str], None],
    ) -> None:
        self._files = files
        self._parts = parts
        self._removal = removal
        self._directory = directory
        self._rules = rules
        self._rights = rights
        self._clock = clock
        self._ids = make_ids
        self._metrics = metrics
        self._quota_bytes = quota_bytes
        self._upload_ms = upload_ms
        self._fault_point = fault_point
        self.slots = UploadSlots()
        self._hashes: OrderedDict[str, tuple[int, _Hash]] = OrderedDict()
        self.decoder = ImageDecoder()
        self.announcing = FairTurns(ANNOUNCED_AT_ONCE_MAX)

    async def announce(
        self, user_id: str, chat_id: str, name: str, size: int, content_type: str, sha256: str
    ) -> Attachment:
        """Begin an upload of a member. Refused if the file may not be taken."""
        name, content_type, sha256 = clean_name(name), clean_type(content_type), sha256.lower()
        refusal = self._rules.refusal(name, size, content_type, sha256)
        if refusal is not None:
            raise Refused(refusal)
        if await self._directory.role(chat_id, user_id) is None:
            raise Refused(NOT_A_MEMBER)
        now_ms = self._clock()
        attachment = Attachment(
            chat_id=chat_id,
            attachment_id=self._ids.next(ids.ATTACHMENT, now_ms),
            user_id=user_id,
            name=name,
            size=size,
            content_type=content_type,
            sha256=sha256,
            state=AttachmentState.UPLOADING,
            created_at_ms=now_ms,
            since_ms=now_ms,
            upload_until_ms=now_ms + self._upload_ms,
        )
        async with self.announcing.turn(user_id):
            await self._take_room(attachment)
        self._metrics.attachments.labels("announced").inc()
        return attachment

    async def _take_room(self, attachment: Attachment) -> None:
        """One announcement of a person after the other: so what fits is taken. Other nodes do not wait."""
        await self._check_room(attachment.user_id, attachment.charge)
        await self._files.add(attachment)
        try:
            await self._check_room(attachment.user_id, 0)
        except Refused:
            await self._files.remove(attachment)
            raise

    async def _check_room(self, user_id: str, more: int) -> None:
        """Refused if a person's files, and so much more, are beyond their room.

        Asked before a file is announced and again after: of several at once, on several nodes, the last sees
        all the others. On different nodes they may be refused together, and never take too much together.
        """
        if not self._quota_bytes:
            return
        used = await self._files.charged_bytes(user_id)
        if used + more > self._quota_bytes:
            raise Refused(QUOTA_EXCEEDED.because(f"your files take {used} of {self._quota_bytes} bytes"))

    async def progress(self, attachment: Attachment) -> UploadProgress:
        if attachment.state is not AttachmentState.UPLOADING:
            return UploadProgress(attachment, attachment.size)
        parts = await self._parts.stored_parts(attachment)
        return UploadProgress(attachment, min(parts * ATTACHMENT_PART_BYTES, attachment.size))

    # Ranges

    async def receive(
        self,
        attachment: Attachment,
        start: int,
        end: int,
        chunks: AsyncIterator[bytes],
        *,
        session_id: str = "",
    ) -> UploadProgress:
        """Store the bytes from `start` to before `end`, part by part, and finish with the last one.

        What came before a failure stays, in whole parts. `session_id`: who asked for the address; each part
        is stored only while they may upload. Refused as temporary if the bytes come too slowly.
        """
        if attachment.state is not AttachmentState.UPLOADING:
            return UploadProgress(attachment, attachment.size)
        if not is_whole_range(attachment, start, end):
            raise Refused(NOT_WHOLE)
        received = (await self.progress(attachment)).received
        if start != received:
            raise Refused(WRONG_RANGE.because(f"the next byte is {received}"))
        async with self.slots.taken(attachment.user_id) as slot:
            async for number, part in _parts_of(attachment, start, end, chunks, slot):
                await self._rights.check(attachment, session_id)
                await self._write(attachment, number, part)
            if end == attachment.size:
                return await self._finish(attachment)
        return UploadProgress(attachment, end)

    async def _write(self, attachment: Attachment, number: int, data: bytes) -> None:
        """A part after the end of the upload would never be swept."""
        if self._clock() >= attachment.upload_until_ms:
            raise Refused(NO_SUCH_ATTACHMENT)
        if not await self._parts.write(attachment, number, data):
            raise Refused(WRONG_RANGE.because("another request sends the same range"))
        now = await self._files.get(attachment.chat_id, attachment.attachment_id)
        if now is None or now.state is AttachmentState.REMOVING:
            # It was discarded meanwhile, maybe by another node, which did not see this part.
            await self._parts.delete(attachment)
            raise Refused(NO_SUCH_ATTACHMENT)
        self._metrics.attachment_bytes.labels("in").inc(len(data))
        await self._hash(attachment, number, data)
        self._fault_point("file_after_part")

    async def _hash(self, attachment: Attachment, number: int, data: bytes) -> None:
        known, digest = self._hashes.pop(attachment.attachment_id, (0, sha256()))
        if known == number:
            await asyncio.to_thread(digest.update, data)
            self._hashes[attachment.attachment_id] = number + 1, digest
            while len(self._hashes) > HASHES_KEPT_MAX:
                self._hashes.popitem(last=False)

    # The end

    async def finish(self, attachment: Attachment) -> UploadProgress:
        """Verify what was uploaded, look at images, and make it complete. May be repeated."""
        async with self.slots.taken(attachment.user_id):
            return await self._finish(attachment)

    async def _finish(self, attachment: Attachment) -> UploadProgress:
        if (await self._parts.stored_parts(attachment)) < attachment.part_count:
            raise Refused(NOT_UPLOADED)
        known, digest = self._hashes.pop(attachment.attachment_id, (0, None))
        is_known = digest is not None and known == attachment.part_count
        found = digest.hexdigest() if is_known and digest else await self._parts.digest(attachment)
        if attachment.sha256 not in ("", found):
            await self._removal.discard(attachment)
            self._metrics.attachments.labels("mismatched").inc()
            raise Refused(CHECKSUM_MISMATCH)
        head, facts = await self._look(attachment)
        complete = attachment.moved(
            AttachmentState.COMPLETE,
            self._clock(),
            sha256=found,
            content_type=seen_type(attachment.content_type, facts.image_format if facts else None, head),
            width=facts.width if facts else 0,
            height=facts.height if facts else 0,
            preview=facts.preview if facts else "",
        )
        self._fault_point("file_before_complete")
        if not await self._files.swap(attachment, complete):
            now = await self._files.get(attachment.chat_id, attachment.attachment_id)
            if now is None or now.state in (AttachmentState.UPLOADING, AttachmentState.REMOVING):
                raise Refused(NO_SUCH_ATTACHMENT)
            return UploadProgress(now, now.size)
        self._metrics.attachments.labels("completed").inc()
        return UploadProgress(complete, complete.size)

    async def _look(self, attachment: Attachment) -> tuple[bytes, ImageFacts | None]:
        """The first bytes of a file and, if it says that it is an image, what it shows."""
        if not attachment.content_type.startswith("image/"):
            return await self._read(attachment, HEAD_BYTES), None
        async with self.decoder.turn(attachment.user_id):
            is_whole = attachment.size <= IMAGE_BYTES_MAX
            data = await self._read(attachment, attachment.size if is_whole else ATTACHMENT_PART_BYTES)
            facts = await self.decoder.look(data, is_whole=is_whole)
        if facts is not None and not facts.preview:
            self._metrics.attachments.labels("without_preview").inc()
        return data[:HEAD_BYTES], facts

    def close(self) -> None:
        """Images that are looked at are left; the last range of their uploads is refused as temporary."""
        self.decoder.close()
        self.announcing.close()

    async def _read(self, attachment: Attachment, size: int) -> bytes:
        data = bytearray()
        async for some in self._parts.read(attachment, 0, min(size, attachment.size)):
            data += some
        return bytes(data)


async def _parts_of(
    attachment: Attachment, start: int, end: int, chunks: AsyncIterator[bytes], slot: UploadSlot
) -> AsyncIterator[tuple[int, bytes]]:
    """The parts of a range with their numbers, as they become whole. Each in its time, or the slot ends."""
    loop = asyncio.get_running_loop()
    part, number, left = bytearray(), start // ATTACHMENT_PART_BYTES, end - start
    began = loop.time()
    slot.allow_until(began + part_seconds_max(0))
    async for chunk in chunks:
        left -= len(chunk)
        if left < 0:
            raise Refused(TOO_LONG)
        part += chunk
        while part and len(part) >= attachment.part_bytes(number):
            size = attachment.part_bytes(number)
            slot.allow_until(loop.time() + WRITE_SECONDS_MAX)
            yield number, bytes(part[:size])
            del part[:size]
            number, began = number + 1, loop.time()
        slot.allow_until(began + part_seconds_max(len(part)))
    if left:
        raise Refused(CUT_SHORT)
    slot.allow_until(None)
