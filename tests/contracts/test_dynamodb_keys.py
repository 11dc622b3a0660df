"""Keys that are written after their transaction: each id is still used once, whoever dies in between.

What holds on every engine is in the suites of the ports. Here is what can only go wrong where a large batch
of `atomic` looks its ids up before its transaction and writes their keys after it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bench.dynamodb.pricing import write_units
from parley.checks.recovery import recover
from parley.model import Action, Draft
from parley.store.dynamodb import append, scans
from parley.store.dynamodb.append import KEYS_APART_MIN, MESSAGES_PER_TRANSACTION_MAX
from parley.store.dynamodb.driver import Fault, Item, Request, Response, Send
from parley.store.dynamodb.schema import COUNTERS, KEYS
from parley.testing.dynamodb_faults import timeout_done, timeout_not_done
from tests.contracts.acting import (
    add_direct,
    block,
    change,
    code_of,
    contents,
    decode_entry,
    message,
    new_id,
    outcome,
    place,
    read_all,
    said,
    stored,
    told,
)
from tests.contracts.dynamodb_nodes import Counted, Held, On, refuse
from tests.contracts.dynamodb_world import Crashed, Node, crashes, world
from tests.contracts.test_inspection import checked
from tests.harness.fault_plans import Planned

FULL = MESSAGES_PER_TRANSACTION_MAX
MANY = KEYS_APART_MIN
WEEK_MS = 7 * 86_400_000


@pytest.fixture(autouse=True)
def _look_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks broken is broken: nobody writes meanwhile."""
    monkeypatch.setattr(scans, "READ_AGAIN_SECONDS", 0.0)


def drafts_of(node: Node, count: int = MANY, first: int = 1) -> list[Draft]:
    return [message(node.chat, node.ann, f"{n}") for n in range(first, first + count)]


def ids_of(drafts: list[Draft]) -> set[str]:
    return {str(draft.client_message_id) for draft in drafts}


async def keys_of(node: Node) -> dict[str, Item]:
    """Every key of the chat, by its id."""
    items = await node.store.dynamo.query_all(KEYS, "chat_id = :chat", {":chat": node.chat})
    return {str(item["client_message_id"]): item for item in items}


async def counter_of(node: Node) -> Item:
    return await node.store.dynamo.get(COUNTERS, {"chat_id": node.chat}) or {}


async def crash_before_keys(node: Node, drafts: list[Draft]) -> None:
    """The node is gone after its transaction: the entries are stored, and none of their keys."""
    node.faults.now = On(crashes, "BatchWriteItem")
    with pytest.raises(Crashed):
        await node.log.append(drafts)
    assert ids_of(drafts).isdisjoint(await keys_of(node))
    assert "keys_through" in await counter_of(node)


async def answers(node: Node, drafts: list[Draft]) -> list[str]:
    return [told(each) for each in (await node.log.append(drafts)).outcomes]


class Between:
    """Does something after the first answer to an operation in which some words occur, before it arrives."""

    def __init__(self, operation: str, words: str, work: Callable[[], Awaitable[Any]]) -> None:
        self._operation = operation
        self._words = words
        self._work: Callable[[], Awaitable[Any]] | None = work

    def __call__(self, operation: str, request: Request) -> Fault | None:
        is_it = operation == self._operation and self._words in str(request)
        return self._send if is_it and self._work is not None else None

    async def _send(self, operation: str, request: Request, send: Send) -> Response:
        work, self._work = self._work, None
        response = await send(operation, request)
        if work is not None:
            await work()
        return response


# What it costs


class Units:
    """No fault: counts the write units of requests by AWS's rules."""

    def __init__(self) -> None:
        self.written = 0

    def __call__(self, operation: str, request: Request) -> Fault | None:
        self.written += write_units(operation, request)
        return None


async def units_of(node: Node, count: int) -> float:
    node.faults.now = units = Units()
    assert (
        await answers(node, [message(node.chat, node.ann, "x" * 128) for _ in range(count)])
        == ["stored"] * count
    )
    return units.written / count


