"""The promises of the ports `DeliveryQueues` and `Webhooks`."""

from msgspec.structs import replace

from parley.core.deliveries import DeliveryEvent, DeliveryQueue, QueueClaim, Webhook
from tests.contracts.engines import Engine

CLAIM = QueueClaim("t1", 5_000)


def queue(chat_id: str, recipient: str, first: int, last: int) -> DeliveryQueue:
    return DeliveryQueue(chat_id=chat_id, recipient=recipient, next_sequence=first, target=last)


def sorted_queues(queues: list[DeliveryQueue]) -> list[DeliveryQueue]:
    return sorted(queues, key=lambda one: (one.chat_id, one.recipient))


async def test_a_queue_survives_a_restart(engine: Engine) -> None:
    """What is owed is durable, with its front, its retries and its attempts."""
    async with engine.opened() as store:
        await store.deliveries.queues.extend("chat_1", ["a", "b"], 3, 7)
        tried = replace(
            queue("chat_1", "a", 5, 7),
            due_ms=2_000,
            retry_count=1,
            crashes=1,
            attempts=(DeliveryEvent(1_000, "failed", "timeout", "no answer"),),
        )
        assert await store.deliveries.queues.advance(tried, "") == tried
        await store.reopen()
        found = await store.deliveries.queues.due("", 2_000, 10)
        assert sorted_queues(found) == [tried, queue("chat_1", "b", 3, 7)]


async def test_news_of_a_queue_only_raises_its_target(engine: Engine) -> None:
    """The front, its retries and its due time stay; old news changes nothing, and neither queue is new."""
    async with engine.opened() as store:
        queues = store.deliveries.queues
        assert await queues.extend("chat_1", ["a"], 3, 7) == [queue("chat_1", "a", 3, 7)]
        blocked = replace(queue("chat_1", "a", 5, 7), due_ms=9_000, retry_count=2)
        await queues.advance(blocked, "")
        assert await queues.extend("chat_1", ["a"], 8, 9, CLAIM) == []
        assert await queues.extend("chat_1", ["a"], 3, 7) == []
        assert await queues.due("", 9_000, 10) == [replace(blocked, target=9)]


async def test_progress_does_not_lower_a_target_that_was_raised_meanwhile(engine: Engine) -> None:
    """A worker that read the queue before the news came writes back its front, not its old target."""
    async with engine.opened() as store:
        queues = store.deliveries.queues
        await queues.extend("chat_1", ["a"], 1, 2)
        (read,) = await queues.due("", 0, 10)
        await queues.extend("chat_1", ["a"], 3, 5)
        assert await queues.advance(replace(read, next_sequence=2), "") == queue("chat_1", "a", 2, 5)
        assert await queues.due("", 0, 10) == [queue("chat_1", "a", 2, 5)]


async def test_a_queue_with_more_to_do_does_not_finish(engine: Engine) -> None:
    """Finishing what was known and news of more can come in any order: nothing is forgotten."""
    async with engine.opened() as store:
        queues = store.deliveries.queues
        await queues.extend("chat_1", ["a"], 1, 2)
        await queues.extend("chat_1", ["a"], 3, 3)
        assert not await queues.finish(queue("chat_1", "a", 3, 2))
        assert await queues.finish(queue("chat_1", "a", 4, 3))
        assert await queues.due("", 0, 10) == []
        assert await queues.advance(queue("chat_1", "a", 1, 3), "") is None, (
            "a finished queue does not come back"
        )
        assert await queues.due("", 0, 10) == []
        assert await queues.finish(queue("chat_1", "a", 4, 3)), "it may be repeated"


