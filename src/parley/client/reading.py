"""All chats as they come in: which are read, what they miss, and how far they got. Pure.

A chat is read when somebody iterates it, or when all are followed. The overview after each welcome places
the others: their heads are known, nothing of theirs is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from parley.client.cursors import Cursors
from parley.client.inbox import Budget, Found, Inbox
from parley.client.keeping import Cursor
from parley.client.syncing import Syncing
from parley.errors import Refusal
from parley.model import Kind
from parley.wire.frames import ChatChanged, Entry, MessageBatch, OverviewChat

ALL_BYTES_MAX = 16 * 1024 * 1024
ALL_ENTRIES_MAX = 20_000

KNOWN_KINDS = frozenset(kind.value for kind in Kind)


class Reading:
    def __init__(self, cursors: Cursors, syncing: Syncing) -> None:
        self._cursors = cursors
        self._syncing = syncing
        self._inboxes: dict[str, Inbox] = {}
        self._unplaced: dict[str, None] = {}
        self._shared = Budget(ALL_BYTES_MAX, ALL_ENTRIES_MAX)
        self._follows_all = False
        self._placing = True
        self._passed: dict[str, tuple[int, int]] = {}
        """How far chats that nobody reads went on this connection: an overview may be older than that."""
        self._fresh: dict[str, None] = {}
        self.positions: dict[str, OverviewChat] = {}

    def inbox(self, chat_id: str) -> Inbox | None:
        return self._inboxes.get(chat_id)

    def read(self, chat_id: str) -> None:
        """Somebody iterates this chat from now on."""
        if chat_id not in self._inboxes and chat_id not in self._unplaced:
            self._unplaced[chat_id] = None
            self._place(chat_id, Budget())

    def read_all(self) -> None:
        """Somebody wants every chat, also those that come later."""
        self._follows_all = True
        for chat_id in self.positions:
            self._follow(chat_id)

    def stop(self, chat_id: str) -> None:
        """Nobody iterates this chat any more."""
        self._unplaced.pop(chat_id, None)
        inbox = self._inboxes.pop(chat_id, None)
        if inbox is not None:
            inbox.put_back()
            inbox.release()
        self._fresh.pop(chat_id, None)
        self._syncing.forget(chat_id)

    def stop_all(self) -> None:
        self._follows_all = False
        for chat_id, inbox in list(self._inboxes.items()):
            if inbox.budget is self._shared:
                self.stop(chat_id)

    def fresh(self) -> list[str]:
        """The chats that have something new to take, or an end to tell."""
        chat_ids, self._fresh = list(self._fresh), {}
        return chat_ids

    def take(self, chat_id: str, now_ms: int) -> Entry | None:
        """The next entry of a chat that is read; asking says that the one before is processed."""
        inbox = self._inboxes.get(chat_id)
        if inbox is None:
            return None
        entry = inbox.take()
        self._syncing.consider(inbox)
        self._cursors.move(chat_id, inbox.processed, now_ms)
        return entry

    def done(self, chat_id: str, now_ms: int) -> None:
        """The entry of this chat that was taken last is processed."""
        inbox = self._inboxes.get(chat_id)
        if inbox is not None:
            inbox.done()
            self._cursors.move(chat_id, inbox.processed, now_ms)

    # What the server says.

    def connected(self) -> None:
        self._placing = True
        self._passed.clear()
        for inbox in self._inboxes.values():
            inbox.connected()
            self._syncing.consider(inbox)

    def disconnected(self) -> None:
        self._syncing.disconnected()

    def overview(self, chats: Sequence[OverviewChat], complete: bool) -> None:
        for chat in chats:
            self._note_position(chat)
        if complete:
            self._placing = False
            for chat_id in list(self._unplaced):
                self._place(chat_id, Budget())

    def heads(self, heads: dict[str, int]) -> None:
        for chat_id, head in heads.items():
            self._note_head(chat_id, head, None)

    def changed(self, frame: ChatChanged, *, left: bool) -> None:
        """A chat was joined, left or changed otherwise."""
        if left:
            self.positions.pop(frame.chat_id, None)
            self.doubt(frame.chat_id)
            return
        if frame.change != "joined":
            return
        self._cursors.ack_again(frame.chat_id)
        head = 0 if frame.head is UNSET else frame.head
        epoch = 0 if frame.epoch is UNSET else frame.epoch
        if frame.chat_id not in self.positions:
            self.positions[frame.chat_id] = _unread(frame.chat_id, epoch, head)
        if head:
            self._note_head(frame.chat_id, head, epoch or None)
        if self._follows_all:
            self._follow(frame.chat_id)

    def live(self, chat_id: str, epoch: int, found: Sequence[Found]) -> None:
        if not found:
            return
        self._raise_position(chat_id, found[-1].sequence)
        inbox = self._inboxes.get(chat_id)
        if inbox is None:
            self._passed[chat_id] = (epoch, found[-1].sequence)
        else:
            inbox.live(epoch, found)
            self._after_news(inbox)

    def page(self, batch: MessageBatch, found: Sequence[Found], now_ms: int) -> None:
        inbox = self._inboxes.get(batch.chat_id)
        if not self._syncing.answered(batch.re, batch.chat_id) or inbox is None:
            return
        told_something = inbox.page(batch, found)
        if inbox.restarts:
            self._cursors.move(inbox.chat_id, inbox.processed, now_ms)
        if told_something or not inbox.wants_sync:
            self._syncing.succeeded(inbox.chat_id)
            self._after_news(inbox)
        else:
            self._syncing.ask_later(inbox.chat_id, 0, now_ms)

    def sync_refused(self, request_id: int, refusal: Refusal, now_ms: int) -> bool:
        """Whether that request was for a page. For good means that this chat can be read no further."""
        chat_id = self._syncing.chat_of(request_id)
        if chat_id is None:
            return False
        self._syncing.answered(request_id, chat_id)
        inbox = self._inboxes[chat_id]
        if refusal.temporary:
            self._syncing.refused(chat_id, refusal, now_ms)
        else:
            inbox.failure = refusal
            self._fresh[chat_id] = None
        return True

    def doubt(self, chat_id: str) -> None:
        """Something speaks against this chat's position: look at the log again."""
        inbox = self._inboxes.get(chat_id)
        if inbox is not None:
            inbox.doubtful = True
            self._syncing.consider(inbox)

    def sync_is_late(self, chat_id: str) -> None:
        """A page did not come in time, or a rest is over: ask again."""
        self._syncing.stop_waiting(chat_id)
        inbox = self._inboxes.get(chat_id)
        if inbox is not None:
            self._syncing.consider(inbox)

    def _after_news(self, inbox: Inbox) -> None:
        if inbox.has_ready:
            self._fresh[inbox.chat_id] = None
        self._syncing.consider(inbox)

    def _note_position(self, chat: OverviewChat) -> None:
        if chat.left is True:
            self.positions.pop(chat.chat_id, None)
            self.doubt(chat.chat_id)
            return
        self.positions[chat.chat_id] = chat
        if self._follows_all:
            self._follow(chat.chat_id)
        self._note_head(chat.chat_id, chat.head, chat.epoch)

    def _note_head(self, chat_id: str, head: int, epoch: int | None) -> None:
        self._raise_position(chat_id, head)
        inbox = self._inboxes.get(chat_id)
        if inbox is not None:
            inbox.note_head(head, epoch)
            self._syncing.consider(inbox)

    def _raise_position(self, chat_id: str, head: int) -> None:
        position = self.positions.get(chat_id)
        if position is not None:
            position.head = max(position.head, head)

    def _follow(self, chat_id: str) -> None:
        inbox = self._inboxes.get(chat_id)
        if inbox is None and chat_id not in self._unplaced:
            self._place(chat_id, self._shared)
        elif inbox is not None and inbox.failure is not None and inbox.budget is self._shared:
            # It was left, and joined again before anybody looked.
            inbox.failure = None
            self.doubt(chat_id)

    def _place(self, chat_id: str, budget: Budget) -> None:
        """Start where this device is: by its own word, else by the server's, once that is known."""
        cursor = self._cursors.get(chat_id)
        position = self.positions.get(chat_id)
        if cursor is None and position is not None:
            cursor = Cursor(position.epoch, position.last_acked_sequence)
        if cursor is None and self._placing:
            return
        self._unplaced.pop(chat_id, None)
        inbox = self._inboxes[chat_id] = Inbox(chat_id, cursor or Cursor(), budget)
        if budget is self._shared and position is not None and inbox.processed.sequence == position.head:
            inbox.trust(position.epoch)
        if chat_id in self._passed:
            epoch, head = self._passed.pop(chat_id)
            inbox.note_head(head, epoch)
        self._syncing.consider(inbox)


def found_in(entries: Sequence[Entry], voids: Sequence[int]) -> list[Found]:
    """Every position of a frame, ascending."""
    found = [_found(entry) for entry in entries]
    if voids:
        found.extend(Found(sequence, None, None) for sequence in voids)
        found.sort(key=lambda position: position.sequence)
    return found


def _found(entry: Entry) -> Found:
    return Found(entry.sequence, entry.message_id, entry if entry.kind in KNOWN_KINDS else None)


def _unread(chat_id: str, epoch: int, head: int) -> OverviewChat:
    return OverviewChat(
        chat_id=chat_id,
        epoch=epoch,
        head=head,
        last_acked_sequence=0,
        read_up_to=0,
        unread=0,
        unread_more=False,
    )
