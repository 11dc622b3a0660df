"""The log on DynamoDB with several nodes at once: one order, and nobody writes who may not."""

import asyncio
from functools import partial

import pytest

from parley.model import Action, Appended, Role
from parley.store.dynamodb.append import MESSAGES_PER_TRANSACTION_MAX
from parley.store.dynamodb.driver import Item
from parley.store.shared import SEAL_AFTER_MS
from parley.wire.frames import Entry
from tests.contracts.acting import (
    add_people,
    change,
    code_of,
    contents,
    message,
    new_id,
    outcome,
    read_all,
    rename,
    said,
    sequences,
    stored,
    told,
)
from tests.contracts.dynamodb_world import ENGINES, Node, world
from tests.waiting import eventually

MODES = ["atomic", "two_phase"]
held = partial(world, seal_after_ms=SEAL_AFTER_MS)
"""Nodes that leave each other's numbers alone: the clock of these tests stands still."""
WRITERS = 100
ROUNDS = 4


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ENGINES)
async def test_100_concurrent_writers_to_the_same_chat(mode: str) -> None:
    """A hundred writers over two nodes get a hundred sequences, none fails, and all readers see one order."""
    async with held(mode, 3) as (one, two, reader):
        drafts = [message(one.chat, (one.ann, one.ben)[n % 2], f"{n}") for n in range(WRITERS)]
        outcomes = await asyncio.gather(
            *(outcome((one, two)[n % 2], draft) for n, draft in enumerate(drafts))
        )
        assert [told(each) for each in outcomes] == ["stored"] * WRITERS
        told_places = [each.sequence for each in outcomes if isinstance(each, Appended)]
        assert sorted(told_places) == list(range(1, WRITERS + 1))
        pages = [await each.log.read(one.chat, 0, 1000) for each in (one, two, reader)]
        assert pages[0].entries == pages[1].entries == pages[2].entries
        written = {entry.sequence: entry.content for entry in await read_all(reader, one.chat)}
        assert written == dict(zip(told_places, [draft.content for draft in drafts], strict=True))


@pytest.mark.parametrize("mode", MODES)
async def test_the_same_message_through_two_nodes_is_stored_once(mode: str) -> None:
    """A retry that overtakes its original on another node is answered with the same place."""
    async with held(mode) as (one, two):
        drafts = [message(one.chat, one.ann, f"{n}") for n in range(4)]
        results = await asyncio.gather(one.log.append(drafts), two.log.append(drafts))
        first, second = ([each for each in r.outcomes if isinstance(each, Appended)] for r in results)
        places = [each.sequence for each in first]
        assert places == [each.sequence for each in second] == sorted(set(places))
        assert sum(not each.deduplicated for each in [*first, *second]) == 4
        assert contents(await read_all(two, one.chat)) == ["0", "1", "2", "3"]


def removals(entries: list[Entry]) -> list[int]:
    return [entry.sequence for entry in entries if '"removed"' in entry.content]


async def assert_silent_while_removed(node: Node) -> None:
    """Between each removal of ben and his next return, the log holds nothing of his."""
    is_in = True
    for entry in await read_all(node, node.chat):
        if entry.kind == "member":
            is_in = '"joined"' in entry.content
        elif entry.sender_id == node.ben:
            assert is_in, f"{entry.sequence} was written after his removal"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", MODES)
async def test_a_removal_races_sends_on_another_node(mode: str) -> None:
    """Who was removed before a position does not write at or after it; who is back is never refused."""
    async with held(mode) as (one, two):
        for _ in range(ROUNDS):
            sends = [asyncio.create_task(outcome(two, message(one.chat, one.ben))) for _ in range(3)]
            await stored(one, change(one.chat, one.ann, Action.REMOVED, one.ben))
            assert await code_of(two, message(one.chat, one.ben)) == "not_a_member"
            for place in await asyncio.gather(*sends):
                assert isinstance(place, Appended) or place.code == "not_a_member"
            await stored(one, change(one.chat, one.ann, Action.JOINED, one.ben))
            await stored(two, message(one.chat, one.ben, "back"))
        await assert_silent_while_removed(two)
        entries = await read_all(two, one.chat)
        assert contents(entries).count("back") == len(removals(entries)) == ROUNDS


