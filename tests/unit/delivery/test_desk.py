"""The desk of operators on an engine that cannot deliver."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from parley.chats.user_admin import OperatorCall
from parley.delivery.desk import DeliveryDesk
from parley.errors import Refused
from parley.ids import Ids
from parley.store.delivery.rows import Selection
from tests.harness.clock import VirtualClock

ROOT = OperatorCall("user_1")


@pytest.mark.parametrize("action", ["letters", "replay", "discard", "webhooks", "add", "remove"])
async def test_an_engine_without_deliveries_says_so(action: str) -> None:
    """Every action is refused with the setting that would help, before anything is recorded."""
    nothing: Any = None
    desk = DeliveryDesk(None, nothing, nothing, (), VirtualClock(), Ids(random.Random(7).getrandbits))
    actions: dict[str, Callable[[], Awaitable[Any]]] = {
        "letters": lambda: desk.letters(Selection(), "", 1),
        "replay": lambda: desk.replay(ROOT, Selection()),
        "discard": lambda: desk.discard(ROOT, Selection(), "no"),
        "webhooks": desk.webhooks,
        "add": lambda: desk.add_webhook(ROOT, "https://a.example/", ["message.created"]),
        "remove": lambda: desk.remove_webhook(ROOT, "wh_1"),
    }
    with pytest.raises(Refused, match=r"store\.engine"):
        await actions[action]()
