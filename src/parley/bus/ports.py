"""The door to the bus."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from parley.errors import Refusal
from parley.model import Head, Persisted

Confirm = Callable[[list[Persisted], dict[str, int]], Awaitable[dict[str, Refusal]]]
"""Puts news on the bus, and waits until each of these chats is on it up to its position.

The answer is what to refuse with in chats that are not there in time. News may be given to `publish` again.
"""

Handle = Callable[[Persisted], Awaitable[None]]
"""Does something about positions of one chat that became durable."""


class Listener(Protocol):
    """Whoever wants the news. Called on the event loop; must not block."""

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
    """At most a hint: whoever misses news finds it in the log."""

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Hear everything published from now on; the answer ends it."""
        ...

    def publish(self, news: list[Persisted]) -> None:
        """Tell of durable positions, in the order of their commits."""
        ...

    def publish_joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        """Tell of a new chat."""
        ...

    def publish_sessions_ended(self, session_ids: list[str]) -> None:
        """Tell of revoked sessions."""
        ...


class Feed(Protocol):
    """Everything that becomes durable, for workers that must not miss any of it."""

    async def consume(self, group: str, handle: Handle) -> None:
        """Hand each chat's positions to one member of the group, ascending; ends only by being cancelled.

        A new group begins with the oldest that the bus has. What `handle` has returned from counts as done;
        what it raised at comes again, later, and before anything behind it in its chat. Something may come
        twice after a crash, or when chats go to another member: a `handle` that takes long is cancelled then.
        """
        ...
