"""`two_phase` on DynamoDB: numbers that are taken and not written, trimmed logs, and counters that forget."""

import asyncio

import pytest

from parley.model import Appended
from parley.sequencing.redis import RedisAllocator
from parley.store.shared import SEAL_AFTER_MS
from parley.testing.dynamodb_faults import conflict, timeout_done, timeout_not_done
from tests.contracts.acting import (
    code_of,
    contents,
    head_of,
    message,
    outcome,
    place,
    read_all,
    resolved,
    said,
    sequences,
    stored,
    told,
)
from tests.contracts.dynamodb_nodes import Held, On
from tests.contracts.dynamodb_world import Crashed, Node, close_all, world
from tests.harness.fault_plans import Planned
from tests.services import redis_url
from tests.waiting import deadline, eventually

ALLOCATORS = ["two_phase", "two_phase-redis", "two_phase-sequencer"]


async def take(node: Node) -> int:
    """Somebody takes a number, and is never heard of again."""
    assert node.allocator is not None
    return await node.allocator.allocate(node.chat, 1, 0)


@pytest.mark.parametrize("mode", ALLOCATORS)
async def test_a_hole_is_sealed_at_the_stated_delay(mode: str) -> None:
    """A node hangs with 1: 2 is neither seen nor acknowledged until 1 is void, and the late one takes 3."""
    async with world(mode, 3, seal_after_ms=SEAL_AFTER_MS) as (slow, quick, reader):
        slow.gate.close()
        late = asyncio.create_task(stored(slow, message(slow.chat, slow.ann, "late")))
        await slow.gate.reached.wait()
        ack = asyncio.create_task(stored(quick, message(slow.chat, slow.ben, "quick")))
        await eventually(lambda: reader.has_written(2))
        assert [await head_of(node, slow.chat) for node in (quick, reader)] == [0, 0]
        slow.clock.advance(SEAL_AFTER_MS - 1)
        assert await reader.log.seal() == []
        assert (await reader.log.read(slow.chat, 0, 10)).to_sequence == 0
        assert not ack.done()
        slow.clock.advance(1)
        assert (await ack).sequence == 2
        page = await reader.log.read(slow.chat, 0, 10)
        assert (page.voids, page.head) == ([1], 2)
        slow.gate.open()
        assert (await late).sequence == 3
        assert await reader.items() == {1: "void", 2: "quick", 3: "late"}


async def test_whoever_sees_a_hole_seals_it() -> None:
    """If nobody writes any more, a node that only reads seals what it saw missing, and tells of it."""
    async with world("two_phase", 2, seal_after_ms=SEAL_AFTER_MS) as (gone, reader):
        await take(gone)
        gone.crash.at = "after_commit_before_ack"
        with pytest.raises(Crashed):
            await outcome(gone, message(gone.chat, gone.ann, "unacknowledged"))
        assert (await head_of(reader, gone.chat), await reader.log.seal()) == (0, [])
        gone.clock.advance(SEAL_AFTER_MS)
        (news,) = await reader.log.seal()
        assert [(at.sequence, at.wire) for at in news.positions] == [(1, None)]
        assert contents(await read_all(reader, gone.chat)) == ["unacknowledged"]
        assert await reader.log.seal() == []


async def test_of_two_that_seal_a_hole_one_counts_it() -> None:
    """Two nodes see the same hole and seal it at once: one void, one gap, told of by one of them."""
    async with world("two_phase", 3, seal_after_ms=SEAL_AFTER_MS) as (gone, one, two):
        await take(gone)
        gone.crash.at = "after_commit_before_ack"
        with pytest.raises(Crashed):
            await outcome(gone, message(gone.chat, gone.ann, "unacknowledged"))
        assert [await head_of(node, gone.chat) for node in (one, two)] == [0, 0]
        gone.clock.advance(SEAL_AFTER_MS)
        told_of = await asyncio.gather(one.log.seal(), two.log.seal())
        assert sorted(len(news) for news in told_of) == [0, 1]
        assert sorted(node.metrics.gaps.rate() for node in (one, two)) == [0.0, 1.0]