async def test_a_removal_that_took_its_number_first_comes_last() -> None:
    """A held removal at 1 is overtaken by ben's message at 2: it takes 3, so that he wrote while he might."""
    async with held("two_phase") as (one, two):
        one.gate.close()
        removal = asyncio.create_task(stored(one, change(one.chat, one.ann, Action.REMOVED, one.ben)))
        await one.gate.reached.wait()
        sent = asyncio.create_task(stored(two, message(one.chat, one.ben, "in time")))
        await eventually(lambda: two.has_written(2))
        one.gate.open()
        assert ((await sent).sequence, (await removal).sequence) == (2, 3)
        assert (await two.log.read(one.chat, 0, 10)).voids == [1]
        assert await code_of(two, message(one.chat, one.ben)) == "not_a_member"


async def test_a_removal_while_a_draft_waits_counts() -> None:
    """Membership is decided when the entry is written, not when its number was taken."""
    async with held("two_phase") as (one, two):
        two.gate.close()
        late = asyncio.create_task(outcome(two, message(one.chat, one.ben, "late")))
        await two.gate.reached.wait()
        removal = asyncio.create_task(stored(one, change(one.chat, one.ann, Action.REMOVED, one.ben)))
        await eventually(lambda: one.has_written(2))
        two.gate.open()
        assert (told(await late), (await removal).sequence) == ("not_a_member", 2)
        assert (await one.log.read(one.chat, 0, 10)).voids == [1]


async def test_who_was_away_meanwhile_takes_a_number_after_the_return() -> None:
    """A number taken before a removal is not used after it, even if its taker is back: he was out at 1."""
    async with held("two_phase") as (one, two):
        two.gate.close()
        late = asyncio.create_task(stored(two, message(one.chat, one.ben, "late")))
        await two.gate.reached.wait()
        deeds = [
            change(one.chat, one.ann, Action.REMOVED, one.ben),
            change(one.chat, one.ann, Action.JOINED, one.ben),
        ]
        changes = asyncio.create_task(one.log.append(deeds))
        await eventually(lambda: one.has_written(2, 3))
        two.gate.open()
        assert (await late).sequence == 4
        assert [told(each) for each in (await changes).outcomes] == ["stored", "stored"]
        await assert_silent_while_removed(one)


@pytest.mark.parametrize("mode", MODES)
async def test_who_is_added_through_another_node_is_never_refused(mode: str) -> None:
    """A node that remembers the chat without somebody takes his message at once after he was added."""
    async with held(mode) as (one, two):
        (cat,) = await add_people(one, "cat")
        await said(two, one.chat, one.ben, "warm")
        assert await code_of(two, message(one.chat, cat)) == "not_a_member"
        await stored(one, change(one.chat, one.ann, Action.JOINED, cat))
        assert told(await stored(two, message(one.chat, cat, "here"))) == "stored"
        await stored(one, change(one.chat, one.ann, Action.ROLE, cat, Role.ADMIN))
        assert told(await stored(two, rename(one.chat, cat, "by the new admin"))) == "stored"


@pytest.mark.parametrize("mode", MODES)
async def test_a_removal_splits_a_batch(mode: str) -> None:
    """In one append to a node that does not know of it, only the removed person's drafts are refused."""
    async with held(mode) as (one, two):
        await said(two, one.chat, one.ben, "warm")
        await stored(one, change(one.chat, one.ann, Action.REMOVED, one.ben))
        people = [one.ann, one.ben, one.ann]
        result = await two.log.append([message(one.chat, person, f"{n}") for n, person in enumerate(people)])
        assert [told(each) for each in result.outcomes] == ["stored", "not_a_member", "stored"]
        assert contents(await read_all(one, one.chat))[-2:] == ["0", "2"]


# Order of what one device has sent


