"""The port of the bus."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Struct

from parley.errors import Refusal
from parley.model import Head, Persisted

Confirm = Callable[[list[Persisted], dict[str, int]], Awaitable[dict[str, Refusal]]]
"""Publishes news, and waits until each of these chats is on the bus up to its position.

Returns a refusal for each chat that is not published in time. The caller may publish the same news again.
"""


class TopicState(Struct, frozen=True):
    """A topic, and how many events each group of consumers has not handled yet."""

    name: str
    partitions: int
    groups: dict[str, int]


class Listener(Protocol):
    """A subscriber of the bus. Called on the event loop; must not block."""

    def persisted(self, news: list[Persisted]) -> None:
        """Positions became durable in one commit."""
        ...

    def joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        """A chat was created with these members."""
        ...

    def sessions_ended(self, session_ids: list[str]) -> None:
        """These sessions may no longer be used."""
        ...


class Bus(Protocol):
    """An event is only a hint: a subscriber that misses one finds it in the log."""

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call the listener for everything published from now on. Returns a function that unsubscribes it."""
        ...

    def publish(self, news: list[Persisted]) -> None:
        """Publish durable positions, in the order of their commits."""
        ...

    def publish_joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        """Publish that a chat was created."""
        ...

    def publish_sessions_ended(self, session_ids: list[str]) -> None:
        """Publish that sessions were revoked."""
        ...
