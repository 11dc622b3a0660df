"""Entries that share an item of `messages`: read like others, written once, found by every id.

What holds on every engine is in the suites of the ports, which append batches too. Here is what can only go
wrong within a bundle.
"""

import asyncio
from typing import Any

import pytest

from bench.dynamodb.pricing import write_units
from parley.checks.recovery import recover
from parley.errors import STORE_DAMAGED, StoreDamaged
from parley.model import Appended, Draft, Outcome
from parley.store import compared_overviews
from parley.store.dynamodb import overview, scans
from parley.store.dynamodb.append import MESSAGES_PER_TRANSACTION_MAX
from parley.store.dynamodb.bundles import BUNDLE_BYTES_MAX, BUNDLED_MAX, put_entries, unbundled
from parley.store.dynamodb.driver import ConditionFailed, Fault, Item, Request, Response, Send
from parley.store.dynamodb.entries import NEW_POSITION
from parley.store.dynamodb.schema import COUNTERS, KEYS, MESSAGES
from parley.store.shared import SEAL_AFTER_MS
from parley.testing.dynamodb_faults import timeout_done, timeout_not_done
from parley.wire.limits import MESSAGE_BYTES_MAX
from tests.contracts.acting import (
    code_of,
    contents,
    decode_entry,
    entries_of,
    head_of,
    message,
    new_id,
    outcome,
    place,
    position_of,
    read_all,
    resolved,
    said,
    stored,
    told,
)
from tests.contracts.dynamodb_world import Crashed, Node, world
from tests.contracts.test_inspection import checked
from tests.harness.fault_plans import Planned
from tests.waiting import eventually

MODES = ["atomic", "two_phase"]
WEEK_MS = 7 * 86_400_000
ROOM = 1_000
"""More than the ids, names and types of an entry take."""


