"""The port `DeadLetters` on DynamoDB.

Letters are in shards by a hash of their id. Those that wait for their replay have an item in `replay_queue`
too, written in the same transaction. That table is sorted by recipient, chat and sequence, and is read
strongly, so a replay sees the order of each chat. The sparse index `pending` is for the metric.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from itertools import groupby
from typing import Any, cast

import msgspec

from parley.clock import MS_PER_SECOND
from parley.dynamodb import (
    Action,
    ConditionFailed,
    Delete,
    Dynamo,
    Item,
    Put,
    TransactionCanceled,
    is_valid_key,
    map_concurrently,
    retry_unknown,
)
from parley.store.delivery.rows import (
    LETTER_DAYS,
    DeadLetter,
    DeliveryEvent,
    LetterStatus,
    Selection,
    discarded_letter,
    is_selected,
    queued_letter,
)
from parley.store.dynamodb.schema import DEAD_LETTERS, REPLAY_QUEUE, SEPARATOR

SHARDS = 16
SHARDS_AT_ONCE_MAX = 8
WRITES_AT_ONCE_MAX = 16
TTL_SECONDS = (LETTER_DAYS + 2) * 86_400
"""Later than the job that expires letters and records it: DynamoDB deletes what that job has missed."""
SEQUENCE_DIGITS = 20
PENDING_ONLY = Selection(status=LetterStatus.PENDING)

encode = msgspec.json.Encoder().encode
decode_events = msgspec.json.Decoder(tuple[DeliveryEvent, ...]).decode

Change = Callable[[DeadLetter], DeadLetter]


class DynamoDeadLetters:
    """`make_token`: a new one for every transaction."""

    def __init__(self, dynamo: Dynamo, make_token: Callable[[], str]) -> None:
        self._dynamo = dynamo
        self._make_token = make_token

    async def add(self, letter: DeadLetter) -> bool:
        try:
            await retry_unknown(
                lambda: self._dynamo.put(
                    DEAD_LETTERS, letter_item(letter), condition="attribute_not_exists(dlq_id)"
                )
            )
        except ConditionFailed:
            return False
        return True

    async def find(self, selection: Selection, before_id: str, limit: int) -> list[DeadLetter]:
        if selection.ids is not None:
            found = await self._by_ids(selection)
            found = [letter for letter in found if not before_id or letter.dlq_id < before_id]
        else:

            async def look(shard: int) -> list[DeadLetter]:
                letters: list[DeadLetter] = []
                async for items in self._pages(shard, selection, before_id):
                    letters += map(letter_in, items)
                    if len(letters) >= limit:
                        break
                return letters

            shards = await map_concurrently(look, range(SHARDS), SHARDS_AT_ONCE_MAX)
            found = [letter for letters in shards for letter in letters]
        return sorted(found, key=lambda letter: letter.dlq_id, reverse=True)[:limit]

    async def count(self, selection: Selection) -> dict[str, int]:
        if selection.ids is not None:
            return dict(Counter(letter.error for letter in await self._by_ids(selection)))

        async def count_in(shard: int) -> Counter[str]:
            if selection == PENDING_ONLY:
                items = await self._dynamo.query_all(
                    DEAD_LETTERS, "pending = :shard", {":shard": shard}, index="pending"
                )
                return Counter(cast(str, item["error"]) for item in items)
            errors: Counter[str] = Counter()
            async for items in self._pages(shard, selection, projection="#error"):
                errors.update(cast(str, item["error"]) for item in items)
            return errors

        counted = await map_concurrently(count_in, range(SHARDS), SHARDS_AT_ONCE_MAX)
        return dict(sum(counted, Counter[str]()))

    async def queue(self, selection: Selection, job_id: str, event: DeliveryEvent) -> int:
        return await self._change(
            selection,
            lambda letter: not letter.is_queued,
            lambda letter: queued_letter(letter, job_id, event),
        )

    async def discard(self, selection: Selection, job_id: str, event: DeliveryEvent) -> int:
        return await self._change(
            selection, lambda _: True, lambda letter: discarded_letter(letter, job_id, event)
        )

    async def queued(self, prefix: str, limit: int) -> list[DeadLetter]:
        async def fronts(shard: int) -> list[str]:
            keys, values = "shard_no = :shard", Item({":shard": shard})
            if prefix:
                keys, values = f"{keys} AND begins_with(place, :prefix)", values | {":prefix": prefix}
            items = await self._dynamo.query_all(REPLAY_QUEUE, keys, values)
            lanes = groupby(items, key=lambda item: cast(str, item["place"]).rpartition(SEPARATOR)[0])
            return [cast(str, item["dlq_id"]) for _, lane in lanes for item in list(lane)[:limit]]

        shards = await map_concurrently(fronts, range(SHARDS), SHARDS_AT_ONCE_MAX)
        ids = tuple(dlq_id for shard in shards for dlq_id in shard)
        found = await self._by_ids(Selection(ids=ids, is_queued=True))
        return sorted(found, key=lambda letter: (letter.recipient, letter.chat_id, letter.sequence))

    async def settle(self, letter: DeadLetter) -> bool:
        changed = msgspec.structs.replace(letter, version=letter.version + 1)
        return await self._write(changed, was_queued=not letter.is_queued)

    async def expire(self, before_ms: int) -> int:
        """Each is deleted only if nothing has happened to it since it was read."""

        async def expire_in(shard: int) -> int:
            gone = 0
            async for items in self._pages(shard, Selection(is_queued=False)):
                letters = [letter for letter in map(letter_in, items) if letter.changed_ms < before_ms]
                gone += sum(await map_concurrently(self._delete, letters, WRITES_AT_ONCE_MAX))
            return gone

        return sum(await map_concurrently(expire_in, range(SHARDS), 1))

    async def _delete(self, letter: DeadLetter) -> bool:
        try:
            await retry_unknown(
                lambda: self._dynamo.delete(
                    DEAD_LETTERS,
                    _key(letter.dlq_id),
                    condition="attribute_not_exists(dlq_id) OR version = :version",
                    values={":version": letter.version},
                )
            )
        except ConditionFailed:
            return False
        return True

    # Changes of many letters

    async def _change(
        self, selection: Selection, concerns: Callable[[DeadLetter], bool], change: Change
    ) -> int:
        """In the order of each chat, several recipients and chats at once."""
        if selection.status not in (None, LetterStatus.PENDING):
            return 0
        wanted = msgspec.structs.replace(selection, status=LetterStatus.PENDING)
        letters = [letter async for letter in self._all(wanted) if concerns(letter)]
        letters.sort(key=lambda letter: (letter.recipient, letter.chat_id, letter.sequence))
        lanes = [
            list(lane) for _, lane in groupby(letters, key=lambda letter: (letter.recipient, letter.chat_id))
        ]

        async def change_lane(lane: list[DeadLetter]) -> int:
            return sum([await self._write(change(letter), was_queued=letter.is_queued) for letter in lane])

        return sum(await map_concurrently(change_lane, lanes, WRITES_AT_ONCE_MAX))

    async def _all(self, selection: Selection) -> AsyncIterator[DeadLetter]:
        if selection.ids is not None:
            for letter in await self._by_ids(selection):
                yield letter
            return
        for shard in range(SHARDS):
            async for items in self._pages(shard, selection):
                for item in items:
                    yield letter_in(item)

    async def _write(self, letter: DeadLetter, *, was_queued: bool) -> bool:
        """Replace the version before this one, together with the letter's place in the queue."""
        before = letter.version - 1
        values: Item = {":before": before}
        actions: list[Action] = [Put(DEAD_LETTERS, letter_item(letter), "version = :before", values)]
        if letter.is_queued:
            actions.append(Put(REPLAY_QUEUE, queue_item(letter)))
        elif was_queued:
            actions.append(Delete(REPLAY_QUEUE, _place(letter)))
        token = self._make_token()
        try:
            await retry_unknown(lambda: self._dynamo.transact(actions, token))
        except TransactionCanceled:
            return False
        return True

    # Reading

    async def _by_ids(self, selection: Selection) -> list[DeadLetter]:
        asked = [dlq_id for dlq_id in dict.fromkeys(selection.ids or ()) if is_valid_key(dlq_id)]
        items = await self._dynamo.batch_get(DEAD_LETTERS, [_key(dlq_id) for dlq_id in asked])
        return [letter for letter in map(letter_in, items) if is_selected(letter, selection)]

    async def _pages(
        self, shard: int, selection: Selection, before_id: str = "", projection: str | None = None
    ) -> AsyncIterator[list[Item]]:
        """The letters of a shard, the highest id first."""
        condition, values, names = _filter(selection)
        keys, wanted = "shard_no = :shard", Item({":shard": shard, **values})
        if before_id:
            keys, wanted = f"{keys} AND dlq_id < :id", wanted | {":id": before_id}
        if projection is not None:
            names = {**names, "#error": "error"}
        start: Item | None = None
        while True:
            page = await self._dynamo.query(
                DEAD_LETTERS,
                keys,
                wanted,
                names=names,
                filter=condition,
                forward=False,
                start=start,
                projection=projection,
            )
            yield page.items
            start = page.next_key
            if start is None:
                return
            await asyncio.sleep(0)


