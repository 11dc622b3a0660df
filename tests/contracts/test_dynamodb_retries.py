"""Retries of many messages at once, on DynamoDB: a store that answers late is not asked one by one."""

from itertools import pairwise

import pytest

from parley.store.dynamodb.append import KEYS_APART_MIN
from parley.store.dynamodb.schema import KEYS, MESSAGES
from tests.contracts.acting import message, new_id, place, said, told
from tests.contracts.dynamodb_nodes import Counted
from tests.contracts.dynamodb_world import world

WINDOW = 20


@pytest.mark.parametrize("mode", ["atomic", "two_phase"])
async def test_a_window_that_is_stored_is_answered_with_one_look(mode: str) -> None:
    """The originals of a whole window are read in one request, and each retry is answered with its own."""
    async with world(mode, 1) as (node,):
        drafts = [message(node.chat, node.ann, f"{n}") for n in range(WINDOW)]
        first = (await node.log.append(drafts)).outcomes
        node.faults.now = counted = Counted()
        again = (await node.log.append(drafts)).outcomes
        assert [told(each) for each in again] == ["deduplicated"] * WINDOW
        assert [place(each) for each in again] == [place(each) for each in first]
        assert requests(counted, MESSAGES) == {"BatchGetItem": 1}


@pytest.mark.parametrize("mode", ["atomic", "two_phase"])
async def test_a_window_out_of_turn_is_refused_with_three_looks(mode: str) -> None:
    """One before it is planned, one for what the first names, one for whether any is stored already."""
    async with world(mode, 1) as (node,):
        client_ids = [new_id() for _ in range(WINDOW + 1)]
        chain = pairwise(client_ids)
        drafts = [message(node.chat, node.ann, "late", mine, after) for after, mine in chain]
        node.faults.now = counted = Counted()
        outcomes = (await node.log.append(drafts)).outcomes
        assert [told(each) for each in outcomes] == ["out_of_turn"] * WINDOW
        assert sum(requests(counted, KEYS).values()) <= 3


@pytest.mark.parametrize(
    ("window", "met"), [(KEYS_APART_MIN - 1, ("TransactWriteItems", "")), (WINDOW, ("BatchGetItem", KEYS))]
)
async def test_a_retry_does_not_have_to_win_a_race_first(window: int, met: tuple[str, str]) -> None:
    """The refusal of a node that lost the head, or its look, says which of its messages are stored."""
    async with world("atomic", 2) as (one, two):
        await said(two, one.chat, one.ben, "warm")
        drafts = [message(one.chat, one.ben, f"{n}") for n in range(window)]
        first = (await one.log.append(drafts)).outcomes
        two.faults.now = counted = Counted()
        again = (await two.log.append(drafts)).outcomes
        assert [place(each) for each in again] == [place(each) for each in first]
        assert counted.met == {met: 1, ("BatchGetItem", MESSAGES): 1}


async def test_what_a_message_follows_is_looked_up_once() -> None:
    """However often a node loses the head, it knows by then that the message before is stored."""
    async with world("atomic", 2) as (one, two):
        await said(two, one.chat, one.ben, "warm")
        before = message(one.chat, one.ben, "before")
        await one.log.append([before])
        two.faults.now = counted = Counted()
        after = message(one.chat, one.ben, "after", after=before.client_message_id or "")
        assert told((await two.log.append([after])).outcomes[0]) == "stored"
        assert counted.met == {("TransactWriteItems", ""): 2, ("BatchGetItem", KEYS): 1}


def requests(counted: Counted, table: str) -> dict[str, int]:
    """How often items of a table were asked for by their keys."""
    by_key = ("GetItem", "BatchGetItem")
    return {way: times for (way, met), times in counted.met.items() if met == table and way in by_key}
