"""A replay of very many dead letters, on the tables of each engine."""

import asyncio
from collections import defaultdict

import msgspec
import pytest

from parley.core.deliveries import DeadLetter, DeadLetterStatus, Selection
from parley.core.retry import DeliveryFailure, RetryPolicy
from parley.delivery import replays
from parley.delivery.ports import Delivery, DeliveryKind
from parley.delivery.replays import Replays
from parley.model import Persisted
from parley.wire.frames import Entry
from tests.contracts.engines import Engine
from tests.contracts.test_dead_letters import ASKED, dead_letter
from tests.integration.gateway.test_webhook_channel import ENTRY
from tests.waiting import eventually

KIND = DeliveryKind(group="delivery", prefix="wh_", topic="messages.outbound")
CHATS = 10
AT_ONCE = 20
PENDING = Selection(status=DeadLetterStatus.PENDING)


class NotingChannel:
    """A channel to one recipient that notes which position of which chat it gets."""

    def __init__(self) -> None:
        self.got: dict[str, list[int]] = defaultdict(list)

    async def owed(self, news: Persisted) -> list[str]:
        return ["wh_1"]

    async def recipient(self, recipient_id: str, stream_id: str) -> "NotingChannel":
        return self

    async def wants(self, entry: Entry) -> bool:
        return True

    async def attempt(self, delivery: Delivery) -> DeliveryFailure | None:
        self.got[delivery.entry.chat_id].append(delivery.entry.sequence)
        return None


class Logs:
    """Every position of every chat has a message."""

    async def read(self, stream_id: str, after: int, limit: int) -> tuple[dict[int, bytes], int]:
        entry = msgspec.structs.replace(ENTRY, chat_id=stream_id, sequence=after + 1)
        return {after + 1: msgspec.json.encode(entry)}, after + 1


def count_on(engine: Engine, request: pytest.FixtureRequest) -> int:
    return 5_000 if "sqlite" in request.node.name else 200


async def test_replay_of_5000_dead_letters_each_once_in_chat_order_run_twice_nothing_doubled(
    engine: Engine, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cause is fixed; two operators ask for everything at once, and again while it runs."""
    monkeypatch.setattr(replays, "REPLAYS_PER_SECOND_MAX", 1_000_000)
    total, receiver = count_on(engine, request), NotingChannel()
    per_chat = total // CHATS
    async with engine.opened() as store:
        dead_letters = store.deliveries.dead_letters
        made = [one_of_all(number, per_chat) for number in range(total)]
        for first in range(0, total, AT_ONCE):
            await asyncio.gather(*(dead_letters.add(one) for one in made[first : first + AT_ONCE]))
        asked = await asyncio.gather(
            dead_letters.queue(PENDING, "job_1", ASKED), dead_letters.queue(PENDING, "job_2", ASKED)
        )
        assert sum(asked) == total, "each is queued by one of them"
        worker = Replays(
            kind=KIND,
            source=Logs(),
            store=store.deliveries,
            channel=receiver,
            policy=RetryPolicy(),
            clock=store.clock,
            metrics=store.metrics,
            holder="node_1",
            look_seconds=0.05,
        )
        running = asyncio.create_task(worker.run())
        try:
            assert await dead_letters.queue(Selection(), "job_3", ASKED) == 0
            await eventually(lambda: sum(map(len, receiver.got.values())) >= total, 60)
            assert await dead_letters.queue(Selection(), "job_4", ASKED) == 0
            await asyncio.sleep(0.5)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert dict(receiver.got) == {f"chat_{n}": list(range(1, per_chat + 1)) for n in range(CHATS)}
        assert await dead_letters.queued("", 1) == []
        counted = await dead_letters.count(Selection(status=DeadLetterStatus.REPLAYED))
        assert sum(counted.values()) == total


def one_of_all(number: int, per_chat: int) -> DeadLetter:
    """A dead letter of one of the chats, in an order that is not that of any chat."""
    sequence = per_chat - number // CHATS
    return dead_letter(number, dlq_id=f"dlq_{number:05}", chat_id=f"chat_{number % CHATS}", sequence=sequence)
