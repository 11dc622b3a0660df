"""The log on DynamoDB when DynamoDB fails: what the emulator never does by itself, in both modes."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from parley.errors import StoreUnavailable
from parley.model import Action
from parley.store.dynamodb import append, chat_state
from parley.store.dynamodb.bundles import BUNDLE_BYTES_MAX
from parley.store.dynamodb.driver import Fault, Faults, Request, Response, Send
from parley.testing.dynamodb_faults import (
    conflict,
    server_error_done,
    server_error_not_done,
    throttle,
    timeout_done,
    timeout_not_done,
    unprocessed,
)
from tests.contracts.acting import (
    add_group,
    add_people,
    change,
    code_of,
    contents,
    head_of,
    message,
    outcome,
    place,
    places,
    read_all,
    rename,
    resolved,
    said,
    sequences,
    stored,
    told,
)
from tests.contracts.dynamodb_nodes import On
from tests.contracts.dynamodb_world import Node, world
from tests.harness.fault_plans import Planned

MODES = ["atomic", "two_phase"]
TRANSACT = "TransactWriteItems"
DEADLINE_SECONDS = 0.3
"""How long a node of these tests asks a store that does not answer."""


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost answer is looked for only briefly."""
    monkeypatch.setattr(append, "RESOLVE_SECONDS_MAX", DEADLINE_SECONDS)


class Gone:
    """The store answers nothing any more, from some transaction on: that one meets `last`."""

    def __init__(self, last: Fault | None = None) -> None:
        self._last = last
        self._is_gone = last is None

    def __call__(self, operation: str, request: Request) -> Fault | None:
        if self._is_gone:
            return timeout_not_done if operation != TRANSACT else refused_connection
        if operation != TRANSACT:
            return None
        self._is_gone = True
        return self._last


async def refused_connection(operation: str, request: Request, send: Send) -> Response:
    """Certainly not done: it is too busy to look at it."""
    return await throttle(operation, request, send)


def lose_the_looks(transaction: Fault, looks: int) -> Faults:
    """The answer to the first transaction gets lost, and those to the first looks what became of it."""
    plan = Planned(TransactWriteItems=[transaction], BatchGetItem=[timeout_not_done, timeout_done] * looks)
    is_lost = False

    def faults(operation: str, request: Request) -> Fault | None:
        nonlocal is_lost
        is_lost = is_lost or operation == TRANSACT
        return plan(operation, request) if is_lost else None

    return faults


async def assert_stored_once(node: Node, draft: Any) -> None:
    """One entry is there, at 1, and a retry is answered with it."""
    again = await stored(node, draft)
    assert (again.sequence, again.deduplicated, again.conflict) == (1, True, False)
    assert await node.items() == {1: draft.content}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", [conflict, throttle])
async def test_what_was_not_done_is_repeated(mode: str, fault: Fault) -> None:
    """A storm of conflicts or throttling delays a message, and costs neither it nor a number."""
    plan: list[Fault | None] = [fault] * 4
    async with world(mode, 1) as (node,):
        node.faults.now = Planned(TransactWriteItems=plan, UpdateItem=plan)
        assert told(await stored(node, message(node.chat, node.ann, "once"))) == "stored"
        assert (await node.items(), node.counter(node.chat)) == ({1: "once"}, 1)


@pytest.mark.parametrize("mode", MODES)
async def test_a_throttled_store_is_asked_again_for_everything(mode: str) -> None:
    """DynamoDB throttling: reads and writes are repeated, and the sender notices nothing."""
    async with world(mode, 1) as (node,):
        await node.reopen()
        plan: dict[str, list[Fault | None]] = {
            name: [throttle, throttle]
            for name in (TRANSACT, "GetItem", "BatchGetItem", "UpdateItem", "Query")
        }
        node.faults.now = Planned(**plan)
        drafts = [message(node.chat, sender, sender) for sender in (node.ann, node.ben)]
        result = await node.log.append(drafts)
        assert [told(each) for each in result.outcomes] == ["stored", "stored"]
        assert contents(await read_all(node, node.chat)) == [node.ann, node.ben]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", [timeout_done, timeout_not_done, server_error_done, server_error_not_done])
