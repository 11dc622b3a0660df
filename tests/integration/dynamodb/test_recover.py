"""The sources' counter recovery procedure on DynamoDB, for counters in the tables and for any allocator."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from parley.clock import from_iso
from parley.errors import CounterMissingError, InconsistentCounterError
from parley.model import Appended
from parley.store.dynamodb import looking
from parley.store.dynamodb.answers import Answer
from parley.store.dynamodb.calling import Fault, Faults, Request, Send
from parley.store.dynamodb.client import Dynamo, Item
from parley.store.dynamodb.counters import Counters
from parley.store.dynamodb.recover import PUBLISHED_AGAIN, recover
from parley.store.dynamodb.traces import chats_without_counter, reported_in
from parley.store.recovery import NoSuchChat, Recovery, Unbelievable
from parley.testing.dynamodb_faults import Planned, timeout_done, timeout_not_done
from tests.integration.dynamodb.filled import GROUP, at, check, filled, open_store, set_in
from tests.integration.dynamodb.test_check import BEN_IN_GROUP, lose_counter, lose_entry
from tests.integration.small_world import BEGINNING, GROUP_ENTRIES, message

BEN_ON_PHONE: Item = {"user_id": "user_ben", "device_chat": "phone\x1fchat_group"}


@pytest.fixture(autouse=True)
def _look_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "LOOK_AGAIN_SECONDS", 0.0)


class Numbers:
    """An allocator elsewhere: a number, or nothing."""

    def __init__(self, last: int | None) -> None:
        self.value = last

    async def create(self, chat_id: str) -> None:
        self.value = self.value or 0

    async def allocate(self, chat_id: str, count: int, floor: int) -> int:
        assert self.value is not None
        self.value += count
        return self.value

    async def last(self, chat_id: str) -> int | None:
        return self.value

    async def restore(self, chat_id: str, at_least: int) -> int:
        self.value = max(self.value or 0, at_least)
        return self.value


async def recovered(dynamo: Dynamo, **options: Any) -> Recovery:
    return await recover(dynamo, "chat_group", lambda: from_iso(BEGINNING), **{"apply": True, **options})


@asynccontextmanager
async def faulty(dynamo: Dynamo, faults: Faults) -> AsyncIterator[Dynamo]:
    """Another client of the same tables, with faults."""
    other = Dynamo(dynamo.endpoint, dynamo.region, prefix=dynamo.prefix, faults=faults)
    await other.open()
    try:
        yield other
    finally:
        await other.close()


async def counter(dynamo: Dynamo) -> Item | None:
    return await dynamo.get("chat_counters", GROUP)


async def test_a_dry_run_changes_nothing() -> None:
    """Without `apply` it is told what would be written, and nothing is."""
    async with filled() as dynamo:
        await lose_counter(dynamo)
        recovery = await recovered(dynamo, apply=False)
        assert (recovery.is_lost, recovery.counter, recovery.applied) == (True, GROUP_ENTRIES, False)
        assert await counter(dynamo) is None


async def test_a_lost_counter_comes_back_with_its_audit_fields() -> None:
    """The highest number is written with recovered_at and recovered_from_sequence, and all is well again."""
    async with filled() as dynamo:
        await lose_counter(dynamo)
        assert (await recovered(dynamo)).breaches == []
        found = await counter(dynamo)
        assert found is not None
        assert (found["sequence_counter"], found["written_through"]) == (GROUP_ENTRIES, GROUP_ENTRIES)
        assert (found["recovered_at"], found["recovered_from_sequence"]) == (BEGINNING, GROUP_ENTRIES)
        assert (await check(dynamo)).is_clean


async def test_the_chat_goes_on_after_recovery() -> None:
    """The next message takes the next number, also of a node that remembers the old counter."""
    async with filled() as dynamo:
        store = open_store(dynamo)
        await store.log.append([message("chat_group", "user_ann", "before")])
        await lose_counter(dynamo)
        refused = (await store.log.append([message("chat_group", "user_ann", "lost?")])).outcomes[0]
        assert getattr(refused, "code", "") == "counter_missing"
        await recovered(dynamo)
        (outcome,) = (await store.log.append([message("chat_group", "user_ben", "after")])).outcomes
        assert isinstance(outcome, Appended)
        assert outcome.sequence == GROUP_ENTRIES + 2


async def test_both_items_get_one_new_revision() -> None:
    """Whoever remembers the membership looks again: the counter's item could be an old one's."""
    async with filled() as dynamo:
        before = (await dynamo.get("chats", GROUP) or {})["membership_revision"]
        await lose_counter(dynamo)
        await recovered(dynamo)
        after = (await dynamo.get("chats", GROUP) or {})["membership_revision"]
        assert (await counter(dynamo) or {})["membership_revision"] == after != before


async def test_what_was_perhaps_not_published_is_published_again() -> None:
    """The mark is lost with the counter: the chat is listed, from some entries before its end."""
    async with filled() as dynamo:
        await lose_counter(dynamo)
        await recovered(dynamo)
        found = await counter(dynamo) or {}
        assert (found["published_through"], "unpublished" in found) == (0, True)
        await lose_counter(dynamo)
        await set_in(dynamo, "user_device_cursors", BEN_ON_PHONE, last_acked_sequence=PUBLISHED_AGAIN + 5)
        await recovered(dynamo)
        assert (await counter(dynamo) or {})["published_through"] == 5


async def test_a_counter_behind_its_log_needs_a_person() -> None:
    """A counter that is there and too low is refused with the sources' own words and is not overwritten."""
    async with filled() as dynamo:
        await set_in(dynamo, "chat_counters", GROUP, sequence_counter=4)
        with pytest.raises(InconsistentCounterError, match="value 4 but max message sequence is 6"):
            await recovered(dynamo)
        assert (await counter(dynamo) or {})["sequence_counter"] == 4


