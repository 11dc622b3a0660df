"""The `Log` port on Cassandra: chats are independent, and each takes its batch in one partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from parley.concurrency import map_concurrently
from parley.errors import EntriesTrimmed, StoreDamaged
from parley.model import AppendResult, Draft, Head, Page, Persisted
from parley.store.cassandra.append import AppendPlanner, CassandraAppend
from parley.store.cassandra.atomic import CassandraAtomicAppends
from parley.store.cassandra.client import is_key
from parley.store.cassandra.prefixes import CassandraPrefixes
from parley.store.cassandra.schema import CHATS, IMPORTED_IDS
from parley.store.cassandra.two_phase import CassandraTwoPhaseAppends
from parley.store.chat_append import CHATS_AT_ONCE_MAX, append_by_chat
from parley.store.damage import note_damage
from parley.store.entries import place_in, tag_of
from parley.store.log_telemetry import NOT_TRACED, count_appended, trace_heads
from parley.store.paging import (
    Row,
    contiguous,
    contiguous_down,
    fitting,
    hole,
    page_of,
    readable,
    stored_entry,
)
from parley.telemetry import Metrics

READ_IMPORTED = f"SELECT chat_id, sequence FROM {IMPORTED_IDS} WHERE message_id = ?"


class CassandraLog:
    """`appends` is one of the two ways to take a number, and decides how far a log is resolved."""

    def __init__(
        self,
        planner: AppendPlanner,
        appends: CassandraAtomicAppends | CassandraTwoPhaseAppends,
        prefixes: CassandraPrefixes,
        metrics: Metrics,
    ) -> None:
        self._planner = planner
        self._states = planner.states
        self._rows = planner.rows
        self._appends = appends
        self._atomic = appends if isinstance(appends, CassandraAtomicAppends) else None
        self._prefixes = prefixes
        self._metrics = metrics

    async def append(self, drafts: Sequence[Draft]) -> AppendResult:
        heads = trace_heads(drafts, self._known_head) if self._atomic is not None else NOT_TRACED
        result = await append_by_chat(drafts, self._append_to, self._metrics)
        count_appended(self._metrics, drafts, result, self._atomic is not None, heads)
        return result

    def _known_head(self, chat_id: str) -> int | None:
        state = self._states.known(chat_id)
        return None if state is None else state.head

    async def _append_to(self, append: CassandraAppend) -> None:
        state = await self._states.get(append.chat_id)
        if state is not None:
            await self._appends.append(append, state)
        else:
            append.decide_without_chat()

    async def seal(self) -> list[Persisted]:
        """In atomic nothing is ever left open; strays of another mode are sealed where they are met."""
        return [] if self._atomic is not None else await self._prefixes.seal_due()

    # Reading

    async def read(self, chat_id: str, after: int, limit: int) -> Page:
        head = (await self.heads([chat_id])).get(chat_id) or Head(0, 0)
        until = min(after + limit, head.sequence)
        rows: list[Row] = []
        if after < until:
            rows = fitting(contiguous(await self._stretch(chat_id, after, until), after))
            if not rows:
                await self._refuse(chat_id, after + 1)
            rows = self._readable(chat_id, rows)
        return page_of(chat_id, head.epoch, rows, after, head.sequence)

    async def read_before(self, chat_id: str, before: int, limit: int) -> Page:
        head = (await self.heads([chat_id])).get(chat_id) or Head(0, 0)
        end = max(1, min(before, head.sequence + 1))
        rows: list[Row] = []
        if end > 1 and limit > 0:
            found = await self._stretch(chat_id, max(0, end - 1 - limit), end - 1, forward=False)
            rows = fitting(contiguous_down(found, end))
            if not rows:
                await self._refuse(chat_id, end - 1)
            rows = self._readable(chat_id, rows)
        rows.reverse()
        return page_of(chat_id, head.epoch, rows, end - 1 - len(rows), head.sequence)

    async def _refuse(self, chat_id: str, missing: int) -> NoReturn:
        """Nothing is at this position, which the log has: it was trimmed, or lost."""
        if missing <= await self._rows.trimmed(chat_id):
            raise EntriesTrimmed((chat_id, missing))
        damage = hole(chat_id, missing)
        note_damage(self._metrics, damage)
        raise damage

    def _readable(self, chat_id: str, rows: list[Row]) -> list[Row]:
        try:
            return readable(chat_id, rows)
        except StoreDamaged as damage:
            note_damage(self._metrics, damage)
            raise

    async def _stretch(self, chat_id: str, after: int, until: int, *, forward: bool = True) -> list[Row]:
        rows = await self._rows.rows(chat_id, after, until, "wire", forward=forward)
        return [(row["sequence"], row["wire"]) for row in rows]

    async def heads(self, chat_ids: Sequence[str]) -> dict[str, Head]:
        named = sorted({chat_id for chat_id in chat_ids if is_key(chat_id)})
        found = await map_concurrently(self._head, named, CHATS_AT_ONCE_MAX)
        return {chat_id: head for chat_id, head in zip(named, found, strict=True) if head is not None}

    async def _head(self, chat_id: str) -> Head | None:
        """A change that is pending gets its effects before anybody learns of it."""
        state = self._states.known(chat_id)
        if state is None or state.trouble is not None:
            state = await self._states.load(chat_id)
        else:
            await self._states.refresh_fence(state)
        if state is None:
            return None
        if self._atomic is None:
            return Head(state.epoch, await self._prefixes.advance(state))
        if (state.stray_through or 0) > state.head:
            async with state.lock:
                if (state.stray_through or 0) > state.head:
                    await self._atomic.seal_strays(state)
        return Head(state.epoch, state.head)

    async def find_key(self, chat_id: str, client_key: bytes) -> bytes | None:
        state = await self._states.load(chat_id)
        if state is None:
            return None
        key = (await self._rows.keys(state, [client_key])).get(client_key)
        if key is None:
            return None
        row = await self._rows.at(chat_id, key.sequence)
        if row is None and key.sequence <= await self._rows.trimmed(chat_id):
            raise EntriesTrimmed((chat_id, key.sequence))
        if row is None or row["wire"] is None:
            return None
        stored_entry(chat_id, row["wire"], key.sequence)
        return bytes(row["wire"])

    async def find_message(self, message_id: str, chat_ids: Sequence[str] | None) -> tuple[str, int] | None:
        """The id says where to look; the log says whether it is there."""
        place = place_in(message_id)
        if place is None:
            return None
        tag, sequence = place
        named = _tagged(chat_ids or (), tag)
        if chat_ids is None:
            async for rows in self._states.cassandra.pages(f"SELECT chat_id FROM {CHATS}"):
                named += _tagged([row["chat_id"] for row in rows], tag)
        places = [(chat_id, sequence) for chat_id in named]
        imported = await self._states.cassandra.row(READ_IMPORTED, message_id)
        if imported is not None and (chat_ids is None or imported["chat_id"] in chat_ids):
            places.append((imported["chat_id"], imported["sequence"]))
        archived: list[tuple[str, int]] = []
        for chat_id, at in places:
            row = await self._rows.at(chat_id, at)
            if row is not None and row["message_id"] == message_id:
                return chat_id, at
            if row is None and at <= await self._rows.trimmed(chat_id):
                archived.append((chat_id, at))
        if archived:
            raise EntriesTrimmed(*archived)
        return None


def _tagged(chat_ids: Sequence[str], tag: int) -> list[str]:
    """Those of which an id with this tag can be."""
    return [chat_id for chat_id in chat_ids if is_key(chat_id) and tag_of(chat_id) == tag]
