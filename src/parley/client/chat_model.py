"""Everything the client knows about one chat. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from parley.client.events import Update, What
from parley.client.inbox import Inbox, Slot
from parley.client.log_proof import LogDifference
from parley.client.members import Members, Roster
from parley.clock import from_iso
from parley.core.receipts import MessageReceipts
from parley.model import Kind
from parley.wire.frames import Entry, MessageBatch, OverviewChat, ReceiptFrame
from parley.wire.limits import UNREAD_MAX

MESSAGE = Kind.MESSAGE.value


class ChatModel:
    """What an application sees of one chat, kept up to date as frames arrive.

    It calls `notify` with each change. A method returns False when something is missing and the client must
    request the overview again.
    """

    __slots__ = (
        "_delivered",
        "_muted_until_ms",
        "_notify",
        "chat_id",
        "inbox",
        "loading",
        "log_difference",
        "roster",
        "row",
        "typing",
        "typing_sent_at_ms",
        "unread",
    )

    def __init__(self, chat_id: str, notify: Callable[[Update], None]) -> None:
        self.chat_id = chat_id
        self._notify = notify
        self.row: OverviewChat | None = None
        """Its row of the overview; None if the person is not known to be in this chat."""
        self.unread: UnreadCounter | None = None
        """Set once the overview has listed the chat."""
        self._muted_until_ms = 0
        self.inbox: Inbox | None = None
        """Set while the application reads the chat."""
        self.roster: Roster | None = None
        """Set while the chat is open."""
        self.loading: Roster | None = None
        """The roster that waits for a snapshot; after a close and an open it is not `roster`."""
        self._delivered: ReceiptFrame | None = None
        """This device's last ack: a snapshot may not include it yet."""
        self.log_difference: LogDifference | None = None
        """Why this chat was last read again from its start, if a page showed that it had to be."""
        self.typing: dict[str, None] = {}
        """Others who type, in the order in which they began."""
        self.typing_sent_at_ms: int | None = None
        """When this client last sent that this person types."""

    @property
    def unread_count(self) -> int:
        return 0 if self.unread is None else self.unread.count

    @property
    def unread_more(self) -> bool:
        return self.unread is not None and self.unread.more

    @property
    def is_open(self) -> bool:
        return self.roster is not None and self.roster.is_loaded

    @property
    def members(self) -> Members:
        return Members({} if self.roster is None or not self.roster.is_loaded else self.roster.by_id)

    def is_muted(self, wall_ms: int) -> bool:
        return wall_ms < self._muted_until_ms

    def receipts(self, sequence: int, sender_id: str) -> MessageReceipts | None:
        """The receipts of a message; None while the chat is not open."""
        if self.roster is None or not self.roster.is_loaded:
            return None
        return self.roster.receipts(sequence, sender_id)

    def notify(self, what: What) -> None:
        self._notify(Update(what, self.chat_id))

    # Input from the server

    def place(self, row: OverviewChat) -> bool:
        """Apply the overview's row of this chat."""
        self.row = row
        unread = self.unread = self.unread or UnreadCounter()
        before = (unread.count, unread.more)
        is_complete = unread.place(row)
        self._notify_unread(before)
        self.mute(row.muted_until)
        return is_complete

    def leave(self) -> None:
        """Clear the state: the person is not in this chat."""
        self.row, self.unread, self._delivered = None, None, None
        self._muted_until_ms = 0
        self.notify(What.MEMBERS)
        self.notify(What.UNREAD)

    def mute(self, until: str | None) -> None:
        until_ms = 0 if until is None else _ms(until)
        if until_ms != self._muted_until_ms:
            self._muted_until_ms = until_ms
            self.notify(What.SETTINGS)

    def receive_live(self, epoch: int, slots: Sequence[Slot], user_id: str, *, catching_up: bool) -> bool:
        """Count live entries as unread."""
        if self.unread is None:
            return False  # A chat that no overview has listed is not counted: the person may have left it.
        before = (self.unread.count, self.unread.more)
        is_complete = self.unread.receive_live(epoch, slots, user_id, catching_up=catching_up)
        self._notify_unread(before)
        return is_complete

    def receive_page(self, batch: MessageBatch, slots: Sequence[Slot], user_id: str) -> None:
        if self.unread is not None:
            self.unread.receive_page(batch, slots, user_id)

    def note_difference(self, difference: LogDifference) -> None:
        """What this device read is not what the log holds."""
        self.log_difference = difference
        self.notify(What.LOG)

    def receive_change(self, entry: Entry) -> None:
        """A live entry that is not a message: it may change an open chat."""
        if self.roster is not None and self.roster.receive_entry(entry):
            self.notify(What.MEMBERS if entry.kind == Kind.MEMBER.value else What.SETTINGS)

    def receive_receipt(self, frame: ReceiptFrame) -> None:
        if self.roster is not None and self.roster.receive_receipt(frame):
            self.notify(What.RECEIPTS)

    def delivered(self, up_to: int, user_id: str, at: str) -> None:
        """This device has acknowledged the log up to here; the server sends that only to others."""
        self._delivered = ReceiptFrame(
            chat_id=self.chat_id, user_id=user_id, kind="delivered", up_to_sequence=up_to, at=at
        )
        self.receive_receipt(self._delivered)

    def read(self, up_to: int | str) -> bool:
        """The person has read up to here; only the server knows the position of a message id."""
        if self.unread is None:
            return False  # The overview that will list this chat may be older than the read.
        before = (self.unread.count, self.unread.more)
        is_complete = not isinstance(up_to, str) and self.unread.read(up_to)
        self._notify_unread(before)
        return is_complete

    def loaded(self, roster: Roster) -> None:
        """The snapshot of the open chat was loaded into `roster`."""
        if self._delivered is not None:
            roster.receive_receipt(self._delivered)
        for what in (What.MEMBERS, What.RECEIPTS, What.SETTINGS):
            self.notify(what)

    def _notify_unread(self, before: tuple[int, bool]) -> None:
        if before != (self.unread_count, self.unread_more):
            self.notify(What.UNREAD)


