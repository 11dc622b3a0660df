"""Everything a client decides, without IO. The shell feeds it frames and the time, then drains the results:

    core.receive(frame, now_ms)            a frame from the server
    core.tick(now_ms)                      run what is due
    core.frames_to_send(now_ms, wall_ms)   frames for the server
    core.to_save() … core.saved(…)         what must be durable before it continues
    core.events()                          events for the application and the shell

Every input calls `wake`, so that the shell drains it. `now_ms` only rises; `wall_ms` is the time of day, for
the age of a message. A `ChatModel` holds the state of one chat.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from msgspec import UNSET, Raw

from parley.client.chat_model import ChatModel
from parley.client.cursors import DeviceCursors, ReadMarks
from parley.client.events import (
    ChatOpened,
    CheckMessage,
    ClientEvent,
    EntriesReady,
    LoadChat,
    MessageRefused,
    MessagesSaved,
    MessageStored,
    OverviewComplete,
    ReadMarkDone,
    RequestFailed,
    Update,
    What,
)
from parley.client.inbox import Slot, slots_of
from parley.client.members import WATCHED_MEMBERS_MAX, ChatSnapshot, Roster
from parley.client.outbox import ClientOutbox, ack_for, check_size
from parley.client.presence import PresenceWatch, TypingSignals
from parley.client.storage import Cursor, MessageKey, OutgoingMessage, SavedState, StateChanges
from parley.client.sync import LogSync, OverviewRounds
from parley.client.timing import RateLimitPause, Timers, Timing, backoff_ms
from parley.clock import MS_PER_SECOND, iso
from parley.errors import BAD_REQUEST, FORBIDDEN, NOT_A_MEMBER, Refusal
from parley.model import Kind
from parley.wire import limits
from parley.wire.codec import ClientCodec
from parley.wire.frames import (
    Ack,
    Attention,
    ChatChanged,
    Entry,
    Heartbeat,
    HeartbeatAck,
    InvitationEnded,
    InvitationFrame,
    MessageBatch,
    Messages,
    Overview,
    OverviewChat,
    PresenceChanged,
    PresenceState,
    PresenceView,
    ReadReceipt,
    ReceiptFrame,
    RefusedFrame,
    Request,
    ServerFrames,
    Typing,
    Welcome,
)

HEARTBEAT = ("heartbeat", "")
SILENCE = ("silence", "")
CLOSED = BAD_REQUEST.because("the chat was closed before it was open")

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def wakes(
    method: Callable[Concatenate[ClientCore, Arguments], Result],
) -> Callable[Concatenate[ClientCore, Arguments], Result]:
    """Decorates an input of the core: it calls `wake` afterwards, so that the shell drains the results."""

    @wraps(method)
    def take_input(core: ClientCore, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return method(core, *args, **kwargs)
        finally:
            core._wake()

    return take_input


class ClientCore:
    def __init__(
        self,
        codec: ClientCodec,
        timing: Timing,
        chance: Callable[[], float],
        *,
        durable: bool,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._codec = codec
        self._timing = timing
        self._chance = chance
        self._durable = durable
        self._wake = wake
        self._timers = timers = Timers()
        self._next_id = next_id = itertools.count(1).__next__
        self.user_id = ""
        self.online = False
        self.silent = False
        """Whether a heartbeat was not answered in time: the connection must be replaced."""
        self._heartbeat_ms = limits.HEARTBEAT_SECONDS * MS_PER_SECOND
        self._heartbeat_id: int | None = None
        self._is_heartbeat_due = False
        self._events: list[ClientEvent] = []
        self._updates: dict[Update, None] = {}
        self._added: list[OutgoingMessage] = []
        self._removed: list[MessageKey] = []
        self._chats: dict[str, ChatModel] = {}
        self._open: dict[str, ChatModel] = {}
        pause = RateLimitPause("pages and acks", timing, timers)
        self._page_and_ack_pause = pause
        self.outbox = ClientOutbox(timing, timers, next_id, chance)
        self.read_marks = ReadMarks(timing, timers, next_id, chance)
        self.cursors = DeviceCursors(timing, timers, pause, next_id)
        self.overview = OverviewRounds(timing, timers, next_id, self._known_chats)
        self.sync = LogSync(
            chats=self._chats,
            cursors=self.cursors,
            overview=self.overview,
            timing=timing,
            timers=timers,
            pause=pause,
            next_id=next_id,
            chance=chance,
        )
        self.presence = PresenceWatch(timing, timers, next_id)
        self.typing = TypingSignals(timers)
        self._is_looked_at = True
        self._is_attention_due = False

    def restore(self, saved: SavedState) -> None:
        """Start from what an earlier run left behind."""
        self.cursors.restore(saved.cursors)
        for message in saved.outgoing:
            self.outbox.add(message, saved=True)

    # What the application sees

    def chat(self, chat_id: str) -> ChatModel:
        """The model of a chat; the same object for as long as this client lives."""
        chat = self._chats.get(chat_id)
        if chat is None:
            chat = self._chats[chat_id] = ChatModel(chat_id, self._notify)
        return chat

    @property
    def rows(self) -> dict[str, OverviewChat]:
        """Every chat of the person, as in the overview."""
        return {chat_id: chat.row for chat_id, chat in self._chats.items() if chat.row is not None}

    # Input from the application

    @wakes
    def send(self, message: OutgoingMessage) -> None:
        """Queue a message. OutboxFull if there is no room, RequestRefused if every server would refuse it."""
        check_size(message)
        self.outbox.add(message, saved=not self._durable)
        self.typing.message_sent(message.chat_id)
        if self._durable:
            self._added.append(message)

    @wakes
    def mark_read(self, chat_id: str, up_to: int | str) -> int:
        """Returns the number of its `ReadMarkDone`."""
        return self.read_marks.add(ReadReceipt(chat_id=chat_id, read_up_to=up_to))

    @wakes
    def ask_overview(self) -> int:
        """Request the overview. Returns its round: wait for this `OverviewComplete` or a later one."""
        return self.overview.ask()

    @wakes
    def read(self, chat: ChatModel) -> None:
        """The application reads this chat from now on. An entry that it did not process comes again."""
        self.sync.read(chat)

    @wakes
    def read_all(self) -> None:
        """The application reads every chat from now on, including later ones."""
        self.sync.stop_all()
        self.sync.read_all()

    @wakes
    def take(self, chat: ChatModel, now_ms: int) -> Entry | None:
        """The next entry of this chat. Taking it marks the previous one as processed."""
        return self.sync.take(chat, now_ms)

    @wakes
    def mark_processed(self, chat: ChatModel, now_ms: int) -> None:
        """The last taken entry of this chat is processed."""
        self.sync.mark_processed(chat, now_ms)

    @wakes
    def stop(self, chat: ChatModel) -> None:
        """The application stops reading this chat."""
        self.sync.stop(chat)

    @wakes
    def seek(self, chat: ChatModel, cursor: Cursor, now_ms: int) -> None:
        """Stop reading this chat. The next read starts at this cursor."""
        self.sync.stop(chat)
        self.cursors.move(chat.chat_id, cursor, now_ms)

    @wakes
    def open(self, chat: ChatModel) -> None:
        """Load the chat's members and receipts, then keep them up to date. `ChatOpened` follows the load."""
        if chat.roster is None:
            chat.roster = Roster()
            self._open[chat.chat_id] = chat
        if chat.roster.is_loaded:
            self._events.append(ChatOpened(chat.chat_id))

    @wakes
    def close(self, chat: ChatModel, because: Refusal = CLOSED) -> None:
        """Stop updating them. If the chat was still opening, its `ChatOpened` carries this refusal."""
        if chat.roster is not None and not chat.roster.is_loaded:
            self._events.append(ChatOpened(chat.chat_id, because))
        chat.roster = None
        self._open.pop(chat.chat_id, None)
        self._timers.cancel(("load", chat.chat_id))
        self.presence.watch_chat(chat.chat_id, [])

    @wakes
    def reload_open_chats(self) -> None:
        """What is shown of open chats may be out of date."""
        for chat in self._open.values():
            if chat.roster is not None:
                chat.roster.needs_load = True

    @wakes
    def start_typing(self, chat: ChatModel, now_ms: int) -> None:
        """Send that this person types; without a connection it is lost."""
        if self.online:
            self.typing.start(chat, now_ms)

    @wakes
    def stop_typing(self, chat: ChatModel) -> None:
        self.typing.stop(chat)

    @wakes
    def look(self, *, looking: bool) -> None:
        """Send whether somebody looks at this client; a connection begins as if somebody did."""
        if looking != self._is_looked_at:
            self._is_looked_at, self._is_attention_due = looking, True

    @wakes
    def watch_presence(self, user_ids: Iterable[str]) -> None:
        self.presence.watch(user_ids)

    # Results of HTTP requests

    @wakes
    def message_stored(self, key: MessageKey, ack: Ack, now_ms: int) -> None:
        """A message is acknowledged, or was found in the log."""
        if self.outbox.acknowledged(key, now_ms) is not None:
            self._forget_message(key, now_ms)
            self._events.append(MessageStored(key, ack))
            self._notify(Update(What.RECEIPTS, ack.chat_id))

    @wakes
    def message_not_stored(self, key: MessageKey, wall_ms: int) -> None:
        """The result of `CheckMessage`: the message may be sent."""
        self.outbox.not_stored(key, wall_ms)

    @wakes
    def check_failed(self, key: MessageKey, now_ms: int) -> None:
        """`CheckMessage` failed."""
        self.outbox.check_failed(key, now_ms)

    @wakes
    def chat_loaded(self, chat: ChatModel, snapshot: ChatSnapshot) -> None:
        """The result of `LoadChat`; ignored if the chat was closed or reopened since."""
        roster, chat.loading = chat.loading, None
        if roster is not None and roster is chat.roster:
            roster.load(snapshot)
            chat.loaded(roster)
            self._watch_members(chat, roster)
            self._events.append(ChatOpened(chat.chat_id))

    @wakes
    def load_failed(self, chat: ChatModel, refusal: Refusal | None, now_ms: int) -> None:
        """`LoadChat` failed. A permanent refusal closes the chat; other failures are retried."""
        roster, chat.loading = chat.loading, None
        if roster is None or roster is not chat.roster:
            return
        if refusal is not None and not refusal.temporary:
            self.close(chat, refusal)
            chat.notify(What.MEMBERS)
            return
        pause_ms = backoff_ms(roster.failed_loads, self._timing, self._chance())
        roster.load_failed()
        self._timers.set(("load", chat.chat_id), now_ms + pause_ms)

    # The connection

    @wakes
    def connected(self, welcome: Welcome, now_ms: int) -> None:
        self.online, self.silent = True, False
        self.user_id = welcome.user_id
        self._heartbeat_ms = max(1, welcome.heartbeat_seconds) * MS_PER_SECOND
        self._timers.set(HEARTBEAT, now_ms + self._heartbeat_ms, self._heartbeat_is_due)
        self._notify(Update(What.CONNECTION))
        self.overview.connected()
        self.sync.connected()
        self.presence.connected()
        self.reload_open_chats()

    @wakes
    def disconnected(self) -> None:
        self.online = False
        self._is_attention_due = not self._is_looked_at
        self._heartbeat_id, self._is_heartbeat_due = None, False
        self._timers.cancel(HEARTBEAT)
        self._timers.cancel(SILENCE)
        self._notify(Update(What.CONNECTION))
        self.overview.disconnected()
        self.outbox.disconnected()
        self._page_and_ack_pause.end()
        self.cursors.disconnected()
        self.sync.disconnected()
        self.read_marks.disconnected()
        self.typing.disconnected()
        self.presence.disconnected()

    @wakes
    def receive(self, frame: ServerFrames, now_ms: int) -> None:
        match frame:
            case Ack():
                self.message_stored((frame.chat_id, frame.client_message_id), frame, now_ms)
            case Messages():
                voids = [] if frame.voids is UNSET else frame.voids
                slots = slots_of(self._entries(frame.entries, now_ms), voids)
                if slots:
                    self._receive_live(self.chat(frame.chat_id), frame.epoch, slots)
            case MessageBatch():
                slots = slots_of(self._entries(frame.entries, now_ms), frame.voids)
                chat = self.chat(frame.chat_id)
                self.sync.receive_page(chat, frame, slots, now_ms)
                chat.receive_page(frame, slots, self.user_id)
            case Overview():
                self._receive_overview(frame)
            case HeartbeatAck():
                self._receive_heartbeat(frame)
            case ChatChanged():
                self._receive_chat_changed(self.chat(frame.chat_id), frame)
            case InvitationFrame() | InvitationEnded():
                self._notify(Update(What.INVITATIONS, frame.chat_id))
            case ReceiptFrame():
                if frame.user_id == self.user_id and frame.kind == "read":
                    self._person_has_read(frame.chat_id, frame.up_to_sequence)
                self.chat(frame.chat_id).receive_receipt(frame)
            case Typing():
                if frame.user_id != self.user_id:
                    self.typing.receive(self.chat(frame.chat_id), frame, now_ms)
            case PresenceState():
                self._show_presence(self.presence.receive_state(frame))
            case PresenceChanged():
                self._show_presence(self.presence.receive_change(frame))
            case RefusedFrame():
                self._receive_refusal(frame, now_ms)
            case Welcome():
                pass  # The handshake handles it; a second one changes nothing.

    def tick(self, now_ms: int) -> None:
        """Do everything that is due."""
        self._timers.run_due(now_ms)

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self._timers.next_ms()

    # Output

    def frames_to_send(self, now_ms: int, wall_ms: int) -> list[Request]:
        """The frames to send now, each once. The heartbeat is last: its answer confirms the others."""
        if not self.online:
            return []
        frames: list[Request] = [*self.overview.frames_to_send(now_ms), *self.sync.frames_to_send(now_ms)]
        if self._is_attention_due:
            self._is_attention_due = False
            frames.append(Attention(looking=self._is_looked_at))
        frames += self.presence.frames_to_send()
        frames += self.typing.frames_to_send()
        frames += self.outbox.frames_to_send(now_ms, wall_ms)
        for ack in self.cursors.acks(now_ms):
            frames.append(ack)
            self.chat(ack.chat).delivered(ack.last_acked_sequence, self.user_id, iso(wall_ms))
        frames += self.read_marks.frames_to_send()
        if self._is_heartbeat_due and self._heartbeat_id is None:
            frames.append(self._heartbeat(now_ms))
        self._events += [CheckMessage(message) for message in self.outbox.to_check()]
        for chat in self._open.values():
            roster, timer = chat.roster, ("load", chat.chat_id)
            if roster and roster.needs_load and chat.loading is None and not self._timers.pending(timer):
                chat.loading = roster
                roster.start_load()
                self._events.append(LoadChat(chat.chat_id))
        return frames

    def events(self) -> list[ClientEvent]:
        """The events since the last call, without equal updates."""
        self._events += [EntriesReady(chat_id) for chat_id in self.sync.ready()]
        events, self._events = [*self._events, *self._updates], []
        self._updates.clear()
        return events

    def to_save(self) -> StateChanges:
        """What to make durable; pass it to `saved` afterwards."""
        changes = StateChanges(added=self._added)
        self._added = []
        if changes.added or self.cursors.is_flush_due:
            # Resending a stored message is harmless: its removal from the file can wait for other changes.
            changes.removed, self._removed = self._removed, []
        changes.cursors = self.cursors.to_save()
        return changes

    @wakes
    def saved(self, changes: StateChanges) -> None:
        if changes.added:
            keys = [message.key for message in changes.added]
            self.outbox.saved(keys)
            self._events.append(MessagesSaved(keys))
        self.cursors.saved(changes.cursors)

    # Frames

    def _entries(self, raws: list[Raw], now_ms: int) -> list[Entry]:
        """Decode them. This person's own unacknowledged message among them counts as its ack."""
        entries = [self._codec.entry(raw) for raw in raws]
        if len(self.outbox):
            for entry in entries:
                is_message = entry.kind == Kind.MESSAGE.value  # others are done only when they are answered
                if entry.client_message_id is not None and is_message and entry.sender_id == self.user_id:
                    key = (entry.chat_id, entry.client_message_id)
                    self.message_stored(key, ack_for(key, entry), now_ms)
        return entries

    def _receive_live(self, chat: ChatModel, epoch: int, slots: list[Slot]) -> None:
        self.sync.receive_live(chat, epoch, slots)
        if not chat.receive_live(epoch, slots, self.user_id, catching_up=self.overview.catching_up):
            self._missed_something(chat)
        entries = [slot.entry for slot in slots if slot.entry is not None]
        if chat.unread_count and any(entry.kind == Kind.DELETE.value for entry in entries):
            self.overview.ask()  # it may have been one of the unread
        if chat.typing:
            for entry in entries:
                self.typing.end(chat, entry.sender_id)
        if chat.roster is not None:
            changes = [entry for entry in entries if entry.kind in (Kind.MEMBER.value, Kind.CHAT.value)]
            for entry in changes:
                chat.receive_change(entry)
            if changes and chat.roster.is_loaded:
                self._watch_members(chat, chat.roster)

    def _receive_overview(self, frame: Overview) -> None:
        rows = self.overview.receive(frame)
        if rows is None:
            return
        for row in rows:
            chat = self.chat(row.chat_id)
            if row.left is True:
                self._leave(chat)
                continue
            if not chat.place(row):
                self.overview.ask()
            self.sync.receive_row(chat, row)
        if frame.complete:
            self.sync.overview_complete()
            self._events.append(OverviewComplete(self.overview.round))

    def _receive_heartbeat(self, frame: HeartbeatAck) -> None:
        if frame.re == self._heartbeat_id:
            self._heartbeat_id = None
            self._timers.cancel(SILENCE)
            self.cursors.heartbeat_answered()
        if isinstance(frame.re, int):
            for mark in self.read_marks.heartbeat_answered(frame.re):
                self._events.append(ReadMarkDone(mark.number))
                if mark.receipt is not None:
                    self._person_has_read(mark.receipt.chat_id, mark.receipt.read_up_to)
        for chat_id, head in {} if frame.heads is UNSET else frame.heads.items():
            chat = self.chat(chat_id)
            self.sync.note_head(chat, head, None)
            if chat.unread is None or chat.unread.is_behind(head):
                self._missed_something(chat)

    def _receive_chat_changed(self, chat: ChatModel, frame: ChatChanged) -> None:
        """An overview that is under way may be older than this change: request another one."""
        if frame.change == "left" and frame.user_id == self.user_id:
            self._leave(chat)
            self.overview.ask()
            return
        if frame.change == "joined":
            head = 0 if frame.head is UNSET else frame.head
            self.sync.joined(chat, head, 0 if frame.epoch is UNSET else frame.epoch)
            self.overview.ask()
        elif chat.unread is None:
            self.overview.ask()
        elif frame.muted_until is not UNSET:
            chat.mute(frame.muted_until)
            self.overview.ask()

    def _receive_refusal(self, frame: RefusedFrame, now_ms: int) -> None:
        retry_after_ms = None if frame.retry_after_ms is UNSET else frame.retry_after_ms
        refusal = Refusal(frame.code, frame.reason, frame.temporary, retry_after_ms)
        request_id = int(frame.re or 0)
        failed = self.outbox.refused(request_id, refusal, now_ms)
        if failed is not None:
            if not self.outbox.is_kept(failed.message.key):
                self._forget_message(failed.message.key, now_ms)
            self._events.append(MessageRefused(failed.message.key, refusal))
        elif (number := self.read_marks.refused(request_id, refusal, now_ms)) is not None:
            self._events.append(ReadMarkDone(number, refusal))
        elif (chat_id := self.cursors.refused(request_id, refusal, now_ms)) is not None:
            if refusal.code != FORBIDDEN.code:  # that is about the token, not the position
                self.sync.recheck(self.chat(chat_id))
        elif request_id == self._heartbeat_id:
            self._heartbeat_id = None
            self._timers.cancel(SILENCE)
        elif self.overview.refused(request_id, refusal, now_ms):
            pass  # It is retried.
        elif not self.sync.refused(request_id, refusal, now_ms):
            self.presence.refused(request_id, refusal, now_ms)
            if not refusal.temporary:
                self._events.append(RequestFailed(refusal))

    def _heartbeat(self, now_ms: int) -> Heartbeat:
        self._is_heartbeat_due = False
        self._heartbeat_id = self._next_id()
        self.cursors.heartbeat_sent()
        self._timers.set(SILENCE, now_ms + self._timing.answer_ms, self._is_silent)
        self._timers.set(HEARTBEAT, now_ms + self._heartbeat_ms, self._heartbeat_is_due)
        return Heartbeat(id=self._heartbeat_id)

    def _heartbeat_is_due(self, _now_ms: int) -> None:
        self._is_heartbeat_due = True

    def _is_silent(self, _now_ms: int) -> None:
        self.silent = True

    # Chats

    def _known_chats(self) -> set[str]:
        return {
            chat_id
            for chat_id, chat in self._chats.items()
            if chat.row is not None or chat.unread is not None
        }

    def _leave(self, chat: ChatModel) -> None:
        """The person left this chat or was removed."""
        chat.leave()
        self.typing.end_all(chat)
        self.close(chat, NOT_A_MEMBER)
        self.sync.recheck(chat)

    def _missed_something(self, chat: ChatModel) -> None:
        self.overview.ask()
        if chat.roster is not None:
            chat.roster.needs_load = True

    def _person_has_read(self, chat_id: str, up_to: int | str) -> None:
        """The person has read up to here, on any device."""
        if not self.chat(chat_id).read(up_to):
            self.overview.ask()

    def _watch_members(self, chat: ChatModel, roster: Roster) -> None:
        others = [user_id for user_id in roster.by_id if user_id != self.user_id]
        self.presence.watch_chat(chat.chat_id, others if len(others) <= WATCHED_MEMBERS_MAX else [])
        for user_id in others:
            view = self.presence.get(user_id)
            if view is not None:
                roster.receive_presence(view)

    def _show_presence(self, views: list[PresenceView]) -> None:
        for view in views:
            for chat in self._open.values():
                if chat.roster is not None:
                    chat.roster.receive_presence(view)
            self._notify(Update(What.PRESENCE, user_id=view.user_id))

    def _forget_message(self, key: MessageKey, now_ms: int) -> None:
        if self._durable:
            self._removed.append(key)
            self.cursors.flush_soon(now_ms)

    def _notify(self, update: Update) -> None:
        self._updates[update] = None
