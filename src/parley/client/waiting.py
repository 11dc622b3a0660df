"""Who waits for what: loops, sendings and calls of one client, and how the engine's events reach them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from weakref import WeakSet

from parley.client.chat import AllEntries, Entries
from parley.client.engine import (
    Acked,
    CallAnswered,
    ChatReady,
    Complaint,
    Event,
    MessagesKept,
    OverviewComplete,
    SendRefused,
)
from parley.client.errors import ClientError, RequestRefused
from parley.client.keeping import MessageKey
from parley.client.live import Opening, Update
from parley.client.sending import Sending
from parley.client.updates import Updates
from parley.errors import Refusal
from parley.wire.frames import Ack

log = logging.getLogger("parley.client")


class Waiting:
    def __init__(self) -> None:
        self.sendings: dict[MessageKey, Sending] = {}
        self.readers: dict[str, Entries] = {}
        self.all_reader: AllEntries | None = None
        self.all_sent = asyncio.Event()
        self.failure: ClientError | None = None
        self._calls: dict[int, asyncio.Future[None]] = {}
        self._overviews: list[tuple[int, asyncio.Future[None]]] = []
        self._openings: dict[str, list[asyncio.Future[None]]] = {}
        # A loop that is left is not closed but forgotten.
        self._updates: WeakSet[Updates] = WeakSet()

    def check_open(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def for_call(self, number: int) -> None:
        """Until the server has done it. RequestRefused if it refused for good."""
        answered = self._calls[number] = asyncio.get_running_loop().create_future()
        try:
            await answered
        finally:
            del self._calls[number]

    async def for_overview(self, wanted_round: int) -> None:
        """Until that round of the overview, or a later one, is complete."""
        complete = asyncio.get_running_loop().create_future()
        self._overviews.append((wanted_round, complete))
        await complete

    async def for_opening(self, chat_id: str) -> None:
        """Until the chat is open. RequestRefused if it cannot be."""
        opened = asyncio.get_running_loop().create_future()
        self._openings.setdefault(chat_id, []).append(opened)
        await opened

    def updates(self, concerns: Callable[[Update], bool]) -> Updates:
        updates = Updates(concerns, self.check_open)
        self._updates.add(updates)
        return updates

    def tell(self, event: Event) -> None:
        match event:
            case Acked():
                self._settle(event.key, event.ack)
            case SendRefused():
                self._settle(event.key, _refused(event.refusal))
            case MessagesKept():
                for key in event.keys:
                    if key in self.sendings:
                        self.sendings[key].note_kept()
            case ChatReady():
                self._notify(event.chat_id)
            case CallAnswered():
                _answer(self._calls.get(event.number), event.refusal)
            case OverviewComplete():
                self._overview_complete(event.round)
            case Opening():
                for opened in self._openings.pop(event.chat_id, []):
                    _answer(opened, event.refusal)
            case Update():
                for updates in self._updates:
                    updates.tell(event)
            case Complaint():
                log.warning("the server refused a request: %s: %s", event.refusal.code, event.refusal.reason)

    def fail(self, failure: ClientError) -> None:
        """Nothing more will come: everybody who waits is told so."""
        self.failure = failure
        for sending in self.sendings.values():
            sending.settle(failure)
        openings = [opened for waiting in self._openings.values() for opened in waiting]
        overviews = [complete for _, complete in self._overviews]
        for waiting in [*self._calls.values(), *overviews, *openings]:
            if not waiting.done():
                waiting.set_exception(failure)
        for reader in self.readers.values():
            reader.notify()
        if self.all_reader is not None:
            self.all_reader.notify()
        for updates in self._updates:
            updates.end()
        self.all_sent.set()

    def _overview_complete(self, done_round: int) -> None:
        for wanted_round, complete in self._overviews:
            if wanted_round <= done_round:
                _answer(complete, None)
        self._overviews = [waiting for waiting in self._overviews if not waiting[1].done()]

    def _settle(self, key: MessageKey, outcome: Ack | RequestRefused) -> None:
        sending = self.sendings.pop(key, None)
        if sending is not None:
            sending.settle(outcome)
        if isinstance(outcome, RequestRefused):
            log.warning("message %s to %s was refused: %s", key[1], key[0], outcome)
        if not self.sendings:
            self.all_sent.set()

    def _notify(self, chat_id: str) -> None:
        if chat_id in self.readers:
            self.readers[chat_id].notify()
        elif self.all_reader is not None:
            self.all_reader.notify(chat_id)


def _answer(waiting: asyncio.Future[None] | None, refusal: Refusal | None) -> None:
    if waiting is None or waiting.done():
        return
    if refusal is None:
        waiting.set_result(None)
    else:
        waiting.set_exception(_refused(refusal))


def _refused(refusal: Refusal) -> RequestRefused:
    return RequestRefused(refusal)