@pytest.mark.parametrize("mode", MODES)
async def test_a_line_of_messages_keeps_its_order_over_two_nodes(mode: str) -> None:
    """Each names the one before; through two nodes at once, what is stored is stored in that order."""
    async with held(mode) as (one, two):
        ids = ["", *(new_id() for _ in range(8))]
        line = [message(one.chat, one.ann, f"{n}", ids[n], ids[n - 1]) for n in range(1, len(ids))]
        waiting = line
        while waiting:
            halves = await asyncio.gather(one.log.append(waiting[::2]), two.log.append(waiting[1::2]))
            refused = {told(each) for half in halves for each in half.outcomes} - {"stored", "deduplicated"}
            assert refused <= {"out_of_turn"}
            there = set(contents(await read_all(one, one.chat)))
            waiting = [draft for draft in waiting if draft.content not in there]
        assert contents(await read_all(two, one.chat)) == [f"{n}" for n in range(1, len(ids))]


async def test_a_number_sealed_in_the_middle_moves_all_that_follow() -> None:
    """Drafts keep their order: when 2 of 1, 2, 3 is sealed, the second and the third take 4 and 5."""
    async with held("two_phase") as (one, two):
        one.gate.close()
        ids = [new_id() for _ in range(3)]
        batch = [
            message(one.chat, one.ann, "a", ids[0]),
            message(one.chat, one.ann, "b", ids[1], ids[0]),
            message(one.chat, one.ann, "c", ids[2], ids[1]),
        ]
        sending = asyncio.create_task(one.log.append(batch))
        await one.gate.reached.wait()
        void: Item = {"chat_id": one.chat, "sequence": 2, "epoch": 1, "kind": "void"}
        await two.store.dynamo.put("messages", void)
        await two.set_chat("last_sequence", 3)  # what is sealed is below something that was written
        one.gate.open()
        outcomes = (await sending).outcomes
        assert [each.sequence for each in outcomes if isinstance(each, Appended)] == [1, 4, 5]
        entries = await read_all(two, one.chat)
        assert (contents(entries), sequences(entries)) == (["a", "b", "c"], [1, 4, 5])


async def test_who_follows_a_refused_draft_is_out_of_turn() -> None:
    """A predecessor in the same batch that turns out to be another's id is no predecessor."""
    async with held("two_phase") as (one, two):
        one.gate.close()
        taken, mine = new_id(), new_id()
        batch = [
            message(one.chat, one.ann, "first", taken),
            message(one.chat, one.ann, "second", mine, taken),
            message(one.chat, one.ann, "third", new_id(), mine),
            message(one.chat, one.ann, "alone"),
        ]
        sending = asyncio.create_task(one.log.append(batch))
        await one.gate.reached.wait()
        other = asyncio.create_task(stored(two, message(one.chat, one.ben, "of ben", taken)))
        await eventually(lambda: two.has_written(5))
        one.gate.open()
        said_of = [told(each) for each in (await sending).outcomes]
        assert said_of == ["duplicate_id", "out_of_turn", "out_of_turn", "stored"]
        assert (await other).sequence == 5
        assert contents(await read_all(two, one.chat)) == ["alone", "of ben"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_long_batch_that_begins_anew_keeps_its_order(mode: str) -> None:
    """What must be written again stands before the rest of its batch, also beyond one transaction."""
    async with held(mode) as (one, two):
        await stored(one, message(one.chat, one.ann, "known here"))
        if mode == "atomic":  # the head that one remembers is not the log's any more
            await stored(two, message(one.chat, one.ben, "meanwhile"))
        else:  # the revision that one remembers is not the chat's any more
            await stored(two, rename(one.chat, one.ann, "another title"))
        batch = [message(one.chat, one.ann, f"{n}") for n in range(MESSAGES_PER_TRANSACTION_MAX + 5)]
        result = await one.log.append(batch)
        assert [told(each) for each in result.outcomes] == ["stored"] * len(batch)
        assert contents(await read_all(two, one.chat))[-len(batch) :] == [draft.content for draft in batch]