async def test_holes_are_sealed_together() -> None:
    """Several abandoned numbers cost one delay, not one each."""
    async with world("two_phase", 2, seal_after_ms=SEAL_AFTER_MS) as (one, two):
        await take(one)
        first = asyncio.create_task(stored(one, message(one.chat, one.ann, "2")))
        await eventually(lambda: two.has_written(2))
        await take(one)
        second = asyncio.create_task(stored(two, message(one.chat, one.ann, "4")))
        await eventually(lambda: two.has_written(4))
        await head_of(one, one.chat)
        await head_of(two, one.chat)
        one.clock.advance(SEAL_AFTER_MS)
        assert ((await first).sequence, (await second).sequence) == (2, 4)
        assert (await two.log.read(one.chat, 0, 10)).voids == [1, 3]


async def test_a_retry_is_not_acknowledged_before_it_is_visible() -> None:
    """The retry of a message behind a hole waits as its original does."""
    async with world("two_phase", 2, seal_after_ms=SEAL_AFTER_MS) as (one, two):
        await take(one)
        draft = message(one.chat, one.ann, "hidden")
        original = asyncio.create_task(stored(one, draft))
        await eventually(lambda: two.has_written(2))
        retry = asyncio.create_task(stored(two, draft))
        await head_of(two, one.chat)
        one.clock.advance(SEAL_AFTER_MS - 1)
        await asyncio.wait([retry, original], timeout=0.3)
        assert [retry.done(), original.done()] == [False, False]
        one.clock.advance(1)
        assert (told(await retry), told(await original)) == ("deduplicated", "stored")
        assert await head_of(two, one.chat) == 2


async def test_what_stays_hidden_is_not_acknowledged() -> None:
    """If a hole outlasts a sender's patience, the message is open; what is visible already is not."""
    async with world("two_phase", 1, seal_after_ms=SEAL_AFTER_MS, append_seconds=0.1) as (node,):
        seen = message(node.chat, node.ann, "seen")
        await stored(node, seen)
        await take(node)
        hidden = message(node.chat, node.ann, "hidden")
        result = await node.log.append([seen, hidden])
        assert [told(each) for each in result.outcomes] == ["deduplicated", "outcome_unknown"]
        node.clock.advance(SEAL_AFTER_MS)
        assert told(await stored(node, hidden)) == "deduplicated"


async def test_a_chat_goes_on_behind_a_hole() -> None:
    """Until the number of a dead node is sealed each sender hears that nobody knows; then all is there."""
    async with world("two_phase", 2, seal_after_ms=SEAL_AFTER_MS, append_seconds=0.1) as (dead, node):
        await take(dead)
        drafts = [message(node.chat, node.ann, f"{n}") for n in range(2)]
        assert [told(await outcome(node, draft)) for draft in drafts] == ["outcome_unknown"] * 2
        node.clock.advance(SEAL_AFTER_MS)
        assert [told(await outcome(node, draft)) for draft in drafts] == ["deduplicated"] * 2
        assert contents(await read_all(node, node.chat)) == ["0", "1"]


async def test_what_was_written_before_a_failure_is_acknowledged_when_visible() -> None:
    """A later transaction of the same append fails: the earlier one's messages are still seen by all."""
    async with world("two_phase", 2, deadline_seconds=0.3) as (one, two):
        await take(one)
        drafts = [message(one.chat, one.ann, f"{n}") for n in range(60)]
        one.faults.now = Planned(TransactWriteItems=[None, *[conflict] * 12])
        result = await one.log.append(drafts)
        assert [told(each) for each in result.outcomes] == ["stored"] * 49 + ["store_unavailable"] * 11
        assert await head_of(two, one.chat) == 50


@pytest.mark.parametrize("fault", [timeout_done, timeout_not_done, conflict])
async def test_a_seal_whose_answer_is_lost_is_repeated(fault: object) -> None:
    """Sealing survives what writing survives, and is done once."""
    async with world("two_phase", 2, seal_after_ms=SEAL_AFTER_MS) as (one, two):
        await take(one)
        ack = asyncio.create_task(stored(one, message(one.chat, one.ann, "2")))
        await eventually(lambda: two.has_written(2))
        await head_of(one, one.chat)
        one.faults.now = Planned(TransactWriteItems=[fault])  # type: ignore[list-item]
        one.clock.advance(SEAL_AFTER_MS)
        assert (await ack).sequence == 2
        assert await two.items() == {1: "void", 2: "2"}


