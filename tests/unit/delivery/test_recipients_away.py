"""A recipient that is away for long: it is paused and probed, what is owed waits, and all of it arrives."""

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from parley.clock import MS_PER_HOUR, MS_PER_SECOND
from parley.core.retry import DeliveryFailure, Fault, RetryPolicy
from parley.delivery.ports import Delivery
from parley.delivery.worker import QUEUES_PER_RECIPIENT_MAX
from tests.harness.clock import START_MS
from tests.unit.delivery.retry_topics import MemoryTopics
from tests.unit.delivery.world import FOR_HOURS, HOOK, DeliveryWorld, away, play

HOUR = 3_600.0
HOUR_MS = MS_PER_HOUR
FOR_THREE_HOURS = RetryPolicy(give_up_ms=3 * HOUR_MS)


def until(world: DeliveryWorld, seconds: float) -> None:
    """The recipient is away until then, counted from the beginning."""
    away(world.channel, lambda _: world.clock() < START_MS + seconds * MS_PER_SECOND)


def heard(world: DeliveryWorld, chat_id: str, recipient: str = HOOK) -> list[str]:
    got = world.channel.got
    return [one.entry.content for one in got if (one.entry.chat_id, one.recipient) == (chat_id, recipient)]


@pytest.mark.parametrize("on", ["embedded", "topics"])
def test_a_recipient_that_is_away_for_an_hour_gets_everything_once_and_in_order(on: str) -> None:
    """Nothing is done by hand, nothing is a dead letter, and another recipient is not delayed."""

    async def scenario(world: DeliveryWorld) -> None:
        topics = MemoryTopics(world.clock)
        if on == "topics":
            world.topics = topics
            world.restart()
        world.channel.names = [HOOK, "wh_2"]
        away(world.channel, lambda one: one.recipient == HOOK and world.clock() < START_MS + HOUR_MS)
        chats = [await world.chat() for _ in range(10)]
        wanted: dict[str, list[str]] = {chat_id: [] for chat_id in chats}
        async with world.working():
            for minute in range(60):
                for place, chat_id in enumerate(chats):
                    wanted[chat_id].append(f"{place}.{minute}")
                    await world.say(chat_id, wanted[chat_id][-1])
                await asyncio.sleep(60)
                assert heard(world, chats[0], "wh_2") == wanted[chats[0]]
            assert world.channel.contents() == []
            await asyncio.sleep(300)
            assert {chat_id: heard(world, chat_id) for chat_id in chats} == wanted
        assert await world.dead_letters() == []
        assert await world.kinds.deliveries.queues.due("", 2**60, 10) == []
        assert await world.kinds.failing_recipients.page("", 10) == []
        failed = Counter(world.channel.tried).total() - len(world.channel.got)
        assert failed <= 40, "600 events waited; the recipient was asked so often while it was away"
        used = {name.rpartition(".")[2] for name, records in topics.records.items() if records}
        assert used == (set() if on == "embedded" else {"5s", "30s", "5m"})

    play(scenario, FOR_HOURS, chance=0.5)


