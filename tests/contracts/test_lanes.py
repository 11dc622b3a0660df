"""The promises of the ports `Lanes` and `Webhooks`."""

from msgspec.structs import replace

from parley.store.delivery.rows import DeliveryEvent, Lane, Webhook
from tests.contracts.engines import Engine


def lane(chat_id: str, recipient: str, first: int, last: int) -> Lane:
    return Lane(chat_id=chat_id, recipient=recipient, next_sequence=first, target=last)


async def test_a_lane_survives_a_restart(engine: Engine) -> None:
    """What is owed is durable, with its front, its retries and its attempts."""
    async with engine.opened() as store:
        await store.deliveries.lanes.extend("chat_1", ["a", "b"], 3, 7)
        tried = replace(
            lane("chat_1", "a", 5, 7),
            due_ms=2_000,
            retry_count=1,
            crashes=1,
            attempts=(DeliveryEvent(1_000, "failed", "timeout", "no answer"),),
        )
        assert await store.deliveries.lanes.advance(tried)
        await store.reopen()
        assert await store.deliveries.lanes.due(2_000, 10) == [lane("chat_1", "b", 3, 7), tried]


async def test_news_of_a_lane_only_raises_its_target(engine: Engine) -> None:
    """The front, its retries and its due time stay; old news changes nothing."""
    async with engine.opened() as store:
        lanes = store.deliveries.lanes
        await lanes.extend("chat_1", ["a"], 3, 7)
        blocked = replace(lane("chat_1", "a", 5, 7), due_ms=9_000, retry_count=2)
        await lanes.advance(blocked)
        await lanes.extend("chat_1", ["a"], 8, 9)
        await lanes.extend("chat_1", ["a"], 3, 7)
        assert await lanes.due(9_000, 10) == [replace(blocked, target=9)]


async def test_progress_does_not_lower_a_target_that_was_raised_meanwhile(engine: Engine) -> None:
    """A worker that read the lane before the news came writes back its front, not its old target."""
    async with engine.opened() as store:
        lanes = store.deliveries.lanes
        await lanes.extend("chat_1", ["a"], 1, 2)
        (read,) = await lanes.due(0, 10)
        await lanes.extend("chat_1", ["a"], 3, 5)
        assert await lanes.advance(replace(read, next_sequence=2))
        assert await lanes.due(0, 10) == [lane("chat_1", "a", 2, 5)]


async def test_a_lane_with_more_to_do_does_not_finish(engine: Engine) -> None:
    """Finishing what was known and news of more can come in any order: nothing is forgotten."""
    async with engine.opened() as store:
        lanes = store.deliveries.lanes
        await lanes.extend("chat_1", ["a"], 1, 2)
        await lanes.extend("chat_1", ["a"], 3, 3)
        assert not await lanes.finish("chat_1", "a", 2)
        assert await lanes.finish("chat_1", "a", 3)
        assert await lanes.due(0, 10) == []
        assert not await lanes.advance(lane("chat_1", "a", 1, 3)), "a finished lane does not come back"
        assert await lanes.due(0, 10) == []


async def test_lanes_come_when_they_are_due(engine: Engine) -> None:
    """The longest due first, none before its time, and without those of a recipient that is busy."""
    async with engine.opened() as store:
        lanes = store.deliveries.lanes
        for chat_id, recipient, due_ms in [
            ("c1", "a", 30),
            ("c2", "a", 10),
            ("c3", "b", 20),
            ("c4", "b", 40),
        ]:
            await lanes.extend(chat_id, [recipient], 1, 1)
            await lanes.advance(replace(lane(chat_id, recipient, 1, 1), due_ms=due_ms))
        assert [found.chat_id for found in await lanes.due(30, 10)] == ["c2", "c3", "c1"]
        assert [found.chat_id for found in await lanes.due(30, 1)] == ["c2"]
        assert [found.chat_id for found in await lanes.due(30, 10, {"a"})] == ["c3"]
        assert await lanes.next_due(30) == 40
        assert await lanes.next_due(40) is None


async def test_a_forgotten_recipient_has_no_lanes(engine: Engine) -> None:
    """The lanes of others stay."""
    async with engine.opened() as store:
        lanes = store.deliveries.lanes
        await lanes.extend("chat_1", ["a", "b"], 1, 1)
        await lanes.extend("chat_2", ["a"], 1, 1)
        await lanes.forget("a")
        assert await lanes.due(0, 10) == [lane("chat_1", "b", 1, 1)]


async def test_webhooks_are_kept_until_they_are_removed(engine: Engine) -> None:
    """With everything that a delivery needs."""
    async with engine.opened() as store:
        first = Webhook(
            webhook_id="wh_1",
            url="https://a.example/x",
            events=("message.created",),
            secret="s",
            created_ms=5,
        )
        second = replace(first, webhook_id="wh_2", chat_id="chat_1")
        await store.deliveries.webhooks.add(second)
        await store.deliveries.webhooks.add(first)
        await store.reopen()
        assert await store.deliveries.webhooks.all() == [first, second]
        assert await store.deliveries.webhooks.remove("wh_1")
        assert not await store.deliveries.webhooks.remove("wh_1")
        assert await store.deliveries.webhooks.all() == [second]
