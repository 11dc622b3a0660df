"""What operators do with deliveries on a server that cannot deliver."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import ANY

import pytest

from parley.audit import OperatorCall
from parley.core.deliveries import DeadLetterStatus, Selection
from parley.delivery.admin import DeliveryAdmin
from parley.errors import PREVIEW_OUTDATED, Refused
from parley.ids import Ids
from parley.records.deliveries import DeliveryRecords
from parley.records.kinds import Kinds
from parley.telemetry import Metrics
from tests.contracts.test_dead_letters import dead_letter
from tests.harness.clock import VirtualClock
from tests.memory.engine import MemoryStore
from tests.memory.tables import Tables

CALL = OperatorCall("user_1")
IDS = Ids(random.Random(7).getrandbits)


@asynccontextmanager
async def nothing_recorded(*_: object) -> AsyncIterator[None]:
    yield


def admin_of(store: DeliveryRecords, clock: VirtualClock) -> DeliveryAdmin:
    nothing: Any = None
    return DeliveryAdmin(
        store=store,
        failing=nothing,
        source=nothing,
        audited=nothing_recorded,
        allowed=(),
        clock=clock,
        make_ids=Ids(random.Random(7).getrandbits),
    )


@pytest.mark.parametrize("action", ["replay", "discard"])
async def test_a_preview_is_about_what_it_showed(action: str) -> None:
    """Its token touches nothing that came later; what became of a dead letter meanwhile does not matter."""
    clock = VirtualClock()
    store = Kinds(MemoryStore(Tables(), clock=clock, ids=IDS, metrics=Metrics(clock)), clock).deliveries
    admin, dead = admin_of(store, clock), store.dead_letters
    for number in (1, 2, 3):
        assert await dead.add(dead_letter(number, dlq_ms=clock() - number))
    seen = await admin.preview(Selection(error="timeout"))
    assert (seen.matched, seen.chats, seen.oldest_ms) == (3, 1, clock() - 3)
    assert await dead.add(dead_letter(4, dlq_ms=clock()))
    await admin.discard(CALL, Selection(ids=("dlq_01",)), "gone")
    chosen = await admin.previewed(seen.token)
    if action == "replay":
        matched, job_id = await admin.replay(CALL, chosen)
    else:
        matched, job_id = await admin.discard(CALL, chosen, "gone")
    assert matched == 2
    touched = await dead.find(Selection(job_id=job_id), "", 10)
    assert sorted(one.sequence for one in touched) == [2, 3]


async def test_a_letter_that_was_written_late_ends_a_preview() -> None:
    """It says that it is older than the preview, which did not show it: nothing is touched."""
    clock = VirtualClock()
    store = Kinds(MemoryStore(Tables(), clock=clock, ids=IDS, metrics=Metrics(clock)), clock).deliveries
    admin, dead = admin_of(store, clock), store.dead_letters
    assert await dead.add(dead_letter(1, dlq_ms=clock() - 1))
    seen = await admin.preview(Selection())
    assert await dead.add(dead_letter(2, dlq_ms=clock() - 2))
    with pytest.raises(Refused) as refused:
        await admin.previewed(seen.token)
    assert refused.value.refusal is PREVIEW_OUTDATED
    for nonsense in ("", "x", "eyJhIjoxfQ==", "\ud800"):
        with pytest.raises(Refused, match="none of a preview"):
            await admin.previewed(nonsense)


async def test_a_preview_of_what_cannot_be_replayed_is_empty() -> None:
    """Dead letters that were replayed or given up are over."""
    clock = VirtualClock()
    store = Kinds(MemoryStore(Tables(), clock=clock, ids=IDS, metrics=Metrics(clock)), clock).deliveries
    admin, dead = admin_of(store, clock), store.dead_letters
    assert await dead.add(dead_letter(1, dlq_ms=clock() - 1))
    for status in (DeadLetterStatus.REPLAYED, DeadLetterStatus.FAILED):
        seen = await admin.preview(Selection(status=status))
        assert seen.matched == 0
        assert await admin.replay(CALL, await admin.previewed(seen.token)) == (0, ANY)


async def test_a_server_without_a_feed_takes_no_webhooks() -> None:
    """It could never deliver to one: it says which setting would help, before anything is recorded."""
    nothing: Any = None
    clock, make_ids = VirtualClock(), Ids(random.Random(7).getrandbits)
    store = Kinds(MemoryStore(Tables(), clock=clock, ids=make_ids, metrics=Metrics(clock)), clock).deliveries
    admin = DeliveryAdmin(
        store=store,
        failing=nothing,
        source=nothing,
        audited=nothing,
        allowed=(),
        clock=clock,
        make_ids=make_ids,
        has_feed=False,
    )
    with pytest.raises(Refused, match=r"kafka\.brokers"):
        await admin.add_webhook(OperatorCall("user_1"), "https://a.example/", ["message.created"])
    assert await store.webhooks.all() == []
