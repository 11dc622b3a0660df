"""The bus of one process: news is handed over in the call that publishes it."""

from __future__ import annotations

from collections.abc import Callable

from parley.bus.listeners import Listeners
from parley.bus.ports import Listener
from parley.model import Head, Persisted


class EmbeddedBus:
    def __init__(self) -> None:
        self._own = Listeners()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        return self._own.add(listener)

    def publish(self, news: list[Persisted]) -> None:
        self._own.persisted(news)

    def publish_joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        self._own.joined(chat_id, head, user_ids)

    def publish_sessions_ended(self, session_ids: list[str]) -> None:
        self._own.sessions_ended(session_ids)