def _ms(until: str) -> int:
    """0 if it is not a time."""
    try:
        return from_iso(until)
    except ValueError:
        return 0


class UnreadCounter:
    """How many messages of others the person has not read, counted as they arrive.

    The overview gives a number for a stretch of the log that this client has not seen. Entries that arrive
    later are known by their positions, so a read that ends among them is counted exactly. A read that ends
    inside the unseen stretch cannot be counted; then the client must request the overview again.
    """

    def __init__(self) -> None:
        self.read_up_to = 0
        self._epoch = 0
        self._through = 0
        self._known: list[int] = []
        """Positions of unread messages outside the unseen stretch, ascending."""
        self._unseen_after = 0
        self._unseen_through = 0
        self._unseen = 0
        self._unseen_more = False

    @property
    def count(self) -> int:
        return min(len(self._known) + self._unseen, UNREAD_MAX)

    @property
    def more(self) -> bool:
        """Whether there may be more than was counted."""
        return self._unseen_more or len(self._known) + self._unseen > UNREAD_MAX

    def place(self, row: OverviewChat) -> bool:
        """Start from the overview's number; entries that arrived live after it stay counted.

        False if the client must request it again: the person has read on since, or positions are unknown.
        """
        if row.epoch == self._epoch and row.head < self._unseen_through:
            return False
        if row.epoch != self._epoch:
            self._known, self._through, self.read_up_to = [], 0, 0
        read_here = self.read_up_to
        self._known = self._known[bisect_right(self._known, row.head) :]
        self._epoch, self.read_up_to = row.epoch, row.read_up_to
        self._through = max(self._through, row.head)
        self._unseen_after, self._unseen_through = row.read_up_to, max(row.read_up_to, row.head)
        self._unseen, self._unseen_more = row.unread, row.unread_more
        if not self.read(read_here):
            self.read_up_to = row.read_up_to
            return False
        return True

    def receive_live(self, epoch: int, slots: Sequence[Slot], user_id: str, *, catching_up: bool) -> bool:
        """Count live positions. `catching_up`: the overview of what was missed is under way.

        False when something is missing and the client must request the overview.
        """
        if (epoch, slots[-1].sequence) <= (self._epoch, self._through):
            return True
        is_next = epoch == self._epoch and slots[0].sequence <= self._through + 1
        if not is_next and not catching_up:
            return False
        if epoch != self._epoch:
            self._epoch, self._through, self.read_up_to = epoch, 0, 0
            self._known = []
            self._unseen_after = self._unseen_through = self._unseen = 0
            self._unseen_more = False
        after = max(self._through, self.read_up_to)
        self._known += [sequence for sequence in _of_others(slots, user_id) if sequence > after]
        self._through = slots[-1].sequence
        self._limit_positions()
        return True

    def is_behind(self, head: int) -> bool:
        """Whether the log has entries that were not counted."""
        return head > self._through

    def receive_page(self, batch: MessageBatch, slots: Sequence[Slot], user_id: str) -> None:
        """A page of the log. If it covers the start of the unseen stretch, these positions become known."""
        starts_there = batch.from_sequence <= self._unseen_after + 1
        if batch.epoch != self._epoch or self._unseen_more or not starts_there:
            return
        end = min(batch.to_sequence, self._unseen_through)
        seen = [sequence for sequence in _of_others(slots, user_id) if self._unseen_after < sequence <= end]
        at = bisect_right(self._known, self._unseen_after)
        self._known[at:at] = seen
        self._unseen = max(0, self._unseen - len(seen))
        self._unseen_after = max(self._unseen_after, end)
        self._limit_positions()

    def read(self, up_to: int) -> bool:
        """The person has read up to here. False when the client must request the overview."""
        if up_to <= self.read_up_to:
            return True
        self.read_up_to = up_to
        self._known = self._known[bisect_right(self._known, up_to) :]
        if up_to >= self._unseen_through:
            self._unseen_after = self._unseen_through
            self._unseen, self._unseen_more = 0, False
            return True
        return up_to <= self._unseen_after or self._read_unseen(up_to)

    def _read_unseen(self, up_to: int) -> bool:
        stretch = self._unseen_through - self._unseen_after
        is_exact = not self._unseen_more and self._unseen in (0, stretch)
        self._unseen_after = up_to
        self._unseen = min(self._unseen, self._unseen_through - up_to)
        return is_exact

    def _limit_positions(self) -> None:
        """To save memory, treat all positions as unseen again once they exceed the number that is shown."""
        if len(self._known) > UNREAD_MAX:
            self._unseen += len(self._known)
            self._known = []
            self._unseen_after = self.read_up_to
            self._unseen_through = self._through


def _of_others(slots: Sequence[Slot], user_id: str) -> list[int]:
    """The positions of others' messages: only these count."""
    return [
        slot.sequence
        for slot in slots
        if slot.entry is not None
        and slot.entry.kind == MESSAGE
        and slot.entry.sender_id != user_id
        and slot.entry.deleted is not True
    ]
