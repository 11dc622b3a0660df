"""What the log on DynamoDB costs, and what it makes of the largest, the oddest and the wrong."""

import msgspec
import pytest

from bench.dynamodb.pricing import write_units
from parley.model import Action, Appended, Change, Draft
from parley.store.dynamodb.append import MESSAGES_PER_TRANSACTION_MAX
from parley.store.dynamodb.driver import Fault, Request
from parley.wire.limits import MESSAGE_BYTES_MAX
from tests.contracts.acting import (
    change,
    code_of,
    contents,
    head_of,
    message,
    new_id,
    place,
    places,
    read_all,
    resolved,
    said,
    sequences,
    stored,
    told,
)
from tests.contracts.dynamodb_world import Node, world

MODES = ["atomic", "two_phase"]
DESIGN_UNITS = 5.0
"""Write units of one message in ADR-004, appendix A."""

CHAT_IDS = {
    "empty": "",
    "huge": "c" * 3_000,
    "larger than a sort key": "c" * 1_500,
    "surrogate": "chat_\ud800",
    "nul": "chat_\x00",
    "nul alone": "\x00",
    "emoji": "💬" * 100,
}


async def units(node: Node, count: int) -> float:
    """Write units per message, by AWS's rules, of a batch of so many, of 128 characters, in a known chat."""
    total = 0

    def count_units(operation: str, request: Request) -> Fault | None:
        nonlocal total
        total += write_units(operation, request)
        return None

    node.faults.now = count_units
    result = await node.log.append([message(node.chat, node.ann, "x" * 128) for _ in range(count)])
    assert {told(each) for each in result.outcomes} == {"stored"}
    return total / count


@pytest.mark.parametrize(("mode", "alone", "in_batch"), [("atomic", 6, 1.53), ("two_phase", 7, 2.55)])
async def test_write_units_fall_with_the_batch(mode: str, alone: float, in_batch: float) -> None:
    """One message alone costs what it costs; of a full batch, each costs less than in the design."""
    async with world(mode, 1, publishes=True) as (node,):
        await said(node, node.chat, node.ann, "the first lists its chat in the outbox")
        assert await units(node, 1) == alone
        cost = await units(node, MESSAGES_PER_TRANSACTION_MAX)
        assert cost == pytest.approx(in_batch, abs=0.01)
        assert cost <= 2.6 < DESIGN_UNITS


async def test_atomic_reads_nothing_for_a_known_chat() -> None:
    """Nothing is looked up for a new message of somebody whose role is known."""
    async with world("atomic", 1) as (node,):
        await said(node, node.chat, node.ann, "warm")
        before = node.store.dynamo.capacity.requests.copy()
        await said(node, node.chat, node.ann, "new")
        assert node.store.dynamo.capacity.requests - before == {"TransactWriteItems": 1}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("letter", "transactions"), [("x", 1), ("€", 1), ("\x01", 7)])
