"""Who is connected to this node, and who of them hears which chat.

The hub decides in which order a chat's entries go out; here is only to whom. Use cases that tell something in
passing (typing, receipts, presence) reach clients through it: it is their `people.audience`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from parley.gateway.outbox import framed
from parley.gateway.scopes import may_be_sent
from parley.model import Scope, StoredEntry
from parley.wire.codec import Codec
from parley.wire.codes import Close
from parley.wire.frames import Messages, ServerFrame


class Subscriber(Protocol):
    """A connection as the hub sees it."""

    user_id: str
    device_id: str
    session_id: str
    live: bool
    """Whether the client asked for what happens in its chats."""
    scopes: frozenset[Scope] | None
    """Those of an API token; None for all that the person may do."""
    heard_from_ms: int
    """Since when it hears its chats; 0 before that."""
    codec: Codec
    chats: dict[str, LiveChat]

    def offer(self, data: bytes) -> None:
        """Queue bytes for the socket; a reader that is too slow is closed instead."""
        ...

    def close(self, close: Close) -> None:
        """End the connection with a code."""
        ...

    async def verify(self) -> None:
        """Read the session again; if it may not be used any more, Refused, and the connection ends."""
        ...


class LiveChat:
    """A chat that a connected client is a member of: its listeners, and how far they were sent."""

    __slots__ = (
        "chat_id",
        "epoch",
        "filler",
        "forgets",
        "holders",
        "listeners",
        "pending",
        "sent_through",
        "target",
    )

    def __init__(self, chat_id: str) -> None:
        self.chat_id = chat_id
        self.epoch = 0
        self.sent_through = -1
        """Listeners have every entry up to here; below 0 until the head is known."""
        self.target = 0
        self.pending: dict[int, StoredEntry] = {}
        self.filler: asyncio.Task[None] | None = None
        self.forgets = 0
        """How often bodies of it were removed: what was read before is not sent after it."""
        self.holders = 0
        self.listeners: dict[Codec, set[Subscriber]] = {}

    def stop_listening(self, subscriber: Subscriber) -> None:
        listeners = self.listeners.get(subscriber.codec)
        if listeners is not None:
            listeners.discard(subscriber)
            if not listeners:
                del self.listeners[subscriber.codec]


class Subscribers:
    """The connections of this node, by user and by chat."""

    def __init__(self) -> None:
        self.chats: dict[str, LiveChat] = {}
        self._users: dict[str, list[Subscriber]] = {}
        """Nearly always one each: a list is smaller than a set."""
        self.unheard: Callable[[str], None] = lambda _: None
        """Called with a chat, or a user, of whom no connection is here any more."""

    def add(self, subscriber: Subscriber) -> None:
        self._users.setdefault(subscriber.user_id, []).append(subscriber)

    def remove(self, subscriber: Subscriber) -> None:
        """It hears nothing any more."""
        own = self._users.get(subscriber.user_id, [])
        if subscriber in own:
            own.remove(subscriber)
            if not own:
                del self._users[subscriber.user_id]
                self.unheard(subscriber.user_id)
        for chat_id in list(subscriber.chats):
            self.leave_chat(subscriber, chat_id)

    def join_chat(self, subscriber: Subscriber, chat_id: str) -> LiveChat:
        chat = self.chats.get(chat_id)
        if chat is None:
            chat = self.chats[chat_id] = LiveChat(chat_id)
        if chat_id not in subscriber.chats:
            subscriber.chats[chat_id] = chat
            chat.holders += 1
            if hears(subscriber):
                chat.listeners.setdefault(subscriber.codec, set()).add(subscriber)
        return chat

    def change_scopes(self, subscriber: Subscriber, scopes: frozenset[Scope] | None) -> None:
        """Its token is another one: from now on it hears its chats, or no longer."""
        subscriber.scopes = scopes
        for chat in subscriber.chats.values():
            if hears(subscriber):
                chat.listeners.setdefault(subscriber.codec, set()).add(subscriber)
            else:
                chat.stop_listening(subscriber)

    def leave_chat(self, subscriber: Subscriber, chat_id: str) -> None:
        chat = subscriber.chats.pop(chat_id, None)
        if chat is None:
            return
        chat.holders -= 1
        chat.stop_listening(subscriber)
        if not chat.holders and self.chats.get(chat_id) is chat:
            del self.chats[chat_id]
            self.unheard(chat_id)

    def hears(self, subject: str) -> bool:
        """Whether a client of this node is in this chat, or is this user."""
        return subject in self.chats or subject in self._users

    def subjects(self) -> list[str]:
        """Every user who is connected here, and every chat that they are in."""
        return [*self._users, *self.chats]

    def user_ids(self) -> list[str]:
        return list(self._users)

    def of_user(self, user_id: str) -> list[Subscriber]:
        return list(self._users.get(user_id, ()))

    def devices_of(self, user_id: str) -> list[tuple[str, int]]:
        """The devices of a person that hear their chats here, and since when."""
        return [
            (one.device_id, one.heard_from_ms)
            for one in self._users.get(user_id, ())
            if one.live and one.heard_from_ms
        ]

    def people_in(self, chat_id: str) -> set[str]:
        chat = self.chats.get(chat_id)
        if chat is None:
            return set()
        return {listener.user_id for listeners in chat.listeners.values() for listener in listeners}

    def tell_chat(self, chat_id: str, frame: ServerFrame, receives: Callable[[str], bool]) -> None:
        chat = self.chats.get(chat_id)
        if chat is not None:
            listeners = [one for some in chat.listeners.values() for one in some]
            self.tell_some((one for one in listeners if receives(one.user_id)), frame)

    def tell_people(self, user_ids: Iterable[str], frame: ServerFrame) -> None:
        found = [one for user_id in user_ids for one in self._users.get(user_id, ())]
        self.tell_some((one for one in found if one.live), frame)

    @staticmethod
    def tell_some(subscribers: Iterable[Subscriber], frame: ServerFrame) -> None:
        """One frame to those of these whose tokens let them have it, encoded once per codec."""
        encoded: dict[Codec, bytes] = {}
        for subscriber in subscribers:
            if not may_be_sent(subscriber.scopes, type(frame)):
                continue
            codec = subscriber.codec
            data = encoded.get(codec)
            if data is None:
                data = encoded[codec] = framed(codec.encode(frame), codec.binary)
            subscriber.offer(data)


def hears(subscriber: Subscriber) -> bool:
    """Whether it is sent what happens in its chats: it asked for it, and its token lets it see."""
    return subscriber.live and may_be_sent(subscriber.scopes, Messages)