async def test_a_message_of_a_full_batch_costs_less_than_half() -> None:
    """At most half of the 4.04 units before entries shared items; a message alone costs what it did."""
    async with world("atomic", 1) as (node,):
        await said(node, node.chat, node.ann, "warm")
        assert await units_of(node, FULL) <= 2.02
        assert await units_of(node, FULL) <= 2.02  # also after another one
        assert await units_of(node, 1) == 6


async def test_a_large_batch_takes_three_steps() -> None:
    """One look for all ids, one transaction, and the keys in as few requests as they fit in."""
    async with world("atomic", 1) as (node,):
        await said(node, node.chat, node.ann, "warm")
        node.faults.now = counted = Counted()
        drafts = drafts_of(node, FULL)
        assert await answers(node, drafts) == ["stored"] * FULL
        assert counted.met == {
            ("BatchGetItem", KEYS): 1,
            ("TransactWriteItems", ""): 1,
            ("BatchWriteItem", KEYS): 2,
        }
        assert ids_of(drafts) <= (await keys_of(node)).keys()


async def test_a_small_batch_takes_one_step() -> None:
    """Few messages have their keys in the transaction, without a look, and end the mark of a large batch."""
    async with world("atomic", 1) as (node,):
        await node.log.append(drafts_of(node))
        assert (await counter_of(node))["keys_through"] == 0
        node.faults.now = counted = Counted()
        assert await answers(node, drafts_of(node, MANY - 1)) == ["stored"] * (MANY - 1)
        assert counted.met == {("TransactWriteItems", ""): 1}
        assert "keys_through" not in await counter_of(node)


async def test_keys_are_the_same_however_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the transaction, after it, or from the log by another node."""
    async with world("atomic", 2) as (node, other):
        drafts = drafts_of(node)
        await node.log.append(drafts)
        apart = await keys_of(node)
        await node.store.dynamo.batch_delete(
            KEYS, [{name: key[name] for name in ("chat_id", "client_message_id")} for key in apart.values()]
        )
        node.clock.advance(60_000)
        assert told(await outcome(other, drafts[3])) == "deduplicated"
        assert await keys_of(node) == apart
        monkeypatch.setattr(append, "KEYS_APART_MIN", FULL + 1)
        more = drafts_of(node, MANY, MANY + 1)
        await other.log.append(more)
        inside = await keys_of(node)
        first, second = (inside[str(each[2].client_message_id)] for each in (drafts, more))
        assert first.keys() == second.keys()
        own = "message_id", "sequence", "item_sequence", "client_message_id", "created_at", "ttl"
        assert {**first, **dict.fromkeys(own)} == {**second, **dict.fromkeys(own)}


# A crash between the transaction and the keys


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("count", [1, MANY])
async def test_a_crash_before_the_keys_is_resolved_by_retries(is_known: bool, count: int) -> None:
    """On a node that knew the chat and on one that did not; the whole batch again, or one message of it."""
    async with world("atomic", 2) as (gone, other):
        if is_known:
            await said(other, gone.chat, gone.ben, "before")
        drafts = drafts_of(gone)
        await crash_before_keys(gone, drafts)
        before = int(is_known)
        outcomes = (await other.log.append(drafts[:count])).outcomes
        assert [(told(each), place(each)[0]) for each in outcomes] == [
            ("deduplicated", before + n) for n in range(1, count + 1)
        ]
        assert len(await other.items()) == before + MANY
        assert ids_of(drafts) <= (await keys_of(other)).keys()


async def test_a_retry_among_others_is_answered_after_a_crash() -> None:
    """In a large batch with new ones, with another content, and as another person's id."""
    async with world("atomic", 2) as (gone, other):
        drafts = drafts_of(gone)
        await crash_before_keys(gone, drafts)
        client_id = str(drafts[4].client_message_id)
        mixed = [
            *drafts_of(gone, 3, 101),
            drafts[6],
            message(gone.chat, gone.ann, "changed", client_id),
            message(gone.chat, gone.ben, "mine", client_id),
            *drafts_of(gone, MANY, 104),
        ]
        outcomes = (await other.log.append(mixed)).outcomes
        told_here = [told(each) for each in outcomes]
        assert told_here == ["stored"] * 3 + ["deduplicated"] * 2 + ["duplicate_id"] + ["stored"] * MANY
        assert (place(outcomes[3])[0], place(outcomes[4])[0]) == (7, 5)
        said_there = [f"{n}" for n in range(1, MANY + 1)] + [f"{n}" for n in range(101, 104 + MANY)]
        assert contents(await read_all(other, gone.chat)) == said_there


