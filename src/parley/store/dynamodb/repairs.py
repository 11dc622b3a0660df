"""The `Repairs` port on DynamoDB, for counters in the tables and for an allocator in another service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import cast

from msgspec import Struct

from parley import ids
from parley.clock import Clock, iso
from parley.errors import CounterMissingError, StoreUnavailable
from parley.store.dynamodb.bundles import SPAN, SPAN_NAMES, bundle_across, end_of
from parley.store.dynamodb.chat_state import UNKEYED_MAX
from parley.store.dynamodb.counters import Counters
from parley.store.dynamodb.driver import (
    ACTIONS_MAX,
    ConditionFailed,
    Dynamo,
    Item,
    TransactionCanceled,
    UpdateItem,
    is_valid_key,
    map_concurrently,
    number,
    retry_unknown,
)
from parley.store.dynamodb.entries import FAILED, VOID, put_void, sequence_of
from parley.store.dynamodb.scans import table_pages
from parley.store.dynamodb.schema import CHATS, COUNTERS, DELIVERY, DEVICES, KEYS, MESSAGES
from parley.store.entries import UNPUBLISHED_SHARDS, tag_of
from parley.store.invariants import NoSuchChat
from parley.store.rows import Remains, Repair

PUBLISHED_AGAIN = 1_000
"""The mark of the bus is lost with the counter: this many last entries are published again."""
READS_AT_ONCE_MAX = 16
POSITIONS_PER_READ = 100
SEQUENCE = {"#s": "sequence"}

PUT_COUNTER = (
    "SET sequence_counter = :counter, written_through = :counter, epoch = :epoch,"
    " membership_revision = :revision, created_at = if_not_exists(created_at, :now), updated_at = :now,"
    " recovered_at = :now, recovered_from_sequence = :counter,"
    " published_through = :published, unpublished = :shard, keys_through = :keyed"
)
NEW_REVISION = "SET membership_revision = :revision"
AUDIT = f"{NEW_REVISION}, recovered_at = :now, recovered_from_sequence = :counter"


class Reported(Struct):
    """The highest positions that devices and people have reported."""

    devices: int = 0
    people: int = 0


class DynamoRepairs:
    """`connect` opens the client, once. A counter of an allocator in another service may be raised."""

    def __init__(
        self,
        dynamo: Dynamo,
        connect: Callable[[], Awaitable[None]],
        counters: Counters,
        clock: Clock,
        random_bits: Callable[[int], int],
    ) -> None:
        self._dynamo = dynamo
        self._connect = connect
        self._counters = counters
        self._allocator = counters.allocator
        self.may_raise = counters.allocator is not None
        self._clock = clock
        self._random_bits = random_bits
        self._reported: dict[str, Reported] = {}

    # Reading

    async def chats_without_counter(self) -> list[str]:
        """Also caches their reported positions: one scan of the tables of positions serves all chats."""
        await self._connect()
        lost: list[str] = []
        async for chats in table_pages(self._dynamo, CHATS, "chat_id"):
            chat_ids = [cast(str, chat["chat_id"]) for chat in chats]
            states = await map_concurrently(self._is_lost, chat_ids, READS_AT_ONCE_MAX)
            lost += [chat_id for chat_id, is_lost in zip(chat_ids, states, strict=True) if is_lost]
        if lost:
            self._reported = await self.reported_in(lost)
        return sorted(lost)

    async def _is_lost(self, chat_id: str) -> bool:
        counter = await self._counters.read(chat_id)
        if counter.last is None or not self.may_raise:
            return counter.last is None
        return counter.last < (await self._log_ends(chat_id))[0]

    async def remains(self, chat_id: str) -> Remains:
        chat = await self._chat(chat_id)
        last, last_entry = await self._log_ends(chat_id)
        keys = await self._dynamo.query_all(
            KEYS, "chat_id = :chat", {":chat": chat_id}, projection="#s", names=SEQUENCE
        )
        reported = self._reported.get(chat_id) or (await self.reported_in([chat_id]))[chat_id]
        return Remains(
            chat_id=chat_id,
            counter=(await self._counters.read(chat_id)).last,
            entries=last_entry,
            voids=last if last > last_entry else 0,
            keys=max((number(key, "sequence") for key in keys), default=0),
            trimmed=number(chat, "trimmed_through"),
            device_cursors=reported.devices,
            delivery_state=reported.people,
        )

    async def _chat(self, chat_id: str) -> Item:
        await self._connect()
        chat = await self._dynamo.get(CHATS, {"chat_id": chat_id}) if is_valid_key(chat_id) else None
        if chat is None:
            raise NoSuchChat(f"there is no chat {chat_id}")
        return chat

    async def reported_in(self, chat_ids: Sequence[str]) -> dict[str, Reported]:
        """The positions reported in these chats, including those of people who left."""
        reported = {chat_id: Reported() for chat_id in chat_ids}
        # For a single chat, transfer only its items.
        only: Item | None = {":chat": chat_ids[0]} if len(chat_ids) == 1 else None
        for table in (DEVICES, DELIVERY):
            start: Item | None = None
            while True:
                page = await self._dynamo.scan(
                    table,
                    filter="chat_id = :chat" if only else None,
                    values=only,
                    projection="chat_id, last_acked_sequence, read_up_to",
                    start=start,
                )
                for row in page.items:
                    furthest = max(number(row, "last_acked_sequence"), number(row, "read_up_to"))
                    found = reported.get(cast(str, row.get("chat_id")))
                    if found is not None and table == DEVICES:
                        found.devices = max(found.devices, furthest)
                    elif found is not None:
                        found.people = max(found.people, furthest)
                start = page.next_key
                if start is None:
                    break
        return reported

    async def _log_ends(self, chat_id: str) -> tuple[int, int]:
        """The highest position of a log, and the highest that is not void."""
        last, start = 0, cast("Item | None", None)
        while True:
            page = await self._dynamo.query(
                MESSAGES,
                "chat_id = :chat",
                {":chat": chat_id},
                names={**SPAN_NAMES, "#k": "kind"},
                projection=f"{SPAN}, #k",
                forward=False,
                limit=POSITIONS_PER_READ,
                start=start,
            )
            for item in page.items:
                last = max(last, end_of(item))
                if item.get("kind") != VOID:
                    return last, end_of(item)
            start = page.next_key
            if start is None:
                return last, 0

    async def holes(self, chat_id: str, first: int, last: int) -> list[tuple[int, int]]:
        await self._chat(chat_id)
        if first > last:
            return []
        found, expected, start = list[tuple[int, int]](), first, cast("Item | None", None)
        bundle = await bundle_across(self._dynamo, chat_id, first) if first > 1 else None
        if bundle is not None:
            expected = end_of(bundle) + 1
        while True:
            page = await self._dynamo.query(
                MESSAGES,
                "chat_id = :chat AND #s BETWEEN :first AND :last",
                {":chat": chat_id, ":first": first, ":last": last},
                names=SPAN_NAMES,
                projection=SPAN,
                start=start,
            )
            for item in page.items:
                if sequence_of(item) > expected:
                    found.append((expected, sequence_of(item) - 1))
                expected = end_of(item) + 1
            start = page.next_key
            if start is None:
                return [*found, (expected, last)] if expected <= last else found

    # Writing

    async def write(self, repair: Repair) -> int:
        """Voids first: no node can write at a void's position any more."""
        chat_id = repair.chat_id
        epoch = number(await self._chat(chat_id), "epoch")
        numbers = [number for first, last in repair.voids for number in range(first, last + 1)]
        for start in range(0, len(numbers), ACTIONS_MAX):
            await self._put_voids(chat_id, epoch, numbers[start : start + ACTIONS_MAX])
        if repair.counter_is_lost and self._allocator is not None:
            restored = await self._allocator.restore(chat_id, repair.counter)
            await self._audit(chat_id, restored)
            return restored
        if repair.counter_is_lost:
            await self._put_counter(chat_id, repair.counter, epoch)
        elif self._allocator is None:
            await self._mark_written(chat_id, repair.counter)
        counter = (await self._counters.read(chat_id)).last
        if counter is None:
            raise CounterMissingError("the counter was lost meanwhile; run this again")
        return counter

    async def _put_voids(self, chat_id: str, epoch: int, positions: list[int]) -> None:
        """Voids where the log has nothing, in ascending order: then no late bundle can span one of them."""
        left = set(positions)
        while left:
            holes = await self.holes(chat_id, min(left), max(left))
            left = {at for first, last in holes for at in range(first, last + 1) if at in left}
            ordered = sorted(left)
            if not ordered:
                return
            actions = [put_void(chat_id, at, epoch) for at in ordered]
            token = f"{self._random_bits(128):032x}"
            try:
                await retry_unknown(partial(self._dynamo.transact, actions, token))
            except TransactionCanceled as error:
                met = zip(ordered, error.reasons, strict=True)
                held = {at for at, reason in met if reason.code == FAILED}
                if not held & left:
                    raise StoreUnavailable(f"voids cannot be written: {error}") from error
                left -= held
            else:
                return

    def _values(self, counter: int) -> Item:
        now_ms = self._clock()
        return {
            ":counter": counter,
            ":now": iso(now_ms),
            ":revision": ids.EVENT + ids.ulid(now_ms, self._random_bits(ids.RANDOM_BITS)),
        }

    async def _put_counter(self, chat_id: str, counter: int, epoch: int) -> None:
        """Also sets a new membership revision, so that nodes that cache the chat read it again."""
        key, values = cast(Item, {"chat_id": chat_id}), self._values(counter)
        item = values | {
            ":epoch": epoch,
            ":published": max(0, counter - PUBLISHED_AGAIN),
            ":shard": tag_of(chat_id) % UNPUBLISHED_SHARDS,
            # Which keys were missing is lost with the counter, too: those of the last transaction, at most.
            ":keyed": max(0, (await self._log_ends(chat_id))[1] - UNKEYED_MAX),
        }
        actions = [
            UpdateItem(COUNTERS, key, PUT_COUNTER, item, "attribute_not_exists(sequence_counter)"),
            UpdateItem(
                CHATS, key, NEW_REVISION, {":revision": values[":revision"]}, "attribute_exists(chat_id)"
            ),
        ]
        token = f"{self._random_bits(128):032x}"
        try:
            await retry_unknown(lambda: self._dynamo.transact(actions, token))
        except TransactionCanceled as error:
            raise CounterMissingError(
                "another process restored the counter meanwhile; run this again"
            ) from error

    async def _audit(self, chat_id: str, counter: int) -> None:
        key, values = cast(Item, {"chat_id": chat_id}), self._values(counter)
        await retry_unknown(
            lambda: self._dynamo.update(CHATS, key, AUDIT, values, condition="attribute_exists(chat_id)")
        )

    async def _mark_written(self, chat_id: str, counter: int) -> None:
        """Numbers that the counter had allocated are voids now: the counter is valid again."""
        condition = "sequence_counter = :counter AND attribute_exists(written_through)"
        values: Item = {":counter": counter}
        expression = "SET written_through = :counter"
        try:
            await retry_unknown(
                lambda: self._dynamo.update(
                    COUNTERS, {"chat_id": chat_id}, expression, values, condition=condition
                )
            )
        except ConditionFailed:
            return  # it has risen meanwhile, or is a counter of two_phase, which has no `written_through`

    def how_to_delete_counter(self, chat_id: str) -> str:
        """The value, not its row: deleting from this table can stay forbidden to every day's operators."""
        key = f'{{"chat_id": {{"S": "{chat_id}"}}}}'
        return (
            f"aws dynamodb update-item --table-name {self._dynamo.table(COUNTERS)} --key '{key}'"
            " --update-expression 'REMOVE sequence_counter'"
            " --condition-expression 'attribute_exists(sequence_counter)'"
            f"\nparley recover {chat_id} --apply, with the same configuration"
        )
