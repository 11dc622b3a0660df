"""Who may read a file, and its bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import structlog

from parley.clock import MS_PER_DAY, Clock
from parley.core.attachments import Attachment, AttachmentState
from parley.errors import NO_SUCH_ATTACHMENT, NOT_A_MEMBER, NOT_FOUND, NOT_UPLOADED, Refused
from parley.files.parts import FileParts
from parley.files.removal import FileRemoval
from parley.files.rights import WRONG_ADDRESS, UploadRights
from parley.files.signing import AddressSigner, Grant, Right
from parley.objects.ports import ObjectMissing
from parley.records.attachments import Attachments
from parley.store.ports import Directory
from parley.telemetry import Metrics

PICTURE_DAYS = 2
"""An address is made for today, and good until the end of tomorrow."""
NO_BYTES = NOT_FOUND.because("the bytes of this file are lost; its message is not")

log = structlog.get_logger("parley.files")


class Downloads:
    """`address_ms`: how long an address is valid."""

    def __init__(
        self,
        *,
        files: Attachments,
        parts: FileParts,
        removal: FileRemoval,
        directory: Directory,
        signer: AddressSigner,
        rights: UploadRights,
        clock: Clock,
        metrics: Metrics,
        address_ms: int,
    ) -> None:
        self._files = files
        self._parts = parts
        self._removal = removal
        self._directory = directory
        self._signer = signer
        self._rights = rights
        self._clock = clock
        self._metrics = metrics
        self._address_ms = address_ms

    async def find(self, user_id: str, chat_id: str, attachment_id: str) -> Attachment:
        """A file that a person may know of: of a message in a chat of theirs, or their own. Refused else."""
        if await self._directory.role(chat_id, user_id) is None:
            raise Refused(NOT_A_MEMBER)
        file = await self._files.get(chat_id, attachment_id)
        if file is None or not await self._is_there(file):
            raise Refused(NO_SUCH_ATTACHMENT)
        is_sent = file.state not in (AttachmentState.UPLOADING, AttachmentState.COMPLETE)
        if not is_sent and file.user_id != user_id:
            raise Refused(NO_SUCH_ATTACHMENT)
        return file

    async def _is_there(self, file: Attachment) -> bool:
        """One that is being removed is there for as long as its message has it."""
        return file.state is not AttachmentState.REMOVING or await self._removal.is_referred_to(file)

    async def read_token(self, file: Attachment) -> tuple[str, int]:
        """A token for an address to read from, and until when it is valid."""
        return await self._token(file, Right.DOWNLOAD, self._clock() + self._address_ms)

    async def picture_token(self, file: Attachment) -> str:
        """A token for addresses of smaller pictures: the same for a whole day, so that browsers keep them."""
        until_ms = (self._clock() // MS_PER_DAY + PICTURE_DAYS) * MS_PER_DAY
        return (await self._token(file, Right.PICTURE, until_ms))[0]

    async def upload_token(
        self, file: Attachment, session_id: str, ends_at_ms: int | None
    ) -> tuple[str, int]:
        """A token for an address to send the bytes to, and until when it is valid.

        It ends with the session that asks for it, and at `ends_at_ms` if that has a fixed end.
        """
        until_ms = file.upload_until_ms if ends_at_ms is None else min(file.upload_until_ms, ends_at_ms)
        return await self._token(file, Right.UPLOAD, until_ms, session_id)

    async def _token(
        self, file: Attachment, right: Right, until_ms: int, session_id: str = ""
    ) -> tuple[str, int]:
        grant = Grant(
            right, file.chat_id, file.attachment_id, file.size, file.content_type, until_ms, session_id
        )
        return await self._signer.token(grant), until_ms

    async def granted(self, token: str, right: Right) -> tuple[Attachment, Grant]:
        """The file that an address is for, and what it allows. Refused if it is not valid now."""
        grant = await self._signer.grant(token, right, self._clock())
        file = await self._files.get(grant.chat_id, grant.attachment_id) if grant is not None else None
        if grant is None or file is None or not grant.is_for(file) or not await self._is_there(file):
            raise Refused(WRONG_ADDRESS)
        if right is Right.UPLOAD:
            await self._rights.check(file, grant.session_id)
        if right is not Right.UPLOAD and file.state is AttachmentState.UPLOADING:
            raise Refused(NOT_UPLOADED)
        return file, grant

    async def read(self, file: Attachment, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes from `start` to before `end`. Refused if they are not there, as after a restore."""
        try:
            async for data in self._parts.read(file, start, end):
                self._metrics.attachment_bytes.labels("out").inc(len(data))
                yield data
        except ObjectMissing as error:
            log.error("the bytes of a file are missing", attachment_id=file.attachment_id, error=str(error))
            raise Refused(NO_BYTES) from error
