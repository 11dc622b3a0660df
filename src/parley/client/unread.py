"""How many messages of others somebody has not read in one chat, counted along. Pure.

The overview gives a number for a stretch of the log. Whatever passes by afterwards is known by its position,
so that a read ending there is counted exactly; only a read that ends inside the stretch that nobody here has
seen cannot be, and then the overview is asked again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from parley.client.inbox import Found
from parley.model import Kind
from parley.wire.frames import MessageBatch, OverviewChat
from parley.wire.limits import UNREAD_MAX

MESSAGE = Kind.MESSAGE.value


class Unread:
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
        """What the overview says; what came live after it was made stays counted.

        False when the person has read on since, or more came than is known by position, to where nobody here
        can count: then it must be asked again.
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

    def live(self, epoch: int, found: Sequence[Found], user_id: str, *, placing: bool) -> bool:
        """Positions as they come; `placing`: the overview that tells what was missed is on its way.

        False when something is missing, so that the overview must be asked.
        """
        if (epoch, found[-1].sequence) <= (self._epoch, self._through):
            return True
        is_next = epoch == self._epoch and found[0].sequence <= self._through + 1
        if not is_next and not placing:
            return False
        if epoch != self._epoch:
            self._epoch, self._through, self.read_up_to = epoch, 0, 0
            self._forget()
        after = max(self._through, self.read_up_to)
        self._known += [sequence for sequence in _of_others(found, user_id) if sequence > after]
        self._through = found[-1].sequence
        self._stay_small()
        return True

    def behind(self, head: int) -> bool:
        """Whether there is something that was not counted."""
        return head > self._through

    def learn(self, batch: MessageBatch, found: Sequence[Found], user_id: str) -> None:
        """A page of the log: where it covers the unseen stretch from its start, positions become known."""
        starts_there = batch.from_sequence <= self._unseen_after + 1
        if batch.epoch != self._epoch or self._unseen_more or not starts_there:
            return
        end = min(batch.to_sequence, self._unseen_through)
        seen = [sequence for sequence in _of_others(found, user_id) if self._unseen_after < sequence <= end]
        at = bisect_right(self._known, self._unseen_after)
        self._known[at:at] = seen
        self._unseen = max(0, self._unseen - len(seen))
        self._unseen_after = max(self._unseen_after, end)
        self._stay_small()

    def read(self, up_to: int) -> bool:
        """The person has read up to there. False when the overview must be asked what is left."""
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
        is_exact = not self._unseen_more and self._unseen in (
            0,
            self._unseen_through - self._unseen_after,
        )
        self._unseen_after = up_to
        self._unseen = min(self._unseen, self._unseen_through - up_to)
        return is_exact

    def _forget(self) -> None:
        self._known = []
        self._unseen_after = self._unseen_through = self._unseen = 0
        self._unseen_more = False

    def _stay_small(self) -> None:
        """More than can be shown is not worth its memory: all of it counts as unseen again."""
        if len(self._known) > UNREAD_MAX:
            self._unseen += len(self._known)
            self._known = []
            self._unseen_after = self.read_up_to
            self._unseen_through = self._through


def _of_others(found: Sequence[Found], user_id: str) -> list[int]:
    """The positions that count: others' messages."""
    return [
        position.sequence
        for position in found
        if position.entry is not None
        and position.entry.kind == MESSAGE
        and position.entry.sender_id != user_id
    ]
