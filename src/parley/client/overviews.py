"""Asking which chats changed: one question at a time, page by page, each round since the last. Pure."""

from __future__ import annotations

from collections.abc import Callable

from parley.client.timers import Timers
from parley.client.timing import Timing
from parley.errors import Refusal
from parley.wire.frames import Overview, OverviewChat, SyncOverview
from parley.wire.limits import OVERVIEW_CHATS_MAX

OVERVIEW_TIMER = "overview"
LATE = (OVERVIEW_TIMER, "")


class Overviews:
    """Positions alone are asked for: who wants titles asks the chat list.

    `known` are the chats of which something is shown. A whole list does not tell which of them were left.
    """

    def __init__(
        self, timing: Timing, timers: Timers, next_id: Callable[[], int], known: Callable[[], set[str]]
    ) -> None:
        self._timing = timing
        self._timers = timers
        self._next_id = next_id
        self._known = known
        self._token: str | None = None
        self._unlisted: set[str] = set()
        self._request_id: int | None = None
        self._is_due = False
        self._is_wanted_again = False
        self._is_paging = False
        self.round = 0

    def ask(self) -> int:
        """Ask again; the round that, or a later one, has the answer."""
        if self._request_id is not None or self._is_paging:
            self._is_wanted_again = True
        elif not self._timers.pending(LATE):
            self._is_due = True
        return self.round + 1

    def connected(self) -> None:
        self._is_due, self._is_wanted_again, self._is_paging = True, False, False

    def disconnected(self) -> None:
        self._request_id = None
        self._timers.cancel(LATE)

    def request(self, now_ms: int) -> list[SyncOverview]:
        if not self._is_due or self._request_id is not None:
            return []
        self._is_due = False
        if self._token is None:
            self._unlisted = self._known()
        self.round += not self._is_paging
        self._request_id = self._next_id()
        self._timers.set(LATE, now_ms + self._timing.answer_ms)
        return [
            SyncOverview(id=self._request_id, changed_since=self._token, limit=OVERVIEW_CHATS_MAX, brief=True)
        ]

    def answered(self, frame: Overview) -> bool:
        """Whether this is the answer that is waited for, to which is then added what it lacks."""
        if frame.re != self._request_id:
            return False
        self._timers.cancel(LATE)
        self._request_id = None
        self._token = frame.token
        self._is_paging = not frame.complete
        self._is_due = self._is_paging or self._is_wanted_again
        self._unlisted -= {chat.chat_id for chat in frame.chats}
        if frame.complete:
            self._is_wanted_again = False
            frame.chats += [_left(chat_id) for chat_id in self._unlisted]
            self._unlisted = set()
        return True

    def is_late(self) -> None:
        """No answer came in time, or a rest is over."""
        self._request_id, self._is_due = None, True

    def refused(self, request_id: int, refusal: Refusal, now_ms: int) -> bool:
        """Whether that was the overview. A token that the server does not take is given up for everything."""
        if request_id != self._request_id:
            return False
        self._request_id = None
        if not refusal.temporary:
            self._token = None
        self._timers.set(LATE, now_ms + (refusal.retry_after_ms or self._timing.backoff_base_ms))
        return True


def _left(chat_id: str) -> OverviewChat:
    return OverviewChat(
        chat_id=chat_id,
        epoch=0,
        head=0,
        last_acked_sequence=0,
        read_up_to=0,
        unread=0,
        unread_more=False,
        left=True,
    )
