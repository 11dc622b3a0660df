"""Which chats must ask the log, and when: few at once, none twice, later after a refusal. Pure."""

from __future__ import annotations

from collections.abc import Callable

from parley.client.inbox import Budget, Inbox
from parley.client.pace import Pace
from parley.client.timers import Timers
from parley.client.timing import Timing, backoff_ms
from parley.errors import Refusal
from parley.wire.frames import SyncRequest

SYNCS_IN_FLIGHT_MAX = 8
PAGE_ENTRIES = 500

SYNC_TIMER = "sync"


class Syncing:
    """A chat wants a page, is blocked for lack of room, waits for an answer, or rests until its timer."""

    def __init__(
        self,
        timing: Timing,
        timers: Timers,
        pace: Pace,
        next_id: Callable[[], int],
        chance: Callable[[], float],
    ) -> None:
        self._timing = timing
        self._timers = timers
        self._pace = pace
        self._next_id = next_id
        self._chance = chance
        self._wanting: dict[str, Inbox] = {}
        self._blocked: dict[Budget, dict[str, Inbox]] = {}
        self._asked: dict[str, int] = {}
        self._attempts: dict[str, int] = {}

    def consider(self, inbox: Inbox) -> None:
        """Something happened to this chat: it may want a page."""
        waits = inbox.chat_id in self._asked or self._timers.pending((SYNC_TIMER, inbox.chat_id))
        if inbox.wants_sync and not waits:
            self._wanting[inbox.chat_id] = inbox

    def requests(self, now_ms: int) -> list[SyncRequest]:
        """The pages to ask for now."""
        if self._pace.rest.is_on:
            return []
        for budget in [budget for budget in self._blocked if not budget.full]:
            for inbox in self._blocked.pop(budget).values():
                self.consider(inbox)
        requests = []
        while self._wanting and len(self._asked) < SYNCS_IN_FLIGHT_MAX:
            chat_id = next(iter(self._wanting))
            inbox = self._wanting.pop(chat_id)
            if not inbox.has_room:
                self._blocked.setdefault(inbox.budget, {})[chat_id] = inbox
            elif inbox.wants_sync:
                requests.append(self._ask(inbox, now_ms))
        return requests

    def answered(self, request_id: object, chat_id: str) -> bool:
        """Whether this is the answer that the chat waits for."""
        if self._asked.get(chat_id) != request_id:
            return False
        del self._asked[chat_id]
        self._timers.cancel((SYNC_TIMER, chat_id))
        return True

    def chat_of(self, request_id: int) -> str | None:
        """The chat that waits for this answer."""
        return next((chat_id for chat_id, asked in self._asked.items() if asked == request_id), None)

    def succeeded(self, chat_id: str) -> None:
        self._attempts.pop(chat_id, None)

    def refused(self, chat_id: str, refusal: Refusal, now_ms: int) -> None:
        """For now; all chats rest if it came too fast."""
        self._pace.rest.refused(refusal, now_ms)
        self.ask_later(chat_id, refusal.retry_after_ms or 0, now_ms)

    def ask_later(self, chat_id: str, at_least_ms: int, now_ms: int) -> None:
        """The last answer did not help: rest, longer each time."""
        attempt = self._attempts.get(chat_id, 0)
        self._attempts[chat_id] = attempt + 1
        delay = max(at_least_ms, backoff_ms(attempt, self._timing, self._chance()))
        self._timers.set((SYNC_TIMER, chat_id), now_ms + delay)

    def stop_waiting(self, chat_id: str) -> None:
        """The answer did not come in time, or the rest is over."""
        self._asked.pop(chat_id, None)

    def forget(self, chat_id: str) -> None:
        for inboxes in (self._wanting, *self._blocked.values()):
            inboxes.pop(chat_id, None)
        for numbers in (self._asked, self._attempts):
            numbers.pop(chat_id, None)
        self._timers.cancel((SYNC_TIMER, chat_id))

    def disconnected(self) -> None:
        """No page will come, and whoever rested may ask the next connection."""
        for chat_id in [*self._asked, *self._attempts]:
            self._timers.cancel((SYNC_TIMER, chat_id))
        self._asked.clear()
        self._attempts.clear()

    def _ask(self, inbox: Inbox, now_ms: int) -> SyncRequest:
        request_id = self._next_id()
        self._asked[inbox.chat_id] = request_id
        self._timers.set((SYNC_TIMER, inbox.chat_id), now_ms + self._timing.answer_ms)
        return inbox.sync_request(request_id, PAGE_ENTRIES)
