"""A message on its way, as its sender holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from enum import StrEnum
from typing import Any

from parley.client.engine import Engine
from parley.client.errors import ClientError
from parley.client.keeping import Outgoing
from parley.wire.frames import Ack


class MessageStatus(StrEnum):
    """What became of a message. Delivered and read are known while its chat is open."""

    SENDING = "sending"
    SENT = "sent"
    DELIVERED = "delivered"
    READ = "read"
    FAILED = "failed"


class Sending:
    """Await it for the ack: the message is then durable at its position.

    Not awaiting it, or giving up waiting, changes nothing: the message stays in the outbox until it is
    acknowledged or refused for good. RequestRefused says that it was; Closed that this client ended first.
    """

    __slots__ = ("_done", "_engine", "_kept", "_outcome", "message")

    def __init__(self, message: Outgoing, engine: Engine, *, is_kept: bool) -> None:
        self.message = message
        self._engine = engine
        self._outcome: Ack | ClientError | None = None
        self._done = asyncio.Event()
        self._kept = asyncio.Event()
        if is_kept:
            self._kept.set()

    @property
    def client_message_id(self) -> str:
        return self.message.client_message_id

    @property
    def done(self) -> bool:
        return self._outcome is not None

    @property
    def status(self) -> MessageStatus:
        """How far it is now: from sending to read, or failed."""
        if self._outcome is None:
            return MessageStatus.SENDING
        if isinstance(self._outcome, ClientError):
            return MessageStatus.FAILED
        return status_of(self._engine, self.message.chat_id, self._outcome.sequence, self._engine.user_id)

    @property
    def queued(self) -> bool:
        """Whether it waits here (offline, or the quick retries are spent) rather than for its ack."""
        return not self.done and self._engine.outbox.is_queued(self.message.key)

    def __await__(self) -> Generator[Any, None, Ack]:
        return self._wait().__await__()

    async def kept(self) -> None:
        """Return once the message survives this process: it is in the outbox file, or acknowledged."""
        await self._kept.wait()
        if isinstance(self._outcome, ClientError):
            raise self._outcome

    def settle(self, outcome: Ack | ClientError) -> None:
        self._outcome = outcome
        self._done.set()
        self._kept.set()

    def note_kept(self) -> None:
        self._kept.set()

    async def _wait(self) -> Ack:
        await self._done.wait()
        if isinstance(self._outcome, ClientError):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome


def status_of(engine: Engine, chat_id: str, sequence: int, sender_id: str) -> MessageStatus:
    """The status of a stored message, as far as it is known here."""
    receipts = engine.live.receipts(chat_id, sequence, sender_id)
    return MessageStatus.SENT if receipts is None else MessageStatus(receipts.status)
