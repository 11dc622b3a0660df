"""Events that are in no chat's log: receipts, and what happens to accounts.

They use queues like messages. A stream of them has a name in place of a chat, and positions of its own:

    receipt.read/chat_…/user_…    positions are those of the chat: one event says how far the person is
    user_…                        positions are times in milliseconds: one event says how the account is now

Only the newest position of a stream matters, so what rises several times while an event waits is told once.
The creation of an account is the exception: it is always told, first.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace

from parley import ids
from parley.clock import Clock, from_iso, iso
from parley.core.deliveries import DeliveryQueue, QueueClaim
from parley.delivery.ports import Source
from parley.ephemeral.signals import ReceiptSignal
from parley.errors import Refused, StoreError
from parley.model import AccountState, ReceiptKind
from parley.records.accounts import Accounts
from parley.records.deliveries import DeliveryRecords
from parley.wire.frames import Entry
from parley.wire.webhook_events import EventName

RECEIPTS = {ReceiptKind.DELIVERED: EventName.RECEIPT_DELIVERED, ReceiptKind.READ: EventName.RECEIPT_READ}
CREATED = EventName.ACCOUNT_CREATED
STATES = {
    AccountState.ACTIVE: EventName.ACCOUNT_ENABLED,
    AccountState.DISABLED: EventName.ACCOUNT_DISABLED,
    AccountState.DELETED: EventName.ACCOUNT_DELETED,
}
SEPARATOR = "/"
EVERY_POSITION = 2**62
HOLD_MS = 10_000
"""How long an event of an account waits for the change that it tells of. After that it tells what is so."""
FLUSH_SECONDS = 0.2
STREAMS_WAITING_MAX = 10_000
"""Beyond it receipts are not told. The next one of the same person in the same chat says it too."""
KNOWN_SECONDS = 1.0
"""How soon receipts go to a new webhook."""

log = structlog.get_logger("parley.delivery")


class ReceiptData(Struct):
    """The `data` of a receipt: this person has it, or has read it, up to here."""

    user_id: str
    up_to_sequence: int


class AccountData(Struct):
    """The `data` of an event of an account. A deleted one has no username."""

    user_id: str
    username: str | None
    state: str


def chat_of(stream_id: str) -> str:
    """The chat that a stream is about; its own name if that is a chat's, or a person's."""
    parts = stream_id.split(SEPARATOR)
    return parts[1] if len(parts) == 3 else stream_id


class EventSource:
    """The logs of chats, and the streams of other events."""

    def __init__(self, logs: Source, accounts: Accounts, clock: Clock) -> None:
        self._logs = logs
        self._accounts = accounts
        self._clock = clock

    async def read(self, stream_id: str, after: int, limit: int) -> tuple[dict[int, bytes], int]:
        if stream_id.startswith(ids.USER):
            return await self._account(stream_id, after)
        if SEPARATOR in stream_id:
            return self._receipt(stream_id, after + limit)
        return await self._logs.read(stream_id, after, limit)

    def _receipt(self, stream_id: str, position: int) -> tuple[dict[int, bytes], int]:
        """The highest position that is asked for says what those below it say."""
        kind, chat_id, user_id = stream_id.split(SEPARATOR)
        data = ReceiptData(user_id, position)
        wire = _wire(stream_id, position, kind, chat_id, user_id, iso(self._clock()), data)
        return {position: wire}, position

    async def _account(self, user_id: str, after: int) -> tuple[dict[int, bytes], int]:
        user = await self._accounts.user(user_id)
        if user is None:
            return {}, EVERY_POSITION  # the change that was announced did not happen
        created_ms, position = from_iso(user.created_at), after + 1
        username = None if user.state is AccountState.DELETED else user.username
        data = AccountData(user_id, username, user.state.value)
        if position <= created_ms:
            data = replace(data, state=AccountState.ACTIVE.value)
            wire = _wire(user_id, created_ms, CREATED, "", user_id, user.created_at, data)
            return {created_ms: wire}, created_ms
        wire = _wire(user_id, position, STATES[user.state], "", user_id, iso(position), data)
        return {position: wire}, EVERY_POSITION


def _wire(
    stream_id: str, position: int, kind: str, chat_id: str, user_id: str, at: str, data: Struct
) -> bytes:
    """As an entry. Its id follows from its place, so every attempt and every replay has the same."""
    digest = hashlib.sha256(f"{stream_id}\0{position}".encode()).digest()
    message_id = ids.MESSAGE + ids.ulid(0, int.from_bytes(digest[:10], "big"))
    entry = Entry(
        chat_id=chat_id,
        sequence=position,
        epoch=0,
        kind=kind,
        message_id=message_id,
        sender_id=user_id,
        client_message_id=None,
        content=msgspec.json.encode(data).decode(),
        content_type="application/json",
        created_at=at,
        server_timestamp=at,
    )
    return msgspec.json.encode(entry)


Nudge = Callable[[DeliveryQueue], Awaitable[None]]
"""Tell a worker that this queue is due."""


async def nobody(_: DeliveryQueue) -> None:
    """The workers find it by themselves."""


class EventOutbox:
    """Notes which webhooks are owed events. Nothing is written as long as no webhook wants them."""

    def __init__(
        self, store: DeliveryRecords, clock: Clock, make_ids: ids.Ids, nudge: Nudge = nobody
    ) -> None:
        self._queues = store.queues
        self._webhooks = store.webhooks
        self._clock = clock
        self._ids = make_ids
        self._nudge = nudge
        self._waiting: dict[str, int] = {}
        self._flushing: asyncio.Task[None] | None = None
        self._receivers: list[tuple[str, str, str]] = []
        self._receivers_until = 0.0

    # Receipts

    def receipt(self, signal: ReceiptSignal) -> None:
        """A receipt that others may see, and that is durable. Told soon; if the process dies before, the
        next one of this person in this chat tells it too.
        """
        stream_id = SEPARATOR.join([RECEIPTS[signal.kind], signal.chat_id, signal.user_id])
        if stream_id in self._waiting or len(self._waiting) < STREAMS_WAITING_MAX:
            self._waiting[stream_id] = max(signal.up_to, self._waiting.get(stream_id, 0))
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush_soon())

    async def _flush_soon(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(FLUSH_SECONDS)
                await self.flush()
        finally:
            self._flushing = None

    async def flush(self) -> None:
        """Note the receipts that wait."""
        waiting, self._waiting = self._waiting, {}
        try:
            receivers = await self._receipt_receivers()
            for stream_id, position in waiting.items() if receivers else ():
                kind, chat_id, _ = stream_id.split(SEPARATOR)
                wanting = [name for event, chat, name in receivers if event == kind and chat in ("", chat_id)]
                for queue in await self._queues.extend(stream_id, wanting, position, position):
                    await self._nudge(queue)
        except StoreError as error:
            log.warning("receipts are not told to webhooks", count=len(waiting), error=str(error))

    async def _receipt_receivers(self) -> list[tuple[str, str, str]]:
        """Event, chat and id of the webhooks that want receipts."""
        now = asyncio.get_running_loop().time()
        if now >= self._receivers_until:
            hooks = await self._webhooks.all()
            kinds = set(RECEIPTS.values())
            self._receivers = [
                (event, hook.chat_id, hook.webhook_id)
                for hook in hooks
                for event in hook.events
                if event in kinds
            ]
            self._receivers_until = now + KNOWN_SECONDS
        return self._receivers

    async def close(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.gather(self._flushing, return_exceptions=True)
        if self._waiting:
            await self.flush()

    # Accounts

    @asynccontextmanager
    async def created(self, user_id: str, at_ms: int) -> AsyncIterator[None]:
        """An account with this time of creation is added inside."""
        async with self._changed(user_id, at_ms, lambda: at_ms):
            yield

    @asynccontextmanager
    async def changed(self, user_id: str) -> AsyncIterator[None]:
        """The state of an account is changed inside."""
        async with self._changed(user_id, self._clock(), self._clock):
            yield

    @asynccontextmanager
    async def _changed(self, user_id: str, at_ms: int, then_ms: Callable[[], int]) -> AsyncIterator[None]:
        """Noted before the change, and due when it is done: a crash in between loses nothing."""
        kinds = {CREATED, *STATES.values()}
        hooks = [hook for hook in await self._webhooks.all() if not hook.chat_id and kinds & {*hook.events}]
        if not hooks:
            yield
            return
        recipients = [hook.webhook_id for hook in hooks]
        hold = QueueClaim(self._ids.next(ids.EVENT, self._clock()), self._clock() + HOLD_MS)
        held = await self._queues.extend(user_id, recipients, at_ms, at_ms, hold)
        try:
            yield
        except Refused:
            for queue in held:
                await self._queues.finish(queue)
            raise
        last_ms = max(at_ms, then_ms())
        new = await self._queues.extend(user_id, recipients, last_ms, last_ms)
        for queue in held:
            freed = await self._queues.advance(replace(queue, claim="", due_ms=0), hold.token)
            new += [freed] if freed is not None else []
        for queue in new:
            await self._nudge(queue)