async def test_new_messages_after_a_crash_write_the_keys_of_the_old() -> None:
    """The node that goes on may not meet the retry itself: the keys are there before its own entries are."""
    async with world("atomic", 3) as (gone, other, third):
        drafts = drafts_of(gone)
        await crash_before_keys(gone, drafts)
        await said(other, gone.chat, gone.ben, "next")
        assert "keys_through" not in await counter_of(other)
        assert ids_of(drafts) <= (await keys_of(other)).keys()
        assert await answers(third, drafts) == ["deduplicated"] * MANY


async def test_a_crash_between_two_requests_for_keys_leaves_no_id_free() -> None:
    """A full batch needs two requests: the first is done, the second is not."""
    async with world("atomic", 2) as (gone, other):
        drafts = drafts_of(gone, FULL)
        gone.faults.now = Planned(BatchWriteItem=[None, crashes])
        with pytest.raises(Crashed):
            await gone.log.append(drafts)
        assert await answers(other, drafts) == ["deduplicated"] * FULL
        assert (await keys_of(other)).keys() == ids_of(drafts)


async def test_a_message_without_its_key_is_found() -> None:
    """By its id, on a node that has never seen the chat; and so it is for whoever names it as predecessor."""
    async with world("atomic", 3) as (gone, other, third):
        drafts = drafts_of(gone)
        await crash_before_keys(gone, drafts)
        assert drafts[2].client_key is not None
        found = await other.log.find_key(gone.chat, drafts[2].client_key)
        assert found is not None
        assert decode_entry(found).content == "3"
        after = str(drafts[5].client_message_id)
        assert told(await outcome(third, message(gone.chat, gone.ann, "next", after=after))) == "stored"
        assert await code_of(third, message(gone.chat, gone.ann, "lost", after=new_id())) == "out_of_turn"


async def test_a_find_that_is_overtaken_by_the_repair_still_finds() -> None:
    """Between the look for the key and the look at the counter another node writes both."""
    async with world("atomic", 3) as (gone, other, third):
        drafts = drafts_of(gone)
        await crash_before_keys(gone, drafts)
        third.faults.now = Between("BatchGetItem", KEYS, lambda: said(other, gone.chat, gone.ben, "next"))
        assert drafts[2].client_key is not None
        assert await third.log.find_key(gone.chat, drafts[2].client_key) is not None


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize("is_known", [True, False])
async def test_who_was_blocked_meanwhile_hears_of_the_original(count: int, is_known: bool) -> None:
    """A block changes no head: nobody has written the keys when the retry would be refused."""
    async with world("atomic", 3) as (gone, other, third):
        gone.chat = other.chat = await add_direct(gone, gone.ann, gone.ben)
        if is_known:  # with its head, and not with her role
            await said(other, gone.chat, gone.ben, "before")
        drafts = drafts_of(gone)
        await crash_before_keys(gone, drafts)
        gone.faults.now = None
        await block(third, gone.ben, gone.ann)
        assert await answers(other, drafts[:count]) == ["deduplicated"] * count
        assert await answers(other, drafts_of(other, count, 101)) == ["blocked"] * count


async def test_who_was_removed_meanwhile_hears_of_the_original() -> None:
    """The removal comes after the messages, so it has written their keys."""
    async with world("atomic", 2) as (gone, other):
        drafts = [message(gone.chat, gone.ben, f"{n}") for n in range(MANY)]
        await crash_before_keys(gone, drafts)
        await stored(other, change(gone.chat, gone.ann, Action.REMOVED, gone.ben))
        assert await answers(other, drafts) == ["deduplicated"] * MANY


# Keys that cannot be written


