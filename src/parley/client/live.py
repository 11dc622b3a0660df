"""What an application shows beside the log, true as frames come: unread, typing, members, presence. Pure.

Nothing of it is asked for again and again. After a reconnect what may have been missed is: the overview tells
what is unread, open chats are looked at anew, presence is subscribed to again, and nobody is said to type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from msgspec import UNSET, Struct

from parley.client.inbox import Found
from parley.client.opened import WATCHED_MEMBERS_MAX, Opened, Picture
from parley.client.presences import Presences
from parley.client.timers import Timers
from parley.client.timing import Timing, backoff_ms
from parley.client.typists import Typists
from parley.client.unread import Unread
from parley.clock import from_iso
from parley.core.receipts import MessageReceipts
from parley.errors import BAD_REQUEST, NOT_A_MEMBER, Refusal
from parley.model import Kind
from parley.wire.frames import (
    ChatChanged,
    MessageBatch,
    OverviewChat,
    PresenceChanged,
    PresenceState,
    ReceiptFrame,
    Typing,
)

LOAD_TIMER = "load"
NOTHING_UNREAD = Unread()
CLOSED = BAD_REQUEST.because("the chat was closed before it was open")


class What(StrEnum):
    """What of a model changed."""

    UNREAD = "unread"
    TYPING = "typing"
    MEMBERS = "members"
    RECEIPTS = "receipts"
    SETTINGS = "settings"
    PRESENCE = "presence"
    CONNECTION = "connection"


class Update(Struct, frozen=True):
    """Something changed: look at it again. Most happens in a chat; presence is a person's."""

    what: What
    chat_id: str | None = None
    user_id: str | None = None


class Opening(Struct, frozen=True):
    """A chat is open, or cannot be."""

    chat_id: str
    refusal: Refusal | None = None