async def test_a_lost_answer_is_found_out(mode: str, fault: Fault) -> None:
    """Whether or not the lost write was done: it is acknowledged as new and stored once."""
    async with world(mode, 1) as (node,):
        node.faults.now = Planned(TransactWriteItems=[fault])
        draft = message(node.chat, node.ann, "once")
        first = await stored(node, draft)
        assert (first.sequence, first.deduplicated) == (1, False)
        await assert_stored_once(node, draft)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", [timeout_done, timeout_not_done])
async def test_lost_answers_to_the_look_are_found_out_too(mode: str, fault: Fault) -> None:
    """When the reads that ask for a lost write get lost as well, they are repeated."""
    async with world(mode, 1) as (node,):
        node.faults.now = lose_the_looks(fault, 2)
        draft = message(node.chat, node.ann, "once")
        assert (await stored(node, draft)).sequence == 1
        await assert_stored_once(node, draft)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("mode", MODES)
async def test_a_store_that_is_gone_has_stored_nothing(mode: str) -> None:
    """DynamoDB unavailable: sends are refused as not stored, and the retry later starts from scratch."""
    async with world(mode, 1, deadline_seconds=DEADLINE_SECONDS) as (node,):
        drafts = [message(node.chat, node.ann, f"{n}") for n in range(2)]
        twin = message(node.chat, node.ann, "0", client_id=str(drafts[0].client_message_id))
        node.faults.now = Gone()
        result = await node.log.append([*drafts, twin])
        assert [told(each) for each in result.outcomes] == ["store_unavailable"] * 3
        assert result.persisted == []
        node.faults.now = None
        assert [(await stored(node, draft)).sequence for draft in drafts] == [1, 2]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("mode", MODES)
async def test_a_store_that_goes_before_the_write_has_stored_nothing(mode: str) -> None:
    """If every transaction is turned away, nothing can have been written, and the senders hear that."""
    async with world(mode, 1, deadline_seconds=DEADLINE_SECONDS) as (node,):
        draft = message(node.chat, node.ann, "later")
        node.faults.now = On(throttle, TRANSACT)
        assert await code_of(node, draft) == "store_unavailable"
        node.faults.now = None
        assert told(await stored(node, draft)) == "stored"
        assert list((await node.items()).values()).count("later") == 1


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("fault", "is_done"), [(timeout_done, True), (timeout_not_done, False)])
async def test_a_store_that_goes_with_an_answer_leaves_it_open(
    mode: str, fault: Fault, is_done: bool
) -> None:
    """Nobody knows, so nobody is told that it failed; the retry with the same id is answered right."""
    async with world(mode, 2, deadline_seconds=DEADLINE_SECONDS) as (node, other):
        draft = message(node.chat, node.ann, "open")
        twin = message(node.chat, node.ann, "open", client_id=str(draft.client_message_id))
        node.faults.now = Gone(fault)
        result = await node.log.append([draft, twin])
        assert [told(each) for each in result.outcomes] == ["outcome_unknown"] * 2
        retry = await stored(other, draft)
        assert retry.deduplicated is is_done
        assert list((await other.items()).values()).count("open") == 1
        assert contents(await read_all(other, node.chat)) == ["open"]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("mode", MODES)
