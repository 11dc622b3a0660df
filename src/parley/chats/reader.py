"""Catching up: pages of a chat, the overview of all chats, and how far each device has come."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import Struct

from parley.chats.log_hasher import LogHasher
from parley.clock import Clock, from_iso
from parley.core.sync import Start, decide_start, is_same_message
from parley.errors import AHEAD_OF_LOG, BAD_REQUEST, NOT_A_MEMBER, NOT_FOUND, Refused
from parley.model import Head, Kind, Page
from parley.store.ports import Cursors, Directory, Log
from parley.wire.codec import decode_entry
from parley.wire.frames import Entry, SyncRequest
from parley.wire.limits import PAGE_ENTRIES_MAX, RECEIPT_PAGES_MAX, SEQUENCE_MAX

SEQUENCE_DIGITS_MAX = len(str(SEQUENCE_MAX))
ENTRIES_PER_STEP = 8
"""Positions that are read at each step of the search for a time: some may be voids."""


class EntryHeader(Struct, gc=False):
    """As much of an entry as says whether another user wrote it."""

    sequence: int
    kind: str
    sender_id: str

    def must_be_received(self, user_id: str) -> bool:
        return self.kind == Kind.MESSAGE.value and self.sender_id != user_id


decode_header = msgspec.json.Decoder(EntryHeader).decode


class ChatReader:
    def __init__(
        self, log: Log, directory: Directory, cursors: Cursors, hasher: LogHasher, clock: Clock
    ) -> None:
        self._log = log
        self._hasher = hasher
        self._directory = directory
        self._cursors = cursors
        self._clock = clock

    async def check_member(self, chat_id: str, user_id: str) -> None:
        if await self._directory.role(chat_id, user_id) is None:
            raise Refused(NOT_A_MEMBER)

    async def sync(self, user_id: str, request: SyncRequest) -> Page:
        """The page after a client's position, or from the start when that is no position of this log."""
        chat_id = request.chat
        await self.check_member(chat_id, user_id)
        head = await self._head(chat_id)
        start = decide_start(request.last_acked_sequence, request.epoch, head)
        if request.last_message_id is not None and start.after > 0:
            start = await self._verify(chat_id, start, request.last_message_id)
        page = await self._log.read(chat_id, start.after, min(request.limit, PAGE_ENTRIES_MAX))
        page.reset = start.reset
        page.log_hash = await self._hasher.hash_of(page)
        return page

    async def _verify(self, chat_id: str, start: Start, last_message_id: str) -> Start:
        """A restored backup may hold another message where the client's last one was."""
        page = await self._log.read(chat_id, start.after - 1, 1)
        stored = decode_entry(page.entries[0]).message_id if page.entries else None
        return start if is_same_message(last_message_id, stored) else Start(0, True)

    async def sync_after_message(self, user_id: str, message_id: str, limit: int) -> Page:
        """The page after a message; one that is not this person's to see is as unknown as any other."""
        found = await self._log.find_message(message_id, await self._directory.chat_ids_of(user_id))
        if found is None or await self._directory.role(found[0], user_id) is None:
            raise Refused(NOT_FOUND.because("there is no such message"))
        page = await self._log.read(found[0], found[1], min(limit, PAGE_ENTRIES_MAX))
        page.log_hash = await self._hasher.hash_of(page)
        return page

    async def history(self, user_id: str, chat_id: str, before: int, limit: int) -> Page:
        await self.check_member(chat_id, user_id)
        return await self._log.read_before(chat_id, before, min(limit, PAGE_ENTRIES_MAX))

    async def around(self, user_id: str, chat_id: str, place: int | str, limit: int) -> Page:
        """A page with both sides of a position, or of a message; the last page if the log ends before it."""
        await self.check_member(chat_id, user_id)
        sequence = place if isinstance(place, int) else await self._sequence(chat_id, place)
        limit = min(limit, PAGE_ENTRIES_MAX)
        sequence = min(max(sequence, 1), (await self._head(chat_id)).sequence + 1)
        after = await self._log.read(chat_id, sequence - 1, limit - limit // 2)
        before = await self._log.read_before(chat_id, sequence, limit - len(after.entries) - len(after.voids))
        return joined(before, after)

    async def at(self, user_id: str, chat_id: str, time_ms: int, limit: int) -> Page:
        """A page around the first entry that was stored then, or later."""
        await self.check_member(chat_id, user_id)
        beyond = (await self._head(chat_id)).sequence + 1
        first, end = 1, beyond
        while first < end:
            middle = (first + end) // 2
            found = await self._first_entry(chat_id, middle, end)
            if found is None or found.sequence >= end or from_iso(found.created_at) >= time_ms:
                end = middle
            else:
                first = found.sequence + 1
        found = await self._first_entry(chat_id, first, beyond)
        return await self.around(user_id, chat_id, beyond if found is None else found.sequence, limit)

    async def _first_entry(self, chat_id: str, first: int, end: int) -> Entry | None:
        """The first entry from one position on; None if there are only voids before `end`."""
        while first < end:
            page = await self._log.read(chat_id, first - 1, ENTRIES_PER_STEP)
            if page.entries:
                return decode_entry(page.entries[0])
            if page.to_sequence < first:
                return None
            first = page.to_sequence + 1
        return None

    async def find_send(self, user_id: str, chat_id: str, client_key: bytes) -> Entry:
        """What became of a message: only its sender may ask."""
        wire = await self._log.find_key(chat_id, client_key)
        entry = decode_entry(wire) if wire is not None else None
        if entry is None or entry.sender_id != user_id:
            raise Refused(NOT_FOUND.because("no message of yours has this client_message_id in this chat"))
        return entry

    async def acknowledge(
        self, user_id: str, device_id: str, chat_id: str, sequence: int, known_head: int
    ) -> None:
        """Note a device's position; only one above the head in memory costs a read."""
        if sequence > known_head and sequence > (await self._head(chat_id)).sequence:
            raise Refused(AHEAD_OF_LOG)
        self.note_position(user_id, device_id, chat_id, sequence)

    def note_position(self, user_id: str, device_id: str, chat_id: str, sequence: int) -> None:
        """For a position that is known to be within the log."""
        self._cursors.note_acked(user_id, device_id, chat_id, sequence, self._clock())

    async def acknowledge_message(self, user_id: str, device_id: str, chat_id: str, message_id: str) -> int:
        """A receipt for one message moves the cursor unless another's unacknowledged message lies between.

        The log does not know devices: what the person wrote on any of theirs never lies between. Returns how
        many entries at most were looked at.
        """
        found = await self._log.find_message(message_id, [chat_id])
        if found is None:
            raise Refused(NOT_FOUND.because("there is no such message in this chat"))
        cursor = await self._cursors.position(user_id, device_id, chat_id)
        reached = await self._reached(user_id, chat_id, cursor, found[1])
        if reached > cursor:
            self._cursors.note_acked(user_id, device_id, chat_id, reached, self._clock())
        return min(max(found[1] - cursor, 0), RECEIPT_PAGES_MAX * PAGE_ENTRIES_MAX)

    async def _reached(self, user_id: str, chat_id: str, cursor: int, sequence: int) -> int:
        """How far a receipt for `sequence` takes a device at `cursor`; nowhere if it does not count.

        After a bounded number of pages, as far as was looked: the next receipt goes on from there, so that
        a user who wrote much without acknowledging it does not hold their device up for good.
        """
        at = cursor
        for _ in range(RECEIPT_PAGES_MAX):
            if at >= sequence:
                break
            page = await self._log.read(chat_id, at, min(sequence - at, PAGE_ENTRIES_MAX))
            headers = map(decode_header, page.entries)
            if any(header.must_be_received(user_id) and header.sequence < sequence for header in headers):
                return cursor
            if page.to_sequence == at:  # the message is stored, and a number before it still open
                return cursor
            at = page.to_sequence
            if at < sequence:
                await asyncio.sleep(0)  # a page of SQLite is read without giving way to anybody
        return at

    async def mark_read(self, user_id: str, chat_id: str, read_up_to: str | int) -> None:
        """Note how far a person has read; named by a message or by its sequence."""
        sequence = read_up_to if isinstance(read_up_to, int) else await self._sequence(chat_id, read_up_to)
        if sequence > (await self._head(chat_id)).sequence:
            raise Refused(AHEAD_OF_LOG)
        self._cursors.note_read(user_id, chat_id, sequence, self._clock())

    async def _sequence(self, chat_id: str, message_id: str) -> int:
        found = await self._log.find_message(message_id, [chat_id])
        if found is None:
            raise Refused(NOT_FOUND.because("there is no such message in this chat"))
        return found[1]

    async def _head(self, chat_id: str) -> Head:
        heads = await self._log.heads([chat_id])
        head = heads.get(chat_id)
        if head is None:
            raise Refused(NOT_A_MEMBER)
        return head

    async def head(self, chat_id: str) -> int:
        return (await self._head(chat_id)).sequence

    @property
    def rides_with_sends(self) -> bool:
        """Whether positions that were noted before a send are durable with it."""
        return self._cursors.rides_with_appends

    async def flush(self, user_id: str) -> None:
        await self._cursors.flush(user_id)


def joined(before: Page, after: Page) -> Page:
    """Two pages of one log as one, if the second goes on where the first ends; else the second."""
    if before.epoch != after.epoch or before.to_sequence + 1 != after.from_sequence:
        return after if after.entries or after.voids else before
    return Page(
        chat_id=after.chat_id,
        epoch=after.epoch,
        entries=[*before.entries, *after.entries],
        voids=[*before.voids, *after.voids],
        from_sequence=before.from_sequence,
        to_sequence=after.to_sequence,
        head=after.head,
    )


def check_sequence(text: str, name: str, default: int) -> int:
    """A position from a query string."""
    if not text:
        return default
    is_number = text.isascii() and text.isdigit() and len(text) <= SEQUENCE_DIGITS_MAX
    if not is_number or int(text) > SEQUENCE_MAX:
        raise Refused(BAD_REQUEST.because(f"{name} must be a sequence"))
    return int(text)