async def test_a_counter_that_is_fine_is_left_alone() -> None:
    """Recovering a healthy chat writes nothing."""
    async with filled() as dynamo:
        before = await counter(dynamo)
        recovery = await recovered(dynamo)
        assert (recovery.is_lost, recovery.counter, recovery.voids) == (False, GROUP_ENTRIES, [])
        assert await counter(dynamo) == before


async def test_a_cursor_beyond_the_log_counts() -> None:
    """When entries are lost too, the chat goes on above what a device has seen, and the rest is void."""
    async with filled() as dynamo:
        await lose_counter(dynamo)
        await lose_entry(dynamo, 6)
        await lose_entry(dynamo, 5)
        await set_in(dynamo, "user_device_cursors", BEN_ON_PHONE, last_acked_sequence=9)
        recovery = await recovered(dynamo)
        assert recovery.found.device_cursors == 9
        assert (recovery.counter, recovery.voids) == (9, [(6, 9)])
        assert [(await dynamo.get("messages", at(n)) or {})["kind"] for n in (6, 7, 8, 9)] == ["void"] * 4


@pytest.mark.parametrize(
    ("source", "table", "key", "attributes"),
    [
        ("delivery_state", "delivery_state", BEN_IN_GROUP, {"last_acked_sequence": 8}),
        ("delivery_state", "delivery_state", BEN_IN_GROUP, {"read_up_to": 8, "has_left": True}),
        ("device_cursors", "user_device_cursors", BEN_ON_PHONE, {"last_acked_sequence": 8}),
        ("voids", "messages", at(8), {"kind": "void", "epoch": 1}),
        ("trimmed", "chats", GROUP, {"trimmed_through": 8}),
        (
            "keys",
            "idempotency_keys",
            {"chat_id": "chat_group", "client_message_id": "a"},
            {"sequence": 8, "message_id": "msg_"},
        ),
    ],
)
async def test_every_table_that_knows_a_number_counts(
    source: str, table: str, key: Item, attributes: dict[str, Any]
) -> None:
    """The recovered counter is the highest number that anything knows of, people who left included."""
    async with filled() as dynamo:
        await lose_counter(dynamo)
        await set_in(dynamo, table, key, **attributes)
        recovery = await recovered(dynamo, apply=False)
        assert (getattr(recovery.found, source), recovery.counter) == (8, 8)


async def test_a_number_too_far_away_is_not_believed() -> None:
    """A cursor millions beyond the log is told as a mistake, and nothing is written."""
    async with filled() as dynamo:
        await lose_counter(dynamo)
        await set_in(dynamo, "user_device_cursors", BEN_ON_PHONE, last_acked_sequence=5_000_000)
        with pytest.raises(Unbelievable, match="too far to be true"):
            await recovered(dynamo)
        assert await counter(dynamo) is None


async def test_holes_are_given_up_only_when_asked() -> None:
    """A lost entry stays a hole, which verification tells, until it is sealed."""
    async with filled() as dynamo:
        await lose_entry(dynamo, 2)
        await lose_entry(dynamo, 3)
        told = (await recovered(dynamo)).breaches
        assert {breach.sequence for breach in told if breach.invariant == "log_density"} == {2}
        sealed = await recovered(dynamo, seal_holes=True)
        assert sealed.voids == [(2, 3)]
        assert [b for b in sealed.breaches if b.invariant != "idempotency_sequence_consistency"] == []


