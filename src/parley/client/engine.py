"""Everything a client decides, without IO: feed it frames and the time, then drain what follows.

    engine.receive(frame, now_ms)            what the server said
    engine.tick(now_ms)                      what is due
    engine.frames_to_send(now_ms, wall_ms)   what goes to the server
    engine.to_save() … engine.saved(…)       what must be durable before it goes on
    engine.events()                          what people wait for

`now_ms` only ever rises; `wall_ms` is the time of day, for the age of a message.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw, Struct

from parley.client.calls import CALL_TIMER, Calls
from parley.client.cursors import FLUSH_TIMER, RETRY_TIMER, Cursors
from parley.client.errors import RequestRefused
from parley.client.keeping import Changes, Kept, MessageKey, Outgoing
from parley.client.live import LOAD_TIMER, Live, Opening, Update
from parley.client.outbox import ACK_TIMER, RESUME_TIMER, Outbox
from parley.client.overviews import OVERVIEW_TIMER, Overviews
from parley.client.pace import PACE_TIMER, Pace
from parley.client.presences import PRESENCE_TIMER
from parley.client.reading import Reading, found_in
from parley.client.syncing import SYNC_TIMER, Syncing
from parley.client.timers import Timers
from parley.client.timing import Timing
from parley.client.typists import TYPING_TIMER
from parley.clock import MS_PER_SECOND, iso
from parley.errors import TOO_LARGE, Refusal
from parley.wire import limits
from parley.wire.client_codec import ClientCodec
from parley.wire.frames import (
    Ack,
    AckPosition,
    ChatChanged,
    Entry,
    Heartbeat,
    HeartbeatAck,
    MessageBatch,
    Messages,
    Overview,
    PresenceChanged,
    PresenceState,
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
JSON_GROWTH_MAX = 6
FRAME_OVERHEAD_BYTES = 2_048
"""More than everything in a send_message frame but its content."""


class Acked(Struct, frozen=True):
    """A message is stored."""

    key: MessageKey
    ack: Ack


class SendRefused(Struct, frozen=True):
    """A message was refused for good."""

    key: MessageKey
    refusal: Refusal


class MustCheck(Struct, frozen=True):
    """A message is so old that it must be looked for before it is sent."""

    message: Outgoing


class MessagesKept(Struct, frozen=True):
    """Messages are durable here and survive this process."""

    keys: list[MessageKey]


class MustLoad(Struct, frozen=True):
    """A picture of an open chat is wanted."""

    chat_id: str


class ChatReady(Struct, frozen=True):
    """A chat has something to take, or an end to tell."""

    chat_id: str


class CallAnswered(Struct, frozen=True):
    number: int
    refusal: Refusal | None = None


class OverviewComplete(Struct, frozen=True):
    """Every change of the person's chats until this round was asked for is in `positions`."""

    round: int


class Complaint(Struct, frozen=True):
    """The server refused something that nobody waits for."""

    refusal: Refusal


Event = (
    Acked
    | SendRefused
    | MustCheck
    | MustLoad
    | MessagesKept
    | ChatReady
    | CallAnswered
    | OverviewComplete
    | Opening
    | Update
    | Complaint
)


