"""Those in this process who want the news. News is handed over in the call that tells it."""

from __future__ import annotations

from collections.abc import Callable

from parley.bus.ports import Listener
from parley.model import Head, Persisted


class Listeners:
    """All of them as one."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def add(self, listener: Listener) -> Callable[[], None]:
        """From now on; the answer ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def persisted(self, news: list[Persisted]) -> None:
        for listener in self._listeners:
            listener.persisted(news)

    def joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        for listener in self._listeners:
            listener.joined(chat_id, head, user_ids)

    def sessions_ended(self, session_ids: list[str]) -> None:
        for listener in self._listeners:
            listener.sessions_ended(session_ids)