def _conditions(selection: Selection) -> list[tuple[str, str, str | int | bool]]:
    """Attribute, comparison and value of everything that is given, but the ids."""
    given: list[tuple[str, str, str | int | bool | None]] = [
        ("status", "=", selection.status and selection.status.value),
        ("is_queued", "=", selection.is_queued),
        ("error", "=", selection.error),
        ("source_topic", "=", selection.topic),
        ("chat_id", "=", selection.chat_id),
        ("recipient", "=", selection.recipient),
        ("job_id", "=", selection.job_id),
        ("dlq_ms", ">=", selection.after_ms),
        ("dlq_ms", "<", selection.before_ms),
    ]
    return [(name, sign, value) for name, sign, value in given if value is not None]


def _filter(selection: Selection) -> tuple[str | None, Item, dict[str, str]]:
    """As a filter of a query. Every name is passed by itself: some are words of DynamoDB."""
    conditions = _conditions(selection)
    texts = [f"#{name} {sign} :value{n}" for n, (name, sign, _) in enumerate(conditions)]
    values: Item = {f":value{n}": value for n, (_, _, value) in enumerate(conditions)}
    return " AND ".join(texts) or None, values, {f"#{name}": name for name, _, _ in conditions}


def _key(dlq_id: str) -> Item:
    return {"shard_no": zlib.crc32(dlq_id.encode()) % SHARDS, "dlq_id": dlq_id}


