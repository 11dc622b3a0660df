"""A block on DynamoDB with several nodes and faults: once it is answered, it holds everywhere."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

import pytest

from parley.errors import OutcomeUnknown, Refused, StoreError
from parley.model import ChatType, Draft, Relation
from parley.store.dynamodb.driver import Fault
from parley.store.shared import SEAL_AFTER_MS
from parley.testing.dynamodb_faults import (
    RandomFaults,
    conflict,
    throttle,
    timeout_done,
    timeout_not_done,
)
from tests.contracts.acting import (
    add_direct,
    block,
    code_of,
    contents,
    message,
    new_chat,
    outcome,
    read_all,
    said,
    told,
    unblock,
)
from tests.contracts.dynamodb_nodes import Held, On
from tests.contracts.dynamodb_world import ENGINES, MODES, Node, close_all, world
from tests.harness.fault_plans import Planned

WRITE = "TransactWriteItems"
SAY = "PutItem"
"""What a person says is one record."""
SHARES = {
    "throttle": 0.03,
    "transact_conflict": 0.05,
    "timeout_done": 0.05,
    "timeout_not_done": 0.05,
    "server_error": 0.03,
}
RETRIES_MAX = 20
held = partial(world, seal_after_ms=SEAL_AFTER_MS)


async def talking(one: Node, two: Node) -> str:
    """The direct chat of ann and ben, in which the second node has just written for ben."""
    chat = await add_direct(one, one.ann, one.ben)
    await said(two, chat, one.ben, "warm")
    return chat


async def opens(node: Node, creator: str, other: str) -> str:
    """The chat that somebody gets when they open it."""
    chat, _ = await node.directory.create_chat(new_chat(node, creator, ChatType.DIRECT), [other])
    return chat.chat_id


async def blocks_held(node: Node) -> int:
    return len(await node.relations.related(node.ann, Relation.BLOCK, "", 10))


# What is under way


@pytest.mark.parametrize("mode", ENGINES)
async def test_a_message_on_its_way_from_another_node_is_refused(mode: str) -> None:
    """A transaction that was ready before the block and arrives after its answer is not done."""
    async with held(mode) as (one, two):
        chat = await talking(one, two)
        two.faults.now = write = Held(WRITE)
        sending = asyncio.create_task(outcome(two, message(chat, one.ben, "late")))
        await write.reached.wait()
        await block(one, one.ann, one.ben)
        write.release()
        assert told(await sending) == "blocked"
        assert contents(await read_all(one, chat)) == ["warm"]


@pytest.mark.parametrize("mode", MODES)
async def test_only_the_blocked_ones_drafts_are_taken_out_of_a_batch(mode: str) -> None:
    """Ann's messages in the same append, on a node that does not know of the block, are stored."""
    async with held(mode) as (one, two):
        chat = await talking(one, two)
        await block(one, one.ann, one.ben)
        drafts = [message(chat, who, f"{n}") for n, who in enumerate([one.ann, one.ben, one.ann])]
        result = await two.log.append(drafts)
        assert [told(each) for each in result.outcomes] == ["stored", "blocked", "stored"]
        assert contents(await read_all(one, chat)) == ["warm", "0", "2"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", MODES)
async def test_blocks_race_sends_on_another_node(mode: str) -> None:
    """What ben sends after an answered block is refused, and after an answered unblock stored."""
    async with held(mode) as (one, two):
        chat = await talking(one, two)
        for _ in range(4):
            sends = [asyncio.create_task(outcome(two, message(chat, one.ben))) for _ in range(3)]
            await block(one, one.ann, one.ben)
            before = len(await read_all(one, chat))
            assert {told(each) for each in await asyncio.gather(*sends)} <= {"stored", "blocked"}
            assert await code_of(two, message(chat, one.ben)) == "blocked"
            if mode == "atomic":  # in two_phase what was written before may be resolved only now
                assert len(await read_all(one, chat)) == before
            await unblock(one, one.ann, one.ben)
            assert told(await outcome(two, message(chat, one.ben, "back"))) == "stored"
        assert contents(await read_all(two, chat)).count("back") == 4


@pytest.mark.parametrize("mode", MODES)
async def test_no_node_remembers_that_somebody_is_blocked(mode: str) -> None:
    """A node that has refused somebody takes their next message once another node has unblocked them."""
    async with held(mode) as (one, two):
        chat = await talking(one, two)
        for _ in range(2):
            await block(one, one.ann, one.ben)
            assert await code_of(two, message(chat, one.ben)) == "blocked"
            await unblock(one, one.ann, one.ben)
            assert told(await outcome(two, message(chat, one.ben))) == "stored"


# Opening the chat


@pytest.mark.parametrize("mode", MODES)
async def test_a_chat_on_its_way_from_another_node_is_refused(mode: str) -> None:
    """Opening that was ready before the block and arrives after its answer makes nothing."""
    async with held(mode) as (one, two):
        two.faults.now = write = Held(WRITE)
        opening = asyncio.create_task(opens(two, one.ben, one.ann))
        await write.reached.wait()
        await block(one, one.ann, one.ben)
        write.release()
        with pytest.raises(Refused) as refused:
            await opening
        assert refused.value.refusal.code == "blocked"
        assert await one.directory.chat_ids_of(one.ben) == [one.chat]


@pytest.mark.parametrize("mode", MODES)
async def test_a_block_finds_the_chat_that_came_first(mode: str) -> None:
    """When the chat is opened while the block is on its way, the block holds in it."""
    async with held(mode) as (one, two):
        one.faults.now = write = Held(SAY, "records_consents")
        blocking = asyncio.create_task(block(one, one.ann, one.ben))
        await write.reached.wait()
        chat = await opens(two, one.ben, one.ann)
        write.release()
        await blocking
        assert await code_of(two, message(chat, one.ben)) == "blocked"
        assert (await blocks_held(one), one.breaches()) == (1, [])


async def test_a_block_that_ends_while_the_chat_is_opened_leaves_no_mark() -> None:
    """Ann opens the chat with ben, whom she unblocks on another node meanwhile: he may write."""
    async with held("atomic") as (one, two):
        await block(one, one.ann, one.ben)
        two.faults.now = write = Held(WRITE)
        opening = asyncio.create_task(opens(two, one.ann, one.ben))
        await write.reached.wait()
        await unblock(one, one.ann, one.ben)
        write.release()
        chat = await opening
        assert told(await outcome(one, message(chat, one.ben))) == "stored"
        assert one.breaches() == []


# Faults


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", [timeout_done, timeout_not_done, conflict, throttle])
async def test_a_block_gets_through_faults(mode: str, fault: Fault) -> None:
    """A lost answer, a conflict and throttling all end in one block, and so does its end."""
    async with held(mode) as (one, two):
        chat = await talking(one, two)
        one.faults.now = Planned(PutItem=[fault], TransactWriteItems=[fault], UpdateItem=[fault])
        await block(one, one.ann, one.ben)
        assert await code_of(two, message(chat, one.ben)) == "blocked"
        assert await blocks_held(one) == 1
        one.faults.now = Planned(DeleteItem=[fault], TransactWriteItems=[fault], UpdateItem=[fault])
        await unblock(one, one.ann, one.ben)
        assert told(await outcome(two, message(chat, one.ben))) == "stored"
        assert (await blocks_held(one), one.breaches()) == (0, [])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", [timeout_done, timeout_not_done])
@pytest.mark.parametrize("write", [SAY, WRITE])
async def test_a_block_that_was_not_answered_is_repeated(mode: str, fault: Fault, write: str) -> None:
    """Whether the record, or what ends appends under way, was lost: who repeats it has one block, once."""
    async with held(mode) as (one, two):
        chat = await talking(one, two)
        one.faults.now = On(fault, write)
        with pytest.raises(OutcomeUnknown):
            await block(one, one.ann, one.ben)
        one.faults.now = None
        await block(one, one.ann, one.ben)
        assert await code_of(two, message(chat, one.ben)) == "blocked"
        assert await blocks_held(one) == 1
        await unblock(one, one.ann, one.ben)
        assert told(await outcome(two, message(chat, one.ben))) == "stored"


@pytest.mark.parametrize("mode", MODES)
async def test_two_nodes_block_at_once(mode: str) -> None:
    """Both devices of ann press the button: it is one block."""
    async with held(mode) as (one, two):
        await talking(one, two)
        await asyncio.gather(*(block(node, one.ann, one.ben) for node in (one, two) * 3))
        assert (await blocks_held(one), one.breaches()) == (1, [])
        await asyncio.gather(*(unblock(node, one.ann, one.ben) for node in (one, two) * 3))
        assert (await blocks_held(one), one.breaches()) == (0, [])


class Two:
    """What ann and ben should find, by a naive account of what was answered."""

    def __init__(self, one: Node, two: Node, chat: str, random: Random) -> None:
        self.nodes = (one, two)
        self.people = (one.ann, one.ben)
        self.chat = chat
        self.random = random
        self.blockers: set[str] = set()
        self.stored: list[str] = []

    async def act(self, number: int) -> None:
        """One of them blocks, unblocks or writes, through one of the nodes, until it is answered."""
        node, who = self.random.choice(self.nodes), self.random.choice(self.people)
        other = next(person for person in self.people if person != who)
        match self.random.choice(["block", "unblock", "write", "write"]):
            case "block":
                await until_answered(lambda: block(node, who, other))
                self.blockers.add(who)
            case "unblock":
                await until_answered(lambda: unblock(node, who, other))
                self.blockers.discard(who)
            case _:
                expected = {"blocked"} if other in self.blockers else {"stored", "deduplicated"}
                assert await written_in_the_end(node, message(self.chat, who, f"{number}")) in expected
                self.stored += [] if other in self.blockers else [f"{number}"]


async def until_answered(act: Callable[[], Awaitable[None]]) -> None:
    for _ in range(RETRIES_MAX):
        try:
            return await act()
        except StoreError:
            continue
    raise AssertionError("never answered")


async def written_in_the_end(node: Node, draft: Draft) -> str:
    """What became of a message that its client sends until it knows."""
    for _ in range(RETRIES_MAX):
        said_of = told(await outcome(node, draft))
        if said_of not in ("store_unavailable", "outcome_unknown"):
            return said_of
    raise AssertionError("never answered")


@pytest.mark.randomised
@pytest.mark.timeout(120)
@pytest.mark.parametrize("course", range(3))
@pytest.mark.parametrize("mode", MODES)
async def test_what_was_answered_holds_through_all_faults(mode: str, course: int, seed: int) -> None:
    """Two people block, unblock and write through two nodes that meet every fault: no answer is wrong."""
    async with world(mode) as (one, two):
        both = Two(one, two, await talking(one, two), Random(seed))
        for node in both.nodes:
            node.faults.now = RandomFaults(SHARES, seed)
        for number in range(40):
            await both.act(number)
        for node in both.nodes:
            node.faults.now = None
        assert contents(await read_all(one, both.chat)) == ["warm", *both.stored]
        assert one.breaches() == []


# The counter


async def test_a_block_holds_without_the_counter() -> None:
    """A chat that has lost its counter can be blocked, and stays so when the counter is recovered."""
    async with held("atomic") as (one, two):
        chat = await talking(one, two)
        one.set_counter(chat, None)
        await block(one, one.ann, one.ben)
        one.recover_counter(chat)
        assert await code_of(two, message(chat, one.ben)) == "blocked"
        assert told(await outcome(two, message(chat, one.ann))) == "stored"


async def test_a_counter_that_is_made_whole_does_not_undo_a_block() -> None:
    """A node that seals strays must not bring the old revision back, under which another knows ben."""
    async with held("atomic", 3) as (one, two, three):
        chat = await talking(one, three)
        one.abandon(chat, 3, 0)
        two.faults.now = marking = Held(WRITE, "written_through = :through")
        sending = asyncio.create_task(outcome(two, message(chat, one.ann, "next")))
        await marking.reached.wait()
        await block(one, one.ann, one.ben)
        marking.release()
        assert told(await sending) == "stored"
        assert await code_of(three, message(chat, one.ben)) == "blocked"
        assert contents(await read_all(one, chat)) == ["warm", "next"]


@pytest.mark.parametrize("messages", [0, 2])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_block_holds_from_one_mode_to_the_other(messages: int, when: str) -> None:
    """Made in two_phase, the mark counts in atomic, also in a chat without any number; and ann goes on."""
    async with world("two_phase", 1) as (before,):
        chat = await add_direct(before, before.ann, before.ben)
        await said(before, chat, before.ben, *(f"{n}" for n in range(messages)))
        if when == "before":
            await block(before, before.ann, before.ben)
        after = Node(None, {})
        await after.beside(before)
        try:
            if when == "after":
                assert told(await outcome(after, message(chat, before.ben))) == "stored"
                await block(before, before.ann, before.ben)
            assert await code_of(after, message(chat, before.ben)) == "blocked"
            assert told(await outcome(after, message(chat, before.ann))) == "stored"
        finally:
            await close_all([after])
