"""Hop 6: what became durable goes to every connected device of every member, in order.

One `sent_through` per chat, none per connection. The next positions are sent at once, encoded once per codec;
later ones wait in `pending` for what lies between. What stays missing is read from the log by one filler per
chat. If an event is lost, the next event or the next look at the heads finds it. See docs/fan-out.md.

Two ways in: `persisted` for this node's own commits, whose senders have their acks, and
`persisted_elsewhere` for everything else, which waits for them. What comes from elsewhere was said by a node
of the cluster, but perhaps long ago: it brings entries, and lets only members hear a chat.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial

import structlog
from msgspec import UNSET

from parley.core.changes import positions_of
from parley.errors import Refused, StoreError
from parley.gateway.interests import Interest
from parley.gateway.outbox import framed
from parley.gateway.subscribers import LiveChat, Subscriber, Subscribers, hears
from parley.model import Action, Change, Head, Persisted, Role, Scope, StoredEntry
from parley.sending.pending import PendingSends
from parley.store.ports import Directory, Log
from parley.telemetry import Metrics
from parley.traces.flight_recorder import FlightRecorder
from parley.wire import codes
from parley.wire.frames import ChatChanged, Messages
from parley.wire.limits import PAGE_BYTES_MAX, PAGE_ENTRIES_MAX

FILL_AFTER_SECONDS = 0.05
FILL_RETRY_SECONDS = 0.5
PENDING_POSITIONS_MAX = 1_000
USERS_PER_TURN = 50
FIRST_SEQUENCE = 1
MEMBERS_PER_PAGE = 500
DELETES = b'"kind":"delete"'
"""What the entry of a delete has in it, and seldom another one."""

log = structlog.get_logger("parley.hub")

ChatChange = Callable[[str, Change], None]


class Hub:
    """`chat_changed` is called with every change of a chat that is heard here, before its members hear it."""

    def __init__(
        self,
        *,
        log: Log,
        directory: Directory,
        subscribers: Subscribers,
        pending_sends: PendingSends,
        chat_changed: ChatChange,
        metrics: Metrics,
        fault_point: Callable[[str], None],
        recorder: FlightRecorder,
        interest: Interest,
    ) -> None:
        self._log = log
        self._directory = directory
        self._subscribers = subscribers
        self._chats = subscribers.chats
        self._pending_sends = pending_sends
        self._chat_changed = chat_changed
        self._metrics = metrics
        self._fault_point = fault_point
        self._recorder = recorder
        self._interest = interest
        self._fillers: set[asyncio.Task[None]] = set()
        self._checked_now: set[tuple[str, str]] = set()
        """Chat and user of each question to the store that is under way."""
        self._registering: set[str] = set()
        """Chats that a client has joined and whose entries may not be routed here yet."""
        self._is_traced = _is_traced()

    async def subscribe(self, subscriber: Subscriber) -> None:
        """From here on whatever commits in this person's chats reaches the connection.

        What is registered first is read afterwards: what is not in the read will be routed here.
        """
        self._subscribers.add(subscriber)
        await self._interest.hold([subscriber.user_id])
        chat_ids = await self._directory.chat_ids_of(subscriber.user_id)
        chats = [self._subscribers.join_chat(subscriber, chat_id) for chat_id in chat_ids]
        self._note_hearing(subscriber)
        await self._interest.hold(chat_ids)
        unknown = [chat for chat in chats if chat.sent_through < 0]
        if unknown:
            self._start_at(unknown, await self._log.heads([chat.chat_id for chat in unknown]))

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.remove(subscriber)
        self._note_deaf(subscriber)

    def change_scopes(self, subscriber: Subscriber, scopes: frozenset[Scope] | None) -> None:
        """Its token is another one. What it did not hear meanwhile it has to ask for."""
        self._subscribers.change_scopes(subscriber, scopes)
        if not hears(subscriber):
            self._note_deaf(subscriber)
        elif not subscriber.heard_from_ms:
            self._note_hearing(subscriber)

    def _note_hearing(self, subscriber: Subscriber) -> None:
        if hears(subscriber):
            subscriber.heard_from_ms = self._recorder.now_ms()

    def _note_deaf(self, subscriber: Subscriber) -> None:
        if subscriber.heard_from_ms:
            self._recorder.ended(subscriber.user_id, subscriber.device_id, subscriber.heard_from_ms)
            subscriber.heard_from_ms = 0

    def heads_beyond(self, subscriber: Subscriber, told: dict[str, int] | None) -> dict[str, int]:
        """Chats that moved past what this connection was sent (or, when not live, told before)."""
        chats = subscriber.chats.items()
        if told is None:
            return {chat_id: chat.target for chat_id, chat in chats if chat.target > chat.sent_through}
        heads = {chat_id: chat.sent_through for chat_id, chat in chats}
        return {chat_id: head for chat_id, head in heads.items() if head > told.get(chat_id, -1)}

    # What became durable

    def persisted(self, news: list[Persisted]) -> None:
        """This node's own commits: the senders have their acks."""
        for item in news:
            self._deliver(item)

    def persisted_elsewhere(self, news: list[Persisted]) -> None:
        """What another node says: a sender here may still wait for the ack of an entry in it."""
        for item in news:
            through = item.positions[-1].sequence
            self._pending_sends.after_answers(item.chat_id, through, partial(self._deliver_told, item))

    def _deliver_told(self, news: Persisted) -> None:
        """An event may be published again at any time: ignore old ones.

        Positions that were sent, and those of an ended epoch, bring nothing new. In a chat without
        subscribers every change of members may be an old one: the store says who is a member now.
        """
        chat = self._chats.get(news.chat_id)
        if chat is not None and news.epoch < chat.epoch:
            return
        if chat is not None and chat.sent_through >= 0:
            self._deliver(news)
            return
        if chat is not None:
            self._keep(chat, news)
        elif news.positions[0].sequence == FIRST_SEQUENCE and news.positions[0].change is None:
            self._check_new_chat(news)
        for stored in news.positions:
            change = stored.change
            if change is not None:
                self._chat_changed(news.chat_id, change)
                if self._subscribers.of_user(change.user_id):
                    self._start_check(news.chat_id, Head(news.epoch, stored.sequence), change.user_id)

    def _deliver(self, news: Persisted) -> None:
        """Send the next positions at once; keep others until what lies between is there."""
        chat = self._chats.get(news.chat_id)
        if chat is None or chat.sent_through < 0:
            self._deliver_unheard(news)
            return
        positions, after = news.positions, chat.sent_through
        if (
            chat.pending
            or positions[0].sequence != after + 1
            or positions[-1].sequence != after + len(positions)
        ):
            self._keep(chat, news)
        else:
            self._send(chat, news.epoch, positions)
        if chat.target > chat.sent_through:
            self._start_filler(chat)

    def _deliver_unheard(self, news: Persisted) -> None:
        """No client hears this chat yet, but a change in the news may let one join."""
        for stored in news.positions:
            if stored.change is not None:
                self._apply(news.chat_id, news.epoch, stored.sequence, stored.change)
        chat = self._chats.get(news.chat_id)
        if chat is not None:
            self._keep(chat, news)
            self._start_filler(chat)

    def _keep(self, chat: LiveChat, news: Persisted) -> None:
        """Remember what was not sent yet, then send what follows. Too much of it is read again later."""
        chat.target = max(chat.target, news.positions[-1].sequence)
        for stored in news.positions:
            if stored.sequence > chat.sent_through:
                chat.pending[stored.sequence] = stored
        if chat.sent_through >= 0:
            self._send_pending(chat, news.epoch)
        is_deleting = any(DELETES in (stored.wire or b"") for stored in news.positions)
        if len(chat.pending) > PENDING_POSITIONS_MAX or is_deleting:
            chat.pending.clear()  # a body that was deleted does not wait here: the log has what is left of it

    def _send_pending(self, chat: LiveChat, epoch: int) -> None:
        """Everything that follows on what was sent, in frames of bounded size."""
        while chat.sent_through + 1 in chat.pending:
            run: list[StoredEntry] = []
            size = 0
            while size <= PAGE_BYTES_MAX:
                stored = chat.pending.pop(chat.sent_through + len(run) + 1, None)
                if stored is None:
                    break
                run.append(stored)
                size += len(stored.wire or b"")
            self._send(chat, epoch, run)

    def _send(self, chat: LiveChat, epoch: int, positions: list[StoredEntry]) -> None:
        """Frames for one stretch; a change of members ends its frame and counts for the next one."""
        start = 0
        for index, stored in enumerate(positions):
            if stored.change is not None:
                self._apply(chat.chat_id, epoch, stored.sequence, stored.change)
                self._send_frame(chat, epoch, positions[start : index + 1])
                self._announce(chat, stored.change)
                start = index + 1
        if start < len(positions):
            self._send_frame(chat, epoch, positions[start:] if start else positions)

    def _send_frame(self, chat: LiveChat, epoch: int, run: list[StoredEntry]) -> None:
        chat.epoch, chat.sent_through = epoch, run[-1].sequence
        self._recorder.sent(chat.chat_id, run[0].sequence, chat.sent_through)
        entries = [stored.wire for stored in run if stored.wire is not None]
        voids = [stored.sequence for stored in run if stored.wire is None]
        for codec, listeners in chat.listeners.items():
            frame = Messages(
                chat_id=chat.chat_id, epoch=epoch, entries=codec.entries(entries), voids=voids or UNSET
            )
            data = framed(codec.encode(frame), codec.binary)
            self._metrics.deliveries.inc(len(listeners))
            for listener in list(listeners):
                listener.offer(data)
            self._fault_point("mid_fanout")
        if self._is_traced:
            _trace_delivered(chat, run)

    def forget(self, chat_id: str) -> None:
        """Bodies of this chat were removed: what waits here is read again from the log."""
        chat = self._chats.get(chat_id)
        if chat is not None:
            chat.forgets += 1
            chat.pending.clear()
            self._start_filler(chat)

    def forget_all(self) -> None:
        """The same for every chat: this node may not have been told."""
        for chat_id in list(self._chats):
            self.forget(chat_id)

    # Members

    def joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        """A chat was created with these members."""
        for user_id in user_ids:
            self._chat_changed(chat_id, Change(Action.JOINED, user_id))
            frame = ChatChanged(
                chat_id=chat_id, change="joined", user_id=user_id, epoch=head.epoch, head=head.sequence
            )
            for subscriber in self._subscribers.of_user(user_id):
                self._join(subscriber, chat_id, head, frame)

    def _apply(self, chat_id: str, epoch: int, sequence: int, change: Change) -> None:
        """Who hears the chat from now on."""
        self._chat_changed(chat_id, change)
        user_id = change.user_id
        if change.action is Action.JOINED:
            frame = ChatChanged(
                chat_id=chat_id, change="joined", user_id=user_id, role=change.role.value, head=sequence
            )
            for subscriber in self._subscribers.of_user(user_id):
                self._join(subscriber, chat_id, Head(epoch, sequence), frame)
        elif change.action in (Action.LEFT, Action.REMOVED):
            for subscriber in self._subscribers.of_user(user_id):
                self._leave(subscriber, chat_id)

    def _join(self, subscriber: Subscriber, chat_id: str, head: Head, frame: ChatChanged) -> None:
        chat = self._subscribers.join_chat(subscriber, chat_id)
        self._start_at([chat], {chat_id: head})
        self._subscribers.tell_some([subscriber], frame)
        if not self._interest.is_held(chat_id) and chat_id not in self._registering:
            self._registering.add(chat_id)
            self._start(self._register(chat_id))

    async def _register(self, chat_id: str) -> None:
        """A chat that a client has joined: what is stored before it is registered is read."""
        try:
            await self._interest.hold([chat_id])
            while chat_id in self._chats:
                try:
                    self._raise_targets(await self._log.heads([chat_id]))
                    return
                except StoreError:
                    await asyncio.sleep(FILL_RETRY_SECONDS)
        finally:
            self._registering.discard(chat_id)

    def _leave(self, subscriber: Subscriber, chat_id: str) -> None:
        self._subscribers.leave_chat(subscriber, chat_id)
        frame = ChatChanged(chat_id=chat_id, change="left", user_id=subscriber.user_id)
        self._subscribers.tell_some([subscriber], frame)

    def _start_check(self, chat_id: str, told: Head, user_id: str) -> None:
        if (chat_id, user_id) not in self._checked_now:
            self._checked_now.add((chat_id, user_id))
            self._start(self._check_member(chat_id, told, user_id))

    def _check_new_chat(self, news: Persisted) -> None:
        if news.chat_id not in self._registering:
            self._registering.add(news.chat_id)
            self._start(self._check_members(news.chat_id, Head(news.epoch, FIRST_SEQUENCE - 1)))

    async def _check_members(self, chat_id: str, told: Head) -> None:
        """A chat begins that nobody here hears: if the notice of it was lost, its members hear it now."""
        after = ""
        try:
            while page := await self._directory.members(chat_id, after, MEMBERS_PER_PAGE):
                for member in page:
                    if self._subscribers.of_user(member.user_id):
                        await self._check_member(chat_id, told, member.user_id)
                after = page[-1].user_id
        except StoreError as error:
            log.info("the members of a new chat could not be read", chat_id=chat_id, reason=str(error))
        finally:
            self._registering.discard(chat_id)

    async def _check_member(self, chat_id: str, told: Head, user_id: str) -> None:
        """Let a user hear a chat, or no longer, as the store has it. `told`: where a change was told of."""
        joining: list[Subscriber] = []
        try:
            role = await self._directory.role(chat_id, user_id)
            holding = [one for one in self._subscribers.of_user(user_id) if chat_id in one.chats]
            if role is None:
                for subscriber in holding:
                    self._leave(subscriber, chat_id)
                return
            joining = [one for one in self._subscribers.of_user(user_id) if one not in holding]
            for subscriber in joining:
                self._subscribers.join_chat(subscriber, chat_id)
            await self._interest.hold([chat_id])
            head = (await self._log.heads([chat_id]))[chat_id]
            self._welcome(chat_id, user_id, role, joining, told, head)
        except (StoreError, KeyError) as error:
            log.info("a change of members could not be checked", chat_id=chat_id, reason=str(error))
            for subscriber in joining:
                self._subscribers.leave_chat(subscriber, chat_id)
        finally:
            self._checked_now.discard((chat_id, user_id))

    def _welcome(
        self, chat_id: str, user_id: str, role: Role, joining: list[Subscriber], told: Head, head: Head
    ) -> None:
        """They hear the chat from the change on, if that was a moment ago, and else from its head on."""
        chat = self._chats.get(chat_id)
        if chat is None or not joining:
            return
        is_recent = told.epoch == head.epoch and 0 <= head.sequence - told.sequence <= PAGE_ENTRIES_MAX
        start = told if is_recent else head
        frame = ChatChanged(
            chat_id=chat_id,
            change="joined",
            user_id=user_id,
            role=role.value,
            epoch=head.epoch,
            head=max(start.sequence, chat.sent_through),
        )
        self._subscribers.tell_some((one for one in joining if chat_id in one.chats), frame)
        self._start_at([chat], {chat_id: start})
        chat.target = max(chat.target, head.sequence)
        self._start_filler(chat)

    def _start_at(self, chats: Iterable[LiveChat], heads: dict[str, Head]) -> None:
        """Where these chats start to be live: forget what the log has up to there, send what follows."""
        for chat in chats:
            head = heads.get(chat.chat_id)
            if head is not None and chat.sent_through < 0:
                chat.epoch, chat.sent_through = head.epoch, head.sequence
                chat.pending = {at: stored for at, stored in chat.pending.items() if at > head.sequence}
                self._send_pending(chat, head.epoch)
                self._start_filler(chat)

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
        elif change.action is Action.POSTING:
            frame = ChatChanged(
                chat_id=chat.chat_id,
                change="posting",
                announcement_only=UNSET if change.announcement_only is None else change.announcement_only,
                slow_mode_seconds=UNSET if change.slow_mode_seconds is None else change.slow_mode_seconds,
            )
        else:
            return
        self._subscribers.tell_chat(chat.chat_id, frame, lambda _: True)

    def sessions_ended(self, session_ids: list[str]) -> None:
        """Rare, so it looks at everybody: an index by session would cost every idle connection memory.

        The id of a person means all of their sockets, whatever token they came with.
        """
        ended = set(session_ids)
        for user_id in self._subscribers.user_ids():
            for subscriber in self._subscribers.of_user(user_id):
                if subscriber.session_id in ended or user_id in ended:
                    subscriber.close(codes.REVOKED)

    # What no event has brought

    async def check_sessions(self) -> None:
        for count, user_id in enumerate(self._subscribers.user_ids()):
            for subscriber in self._subscribers.of_user(user_id):
                with contextlib.suppress(Refused, StoreError):
                    await subscriber.verify()
            if count % USERS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def catch_up(self) -> None:
        """Another program may have written: look again who is in which chat, then fill what is behind."""
        for count, user_id in enumerate(self._subscribers.user_ids()):
            chat_ids = set(await self._directory.chat_ids_of(user_id))
            for subscriber in self._subscribers.of_user(user_id):
                await self._match_chats(subscriber, chat_ids)
            if count % USERS_PER_TURN == 0:
                await asyncio.sleep(0)
        await self.check_heads()

    async def _match_chats(self, subscriber: Subscriber, chat_ids: set[str]) -> None:
        user_id = subscriber.user_id
        for chat_id in subscriber.chats.keys() - chat_ids:
            self._chat_changed(chat_id, Change(Action.LEFT, user_id))
            self._leave(subscriber, chat_id)
        missing = chat_ids - subscriber.chats.keys()
        for chat_id, head in (await self._log.heads(sorted(missing))).items():
            self._chat_changed(chat_id, Change(Action.JOINED, user_id))
            frame = ChatChanged(
                chat_id=chat_id, change="joined", user_id=user_id, epoch=head.epoch, head=head.sequence
            )
            self._join(subscriber, chat_id, head, frame)

    async def check_heads(self) -> None:
        """Compare every live chat with its log, and fill what is behind."""
        waiting = list(self._chats)
        for start in range(0, len(waiting), PAGE_ENTRIES_MAX):
            self._raise_targets(await self._log.heads(waiting[start : start + PAGE_ENTRIES_MAX]))
            await asyncio.sleep(0)

    def _raise_targets(self, heads: dict[str, Head]) -> None:
        """The logs have come so far: fill what is behind."""
        for chat_id, head in heads.items():
            chat = self._chats.get(chat_id)
            if chat is not None and chat.sent_through >= 0:
                chat.target = max(chat.target, head.sequence)
                self._start_filler(chat)

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._fillers.add(task)
        task.add_done_callback(self._fillers.discard)
        return task

    def _start_filler(self, chat: LiveChat) -> None:
        """If the chat is behind its target and no filler is at it yet."""
        if chat.target > chat.sent_through >= 0 and chat.filler is None:
            chat.filler = self._start(self._fill(chat, chat.target))

    async def _fill(self, chat: LiveChat, goal: int) -> None:
        """Read up to `goal` what is resolved by now and no event has brought meanwhile."""
        await asyncio.sleep(FILL_AFTER_SECONDS)
        try:
            while chat.sent_through < goal and chat.holders:
                after, forgets = chat.sent_through, chat.forgets
                try:
                    page = await self._log.read(chat.chat_id, after, min(goal - after, PAGE_ENTRIES_MAX))
                except StoreError:
                    await asyncio.sleep(FILL_RETRY_SECONDS)
                    continue
                if chat.forgets != forgets:
                    continue  # the page may have a body that was removed meanwhile
                if page.to_sequence <= after:
                    return  # not resolved yet: its own event will come
                await self._deliver_read(chat, Persisted(chat.chat_id, page.epoch, positions_of(page)))
        finally:
            chat.filler = None
        self._start_filler(chat)

    async def _deliver_read(self, chat: LiveChat, news: Persisted) -> None:
        """As any news from elsewhere; returns once it is delivered. What came meanwhile is not sent again."""
        delivered = asyncio.Event()

        def deliver() -> None:
            try:
                if chat.holders:
                    self._deliver(news)
            finally:
                delivered.set()

        self._pending_sends.after_answers(news.chat_id, news.positions[-1].sequence, deliver)
        await delivered.wait()

    async def close(self) -> None:
        for task in list(self._fillers):
            task.cancel()
        await asyncio.gather(*self._fillers, return_exceptions=True)


def _is_traced() -> bool:
    """Asked once: asking costs as much as a small run."""
    return bool(log.is_enabled_for(logging.DEBUG))


def _trace_delivered(chat: LiveChat, run: list[StoredEntry]) -> None:
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
