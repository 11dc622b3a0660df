"""Who is there: of those that are watched as it changes, of others as it was when last asked. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from parley.client.timers import Timers
from parley.client.timing import Timing
from parley.errors import Refusal
from parley.wire.frames import PresenceChanged, PresenceState, PresenceSubscribe, PresenceView
from parley.wire.limits import PRESENCE_BATCH_MAX

PRESENCE_TIMER = "presence"
SUBSCRIBE = (PRESENCE_TIMER, "")
ASKED_MS_MAX = 30_000
ASKED_PEOPLE_MAX = 10_000


class Presences:
    """A connection watches one set of people: those of every open chat, and those asked for by name."""

    def __init__(self, timing: Timing, timers: Timers, next_id: Callable[[], int]) -> None:
        self._timing = timing
        self._timers = timers
        self._next_id = next_id
        self._named: dict[str, None] = {}
        self._of_chats: dict[str, list[str]] = {}
        self._wanted: dict[str, None] = {}
        self._known: dict[str, PresenceView] = {}
        self._is_told = False
        self._asked: dict[str, tuple[PresenceView, int]] = {}
        self._subscribed: set[str] | None = set()
        self._request_id: int | None = None

    def get(self, user_id: str) -> PresenceView | None:
        """The presence of somebody who is watched."""
        return self._known.get(user_id)

    def watch(self, user_ids: Iterable[str]) -> None:
        """These people are watched beside those of open chats, and no others."""
        self._named = dict.fromkeys(user_ids)
        self._choose()

    def watch_chat(self, chat_id: str, user_ids: list[str]) -> None:
        """The people of an open chat; none when it is closed."""
        self._of_chats.pop(chat_id, None)
        if user_ids:
            self._of_chats[chat_id] = user_ids
        self._choose()

    def connected(self) -> None:
        """A new connection watches nobody."""
        self._subscribed = set()

    def disconnected(self) -> None:
        self._request_id, self._is_told = None, False
        self._timers.cancel(SUBSCRIBE)

    def frames(self) -> list[PresenceSubscribe]:
        if self._wanted.keys() == self._subscribed or self._timers.pending(SUBSCRIBE):
            return []
        self._subscribed = set(self._wanted)
        self._request_id = self._next_id()
        return [PresenceSubscribe(id=self._request_id, user_ids=list(self._wanted))]

    def answered(self, frame: PresenceState) -> list[str]:
        """How it is with those who are watched: the people of whom that is news."""
        if frame.re != self._request_id:
            return []
        self._is_told = True
        return [view.user_id for view in frame.presences if self._note(view)]

    def changed(self, frame: PresenceChanged) -> bool:
        """Whether that is news."""
        return self._note(PresenceView(frame.user_id, frame.status, frame.last_seen))

    def refused(self, request_id: int, refusal: Refusal, now_ms: int) -> None:
        """If that was the subscription: a temporary refusal is tried again later."""
        if request_id == self._request_id and refusal.temporary:
            self._request_id = self._subscribed = None
            pause_ms = max(refusal.retry_after_ms or 0, self._timing.backoff_base_ms)
            self._timers.set(SUBSCRIBE, now_ms + pause_ms)

    # Questions

    def note_asked(self, views: Iterable[PresenceView], now_ms: int) -> None:
        """What the server answered; good for a while."""
        for view in views:
            self._asked.pop(view.user_id, None)
            self._asked[view.user_id] = view, now_ms + ASKED_MS_MAX
        while len(self._asked) > ASKED_PEOPLE_MAX:
            del self._asked[next(iter(self._asked))]

    def recall(self, user_id: str, now_ms: int) -> PresenceView | None:
        """What is known without asking."""
        known = self._known.get(user_id) if self._is_told else None
        if known is not None:
            return known
        view, until_ms = self._asked.get(user_id, (None, 0))
        return view if now_ms < until_ms else None

    def _note(self, view: PresenceView) -> bool:
        if view.user_id not in self._wanted or self._known.get(view.user_id) == view:
            return False
        self._known[view.user_id] = view
        return True

    def _choose(self) -> None:
        """As many as may be watched: those named, then those of the chat that was opened last."""
        wanted = dict(self._named)
        for user_ids in reversed(self._of_chats.values()):
            wanted |= dict.fromkeys(user_ids)
        before, self._wanted = self._wanted, dict.fromkeys(list(wanted)[:PRESENCE_BATCH_MAX])
        if self._wanted.keys() - before.keys():
            self._subscribed = None  # of who is new nothing is known
        self._known = {user_id: view for user_id, view in self._known.items() if user_id in self._wanted}
