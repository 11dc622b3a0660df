"""A transaction whose outcome is known in the end, or honestly unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from parley.errors import OutcomeUnknown, StoreError, StoreUnavailable
from parley.store.dynamodb.actions import Action
from parley.store.dynamodb.client import Dynamo, TransactionCanceled
from parley.store.dynamodb.entries import MESSAGES, put_entry, sequence_of
from parley.store.dynamodb.values import Item
from parley.wire.frames import Entry

RESOLVE_SECONDS_MAX = 4.0
RESOLVE_PAUSE_SECONDS = 0.05


class Lost(StoreError):
    """The transaction was not done and never will be: something else stands at one of its positions."""


async def commit(dynamo: Dynamo, actions: list[Action], token: str, entries: Sequence[Entry]) -> None:
    """Done when it returns. Raises `TransactionCanceled`, `Lost` or `StoreUnavailable` when it is not done.

    If the answer is lost, the log is asked: the entries stand there exactly if all of it was done. If they
    do not, the request may still be on its way, so the identical one goes out again under the same token,
    which DynamoDB does at most once. Only when that leads nowhere in time is it `OutcomeUnknown`.
    """
    time = asyncio.get_running_loop().time
    deadline = time() + RESOLVE_SECONDS_MAX
    was_lost = False
    while True:
        canceled: TransactionCanceled | None = None
        try:
            return await dynamo.transact(actions, token)
        except OutcomeUnknown:
            was_lost = True
        except TransactionCanceled as error:
            canceled = error
        except StoreUnavailable:
            if not was_lost:
                raise
        if canceled is not None and not was_lost:
            raise canceled
        standing = await _standing(dynamo, entries)
        if standing == len(entries):
            return None
        if canceled is not None and standing == 0:
            raise canceled
        if time() > deadline:
            raise OutcomeUnknown("DynamoDB did not say what became of a transaction")
        await asyncio.sleep(RESOLVE_PAUSE_SECONDS)


async def _standing(dynamo: Dynamo, entries: Sequence[Entry]) -> int | None:
    """How many of these stand at their positions, None when nobody can tell; `Lost` when another one does.

    Compared as wholes: two nodes may give the same id to different messages at one position.
    """
    ours = {entry.sequence: put_entry(entry).item for entry in entries}
    places: list[Item] = [{"chat_id": e.chat_id, "sequence": e.sequence} for e in entries]
    try:
        found = await dynamo.batch_get(MESSAGES, places)
    except StoreUnavailable:
        return None
    if any(item != ours[sequence_of(item)] for item in found):
        raise Lost("another entry stands at this position")
    return len(found)
