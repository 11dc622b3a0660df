"""The port of the bus."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct

from parley.errors import Refusal
from parley.model import Draft, Head, Persisted

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
        """These sessions may no longer be used; a user id among them means all that this person has."""
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


class ReplyAddress(Struct, frozen=True):
    """The process that waits for an outcome: where it is called, and by which name."""

    url: str
    target: str


class BufferedDraft(Struct, frozen=True):
    """A draft on its way through a topic. Its outcome goes back to `reply`, which knows it by its ticket.

    `at_ms`: when it was put there.
    """

    draft: Draft
    ticket: int
    reply: ReplyAddress
    at_ms: int


class DraftQueue(Protocol):
    """The topic of drafts, in front of the log."""

    def partition_of(self, chat_id: str) -> int:
        """Where the drafts of a chat are queued. Each partition is consumed in the order of its drafts."""
        ...

    async def put(self, partition: int, drafts: Sequence[BufferedDraft]) -> None:
        """Durable, in this order, when it returns.

        StoreUnavailable: nothing was written. OutcomeUnknown: it may have been, or may still be.
        """
        ...
