"""Who types where, for as long as it may be shown, and how often one tells that oneself does. Pure."""

from __future__ import annotations

from parley.client.timers import Timers
from parley.clock import MS_PER_SECOND
from parley.wire.frames import Typing, TypingStart, TypingStop
from parley.wire.limits import TYPING_EVERY_SECONDS, TYPING_SHOWN_SECONDS

TYPING_TIMER = "typing"
EVERY_MS = TYPING_EVERY_SECONDS * MS_PER_SECOND
SHOWN_MS_MAX = TYPING_SHOWN_SECONDS * MS_PER_SECOND
TOLD_CHATS_MAX = 1_000


class Typists:
    """Others are shown until their time is over, they stop, their message comes or the connection ends."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._shown: dict[str, dict[str, None]] = {}
        self._told_at_ms: dict[str, int] = {}
        self._telling: dict[str, None] = {}
        self._to_send: list[TypingStart | TypingStop] = []

    def of(self, chat_id: str) -> list[str]:
        """Who types in a chat, in the order in which they began."""
        return list(self._shown.get(chat_id, ()))

    def heard(self, frame: Typing, now_ms: int) -> bool:
        """Whether that changes who is shown."""
        if frame.expires_in_ms <= 0:
            return self.end(frame.chat_id, frame.user_id)
        until_ms = now_ms + min(frame.expires_in_ms, SHOWN_MS_MAX)
        self._timers.set(_timer(frame.chat_id, frame.user_id), until_ms)
        typists = self._shown.setdefault(frame.chat_id, {})
        is_new = frame.user_id not in typists
        typists[frame.user_id] = None
        return is_new

    def end(self, chat_id: str, user_id: str) -> bool:
        """They stopped, or said it. Whether they were shown."""
        typists = self._shown.get(chat_id, {})
        if user_id not in typists:
            return False
        self._timers.cancel(_timer(chat_id, user_id))
        del typists[user_id]
        if not typists:
            del self._shown[chat_id]
        return True

    def expired(self, whose: str) -> str:
        """Their time is over: the chat in which they are shown no more."""
        chat_id, _, user_id = whose.partition(" ")
        self.end(chat_id, user_id)
        return chat_id

    def disconnected(self) -> list[str]:
        """Nobody will tell that they stopped: the chats in which nobody is shown any more."""
        chat_ids = list(self._shown)
        for chat_id in chat_ids:
            for user_id in self.of(chat_id):
                self.end(chat_id, user_id)
        self._to_send.clear()
        self._telling.clear()
        return chat_ids

    # Oneself

    def start(self, chat_id: str, now_ms: int) -> None:
        """Tell it, unless it was told a moment ago."""
        told_at_ms = self._told_at_ms.pop(chat_id, None)
        if told_at_ms is not None and now_ms - told_at_ms < EVERY_MS:
            self._told_at_ms[chat_id] = told_at_ms
            return
        self._told_at_ms[chat_id] = now_ms
        if len(self._told_at_ms) > TOLD_CHATS_MAX:
            del self._told_at_ms[next(iter(self._told_at_ms))]
        self._telling[chat_id] = None
        self._to_send.append(TypingStart(chat_id=chat_id))

    def stop(self, chat_id: str) -> None:
        """Tell it, if anybody was told of the start."""
        if chat_id in self._telling:
            self.said(chat_id)
            self._to_send.append(TypingStop(chat_id=chat_id))

    def said(self, chat_id: str) -> None:
        """A message went out, which tells it already."""
        self._telling.pop(chat_id, None)

    def frames(self) -> list[TypingStart | TypingStop]:
        frames, self._to_send = self._to_send, []
        return frames


def _timer(chat_id: str, user_id: str) -> tuple[str, str]:
    return (TYPING_TIMER, f"{chat_id} {user_id}")
