"""The `Cursors`, `MemberStates` and `Overviews` ports in memory."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence

from parley.clock import iso
from parley.errors import Refused
from parley.model import (
    ChatSummary,
    CursorMove,
    Kind,
    MemberCursor,
    MemberSettings,
    Notify,
    OverviewPage,
    ReceiptKind,
)
from parley.store.notes import NOTHING, Mark, Notes, notify_all
from parley.store.rules import NEWEST, NO_TOKEN
from parley.wire.codec import decode_entry
from parley.wire.limits import PAGE_BYTES_MAX, UNREAD_LOOKED_AT_MAX, UNREAD_MAX
from tests.memory.tables import MemoryChat, MemoryState, Tables

COMMIT_SECONDS = 0.05
TOKEN = re.compile(r"([0-9]{1,18})@([0-9]{1,18})", re.ASCII)
"""The last listed change, and the last change when the list began."""


class MemoryCursors:
    rides_with_appends = True

    def __init__(self, tables: Tables) -> None:
        self._listeners: list[Callable[[list[CursorMove]], None]] = []
        self._tables = tables
        self._notes = Notes()
        self._timer: asyncio.TimerHandle | None = None

    def subscribe(self, notify: Callable[[list[CursorMove]], None]) -> None:
        self._listeners.append(notify)

    def note_acked(self, user_id: str, device_id: str, chat_id: str, sequence: int, now_ms: int) -> None:
        self._notes.note_acked(user_id, device_id, chat_id, (sequence, now_ms))
        self._commit_soon()

    def note_read(self, user_id: str, chat_id: str, sequence: int, now_ms: int) -> None:
        self._notes.note_read(user_id, chat_id, (sequence, now_ms))
        self._commit_soon()

    def _commit_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(COMMIT_SECONDS, self.commit)

    def commit(self) -> None:
        """Make all notes durable, and call the listener once with each position that rose."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        notes, self._notes = self._notes, Notes()
        changed = set[tuple[str, str]]()
        for device, (sequence, _) in notes.acked.items():
            if sequence > self._tables.devices.get(device, 0):
                self._tables.devices[device] = sequence
                changed.add((device[0], device[2]))
        moves = self._raise(notes.delivered(), ReceiptKind.DELIVERED) + self._raise(
            notes.read, ReceiptKind.READ
        )
        for place in changed | {(move.user_id, move.chat_id) for move in moves}:
            state = self._tables.states.get(place)
            if state is not None and state.left_at is None:
                state.change = self._tables.next_change()
        if moves:
            notify_all(self._listeners, moves)

    def _raise(self, marks: dict[tuple[str, str], Mark], kind: ReceiptKind) -> list[CursorMove]:
        """The positions of this kind that rise."""
        moves = []
        for place, (sequence, at_ms) in marks.items():
            state, name = self._tables.states.get(place), kind.value
            if state is not None and sequence > getattr(state, name)[0]:
                setattr(state, name, (sequence, iso(at_ms)))
                moves.append(CursorMove(*place, kind, sequence, iso(at_ms)))
        return moves

    async def flush(self, user_id: str | None = None) -> None:
        self.commit()

    async def forget_device(self, user_id: str, device_id: str) -> None:
        self.commit()
        devices = self._tables.devices
        for device in [device for device in devices if device[:2] == (user_id, device_id)]:
            del devices[device]

    async def position(self, user_id: str, device_id: str, chat_id: str) -> int:
        """Includes notes."""
        device = user_id, device_id, chat_id
        return max(self._notes.acked.get(device, NOTHING)[0], self._tables.devices.get(device, 0))


