"""The scenarios on shared engines, by name, in the order of the table."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from bench.dynamodb import client, hops, hot_chat, idle, persist, publishing, two_nodes, units
from bench.dynamodb.stage import SharedStage
from bench.rows import Row

Scenario = Callable[[SharedStage], Coroutine[Any, Any, list[Row]]]

SCENARIOS: dict[str, Scenario] = {
    "hot_chat": hot_chat.hot_chat,
    "persist": persist.persist,
    "client": client.store_client,
    "units": units.capacity,
    "two_nodes": two_nodes.two_nodes,
    "hops": hops.hops,
    "publishing": publishing.publishing,
    "idle": idle.idle,
}