async def test_two_nodes_seal_the_same_hole() -> None:
    """Whoever is first writes the void, and both go on."""
    async with world("two_phase", 2, seal_after_ms=SEAL_AFTER_MS) as (one, two):
        await take(one)
        acks = [asyncio.create_task(stored(node, message(one.chat, one.ann, "x"))) for node in (one, two)]
        await eventually(lambda: two.has_written(2, 3))
        for node in (one, two):
            await head_of(node, one.chat)
        one.clock.advance(SEAL_AFTER_MS)
        assert sorted([(await ack).sequence for ack in acks]) == [2, 3]
        assert (await two.log.read(one.chat, 0, 10)).voids == [1]


# Trimmed logs


async def test_a_late_writer_of_a_trimmed_position_writes_nothing_there() -> None:
    """What was cut off stays empty: the writer takes numbers beyond it, in their order."""
    async with world("two_phase", 2, seal_after_ms=SEAL_AFTER_MS) as (slow, other):
        slow.gate.close()
        drafts = [message(slow.chat, slow.ann, f"{n}") for n in range(3)]
        sending = asyncio.create_task(slow.log.append(drafts))
        await slow.gate.reached.wait()
        await other.set_chat("trimmed_through", 2)
        slow.gate.open()
        outcomes = (await sending).outcomes
        assert [each.sequence for each in outcomes if isinstance(each, Appended)] == [4, 5, 6]
        assert await other.items() == {3: "void", 4: "0", 5: "1", 6: "2"}
        assert await head_of(other, slow.chat) == 6


async def test_a_late_sealer_of_a_trimmed_position_writes_nothing_there() -> None:
    """A hole that was seen before the log was cut off above it is not sealed after."""
    async with world("two_phase", 3, seal_after_ms=SEAL_AFTER_MS) as (one, sealer, reader):
        await take(one)
        await take(one)
        ack = asyncio.create_task(stored(one, message(one.chat, one.ann, "3")))
        await eventually(lambda: sealer.has_written(3))
        assert await head_of(sealer, one.chat) == 0
        await reader.set_chat("trimmed_through", 2)
        one.clock.advance(SEAL_AFTER_MS)
        assert await sealer.log.seal() == []
        assert (await ack).sequence == 3
        assert (await reader.items(), await head_of(reader, one.chat)) == ({3: "3"}, 3)


async def test_a_seal_that_the_cut_overtakes_writes_nothing() -> None:
    """A log that is cut off while a seal is on its way gets no void below the cut."""
    async with world("two_phase", 3, seal_after_ms=SEAL_AFTER_MS) as (one, sealer, reader):
        await take(one)
        await take(one)
        unseen = asyncio.create_task(stored(one, message(one.chat, one.ann, "3")))
        await eventually(lambda: sealer.has_written(3))
        unseen.cancel()  # its own node would seal the numbers below
        assert await head_of(sealer, one.chat) == 0
        one.clock.advance(SEAL_AFTER_MS)
        sealer.faults.now = held = Held("TransactWriteItems")
        sealing = asyncio.create_task(sealer.log.seal())
        async with deadline():
            await held.reached.wait()
        await reader.set_chat("trimmed_through", 2)
        held.release()
        assert (await sealing, await reader.items()) == ([], {3: "3"})


async def test_a_writer_does_not_void_a_trimmed_number() -> None:
    """Numbers that are given up are sealed only above the cut: those of a duplicate below it stay empty."""
    async with world("two_phase", 2, seal_after_ms=SEAL_AFTER_MS) as (slow, other):
        slow.gate.close()
        twice, new = message(slow.chat, slow.ann, "twice"), message(slow.chat, slow.ann, "new")
        sending = asyncio.create_task(slow.log.append([twice, new]))
        await slow.gate.reached.wait()
        retry = asyncio.create_task(stored(other, twice))
        await eventually(lambda: other.has_written(3))
        await other.set_chat("trimmed_through", 1)
        slow.gate.open()
        answered = (await sending).outcomes
        assert [told(each) for each in answered] == ["deduplicated", "stored"]
        assert place(answered[0]) == place(await retry)
        assert (await retry).sequence == 3
        assert 1 not in await other.items()