async def test_numbers_that_a_counter_gave_away_are_sealed() -> None:
    """A counter that somebody moved ahead is whole again once its numbers are voids."""
    async with filled() as dynamo:
        await set_in(dynamo, "chat_counters", GROUP, sequence_counter=9)
        recovery = await recovered(dynamo, seal_holes=True)
        assert recovery.voids == [(7, 9)]
        assert (await check(dynamo)).is_clean


async def test_a_counter_that_comes_back_meanwhile_is_not_overwritten() -> None:
    """Of two operators, the second is told to look again."""
    async with filled() as dynamo:
        await lose_counter(dynamo)

        async def recreate(operation: str, request: Request, send: Send) -> Answer:
            await set_in(dynamo, "chat_counters", GROUP, sequence_counter=GROUP_ENTRIES)
            return await send(operation, request)

        async with faulty(dynamo, Planned(TransactWriteItems=[recreate])) as other:
            with pytest.raises(CounterMissingError, match="came back"):
                await recovered(other)


@pytest.mark.parametrize("fault", [timeout_done, timeout_not_done])
async def test_a_recovery_gets_through_a_lost_answer(fault: Fault) -> None:
    """A lost answer neither hides nor repeats the repair."""
    async with filled() as dynamo:
        await lose_counter(dynamo)
        async with faulty(dynamo, Planned(TransactWriteItems=[fault])) as other:
            recovery = await recovered(other)
        assert (recovery.applied, recovery.breaches) == (True, [])
        assert (await check(dynamo)).is_clean


async def test_an_unknown_chat_is_told() -> None:
    """There is nothing to recover where there is no chat."""
    async with filled() as dynamo:
        with pytest.raises(NoSuchChat):
            await recover(dynamo, "chat_nowhere", lambda: 0, apply=True)


# Allocators elsewhere


@pytest.mark.parametrize("last", [None, 2])
async def test_an_allocator_that_lost_its_data_is_raised(last: int | None) -> None:
    """Whether the number is gone or has fallen back, it comes back above everything, with an audit trail."""
    async with filled(two_phase=True) as dynamo:
        numbers = Numbers(last)
        recovery = await recovered(dynamo, allocator=numbers)
        assert (recovery.is_lost, recovery.counter, numbers.value) == (True, GROUP_ENTRIES, GROUP_ENTRIES)
        chat = await dynamo.get("chats", GROUP) or {}
        assert (chat["recovered_at"], chat["recovered_from_sequence"]) == (BEGINNING, GROUP_ENTRIES)


async def test_an_allocator_ahead_of_the_log_is_left_alone() -> None:
    """Numbers that were taken and not written yet are not given again."""
    async with filled(two_phase=True) as dynamo:
        numbers = Numbers(GROUP_ENTRIES + 3)
        recovery = await recovered(dynamo, allocator=numbers)
        assert (recovery.is_lost, numbers.value) == (False, GROUP_ENTRIES + 3)


async def test_all_lost_counters_are_found() -> None:
    """Chats without a counter are listed; of an allocator elsewhere, those that it has fallen back in too."""
    async with filled() as dynamo:
        own = Counters(dynamo, None, is_atomic=True)
        assert await chats_without_counter(dynamo, own) == []
        await lose_counter(dynamo)
        assert await chats_without_counter(dynamo, own) == ["chat_group"]
        elsewhere = Counters(dynamo, Numbers(3), is_atomic=False)
        assert await chats_without_counter(dynamo, elsewhere) == ["chat_group"]
        gone = Counters(dynamo, Numbers(None), is_atomic=False)
        assert await chats_without_counter(dynamo, gone) == ["chat_direct", "chat_group"]


async def test_reports_of_many_chats_are_read_at_once() -> None:
    """What devices and people said of each chat is the same, looked up for one chat or for all."""
    async with filled() as dynamo:
        await set_in(
            dynamo, "delivery_state", {"user_id": "user_ann", "chat_id": "chat_direct"}, read_up_to=1
        )
        everything = await reported_in(dynamo, ["chat_group", "chat_direct"])
        assert everything["chat_group"] == (await reported_in(dynamo, ["chat_group"]))["chat_group"]
        assert (everything["chat_group"].devices, everything["chat_group"].people) == (3, 3)
        assert (everything["chat_direct"].devices, everything["chat_direct"].people) == (0, 1)
