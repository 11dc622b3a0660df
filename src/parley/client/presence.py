"""Presence and typing: short-lived state that may be lost in transit. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from parley.client.chat_model import ChatModel
from parley.client.events import What
from parley.client.timing import Timers, Timing
from parley.clock import MS_PER_SECOND
from parley.errors import Refusal
from parley.wire.frames import (
    PresenceChanged,
    PresenceState,
    PresenceSubscribe,
    PresenceView,
    Typing,
    TypingStart,
    TypingStop,
)
from parley.wire.limits import PRESENCE_BATCH_MAX, TYPING_EVERY_SECONDS, TYPING_SHOWN_SECONDS

SUBSCRIBE = ("subscribe to presence", "")
QUERIED_MS_MAX = 30_000
QUERIED_PEOPLE_MAX = 10_000
TYPING_EVERY_MS = TYPING_EVERY_SECONDS * MS_PER_SECOND
TYPING_SHOWN_MS_MAX = TYPING_SHOWN_SECONDS * MS_PER_SECOND


class PresenceWatch:
    """The people whose presence this connection subscribes to: those named, and members of open chats."""

    def __init__(self, timing: Timing, timers: Timers, next_id: Callable[[], int]) -> None:
        self._timing = timing
        self._timers = timers
        self._next_id = next_id
        self._named: dict[str, None] = {}
        self._by_chat: dict[str, list[str]] = {}
        self._wanted: dict[str, None] = {}
        self._subscribed: set[str] | None = set()
        """The people in the last subscription; None if the client must subscribe again."""
        self._request_id: int | None = None
        self._is_current = False
        """Whether the server has answered the subscription on this connection."""
        self._known: dict[str, PresenceView] = {}
        self._queried: dict[str, tuple[PresenceView, int]] = {}

    def get(self, user_id: str) -> PresenceView | None:
        """The presence of a watched person."""
        return self._known.get(user_id)

    def watch(self, user_ids: Iterable[str]) -> None:
        """Watch these people besides the members of open chats; replaces the last call."""
        self._named = dict.fromkeys(user_ids)
        self._update_wanted()

    def watch_chat(self, chat_id: str, user_ids: list[str]) -> None:
        """Watch the members of an open chat; the list is empty when it is closed."""
        self._by_chat.pop(chat_id, None)
        if user_ids:
            self._by_chat[chat_id] = user_ids
        self._update_wanted()

    def connected(self) -> None:
        """A new connection has no subscription."""
        self._subscribed = set()

    def disconnected(self) -> None:
        self._request_id, self._is_current = None, False
        self._timers.cancel(SUBSCRIBE)

    def frames_to_send(self) -> list[PresenceSubscribe]:
        if self._wanted.keys() == self._subscribed or self._timers.pending(SUBSCRIBE):
            return []
        self._subscribed = set(self._wanted)
        self._request_id = self._next_id()
        return [PresenceSubscribe(id=self._request_id, user_ids=list(self._wanted))]

    def receive_state(self, frame: PresenceState) -> list[PresenceView]:
        """The answer to the subscription. Returns what changed."""
        if frame.re != self._request_id:
            return []
        self._is_current = True
        return [view for view in frame.presences if self._note(view)]

    def receive_change(self, frame: PresenceChanged) -> list[PresenceView]:
        """Returns the presence if it changed."""
        view = PresenceView(frame.user_id, frame.status, frame.last_seen)
        return [view] if self._note(view) else []

    def refused(self, request_id: int, refusal: Refusal, now_ms: int) -> None:
        """If this was the subscription and the refusal is temporary, retry later."""
        if request_id == self._request_id and refusal.temporary:
            self._request_id = self._subscribed = None
            pause_ms = max(refusal.retry_after_ms or 0, self._timing.backoff_base_ms)
            self._timers.set(SUBSCRIBE, now_ms + pause_ms)

    def note_queried(self, views: Iterable[PresenceView], now_ms: int) -> None:
        """Cache for 30 seconds what the server answered over HTTP."""
        for view in views:
            self._queried.pop(view.user_id, None)
            self._queried[view.user_id] = view, now_ms + QUERIED_MS_MAX
        while len(self._queried) > QUERIED_PEOPLE_MAX:
            del self._queried[next(iter(self._queried))]

    def recall(self, user_id: str, now_ms: int) -> PresenceView | None:
        """What is known without a request."""
        known = self._known.get(user_id) if self._is_current else None
        if known is not None:
            return known
        view, until_ms = self._queried.get(user_id, (None, 0))
        return view if now_ms < until_ms else None

    def _note(self, view: PresenceView) -> bool:
        if view.user_id not in self._wanted or self._known.get(view.user_id) == view:
            return False
        self._known[view.user_id] = view
        return True

    def _update_wanted(self) -> None:
        """As many as the server allows: first those named, then members, of the last opened chat first."""
        wanted = dict(self._named)
        for user_ids in reversed(self._by_chat.values()):
            wanted |= dict.fromkeys(user_ids)
        before, self._wanted = self._wanted, dict.fromkeys(list(wanted)[:PRESENCE_BATCH_MAX])
        if self._wanted.keys() - before.keys():
            self._subscribed = None  # The presence of the new people is unknown.
        self._known = {user_id: view for user_id, view in self._known.items() if user_id in self._wanted}


class TypingSignals:
    """Who types, in both directions.

    Others are shown until their lease expires, they stop, their message arrives or the connection ends.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._shown: dict[str, ChatModel] = {}
        """The chats in which others type."""
        self._started: set[str] = set()
        """The chats for which a start was sent, and no stop yet."""
        self._to_send: list[TypingStart | TypingStop] = []

    def receive(self, chat: ChatModel, frame: Typing, now_ms: int) -> None:
        """Another member types, or stopped."""
        user_id = frame.user_id
        if frame.expires_in_ms <= 0:
            self.end(chat, user_id)
            return
        until_ms = now_ms + min(frame.expires_in_ms, TYPING_SHOWN_MS_MAX)
        self._timers.set(_timer(chat, user_id), until_ms, lambda _: self.end(chat, user_id))
        if user_id not in chat.typing:
            chat.typing[user_id] = None
            self._shown[chat.chat_id] = chat
            chat.notify(What.TYPING)

    def end(self, chat: ChatModel, user_id: str) -> None:
        """A member stopped typing."""
        if user_id in chat.typing:
            self._timers.cancel(_timer(chat, user_id))
            del chat.typing[user_id]
            if not chat.typing:
                del self._shown[chat.chat_id]
            chat.notify(What.TYPING)

    def end_all(self, chat: ChatModel) -> None:
        for user_id in list(chat.typing):
            self.end(chat, user_id)

    def disconnected(self) -> None:
        """No stop will arrive on this connection, and unsent frames are outdated."""
        for chat in list(self._shown.values()):
            self.end_all(chat)
        self._started.clear()
        self._to_send.clear()

    def start(self, chat: ChatModel, now_ms: int) -> None:
        """Send that this person types, unless it was sent a moment ago."""
        sent_at_ms = chat.typing_sent_at_ms
        if sent_at_ms is None or now_ms - sent_at_ms >= TYPING_EVERY_MS:
            chat.typing_sent_at_ms = now_ms
            self._started.add(chat.chat_id)
            self._to_send.append(TypingStart(chat_id=chat.chat_id))

    def stop(self, chat: ChatModel) -> None:
        """Send that this person stopped, if a start was sent."""
        if chat.chat_id in self._started:
            self._started.remove(chat.chat_id)
            self._to_send.append(TypingStop(chat_id=chat.chat_id))

    def message_sent(self, chat_id: str) -> None:
        """The message itself ends typing."""
        self._started.discard(chat_id)

    def frames_to_send(self) -> list[TypingStart | TypingStop]:
        frames, self._to_send = self._to_send, []
        return frames


def _timer(chat: ChatModel, user_id: str) -> tuple[str, str]:
    return ("typing", f"{chat.chat_id} {user_id}")