@pytest.fixture(autouse=True)
def _look_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks broken is broken: nobody writes meanwhile."""
    monkeypatch.setattr(scans, "READ_AGAIN_SECONDS", 0.0)


def drafts_of(node: Node, count: int, first: int = 1) -> list[Draft]:
    return [message(node.chat, node.ann, f"{n}") for n in range(first, first + count)]


async def bundle(node: Node, count: int) -> list[Outcome]:
    """Append so many in one batch, and see that they share an item."""
    head = await head_of(node, node.chat)
    outcomes = (await node.log.append(drafts_of(node, count, head + 1))).outcomes
    assert (await node.spans())[-1] == (head + 1, head + count)
    return outcomes


async def breaches_in(node: Node, *chat_ids: str) -> set[str]:
    return {breach.invariant for breach in (await checked(node, *chat_ids)).breaches}


# Pages


@pytest.mark.parametrize("mode", MODES)
async def test_every_page_is_the_same_wherever_it_starts_and_ends(mode: str) -> None:
    """Forwards and backwards over bundles, plain items and a void, from each position and of each size."""
    async with world(mode, 1) as (node,):
        await bundle(node, 4)
        await said(node, node.chat, node.ben, "5")
        await bundle(node, 3)
        await bundle(node, 2)
        assert await node.spans() == [(1, 4), (5, 5), (6, 8), (9, 10)]
        for start in range(12):
            for limit in range(1, 12):
                after = await node.log.read(node.chat, start, limit)
                assert resolved(after) == [*range(start + 1, min(start + limit, 10) + 1)]
                assert contents(entries_of(after)) == [f"{n}" for n in resolved(after)]
                before = await node.log.read_before(node.chat, start, limit)
                assert resolved(before) == [*range(max(1, min(start, 11) - limit), min(start, 11))]
                assert contents(entries_of(before)) == [f"{n}" for n in resolved(before)]


@pytest.mark.parametrize("mode", MODES)
async def test_a_full_bundle_is_read_from_its_last_position(mode: str) -> None:
    """The largest distance between a position and its item, in both directions."""
    async with world(mode, 1) as (node,):
        await bundle(node, BUNDLED_MAX)
        await bundle(node, BUNDLED_MAX)
        last = 2 * BUNDLED_MAX
        assert resolved(await node.log.read(node.chat, last - 1, 10)) == [last]
        assert resolved(await node.log.read_before(node.chat, last + 1, 1)) == [last]
        assert resolved(await node.log.read_before(node.chat, BUNDLED_MAX + 1, 1)) == [BUNDLED_MAX]


@pytest.mark.parametrize("mode", MODES)
async def test_entries_come_back_as_they_were(mode: str) -> None:
    """Each field of an entry is what was told when it was stored, with odd contents and several senders."""
    async with world(mode, 1) as (node,):
        odd = ["", "\x00\x1f", "💬\U0010ffff", '"\\', "x" * 5_000]
        drafts = [message(node.chat, sender, content) for content in odd for sender in (node.ann, node.ben)]
        result = await node.log.append(drafts)
        assert await node.spans() == [(1, len(drafts))]
        [news] = result.persisted
        told_live = [decode_entry(at.wire) for at in news.positions if at.wire is not None]
        assert await read_all(node, node.chat) == told_live
        assert [(each.sender_id, each.content) for each in told_live] == [
            (draft.sender_id, draft.content) for draft in drafts
        ]


# Sizes


@pytest.mark.parametrize("mode", MODES)
async def test_a_bundle_ends_at_its_limit(mode: str) -> None:
    """What does not fit goes into the next item, and a large message has its own; all in one transaction."""
    async with world(mode, 1) as (node,):
        third, large = "x" * (BUNDLE_BYTES_MAX // 3 - ROOM), "y" * MESSAGE_BYTES_MAX
        drafts = [message(node.chat, node.ann, each) for each in [third] * 4 + [large] + [third] * 2]
        before = node.store.dynamo.capacity.requests["TransactWriteItems"]
        assert [told(each) for each in (await node.log.append(drafts)).outcomes] == ["stored"] * 7
        assert node.store.dynamo.capacity.requests["TransactWriteItems"] == before + 1
        assert await node.spans() == [(1, 3), (4, 4), (5, 5), (6, 7)]
        assert contents(await read_all(node, node.chat)) == [draft.content for draft in drafts]


@pytest.mark.parametrize("mode", MODES)
async def test_one_message_is_a_plain_item(mode: str) -> None:
    """Alone it is stored as before there were bundles, and its key names no other item."""
    async with world(mode, 1) as (node,):
        await said(node, node.chat, node.ann, "alone")
        item = await node.store.dynamo.get(MESSAGES, {"chat_id": node.chat, "sequence": 1})
        assert item is not None
        assert (item["kind"], item["content"], "through" in item) == ("message", "alone", False)
        [key] = await node.store.dynamo.query_all(KEYS, "chat_id = :chat", {":chat": node.chat})
        assert "item_sequence" not in key


PARTITION_UNITS = 1_000
"""Write units that a partition takes in a second."""


@pytest.mark.parametrize("mode", MODES)
async def test_a_partition_takes_three_times_the_messages(mode: str) -> None:
    """Of 128 characters in full batches, by AWS's rules: over 1,800 a second in a partition that took 500."""
    async with world(mode, 1) as (node,):
        await said(node, node.chat, node.ann, "warm")
        units = 0

        def count_units(operation: str, request: Request) -> Fault | None:
            nonlocal units
            for action in request.get("TransactItems", ()):
                if action.get("Put", {}).get("TableName", "").endswith(MESSAGES):
                    units += write_units("TransactWriteItems", {"TransactItems": [action]})
            return None

        node.faults.now = count_units
        full = MESSAGES_PER_TRANSACTION_MAX
        await node.log.append([message(node.chat, node.ann, "x" * 128) for _ in range(full)])
        assert full * PARTITION_UNITS / units > 1_800


# Ids


@pytest.mark.parametrize("mode", MODES)
async def test_each_message_of_a_bundle_is_found_by_its_ids(mode: str) -> None:
    """By message id and by client id, on a node that has not written it; another id is not found."""
    async with world(mode, 2) as (node, other):
        drafts = drafts_of(node, 5)
        outcomes = (await node.log.append(drafts)).outcomes
        for draft, each in zip(drafts, outcomes, strict=True):
            sequence, message_id = place(each)
            assert await other.log.find_message(message_id, [node.chat]) == (node.chat, sequence)
            assert draft.client_key is not None
            found = await other.log.find_key(node.chat, draft.client_key)
            assert found is not None
            assert decode_entry(found).content == draft.content
        wrong = place(outcomes[2])[1][:-1] + ("0" if place(outcomes[2])[1][-1] != "0" else "1")
        assert await other.log.find_message(wrong, [node.chat]) is None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_known", [True, False])