async def test_no_ack_without_its_key() -> None:
    """The store refuses the keys: the senders do not know, also those of twins; a retry is answered."""
    async with world("atomic", 1) as (node,):
        drafts = drafts_of(node)
        node.faults.now = On(refuse, "BatchWriteItem")
        assert await answers(node, [*drafts, drafts[0]]) == ["outcome_unknown"] * (MANY + 1)
        assert await answers(node, drafts_of(node, 2, 101)) == ["store_unavailable"] * 2
        node.faults.now = None
        assert await answers(node, drafts) == ["deduplicated"] * MANY
        assert contents(await read_all(node, node.chat)) == [f"{n}" for n in range(1, MANY + 1)]


@pytest.mark.parametrize("fault", [timeout_done, timeout_not_done])
async def test_a_lost_answer_about_keys_is_asked_for_again(fault: Fault) -> None:
    """Whether they were written or not: they are there before the ack."""
    async with world("atomic", 1) as (node,):
        drafts = drafts_of(node, FULL)
        node.faults.now = Planned(BatchWriteItem=[fault])
        assert await answers(node, drafts) == ["stored"] * FULL
        assert (await keys_of(node)).keys() == ids_of(drafts)


async def test_what_is_just_being_committed_is_waited_for() -> None:
    """The counter is there and a page does not have the entries yet: no key is left out."""
    async with world("atomic", 2) as (gone, other):
        drafts = drafts_of(gone)
        await crash_before_keys(gone, drafts)

        async def torn(operation: str, request: Request, send: Send) -> Response:
            return Response(200, {"Items": [], "Count": 0, "ScannedCount": 0})

        other.faults.now = Planned(Query=[torn, None])
        assert await answers(other, drafts) == ["deduplicated"] * MANY
        assert len(await other.items()) == MANY


# Writers that are late


async def test_a_writer_that_sleeps_before_its_keys_changes_nothing() -> None:
    """Another node goes on meanwhile; the late keys are those that it has written, and the acks hold."""
    async with world("atomic", 2) as (slow, other):
        drafts = drafts_of(slow)
        slow.faults.now = held = Held("BatchWriteItem")
        late = asyncio.create_task(slow.log.append(drafts))
        await held.reached.wait()
        again = (await other.log.append([*drafts, *drafts_of(other, 2, 101)])).outcomes
        before = await keys_of(other)
        held.release()
        outcomes = (await late).outcomes
        assert [told(each) for each in outcomes] == ["stored"] * MANY
        assert [place(each) for each in outcomes] == [place(each) for each in again[:MANY]]
        assert await keys_of(other) == before


async def test_a_writer_that_sleeps_for_a_week_leaves_the_key_of_another_message() -> None:
    """By then the id may be used again: the old key would hide the new message."""
    async with world("atomic", 2) as (slow, other):
        drafts = drafts_of(slow)
        again: list[str] = []

        async def a_week_later() -> None:
            slow.clock.advance(WEEK_MS + 2_000)
            again.append(told(await outcome(other, drafts[2])))

        slow.faults.now = Between("TransactWriteItems", "keys_through = :head", a_week_later)
        await slow.log.append(drafts)
        assert again == ["stored"]
        retry = await outcome(other, drafts[2])
        assert (told(retry), place(retry)[0]) == ("deduplicated", MANY + 1)


async def test_a_writer_that_sleeps_before_its_transaction_looks_again() -> None:
    """Its ids were free when it looked; another node has used one of them since."""
    async with world("atomic", 2) as (slow, other):
        await said(slow, slow.chat, slow.ben, "warm")
        drafts = drafts_of(slow)
        slow.faults.now = held = Held("TransactWriteItems")
        late = asyncio.create_task(slow.log.append(drafts))
        await held.reached.wait()
        await stored(other, drafts[3])
        held.release()
        assert [told(each) for each in (await late).outcomes].count("deduplicated") == 1
        assert sorted(contents(await read_all(other, slow.chat))) == sorted(
            ["warm", *(draft.content for draft in drafts)]
        )


