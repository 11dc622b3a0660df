"""A transaction whose outcome is known in the end, or honestly unknown."""

from __future__ import annotations

import asyncio

from parley.errors import OutcomeUnknown, StoreError, StoreUnavailable
from parley.store.dynamodb.actions import Action
from parley.store.dynamodb.client import Dynamo, TransactionCanceled
from parley.store.dynamodb.entries import MESSAGES
from parley.store.dynamodb.values import Item
from parley.wire.frames import Entry

RESOLVE_SECONDS_MAX = 4.0
RESOLVE_PAUSE_SECONDS = 0.05


class Lost(StoreError):
    """The transaction was not done and never will be: another entry stands at its first position."""


async def commit(dynamo: Dynamo, actions: list[Action], token: str, first: Entry) -> None:
    """Done when it returns. Raises `TransactionCanceled`, `Lost` or `StoreUnavailable` when it is not done.

    If the answer is lost, the log is asked: `first` stands there exactly if all of it was done. If nothing
    stands there, the request may still be on its way, so the identical one goes out again under the same
    token, which DynamoDB does at most once. Only when that leads nowhere in time is it `OutcomeUnknown`.
    """
    deadline = asyncio.get_running_loop().time() + RESOLVE_SECONDS_MAX
    was_lost = False
    while True:
        try:
            return await dynamo.transact(actions, token)
        except OutcomeUnknown:
            was_lost = True
        except TransactionCanceled:
            if not (was_lost and await _is_done(dynamo, first, deadline)):
                raise
            return None
        except StoreUnavailable as error:
            if not was_lost:
                raise
            if asyncio.get_running_loop().time() > deadline:
                raise OutcomeUnknown(str(error)) from error
        if await _is_done(dynamo, first, deadline):
            return None
        if asyncio.get_running_loop().time() > deadline:
            raise OutcomeUnknown("DynamoDB did not say what became of a transaction")
        await asyncio.sleep(RESOLVE_PAUSE_SECONDS)


async def _is_done(dynamo: Dynamo, first: Entry, deadline: float) -> bool:
    """Whether our entry stands at its position; `Lost` when another one does."""
    place: Item = {"chat_id": first.chat_id, "sequence": first.sequence}
    try:
        found = await dynamo.get(MESSAGES, place)
    except StoreUnavailable as error:
        if asyncio.get_running_loop().time() > deadline:
            raise OutcomeUnknown(str(error)) from error
        return False
    if found is None:
        return False
    if found.get("message_id") == first.message_id:
        return True
    raise Lost("another entry stands at this position")