async def test_a_retry_of_one_message_of_a_bundle_is_answered(mode: str, is_known: bool) -> None:
    """Alone, among new ones, with another content and by another sender; on this node and on another."""
    async with world(mode, 2) as nodes:
        node, other = nodes[0], nodes[0] if is_known else nodes[1]
        drafts = drafts_of(node, 5)
        first = (await node.log.append(drafts)).outcomes
        client_id = str(drafts[2].client_message_id)
        again = await outcome(other, drafts[2])
        assert (told(again), place(again)) == ("deduplicated", place(first[2]))
        changed = await outcome(other, message(node.chat, node.ann, "something else", client_id))
        assert isinstance(changed, Appended)
        assert (changed.conflict, changed.sequence) == (True, 3)
        assert await code_of(other, message(node.chat, node.ben, "3", client_id)) == "duplicate_id"
        mixed = [message(node.chat, node.ann, "new"), drafts[4], message(node.chat, node.ann, "newer")]
        assert [told(each) for each in (await other.log.append(mixed)).outcomes] == [
            "stored",
            "deduplicated",
            "stored",
        ]
        assert contents(await read_all(other, node.chat)) == ["1", "2", "3", "4", "5", "new", "newer"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_message_of_a_bundle_is_a_predecessor(mode: str) -> None:
    """Whoever names one that is stored is written after it; whoever names another is out of turn."""
    async with world(mode, 2) as (node, other):
        drafts = drafts_of(node, 3)
        await node.log.append(drafts)
        after = str(drafts[1].client_message_id)
        assert told(await outcome(other, message(node.chat, node.ann, "next", after=after))) == "stored"
        assert await code_of(other, message(node.chat, node.ann, "lost", after=new_id())) == "out_of_turn"


@pytest.mark.parametrize("mode", MODES)
async def test_a_retry_batched_with_its_original_is_folded(mode: str) -> None:
    """One entry in the bundle, two answers with the same place."""
    async with world(mode, 1) as (node,):
        drafts = drafts_of(node, 3)
        outcomes = (await node.log.append([*drafts, drafts[1]])).outcomes
        assert [told(each) for each in outcomes] == ["stored", "stored", "stored", "deduplicated"]
        assert place(outcomes[3]) == place(outcomes[1])
        assert await node.spans() == [(1, 3)]


@pytest.mark.parametrize("mode", MODES)
async def test_an_id_of_a_bundle_may_be_used_again_after_a_week(mode: str) -> None:
    """The key of each message keeps its own time: on the last day a retry is answered, later it is new."""
    async with world(mode, 2) as (node, other):
        drafts = drafts_of(node, 3)
        await node.log.append(drafts)
        node.clock.advance(WEEK_MS)
        assert told(await outcome(other, drafts[1])) == "deduplicated"
        node.clock.advance(2_000)
        assert told(await outcome(other, drafts[1])) == "stored"
        assert contents(await read_all(node, node.chat)) == ["1", "2", "3", "2"]


# Two writers, lost answers


@pytest.mark.parametrize("mode", MODES)
async def test_two_nodes_that_write_the_same_batch_store_it_once(mode: str) -> None:
    """A client sends its window to two nodes at once: one bundle, and the same places from both."""
    async with world(mode, 2) as (one, two):
        drafts = drafts_of(one, 10)
        results = await asyncio.gather(one.log.append(drafts), two.log.append(drafts))
        first, second = ([place(each) for each in result.outcomes] for result in results)
        assert first == second
        assert contents(await read_all(one, one.chat)) == [f"{n}" for n in range(1, 11)]
        await one.items()


@pytest.mark.parametrize("mode", MODES)
async def test_two_nodes_that_write_different_batches_keep_both(mode: str) -> None:
    """Each batch has its own positions, in its own order, and no position has two entries."""
    async with world(mode, 2) as (one, two):
        mine, yours = drafts_of(one, 8), drafts_of(two, 8, 101)
        results = await asyncio.gather(one.log.append(mine), two.log.append(yours))
        for result in results:
            places = [place(each)[0] for each in result.outcomes]
            assert places == sorted(places)
        said_there = [content for content in (await one.items()).values() if content != "void"]
        assert sorted(said_there) == sorted(draft.content for draft in [*mine, *yours])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", [timeout_done, timeout_not_done])
async def test_a_lost_answer_is_found_out_by_reading(mode: str, fault: Fault) -> None:
    """Whether the transaction of a bundle was done or not: all of it is stored once, and acknowledged."""
    async with world(mode, 1) as (node,):
        await said(node, node.chat, node.ann, "warm")
        node.faults.now = Planned(TransactWriteItems=[fault])
        outcomes = (await node.log.append(drafts_of(node, 6))).outcomes
        assert [told(each) for each in outcomes] == ["stored"] * 6
        assert await node.spans() == [(1, 1), (2, 7)]


@pytest.mark.parametrize("mode", MODES)
async def test_a_crash_after_the_write_is_resolved_by_retries(mode: str) -> None:
    """The node is gone before its acks: another one answers each message of the bundle with its place."""
    async with world(mode, 2) as (gone, other):
        drafts = drafts_of(gone, 6)
        gone.crash.at = "after_commit_before_ack"
        with pytest.raises(Crashed):
            await gone.log.append(drafts)
        outcomes = (await other.log.append(drafts)).outcomes
        assert [(told(each), place(each)[0]) for each in outcomes] == [
            ("deduplicated", n) for n in range(1, 7)
        ]
        assert await other.spans() == [(1, 6)]


# Write once


async def test_a_bundle_is_not_written_where_its_numbers_were_sealed() -> None:
    """A slow node has taken 1 to 4 and another has sealed them: its bundle fails, and takes other numbers."""
    async with world("two_phase", 3, seal_after_ms=SEAL_AFTER_MS) as (slow, quick, reader):
        slow.gate.close()
        late = asyncio.create_task(slow.log.append(drafts_of(slow, 4)))
        await slow.gate.reached.wait()
        ack = asyncio.create_task(stored(quick, message(slow.chat, slow.ben, "quick")))
        await eventually(lambda: reader.has_written(5))
        assert await head_of(reader, slow.chat) == 0
        slow.clock.advance(SEAL_AFTER_MS)
        await ack
        slow.gate.open()
        assert [told(each) for each in (await late).outcomes] == ["stored"] * 4
        assert await reader.items() == {
            **dict.fromkeys(range(1, 5), "void"),
            5: "quick",
            **{n: f"{n - 5}" for n in range(6, 10)},
        }


async def test_a_hole_that_a_bundle_fills_meanwhile_is_not_sealed() -> None:
    """A sealer that has seen some of 1 to 4 missing looks again, finds the bundle, and leaves it whole."""
    async with world("two_phase", 2, seal_after_ms=SEAL_AFTER_MS) as (slow, reader):
        await bundle(slow, 4)
        state = await reader.store.log._states.load(slow.chat)
        assert state is not None
        for first in range(1, 5):
            assert await reader.store.log._prefixes.seal(state, range(first, 5), are_abandoned=True) == []
        assert await reader.items() == {n: f"{n}" for n in range(1, 5)}


class Before:
    """Does something once, before the first transaction arrives."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self.is_done = False

    def __call__(self, operation: str, request: Request) -> Fault | None:
        return self._first if operation == "TransactWriteItems" and not self.is_done else None

    async def _first(self, operation: str, request: Request, send: Send) -> Response:
        self.is_done = True
        await self._work()
        return await send(operation, request)


async def test_a_sealer_that_loses_against_a_bundle_leaves_it_whole() -> None:
    """The bundle arrives between a sealer's look and its write: only the first position has an item."""
    async with world("two_phase", 2, seal_after_ms=SEAL_AFTER_MS) as (slow, reader):
        state = await reader.store.log._states.load(slow.chat)
        assert state is not None
        reader.faults.now = Before(lambda: bundle(slow, 4))
        sealed = await reader.store.log._prefixes.seal(state, range(1, 7), are_abandoned=True)
        assert [at.sequence for at in sealed] == [5, 6]
        assert await reader.items() == {**{n: f"{n}" for n in range(1, 5)}, 5: "void", 6: "void"}


async def test_numbers_that_were_given_twice_do_not_land_in_a_bundle() -> None:
    """An allocator has forgotten: a node with an old memory gets 2 again, which a bundle holds already."""
    async with world("two_phase", 2) as (one, two):
        await said(two, one.chat, one.ben, "1")
        await bundle(one, 4)
        two.set_counter(one.chat, 2)  # two still remembers that the log ends at 1
        assert told(await outcome(two, message(one.chat, one.ben, "again"))) == "counter_inconsistent"
        assert await one.items() == {1: "1", **{n: f"{n}" for n in range(2, 6)}}


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("counter", range(1, 4))
async def test_a_counter_that_was_set_back_into_a_bundle_writes_nothing(counter: int, is_whole: bool) -> None:
    """In atomic: on a node that knows the chat and on one that does not, the send is refused."""
    async with world("atomic", 2) as (node, other):
        await bundle(node, 4)
        values: Item = {":n": counter}
        expression = "SET sequence_counter = :n" + (", written_through = :n" if is_whole else "")
        await node.store.dynamo.update(COUNTERS, {"chat_id": node.chat}, expression, values)
        for each in (node, other):
            assert await code_of(each, message(node.chat, node.ann, "lost")) == "counter_inconsistent"
        assert await node.items() == {n: f"{n}" for n in range(1, 5)}


async def test_a_position_of_a_bundle_is_written_once() -> None:
    """The item of a bundle has the condition of every entry, whoever puts it."""
    async with world("atomic", 1) as (node,):
        await bundle(node, 3)
        put = put_entries(await read_all(node, node.chat))
        assert put.condition == NEW_POSITION
        with pytest.raises(ConditionFailed):
            await node.store.dynamo.put(MESSAGES, put.item, condition=put.condition)


# Overview


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("limit", [3, 999])
async def test_the_overview_sees_into_bundles(mode: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last entry, and how many of others are unread from each position, up to a limit."""
    for module in (overview, compared_overviews):
        monkeypatch.setattr(module, "UNREAD_MAX", limit)
    async with world(mode, 1) as (node,):
        senders = [node.ben, node.ann, node.ben, node.ben, node.ann, node.ben]
        await node.log.append([message(node.chat, each, f"{n}") for n, each in enumerate(senders, 1)])
        await said(node, node.chat, node.ben, "7")
        await node.log.append([message(node.chat, each, f"{n}") for n, each in enumerate(senders, 8)])
        assert await node.spans() == [(1, 6), (7, 7), (8, 13)]
        everybody = [*senders, node.ben, *senders]
        for read in range(14):
            node.rows.set_read(node.ann, node.chat, read)
            at = await position_of(node, node.ann, node.chat)
            others = sum(sender == node.ben for sender in everybody[read:])
            assert (at.unread, at.unread_more) == (min(others, limit), others > limit)
            assert at.last_entry is not None
            assert decode_entry(at.last_entry).content == "13"


# Check and recovery


@pytest.mark.parametrize("mode", MODES)
async def test_a_check_finds_nothing_wrong_with_bundles(mode: str) -> None:
    """Bundles, plain items and their keys, with a device in the middle of a bundle."""
    async with world(mode, 1) as (node,):
        await bundle(node, 5)
        await said(node, node.chat, node.ann, "6")
        await bundle(node, 2)
        node.cursors.note_acked(node.ben, "phone", node.chat, 3, node.clock())
        await node.cursors.flush()
        assert await breaches_in(node) == set()


DAMAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "cannot be read": ("wire_agreement", {"entries": b"\xc1"}),
    "has too few senders": ("wire_agreement", {"senders": b"\x91\xa1x"}),
    "ends too early": ("log_density", {"through": 2, "entries": b"", "senders": b""}),
    "overlaps the next": ("sequence_uniqueness", {"through": 5}),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_check_names_what_is_wrong_with_a_bundle(damage: str) -> None:
    """Each damage is found under the name of its invariant."""
    async with world("atomic", 1) as (node,):
        await bundle(node, 4)
        await bundle(node, 2)
        invariant, wrong = DAMAGES[damage]
        item = await node.store.dynamo.get(MESSAGES, {"chat_id": node.chat, "sequence": 1})
        assert item is not None
        await node.store.dynamo.put(MESSAGES, item | wrong)
        assert invariant in await breaches_in(node)


async def test_a_damaged_bundle_is_refused_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads of it and retries of what is in it are `store_damaged`; what is behind it is read and stored."""
    monkeypatch.setattr("parley.store.dynamodb.log.READ_AGAIN_SECONDS", (0.0,))
    async with world("atomic", 1) as (node,):
        drafts = drafts_of(node, 4, 1)
        await node.log.append(drafts)
        await said(node, node.chat, node.ann, "behind")
        item = await node.store.dynamo.get(MESSAGES, {"chat_id": node.chat, "sequence": 1})
        assert item is not None
        await node.store.dynamo.put(MESSAGES, item | {"entries": b"\xc1"})
        with pytest.raises(StoreDamaged, match="position 1 does not decode"):
            await node.log.read(node.chat, 0, 10)
        assert not node.metrics.damage.stops_writes(node.metrics.now())
        assert (await node.log.append(drafts[1:2])).outcomes == [STORE_DAMAGED]
        assert node.metrics.damage.stops_writes(node.metrics.now())
        assert (await node.log.read(node.chat, 4, 10)).to_sequence == 5
        assert (await said(node, node.chat, node.ann, "on"))[0].sequence == 6
        await node.store.dynamo.delete(MESSAGES, {"chat_id": node.chat, "sequence": 5})
        with pytest.raises(StoreDamaged, match="position 5: nothing is there"):
            await node.log.read(node.chat, 4, 10)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("given", [4, 6])
async def test_a_lost_counter_is_recovered_from_a_bundle(mode: str, given: int) -> None:
    """The log ends within an item: the counter continues after its last entry, and holes become voids."""
    async with world(mode, 1) as (node,):
        await bundle(node, 4)
        node.rows.set_delivered(node.ben, node.chat, given)
        node.set_counter(node.chat, None)
        assert await code_of(node, message(node.chat, node.ann, "refused")) == "counter_missing"
        async with node.operator() as operator:
            found = await recover(operator, node.chat, apply=True)
        assert found.remains.entries == 4
        assert node.counter(node.chat) == given
        after = await stored(node, message(node.chat, node.ann, "after"))
        assert after.sequence == given + 1
        voids = dict.fromkeys(range(5, given + 1), "void")
        assert await node.items() == {**{n: f"{n}" for n in range(1, 5)}, **voids, given + 1: "after"}
        assert await breaches_in(node) == set()


@pytest.mark.parametrize("mode", MODES)
async def test_a_log_that_was_trimmed_within_a_bundle_goes_on(mode: str) -> None:
    """What is left of the bundle is read, and nothing of it is sealed."""
    async with world(mode, 2) as (node, other):
        await bundle(node, 5)
        await bundle(node, 2)
        await node.set_chat("trimmed_through", 3)
        await said(other, node.chat, node.ben, "8")
        assert await head_of(other, node.chat) == 8
        assert await other.log.seal() == []
        assert contents(entries_of(await other.log.read(node.chat, 3, 10))) == ["4", "5", "6", "7", "8"]
        assert await breaches_in(other) == set()


# Both forms


@pytest.mark.parametrize("mode", MODES)
async def test_a_table_from_before_bundles_goes_on(mode: str) -> None:
    """Plain items of a batch, as earlier versions wrote them, are read, found and followed by bundles."""
    async with world(mode, 2) as (node, other):
        drafts = drafts_of(node, 5)
        await node.log.append(drafts)
        item = await node.store.dynamo.get(MESSAGES, {"chat_id": node.chat, "sequence": 1})
        assert item is not None
        await node.store.dynamo.batch_put(MESSAGES, unbundled(item))
        for key in await node.store.dynamo.query_all(KEYS, "chat_id = :chat", {":chat": node.chat}):
            key.pop("item_sequence", None)
            await node.store.dynamo.put(KEYS, key)
        await node.store.dynamo.update(COUNTERS, {"chat_id": node.chat}, "REMOVE bundled_through")
        assert await node.spans() == [(n, n) for n in range(1, 6)]
        assert told(await outcome(other, drafts[3])) == "deduplicated"
        await other.log.append(drafts_of(other, 3, 6))
        assert await node.spans() == [*((n, n) for n in range(1, 6)), (6, 8)]
        assert contents(await read_all(other, node.chat)) == [f"{n}" for n in range(1, 9)]
        assert await breaches_in(other) == set()


@pytest.mark.parametrize(("before", "after"), [("atomic", "two_phase"), ("two_phase", "atomic")])
async def test_a_chat_with_bundles_continues_in_the_other_mode(before: str, after: str) -> None:
    """Either mode reads and continues what the other has written."""
    async with world(before, 1) as (node,):
        drafts = drafts_of(node, 4)
        await node.log.append(drafts)
        other = Node({"atomic": None, "two_phase": "dynamodb"}[after], {})
        await other.beside(node)
        try:
            assert told(await outcome(other, drafts[2])) == "deduplicated"
            await other.log.append(drafts_of(other, 3, 5))
            said_there = [content for content in (await other.items()).values() if content != "void"]
            assert said_there == [f"{n}" for n in range(1, 8)]
            assert contents(await read_all(other, node.chat)) == said_there
        finally:
            await other.close()
