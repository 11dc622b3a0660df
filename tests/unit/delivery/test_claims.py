"""Workers on several nodes, workers that die, and messages that kill them."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from parley.core.deliveries import DeadLetterStatus, DeliveryEvent, DeliveryQueue, QueueClaim, Selection
from parley.core.retry import DeliveryFailure
from parley.delivery.ports import Delivery
from parley.delivery.worker import CLAIM_MS, DELIVERIES_PER_COMMIT
from parley.errors import StoreUnavailable
from tests.harness.clock import START_MS
from tests.unit.delivery.world import ALL, HOOK, DeliveryWorld, away, play

CLAIM_SECONDS = CLAIM_MS / 1_000


class DeadProcess(BaseException):
    """What an attempt raises to end its process."""


class Severed:
    """The queues of one process: once it is dead nothing is written, whatever its tasks still do."""

    def __init__(self, world: DeliveryWorld) -> None:
        self._queues = world.kinds.deliveries.queues
        self.is_dead = False
        self.writes: list[str] = []

    async def extend(
        self, chat_id: str, recipients: list[str], first: int, last: int, claim: QueueClaim | None = None
    ) -> list[DeliveryQueue]:
        self.writes.append("extend")
        return await self._queues.extend(chat_id, recipients, first, last, claim)

    async def due(self, prefix: str, now_ms: int, limit: int, besides: set[str]) -> list[DeliveryQueue]:
        return await self._queues.due(prefix, now_ms, limit, besides)

    async def next_due(self, prefix: str, after_ms: int) -> int | None:
        return await self._queues.next_due(prefix, after_ms)

    async def claim(
        self, chat_id: str, recipient: str, claim: QueueClaim, now_ms: int
    ) -> DeliveryQueue | None:
        self.writes.append("claim")
        return await self._queues.claim(chat_id, recipient, claim, now_ms)

    async def advance(self, queue: DeliveryQueue, token: str) -> DeliveryQueue | None:
        self._write("advance")
        return await self._queues.advance(queue, token)

    async def finish(self, queue: DeliveryQueue) -> bool:
        self._write("finish")
        return await self._queues.finish(queue)

    def _write(self, what: str) -> None:
        self.writes.append(what)
        if self.is_dead:
            raise StoreUnavailable("this process is dead")


async def live_until_killed(world: DeliveryWorld, seconds: float = 60) -> bool:
    """Run a worker until a message kills its process, of which nothing is left but the store."""
    world.restart()
    severed = Severed(world)
    world.worker._queues = severed  # type: ignore[assignment]
    died = asyncio.Event()
    usual = world.channel.answer

    async def answer(delivery: Delivery) -> DeliveryFailure | None:
        try:
            return await usual(delivery)
        except DeadProcess:
            severed.is_dead = True
            died.set()
            await asyncio.Event().wait()
            raise AssertionError from None

    world.channel.answer = answer
    try:
        async with world.working(), asyncio.timeout(seconds):
            await died.wait()
        return True
    except TimeoutError:
        return False
    finally:
        world.channel.answer = usual


@asynccontextmanager
async def killing(world: DeliveryWorld, *contents: str) -> AsyncIterator[None]:
    """These messages kill every process that delivers them."""

    async def answer(delivery: Delivery) -> DeliveryFailure | None:
        if delivery.entry.content in contents:
            raise DeadProcess
        return await world.channel.take(delivery)

    world.channel.answer = answer
    yield
    world.channel.answer = world.channel.take


def first_sights(world: DeliveryWorld) -> list[str]:
    return list(dict.fromkeys(world.channel.contents()))


def test_a_message_costs_two_writes_of_its_queue() -> None:
    """It is opened and ended: neither the claim nor the watch for poison adds one."""

    async def scenario(world: DeliveryWorld) -> None:
        severed = Severed(world)
        world.worker._queues = severed  # type: ignore[assignment]
        chat_id = await world.chat()
        async with world.working():
            for number in range(3):
                await world.say(chat_id, f"{number}")
                await asyncio.sleep(1)
        assert world.channel.contents() == ["0", "1", "2"]
        assert severed.writes == ["extend", "finish"] * 3

    play(scenario)


def test_a_busy_recipient_does_not_make_each_queue_a_look() -> None:
    """Many queues wait for one recipient: they are read some dozens at a time, not one look for each."""

    async def scenario(world: DeliveryWorld) -> None:
        looks = 0
        due = world.kinds.deliveries.queues.due

        async def counted(
            prefix: str, now_ms: int, limit: int, besides: Collection[str] = ()
        ) -> list[DeliveryQueue]:
            nonlocal looks
            looks += 1
            return await due(prefix, now_ms, limit, besides)

        async def slowly(delivery: Delivery) -> DeliveryFailure | None:
            await asyncio.sleep(0.1)
            return await world.channel.take(delivery)

        world.kinds.deliveries.queues.due = counted  # type: ignore[method-assign]
        world.channel.answer = slowly
        chats = [await world.chat() for _ in range(200)]
        async with world.working():
            for chat_id in chats:
                await world.say(chat_id, "a")
            await asyncio.sleep(20)
        assert len(world.channel.got) == 200
        assert looks < 40

    play(scenario)


def test_a_poison_message_among_1000_kills_two_processes_and_999_are_delivered_in_order() -> None:
    """Nobody could catch an error: the second death tells which message it was, and the rest goes on."""

    async def scenario(world: DeliveryWorld) -> None:
        chat_id = await world.chat()
        news = await world.write(chat_id, *map(str, range(1_000)))
        await world.kinds.deliveries.queues.extend(chat_id, [HOOK], 1, 1_000)
        async with killing(world, "500"):
            deaths = [await live_until_killed(world) for _ in range(3)]
        assert deaths == [True, True, False]
        assert first_sights(world) == [str(n) for n in range(1_000) if n != 500]
        assert len(world.channel.got) <= 999 + DELIVERIES_PER_COMMIT
        (dead_letter,) = await world.dead_letters()
        assert (dead_letter.error, dead_letter.sequence, dead_letter.status) == (
            "poison",
            501,
            DeadLetterStatus.PENDING,
        )
        assert dead_letter.message_id.encode() in (news.positions[500].wire or b"")
        assert [event.action for event in dead_letter.history] == ["began", "dead_lettered"]
        assert "process_3" in dead_letter.detail, "which process died last"

    play(scenario)


def test_those_who_were_under_way_beside_poison_are_not_blamed() -> None:
    """Sixteen queues die with the process; only the message that kills is quarantined."""

    async def scenario(world: DeliveryWorld) -> None:
        chats = [await world.chat() for _ in range(12)]
        world.channel.names = ["wh_1", "wh_2", "wh_3"]
        for number, chat_id in enumerate(chats):
            await world.write(chat_id, "poison" if number == 7 else f"{number}")
            await world.kinds.deliveries.queues.extend(chat_id, [f"wh_{number % 3 + 1}"], 1, 1)
        async with killing(world, "poison"):
            await asyncio.sleep(0)
            usual = world.channel.answer

            async def slowly(delivery: Delivery) -> DeliveryFailure | None:
                if delivery.entry.content != "poison":
                    await asyncio.sleep(1)
                else:
                    await asyncio.sleep(0.5)
                return await usual(delivery)

            world.channel.answer = slowly
            assert await live_until_killed(world)
            assert world.channel.got == []
            assert await live_until_killed(world)
            assert not await live_until_killed(world)
        assert [(dead_letter.error, dead_letter.chat_id) for dead_letter in await world.dead_letters()] == [
            ("poison", chats[7])
        ]
        assert {delivery.entry.content for delivery in world.channel.got} == {
            f"{number}" for number in range(12) if number != 7
        }

    play(scenario)


def test_one_death_blames_nobody() -> None:
    """A process that is killed from outside, once: everything is delivered, and no dead letter is left."""

    async def scenario(world: DeliveryWorld) -> None:
        chat_id = await world.chat()
        await world.write(chat_id, *map(str, range(30)))
        await world.kinds.deliveries.queues.extend(chat_id, [HOOK], 1, 30)
        async with killing(world, "15"):
            assert await live_until_killed(world)
        assert not await live_until_killed(world)
        assert first_sights(world) == [str(n) for n in range(30)]
        assert await world.dead_letters() == []
        assert await world.kinds.deliveries.queues.due("", 2**60, 10) == []

    play(scenario)


def test_poison_that_is_replayed_is_poison_again() -> None:
    """It kills once more, and waits for an operator; the server does not die of it for ever."""

    async def scenario(world: DeliveryWorld) -> None:
        chat_id = await world.chat()
        await world.write(chat_id, "a", "poison", "c")
        await world.kinds.deliveries.queues.extend(chat_id, [HOOK], 1, 3)
        async with killing(world, "poison"):
            while await live_until_killed(world):
                pass
            asked = DeliveryEvent(0, "replay", actor="user_1")
            assert await world.kinds.deliveries.dead_letters.queue(ALL, "job_1", asked) == 1
            assert [await live_until_killed(world) for _ in range(2)] == [True, False]
        (dead_letter,) = await world.dead_letters()
        assert (dead_letter.error, dead_letter.status, dead_letter.is_queued) == (
            "poison",
            DeadLetterStatus.PENDING,
            False,
        )

    play(scenario)


def test_a_letter_that_kills_only_when_it_is_replayed_ends_too() -> None:
    """After some deaths it is pending as poison, and the others are replayed in order."""

    async def scenario(world: DeliveryWorld) -> None:
        away(world.channel)
        chat_id = await world.chat()
        async with world.working():
            await world.say(chat_id, "a", "b", "c")
            await asyncio.sleep(60)
        asked = DeliveryEvent(0, "replay", actor="user_1")
        assert await world.kinds.deliveries.dead_letters.queue(ALL, "job_1", asked) == 3
        async with killing(world, "b"):
            deaths = 0
            while await live_until_killed(world):
                deaths += 1
        assert deaths == 3
        assert world.channel.contents() == ["a", "c"]
        (dead_letter,) = await world.dead_letters(Selection(status=DeadLetterStatus.PENDING))
        assert (dead_letter.error, dead_letter.sequence) == ("poison", 2)

    play(scenario)


def test_another_worker_goes_on_where_one_died() -> None:
    """On a shared store: after the claim has run out, not before, and with the same event ids."""

    async def scenario(world: DeliveryWorld) -> None:
        chat_id = await world.chat()
        first = world.worker
        severed = Severed(world)
        first._queues = severed  # type: ignore[assignment]

        async def hang(delivery: Delivery) -> DeliveryFailure | None:
            await world.channel.take(delivery)
            if delivery.entry.content == "b":
                severed.is_dead = True
                await asyncio.Event().wait()
            return None

        world.channel.answer = hang
        async with world.working():
            await world.say(chat_id, "a", "b", "c")
            await asyncio.sleep(1)
        assert world.channel.contents() == ["a", "b"]
        world.channel.answer = world.channel.take
        claimed = world.store.queues._queues.copy()
        world.restart()
        world.store.queues._queues.update(claimed)  # another node does not free its claims
        async with world.working():
            await asyncio.sleep(CLAIM_SECONDS - 2)
            assert world.channel.contents() == ["a", "b"]
            await asyncio.sleep(5)
        assert world.channel.contents() == ["a", "b", "a", "b", "c"]
        assert len({delivery.event_id for delivery in world.channel.got}) == 3

    play(scenario)


def test_two_workers_deliver_each_message_once() -> None:
    """Both look at the same queues and hear the same news; each queue has one of them at a time."""

    async def scenario(world: DeliveryWorld) -> None:
        chats = [await world.chat() for _ in range(20)]
        first = world.worker
        async with world.working():
            world.restart()
            async with world.working():
                for chat_id in chats:
                    news = await world.write(chat_id, "a", "b")
                    await asyncio.gather(first.handle(news), world.worker.handle(news))
                    await asyncio.sleep(0.01)
                await asyncio.sleep(90)
        for chat_id in chats:
            got = [p.entry.content for p in world.channel.got if p.entry.chat_id == chat_id]
            assert got == ["a", "b"]

    play(scenario)


def test_a_worker_that_was_paused_stops_when_it_wakes() -> None:
    """Another one has its queue by then: at most the message that was under way comes twice."""

    async def scenario(world: DeliveryWorld) -> None:
        chat_id = await world.chat()
        paused = asyncio.Event()

        async def pause_at_b(delivery: Delivery) -> DeliveryFailure | None:
            await world.channel.take(delivery)
            if delivery.entry.content == "b" and not paused.is_set():
                paused.set()
                await asyncio.sleep(CLAIM_SECONDS + 10)
            return None

        world.channel.answer = pause_at_b
        async with world.working():
            await world.say(chat_id, "a", "b", "c", "d")
            await paused.wait()
            claimed = world.store.queues._queues.copy()
            world.restart()
            world.store.queues._queues.update(claimed)
            async with world.working():
                await asyncio.sleep(2 * CLAIM_SECONDS)
        assert world.channel.contents() == ["a", "b", "a", "b", "c", "d"]
        assert await world.dead_letters() == []
        assert await world.kinds.deliveries.queues.due("", 2**60, 10) == []

    play(scenario)


def test_a_slow_queue_keeps_its_claim() -> None:
    """Attempts that take long renew it: nothing is delivered twice."""

    async def scenario(world: DeliveryWorld) -> None:
        async def slowly(delivery: Delivery) -> DeliveryFailure | None:
            await asyncio.sleep(9)
            return await world.channel.take(delivery)

        world.channel.answer = slowly
        chat_id = await world.chat()
        other = DeliveryWorld(world.clock, world._policy, 0.0)
        other.store, other.kinds, other.channel = world.store, world.kinds, world.channel
        other.restart()
        async with world.working(), other.working():
            await world.say(chat_id, *map(str, range(12)))
            await asyncio.sleep(200)
        assert world.channel.contents() == [str(n) for n in range(12)]
        assert world.clock() > START_MS + CLAIM_MS * 3

    play(scenario)