@pytest.mark.parametrize("count", [1, MANY])
async def test_a_memory_that_is_read_anew_does_not_make_an_old_look_good(count: int) -> None:
    """Another task reads the chat between the look and the write: the write still compares the old head."""
    async with world("atomic", 2) as (node, other):
        await said(node, node.chat, node.ben, "warm")
        drafts = drafts_of(node)

        async def overtaken() -> None:
            assert await answers(other, drafts[:count]) == ["stored"] * count
            await node.store.log._states.load(node.chat)

        node.faults.now = Between("BatchGetItem", KEYS, overtaken)
        assert (await answers(node, drafts)).count("deduplicated") == count
        assert sorted(contents(await read_all(other, node.chat))) == sorted(
            ["warm", *(draft.content for draft in drafts)]
        )


async def test_keys_that_are_written_late_do_not_stand_for_others() -> None:
    """While a node writes its keys, another dies without its own, and the first reads the chat anew."""
    async with world("atomic", 2) as (node, gone):
        await said(node, node.chat, node.ben, "warm")
        lost = drafts_of(gone, MANY, 101)

        async def overtaken() -> None:
            await crash_before_keys(gone, lost)
            await node.store.log._states.load(node.chat)

        node.faults.now = Between("BatchWriteItem", KEYS, overtaken)
        assert await answers(node, drafts_of(node)) == ["stored"] * MANY
        assert await answers(node, lost) == ["deduplicated"] * MANY
        assert len(await node.items()) == 1 + 2 * MANY


async def test_two_nodes_that_write_the_same_large_batch_store_it_once() -> None:
    """Both look, both find nothing; one of them moves the head."""
    async with world("atomic", 2) as (one, two):
        drafts = drafts_of(one, FULL)
        results = await asyncio.gather(one.log.append(drafts), two.log.append(drafts))
        first, second = ([place(each) for each in result.outcomes] for result in results)
        assert first == second
        assert contents(await read_all(one, one.chat)) == [f"{n}" for n in range(1, FULL + 1)]


async def test_who_has_lost_a_race_writes_its_keys_within() -> None:
    """No look between learning the head and moving it: a chat of many nodes is written as it always was."""
    async with world("atomic", 2) as (one, two):
        await said(two, one.chat, one.ben, "warm")
        await said(one, one.chat, one.ben, "faster")
        two.faults.now = counted = Counted()
        assert await answers(two, drafts_of(two)) == ["stored"] * MANY
        assert counted.met[("BatchWriteItem", KEYS)] == 0
        assert "keys_through" not in await counter_of(two)


# Batches of all kinds


async def test_retries_behind_the_first_transaction_are_looked_up_too() -> None:
    """Each transaction of a very large batch has looked up what it writes."""
    async with world("atomic", 2) as (node, other):
        old = drafts_of(other, 30)
        await other.log.append(old)
        fresh = drafts_of(node, 3 * FULL, 101)
        mixed = [*fresh[:10], *old[:20], *fresh[10:30], *old[20:], *fresh[30:]]
        told_here = await answers(node, mixed)
        expected = ["deduplicated" if draft in old else "stored" for draft in mixed]
        assert told_here == expected
        assert contents(await read_all(node, node.chat)) == [d.content for d in [*old, *fresh]]


async def test_twins_of_a_large_batch_are_folded() -> None:
    """The same draft twice, and under another sender: one entry."""
    async with world("atomic", 1) as (node,):
        drafts = drafts_of(node)
        stolen = message(node.chat, node.ben, "1", str(drafts[0].client_message_id))
        assert await answers(node, [*drafts, drafts[1], stolen]) == [
            *["stored"] * MANY,
            "deduplicated",
            "duplicate_id",
        ]


async def test_an_id_of_a_large_batch_may_be_used_again_after_a_week() -> None:
    """In another large batch: on the last day it is answered, later it is new."""
    async with world("atomic", 2) as (node, other):
        drafts = drafts_of(node)
        await node.log.append(drafts)
        node.clock.advance(WEEK_MS)
        assert await answers(other, drafts) == ["deduplicated"] * MANY
        node.clock.advance(2_000)
        assert await answers(other, drafts) == ["stored"] * MANY
        assert await answers(node, drafts) == ["deduplicated"] * MANY