class Live:
    def __init__(
        self,
        timing: Timing,
        timers: Timers,
        next_id: Callable[[], int],
        chance: Callable[[], float],
        ask_overview: Callable[[], object],
    ) -> None:
        self._timing = timing
        self._timers = timers
        self._chance = chance
        self._ask_overview = ask_overview
        self._placing = True
        self._unread: dict[str, Unread] = {}
        self._muted: dict[str, int] = {}
        """Until when, in time of day."""
        self._opened: dict[str, Opened] = {}
        self._loading: set[str] = set()
        self._received: dict[str, ReceiptFrame] = {}
        """What this device has acknowledged: a picture may not know of it yet."""
        self._updates: dict[Update, None] = {}
        self._openings: list[Opening] = []
        self.user_id = ""
        self.typists = Typists(timers)
        self.presences = Presences(timing, timers, next_id)

    # What an application looks at.

    @property
    def chat_ids(self) -> Iterable[str]:
        """The chats of which anything is known."""
        return self._unread

    def unread(self, chat_id: str) -> Unread:
        return self._unread.get(chat_id, NOTHING_UNREAD)

    def opened(self, chat_id: str) -> Opened | None:
        """The chat, once it was loaded."""
        opened = self._opened.get(chat_id)
        return opened if opened is not None and opened.is_loaded else None

    def receipts(self, chat_id: str, sequence: int, sender_id: str) -> MessageReceipts | None:
        """The receipts of a message in an open chat."""
        opened = self.opened(chat_id)
        return None if opened is None else opened.receipts(sequence, sender_id)

    def is_muted(self, chat_id: str, wall_ms: int) -> bool:
        return wall_ms < self._muted.get(chat_id, 0)

    # What it asks.

    def open(self, chat_id: str) -> None:
        """Keep the chat's members and positions from now on; an `Opening` tells when they are there."""
        opened = self._opened.setdefault(chat_id, Opened())
        if opened.is_loaded:
            self._openings.append(Opening(chat_id))

    def close(self, chat_id: str, because: Refusal = CLOSED) -> None:
        """Keep no more than of every chat; whoever still waits for it to open is told why it does not."""
        opened = self._opened.pop(chat_id, None)
        if opened is not None and not opened.is_loaded:
            self._openings.append(Opening(chat_id, because))
        self._timers.cancel((LOAD_TIMER, chat_id))
        self.presences.watch_chat(chat_id, [])

    def look_again(self) -> None:
        """What is shown of open chats may be wrong."""
        for opened in self._opened.values():
            opened.is_wanted = True

    def to_load(self) -> list[str]:
        """The open chats whose picture must be asked for now; of each one at a time."""
        waiting = [chat_id for chat_id, opened in self._opened.items() if opened.must_load]
        waiting = [chat_id for chat_id in waiting if chat_id not in self._loading]
        chat_ids = [chat_id for chat_id in waiting if not self._timers.pending((LOAD_TIMER, chat_id))]
        for chat_id in chat_ids:
            self._opened[chat_id].start_loading()
        self._loading.update(chat_ids)
        return chat_ids

    def loaded(self, chat_id: str, picture: Picture) -> None:
        opened = self._asked_for(chat_id)
        if opened is None:
            return
        opened.loaded(picture)
        if chat_id in self._received:
            opened.receipt(self._received[chat_id])
        self._watch_members(chat_id, opened)
        self._openings.append(Opening(chat_id))
        for what in (What.MEMBERS, What.RECEIPTS, What.SETTINGS):
            self._update(what, chat_id)

    def load_failed(self, chat_id: str, refusal: Refusal | None, now_ms: int) -> None:
        """A refusal for good closes the chat; everything else is tried again."""
        opened = self._asked_for(chat_id)
        if opened is None:
            return
        if refusal is not None and not refusal.temporary:
            self.close(chat_id, refusal)
            self._update(What.MEMBERS, chat_id)
            return
        opened.load_failed()
        opened.is_wanted = True
        pause_ms = backoff_ms(opened.attempts - 1, self._timing, self._chance())
        self._timers.set((LOAD_TIMER, chat_id), now_ms + pause_ms)

    def _asked_for(self, chat_id: str) -> Opened | None:
        """The chat that a picture was asked for; None if it was closed since, or opened anew."""
        self._loading.discard(chat_id)
        opened = self._opened.get(chat_id)
        return opened if opened is not None and opened.is_loading else None

    def openings(self) -> list[Opening]:
        openings, self._openings = self._openings, []
        return openings

    def updates(self) -> list[Update]:
        """What changed since this was last asked, each once."""
        updates, self._updates = list(self._updates), {}
        return updates

    # What the connection tells.

    def connected(self, user_id: str) -> None:
        self.user_id = user_id
        self._updates[Update(What.CONNECTION)] = None
        self._placing = True
        self.presences.connected()
        self.look_again()

    def disconnected(self) -> None:
        self._updates[Update(What.CONNECTION)] = None
        for chat_id in self.typists.disconnected():
            self._update(What.TYPING, chat_id)
        self.presences.disconnected()

    def overview(self, rows: Sequence[OverviewChat], complete: bool) -> None:
        for row in rows:
            if row.left is True:
                self._leave(row.chat_id)
            else:
                self._place(row)
        if complete:
            self._placing = False

    def live(self, chat_id: str, epoch: int, found: Sequence[Found]) -> None:
        """Entries as they come: they count as unread, end their sender's typing, and may change the chat."""
        if not found:
            return
        unread = self._unread.get(chat_id, NOTHING_UNREAD)
        before = (unread.count, unread.more)
        # A chat that no overview told of is not counted: it may be one that was left.
        if unread is NOTHING_UNREAD or not unread.live(epoch, found, self.user_id, placing=self._placing):
            self._missed_something(chat_id)
        self._compare_unread(chat_id, before)
        if self.typists.of(chat_id):
            for position in found:
                if position.entry is not None:
                    self._end_typing(chat_id, position.entry.sender_id)
        opened = self._opened.get(chat_id)
        if opened is not None:
            self._apply_changes(chat_id, opened, found)

    def page(self, batch: MessageBatch, found: Sequence[Found]) -> None:
        unread = self._unread.get(batch.chat_id)
        if unread is not None:
            unread.learn(batch, found, self.user_id)

    def heads(self, heads: dict[str, int]) -> None:
        """Chats with something that was not sent here."""
        for chat_id, head in heads.items():
            if self.unread(chat_id).behind(head):
                self._missed_something(chat_id)

    def changed(self, frame: ChatChanged, *, left: bool) -> None:
        """An overview that is on its way may not know of it: what an overview tells is asked for again."""
        if left:
            self._leave(frame.chat_id)
        elif frame.chat_id in self._unread and frame.change != "joined":
            if frame.muted_until is UNSET:
                return
            self._note_muted(frame.chat_id, frame.muted_until)
        self._ask_overview()

    def receipt(self, frame: ReceiptFrame) -> None:
        """How far somebody is; oneself, too, on another device."""
        if frame.user_id == self.user_id and frame.kind == "read":
            self.read(frame.chat_id, frame.up_to_sequence)
        opened = self._opened.get(frame.chat_id)
        if opened is not None and opened.receipt(frame):
            self._update(What.RECEIPTS, frame.chat_id)

    def received(self, chat_id: str, up_to: int, at: str) -> None:
        """This device has; of that the server tells only the others."""
        frame = self._received[chat_id] = ReceiptFrame(
            chat_id=chat_id, user_id=self.user_id, kind="delivered", up_to_sequence=up_to, at=at
        )
        self.receipt(frame)

    def read(self, chat_id: str, up_to: int | str) -> None:
        """The person has read up to there; the place of a message id is only known to the server."""
        unread = self._unread.get(chat_id)
        if unread is None:  # the overview that will tell of this chat may have been made before
            self._ask_overview()
            return
        before = (unread.count, unread.more)
        if isinstance(up_to, str) or not unread.read(up_to):
            self._ask_overview()
        self._compare_unread(chat_id, before)

    def typing(self, frame: Typing, now_ms: int) -> None:
        if frame.user_id != self.user_id and self.typists.heard(frame, now_ms):
            self._update(What.TYPING, frame.chat_id)

    def typing_expired(self, whose: str) -> None:
        self._update(What.TYPING, self.typists.expired(whose))

    def presence_state(self, frame: PresenceState) -> None:
        for user_id in self.presences.answered(frame):
            self._note_presence(user_id)

    def presence_changed(self, frame: PresenceChanged) -> None:
        if self.presences.changed(frame):
            self._note_presence(frame.user_id)

    def stored(self, chat_id: str) -> None:
        """A message of one's own has its place: its status is another."""
        self._update(What.RECEIPTS, chat_id)

    def _place(self, row: OverviewChat) -> None:
        unread = self._unread.setdefault(row.chat_id, Unread())
        before = (unread.count, unread.more)
        if not unread.place(row):
            self._ask_overview()
        self._compare_unread(row.chat_id, before)
        self._note_muted(row.chat_id, row.muted_until)

    def _compare_unread(self, chat_id: str, before: tuple[int, bool]) -> None:
        unread = self.unread(chat_id)
        if before != (unread.count, unread.more):
            self._update(What.UNREAD, chat_id)

    def _missed_something(self, chat_id: str) -> None:
        self._ask_overview()
        if chat_id in self._opened:
            self._opened[chat_id].is_wanted = True

    def _apply_changes(self, chat_id: str, opened: Opened, found: Sequence[Found]) -> None:
        changes = [position.entry for position in found if position.entry is not None]
        changes = [entry for entry in changes if entry.kind != Kind.MESSAGE.value]
        for entry in changes:
            if opened.changed(entry):
                is_member = entry.kind == Kind.MEMBER.value
                self._update(What.MEMBERS if is_member else What.SETTINGS, chat_id)
        if changes and opened.is_loaded:
            self._watch_members(chat_id, opened)

    def _watch_members(self, chat_id: str, opened: Opened) -> None:
        others = [user_id for user_id in opened.by_id if user_id != self.user_id]
        self.presences.watch_chat(chat_id, others if len(others) <= WATCHED_MEMBERS_MAX else [])
        for user_id in others:
            view = self.presences.get(user_id)
            if view is not None:
                opened.presence(view)

    def _note_presence(self, user_id: str) -> None:
        view = self.presences.get(user_id)
        assert view is not None
        for opened in self._opened.values():
            opened.presence(view)
        self._updates[Update(What.PRESENCE, user_id=user_id)] = None

    def _note_muted(self, chat_id: str, until: str | None) -> None:
        until_ms = 0 if until is None else _ms(until)
        before = self._muted.pop(chat_id, 0)
        if until_ms:
            self._muted[chat_id] = until_ms
        if before != until_ms:
            self._update(What.SETTINGS, chat_id)

    def _end_typing(self, chat_id: str, user_id: str) -> None:
        if self.typists.end(chat_id, user_id):
            self._update(What.TYPING, chat_id)

    def _leave(self, chat_id: str) -> None:
        """Nothing of a chat that one is not in is kept."""
        for kept in (self._unread, self._muted, self._received):
            kept.pop(chat_id, None)
        for user_id in self.typists.of(chat_id):
            self._end_typing(chat_id, user_id)
        self.close(chat_id, NOT_A_MEMBER)
        self._update(What.MEMBERS, chat_id)
        self._update(What.UNREAD, chat_id)

    def _update(self, what: What, chat_id: str) -> None:
        self._updates[Update(what, chat_id)] = None


def _ms(until: str) -> int:
    """0 for what is no time."""
    try:
        return from_iso(until)
    except ValueError:
        return 0
