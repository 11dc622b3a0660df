"""How a client catches up and stays up to date: which chats changed, then their logs, page by page. Pure.

`OverviewRounds` requests which chats changed. `LogSync` reads the logs of the chats that the application
reads: it passes frames to their inboxes and requests missing pages, few at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from parley.client.chat_model import ChatModel
from parley.client.cursors import DeviceCursors
from parley.client.inbox import Budget, Inbox, Slot
from parley.client.storage import Cursor
from parley.client.timing import RateLimitPause, Timers, Timing, backoff_ms
from parley.errors import STORE_DAMAGED, Refusal
from parley.wire.frames import Entry, MessageBatch, Overview, OverviewChat, SyncOverview, SyncRequest
from parley.wire.limits import HASHES_STORED_EVERY, OVERVIEW_CHATS_MAX

OVERVIEW = ("overview", "")
ALL_BYTES_MAX = 16 * 1024 * 1024
ALL_ENTRIES_MAX = 20_000
SYNCS_IN_FLIGHT_MAX = 8
PAGE_ENTRIES = 500
assert PAGE_ENTRIES % HASHES_STORED_EVERY == 0


class OverviewRounds:
    """One request at a time, page by page; each round requests what changed since the last.

    It requests only positions: titles are in the chat list over HTTP. `known_chats` returns the chats that
    the client shows; an overview without a token does not say which of them the person left.
    """

    def __init__(
        self, timing: Timing, timers: Timers, next_id: Callable[[], int], known_chats: Callable[[], set[str]]
    ) -> None:
        self._timing = timing
        self._timers = timers
        self._next_id = next_id
        self._known_chats = known_chats
        self._token: str | None = None
        self._unlisted: set[str] = set()
        self._request_id: int | None = None
        self._is_due = False
        self._is_wanted_again = False
        self._is_paging = False
        self.round = 0
        self.catching_up = True
        """Until the first round of this connection is complete."""

    def ask(self) -> int:
        """Request the overview again. Returns the round that will have the answer, or a later one."""
        if self._request_id is not None or self._is_paging:
            self._is_wanted_again = True
        elif not self._timers.pending(OVERVIEW):
            self._is_due = True
        return self.round + 1

    def connected(self) -> None:
        self._is_due, self._is_wanted_again, self._is_paging = True, False, False
        self.catching_up = True

    def disconnected(self) -> None:
        self._request_id = None
        self._timers.cancel(OVERVIEW)

    def frames_to_send(self, now_ms: int) -> list[SyncOverview]:
        if not self._is_due or self._request_id is not None:
            return []
        self._is_due = False
        if self._token is None:
            self._unlisted = self._known_chats()
        self.round += not self._is_paging
        self._request_id = self._next_id()
        self._timers.set(OVERVIEW, now_ms + self._timing.answer_ms, self._ask_anew)
        return [
            SyncOverview(id=self._request_id, changed_since=self._token, limit=OVERVIEW_CHATS_MAX, brief=True)
        ]

    def receive(self, frame: Overview) -> list[OverviewChat] | None:
        """Its rows, with rows for known chats that it leaves out; None if it was not requested."""
        if frame.re != self._request_id:
            return None
        self._timers.cancel(OVERVIEW)
        self._request_id = None
        self._token = frame.token
        self._is_paging = not frame.complete
        self._is_due = self._is_paging or self._is_wanted_again
        self._unlisted -= {row.chat_id for row in frame.chats}
        if not frame.complete:
            return frame.chats
        self._is_wanted_again = self.catching_up = False
        left, self._unlisted = sorted(self._unlisted), set()
        return [*frame.chats, *(make_row(chat_id, left=True) for chat_id in left)]

    def refused(self, request_id: int, refusal: Refusal, now_ms: int) -> bool:
        """Returns whether this was the overview. If the server rejects the token, request all chats."""
        if request_id != self._request_id:
            return False
        self._request_id = None
        pause_ms = refusal.retry_after_ms or self._timing.backoff_base_ms
        if refusal.code == STORE_DAMAGED.code:
            pause_ms = self._timing.backoff_max_ms
        elif not refusal.temporary:
            self._token = None
        self._timers.set(OVERVIEW, now_ms + pause_ms, self._ask_anew)
        return True

    def _ask_anew(self, _now_ms: int) -> None:
        self._request_id, self._is_due = None, True


class LogSync:
    """A chat is read when the application iterates it, or all of them.

    Such a chat has an inbox. It wants a page, is blocked for lack of room, waits for an answer, or pauses
    until its timer fires. Of other chats only the head is known.
    """

    def __init__(
        self,
        *,
        chats: dict[str, ChatModel],
        cursors: DeviceCursors,
        overview: OverviewRounds,
        timing: Timing,
        timers: Timers,
        pause: RateLimitPause,
        next_id: Callable[[], int],
        chance: Callable[[], float],
    ) -> None:
        self._chats = chats
        self._cursors = cursors
        self._overview = overview
        self._timing = timing
        self._timers = timers
        self._pause = pause
        self._next_id = next_id
        self._chance = chance
        self._reads_all = False
        self._shared_budget = Budget(ALL_BYTES_MAX, ALL_ENTRIES_MAX)
        self._reading: dict[str, ChatModel] = {}
        """The chats with an inbox."""
        self._unplaced: dict[str, ChatModel] = {}
        """Chats to read once the overview gives this device's cursor."""
        self._live_heads: dict[str, tuple[int, int]] = {}
        """Epoch and sequence that chats without an inbox reached live: an overview may be older."""
        self._wanting: dict[str, ChatModel] = {}
        self._blocked: dict[Budget, dict[str, ChatModel]] = {}
        self._in_flight: dict[int, ChatModel] = {}
        self._ready: dict[str, None] = {}

    # Input from the application

    def read(self, chat: ChatModel) -> None:
        """The application reads this chat from now on. An entry that it did not process comes again."""
        inbox = chat.inbox
        if inbox is not None and inbox.failure is None and inbox.budget is not self._shared_budget:
            inbox.put_back()
            return
        self.stop(chat)
        self._unplaced[chat.chat_id] = chat
        self._start(chat, Budget())

    def read_all(self) -> None:
        """The application reads every chat from now on, including later ones."""
        self._reads_all = True
        for chat in self._chats.values():
            if chat.row is not None:
                self._follow(chat)

    def stop(self, chat: ChatModel) -> None:
        """The application stops reading this chat."""
        chat_id, inbox, chat.inbox = chat.chat_id, chat.inbox, None
        for chats in (self._unplaced, self._reading, self._wanting):
            chats.pop(chat_id, None)
        self._ready.pop(chat_id, None)
        self._timers.cancel(("sync", chat_id))
        if inbox is not None:
            self._blocked.get(inbox.budget, {}).pop(chat_id, None)
            self._in_flight.pop(inbox.request_id or 0, None)
            inbox.clear()

    def stop_all(self) -> None:
        self._reads_all = False
        for chat in list(self._reading.values()):
            if chat.inbox is not None and chat.inbox.budget is self._shared_budget:
                self.stop(chat)

    def take(self, chat: ChatModel, now_ms: int) -> Entry | None:
        """The next entry of this chat. Taking it marks the previous one as processed."""
        if chat.inbox is None:
            return None
        entry = chat.inbox.take()
        self._consider(chat)
        self._cursors.move(chat.chat_id, chat.inbox.processed, now_ms)
        return entry

    def mark_processed(self, chat: ChatModel, now_ms: int) -> None:
        """The last taken entry of this chat is processed."""
        if chat.inbox is not None:
            chat.inbox.mark_processed()
            self._cursors.move(chat.chat_id, chat.inbox.processed, now_ms)

    def ready(self) -> list[str]:
        """The chats that have new entries to take, or whose reading has ended."""
        chat_ids, self._ready = list(self._ready), {}
        return chat_ids

    # Input from the server

    def connected(self) -> None:
        self._live_heads.clear()
        for chat in self._reading.values():
            if chat.inbox is not None:
                chat.inbox.connected()
            self._consider(chat)

    def disconnected(self) -> None:
        """No page will arrive; the next connection may send requests at once."""
        self._in_flight.clear()
        for chat_id, chat in self._reading.items():
            if chat.inbox is not None:
                chat.inbox.request_id, chat.inbox.failed_requests = None, 0
            self._timers.cancel(("sync", chat_id))

    def receive_row(self, chat: ChatModel, row: OverviewChat) -> None:
        """A row of the overview, which the chat's model has applied."""
        if self._reads_all:
            self._follow(chat)
        self.note_head(chat, row.head, row.epoch)

    def overview_complete(self) -> None:
        """Read chats that are not in the overview from their start."""
        for chat in list(self._unplaced.values()):
            self._start(chat, Budget())

    def joined(self, chat: ChatModel, head: int, epoch: int) -> None:
        self._cursors.ack_again(chat.chat_id)
        chat.row = chat.row or make_row(chat.chat_id, epoch, head)
        if head:
            self.note_head(chat, head, epoch or None)
        if self._reads_all:
            self._follow(chat)

    def note_head(self, chat: ChatModel, head: int, epoch: int | None) -> None:
        """The log reaches at least to `head`."""
        if chat.row is not None:
            chat.row.head = max(chat.row.head, head)
        if chat.inbox is not None:
            chat.inbox.note_head(head, epoch)
            self._consider(chat)

    def recheck(self, chat: ChatModel) -> None:
        """Something contradicts this chat's position: request a page of the log."""
        if chat.inbox is not None:
            chat.inbox.unverified = True
            self._consider(chat)

    def receive_live(self, chat: ChatModel, epoch: int, slots: Sequence[Slot]) -> None:
        head = slots[-1].sequence
        if chat.row is not None:
            chat.row.head = max(chat.row.head, head)
        if chat.inbox is None:
            self._live_heads[chat.chat_id] = (epoch, head)
        else:
            chat.inbox.receive_live(epoch, slots)
            self._after_arrival(chat, chat.inbox)

    def receive_page(self, chat: ChatModel, batch: MessageBatch, slots: Sequence[Slot], now_ms: int) -> None:
        inbox = chat.inbox
        if inbox is None or inbox.request_id is None or inbox.request_id != batch.re:
            return
        self._answered(chat, inbox)
        is_news = inbox.receive_page(batch, slots)
        if inbox.difference is not None:
            chat.note_difference(inbox.difference)
            inbox.difference = None
        if inbox.restarts:
            self._cursors.move(chat.chat_id, inbox.processed, now_ms)
        if is_news or not inbox.wants_sync:
            inbox.failed_requests = 0
            self._after_arrival(chat, inbox)
        else:
            self._retry_later(chat, inbox, 0, now_ms)

    def refused(self, request_id: int, refusal: Refusal, now_ms: int) -> bool:
        """Returns whether this request was for a page. A permanent refusal ends the reading of its chat."""
        chat = self._in_flight.get(request_id)
        if chat is None or chat.inbox is None:
            return False
        self._answered(chat, chat.inbox)
        if refusal.temporary:
            self._pause.refused(refusal, now_ms)
            self._retry_later(chat, chat.inbox, refusal.retry_after_ms or 0, now_ms)
        else:
            chat.inbox.failure = refusal
            self._ready[chat.chat_id] = None
        return True

    # Pages

    def frames_to_send(self, now_ms: int) -> list[SyncRequest]:
        """The pages to request now."""
        if self._pause.is_on:
            return []
        for budget in [budget for budget in self._blocked if not budget.full]:
            for chat in self._blocked.pop(budget).values():
                self._consider(chat)
        requests = []
        while self._wanting and len(self._in_flight) < SYNCS_IN_FLIGHT_MAX:
            chat_id = next(iter(self._wanting))
            chat = self._wanting.pop(chat_id)
            inbox = chat.inbox
            if inbox is None or not inbox.wants_sync:
                continue
            if not inbox.has_room:
                self._blocked.setdefault(inbox.budget, {})[chat_id] = chat
                continue
            limit = PAGE_ENTRIES - inbox.resolved % HASHES_STORED_EVERY
            request = inbox.sync_request(self._next_id(), limit)
            self._in_flight[int(request.id or 0)] = chat
            self._set_timer(chat, now_ms + self._timing.answer_ms)
            requests.append(request)
        return requests

    def _consider(self, chat: ChatModel) -> None:
        """Check whether this chat wants a page."""
        inbox = chat.inbox
        if inbox is None or inbox.request_id is not None or not inbox.wants_sync:
            return
        if not self._timers.pending(("sync", chat.chat_id)):
            self._wanting[chat.chat_id] = chat

    def _after_arrival(self, chat: ChatModel, inbox: Inbox) -> None:
        if inbox.has_ready:
            self._ready[chat.chat_id] = None
        self._consider(chat)

    def _answered(self, chat: ChatModel, inbox: Inbox) -> None:
        self._in_flight.pop(inbox.request_id or 0, None)
        inbox.request_id = None
        self._timers.cancel(("sync", chat.chat_id))

    def _retry_later(self, chat: ChatModel, inbox: Inbox, at_least_ms: int, now_ms: int) -> None:
        """The last answer brought no progress: pause, longer each time."""
        delay_ms = backoff_ms(inbox.failed_requests, self._timing, self._chance())
        inbox.failed_requests += 1
        self._set_timer(chat, now_ms + max(at_least_ms, delay_ms))

    def _set_timer(self, chat: ChatModel, at_ms: int) -> None:
        self._timers.set(("sync", chat.chat_id), at_ms, lambda _: self._request_again(chat))

    def _request_again(self, chat: ChatModel) -> None:
        """The answer did not arrive in time, or the pause is over."""
        if chat.inbox is not None:
            self._answered(chat, chat.inbox)
            self._consider(chat)

    # Inboxes

    def _follow(self, chat: ChatModel) -> None:
        """Read this chat as one of all chats."""
        inbox = chat.inbox
        if inbox is None and chat.chat_id not in self._unplaced:
            self._start(chat, self._shared_budget)
        elif inbox is not None and inbox.failure is not None and inbox.budget is self._shared_budget:
            # The person left the chat and joined again before the application noticed.
            inbox.failure = None
            self.recheck(chat)

    def _start(self, chat: ChatModel, budget: Budget) -> None:
        """Start at this device's cursor: the saved one, or else the server's, once the overview has it."""
        row = chat.row
        cursor = self._cursors.get(chat.chat_id)
        if cursor is None and row is not None:
            cursor = Cursor(row.epoch, row.last_acked_sequence)
        if cursor is None and self._overview.catching_up:
            return
        self._unplaced.pop(chat.chat_id, None)
        self._reading[chat.chat_id] = chat
        inbox = chat.inbox = Inbox(chat.chat_id, cursor or Cursor(), budget)
        if budget is self._shared_budget and row is not None and inbox.processed.sequence == row.head:
            inbox.verify(row.epoch)
        if chat.chat_id in self._live_heads:
            epoch, head = self._live_heads.pop(chat.chat_id)
            inbox.note_head(head, epoch)
        self._consider(chat)


def make_row(chat_id: str, epoch: int = 0, head: int = 0, *, left: bool = False) -> OverviewChat:
    """A row of the overview, from another source than the overview."""
    row = OverviewChat(
        chat_id=chat_id,
        epoch=epoch,
        head=head,
        last_acked_sequence=0,
        read_up_to=0,
        unread=0,
        unread_more=False,
    )
    if left:
        row.left = True
    return row
