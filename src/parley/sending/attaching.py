"""Messages that refer to files.

    claim the files → entry → the files are attached → answer

A claim is durable before the message is: a file that a message refers to is never swept, and belongs to one
message. A crash leaves a claim; the sweep looks whether the message is stored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from msgspec import Struct

from parley.clock import Clock
from parley.core.attachments import Attachment, AttachmentState, may_claim
from parley.errors import Refused, StoreError
from parley.model import Appended, Draft
from parley.records.attachments import Attachments
from parley.store.ports import Log
from parley.telemetry import Metrics

TRIES_MAX = 20

SendOn = Callable[[Draft], Awaitable[Appended]]


class Claim(Struct, frozen=True):
    """A file as it is now. `is_new`: this attempt to send the message has claimed it, and no earlier one."""

    after: Attachment
    is_new: bool


class Attaching:
    def __init__(
        self,
        files: Attachments,
        messages: Log,
        clock: Clock,
        metrics: Metrics,
        fault_point: Callable[[str], None],
    ) -> None:
        self._files = files
        self._log = messages
        self._clock = clock
        self._metrics = metrics
        self._fault_point = fault_point

    async def send(self, draft: Draft, send_on: SendOn) -> Appended:
        """Send a message with files. If one may not be used, a retry is answered and all else refused."""
        assert draft.client_key is not None
        claimed = await self._claim(draft, draft.client_key)
        draft.files = tuple(claim.after.file for claim in claimed)
        self._fault_point("file_after_claim")
        try:
            appended = await send_on(draft)
        except Refused as error:
            if not error.refusal.temporary:
                await self._release(draft, claimed)
            raise
        self._fault_point("file_after_append")
        with contextlib.suppress(StoreError):  # it is stored: the sweep does the rest
            for claim in claimed:
                await self._attach(claim.after, appended.sequence)
        return appended

    async def _claim(self, draft: Draft, client_key: bytes) -> list[Claim]:
        """The files of a draft, all of them claimed for it; none if one may not be."""
        claimed: list[Claim] = []
        for attachment_id in draft.attachments:
            claim = await self._claim_one(draft, client_key, attachment_id)
            if claim is None:
                await self._release(draft, claimed)
                return []
            claimed.append(claim)
        return claimed

    async def _claim_one(self, draft: Draft, client_key: bytes, attachment_id: str) -> Claim | None:
        for _ in range(TRIES_MAX):
            file = await self._files.get(draft.chat_id, attachment_id)
            if file is None or not may_claim(file, draft.chat_id, draft.sender_id, client_key):
                return None
            if file.state is not AttachmentState.COMPLETE:
                return Claim(file, is_new=False)
            claimed = file.moved(AttachmentState.CLAIMED, self._clock(), client_key=client_key)
            if await self._files.swap(file, claimed):
                return Claim(claimed, is_new=True)
        return None

    async def _release(self, draft: Draft, claimed: list[Claim]) -> None:
        """The message will not be sent; unless it was, by another attempt."""
        with contextlib.suppress(StoreError):
            key = draft.client_key
            if key is None or await self._log.find_key(draft.chat_id, key) is not None:
                return
            for claim in claimed:
                if claim.is_new:
                    free = claim.after.moved(AttachmentState.COMPLETE, self._clock(), client_key=b"")
                    await self._files.swap(claim.after, free)

    async def _attach(self, file: Attachment, sequence: int) -> None:
        """From now on the sweep does not look at it. One that a delete has marked meanwhile stays so."""
        found: Attachment | None = file
        while found is not None and found.state in (AttachmentState.CLAIMED, AttachmentState.COMPLETE):
            attached = found.moved(
                AttachmentState.ATTACHED, self._clock(), client_key=file.client_key, sequence=sequence
            )
            if await self._files.swap(found, attached):
                self._metrics.attachments.labels("attached").inc()
                return
            found = await self._files.get(file.chat_id, file.attachment_id)