async def test_what_follows_an_open_write_is_refused(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several transactions, those before the lost one are stored, it is open, the rest is not."""
    monkeypatch.setattr(append, "MESSAGES_PER_TRANSACTION_MAX", 2)
    async with world(mode, 2, deadline_seconds=DEADLINE_SECONDS) as (node, other):
        drafts = [message(node.chat, node.ann, f"{n}") for n in range(6)]
        node.faults.now = Planned(**{TRANSACT: [None, timeout_done, *[throttle] * 50]})
        blind = node.faults.now

        def faults(operation: str, request: Request) -> Fault | None:
            is_look = operation == "BatchGetItem" and any("messages" in t for t in request["RequestItems"])
            return timeout_not_done if is_look else blind(operation, request)

        node.faults.now = faults
        result = await node.log.append(drafts)
        said_of = [told(each) for each in result.outcomes]
        assert said_of == ["stored"] * 2 + ["outcome_unknown"] * 2 + ["store_unavailable"] * 2
        retried = await other.log.append(drafts)
        assert [told(each) for each in retried.outcomes] == ["deduplicated"] * 4 + ["stored"] * 2
        assert [place(each) for each in retried.outcomes] == list((await places(other, node.chat)).values())
        assert contents(await read_all(other, node.chat)) == [f"{n}" for n in range(6)]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("mode", MODES)
async def test_a_chat_that_fails_does_not_fail_its_neighbours(mode: str) -> None:
    """Chats are independent: one whose transaction is turned away leaves the others of the batch alone."""
    async with world(mode, 1, deadline_seconds=DEADLINE_SECONDS) as (node,):
        quiet = await add_group(node, node.ann)

        def faults(operation: str, request: Request) -> Fault | None:
            return throttle if operation == TRANSACT and quiet in str(request) else None

        node.faults.now = faults
        result = await node.log.append([message(quiet, node.ann), message(node.chat, node.ann, "through")])
        assert [told(each) for each in result.outcomes] == ["store_unavailable", "stored"]
        assert [news.chat_id for news in result.persisted] == [node.chat]


class Late:
    """The store goes away with a transaction on its way, which arrives when nobody waits for it any more."""

    def __init__(self) -> None:
        self._gone = Gone(self._delay)
        self.arrive: Callable[[], Awaitable[Response]] | None = None

    def __call__(self, operation: str, request: Request) -> Fault | None:
        return self._gone(operation, request)

    async def _delay(self, operation: str, request: Request, send: Send) -> Response:
        self.arrive = partial(send, operation, request)
        raise TimeoutError("no answer yet (injected)")


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("mode", MODES)
async def test_a_write_that_arrives_after_its_retry_does_nothing(mode: str) -> None:
    """The retry was stored through another node: what was on its way all the time is not stored again."""
    async with world(mode, 2, deadline_seconds=DEADLINE_SECONDS) as (node, other):
        draft, late = message(node.chat, node.ann, "once"), Late()
        node.faults.now = late
        assert await code_of(node, draft) == "outcome_unknown"
        place = await stored(other, draft)
        assert late.arrive is not None
        assert (await late.arrive()).status == 400
        assert (await stored(other, draft)).sequence == place.sequence
        assert list((await other.items()).values()).count("once") == 1


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("mode", MODES)
async def test_a_write_that_arrives_after_a_removal_does_nothing(mode: str) -> None:
    """Once its sender was refused because he was removed, what is still on its way is not stored either."""
    async with world(mode, 2, deadline_seconds=DEADLINE_SECONDS) as (node, other):
        draft, late = message(node.chat, node.ben, "refused"), Late()
        node.faults.now = late
        assert await code_of(node, draft) == "outcome_unknown"
        await stored(other, change(node.chat, node.ann, Action.REMOVED, node.ben))
        assert await code_of(other, draft) == "not_a_member"
        assert late.arrive is not None
        assert (await late.arrive()).status == 400
        assert "refused" not in (await other.items()).values()


@pytest.mark.usefixtures("hasty")
async def test_numbers_that_cannot_be_had_are_an_outcome() -> None:
    """While whoever gives the numbers is away, every draft is refused as not stored, twins included."""
    async with world("two_phase", 1, deadline_seconds=DEADLINE_SECONDS) as (node,):
        draft = message(node.chat, node.ann)
        node.faults.now = On(throttle, "UpdateItem", "chat_counters")
        result = await node.log.append([draft, draft])
        assert [told(each) for each in result.outcomes] == ["store_unavailable"] * 2
        node.faults.now = None
        assert (await stored(node, draft)).sequence == 1


# Reasons of a cancelled transaction


def with_conflict_on_the_head(meanwhile: Callable[[], Any]) -> Fault:
    """Another transaction is being committed: its entries are there already, its head is still locked."""

    async def fault(operation: str, request: Request, send: Send) -> Response:
        await meanwhile()
        answer = await send(operation, request)
        reasons = answer.body.get("CancellationReasons", [{}])
        reasons[0].update(Code="TransactionConflict", Message="Transaction is ongoing for the item")
        reasons[0].pop("Item", None)
        return answer

    return fault


async def test_a_head_that_is_being_moved_is_no_trouble() -> None:
    """A failed condition on a position and a conflict on the head, at once: the counter is not wrong."""
    async with world("atomic") as (node, other):
        await said(node, node.chat, node.ann, "1")
        before = await node.store.dynamo.call(
            "GetItem", {"TableName": f"{node.prefix}chat_counters", "Key": {"chat_id": {"S": node.chat}}}
        )

        async def stale(operation: str, request: Request, send: Send) -> Response:
            return Response(200, before)

        plan = Planned(
            TransactWriteItems=[
                with_conflict_on_the_head(lambda: stored(other, message(node.chat, node.ben, "2")))
            ],
            GetItem=[stale],
        )
        node.faults.now = plan
        place = await stored(node, message(node.chat, node.ann, "3"))
        assert place.sequence == 3
        assert contents(await read_all(other, node.chat)) == ["1", "2", "3"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_duplicate_beside_a_conflict_is_answered(mode: str) -> None:
    """A key that exists and a conflict on the fence, at once: the duplicate is found, the rest stored."""
    async with world(mode) as (node, other):
        twice, new = message(node.chat, node.ann, "twice"), message(node.chat, node.ann, "new")
        fault = with_conflict_on_the_head(lambda: stored(other, twice))
        node.faults.now = Planned(TransactWriteItems=[fault])
        result = await node.log.append([twice, new])
        assert [told(each) for each in result.outcomes] == ["deduplicated", "stored"]
        assert contents(await read_all(other, node.chat)) == ["twice", "new"]
        assert [place(each) for each in result.outcomes] == list((await places(other, node.chat)).values())


@pytest.mark.parametrize("mode", MODES)
async def test_an_entry_with_the_same_id_is_not_taken_for_ours(mode: str) -> None:
    """Two nodes may give one id to two messages at one position: the lost write is not the other's."""
    async with world(mode, 2, random_bits=lambda _: 7) as (node, other):

        async def lost(operation: str, request: Request, send: Send) -> Response:
            if mode == "two_phase":  # Redis lost its memory: the same number is given again
                node.set_counter(node.chat, 0)
            await stored(other, message(node.chat, node.ben, "of ben"))
            raise TimeoutError("the request is lost (injected)")

        node.faults.now = Planned(TransactWriteItems=[lost])
        ours = await stored(node, message(node.chat, node.ann, "of ann"))
        assert ours.sequence > 1
        assert contents(await read_all(other, node.chat)) == ["of ben", "of ann"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_change_whose_answer_was_lost_is_made_once(mode: str) -> None:
    """What has no client's id is recognised by its place: a rename is not done again."""
    async with world(mode, 1) as (node,):
        node.faults.now = Planned(TransactWriteItems=[timeout_done])
        assert (await stored(node, rename(node.chat, node.ann, "renamed"))).sequence == 1
        assert await head_of(node, node.chat) == 1


# Pages


ALONE = "x" * (BUNDLE_BYTES_MAX // 2)
"""Two of these do not share an item."""


def torn(keep: Callable[[int], bool]) -> Fault:
    """A page of messages without some of its items, by their place in it."""

    async def fault(operation: str, request: Request, send: Send) -> Response:
        answer = await send(operation, request)
        items = answer.body["Items"]
        items[:] = [item for place, item in enumerate(items) if keep(place)]
        return answer

    return fault


@pytest.mark.parametrize("mode", MODES)
async def test_a_page_ends_before_what_is_being_committed(mode: str) -> None:
    """A Query may miss items of a transaction: the page is cut there, and the next one goes on."""
    async with world(mode, 1) as (node,):
        await node.log.append([message(node.chat, node.ann, ALONE) for _ in range(5)])
        await head_of(node, node.chat)
        looks = [None] if mode == "two_phase" else []
        node.faults.now = Planned(Query=[*looks, torn(lambda place: place != 2)])
        page = await node.log.read(node.chat, 0, 10)
        assert (resolved(page), page.head, page.complete) == ([1, 2], 5, False)
        assert resolved(await node.log.read(node.chat, page.to_sequence, 10)) == [3, 4, 5]


@pytest.mark.parametrize("mode", MODES)
async def test_a_page_is_never_empty_below_the_head(mode: str) -> None:
    """A page that lacks its own beginning is read again, forwards and backwards."""
    async with world(mode, 1) as (node,):
        await node.log.append([message(node.chat, node.ann, f"{n}") for n in range(3)])
        looks = [None] if mode == "two_phase" else []
        bad = torn(lambda place: place > 0)
        node.faults.now = Planned(Query=[*looks, bad, bad])
        assert resolved(await node.log.read(node.chat, 0, 10)) == [1, 2, 3]
        node.faults.now = Planned(Query=[*looks, bad, bad])
        assert resolved(await node.log.read_before(node.chat, 4, 10)) == [1, 2, 3]


async def test_a_page_that_stays_empty_is_an_error() -> None:
    """Who would take an empty page for the end is told that the store is not well instead."""
    async with world("atomic", 1) as (node,):
        await said(node, node.chat, node.ann, "1")
        node.faults.now = On(torn(lambda _: False), "Query", "messages")
        with pytest.raises(StoreUnavailable):
            await node.log.read(node.chat, 0, 10)
        with pytest.raises(StoreUnavailable):
            await node.log.read_before(node.chat, 9, 10)


async def test_a_torn_look_does_not_move_the_head() -> None:
    """In two_phase a look that misses a position stops there, and the next one finds the end."""
    async with world("two_phase") as (node, other):
        await node.log.append([message(node.chat, node.ann, ALONE) for _ in range(4)])
        other.faults.now = Planned(Query=[torn(lambda place: place != 1)])
        assert await head_of(other, node.chat) == 1
        assert await head_of(other, node.chat) == 4
        assert await other.log.seal() == []


@pytest.mark.parametrize("mode", MODES)
async def test_batches_that_are_answered_in_parts_are_whole(mode: str) -> None:
    """UnprocessedKeys are asked for again: no chat lacks its head, and no member is refused."""
    async with world(mode, 1) as (node,):
        chats = [node.chat, *[await add_group(node, node.ann, node.ben) for _ in range(2)]]
        await node.reopen()
        node.faults.now = Planned(BatchGetItem=[unprocessed, None] * 20)
        drafts = [message(chat, sender) for chat in chats for sender in (node.ann, node.ben)]
        result = await node.log.append(drafts)
        assert {told(each) for each in result.outcomes} == {"stored"}
        assert {head.sequence for head in (await node.log.heads(chats)).values()} == {2}


# Memory


@pytest.mark.parametrize("mode", MODES)
async def test_a_full_memory_of_people_refuses_nobody(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose role was known and whose was not may write in one batch, however little is remembered."""
    monkeypatch.setattr(chat_state, "PEOPLE_REMEMBERED_MAX", 2)
    async with world(mode, 1) as (node,):
        others = await add_people(node, "cat", "dan")
        chat = await add_group(node, node.ann, node.ben, *others)
        for people in ([node.ann, node.ben], [node.ann, others[0]], [node.ben, *others, node.ann]):
            result = await node.log.append([message(chat, person) for person in people])
            assert {told(each) for each in result.outcomes} == {"stored"}


@pytest.mark.parametrize("mode", MODES)
async def test_a_chat_forgotten_while_it_is_written_to_is_looked_at_again(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory may be lost at any time, even in the middle of an append that has to look again."""
    monkeypatch.setattr(chat_state, "CHATS_REMEMBERED_MAX", 1)
    async with world(mode) as (node, other):
        busy = await add_group(node, node.ann)

        async def forgotten(operation: str, request: Request, send: Send) -> Response:
            await outcome(node, message(busy, node.ann))
            other.remove_member(node.chat, node.ben)
            return await send(operation, request)

        node.faults.now = Planned(TransactWriteItems=[forgotten])
        assert told(await stored(node, message(node.chat, node.ann, "kept"))) == "stored"
        assert contents(await read_all(other, node.chat)) == ["kept"]


async def test_heads_reach_over_large_messages() -> None:
    """A look returns one megabyte at most: a head is found behind many large messages at once."""
    async with world("two_phase") as (node, other):
        large = "x" * 65_536
        await node.log.append([message(node.chat, node.ann, large) for _ in range(20)])
        assert await head_of(other, node.chat) == 20
        page = await other.log.read(node.chat, 0, 100)
        assert sequences(await read_all(other, node.chat)) == resolved(page)
