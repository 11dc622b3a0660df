"""Uploads: announced by a member, sent in ranges to a signed address, verified with the last one."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
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
from parley.errors import (
    BAD_REQUEST,
    BUSY,
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
from parley.store.attachments import Attachments
from parley.store.ports import Directory
from parley.telemetry import Metrics
from parley.wire.limits import ATTACHMENT_PART_BYTES

if TYPE_CHECKING:
    from hashlib import _Hash

UPLOADS_AT_ONCE_MAX = 16
"""On one node: each may have a part in memory."""
UPLOADS_PER_PERSON_MAX = 4
HASHES_KEPT_MAX = 256
"""Uploads whose hash so far is remembered; the others are read again when they are complete."""
PART_SECONDS_MAX = 120.0
"""A client that is slower than a part in this time must ask again: it would hold its memory for too long."""
NOT_WHOLE = WRONG_RANGE.because(
    f"a range starts at a multiple of {ATTACHMENT_PART_BYTES} and ends at one, or with the file"
)
CROWDED = BUSY.because("too many uploads are under way; try again")
TOO_SLOW = BAD_REQUEST.because(f"a part must come within {PART_SECONDS_MAX:g} seconds; go on from `received`")
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
        files: Attachments,
        parts: FileParts,
        removal: FileRemoval,
        directory: Directory,
        rules: AttachmentRules,
        clock: Clock,
        make_ids: ids.Ids,
        metrics: Metrics,
        *,
        quota_bytes: int,
        upload_ms: int,
        reach: Callable[[str], None],
    ) -> None:
        self._files = files
        self._parts = parts
        self._removal = removal
        self._directory = directory
        self._rules = rules
        self._clock = clock
        self._ids = make_ids
        self._metrics = metrics
        self._quota_bytes = quota_bytes
        self._upload_ms = upload_ms
        self._reach = reach
        self.under_way: defaultdict[str, int] = defaultdict(int)
        """How many uploads of each person are being received."""
        self._hashes: OrderedDict[str, tuple[int, _Hash]] = OrderedDict()
        self.decoder = ImageDecoder()

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
        if self._quota_bytes:
            used = await self._files.charged_bytes(user_id)
            if used + attachment.charge > self._quota_bytes:
                raise Refused(QUOTA_EXCEEDED.because(f"your files take {used} of {self._quota_bytes} bytes"))
        await self._files.add(attachment)
        self._metrics.attachments.labels("announced").inc()
        return attachment

    async def progress(self, attachment: Attachment) -> UploadProgress:
        if attachment.state is not AttachmentState.UPLOADING:
            return UploadProgress(attachment, attachment.size)
        parts = await self._parts.stored_parts(attachment)
        return UploadProgress(attachment, min(parts * ATTACHMENT_PART_BYTES, attachment.size))

    # Ranges

    async def receive(
        self, attachment: Attachment, start: int, end: int, chunks: AsyncIterator[bytes]
    ) -> UploadProgress:
        """Store the bytes from `start` to before `end`, part by part, and finish with the last one.

        What came before a failure stays, in whole parts.
        """
        if attachment.state is not AttachmentState.UPLOADING:
            return UploadProgress(attachment, attachment.size)
        if not is_whole_range(attachment, start, end):
            raise Refused(NOT_WHOLE)
        received = (await self.progress(attachment)).received
        if start != received:
            raise Refused(WRONG_RANGE.because(f"the next byte is {received}"))
        with _Slot(self.under_way, attachment.user_id):
            await self._store(attachment, start, end, chunks)
        if end == attachment.size:
            return await self.finish(attachment)
        return UploadProgress(attachment, end)

    async def _store(
        self, attachment: Attachment, start: int, end: int, chunks: AsyncIterator[bytes]
    ) -> None:
        part, number, left = bytearray(), start // ATTACHMENT_PART_BYTES, end - start
        patience = asyncio.timeout(PART_SECONDS_MAX)
        loop = asyncio.get_running_loop()
        try:
            async with patience:
                async for chunk in chunks:
                    left -= len(chunk)
                    if left < 0:
                        raise Refused(TOO_LONG)
                    part += chunk
                    while part and len(part) >= attachment.part_bytes(number):
                        size = attachment.part_bytes(number)
                        await self._write(attachment, number, bytes(part[:size]))
                        del part[:size]
                        number += 1
                        patience.reschedule(loop.time() + PART_SECONDS_MAX)
        except TimeoutError as error:
            raise Refused(TOO_SLOW) from error
        if left:
            raise Refused(CUT_SHORT)

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
        self._reach("file_after_part")

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
        self._reach("file_before_complete")
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

    async def _read(self, attachment: Attachment, size: int) -> bytes:
        data = bytearray()
        async for some in self._parts.read(attachment, 0, min(size, attachment.size)):
            data += some
        return bytes(data)


class _Slot:
    """One of the uploads that a node receives at once; Refused if there are too many."""

    def __init__(self, under_way: defaultdict[str, int], user_id: str) -> None:
        self._under_way = under_way
        self._user_id = user_id

    def __enter__(self) -> None:
        crowd, own = sum(self._under_way.values()), self._under_way[self._user_id]
        if crowd >= UPLOADS_AT_ONCE_MAX or own >= UPLOADS_PER_PERSON_MAX:
            raise Refused(CROWDED)
        self._under_way[self._user_id] += 1

    def __exit__(self, *_: object) -> None:
        self._under_way[self._user_id] -= 1
        if not self._under_way[self._user_id]:
            del self._under_way[self._user_id]
