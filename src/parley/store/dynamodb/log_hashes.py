"""The `LogHashes` port on DynamoDB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from parley.core.log_hash import LogHash
from parley.dynamodb import Dynamo, Item, number
from parley.store.dynamodb.schema import LOG_HASHES, hash_place

PLACES = "chat_id = :chat AND place BETWEEN :first AND :last"


class DynamoLogHashes:
    tail_seconds = 300.0

    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo

    async def last(self, chat_id: str, epoch: int, up_to: int) -> LogHash | None:
        values = places(chat_id, epoch, up_to)
        page = await self._dynamo.query(LOG_HASHES, PLACES, values, forward=False, limit=1, consistent=False)
        return hash_in(page.items[0]) if page.items else None

    async def write(self, chat_id: str, hashes: Sequence[LogHash]) -> None:
        await self._dynamo.batch_put(LOG_HASHES, [hash_item(chat_id, one) for one in hashes])


def places(chat_id: str, epoch: int, up_to: int) -> Item:
    """What `PLACES` compares: every place of an epoch up to a position."""
    return {":chat": chat_id, ":first": hash_place(epoch, 0), ":last": hash_place(epoch, up_to)}


def hash_item(chat_id: str, one: LogHash) -> Item:
    return {
        "chat_id": chat_id,
        "place": hash_place(one.epoch, one.sequence),
        "epoch": one.epoch,
        "sequence": one.sequence,
        "log_hash": one.value,
    }


def hash_in(item: Item) -> LogHash:
    return LogHash(number(item, "epoch"), number(item, "sequence"), cast(bytes, item["log_hash"]))
