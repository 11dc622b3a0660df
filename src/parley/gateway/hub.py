"""Hop 6: what became durable goes to every connected device of every member, in order.

One `sent_through` per chat, none per connection: what is the next position is sent, encoded once per
codec; what is beyond it waits in `pending` for what lies between. News comes after the senders' acks, the
log may show an entry before them: so the log is read only for what nobody has told of in time, by one
filler per chat. If news is lost, the next news or the next look at the heads finds it. See docs/fan-out.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

import structlog
from msgspec import UNSET

from parley.core.changes import positions_of
from parley.errors import StoreError
from parley.gateway.framing import framed
from parley.model import Action, Change, Head, Page, Persisted, Stored
from parley.store.ports import Directory, Log
from parley.telemetry import Metrics
from parley.wire import codes
from parley.wire.codec import Codec
from parley.wire.codes import Close
from parley.wire.frames import ChatChanged, Messages, ServerFrame
from parley.wire.limits import PAGE_BYTES_MAX, PAGE_ENTRIES_MAX

FILL_AFTER_SECONDS = 0.05
FILL_RETRY_SECONDS = 0.5
PENDING_POSITIONS_MAX = 1_000
USERS_PER_TURN = 50

log = structlog.get_logger("parley.hub")
Key = TypeVar("Key")
Hold = Callable[[str, int, Callable[[], None]], bool]
"""Whether senders wait for answers to what may be in a chat up to a position; if so, calls back then."""


class Subscriber(Protocol):
    """A connection as the hub sees it."""

    user_id: str
    session_id: str
    live: bool
    codec: Codec
    chats: dict[str, LiveChat]

    def offer(self, data: bytes) -> None:
        """Queue bytes for the socket; a reader that is too slow is closed instead."""
        ...

    def close(self, close: Close) -> None:
        """End the connection with a code."""
        ...


class LiveChat:
    """A chat that somebody connected is a member of."""

    __slots__ = (
        "chat_id",
        "epoch",
        "filler",
        "holders",
        "is_reading",
        "listeners",
        "pending",
        "sent_through",
        "target",
    )

    def __init__(self, chat_id: str) -> None:
        self.chat_id = chat_id
        self.epoch = 0
        self.sent_through = -1
        self.target = 0
        self.pending: dict[int, Stored] = {}
        self.filler: asyncio.Task[None] | None = None
        self.is_reading = False
        self.holders = 0
        self.listeners: dict[Codec, set[Subscriber]] = {}


class Hub:
    """`hold`: what the log shows waits for the answers to this node's drafts that may be in it.

    `changed`: told of every change of a chat that is heard here, before its members are.
    """

    def __init__(
        self, log: Log, directory: Directory, metrics: Metrics, reach: Callable[[str], None]
    ) -> None:
        self.hold: Hold = lambda _, __, ___: False
        self.changed: Callable[[str, Change], None] = lambda _, __: None
        self._log = log
        self._directory = directory
        self._metrics = metrics
        self._reach = reach
        self._chats: dict[str, LiveChat] = {}
        self._users: dict[str, set[Subscriber]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_traced = _is_traced()

    async def subscribe(self, subscriber: Subscriber) -> None:
        """From here on whatever commits in this person's chats reaches the connection."""
        self._users.setdefault(subscriber.user_id, set()).add(subscriber)
        chat_ids = await self._directory.chat_ids_of(subscriber.user_id)
        new = [self._hold(subscriber, chat_id) for chat_id in chat_ids]
        unknown = [chat for chat in new if chat.sent_through < 0]
        if unknown:
            self._start_at(unknown, await self._log.heads([chat.chat_id for chat in unknown]))

    def _hold(self, subscriber: Subscriber, chat_id: str) -> LiveChat:
        chat = self._chats.get(chat_id)
        if chat is None:
            chat = self._chats[chat_id] = LiveChat(chat_id)
        if chat_id not in subscriber.chats:
            subscriber.chats[chat_id] = chat
            chat.holders += 1
            if subscriber.live:
                chat.listeners.setdefault(subscriber.codec, set()).add(subscriber)
        return chat

    def _start_at(self, chats: Iterable[LiveChat], heads: dict[str, Head]) -> None:
        for chat in chats:
            head = heads.get(chat.chat_id)
            if head is not None and chat.sent_through < 0:
                chat.epoch, chat.sent_through = head.epoch, head.sequence
                self._go_on(chat, head.epoch)
                self._fill_if_behind(chat)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        _discard(self._users, subscriber.user_id, subscriber)
        for chat_id in list(subscriber.chats):
            self._release(subscriber, chat_id)

    def _release(self, subscriber: Subscriber, chat_id: str) -> None:
        chat = subscriber.chats.pop(chat_id, None)
        if chat is None:
            return
        chat.holders -= 1
        _discard(chat.listeners, subscriber.codec, subscriber)
        if not chat.holders and self._chats.get(chat_id) is chat:
            del self._chats[chat_id]

    def head_of(self, subscriber: Subscriber, chat_id: str) -> int | None:
        """How far a chat of this connection's person is resolved, as far as memory knows."""
        chat = subscriber.chats.get(chat_id)
        return None if chat is None else chat.sent_through

    def heads_beyond(self, subscriber: Subscriber, told: dict[str, int] | None) -> dict[str, int]:
        """Chats that moved past what this connection was sent (or, when not live, told before)."""
        chats = subscriber.chats.items()
        if told is None:
            return {chat_id: chat.target for chat_id, chat in chats if chat.target > chat.sent_through}
        heads = {chat_id: chat.sent_through for chat_id, chat in chats}
        return {chat_id: head for chat_id, head in heads.items() if head > told.get(chat_id, -1)}

    # What use cases tell in passing: see `people.audience`

    def people_in(self, chat_id: str) -> set[str]:
        chat = self._chats.get(chat_id)
        if chat is None:
            return set()
        return {listener.user_id for listeners in chat.listeners.values() for listener in listeners}

    def tell_chat(self, chat_id: str, frame: ServerFrame, receives: Callable[[str], bool]) -> None:
        chat = self._chats.get(chat_id)
        if chat is not None:
            heard_by = [list(listeners) for listeners in chat.listeners.values()]
            self.tell_some((one for some in heard_by for one in some if receives(one.user_id)), frame)

    def tell_people(self, user_ids: Iterable[str], frame: ServerFrame) -> None:
        found = [list(self._users.get(user_id, ())) for user_id in user_ids]
        self.tell_some((one for some in found for one in some if one.live), frame)

    @staticmethod
    def tell_some(subscribers: Iterable[Subscriber], frame: ServerFrame) -> None:
        """One frame to these, encoded once per codec."""
        encoded: dict[Codec, bytes] = {}
        for subscriber in subscribers:
            codec = subscriber.codec
            data = encoded.get(codec)
            if data is None:
                data = encoded[codec] = framed(codec.encode(frame), codec.binary)
            subscriber.offer(data)

    def hears(self, chat_id: str) -> bool:
        """Whether anybody here is a member of this chat."""
        return chat_id in self._chats

    # What the bus tells

    def persisted(self, news: list[Persisted]) -> None:
        for item in news:
            self._persisted(item)

    def _persisted(self, news: Persisted) -> None:
        chat = self._chats.get(news.chat_id)
        if chat is None or chat.sent_through < 0:
            self._persisted_unheard(news)
        elif chat.is_reading or chat.pending or not _follows(news.positions, chat.sent_through):
            self._keep(chat, news)
        else:
            self._send(chat, news.epoch, news.positions)
            self._fill_if_behind(chat)

    def _persisted_unheard(self, news: Persisted) -> None:
        """Nobody hears this chat yet, but a change in the news may make somebody."""
        for stored in news.positions:
            if stored.change is not None:
                self._apply(news.chat_id, news.epoch, stored.sequence, stored.change)
        chat = self._chats.get(news.chat_id)
        if chat is not None:
            self._keep(chat, news)

    def _keep(self, chat: LiveChat, news: Persisted) -> None:
        """Remember what cannot be sent yet, then send what can; too much of it is read again later."""
        chat.target = max(chat.target, news.positions[-1].sequence)
        for stored in news.positions:
            if stored.sequence > chat.sent_through:
                chat.pending[stored.sequence] = stored
        if not chat.is_reading and chat.sent_through >= 0:
            self._send_pending(chat, news.epoch)
        if len(chat.pending) > PENDING_POSITIONS_MAX:
            chat.pending.clear()
        self._fill_if_behind(chat)

    def _go_on(self, chat: LiveChat, epoch: int) -> None:
        """From where it is now: forget what came another way meanwhile, send what follows."""
        chat.pending = {s: stored for s, stored in chat.pending.items() if s > chat.sent_through}
        self._send_pending(chat, epoch)

    def _send_pending(self, chat: LiveChat, epoch: int) -> None:
        """Everything that follows on what was sent, in frames of bounded size."""
        while chat.sent_through + 1 in chat.pending:
            run: list[Stored] = []
            size = 0
            while size <= PAGE_BYTES_MAX:
                stored = chat.pending.pop(chat.sent_through + len(run) + 1, None)
                if stored is None:
                    break
                run.append(stored)
                size += len(stored.wire or b"")
            self._send(chat, epoch, run)

    def joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        for user_id in user_ids:
            self.changed(chat_id, Change(Action.JOINED, user_id))
            for subscriber in list(self._users.get(user_id, ())):
                chat = self._hold(subscriber, chat_id)
                self._start_at([chat], {chat_id: head})
                change = ChatChanged(
                    chat_id=chat_id, change="joined", user_id=user_id, epoch=head.epoch, head=head.sequence
                )
                self._tell(subscriber, change)

    def sessions_ended(self, session_ids: list[str]) -> None:
        """Rare, so it looks at everybody: an index by session would cost every idle connection memory."""
        ended = set(session_ids)
        for subscribers in list(self._users.values()):
            for subscriber in list(subscribers):
                if subscriber.session_id in ended:
                    subscriber.close(codes.REVOKED)

    async def catch_up(self) -> None:
        """Another program may have written: look again who is in which chat, then fill what is behind."""
        for count, user_id in enumerate(list(self._users)):
            chat_ids = set(await self._directory.chat_ids_of(user_id))
            for subscriber in list(self._users.get(user_id, ())):
                await self._match_chats(subscriber, chat_ids)
            if count % USERS_PER_TURN == 0:
                await asyncio.sleep(0)
        await self.check_heads()

    async def _match_chats(self, subscriber: Subscriber, chat_ids: set[str]) -> None:
        for chat_id in subscriber.chats.keys() - chat_ids:
            self.changed(chat_id, Change(Action.LEFT, subscriber.user_id))
            self._release(subscriber, chat_id)
            self._tell(subscriber, ChatChanged(chat_id=chat_id, change="left", user_id=subscriber.user_id))
        missing = chat_ids - subscriber.chats.keys()
        for chat_id, head in (await self._log.heads(sorted(missing))).items():
            self.changed(chat_id, Change(Action.JOINED, subscriber.user_id))
            self._start_at([self._hold(subscriber, chat_id)], {chat_id: head})
            joined = ChatChanged(
                chat_id=chat_id,
                change="joined",
                user_id=subscriber.user_id,
                epoch=head.epoch,
                head=head.sequence,
            )
            self._tell(subscriber, joined)

    async def check_heads(self) -> None:
        waiting = list(self._chats)
        for start in range(0, len(waiting), PAGE_ENTRIES_MAX):
            for chat_id, head in (await self._log.heads(waiting[start : start + PAGE_ENTRIES_MAX])).items():
                chat = self._chats.get(chat_id)
                if chat is not None and chat.sent_through >= 0:
                    chat.target = max(chat.target, head.sequence)
                    self._fill_if_behind(chat)
            await asyncio.sleep(0)

    # Sending

    def _send(self, chat: LiveChat, epoch: int, positions: list[Stored]) -> None:
        """Frames for one stretch; a change of members ends its frame and counts for the next one."""
        start = 0
        for index, stored in enumerate(positions):
            if stored.change is not None:
                self._apply(chat.chat_id, epoch, stored.sequence, stored.change)
                self._send_run(chat, epoch, positions[start : index + 1])
                self._announce(chat, stored.change)
                start = index + 1
        if start < len(positions):
            self._send_run(chat, epoch, positions[start:] if start else positions)

    def _send_run(self, chat: LiveChat, epoch: int, run: list[Stored]) -> None:
        chat.epoch, chat.sent_through = epoch, run[-1].sequence
        entries = [stored.wire for stored in run if stored.wire is not None]
        voids = [stored.sequence for stored in run if stored.wire is None]
        for codec, listeners in chat.listeners.items():
            frame = Messages(
                chat_id=chat.chat_id, epoch=epoch, entries=codec.entries(entries), voids=voids or UNSET
            )
            data = framed(codec.encode(frame), codec.binary)
            self._metrics.deliveries += len(listeners)
            for listener in list(listeners):
                listener.offer(data)
            self._reach("mid_fanout")
        if self._is_traced:
            _trace_delivered(chat, run)

    def _apply(self, chat_id: str, epoch: int, sequence: int, change: Change) -> None:
        """Who hears the chat from now on."""
        self.changed(chat_id, change)
        if change.action is Action.JOINED:
            for subscriber in list(self._users.get(change.user_id, ())):
                chat = self._hold(subscriber, chat_id)
                self._start_at([chat], {chat_id: Head(epoch, sequence)})
                joined = ChatChanged(
                    chat_id=chat_id,
                    change="joined",
                    user_id=change.user_id,
                    role=change.role.value,
                    head=sequence,
                )
                self._tell(subscriber, joined)
        elif change.action in (Action.LEFT, Action.REMOVED):
            for subscriber in list(self._users.get(change.user_id, ())):
                self._release(subscriber, chat_id)
                self._tell(subscriber, ChatChanged(chat_id=chat_id, change="left", user_id=change.user_id))

    def _announce(self, chat: LiveChat, change: Change) -> None:
        """Titles, roles and settings: tell those who stay."""
        if change.action is Action.RENAMED:
            frame = ChatChanged(chat_id=chat.chat_id, change="renamed", title=change.title)
        elif change.action is Action.ROLE:
            frame = ChatChanged(
                chat_id=chat.chat_id, change="role", user_id=change.user_id, role=change.role.value
            )
        elif change.action is Action.READ_RECEIPTS and change.read_receipts is not None:
            frame = ChatChanged(
                chat_id=chat.chat_id, change="read_receipts", read_receipts=change.read_receipts.value
            )
        else:
            return
        self.tell_chat(chat.chat_id, frame, lambda _: True)

    def _tell(self, subscriber: Subscriber, frame: ServerFrame) -> None:
        subscriber.offer(framed(subscriber.codec.encode(frame), subscriber.codec.binary))

    # Filling

    def _fill_if_behind(self, chat: LiveChat) -> None:
        if chat.target > chat.sent_through >= 0 and chat.filler is None:
            task = asyncio.get_running_loop().create_task(self._fill(chat, chat.target))
            chat.filler = task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _fill(self, chat: LiveChat, goal: int) -> None:
        """Read up to `goal` what is resolved by now and was not told of meanwhile."""
        await asyncio.sleep(FILL_AFTER_SECONDS)
        try:
            while chat.sent_through < goal and chat.holders:
                page = await self._read(chat, min(goal - chat.sent_through, PAGE_ENTRIES_MAX))
                if page.to_sequence <= chat.sent_through:
                    return  # not resolved yet: its own news will come
                self._send(chat, page.epoch, positions_of(page))
                self._go_on(chat, page.epoch)
        finally:
            chat.filler = None
        self._fill_if_behind(chat)

    async def _read(self, chat: LiveChat, limit: int) -> Page:
        """While it waits for the store and for answers, what is told of goes to `pending`.

        What the log shows is told to its senders first, if they sent it through this node. Nobody knows that
        before it is read: a draft may be stored meanwhile.
        """
        chat.is_reading = True
        try:
            while True:
                try:
                    page = await self._log.read(chat.chat_id, chat.sent_through, limit)
                except StoreError:
                    await asyncio.sleep(FILL_RETRY_SECONDS)
                    continue
                answered = asyncio.Event()
                if self.hold(chat.chat_id, page.to_sequence, answered.set):
                    await answered.wait()
                return page
        finally:
            chat.is_reading = False

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _is_traced() -> bool:
    """Asked once: asking costs as much as a small run."""
    return bool(log.is_enabled_for(logging.DEBUG))


def _trace_delivered(chat: LiveChat, run: list[Stored]) -> None:
    """Once for each message, however many hear it. What was read from the log has no request id any more."""
    connections = sum(map(len, chat.listeners.values()))
    for stored in run:
        if connections and stored.request_id:
            log.debug(
                "Message delivered",
                request_id=stored.request_id,
                chat_id=chat.chat_id,
                sequence=stored.sequence,
                connections=connections,
            )


def _follows(positions: list[Stored], sent_through: int) -> bool:
    """Whether these are exactly the next positions."""
    return positions[0].sequence == sent_through + 1 and positions[-1].sequence == sent_through + len(
        positions
    )


def _discard(groups: dict[Key, set[Subscriber]], key: Key, subscriber: Subscriber) -> None:
    group = groups.get(key)
    if group is not None:
        group.discard(subscriber)
        if not group:
            del groups[key]