# Modes, counters, checks


async def test_a_chat_without_some_keys_continues_in_two_phase() -> None:
    """The other mode has no head to compare: it writes the missing keys before it goes on."""
    async with world("atomic", 1) as (gone,):
        drafts = drafts_of(gone)
        await crash_before_keys(gone, drafts)
        other = Node("dynamodb", {})
        await other.beside(gone)
        try:
            assert await answers(other, [*drafts[2:4], *drafts_of(other, 2, 101)]) == [
                "deduplicated",
                "deduplicated",
                "stored",
                "stored",
            ]
            assert len([each for each in (await other.items()).values() if each != "void"]) == MANY + 2
        finally:
            await other.close()


async def test_a_message_without_its_key_is_found_in_two_phase() -> None:
    """Also by a node that has written nothing."""
    async with world("atomic", 1) as (gone,):
        drafts = drafts_of(gone)
        await crash_before_keys(gone, drafts)
        other = Node("dynamodb", {})
        await other.beside(gone)
        try:
            assert drafts[1].client_key is not None
            assert await other.log.find_key(gone.chat, drafts[1].client_key) is not None
        finally:
            await other.close()


async def test_a_lost_counter_hides_no_message() -> None:
    """What was missing is lost with the counter: retries are answered without it, and after its recovery."""
    async with world("atomic", 2) as (gone, other):
        await said(gone, gone.chat, gone.ben, "1")
        drafts = drafts_of(gone, MANY, 2)
        await crash_before_keys(gone, drafts)
        gone.set_counter(gone.chat, None)
        assert await answers(other, [drafts[0], *drafts_of(other, 1, 101)]) == [
            "deduplicated",
            "counter_missing",
        ]


async def test_a_recovered_counter_hides_no_message() -> None:
    """The counter that recovery writes says that the last keys may be missing."""
    async with world("atomic", 2) as (gone, other):
        await gone.log.append(drafts_of(gone, FULL))
        drafts = drafts_of(gone, FULL, FULL + 1)
        await crash_before_keys(gone, drafts)
        gone.set_counter(gone.chat, None)
        async with gone.operator() as operator:
            await recover(operator, gone.chat, apply=True)
        assert (await counter_of(other))["keys_through"] == FULL
        assert await answers(other, drafts) == ["deduplicated"] * FULL
        assert await answers(other, drafts_of(other, 1, 3 * FULL)) == ["stored"]
        assert "keys_through" not in await counter_of(other)


async def test_a_log_that_was_trimmed_above_missing_keys_goes_on() -> None:
    """What is left of the batch gets its keys; what is gone is not waited for."""
    async with world("atomic", 2) as (gone, other):
        drafts = [message(gone.chat, gone.ann, "x" * 20_000) for _ in range(MANY)]
        await crash_before_keys(gone, drafts)
        first, *_ = await gone.spans()
        await gone.store.dynamo.delete("messages", {"chat_id": gone.chat, "sequence": first[0]})
        await gone.set_chat("trimmed_through", first[1])
        assert told(await outcome(other, drafts[-1])) == "deduplicated"


@pytest.mark.parametrize("is_crashed", [True, False])
async def test_a_check_finds_nothing_wrong(is_crashed: bool) -> None:
    """While keys are missing that the counter knows of, and with all of them."""
    async with world("atomic", 1) as (node,):
        await node.log.append(drafts_of(node))
        if is_crashed:
            await crash_before_keys(node, drafts_of(node, MANY, MANY + 1))
            node.faults.now = None
        assert (await checked(node)).breaches == []


async def test_old_entries_get_no_keys() -> None:
    """A chat that was quiet for a week after a crash: its ids are free, as those of others are."""
    async with world("atomic", 2) as (gone, other):
        drafts = drafts_of(gone)
        await crash_before_keys(gone, drafts)
        gone.clock.advance(WEEK_MS + 2_000)
        assert told(await outcome(other, drafts[0])) == "stored"
        assert (await keys_of(other)).keys() == {str(drafts[0].client_message_id)}