# Counters that forget


@pytest.mark.parametrize("mode", ["two_phase", "two_phase-redis"])
async def test_a_counter_that_fell_back_gives_nothing_until_it_is_restored(mode: str) -> None:
    """A counter behind its log is refused and stays as it is; restored, it goes on above the log."""
    async with world(mode, 1) as (node,):
        await said(node, node.chat, node.ann, *"12345")
        node.set_counter(node.chat, 2)
        draft = message(node.chat, node.ann, "6")
        assert [await code_of(node, draft) for _ in range(2)] == ["counter_inconsistent"] * 2
        assert node.counter(node.chat) == 2
        assert node.allocator is not None
        assert await node.allocator.restore(node.chat, 5) == 5
        assert (await stored(node, draft)).sequence == 6
        assert sequences(await read_all(node, node.chat)) == [1, 2, 3, 4, 5, 6]


async def test_a_node_that_did_not_see_the_others_write_overwrites_nothing() -> None:
    """Redis forgot what another node wrote: the number it gives again is not written, and then refused."""
    async with world("two_phase-redis") as (one, two):
        await said(two, one.chat, one.ben, "1")
        await said(one, one.chat, one.ann, "2", "3", "4", "5")
        one.set_counter(one.chat, 1)
        draft = message(one.chat, one.ben, "6")
        assert await code_of(two, draft) == "counter_inconsistent"
        assert (await two.items()).keys() == {1, 2, 3, 4, 5}
        assert two.allocator is not None
        await two.allocator.restore(one.chat, 5)
        assert (await stored(two, draft)).sequence == 6
        assert contents(await read_all(one, one.chat)) == ["1", "2", "3", "4", "5", "6"]


async def test_a_missing_key_in_redis_is_a_missing_counter() -> None:
    """INCR would start again at 1: a lost key gives no number, until an operator puts it back."""
    async with world("two_phase-redis", 1) as (node,):
        await said(node, node.chat, node.ann, "1", "2")
        node.set_counter(node.chat, None)
        draft = message(node.chat, node.ann, "3")
        assert await code_of(node, draft) == "counter_missing"
        assert node.counter(node.chat) is None
        redis = RedisAllocator(redis_url())
        await redis.restore(node.chat, 2)
        await redis.close()
        assert (await stored(node, draft)).sequence == 3


# From one mode to the other


@pytest.mark.parametrize("is_read_first", [True, False])
async def test_holes_of_two_phase_are_sealed_when_atomic_takes_over(is_read_first: bool) -> None:
    """A number left open below the end of the log does not stop the readers of an atomic node for ever."""
    async with world("two_phase", 1, seal_after_ms=SEAL_AFTER_MS) as (before,):
        await said(before, before.chat, before.ann, "1")
        await take(before)
        before.crash.at = "after_commit_before_ack"
        with pytest.raises(Crashed):
            await outcome(before, message(before.chat, before.ann, "3"))
        await take(before)
        after = Node(None, {})
        await after.beside(before)
        try:
            if is_read_first:
                assert await head_of(after, before.chat) == 4
            assert (await stored(after, message(before.chat, before.ben, "5"))).sequence == 5
            page = await after.log.read(before.chat, 0, 10)
            assert (resolved(page), page.voids) == ([1, 2, 3, 4, 5], [2, 4])
            after.faults.now = On(timeout_not_done, "Query")
            assert await head_of(after, before.chat) == 5
        finally:
            await close_all([after])


async def test_two_phase_goes_on_where_atomic_ended() -> None:
    """The other way round nothing is left open, and the numbers go on."""
    async with world("atomic", 1) as (before,):
        await said(before, before.chat, before.ann, "1", "2")
        after = Node("dynamodb", {})
        await after.beside(before)
        try:
            assert (await stored(after, message(before.chat, before.ben, "3"))).sequence == 3
            assert contents(await read_all(after, before.chat)) == ["1", "2", "3"]
        finally:
            await close_all([after])
