"""What operators do with deliveries on a server that cannot deliver."""

import random
from typing import Any

import pytest

from parley.audit import OperatorCall
from parley.delivery.admin import DeliveryAdmin
from parley.errors import Refused
from parley.ids import Ids
from parley.records.kinds import Kinds
from parley.telemetry import Metrics
from tests.harness.clock import VirtualClock
from tests.memory.engine import MemoryStore
from tests.memory.tables import Tables


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
