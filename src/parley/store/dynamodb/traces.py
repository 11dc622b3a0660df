"""What a chat's tables know of the numbers that were given: the traces that a recovery follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from msgspec import Struct

from parley.store.dynamodb.changes import DELIVERY
from parley.store.dynamodb.client import Dynamo, Item
from parley.store.dynamodb.counters import Counters
from parley.store.dynamodb.cursor_writing import DEVICES
from parley.store.dynamodb.entries import KEYS, MESSAGES, VOID, sequence_of
from parley.store.dynamodb.states import CHATS, number
from parley.store.dynamodb.together import together
from parley.store.recovery import Found

POSITIONS_PER_LOOK = 100
LOOKS_AT_ONCE_MAX = 16
SEQUENCE = {"#s": "sequence"}


class Reported(Struct):
    """The furthest that devices, and people, say they have come."""

    devices: int = 0
    people: int = 0


async def reported_in(dynamo: Dynamo, chat_ids: Sequence[str]) -> dict[str, Reported]:
    """What everybody said of these chats, who left too: both tables are read once, however many chats."""
    reported = {chat_id: Reported() for chat_id in chat_ids}
    for table in (DEVICES, DELIVERY):
        start: Item | None = None
        while True:
            page = await _page(dynamo, table, chat_ids, start)
            for row in page[0]:
                found = reported.get(cast(str, row.get("chat_id")))
                if found is not None and table == DEVICES:
                    found.devices = max(found.devices, number(row, "last_acked_sequence"))
                elif found is not None:
                    furthest = max(number(row, "last_acked_sequence"), number(row, "read_up_to"))
                    found.people = max(found.people, furthest)
            start = page[1]
            if start is None:
                break
    return reported


async def _page(
    dynamo: Dynamo, table: str, chat_ids: Sequence[str], start: Item | None
) -> tuple[list[Item], Item | None]:
    """One page of a table; of one chat alone, only its rows travel."""
    only = {":chat": chat_ids[0]} if len(chat_ids) == 1 else None
    page = await dynamo.scan(
        table,
        filter="chat_id = :chat" if only else None,
        values=cast("Item | None", only),
        projection="chat_id, last_acked_sequence, read_up_to",
        start=start,
    )
    return page.items, page.next_key


async def look(dynamo: Dynamo, chat: Item, counter: int | None, reported: Reported) -> Found:
    """The highest number that each table knows of."""
    chat_id = cast(str, chat["chat_id"])
    last, last_entry = await _ends(dynamo, chat_id)
    keys = await dynamo.query_all(
        KEYS, "chat_id = :chat", {":chat": chat_id}, projection="#s", names=SEQUENCE
    )
    return Found(
        chat_id=chat_id,
        counter=counter,
        entries=last_entry,
        voids=last if last > last_entry else 0,
        keys=max((number(key, "sequence") for key in keys), default=0),
        trimmed=number(chat, "trimmed_through"),
        device_cursors=reported.devices,
        delivery_state=reported.people,
    )


async def _ends(dynamo: Dynamo, chat_id: str) -> tuple[int, int]:
    """The highest position of a log, and the highest that is not void."""
    last, start = 0, cast("Item | None", None)
    while True:
        page = await dynamo.query(
            MESSAGES,
            "chat_id = :chat",
            {":chat": chat_id},
            names={**SEQUENCE, "#k": "kind"},
            projection="#s, #k",
            forward=False,
            limit=POSITIONS_PER_LOOK,
            start=start,
        )
        for item in page.items:
            last = max(last, sequence_of(item))
            if item.get("kind") != VOID:
                return last, sequence_of(item)
        start = page.next_key
        if start is None:
            return last, 0


async def holes(dynamo: Dynamo, chat_id: str, first: int, last: int) -> list[tuple[int, int]]:
    """Stretches from `first` to `last` where the log has nothing."""
    if first > last:
        return []
    found, expected, start = list[tuple[int, int]](), first, cast("Item | None", None)
    while True:
        page = await dynamo.query(
            MESSAGES,
            "chat_id = :chat AND #s BETWEEN :first AND :last",
            {":chat": chat_id, ":first": first, ":last": last},
            names=SEQUENCE,
            projection="#s",
            start=start,
        )
        for sequence in map(sequence_of, page.items):
            if sequence > expected:
                found.append((expected, sequence - 1))
            expected = sequence + 1
        start = page.next_key
        if start is None:
            return [*found, (expected, last)] if expected <= last else found


async def chats_without_counter(dynamo: Dynamo, counters: Counters) -> list[str]:
    """Every chat whose counter is gone; and of an allocator elsewhere, those that it has fallen back in."""
    lost: list[str] = []
    start: Item | None = None
    while True:
        page = await dynamo.scan(CHATS, projection="chat_id", start=start)
        chat_ids = [cast(str, chat["chat_id"]) for chat in page.items]
        states = await together(lambda chat: _is_lost(dynamo, counters, chat), chat_ids, LOOKS_AT_ONCE_MAX)
        lost += [chat_id for chat_id, is_lost in zip(chat_ids, states, strict=True) if is_lost]
        start = page.next_key
        if start is None:
            return sorted(lost)


async def _is_lost(dynamo: Dynamo, counters: Counters, chat_id: str) -> bool:
    counter = await counters.read(chat_id)
    if counter.last is None or counters.allocator is None:
        return counter.last is None
    return counter.last < (await _ends(dynamo, chat_id))[0]
