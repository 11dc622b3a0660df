"""The bus of one process: publishing calls every listener, in the order in which they subscribed."""

from __future__ import annotations

from collections.abc import Callable

from parley.bus.ports import Listener
from parley.model import Head, Persisted


class EmbeddedBus:
    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def publish(self, news: list[Persisted]) -> None:
        for listener in self._listeners:
            listener.persisted(news)

    def publish_joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        for listener in self._listeners:
            listener.joined(chat_id, head, user_ids)

    def publish_sessions_ended(self, session_ids: list[str]) -> None:
        for listener in self._listeners:
            listener.sessions_ended(session_ids)