async def test_the_largest_messages_are_stored(mode: str, letter: str, transactions: int) -> None:
    """A full batch of full messages takes one transaction, or as many as their letters need in JSON."""
    async with world(mode, 1) as (node,):
        large = letter * (MESSAGE_BYTES_MAX // len(letter.encode()))
        drafts = [message(node.chat, node.ann, large) for _ in range(MESSAGES_PER_TRANSACTION_MAX)]
        before = node.store.dynamo.capacity.requests["TransactWriteItems"]
        result = await node.log.append(drafts)
        places = [each.sequence for each in result.outcomes if isinstance(each, Appended)]
        assert places == list(range(1, MESSAGES_PER_TRANSACTION_MAX + 1))
        assert node.store.dynamo.capacity.requests["TransactWriteItems"] == before + transactions
        page = await node.log.read(node.chat, 0, 1000)
        assert 0 < page.to_sequence < page.head == MESSAGES_PER_TRANSACTION_MAX


@pytest.mark.parametrize("mode", MODES)
async def test_more_than_a_transaction_holds_is_written_in_order(mode: str) -> None:
    """A batch of a hundred and twenty takes three transactions, and keeps its order."""
    async with world(mode, 1) as (node,):
        drafts = [message(node.chat, node.ann, f"{n}") for n in range(120)]
        result = await node.log.append(drafts)
        assert [each.sequence for each in result.outcomes if isinstance(each, Appended)] == [*range(1, 121)]
        assert contents(await read_all(node, node.chat)) == [f"{n}" for n in range(120)]


@pytest.mark.parametrize("mode", MODES)
async def test_chats_that_cannot_exist_are_refused_alone(mode: str) -> None:
    """Whatever a chat is called, its draft is refused, and its neighbours in the batch are stored."""
    async with world(mode, 1) as (node,):
        odd = [message(chat_id, node.ann) for chat_id in CHAT_IDS.values()]
        result = await node.log.append([*odd, message(node.chat, node.ann, "well")])
        assert [told(each) for each in result.outcomes] == ["not_a_member"] * len(odd) + ["stored"]
        assert contents(await read_all(node, node.chat)) == ["well"]


@pytest.mark.parametrize("mode", MODES)
async def test_chats_that_cannot_exist_are_empty(mode: str) -> None:
    """To look for them is no error: no head, no page, no key, no message."""
    async with world(mode, 1) as (node,):
        place = await stored(node, message(node.chat, node.ann))
        names = list(CHAT_IDS.values())
        assert await node.log.heads(names) == {}
        assert await node.log.find_message(place.message_id, names) is None
        for name in names:
            assert (await node.log.read(name, 0, 10)).entries == []
            assert (await node.log.read_before(name, 10, 10)).entries == []
            assert await node.log.find_key(name, b"k" * 16) is None


def change_of(node: Node, action: Action, person: str) -> Draft:
    """A change about anybody, with a content that says less."""
    return msgspec.structs.replace(change(node.chat, node.ann, action), change=Change(action, person))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("person", ["", "u" * 3_000, "u" * 1_500, "user_\ud800", "user_\x00"])
async def test_people_who_cannot_exist_are_refused_alone(mode: str, person: str) -> None:
    """To add, or to be, somebody whose id no item can have is a refusal, and harms no neighbour."""
    async with world(mode, 1) as (node,):
        batch = [
            message(node.chat, node.ben, "before"),
            change_of(node, Action.JOINED, person),
            change_of(node, Action.REMOVED, person),
            message(node.chat, person),
            message(node.chat, node.ben, "after"),
        ]
        said_of = [told(each) for each in (await node.log.append(batch)).outcomes]
        assert (said_of[0], said_of[3], said_of[4]) == ("stored", "not_a_member", "stored")
        assert not {"stored", "store_unavailable", "outcome_unknown"} & set(said_of[1:3])
        assert contents(await read_all(node, node.chat)) == ["before", "after"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_id_is_the_same_in_any_letter_case(mode: str) -> None:
    """An id in capitals is the id in small letters, in one batch, in two, and as a predecessor."""
    async with world(mode, 1) as (node,):
        small = new_id().replace("0000", "abcd", 1)
        large = small.upper()
        drafts = [message(node.chat, node.ann, "once", each) for each in (large, small)]
        result = await node.log.append(drafts)
        assert [told(each) for each in result.outcomes] == ["stored", "deduplicated"]
        again = await stored(node, message(node.chat, node.ann, "once", large))
        assert told(again) == "deduplicated"
        once = (await places(node, node.chat))["once"]
        assert [place(each) for each in [*result.outcomes, again]] == [once] * 3
        await node.reopen()
        assert told(await stored(node, message(node.chat, node.ann, "next", after=large))) == "stored"
        first = (await read_all(node, node.chat))[0]
        assert first.client_message_id == large


@pytest.mark.parametrize("mode", MODES)
async def test_pages_of_nothing_are_empty(mode: str) -> None:
    """A limit of none, a position beyond the end and one before the beginning are no errors."""
    async with world(mode, 1) as (node,):
        await said(node, node.chat, node.ann, "1", "2")
        for page in (
            await node.log.read(node.chat, 0, 0),
            await node.log.read(node.chat, 2, 10),
            await node.log.read(node.chat, 10**18, 10),
            await node.log.read_before(node.chat, 1, 10),
            await node.log.read_before(node.chat, -5, 10),
            await node.log.read_before(node.chat, 3, 0),
        ):
            assert (page.entries, page.voids, page.head) == ([], [], 2)
        assert resolved(await node.log.read_before(node.chat, 10**18, 10)) == [1, 2]


@pytest.mark.parametrize("mode", MODES)
async def test_contents_of_any_kind_come_back_as_they_were(mode: str) -> None:
    """Empty, NUL, every control character, and letters outside the first plane."""
    async with world(mode, 1) as (node,):
        odd = ["", "\x00", "".join(map(chr, range(32))), "💬\U0010ffff", "\u2028\ufeff", '"\\']
        await node.log.append([message(node.chat, node.ann, content) for content in odd])
        assert contents(await read_all(node, node.chat)) == odd
        assert sequences(await read_all(node, node.chat)) == list(range(1, len(odd) + 1))


@pytest.mark.parametrize("mode", MODES)
async def test_a_batch_of_nothing_but_retries_writes_nothing(mode: str) -> None:
    """Forty-nine retries at once are forty-nine answers, and no number is lost in two_phase either."""
    async with world(mode, 1) as (node,):
        drafts = [message(node.chat, node.ann, f"{n}") for n in range(MESSAGES_PER_TRANSACTION_MAX)]
        first = await node.log.append(drafts)
        result = await node.log.append(drafts)
        assert {told(each) for each in result.outcomes} == {"deduplicated"}
        assert [place(each) for each in result.outcomes] == [place(each) for each in first.outcomes]
        assert result.persisted == []
        assert await head_of(node, node.chat) == node.counter(node.chat) == MESSAGES_PER_TRANSACTION_MAX
        assert await code_of(node, message(node.chat, "user_nobody")) == "not_a_member"