def test_one_delivery_at_a_time_probes_a_recipient_that_is_away() -> None:
    """After five failures in a row; the pauses double up to some minutes."""

    async def scenario(world: DeliveryWorld) -> None:
        times: list[int] = []

        async def refuse(delivery: Delivery) -> DeliveryFailure | None:
            times.append((world.clock() - START_MS) // MS_PER_SECOND)
            return DeliveryFailure(Fault.SERVER_ERROR, "answered 503")

        world.channel.answer = refuse
        chats = [await world.chat() for _ in range(100)]
        async with world.working():
            for chat_id in chats:
                await world.say(chat_id, "a")
            await asyncio.sleep(HOUR)
            (health,) = await world.kinds.failing_recipients.page("", 10)
        begin, probes = times.count(0), times[times.count(0) :]
        assert 5 <= begin <= 5 + QUEUES_PER_RECIPIENT_MAX
        assert probes[:9] == [1, 3, 7, 15, 31, 63, 127, 255, 511]
        assert {after - before for before, after in pairwise(probes[8:])} == {270}
        assert (health.recipient, health.failing_since_ms) == (HOOK, START_MS)
        assert (health.error, health.detail) == ("server_error", "answered 503")
        assert health.paused_until_ms > world.clock()
        assert world.metrics.webhooks_paused._value.get() == 1

    play(scenario, FOR_HOURS)


def test_a_hanging_recipient_is_probed_by_one_queue() -> None:
    """Each probe takes as long as an attempt may; no second one begins meanwhile."""

    async def scenario(world: DeliveryWorld) -> None:
        running = most = 0

        async def hang(delivery: Delivery) -> DeliveryFailure | None:
            nonlocal running, most
            running += 1
            if world.clock() > START_MS + 60_000:
                most = max(most, running)
            await asyncio.sleep(10)
            running -= 1
            return DeliveryFailure(Fault.TIMEOUT, "no answer within 10 s")

        world.channel.answer = hang
        async with world.working():
            for _ in range(20):
                await world.say(await world.chat(), "a")
            await asyncio.sleep(HOUR)
        assert most == 1

    play(scenario, FOR_HOURS)


def test_a_chat_that_fails_alone_holds_back_no_other() -> None:
    """The recipient refuses to work for one chat for hours: events of others arrive at once."""

    async def scenario(world: DeliveryWorld) -> None:
        bad, good = await world.chat(), await world.chat()
        away(world.channel, lambda delivery: delivery.entry.chat_id == bad)
        async with world.working():
            await world.say(bad, "x")
            for number in range(6):
                await asyncio.sleep(HOUR / 2)
                await world.say(good, f"{number}")
                await asyncio.sleep(0.1)
                assert heard(world, good) == [f"{n}" for n in range(number + 1)]
        assert await world.dead_letters() == []

    play(scenario, FOR_HOURS)


def test_what_a_recipient_does_not_want_says_nothing_of_it() -> None:
    """An entry that is passed over ends no pause: the recipient was not asked."""

    async def scenario(world: DeliveryWorld) -> None:
        until(world, HOUR)
        chats = [await world.chat() for _ in range(6)]
        async with world.working():
            for chat_id in chats:
                await world.say(chat_id, "a")
            await asyncio.sleep(100)
            tried = len(world.channel.tried)
            for _ in range(100):
                unwanted = await world.write(await world.chat(), "b")
                entry = unwanted.positions[0]
                wire = (entry.wire or b"").replace(b'"kind":"message"', b'"kind":"chat"')
                world.store.log._tables.chats[unwanted.chat_id].wires[entry.sequence] = wire
                await world.worker.handle(unwanted)
            await asyncio.sleep(1_000)
            assert len(world.channel.tried) - tried <= 5
            await asyncio.sleep(HOUR)
        assert all(heard(world, chat_id) == ["a"] for chat_id in chats)
        assert await world.kinds.deliveries.queues.due("", 2**60, 10) == []

    play(scenario, FOR_HOURS)


def test_a_pause_survives_the_worker() -> None:
    """A new process knows that the recipient is away, and does not begin with an attempt for each queue."""

    async def scenario(world: DeliveryWorld) -> None:
        until(world, HOUR)
        chats = [await world.chat() for _ in range(50)]
        async with world.working():
            for chat_id in chats:
                await world.say(chat_id, "a")
            await asyncio.sleep(600)
        before = len(world.channel.tried)
        world.restart()
        async with world.working():
            await asyncio.sleep(60)
            assert len(world.channel.tried) - before <= 1
            await asyncio.sleep(HOUR)
        assert all(heard(world, chat_id) == ["a"] for chat_id in chats)

    play(scenario, FOR_HOURS)


def test_of_two_workers_one_probes() -> None:
    """They share what they know of the recipient, and what waits is delivered once."""

    async def scenario(world: DeliveryWorld) -> None:
        running = most = 0

        async def hang(delivery: Delivery) -> DeliveryFailure | None:
            nonlocal running, most
            if world.clock() >= START_MS + HOUR_MS:
                return await world.channel.take(delivery)
            running += 1
            if world.clock() > START_MS + 120_000:
                most = max(most, running)
            await asyncio.sleep(5)
            running -= 1
            return DeliveryFailure(Fault.TIMEOUT, "no answer")

        world.channel.answer = hang
        chats = [await world.chat() for _ in range(20)]
        async with world.working():
            world.restart()
            async with world.working():
                for chat_id in chats:
                    await world.say(chat_id, "a", "b")
                await asyncio.sleep(HOUR)
                assert most == 1
                await asyncio.sleep(600)
        assert all(heard(world, chat_id) == ["a", "b"] for chat_id in chats)
        assert await world.dead_letters() == []

    play(scenario, FOR_HOURS)


def test_a_webhook_is_given_up_after_its_hours() -> None:
    """A dead letter says how often it was tried and since when, in few words; what is younger waits on."""

    async def scenario(world: DeliveryWorld) -> None:
        away(world.channel)
        chat_id = await world.chat()
        async with world.working():
            await world.say(chat_id, "a")
            await asyncio.sleep(HOUR)
            await world.say(chat_id, "b")
            await asyncio.sleep(2 * HOUR - 1)
            assert await world.dead_letters() == []
            await asyncio.sleep(600)
            (dead_letter,) = await world.dead_letters()
            assert (dead_letter.error, dead_letter.first_attempt_ms) == ("unreachable", START_MS)
            assert dead_letter.last_attempt_ms == START_MS + 3 * HOUR_MS
            assert dead_letter.retry_count > 30
            assert len(dead_letter.history) == 20
            await asyncio.sleep(HOUR / 2)
            assert len(await world.dead_letters()) == 1
            await asyncio.sleep(HOUR / 2)
        first, second = await world.dead_letters()
        assert second.dlq_ms - first.dlq_ms == pytest.approx(HOUR_MS, abs=600_000)
        assert second.first_attempt_ms >= first.dlq_ms

    play(scenario, FOR_THREE_HOURS)


def test_what_waits_behind_a_recipient_that_never_comes_back_is_given_up_too() -> None:
    """Many chats wait, and few of them are ever probed: all end as dead letters, of the same cause."""

    async def scenario(world: DeliveryWorld) -> None:
        away(world.channel)
        chats = [await world.chat() for _ in range(100)]
        async with world.working():
            for chat_id in chats:
                await world.say(chat_id, "a", "b")
            await asyncio.sleep(3 * HOUR + 1_200)
            late = await world.chat()
            await world.say(late, "young")
            await asyncio.sleep(HOUR)
            dead_letters = await world.dead_letters()
            assert len(dead_letters) == 200
            assert {dead_letter.error for dead_letter in dead_letters} == {"unreachable"}
            assert all(dead_letter.dlq_ms >= START_MS + 3 * HOUR_MS for dead_letter in dead_letters)
            assert len(world.channel.tried) < 100
            world.channel.answer = world.channel.take
            await asyncio.sleep(900)
        assert world.channel.contents() == ["young"]

    play(scenario, FOR_THREE_HOURS)


def test_without_hours_the_first_failure_is_the_last() -> None:
    """webhooks.give_up_hours = 0."""

    async def scenario(world: DeliveryWorld) -> None:
        away(world.channel)
        chat_id = await world.chat()
        async with world.working():
            await world.say(chat_id, "a", "b")
            await asyncio.sleep(0.1)
        assert [dead_letter.retry_count for dead_letter in await world.dead_letters()] == [0, 0]

    play(scenario, RetryPolicy(give_up_ms=0))


def test_a_recipient_is_asked_when_it_wants_to_be() -> None:
    """`Retry-After` delays the retry, and the pause of all that is owed to it."""

    async def scenario(world: DeliveryWorld) -> None:
        times: list[int] = []

        async def busy(delivery: Delivery) -> DeliveryFailure | None:
            times.append((world.clock() - START_MS) // MS_PER_SECOND)
            if world.clock() < START_MS + 300_000:
                return DeliveryFailure(Fault.BUSY, "answered 429", retry_after_ms=400_000)
            return await world.channel.take(delivery)

        world.channel.answer = busy
        chats = [await world.chat() for _ in range(9)]
        async with world.working():
            for chat_id in chats:
                await world.say(chat_id, "a")
            await asyncio.sleep(600)
        assert len(world.channel.got) == 9
        assert {time for time in times if time} == {400}

    play(scenario, FOR_HOURS)
