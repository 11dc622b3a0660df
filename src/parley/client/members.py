"""The members of an open chat, and how far each has received and read it. Pure.

HTTP returns a snapshot. Frames that arrive while it loads are applied again on top of it: positions only rise
and changes keep the log's order, so the result is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import msgspec
from msgspec import Struct

from parley.core.changes import change_in
from parley.core.receipts import MessageReceipts, receipts_of, status_of
from parley.model import Action, Change, MemberCursor, ReadReceipts, Role, SeenBy
from parley.wire.bodies import ChatInfo, ChatMarks, MemberInfo
from parley.wire.frames import Entry, PresenceView, ReceiptFrame
from parley.wire.limits import RECEIPT_MEMBERS_MAX

WATCHED_MEMBERS_MAX = 100
"""The client subscribes to the presence of members in chats up to this size."""


class Member(Struct, kw_only=True, eq=False):
    """A member of an open chat, kept up to date.

    `status` is "online" or "offline"; `last_seen` is "unavailable" if the person may not see it. Positions
    are 0 and times None where they are unknown or hidden.
    """

    user_id: str
    username: str = ""
    display_name: str = ""
    role: Role = Role.MEMBER
    joined_at: str = ""
    joined_sequence: int = 0
    status: str = "offline"
    last_seen: str | None = None
    delivered_up_to: int = 0
    delivered_at: str | None = None
    read_up_to: int = 0
    read_at: str | None = None
    is_bot: bool = False
    """A program: no receipt counts it."""


class Members(Sequence[Member]):
    """The members of a chat, in the order in which they joined. Empty while the chat is not open."""

    def __init__(self, by_id: dict[str, Member]) -> None:
        self._by_id = by_id

    def get(self, user_id: str) -> Member | None:
        return self._by_id.get(user_id)

    @overload
    def __getitem__(self, index: int) -> Member: ...

    @overload
    def __getitem__(self, index: slice) -> list[Member]: ...

    def __getitem__(self, index: int | slice) -> Member | list[Member]:
        return list(self._by_id.values())[index]

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._by_id.values()))

    def __repr__(self) -> str:
        return repr(list(self._by_id.values()))


class ChatSnapshot(Struct):
    """A chat from HTTP. A chat with too many members has no `marks`."""

    info: ChatInfo
    members: list[MemberInfo]
    marks: ChatMarks | None


class LoggedChange(Struct):
    """A change of the chat at its position of the log."""

    sequence: int
    change: Change


class Roster:
    """The members of one open chat, with its title and its read receipts mode."""

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.title: str | None = None
        self.mode = ReadReceipts.FULL
        self.is_loaded = False
        self.needs_load = True
        """Whether a snapshot must be loaded."""
        self.failed_loads = 0
        self._since_load_began: list[ReceiptFrame | LoggedChange] | None = None
        """What arrived while a snapshot loads; None while none does."""
        self._latest_read = SeenBy(None, "")
        self._read_by_anybody = 0

    def start_load(self) -> None:
        self.needs_load = False
        self._since_load_began = []

    def load_failed(self) -> None:
        self.needs_load = True
        self.failed_loads += 1
        self._since_load_began = None

    def load(self, snapshot: ChatSnapshot) -> None:
        """Apply the snapshot, and again what arrived while it was loading."""
        self.is_loaded, self.failed_loads = True, 0
        self.title, self.mode = snapshot.info.title, snapshot.info.read_receipts
        marks = snapshot.marks or ChatMarks(self.mode, [], 0)
        by_user = {mark.user_id: mark for mark in marks.marks}
        before = dict(self.by_id)
        self.by_id.clear()
        for info in sorted(snapshot.members, key=lambda member: member.joined_sequence):
            member = before.get(info.user_id) or Member(user_id=info.user_id)
            self.by_id[info.user_id] = _update(member, info, by_user.get(info.user_id))
        self._read_by_anybody = marks.read_by_anybody
        arrived, self._since_load_began = self._since_load_began or [], None
        for one in arrived:
            if isinstance(one, LoggedChange):
                self._apply(one)
            else:
                self.receive_receipt(one)

    def receive_receipt(self, frame: ReceiptFrame) -> bool:
        """Returns whether a position rose."""
        if self._since_load_began is not None:
            self._since_load_began.append(frame)
        if frame.user_id is None:
            is_news = frame.up_to_sequence > self._read_by_anybody
            if is_news:
                self._read_by_anybody, self._latest_read = frame.up_to_sequence, SeenBy(None, frame.at)
            return is_news
        member = self.by_id.get(frame.user_id)
        if member is None:
            return False
        before = (member.delivered_up_to, member.read_up_to)
        if frame.up_to_sequence > member.delivered_up_to:
            member.delivered_up_to, member.delivered_at = frame.up_to_sequence, frame.at
        if frame.kind == "read" and frame.up_to_sequence > member.read_up_to:
            member.read_up_to, member.read_at = frame.up_to_sequence, frame.at
        return before != (member.delivered_up_to, member.read_up_to)

    def receive_entry(self, entry: Entry) -> bool:
        """An entry of the log. Returns whether it changes the chat."""
        change = readable_change(entry)
        if change is None:
            return False
        logged = LoggedChange(entry.sequence, change)
        if self._since_load_began is not None:
            self._since_load_began.append(logged)
        self._apply(logged)
        return True

    def receive_presence(self, view: PresenceView) -> None:
        member = self.by_id.get(view.user_id)
        if member is not None:
            member.status, member.last_seen = view.status, view.last_seen

    def receipts(self, sequence: int, sender_id: str) -> MessageReceipts:
        """The receipts of a message, derived from how far every member is."""
        marks = [_mark(member) for member in self.by_id.values() if not member.is_bot]
        found = receipts_of(sequence, sender_id, marks, self.mode, _is_visible, _is_visible)
        if self.mode is not ReadReceipts.SIMPLE or self._read_by_anybody < sequence:
            return found
        status = status_of(len(found.delivered), 1, found.member_count, self.mode)
        return MessageReceipts(found.member_count, status, found.delivered, [self._latest_read])

    def _apply(self, logged: LoggedChange) -> None:
        change, user_id = logged.change, logged.change.user_id
        member = self.by_id.get(user_id)
        match change.action:
            case Action.JOINED if member is None:
                # The log has no names: the next snapshot does.
                self.by_id[user_id] = Member(
                    user_id=user_id, role=change.role, joined_sequence=logged.sequence
                )
                self.needs_load = True
            case Action.LEFT | Action.REMOVED if (
                member is not None and member.joined_sequence < logged.sequence
            ):
                del self.by_id[user_id]
                # With one more member, the server sent no positions.
                self.needs_load |= len(self.by_id) == RECEIPT_MEMBERS_MAX
            case Action.ROLE if member is not None:
                member.role = change.role
            case Action.RENAMED:
                self.title = change.title
            case Action.READ_RECEIPTS if change.read_receipts is not None:
                # Another mode shows other positions.
                self.mode = change.read_receipts
                self.needs_load = True
            case _:
                pass


def readable_change(entry: Entry) -> Change | None:
    """The change in an entry; None if there is none, or one that this version cannot read."""
    try:
        return change_in(entry)
    except msgspec.DecodeError:
        return None


def _update(member: Member, info: MemberInfo, mark: MemberCursor | None) -> Member:
    """Update the member object in place from a snapshot: the application may hold it."""
    known = mark or MemberCursor(info.user_id, info.joined_sequence, 0, None, 0, None)
    member.username, member.display_name = info.username, info.display_name
    member.role, member.is_bot = info.role, info.is_bot
    member.joined_at, member.joined_sequence = info.joined_at, info.joined_sequence
    member.status, member.last_seen = info.status, info.last_seen
    member.delivered_up_to, member.delivered_at = known.delivered_up_to, known.delivered_at
    member.read_up_to, member.read_at = known.read_up_to, known.read_at
    return member


def _mark(member: Member) -> MemberCursor:
    return MemberCursor(
        member.user_id,
        member.joined_sequence,
        member.delivered_up_to,
        member.delivered_at,
        member.read_up_to,
        member.read_at,
    )


def _is_visible(_: MemberCursor) -> bool:
    """Always: the server leaves out what the person may not see."""
    return True