class MemoryOverviews:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def changed(
        self, user_id: str, device_id: str, after: str | None, limit: int, brief: bool = False
    ) -> OverviewPage:
        last = self._tables.changes
        if after is not None and after.startswith(NEWEST):
            return self._newest(user_id, device_id, after[len(NEWEST) :] or f"~/~@{last}", limit, brief)
        change, began = (-1, last) if after is None else _parse(after)
        found: list[tuple[int, ChatSummary]] = []
        size = 0
        for latest, chat, state in self._changed(user_id, change, began):
            at = self._summary(user_id, device_id, chat, state, brief)
            size += len(at.last_entry or b"")
            if len(found) == limit or (found and size > PAGE_BYTES_MAX):
                return OverviewPage([at for _, at in found], f"{found[-1][0]}@{began}", False)
            found.append((latest, at))
        return OverviewPage([at for _, at in found], f"{max(last, change)}@0", True)

    def _newest(self, user_id: str, device_id: str, after: str, limit: int, brief: bool) -> OverviewPage:
        place, _, began = after.partition("@")
        found: list[tuple[str, ChatSummary]] = []
        for (person, chat_id), state in self._tables.states.items():
            chat = self._tables.chats[chat_id]
            if person == user_id and state.left_at is None:
                wires = [chat.wires[at] for at in sorted(chat.wires) if at <= chat.head]
                time = decode_entry(wires[-1]).created_at if wires else chat.chat.created_at
                summary = self._summary(user_id, device_id, chat, state, brief)
                found.append((f"{time}/{chat_id}", summary))
        found = sorted((one for one in found if one[0] < place), key=lambda one: one[0], reverse=True)
        if len(found) > limit:
            return OverviewPage(
                [at for _, at in found[:limit]], f"{NEWEST}{found[limit - 1][0]}@{began}", False
            )
        return OverviewPage([at for _, at in found], f"{began}@0", True)

    def _changed(self, user_id: str, change: int, began: int) -> list[tuple[int, MemoryChat, MemoryState]]:
        """A person's chats that changed after this change, in the order of changes.

        Leaves out chats that the person left before the list began.
        """
        found = []
        for (person, chat_id), state in self._tables.states.items():
            chat, has_left = self._tables.chats[chat_id], state.left_at is not None
            latest = state.change if has_left else max(state.change, chat.change)
            if person == user_id and latest > change and not (has_left and state.change <= began):
                found.append((latest, chat, state))
        return sorted(found, key=lambda one: one[0])

    def _summary(
        self, user_id: str, device_id: str, chat: MemoryChat, state: MemoryState, brief: bool
    ) -> ChatSummary:
        record, has_left = chat.chat, state.left_at is not None
        unread, more = (0, False) if has_left else _unread(user_id, chat, state.read[0])
        entries = [] if brief or has_left else [at for at in chat.wires if at <= chat.head]
        return ChatSummary(
            chat_id=record.chat_id,
            epoch=record.epoch,
            head=chat.head if state.left_at is None else state.left_at,
            last_acked_sequence=self._tables.devices.get((user_id, device_id, record.chat_id), 0),
            read_up_to=state.read[0],
            unread=unread,
            unread_more=more,
            left=has_left,
            chat_type=record.chat_type,
            title=None if has_left else record.title,
            peer_id=next((person for person in chat.pair if person != user_id), None),
            last_entry=chat.wires[max(entries)] if entries else None,
            muted_until=None if has_left else state.muted_until,
        )


class MemoryMemberStates:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def cursors(self, chat_id: str) -> list[MemberCursor]:
        chat = self._tables.chats.get(chat_id)
        found = []
        for user_id, member in sorted(chat.members.items()) if chat is not None else ():
            state = self._tables.states.get((user_id, chat_id), MemoryState(0))
            found.append(MemberCursor(user_id, member.joined_sequence, *state.delivered, *state.read))
        return found

    async def mute(self, user_id: str, chat_id: str, until: str | None) -> None:
        state = self._tables.states.get((user_id, chat_id))
        if state is not None and state.left_at is None and state.muted_until != until:
            state.muted_until, state.change = until, self._tables.next_change()

    async def set_notify(self, user_id: str, chat_id: str, notify: Notify) -> None:
        state = self._tables.states.get((user_id, chat_id))
        if state is not None and state.left_at is None:
            state.notify = notify

    async def settings(self, chat_id: str, user_ids: Sequence[str]) -> dict[str, MemberSettings]:
        found = {user_id: MemberSettings() for user_id in user_ids}
        for user_id in user_ids:
            state = self._tables.states.get((user_id, chat_id))
            if state is not None and state.left_at is None:
                acked, read = state.delivered[0], state.read[0]
                found[user_id] = MemberSettings(state.notify, state.muted_until, acked, read)
        return found

    async def forget_cursors(self, user_id: str, *, dry: bool = False) -> int:
        found = [device for device in self._tables.devices if device[0] == user_id]
        for device in () if dry else found:
            del self._tables.devices[device]
        return len(found)


def _unread(user_id: str, chat: MemoryChat, read_up_to: int) -> tuple[int, bool]:
    """How many messages of others are unread, and whether there may be more."""
    after = max(read_up_to, chat.head - UNREAD_LOOKED_AT_MAX)
    entries = [chat.entries[at] for at in range(max(after, chat.trimmed) + 1, chat.head + 1)]
    found = sum(
        entry is not None
        and entry.kind == Kind.MESSAGE
        and entry.sender_id != user_id
        and entry.deleted is not True
        for entry in entries
    )
    return min(found, UNREAD_MAX), found > UNREAD_MAX or read_up_to < after


def _parse(token: str) -> tuple[int, int]:
    found = TOKEN.fullmatch(token)
    if found is None:
        raise Refused(NO_TOKEN)
    return int(found[1]), int(found[2])
