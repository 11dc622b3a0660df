"""The loops of an application: over the entries of one chat or of all chats, and over other changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from parley.client.chat_model import ChatModel
from parley.client.connection import loop_ms
from parley.client.core import ClientCore
from parley.client.errors import ReadElsewhere, RequestRefused
from parley.client.events import Update
from parley.wire.frames import Entry

CheckOpen = Callable[[], None]
"""Raises if the client has ended."""


class EntryStream:
    """The loop over one chat: in order, contiguous, no entry twice, across every reconnect.

    An entry counts as processed when the loop takes the next one; an unprocessed entry comes again in the
    next loop or the next run. RequestRefused when reading must end (`not_a_member`).
    """

    def __init__(self, core: ClientCore, chat: ChatModel, check_open: CheckOpen) -> None:
        self._core = core
        self._chat = chat
        self._check_open = check_open
        self._changed = asyncio.Event()
        self._is_closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Entry:
        while True:
            if self._is_closed:
                raise ReadElsewhere("another loop reads this chat now; a device has one cursor per chat")
            self._changed.clear()
            entry = self._core.take(self._chat, loop_ms())
            if entry is not None:
                return entry
            self._check_open()
            inbox = self._chat.inbox
            if inbox is not None and inbox.failure is not None:
                raise RequestRefused(inbox.failure)
            await self._changed.wait()

    def notify(self) -> None:
        """There may be an entry to take, or the client has ended."""
        self._changed.set()

    def close(self) -> None:
        """End this loop. The entry that it yielded last counts as not processed."""
        self._is_closed = True
        self._changed.set()


class AllEntriesStream:
    """The loop over every chat of the person, including later ones. Each chat's entries are in order.

    It skips chats that have a loop of their own, and chats that the person has left.
    """

    def __init__(self, core: ClientCore, check_open: CheckOpen) -> None:
        self._core = core
        self._check_open = check_open
        self._changed = asyncio.Event()
        self._ready: dict[str, None] = {}
        self._last: ChatModel | None = None
        self._is_closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Entry:
        if self._last is not None:
            self._core.mark_processed(self._last, loop_ms())
            self._last = None
        while True:
            if self._is_closed:
                raise ReadElsewhere("another loop reads all chats now; a device has one cursor per chat")
            self._changed.clear()
            entry = self._take_next()
            if entry is not None:
                return entry
            self._check_open()
            await self._changed.wait()

    def notify(self, chat_id: str | None = None) -> None:
        """This chat may have an entry to take. None: the client has ended."""
        if chat_id is not None:
            self._ready[chat_id] = None
        self._changed.set()

    def leave(self, chat_id: str) -> None:
        """From now on this chat has a loop of its own."""
        self._ready.pop(chat_id, None)
        if self._last is not None and self._last.chat_id == chat_id:
            self._last = None

    def close(self) -> None:
        self._is_closed = True
        self._changed.set()

    def _take_next(self) -> Entry | None:
        """One entry of the chat that has waited longest."""
        while self._ready:
            chat_id = next(iter(self._ready))
            del self._ready[chat_id]
            chat = self._core.chat(chat_id)
            entry = self._core.take(chat, loop_ms())
            if entry is not None:
                self._ready[chat_id] = None
                self._last = chat
                return entry
            if chat.inbox is not None and chat.inbox.failure is not None:
                self._core.stop(chat)
        return None


class UpdateStream:
    """The loop over updates. However slow the loop is, equal updates wait as one."""

    def __init__(self, concerns: Callable[[Update], bool], check_open: CheckOpen) -> None:
        self._concerns = concerns
        self._check_open = check_open
        self._waiting: dict[Update, None] = {}
        self._changed = asyncio.Event()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        while not self._waiting:
            self._check_open()
            self._changed.clear()
            await self._changed.wait()
        update = next(iter(self._waiting))
        del self._waiting[update]
        return update

    def put(self, update: Update) -> None:
        if self._concerns(update):
            self._waiting[update] = None
            self._changed.set()

    def notify(self) -> None:
        """The client has ended: the loop raises its failure."""
        self._changed.set()
