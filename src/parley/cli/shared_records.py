"""The records of a store on DynamoDB. Each question opens its own connections, and closes them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from parley.app.shared import Numbers, dynamo_from
from parley.cli.opening import run
from parley.clock import wall_clock
from parley.config import Config
from parley.store.checks import Findings, Tell
from parley.store.dynamodb import listing
from parley.store.dynamodb.check import check_tables_of
from parley.store.dynamodb.client import Dynamo
from parley.store.dynamodb.counters import Counters
from parley.store.dynamodb.recover import recover
from parley.store.dynamodb.schema import check_version
from parley.store.dynamodb.traces import Reported, chats_without_counter, reported_in
from parley.store.listed import ListedChat, ListedMember, ListedUser
from parley.store.ports import Allocator
from parley.store.recovery import Recovery

T = TypeVar("T")


class Tables(NamedTuple):
    """The open tables, and who gives the numbers if the tables do not."""

    dynamo: Dynamo
    counters: Counters

    @property
    def allocator(self) -> Allocator | None:
        return self.counters.allocator


class SharedRecords:
    def __init__(self, settings: Config) -> None:
        self._settings = settings
        self._is_atomic = settings.store.sequencing == "atomic"
        self._reported: dict[str, Reported] | None = None

    def _ask(self, work: Callable[[Tables], Awaitable[T]], *, must_be_whole: bool = True) -> T:
        return run(self._asked(work, must_be_whole))

    async def _asked(self, work: Callable[[Tables], Awaitable[T]], must_be_whole: bool) -> T:
        dynamo = dynamo_from(self._settings, None, os.environ)
        # The counters of DynamoDB's own allocator are in the tables like everything else.
        is_elsewhere = not self._is_atomic and self._settings.store.allocator != "dynamodb"
        numbers = Numbers(self._settings, dynamo, wall_clock) if is_elsewhere else None
        allocator = numbers.allocator if numbers is not None else None
        await dynamo.open()
        try:
            if must_be_whole:
                await dynamo.check()
                await check_version(dynamo)
            return await work(Tables(dynamo, Counters(dynamo, allocator, self._is_atomic)))
        finally:
            if numbers is not None:
                await numbers.close()
            await dynamo.close()

    def users(self) -> list[ListedUser]:
        return self._ask(lambda tables: listing.users(tables.dynamo, wall_clock()))

    def user_id_of(self, name: str) -> str | None:
        return self._ask(lambda tables: listing.user_id_of(tables.dynamo, name))

    def chats(self, of_user_id: str | None = None) -> list[ListedChat]:
        return self._ask(lambda tables: listing.chats(*tables, of_user_id))

    def find_chats(self, name: str) -> list[ListedChat]:
        return self._ask(lambda tables: listing.find_chats(*tables, name))

    def members(self, chat_id: str) -> list[ListedMember]:
        return self._ask(lambda tables: listing.members(tables.dynamo, chat_id))

    def check(self, chat_ids: Sequence[str] | None, tell: Tell, *, whole: bool) -> Findings:
        return self._ask(
            lambda tables: check_tables_of(
                tables.dynamo,
                chat_ids,
                tell,
                allocator=tables.allocator,
                is_atomic=self._is_atomic,
                whole=whole,
            ),
            must_be_whole=False,
        )

    def chats_without_counter(self) -> list[str]:
        async def look(tables: Tables) -> list[str]:
            lost = await chats_without_counter(*tables)
            if lost:
                self._reported = await reported_in(tables.dynamo, lost)
            return lost

        return self._ask(look)

    def recover(self, chat_id: str, *, apply: bool, seal_holes: bool) -> Recovery:
        return self._ask(
            lambda tables: recover(
                tables.dynamo,
                chat_id,
                wall_clock,
                apply=apply,
                seal_holes=seal_holes,
                allocator=tables.allocator,
                reported=self._reported,
            )
        )

    def how_to_delete_counter(self, chat_id: str) -> str:
        table = f"{self._settings.dynamodb.prefix}chat_counters"
        key = f'{{"chat_id": {{"S": "{chat_id}"}}}}'
        return (
            f"aws dynamodb delete-item --table-name {table} --key '{key}'"
            f"\nparley recover {chat_id} --apply, with the same configuration"
        )
