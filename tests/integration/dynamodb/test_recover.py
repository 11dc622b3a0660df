"""What recovery does on DynamoDB alone; on every engine: tests/contracts/test_repairs.py."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from parley.checks.recovery import Recovery, recover
from parley.clock import from_iso
from parley.store.dynamodb import scans
from parley.store.dynamodb.driver import Dynamo, Fault, Faults, Item
from parley.store.dynamodb.repairs import PUBLISHED_AGAIN
from parley.testing.dynamodb_faults import timeout_done, timeout_not_done
from tests.harness.fault_plans import Planned
from tests.integration.dynamodb.filled import BEGINNING, GROUP, check, filled, open_store, set_in
from tests.integration.dynamodb.test_check import lose_counter
from tests.integration.small_world import GROUP_ENTRIES

BEN_ON_PHONE: Item = {"user_id": "user_ben", "device_chat": "phone\x1fchat_group"}


@pytest.fixture(autouse=True)
def _look_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "READ_AGAIN_SECONDS", 0.0)


async def recovered(dynamo: Dynamo, **options: Any) -> Recovery:
    store = open_store(dynamo, clock=lambda: from_iso(BEGINNING))
    return await recover(store, "chat_group", **{"apply": True, **options})


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


@pytest.mark.parametrize(
    ("source", "table", "key", "attributes"),
    [
        ("trimmed", "chats", GROUP, {"trimmed_through": 8}),
        (
            "keys",
            "idempotency_keys",
            {"chat_id": "chat_group", "client_message_id": "a"},
            {"sequence": 8, "message_id": "msg_"},
        ),
    ],
)
async def test_what_only_dynamodb_keeps_counts(
    source: str, table: str, key: Item, attributes: dict[str, Any]
) -> None:
    """A log that was trimmed and a key without its entry know a number, too."""
    async with filled() as dynamo:
        await lose_counter(dynamo)
        await set_in(dynamo, table, key, **attributes)
        recovery = await recovered(dynamo, apply=False)
        assert (getattr(recovery.remains, source), recovery.counter) == (8, 8)


@pytest.mark.parametrize("fault", [timeout_done, timeout_not_done])
async def test_a_recovery_gets_through_a_lost_answer(fault: Fault) -> None:
    """A lost answer neither hides nor repeats the repair."""
    async with filled() as dynamo:
        await lose_counter(dynamo)
        async with faulty(dynamo, Planned(TransactWriteItems=[fault])) as other:
            recovery = await recovered(other)
        assert (recovery.applied, recovery.breaches) == (True, [])
        assert (await check(dynamo)).is_clean


async def test_reports_of_many_chats_are_read_at_once() -> None:
    """What devices and people said of each chat is the same, looked up for one chat or for all."""
    async with filled() as dynamo:
        await set_in(
            dynamo, "delivery_state", {"user_id": "user_ann", "chat_id": "chat_direct"}, read_up_to=1
        )
        repairs = open_store(dynamo).repairs
        everything = await repairs.reported_in(["chat_group", "chat_direct"])
        assert everything["chat_group"] == (await repairs.reported_in(["chat_group"]))["chat_group"]
        assert (everything["chat_group"].devices, everything["chat_group"].people) == (3, 3)
        assert (everything["chat_direct"].devices, everything["chat_direct"].people) == (0, 1)
