"""Whether what this device has read of a chat is what the server's log holds. Pure.

The client computes the hash of the log (`core.log_hash`) along the positions that it resolves, from the first
one or from the hash that was saved with its cursor, and compares it with that of each page. Without either it
takes the hash of the next page for granted, and compares from there on.
"""

from __future__ import annotations

from msgspec import UNSET, Struct

from parley.core import log_hash
from parley.wire.frames import Entry, MessageBatch


class LogDifference(Struct, frozen=True):
    """What this device read up to `sequence` is not what the log holds there: the two have another hash.

    The client reads the chat again from the start. `is_lasting`: it has done so, and the hash of what it
    read still is another: the server changed entries and did not notice. The client goes on without proof.
    """

    chat_id: str
    epoch: int
    sequence: int
    own_hash: str
    log_hash: str
    is_lasting: bool


class LogProof:
    """The hash of what was read of one chat; None while it is not known."""

    def __init__(self, chat_id: str, sequence: int, saved: bytes | None) -> None:
        self._chat_id = chat_id
        self.value = log_hash.empty_log(chat_id) if sequence == 0 else saved
        self._differed_at: int | None = None
        """Where a difference was found that is not settled: everything is read again."""
        self._is_given_up = False

    def add(self, sequence: int, entry: Entry | None) -> bytes | None:
        """The next position was read; None is a void. Returns the hash with it."""
        if self.value is not None and entry is not None:
            self.value = log_hash.after_entry(self.value, entry)
        elif self.value is not None:
            self.value = log_hash.after_void(self.value, sequence)
        return self.value

    def start_over(self, *, is_new_log: bool) -> None:
        """Nothing was read. `is_new_log`: the server says that the log is another one than before."""
        if is_new_log:
            self._differed_at, self._is_given_up = None, False
        self.value = log_hash.empty_log(self._chat_id)

    def compare(self, page: MessageBatch) -> LogDifference | None:
        """Compare with the hash of a page that was read to its end; None if there is no difference to tell.

        Who reads everything again and finds a second difference on the way compares nothing any more.
        """
        theirs = None if page.log_hash is UNSET else log_hash.read_shown(page.log_hash)
        if theirs is None or self._is_given_up:
            return None
        if self.value is None:
            self.value = theirs
        if self.value == theirs:
            if self._differed_at is not None and page.to_sequence >= self._differed_at:
                self._differed_at = None
            return None
        own = log_hash.shown(self.value)
        if self._differed_at is not None:
            self._is_given_up, self.value = True, None
        self._differed_at = page.to_sequence
        return LogDifference(
            self._chat_id, page.epoch, page.to_sequence, own, log_hash.shown(theirs), self._is_given_up
        )