def _place(letter: DeadLetter) -> Item:
    """The key in the queue: letters of one recipient and chat are in one shard, in their order."""
    lane = f"{letter.recipient}{SEPARATOR}{letter.chat_id}"
    place = f"{lane}{SEPARATOR}{letter.sequence:0{SEQUENCE_DIGITS}}"
    return {"shard_no": zlib.crc32(lane.encode()) % SHARDS, "place": place}


def queue_item(letter: DeadLetter) -> Item:
    """The item of a letter that waits for its replay."""
    return {**_place(letter), "dlq_id": letter.dlq_id}


def letter_item(letter: DeadLetter) -> Item:
    item: Item = {
        **msgspec.structs.asdict(letter),
        **_key(letter.dlq_id),
        "status": letter.status.value,
        "history": encode(letter.history).decode(),
    }
    if letter.status is LetterStatus.PENDING:
        item["pending"] = item["shard_no"]
    if not letter.is_queued:
        item["ttl"] = letter.changed_ms // MS_PER_SECOND + TTL_SECONDS
    return item


def letter_in(item: Item) -> DeadLetter:
    values: dict[str, Any] = {name: item[name] for name in DeadLetter.__struct_fields__}
    values |= {
        "status": LetterStatus(values["status"]),
        "history": decode_events(cast(str, item["history"])),
    }
    return DeadLetter(**values)
