"""A chat that is open: who is in it, and how far each member is. Pure.

What HTTP answers is a picture of one moment. What is heard while it is on its way is applied to it again:
positions only rise and changes come in the log's order, so that both end in the same state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import msgspec
from msgspec import Struct

from parley.client.bodies import ChatInfo, ChatMarks, MemberInfo
from parley.core.changes import change_in
from parley.core.receipts import MessageReceipts, Seen, receipts_of, status_of
from parley.model import Action, Change, Mark, ReadReceipts, Role
from parley.wire.frames import Entry, PresenceView, ReceiptFrame
from parley.wire.limits import RECEIPT_MEMBERS_MAX

WATCHED_MEMBERS_MAX = 100
"""In a larger chat nobody's presence is watched."""


class Member(Struct, kw_only=True, eq=False):
    """A member of an open chat; its fields change as things happen.

    `status` is "online" or "offline"; `last_seen` is "unavailable" if one may not see it. Positions are 0 and
    times None where nothing is known, or to be seen.
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


class Members(Sequence[Member]):
    """Everybody who is in a chat now, in the order in which they came. Empty while it is not open."""

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


class Picture(Struct):
    """A chat as HTTP tells it. Without `marks` it has too many members for that."""

    info: ChatInfo
    members: list[MemberInfo]
    marks: ChatMarks | None


class Heard(Struct):
    """A change at its position of the log."""

    sequence: int
    change: Change


class Opened:
    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.title: str | None = None
        self.mode = ReadReceipts.FULL
        self.is_loaded = False
        self.is_wanted = True
        """Whether a picture must be asked for."""
        self.attempts = 0
        self.is_loading = False
        self._heard: list[ReceiptFrame | Heard] = []
        self._somebody_read = Seen(None, "")
        self._read_by_anybody = 0

    @property
    def must_load(self) -> bool:
        return self.is_wanted and not self.is_loading

    def start_loading(self) -> None:
        self.is_wanted, self.is_loading = False, True
        self._heard = []

    def loaded(self, picture: Picture) -> None:
        self.is_loading, self.is_loaded, self.attempts = False, True, 0
        self.title, self.mode = picture.info.title, picture.info.read_receipts
        marks = picture.marks or ChatMarks(self.mode, [])
        by_user = {mark.user_id: mark for mark in marks.marks}
        members = sorted(picture.members, key=lambda member: member.joined_sequence)
        before = dict(self.by_id)
        self.by_id.clear()
        for info in members:
            member = before.get(info.user_id) or Member(user_id=info.user_id)
            self.by_id[info.user_id] = _tell(member, info, by_user.get(info.user_id))
        self._read_by_anybody = marks.read_by_anybody
        heard, self._heard = self._heard, []
        for one in heard:
            if isinstance(one, Heard):
                self._apply(one)
            else:
                self._raise(one)

    def load_failed(self) -> None:
        self.is_loading = False
        self.attempts += 1

    def receipt(self, frame: ReceiptFrame) -> bool:
        """Whether that tells something new."""
        if self.is_loading:
            self._heard.append(frame)
        return self._raise(frame)

    def changed(self, entry: Entry) -> bool:
        """An entry of the log; whether it changes the chat."""
        change = readable_change(entry)
        if change is None:
            return False
        heard = Heard(entry.sequence, change)
        if self.is_loading:
            self._heard.append(heard)
        self._apply(heard)
        return True

    def presence(self, view: PresenceView) -> bool:
        """Whether that is a member."""
        member = self.by_id.get(view.user_id)
        if member is not None:
            member.status, member.last_seen = view.status, view.last_seen
        return member is not None

    def receipts(self, sequence: int, sender_id: str) -> MessageReceipts:
        """The receipts of a message, from how far everybody is."""
        marks = [_mark(member) for member in self.by_id.values()]
        found = receipts_of(sequence, sender_id, marks, self.mode, _is_seen, _is_seen)
        if self.mode is not ReadReceipts.SIMPLE or self._read_by_anybody < sequence:
            return found
        status = status_of(len(found.delivered), 1, found.member_count, self.mode)
        return MessageReceipts(found.member_count, status, found.delivered, [self._somebody_read])

    def _raise(self, frame: ReceiptFrame) -> bool:
        if frame.user_id is None:
            is_news = frame.up_to_sequence > self._read_by_anybody
            if is_news:
                self._read_by_anybody, self._somebody_read = frame.up_to_sequence, Seen(None, frame.at)
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

    def _apply(self, heard: Heard) -> None:
        change, user_id = heard.change, heard.change.user_id
        member = self.by_id.get(user_id)
        match change.action:
            case Action.JOINED if member is None:
                # The log tells no names: the next picture does.
                self.by_id[user_id] = Member(
                    user_id=user_id, role=change.role, joined_sequence=heard.sequence
                )
                self.is_wanted = True
            case Action.LEFT | Action.REMOVED if (
                member is not None and member.joined_sequence < heard.sequence
            ):
                del self.by_id[user_id]
                # With one member more nobody was told how far they are.
                self.is_wanted |= len(self.by_id) == RECEIPT_MEMBERS_MAX
            case Action.ROLE if member is not None:
                member.role = change.role
            case Action.RENAMED:
                self.title = change.title
            case Action.READ_RECEIPTS if change.read_receipts is not None:
                # Another mode shows other positions.
                self.mode = change.read_receipts
                self.is_wanted = True
            case _:
                pass


def readable_change(entry: Entry) -> Change | None:
    """What an entry changed; None if nothing, or something that this version does not know."""
    try:
        return change_in(entry)
    except msgspec.DecodeError:
        return None


def _tell(member: Member, info: MemberInfo, mark: Mark | None) -> Member:
    """What a picture says of a member; whoever holds the member sees it."""
    known = mark or Mark(info.user_id, info.joined_sequence, 0, None, 0, None)
    member.username, member.display_name = info.username, info.display_name
    member.role = info.role
    member.joined_at, member.joined_sequence = info.joined_at, info.joined_sequence
    member.status, member.last_seen = info.status, info.last_seen
    member.delivered_up_to, member.delivered_at = known.delivered_up_to, known.delivered_at
    member.read_up_to, member.read_at = known.read_up_to, known.read_at
    return member


def _mark(member: Member) -> Mark:
    return Mark(
        member.user_id,
        member.joined_sequence,
        member.delivered_up_to,
        member.delivered_at,
        member.read_up_to,
        member.read_at,
    )


def _is_seen(_: Mark) -> bool:
    """What may not be seen is not among what the server told."""
    return True
