"""The `Log` port on DynamoDB: chats are independent, and each takes its batch in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from parley.errors import EntriesTrimmed, StoreDamaged, StoreUnavailable
from parley.model import AppendResult, Draft, Head, Page, Persisted
from parley.store.chat_append import CHATS_AT_ONCE_MAX, append_by_chat
from parley.store.damage import note_damage
from parley.store.dynamodb.append import DynamoAppend, Planner
from parley.store.dynamodb.atomic import AtomicAppends
from parley.store.dynamodb.bundles import item_at, items_of_keys, read_rows
from parley.store.dynamodb.chat_state import DynamoChatStates, is_whole
from parley.store.dynamodb.driver import Item, is_valid_key, map_concurrently, number
from parley.store.dynamodb.entries import sequence_of, whole_entry
from parley.store.dynamodb.prefixes import DynamoPrefixes
from parley.store.dynamodb.scans import table_pages
from parley.store.dynamodb.schema import CHATS, COUNTERS, IMPORTED_IDS
from parley.store.dynamodb.two_phase import TwoPhaseAppends
from parley.store.entries import place_in, tag_of
from parley.store.log_telemetry import NOT_TRACED, count_appended, trace_heads
from parley.store.paging import Row, contiguous, contiguous_down, fitting, hole, page_of, readable
from parley.telemetry import Metrics
from parley.wire.codec import encode_entry

READ_AGAIN_SECONDS = (0.005, 0.02, 0.05, 0.2, 0.0)


class DynamoLog:
    """`appends` is one of the two ways to take a number, and decides how far a log is resolved."""

    def __init__(
        self,
        planner: Planner,
        appends: AtomicAppends | TwoPhaseAppends,
        prefixes: DynamoPrefixes,
        metrics: Metrics,
    ) -> None:
        self._planner = planner
        self._dynamo = planner.dynamo
        self._states: DynamoChatStates = planner.states
        self._appends = appends
        self._atomic = appends if isinstance(appends, AtomicAppends) else None
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

    async def _append_to(self, append: DynamoAppend) -> None:
        state = await self._states.get(append.chat_id) if is_valid_key(append.chat_id) else None
        if state is not None:
            await self._appends.append(append, state)
        else:
            append.decide_without_chat()

    async def seal(self) -> list[Persisted]:
        """In atomic nothing is ever left open; strays of another mode are sealed where they are met."""
        if self._atomic is not None:
            return []
        return await self._prefixes.seal_due()

    # Reading

    async def read(self, chat_id: str, after: int, limit: int) -> Page:
        head = (await self.heads([chat_id])).get(chat_id) or Head(0, 0)
        until = min(after + limit, head.sequence)
        rows: list[Row] = []
        if after < until:
            rows = await self._resolved_rows(chat_id, after, until, forward=True)
        return page_of(chat_id, head.epoch, rows, after, head.sequence)

    async def read_before(self, chat_id: str, before: int, limit: int) -> Page:
        head = (await self.heads([chat_id])).get(chat_id) or Head(0, 0)
        end = max(1, min(before, head.sequence + 1))
        rows: list[Row] = []
        if end > 1 and limit > 0:
            rows = await self._resolved_rows(chat_id, max(0, end - 1 - limit), end - 1, forward=False)
        rows.reverse()
        return page_of(chat_id, head.epoch, rows, end - 1 - len(rows), head.sequence)

    async def _resolved_rows(self, chat_id: str, after: int, until: int, *, forward: bool) -> list[Row]:
        """At least the first, which is there: a page without it was read while it was being committed."""
        for pause in READ_AGAIN_SECONDS:
            rows = await read_rows(self._dynamo, chat_id, after, until, forward=forward)
            rows = fitting(contiguous(rows, after) if forward else contiguous_down(rows, until + 1))
            if rows:
                return self._readable(chat_id, rows)
            missing = after + 1 if forward else until
            if missing <= (await self._trimmed([chat_id])).get(chat_id, 0):
                raise EntriesTrimmed((chat_id, missing))
            await asyncio.sleep(pause)
        missing = after + 1 if forward else until
        if await item_at(self._dynamo, chat_id, missing) is not None:
            raise StoreUnavailable(f"{chat_id} had nothing at {missing}, and now has")
        damage = hole(chat_id, missing)
        note_damage(self._metrics, damage)
        raise damage

    def _readable(self, chat_id: str, rows: list[Row]) -> list[Row]:
        try:
            return readable(chat_id, rows)
        except StoreDamaged as damage:
            note_damage(self._metrics, damage)
            raise

    async def _trimmed(self, chat_ids: Sequence[str]) -> dict[str, int]:
        keys: list[Item] = [{"chat_id": chat_id} for chat_id in chat_ids]
        chats = await self._dynamo.batch_get(CHATS, keys)
        return {str(chat["chat_id"]): number(chat, "trimmed_through") for chat in chats}

    async def heads(self, chat_ids: Sequence[str]) -> dict[str, Head]:
        named = sorted({chat_id for chat_id in chat_ids if is_valid_key(chat_id)})
        if not named:
            return {}
        return await (self._heads_of_counters(named) if self._atomic else self._heads_of_prefixes(named))

    async def _heads_of_counters(self, chat_ids: list[str]) -> dict[str, Head]:
        """A counter that only whole transactions have moved is the head; any other is looked into."""
        keys: list[Item] = [{"chat_id": chat_id} for chat_id in chat_ids]
        counters = {str(c["chat_id"]): c for c in await self._dynamo.batch_get(COUNTERS, keys)}
        heads: dict[str, Head] = {}
        doubtful: list[str] = []
        for chat_id in chat_ids:
            counter = counters.get(chat_id)
            if counter is not None and is_whole(counter) and "epoch" in counter:
                heads[chat_id] = Head(number(counter, "epoch"), number(counter, "sequence_counter"))
            else:
                doubtful.append(chat_id)
        looked = await map_concurrently(self._look_into, doubtful, CHATS_AT_ONCE_MAX)
        found = zip(doubtful, looked, strict=True)
        return heads | {chat_id: head for chat_id, head in found if head is not None}

    async def _look_into(self, chat_id: str) -> Head | None:
        state = await self._states.load(chat_id)
        if state is None:
            return None
        if (state.stray_through or 0) > state.head and self._atomic is not None:
            async with state.lock:
                if (state.stray_through or 0) > state.head:
                    await self._atomic.seal_strays(state)
        return Head(state.epoch, state.head)

    async def _heads_of_prefixes(self, chat_ids: list[str]) -> dict[str, Head]:
        keys: list[Item] = [{"chat_id": chat_id} for chat_id in chat_ids]
        states = [self._states.adopt(chat) for chat in await self._dynamo.batch_get(CHATS, keys)]
        ends = await map_concurrently(self._prefixes.advance, states, CHATS_AT_ONCE_MAX)
        return {state.chat_id: Head(state.epoch, end) for state, end in zip(states, ends, strict=True)}

    async def find_key(self, chat_id: str, client_key: bytes) -> bytes | None:
        keys = self._planner.keys
        found = await keys.find_stored(chat_id, [client_key]) if is_valid_key(chat_id) else {}
        if client_key not in found:
            return None
        key = found[client_key]
        item = (await items_of_keys(self._dynamo, [key])).get(sequence_of(key))
        if item is None and sequence_of(key) <= (await self._trimmed([chat_id])).get(chat_id, 0):
            raise EntriesTrimmed((chat_id, sequence_of(key)))
        entry = whole_entry(item) if item is not None else None
        return None if entry is None else encode_entry(entry)

    async def find_message(self, message_id: str, chat_ids: Sequence[str] | None) -> tuple[str, int] | None:
        """The id says where to look; the log says whether it is there."""
        place = place_in(message_id)
        if place is None:
            return None
        tag, sequence = place
        named = _tagged(chat_ids or (), tag)
        if chat_ids is None:
            async for chats in table_pages(self._dynamo, CHATS, projection="chat_id"):
                named += _tagged([str(chat["chat_id"]) for chat in chats], tag)
        places = [(chat_id, sequence) for chat_id in named]
        imported = await self._dynamo.get(IMPORTED_IDS, {"message_id": message_id})
        if imported is not None and (chat_ids is None or imported["chat_id"] in chat_ids):
            places.append((str(imported["chat_id"]), sequence_of(imported)))
        archived: list[tuple[str, int]] = []
        for chat_id, sequence in places:
            item = await item_at(self._dynamo, chat_id, sequence)
            if item is not None and item.get("message_id") == message_id:
                return chat_id, sequence_of(item)
            if item is None and sequence <= (await self._trimmed([chat_id])).get(chat_id, 0):
                archived.append((chat_id, sequence))
        if archived:
            raise EntriesTrimmed(*archived)
        return None


def _tagged(chat_ids: Sequence[str], tag: int) -> list[str]:
    """Those of which an id with this tag can be."""
    return [chat_id for chat_id in chat_ids if is_valid_key(chat_id) and tag_of(chat_id) == tag]
