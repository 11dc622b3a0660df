"""`parley tail`: follows a chat. On a terminal it updates ticks and the status line in place."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Protocol

from msgspec import Struct

from parley.cli.display import EntryPrinter, Names, presence, ticks, typing
from parley.cli.output import note, print_json_line
from parley.cli.remote import Identity, check_me, find_chat
from parley.cli.screen import Screen
from parley.client import Chat, Client, Closed, connect
from parley.client.api import Api
from parley.client.storage import Cursor
from parley.core.receipts import MessageReceipts
from parley.wire.frames import Entry
from parley.wire.limits import PAGE_ENTRIES_MAX

OWN_FOLLOWED_MAX = 100
"""How many of the user's own last messages get updated ticks."""

LAST_DEFAULT = 10
"""How many of the last entries are shown by default."""

log = logging.getLogger("parley.client")


class TailOptions(Struct, frozen=True, kw_only=True):
    """Which part of a chat to show, and how."""

    start: int | None
    last: int | None
    once: bool
    as_json: bool
    events: bool
    read: bool


def start_after(start: int | None, last: int | None, head: int) -> int:
    """The position before the first one to show. `last` counts from the head; with `after`, both apply.

    Never beyond the head: the server would reset a client that claims a later position.
    """
    if start is None and last is None:
        last = LAST_DEFAULT
    from_start = 0 if start is None else start - 1
    from_end = 0 if last is None else head - last
    return min(max(0, from_start, from_end), head)


class View(Protocol):
    """Shows a chat."""

    is_live: bool
    """Whether it also shows ticks, typing and presence."""

    async def show(self, entry: Entry) -> None:
        """Show one more entry."""
        ...

    async def refresh(self) -> None:
        """Ticks, typing or presence have changed."""
        ...

    def close(self) -> None:
        """The stream has ended."""
        ...


class LinesView:
    """For a pipe: one line per entry, never rewritten."""

    is_live = False

    def __init__(self, names: Names) -> None:
        self._printer = EntryPrinter(names, is_terminal=False)

    async def show(self, entry: Entry) -> None:
        await self._printer.show(entry)

    async def refresh(self) -> None:
        pass

    def close(self) -> None:
        pass


class JsonView:
    """For a program: entries as JSON and, with `events`, a line for each change of receipts or typing."""

    def __init__(self, chat: Chat, user_id: str, events: bool) -> None:
        self.is_live = events
        self._chat = chat
        self._own = OwnMessages(user_id)
        self._typing: list[str] = []
        self._printed: dict[int, MessageReceipts] = {}

    async def show(self, entry: Entry) -> None:
        print_json_line(entry)
        self._own.note(entry, "")
        if self.is_live:
            await self.refresh()

    async def refresh(self) -> None:
        if self._chat.typing != self._typing:
            self._typing = self._chat.typing
            print_json_line({"event": "typing", "chat_id": self._chat.chat_id, "user_ids": self._typing})
        for entry in self._own.entries():
            receipts = self._chat.seen(entry)
            if receipts is not None and self._printed.get(entry.sequence) != receipts:
                self._printed[entry.sequence] = receipts
                print_json_line(_receipts_event(entry, receipts))

    def close(self) -> None:
        pass


def _receipts_event(entry: Entry, receipts: MessageReceipts) -> dict[str, object]:
    return {
        "event": "receipts",
        "chat_id": entry.chat_id,
        "sequence": entry.sequence,
        "status": receipts.status,
        "member_count": receipts.member_count,
        "delivered": receipts.delivered,
        "read": receipts.read,
    }


class ScreenView:
    """For a person: ticks after their own messages, and a status line with typing and presence."""

    is_live = True

    def __init__(self, chat: Chat, user_id: str, names: Names, screen: Screen) -> None:
        self._chat = chat
        self._own = OwnMessages(user_id)
        self._names = names
        self._screen = screen
        self._is_coloured = not os.environ.get("NO_COLOR")
        self._printer = EntryPrinter(names, is_terminal=self._is_coloured)

    async def show(self, entry: Entry) -> None:
        text = await self._printer.text(entry)
        self._own.note(entry, text)
        self._screen.add(entry.sequence, self._ticked(entry, text))

    async def refresh(self) -> None:
        for entry in self._own.entries():
            self._screen.change(entry.sequence, self._ticked(entry, self._own.text(entry)))
        self._screen.show_status(await self._status())

    def close(self) -> None:
        self._screen.close()

    def _ticked(self, entry: Entry, text: str) -> str:
        receipts = self._chat.seen(entry) if self._own.is_own(entry) else None
        if receipts is None:
            return text
        style, shown = ticks(receipts)
        if style == "read" and not self._is_coloured:
            shown = f"{shown} read"
        return self._screen.beside(text, self._printer.styled(style, shown))

    async def _status(self) -> str:
        if not self._chat.is_online:
            return "not connected, reconnecting…"
        who = typing([await self._names.of(user_id) for user_id in self._chat.typing])
        others = [member for member in self._chat.members if member.user_id != self._own.user_id]
        if who or len(others) != 1:
            return who
        return presence(others[0], await self._names.of(others[0].user_id))


