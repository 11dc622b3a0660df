"""Two nodes that both append to a chat, in atomic: the loser goes on at once, and nobody starves."""

import asyncio

import pytest

from parley.model import Appended
from parley.store.dynamodb import atomic
from parley.store.dynamodb.driver import Fault, Item, Request, Response, Send
from parley.store.dynamodb.schema import COUNTERS
from tests.contracts.acting import code_of, contents, message, outcome, read_all, said, told
from tests.contracts.dynamodb_nodes import Counted, item
from tests.contracts.dynamodb_world import Node, world

LATE_SECONDS = 0.2


def never() -> float:
    raise AssertionError("nobody rolls dice: there is nothing to wait for")


async def answer_late(operation: str, request: Request, send: Send) -> Response:
    answer = await send(operation, request)
    await asyncio.sleep(LATE_SECONDS)
    return answer


class Overtaken:
    """Before each transaction of one node arrives, another node writes to the chat."""

    def __init__(self, other: Node) -> None:
        self._other = other

    def __call__(self, operation: str, request: Request) -> Fault | None:
        return self._overtake if operation == "TransactWriteItems" else None

    async def _overtake(self, operation: str, request: Request, send: Send) -> Response:
        await outcome(self._other, message(self._other.chat, self._other.ann, "first"))
        return await send(operation, request)


async def go_on_writing(node: Node) -> None:
    while True:
        assert told(await outcome(node, message(node.chat, node.ann, "quick"))) == "stored"


async def test_the_loser_of_a_race_tries_again_at_once() -> None:
    """It learns the head with its refusal: a second transaction, no pause, and nothing is read."""
    async with world("atomic", 2, chance=never) as (one, two):
        await said(two, one.chat, one.ben, "warm")
        await said(one, one.chat, one.ann, "elsewhere")
        counted = Counted()
        two.faults.now = counted
        assert told(await outcome(two, message(one.chat, one.ben, "second"))) == "stored"
        assert counted.met == {("TransactWriteItems", ""): 2}


async def test_a_node_whose_store_answers_late_does_not_starve() -> None:
    """The other one writes without a pause, and knows the head long before: each of both gets through."""
    async with world("atomic", 2) as (quick, slow):
        await said(slow, quick.chat, quick.ben, "warm")
        slow.faults.now = lambda operation, request: answer_late
        writing = asyncio.create_task(go_on_writing(quick))
        sent = [await outcome(slow, message(quick.chat, quick.ben, f"slow {n}")) for n in range(2)]
        slow.faults.now = None
        before = len(await read_all(quick, quick.chat))
        await said(quick, quick.chat, quick.ann, "and on")
        writing.cancel()
        assert [told(each) for each in sent] == ["stored", "stored"]
        assert len(await read_all(quick, quick.chat)) > before
        assert "head_claim" not in await item(quick, COUNTERS, chat_id=quick.chat)


async def test_who_loses_every_race_says_so_in_time() -> None:
    """Nothing of it is stored, and it is refused as temporary when its time is up."""
    async with world("atomic", 2, append_seconds=0.5) as (winner, loser):
        await said(loser, winner.chat, winner.ben, "warm")
        loser.faults.now = Overtaken(winner)
        assert await code_of(loser, message(winner.chat, winner.ben, "never")) == "store_unavailable"
        loser.faults.now = None
        assert "head_claim" not in await item(loser, COUNTERS, chat_id=winner.chat)
        assert "never" not in contents(await read_all(winner, winner.chat))


async def test_the_claim_of_a_node_that_is_gone_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for, once and for a moment; the next append ends it."""
    monkeypatch.setattr(atomic, "CLAIM_SECONDS_MAX", 0.1)
    async with world("atomic", 1) as (node,):
        await said(node, node.chat, node.ann, "warm")
        key: Item = {"chat_id": node.chat}
        await node.store.dynamo.update(COUNTERS, key, "SET head_claim = :claim", {":claim": "of the dead"})
        sent = await outcome(node, message(node.chat, node.ann, "behind it"))
        assert isinstance(sent, Appended)
        assert sent.sequence == 2
        assert "head_claim" not in await item(node, COUNTERS, chat_id=node.chat)


async def test_a_retry_that_meets_its_key_is_no_conflict() -> None:
    """The message is stored already: also with a head that moved since, no write stood in another's way."""
    async with world("atomic", 2) as (one, two):
        first, second = message(one.chat, one.ann, "first"), message(one.chat, one.ann, "second")
        await said(two, one.chat, one.ben, "warm")
        sent = [await outcome(node, draft) for node, draft in ((one, first), (one, first), (one, second))]
        sent.append(await outcome(two, second))
        assert [told(each) for each in sent] == ["stored", "deduplicated", "stored", "deduplicated"]
        assert (one.metrics.conflicts.rate(), two.metrics.conflicts.rate()) == (0.0, 0.0)


async def test_a_lost_race_is_a_conflict() -> None:
    """A message that is new meets a head that another node has moved: that is what the rate is about."""
    async with world("atomic", 2) as (one, two):
        await said(two, one.chat, one.ben, "warm")
        await said(one, one.chat, one.ann, "elsewhere")
        assert told(await outcome(two, message(one.chat, one.ben, "second"))) == "stored"
        assert two.metrics.conflicts.rate() == 0.5
