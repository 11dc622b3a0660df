"""Dead letters on their way back."""

import asyncio

from parley.clock import MS_PER_DAY
from parley.core.deliveries import DeadLetterStatus, DeliveryEvent, Selection
from parley.core.retry import DeliveryFailure, Fault
from parley.delivery.ports import Delivery
from parley.delivery.replays import REPLAYS_PER_SECOND_MAX
from tests.unit.delivery.world import ALL, DeliveryWorld, away, play

ASKED = DeliveryEvent(0, "replay", actor="user_1")


async def all_dead(world: DeliveryWorld, chats: int, messages: int) -> list[str]:
    """So many chats with so many messages each, every one a dead letter; then the cause is fixed."""

    async def refuse(delivery: Delivery) -> DeliveryFailure | None:
        return DeliveryFailure(Fault.REFUSED)

    world.channel.answer = refuse
    made = [await world.chat() for _ in range(chats)]
    async with world.working():
        for chat_id in made:
            await world.say(chat_id, *(f"{n}" for n in range(messages)))
        await asyncio.sleep(60)
    assert len(await world.dead_letters()) == chats * messages * len(world.channel.names)
    world.channel.answer = world.channel.take
    return made


async def queue(world: DeliveryWorld, selection: Selection = ALL, job_id: str = "job_1") -> int:
    return await world.kinds.deliveries.dead_letters.queue(selection, job_id, ASKED)


def test_five_thousand_come_back_once_and_in_order() -> None:
    """Each once, in the order of its chat, marked as replayed; asked for again, nothing is doubled."""

    async def scenario(world: DeliveryWorld) -> None:
        chats = await all_dead(world, 10, 500)
        assert await queue(world) == 5_000
        async with world.working():
            await asyncio.sleep(5_000 / REPLAYS_PER_SECOND_MAX / 2)
            assert await queue(world, job_id="job_2") == 0, "those that wait are not queued again"
            await asyncio.sleep(60)
            assert await queue(world, job_id="job_3") == 0
            await asyncio.sleep(60)
        for chat_id in chats:
            got = [p.entry.content for p in world.channel.got if p.entry.chat_id == chat_id]
            assert got == [f"{n}" for n in range(500)]
        assert len({delivery.event_id for delivery in world.channel.got}) == 5_000
        assert {dead_letter.status for dead_letter in await world.dead_letters()} == {
            DeadLetterStatus.REPLAYED
        }

    play(scenario)


def test_replays_are_throttled() -> None:
    """Not more than so many in a second, over all chats."""

    async def scenario(world: DeliveryWorld) -> None:
        await all_dead(world, 4, 200)
        await queue(world)
        async with world.working():
            await asyncio.sleep(2)
            assert REPLAYS_PER_SECOND_MAX < len(world.channel.got) <= 2 * REPLAYS_PER_SECOND_MAX + 1

    play(scenario)


def test_only_the_selection_is_replayed() -> None:
    """The others stay pending."""

    async def scenario(world: DeliveryWorld) -> None:
        first, second = await all_dead(world, 2, 2)
        await queue(world, Selection(chat_id=second))
        async with world.working():
            await asyncio.sleep(10)
        assert {delivery.entry.chat_id for delivery in world.channel.got} == {second}
        pending = await world.dead_letters(Selection(status=DeadLetterStatus.PENDING))
        assert [dead_letter.chat_id for dead_letter in pending] == [first, first]

    play(scenario)


def test_a_replay_that_fails_waits_and_keeps_the_order() -> None:
    """Its retries begin at 0; what follows it in its chat waits, and is not lost."""

    async def scenario(world: DeliveryWorld) -> None:
        await all_dead(world, 1, 3)
        back = world.clock() + 5_000
        away(world.channel, lambda _: world.clock() < back)
        await queue(world)
        async with world.working():
            await asyncio.sleep(60)
        assert world.channel.contents() == ["0", "1", "2"]
        assert {dead_letter.status for dead_letter in await world.dead_letters()} == {
            DeadLetterStatus.REPLAYED
        }

    play(scenario)


def test_a_recipient_that_is_away_does_not_delay_the_replays_of_others() -> None:
    """It hangs until each attempt times out, in many chats; what is for another one arrives meanwhile."""

    async def scenario(world: DeliveryWorld) -> None:
        world.channel.names = ["wh_1", "wh_2"]
        await all_dead(world, 40, 1)

        async def hang(delivery: Delivery) -> DeliveryFailure | None:
            if delivery.recipient == "wh_1":
                await asyncio.sleep(10)
                return DeliveryFailure(Fault.TIMEOUT)
            return await world.channel.take(delivery)

        world.channel.answer = hang
        await queue(world)
        async with world.working():
            await asyncio.sleep(15)
            assert len(world.channel.contents("wh_2")) == 40

    play(scenario)