class Engine:
    def __init__(
        self, codec: ClientCodec, timing: Timing, chance: Callable[[], float], kept: Kept, *, durable: bool
    ) -> None:
        self._codec = codec
        self._timing = timing
        self._durable = durable
        self._timers = Timers()
        self._next_id = itertools.count(1).__next__
        self._events: list[Event] = []
        self._added: list[Outgoing] = []
        self._removed: list[MessageKey] = []
        self._flush_due = False
        self._heartbeat_ms = limits.HEARTBEAT_SECONDS * MS_PER_SECOND
        self._heartbeat_id: int | None = None
        self._heartbeat_due = False
        self.user_id = ""
        self.online = False
        self.silent = False
        self.outbox = Outbox(timing, self._timers, self._next_id, chance)
        self._pace = Pace(timing, self._timers)
        self.cursors = Cursors(timing, self._timers, self._pace, self._next_id, kept.cursors)
        self.syncing = Syncing(timing, self._timers, self._pace, self._next_id, chance)
        self.reading = Reading(self.cursors, self.syncing)
        self.calls = Calls(timing, self._timers, self._next_id, chance)
        self.overviews = Overviews(timing, self._timers, self._next_id, self._known_chats)
        self.live = Live(timing, self._timers, self._next_id, chance, self.overviews.ask)
        for message in kept.outgoing:
            self.outbox.add(message, kept=True)

    # What people ask.

    def send(self, message: Outgoing) -> None:
        """Queue a message. OutboxFull if there is no room, RequestRefused if no server could take it."""
        check_size(message)
        self.outbox.add(message, kept=not self._durable)
        self.live.typists.said(message.chat_id)
        if self._durable:
            self._added.append(message)

    def mark_read(self, chat_id: str, read_up_to: int | str) -> int:
        return self.calls.add(ReadReceipt(chat_id=chat_id, read_up_to=read_up_to))

    def type(self, chat_id: str, now_ms: int) -> None:
        """Tell others that one types, unless that was told a moment ago; lost without a connection."""
        if self.online:
            self.live.typists.start(chat_id, now_ms)

    def stored(self, key: MessageKey, ack: Ack, now_ms: int) -> None:
        """A message was found in the log."""
        if self.outbox.acknowledged(key, now_ms) is not None:
            self._forget(key, now_ms)
            self._events.append(Acked(key, ack))
            self.live.stored(ack.chat_id)

    # What the connection tells.

    def connected(self, welcome: Welcome, now_ms: int) -> None:
        self.online, self.silent = True, False
        self.user_id = welcome.user_id
        self._heartbeat_ms = max(1, welcome.heartbeat_seconds) * MS_PER_SECOND
        self._timers.set(HEARTBEAT, now_ms + self._heartbeat_ms)
        self.overviews.connected()
        self.reading.connected()
        self.live.connected(welcome.user_id)

    def disconnected(self) -> None:
        self.online = False
        self._heartbeat_id, self._heartbeat_due = None, False
        for key in (HEARTBEAT, SILENCE):
            self._timers.cancel(key)
        self.overviews.disconnected()
        self.outbox.disconnected()
        self._pace.disconnected()
        self.cursors.disconnected()
        self.reading.disconnected()
        self.calls.disconnected()
        self.live.disconnected()

    def receive(self, frame: ServerFrames, now_ms: int) -> None:
        match frame:
            case Ack():
                self.stored((frame.chat_id, frame.client_message_id), frame, now_ms)
            case Messages():
                entries = self._entries(frame.entries, now_ms)
                voids = [] if frame.voids is UNSET else frame.voids
                found = found_in(entries, voids)
                self.reading.live(frame.chat_id, frame.epoch, found)
                self.live.live(frame.chat_id, frame.epoch, found)
            case MessageBatch():
                found = found_in(self._entries(frame.entries, now_ms), frame.voids)
                self.reading.page(frame, found, now_ms)
                self.live.page(frame, found)
            case Overview():
                self._receive_overview(frame)
            case HeartbeatAck():
                self._receive_heartbeat(frame)
            case ChatChanged():
                left = frame.change == "left" and frame.user_id == self.user_id
                self.reading.changed(frame, left=left)
                self.live.changed(frame, left=left)
            case RefusedFrame():
                self._receive_refusal(frame, now_ms)
            case Welcome():
                pass  # Taken by the handshake; a second one changes nothing.
            case _:
                self._receive_signal(frame, now_ms)

    def _receive_signal(
        self, frame: ReceiptFrame | Typing | PresenceState | PresenceChanged, now_ms: int
    ) -> None:
        match frame:
            case ReceiptFrame():
                self.live.receipt(frame)
            case Typing():
                self.live.typing(frame, now_ms)
            case PresenceState():
                self.live.presence_state(frame)
            case PresenceChanged():
                self.live.presence_changed(frame)

    def tick(self, now_ms: int) -> None:
        """Everything whose time has come."""
        for kind, whose in self._timers.due(now_ms):
            match kind:
                case "heartbeat":
                    self._heartbeat_due = True
                case "silence":
                    self.silent = True
                case _ if kind == OVERVIEW_TIMER:
                    self.overviews.is_late()
                case _ if kind == ACK_TIMER:
                    self.outbox.unanswered(whose, now_ms)
                case _ if kind == RESUME_TIMER:
                    self.outbox.resume(whose)
                case _ if kind == SYNC_TIMER:
                    self.reading.sync_is_late(whose)
                case _ if kind == CALL_TIMER:
                    self.calls.resume(int(whose))
                case _ if kind == FLUSH_TIMER:
                    self._flush_due = True
                case _ if kind == RETRY_TIMER:
                    self.cursors.retry()
                case _ if kind == TYPING_TIMER:
                    self.live.typing_expired(whose)
                case _:
                    assert kind in (LOAD_TIMER, PACE_TIMER, PRESENCE_TIMER), "a rest is over, no more"

    # What follows.

    def frames_to_send(self, now_ms: int, wall_ms: int) -> list[Request]:
        """What may go out now, each frame once. The heartbeat comes last: its answer covers the rest."""
        if not self.online:
            return []
        frames: list[Request] = [*self.overviews.request(now_ms), *self.syncing.requests(now_ms)]
        frames += self.live.presences.frames()
        frames += self.live.typists.frames()
        frames += self.outbox.transmit(now_ms, wall_ms)
        frames += self._acks(now_ms, wall_ms)
        frames += self.calls.transmit()
        frames += self._heartbeat(now_ms)
        self._events += [MustCheck(message) for message in self.outbox.to_check()]
        self._events += [MustLoad(chat_id) for chat_id in self.live.to_load()]
        return frames

    def events(self) -> list[Event]:
        events, self._events = self._events, []
        ready = [ChatReady(chat_id) for chat_id in self.reading.fresh()]
        return [*events, *ready, *self.live.openings(), *self.live.updates()]

    def flush(self) -> None:
        """Write the cursors down without waiting for their time."""
        self._flush_due = True

    def to_save(self) -> Changes:
        """What is to be made durable; hand it back to `saved`."""
        changes = Changes(added=self._added)
        if self._added or self._flush_due:
            # A message that is acknowledged twice over does no harm: forgetting it can wait for company.
            changes.removed, self._removed = self._removed, []
        if self._flush_due:
            changes.cursors = self.cursors.to_save()
        self._added, self._flush_due = [], False
        return changes

    def saved(self, changes: Changes) -> None:
        if changes.added:
            keys = [message.key for message in changes.added]
            self.outbox.kept(keys)
            self._events.append(MessagesKept(keys))
        self.cursors.saved(changes.cursors)

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self._timers.next_ms()

    def _forget(self, key: MessageKey, now_ms: int) -> None:
        if self._durable:
            self._removed.append(key)
            self.cursors.flush_soon(now_ms)

    def _entries(self, raws: list[Raw], now_ms: int) -> list[Entry]:
        """Decoded. One's own unacknowledged message among them is as good as its ack."""
        entries = [self._codec.entry(raw) for raw in raws]
        if len(self.outbox):
            for entry in entries:
                if entry.client_message_id is not None and entry.sender_id == self.user_id:
                    self.stored((entry.chat_id, entry.client_message_id), ack_of(entry), now_ms)
        return entries

    def _receive_overview(self, frame: Overview) -> None:
        if not self.overviews.answered(frame):
            return
        self.reading.overview(frame.chats, frame.complete)
        self.live.overview(frame.chats, frame.complete)
        if frame.complete:
            self._events.append(OverviewComplete(self.overviews.round))

    def _known_chats(self) -> set[str]:
        return {*self.reading.positions, *self.live.chat_ids}

    def _receive_heartbeat(self, frame: HeartbeatAck) -> None:
        if frame.re == self._heartbeat_id:
            self._heartbeat_id = None
            self._timers.cancel(SILENCE)
            self.cursors.heartbeat_answered()
        if isinstance(frame.re, int):
            for call in self.calls.heartbeat_answered(frame.re):
                self._events.append(CallAnswered(call.number))
                if call.request is not None:
                    self.live.read(call.request.chat_id, call.request.read_up_to)
        if frame.heads is not UNSET:
            self.reading.heads(frame.heads)
            self.live.heads(frame.heads)

    def _receive_refusal(self, frame: RefusedFrame, now_ms: int) -> None:
        retry_after_ms = None if frame.retry_after_ms is UNSET else frame.retry_after_ms
        refusal = Refusal(frame.code, frame.reason, frame.temporary, retry_after_ms)
        request_id = int(frame.re or 0)
        failed = self.outbox.refused(request_id, refusal, now_ms)
        if failed is not None:
            self._forget(failed.message.key, now_ms)
            self._events.append(SendRefused(failed.message.key, refusal))
        elif (number := self.calls.refused(request_id, refusal, now_ms)) is not None:
            self._events.append(CallAnswered(number, refusal))
        elif (chat_id := self.cursors.refused(request_id, refusal, now_ms)) is not None:
            self.reading.doubt(chat_id)
        elif request_id == self._heartbeat_id:
            self._heartbeat_id = None
            self._timers.cancel(SILENCE)
        else:
            self._refused_otherwise(request_id, refusal, now_ms)

    def _refused_otherwise(self, request_id: int, refusal: Refusal, now_ms: int) -> None:
        """Overviews and pages are asked for again, or their chat tells; of the rest nobody would hear."""
        if self.overviews.refused(request_id, refusal, now_ms):
            return
        if self.reading.sync_refused(request_id, refusal, now_ms):
            return
        self.live.presences.refused(request_id, refusal, now_ms)
        if not refusal.temporary:
            self._events.append(Complaint(refusal))

    def _acks(self, now_ms: int, wall_ms: int) -> list[AckPosition]:
        acks = self.cursors.acks(now_ms)
        for ack in acks:
            self.live.received(ack.chat, ack.last_acked_sequence, iso(wall_ms))
        return acks

    def _heartbeat(self, now_ms: int) -> list[Heartbeat]:
        if not self._heartbeat_due or self._heartbeat_id is not None:
            return []
        self._heartbeat_due = False
        self._heartbeat_id = self._next_id()
        self.cursors.heartbeat_sent()
        self._timers.set(SILENCE, now_ms + self._timing.answer_ms)
        self._timers.set(HEARTBEAT, now_ms + self._heartbeat_ms)
        return [Heartbeat(id=self._heartbeat_id)]


def check_size(message: Outgoing) -> None:
    """A frame above the limit would end the connection, again after every reconnect; JSON is the longest."""
    content_bytes = len(message.content.encode())
    frame_bytes = content_bytes + FRAME_OVERHEAD_BYTES
    if content_bytes > limits.MESSAGE_BYTES_MAX:
        raise RequestRefused(TOO_LARGE.because(f"a message has at most {limits.MESSAGE_BYTES_MAX} bytes"))
    if content_bytes * JSON_GROWTH_MAX > limits.FRAME_BYTES_MAX - FRAME_OVERHEAD_BYTES:
        frame_bytes = len(msgspec.json.encode(message.content)) + FRAME_OVERHEAD_BYTES
    if frame_bytes > limits.FRAME_BYTES_MAX:
        raise RequestRefused(TOO_LARGE.because("too many of its characters need escaping in JSON"))


def ack_of(entry: Entry) -> Ack:
    """The ack that a stored entry stands for."""
    return Ack(
        chat_id=entry.chat_id,
        client_message_id=entry.client_message_id or "",
        message_id=entry.message_id,
        sequence=entry.sequence,
        epoch=entry.epoch,
        created_at=entry.created_at,
        deduplicated=True,
        conflict=False,
    )