async def test_queues_come_when_they_are_due(engine: Engine) -> None:
    """None before its time, not more than asked for, without a busy recipient's, and only of one kind."""
    async with engine.opened() as store:
        queues = store.deliveries.queues
        for chat_id, recipient, due_ms in [
            ("c1", "wh_a", 30),
            ("c2", "wh_a", 10),
            ("c3", "wh_b", 20),
            ("c4", "wh_b", 40),
            ("c5", "push_a", 10),
            ("c6", "push_a", 35),
        ]:
            await queues.extend(chat_id, [recipient], 1, 1)
            await queues.advance(replace(queue(chat_id, recipient, 1, 1), due_ms=due_ms), "")
        assert sorted(found.chat_id for found in await queues.due("wh_", 30, 10)) == ["c1", "c2", "c3"]
        assert len(await queues.due("wh_", 30, 2)) == 2
        assert [found.chat_id for found in await queues.due("wh_", 30, 10, {"wh_a"})] == ["c3"]
        assert [found.chat_id for found in await queues.due("push_", 30, 10)] == ["c5"]
        assert await queues.next_due("wh_", 30) == 40
        assert await queues.next_due("push_", 10) == 35
        assert await queues.next_due("wh_", 40) is None


async def test_no_queue_is_left_out_for_ever(engine: Engine) -> None:
    """Whoever takes some of the queues that are due, again and again, gets all of them."""
    async with engine.opened() as store:
        queues = store.deliveries.queues
        for number in range(20):
            await queues.extend(f"chat_{number}", ["a"], 1, 1)
        taken = set()
        for number in range(20):
            for one in await queues.due("", 0, 3):
                if await queues.claim(one.chat_id, "a", QueueClaim(f"t{number}", 10_000), 0) is not None:
                    taken.add(one.chat_id)
        assert len(taken) == 20


async def test_one_worker_gets_a_queue(engine: Engine) -> None:
    """A claimed queue is not due until the claim runs out; then the next worker sees whose claim that was."""
    async with engine.opened() as store:
        queues = store.deliveries.queues
        (new,) = await queues.extend("chat_1", ["a"], 1, 2, CLAIM)
        assert new == replace(queue("chat_1", "a", 1, 2), claim="t1", due_ms=5_000)
        assert await queues.due("", 4_999, 10) == []
        assert await queues.claim("chat_1", "a", QueueClaim("t2", 9_000), 4_999) is None
        assert await queues.claim("chat_1", "a", QueueClaim("t2", 9_000), 5_000) == new
        assert await queues.claim("chat_1", "a", QueueClaim("t3", 9_000), 5_000) is None
        assert await queues.claim("chat_2", "a", QueueClaim("t3", 9_000), 5_000) is None, "there is none"
        assert await queues.due("", 8_999, 10) == []


async def test_a_worker_that_lost_its_queue_changes_nothing(engine: Engine) -> None:
    """It was paused for longer than its claim: neither its progress nor its end is written."""
    async with engine.opened() as store:
        queues = store.deliveries.queues
        (old,) = await queues.extend("chat_1", ["a"], 1, 2, CLAIM)
        await queues.claim("chat_1", "a", QueueClaim("t2", 9_000), 5_000)
        assert await queues.advance(replace(old, next_sequence=2), "t1") is None
        assert not await queues.finish(old)
        taken = replace(old, claim="t2", due_ms=9_000)
        assert await queues.due("", 9_000, 10) == [taken]
        free = replace(taken, next_sequence=2, claim="", due_ms=0)
        assert await queues.advance(free, "t2") == free, "the new worker goes on, and gives it back"
        assert await queues.advance(replace(free, next_sequence=1), "t2") is None
        assert await queues.due("", 0, 10) == [free]


async def test_a_forgotten_recipient_has_no_queues(engine: Engine) -> None:
    """The queues of others stay."""
    async with engine.opened() as store:
        queues = store.deliveries.queues
        await queues.extend("chat_1", ["a", "b"], 1, 1)
        await queues.extend("chat_2", ["a"], 1, 1)
        await queues.forget("a")
        assert await queues.due("", 0, 10) == [queue("chat_1", "b", 1, 1)]


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