def test_a_replay_in_vain_is_pending_again_with_its_story() -> None:
    """After its retries it is a dead letter like before, and can be replayed once more."""

    async def scenario(world: DeliveryWorld) -> None:
        await all_dead(world, 1, 1)
        away(world.channel)
        await queue(world)
        async with world.working():
            await asyncio.sleep(60)
        (dead_letter,) = await world.dead_letters()
        assert (dead_letter.status, dead_letter.is_queued, dead_letter.retry_count) == (
            DeadLetterStatus.PENDING,
            False,
            3,
        )
        actions = [event.action for event in dead_letter.history]
        assert actions == ["failed", "dead_lettered", "replay", *["failed"] * 4]
        assert await queue(world) == 1

    play(scenario)


def test_a_kill_in_the_midst_of_a_replay_loses_nothing() -> None:
    """What had arrived and was not marked comes again with the same event id."""

    async def scenario(world: DeliveryWorld) -> None:
        await all_dead(world, 1, 3)

        async def take_and_hang(delivery: Delivery) -> DeliveryFailure | None:
            await world.channel.take(delivery)
            if delivery.entry.content == "1":
                await asyncio.Event().wait()
            return None

        world.channel.answer = take_and_hang
        await queue(world)
        async with world.working():
            await asyncio.sleep(10)
        world.restart()
        world.channel.answer = world.channel.take
        async with world.working():
            await asyncio.sleep(10)
        assert world.channel.contents() == ["0", "1", "1", "2"]
        assert world.channel.got[1].event_id == world.channel.got[2].event_id
        assert {dead_letter.status for dead_letter in await world.dead_letters()} == {
            DeadLetterStatus.REPLAYED
        }

    play(scenario)


def test_what_was_discarded_meanwhile_is_not_replayed() -> None:
    """An operator changes their mind while a replay waits."""

    async def scenario(world: DeliveryWorld) -> None:
        await all_dead(world, 1, 2)
        await queue(world)
        discard = DeliveryEvent(world.clock(), "discard", detail="no", actor="user_1")
        await world.kinds.deliveries.dead_letters.discard(ALL, "job_2", discard)
        async with world.working():
            await asyncio.sleep(10)
        assert world.channel.got == []
        assert {dead_letter.status for dead_letter in await world.dead_letters()} == {DeadLetterStatus.FAILED}

    play(scenario)


def test_a_replay_to_nobody_says_so() -> None:
    """The webhook was removed: the dead letter stays pending with the reason."""

    async def scenario(world: DeliveryWorld) -> None:
        await all_dead(world, 1, 1)
        world.channel.names = []
        await queue(world)
        async with world.working():
            await asyncio.sleep(10)
        (dead_letter,) = await world.dead_letters()
        assert (dead_letter.error, dead_letter.is_queued) == ("no_recipient", False)

    play(scenario)


def test_what_is_old_can_be_replayed() -> None:
    """The operator asked for it, within the 30 days that a dead letter is kept."""

    async def scenario(world: DeliveryWorld) -> None:
        await all_dead(world, 1, 1)
        await asyncio.sleep(20 * MS_PER_DAY / 1000)
        await queue(world)
        async with world.working():
            await asyncio.sleep(10)
        assert world.channel.contents() == ["0"]

    play(scenario)


def test_letters_expire_after_thirty_days() -> None:
    """Pending ones too, counted from the last change of the status, and the audit log says so."""

    async def scenario(world: DeliveryWorld) -> None:
        first, _ = await all_dead(world, 2, 1)
        await asyncio.sleep(29 * MS_PER_DAY / 1000)
        assert await world.upkeep.expire() == 0
        discard = DeliveryEvent(world.clock(), "discard", detail="no", actor="user_1")
        await world.kinds.deliveries.dead_letters.discard(Selection(chat_id=first), "job_1", discard)
        await asyncio.sleep(2 * MS_PER_DAY / 1000)
        async with world.working():
            await asyncio.sleep(1)
        assert [dead_letter.chat_id for dead_letter in await world.dead_letters()] == [first]
        await asyncio.sleep(29 * MS_PER_DAY / 1000)
        assert await world.upkeep.expire() == 1
        records = await world.kinds.audit.records("", 10)
        assert [(record.action, record.detail) for record in records] == [
            ("dlq.expire", "1 after 30 days"),
            ("dlq.expire", "1 after 30 days"),
        ]

    play(scenario)


def test_the_metric_counts_what_is_pending() -> None:
    """Not what was replayed; and nothing any more on a node that another one has taken over from."""

    async def scenario(world: DeliveryWorld) -> None:
        first, _ = await all_dead(world, 2, 3)
        await queue(world, Selection(chat_id=first))
        async with world.working():
            await asyncio.sleep(10)
            assert world.metrics.registry.get_sample_value("dlq_size") == 3
        assert world.metrics.registry.get_sample_value("dlq_size") == 0

    play(scenario)
