"""What operators do with deliveries on an engine that cannot deliver."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from parley.chats.user_admin import OperatorCall
from parley.delivery.admin import DeliveryAdmin
from parley.errors import Refused
from parley.ids import Ids
from parley.store.delivery.rows import Selection
from tests.harness.clock import VirtualClock

ROOT = OperatorCall("user_1")


@pytest.mark.parametrize("action", ["letters", "replay", "discard", "webhooks", "add", "remove"])
async def test_an_engine_without_deliveries_says_so(action: str) -> None:
    """Every action is refused with the setting that would help, before anything is recorded."""
    nothing: Any = None
    admin = DeliveryAdmin(None, nothing, nothing, (), VirtualClock(), Ids(random.Random(7).getrandbits))
    actions: dict[str, Callable[[], Awaitable[Any]]] = {
        "letters": lambda: admin.letters(Selection(), "", 1),
        "replay": lambda: admin.replay(ROOT, Selection()),
        "discard": lambda: admin.discard(ROOT, Selection(), "no"),
        "webhooks": admin.webhooks,
        "add": lambda: admin.add_webhook(ROOT, "https://a.example/", ["message.created"]),
        "remove": lambda: admin.remove_webhook(ROOT, "wh_1"),
    }
    with pytest.raises(Refused, match=r"store\.engine"):
        await actions[action]()