class OwnMessages:
    """The user's own last messages and their lines."""

    def __init__(self, user_id: str) -> None:
        self.user_id = user_id
        self._shown: OrderedDict[int, tuple[Entry, str]] = OrderedDict()

    def is_own(self, entry: Entry) -> bool:
        return entry.sender_id == self.user_id and entry.kind == "message"

    def note(self, entry: Entry, text: str) -> None:
        if self.is_own(entry):
            self._shown[entry.sequence] = entry, text
            if len(self._shown) > OWN_FOLLOWED_MAX:
                self._shown.popitem(last=False)

    def entries(self) -> list[Entry]:
        return [entry for entry, _ in self._shown.values()]

    def text(self, entry: Entry) -> str:
        return self._shown[entry.sequence][1]


class ScreenLog(logging.Handler):
    """Shows the client's warnings above the status line, which says whether it is connected."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        self._screen.remark(f"parley: {record.getMessage()}")


def tail(identity: Identity, chat: str, wanted: TailOptions) -> None:
    # A program or a person may end it: in both cases revoke the session that was created for it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_tail(identity, chat, wanted))


async def _tail(identity: Identity, name: str, wanted: TailOptions) -> None:
    async with connect(identity.url, identity.token, ca=identity.ca) as client:
        me = await check_me(client.api, identity)
        chat = client.chat(await find_chat(client.api, me, name))
        info = await chat.info()
        start, after = wanted.start or 0, start_after(wanted.start, wanted.last, info.head)
        if wanted.once and start > info.head:
            note(f"Nothing from #{start} on: the last is #{info.head}.")
            return
        view = _view(chat, me.user_id, Names(client.api), wanted)
        try:
            if view.is_live:
                await chat.open()
                await view.refresh()
            if wanted.once:
                await _show(view, chat, _pages(client.api, chat.chat_id, after), wanted.read)
            else:
                entries = _follow(client, chat.chat_id, info.epoch, after, start)
                await _show_live(view, chat, entries, wanted.read)
        finally:
            # Do not log that this command itself disconnects.
            log.setLevel(logging.ERROR)
            view.close()


def _view(chat: Chat, user_id: str, names: Names, wanted: TailOptions) -> View:
    if wanted.as_json:
        return JsonView(chat, user_id, wanted.events)
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        if sys.stderr.isatty():
            logging.basicConfig(format="parley: %(message)s", level=logging.INFO, stream=sys.stderr)
        return LinesView(names)
    screen = Screen(_write, shutil.get_terminal_size)
    log.addHandler(ScreenLog(screen))
    return ScreenView(chat, user_id, names, screen)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


async def _show_live(view: View, chat: Chat, entries: AsyncIterator[Entry], read: bool) -> None:
    """Show entries and other changes until one of the two streams ends."""
    watching = asyncio.create_task(_watch(view, chat)) if view.is_live else None
    try:
        await _show(view, chat, entries, read)
    finally:
        if watching is not None:
            watching.cancel()
            await asyncio.wait([watching])


async def _watch(view: View, chat: Chat) -> None:
    with contextlib.suppress(Closed):
        async for _ in chat.updates():
            await view.refresh()


async def _show(view: View, chat: Chat, entries: AsyncIterator[Entry], read: bool) -> None:
    reader = Reader(chat) if read else None
    try:
        async for entry in entries:
            await view.show(entry)
            if reader is not None:
                reader.shown(entry)
        if reader is not None:
            await reader.finish()
    finally:
        if reader is not None:
            reader.cancel()


class Reader:
    """Marks shown entries as read: one request at a time, each with the latest position."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._shown = 0
        self._read = 0
        self._reading: asyncio.Task[None] | None = None

    def shown(self, entry: Entry) -> None:
        self._shown = entry.sequence
        if self._reading is not None and self._reading.done():
            self._reading.result()
            self._reading = None
        if self._reading is None:
            self._reading = asyncio.create_task(self._catch_up())

    async def finish(self) -> None:
        if self._reading is not None:
            await self._reading

    def cancel(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    async def _catch_up(self) -> None:
        while self._read != self._shown:
            up_to = self._shown
            await self._chat.mark_read(up_to)
            self._read = up_to


async def _pages(api: Api, chat_id: str, after: int) -> AsyncIterator[Entry]:
    """The entries that exist now."""
    while True:
        page = await api.history(chat_id, {"after": str(after), "limit": str(PAGE_ENTRIES_MAX)})
        for entry in page.entries:
            yield entry
        if page.to_sequence >= page.head:
            return
        after = page.to_sequence


async def _follow(client: Client, chat_id: str, epoch: int, after: int, start: int) -> AsyncIterator[Entry]:
    """Existing and new entries, in order, across reconnects, from a chosen position.

    It skips entries before `start`, which may be ahead of the head.
    """
    client.core.seek(client.core.chat(chat_id), Cursor(epoch, after), 0)
    async for entry in client.chat(chat_id):
        if entry.sequence >= start:
            yield entry
