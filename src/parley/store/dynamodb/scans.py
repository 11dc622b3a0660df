"""Reads of whole tables, for commands: page by page, and again where rows seem broken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from parley.store.dynamodb.driver import Dynamo, Item, is_valid_key
from parley.store.dynamodb.schema import CHATS, MEMBERSHIPS

READS_MAX = 3
READ_AGAIN_SECONDS = 0.1


async def is_lasting(is_broken: Callable[[], Awaitable[bool]]) -> bool:
    """Whether rows seem broken at every read, for longer than a transaction takes.

    A read from DynamoDB is not a snapshot: a page may hold one half of a transaction and not yet the other.
    """
    for attempt in range(READS_MAX):
        if attempt:
            await asyncio.sleep(READ_AGAIN_SECONDS)
        if not await is_broken():
            return False
    return True


async def table_pages(
    dynamo: Dynamo, table: str, projection: str | None = None, start: Item | None = None
) -> AsyncIterator[list[Item]]:
    while True:
        page = await dynamo.scan(table, projection=projection, start=start)
        yield page.items
        start = page.next_key
        if start is None:
            return


async def chat_pages(dynamo: Dynamo, chat_ids: Sequence[str] | None) -> AsyncIterator[list[Item]]:
    """Every chat, or those in `chat_ids` that exist."""
    if chat_ids is None:
        async for items in table_pages(dynamo, CHATS):
            yield items
    else:
        names = [name for name in dict.fromkeys(chat_ids) if is_valid_key(name)]
        yield await dynamo.batch_get(CHATS, [{"chat_id": name} for name in names])


async def member_pages(dynamo: Dynamo, chat_id: str) -> AsyncIterator[list[Item]]:
    start: Item | None = None
    while True:
        page = await dynamo.query(MEMBERSHIPS, "chat_id = :chat", {":chat": chat_id}, start=start)
        yield page.items
        start = page.next_key
        if start is None:
            return


def text_of(item: Item, name: str) -> str:
    """An attribute as text, whatever its type."""
    value = item.get(name)
    return value if isinstance(value, str) else repr(value)
