"""What a recipient gets of a chat while it, the worker or a message fails."""

import asyncio

from parley.clock import MS_PER_DAY
from parley.core.deliveries import DeadLetterStatus
from parley.core.retry import DeliveryFailure, Fault, RetryPolicy
from parley.delivery.ports import Delivery
from parley.delivery.worker import QUEUES_PER_RECIPIENT_MAX
from tests.harness.clock import START_MS
from tests.unit.delivery.world import HOOK, DeliveryWorld, away, play


def test_an_unreachable_recipient_is_tried_three_times_more() -> None:
    """After about 1, 2 and 4 seconds; then the message is a dead letter that says all there is to say."""

    async def scenario(world: DeliveryWorld) -> None:
        away(world.channel)
        chat_id = await world.chat()
        async with world.working():
            news = await world.say(chat_id, "hello")
            await asyncio.sleep(60)
        (dead_letter,) = await world.dead_letters()
        entry = news.positions[0]
        times = [event.at_ms - START_MS for event in dead_letter.history]
        assert times == [0, 1_100, 3_300, 7_700, 7_700]
        assert [event.action for event in dead_letter.history] == ["failed"] * 4 + ["dead_lettered"]
        assert (dead_letter.chat_id, dead_letter.sequence, dead_letter.recipient) == (
            chat_id,
            entry.sequence,
            HOOK,
        )
        assert (dead_letter.error, dead_letter.detail) == ("unreachable", "connection refused")
        assert (dead_letter.retry_count, dead_letter.status) == (3, DeadLetterStatus.PENDING)
        assert (dead_letter.first_attempt_ms, dead_letter.last_attempt_ms) == (START_MS, START_MS + 7_700)
        assert dead_letter.dlq_ms == START_MS + 7_700
        assert (dead_letter.sender_id, dead_letter.source_topic) == (world.ann, "messages.outbound")
        assert dead_letter.source_offset == entry.sequence
        assert dead_letter.message_id.encode() in (entry.wire or b"")
        assert len(world.channel.tried) == 4

    play(scenario, chance=1.0)


def test_a_recipient_that_comes_back_in_time_gets_everything() -> None:
    """The third retry reaches it: there is no dead letter, and the order is kept."""

    async def scenario(world: DeliveryWorld) -> None:
        away(world.channel, lambda _: world.clock() < START_MS + 5_000)
        chat_id = await world.chat()
        async with world.working():
            await world.say(chat_id, "a", "b")
            await asyncio.sleep(2)
            await world.say(chat_id, "c")
            await asyncio.sleep(60)
        assert world.channel.contents() == ["a", "b", "c"]
        assert await world.dead_letters() == []
        assert await world.kinds.deliveries.queues.due("", 2**60, 10) == []

    play(scenario)


def test_a_recipient_is_read_once_for_each_delivery() -> None:
    """So often that nothing is sent to one that was removed, and no more: it is a read of the store."""

    async def scenario(world: DeliveryWorld) -> None:
        chat_id = await world.chat()
        async with world.working():
            await world.say(chat_id, "a", "b", "c")
            await asyncio.sleep(1)
        assert (world.channel.contents(), world.channel.asked) == (["a", "b", "c"], 3)

    play(scenario)


def test_a_retried_message_is_not_overtaken_and_others_go_on() -> None:
    """One chat waits for one recipient; other chats and other recipients do not."""

    async def scenario(world: DeliveryWorld) -> None:
        world.channel.names = [HOOK, "wh_2"]
        first, second = await world.chat(), await world.chat()
        away(
            world.channel,
            lambda delivery: (
                delivery.recipient == HOOK
                and delivery.entry.chat_id == first
                and world.clock() < START_MS + 2_000
            ),
        )
        async with world.working():
            await world.say(first, "a", "b")
            await world.say(second, "x")
            await world.say(first, "c")
            await asyncio.sleep(0.5)
            assert world.channel.contents() == ["x"]
            assert sorted(world.channel.contents("wh_2")) == ["a", "b", "c", "x"]
            await asyncio.sleep(60)
        assert world.channel.contents() == ["x", "a", "b", "c"]

    play(scenario)


def test_after_its_last_retry_a_message_lets_the_next_one_pass() -> None:
    """Only the message in front is a dead letter; the next one has all its retries."""

    async def scenario(world: DeliveryWorld) -> None:
        away(world.channel, lambda delivery: delivery.entry.content == "b")
        chat_id = await world.chat()
        async with world.working():
            await world.say(chat_id, "a", "b", "c")
            await asyncio.sleep(60)
        assert world.channel.contents() == ["a", "c"]
        assert [dead_letter.sequence for dead_letter in await world.dead_letters()] == [2]

    play(scenario)


def test_a_permanent_failure_is_not_retried() -> None:
    """One attempt, and the rest goes on at once."""

    async def scenario(world: DeliveryWorld) -> None:
        async def refuse_b(delivery: Delivery) -> DeliveryFailure | None:
            if delivery.entry.content == "b":
                return DeliveryFailure(Fault.REFUSED, "400")
            return await world.channel.take(delivery)

        world.channel.answer = refuse_b
        chat_id = await world.chat()
        async with world.working():
            await world.say(chat_id, "a", "b", "c")
            await asyncio.sleep(0.1)
            assert world.channel.contents() == ["a", "c"]
        (dead_letter,) = await world.dead_letters()
        assert (dead_letter.error, dead_letter.retry_count) == ("refused", 0)

    play(scenario)


def test_what_is_too_old_is_not_delivered() -> None:
    """A worker that was away for more than seven days delivers what is younger."""

    async def scenario(world: DeliveryWorld) -> None:
        chat_id = await world.chat()
        await world.write(chat_id, "old")
        await world.kinds.deliveries.queues.extend(chat_id, [HOOK], 1, 2)
        await asyncio.sleep(7 * MS_PER_DAY / 1000 - 60)
        await world.write(chat_id, "young")
        await asyncio.sleep(120)
        async with world.working():
            await asyncio.sleep(1)
        assert world.channel.contents() == ["young"]
        assert [dead_letter.error for dead_letter in await world.dead_letters()] == ["too_old"]

    play(scenario)


def test_a_kill_between_delivery_and_commit_repeats_the_same_event() -> None:
    """The receiver sees the same event id again; by first sight the order is that of the chat."""

    async def scenario(world: DeliveryWorld) -> None:
        async def take_and_hang(delivery: Delivery) -> DeliveryFailure | None:
            await world.channel.take(delivery)
            if delivery.entry.content == "c":
                await asyncio.Event().wait()
            return None

        world.channel.answer = take_and_hang
        chat_id = await world.chat()
        async with world.working():
            await world.say(chat_id, "a", "b", "c", "d")
            await asyncio.sleep(1)
        world.restart()
        world.channel.answer = world.channel.take
        async with world.working():
            await asyncio.sleep(1)
        assert world.channel.contents() == ["a", "b", "c", "c", "d"]
        twice = [delivery for delivery in world.channel.got if delivery.entry.content == "c"]
        assert twice[0].event_id == twice[1].event_id
        assert len({delivery.event_id for delivery in world.channel.got}) == 4

    play(scenario)


def test_a_waiting_retry_survives_the_worker() -> None:
    """A new worker goes on with the count and the due time of the old one."""

    async def scenario(world: DeliveryWorld) -> None:
        away(world.channel)
        chat_id = await world.chat()
        async with world.working():
            await world.say(chat_id, "a")
            await asyncio.sleep(2)
        world.restart()
        async with world.working():
            await asyncio.sleep(60)
        (dead_letter,) = await world.dead_letters()
        assert [event.at_ms - START_MS for event in dead_letter.history] == [0, 1_000, 3_000, 7_000, 7_000]

    play(scenario)


def test_news_that_comes_again_does_not_move_a_waiting_queue() -> None:
    """The feed hands out again what a crash left unnoted: what waits keeps its place, nothing comes early."""

    async def scenario(world: DeliveryWorld) -> None:
        away(
            world.channel, lambda delivery: delivery.entry.content == "b" and world.clock() < START_MS + 2_000
        )
        chat_id = await world.chat()
        async with world.working():
            news = await world.say(chat_id, "a", "b", "c")
            await asyncio.sleep(0.5)
            await world.worker.handle(news)
            await asyncio.sleep(60)
        assert world.channel.contents() == ["a", "b", "c"]

    play(scenario)


def test_news_that_comes_again_leaves_dead_letters_alone() -> None:
    """What waits for its replay is not delivered beside it, or the replay would deliver it twice."""

    async def scenario(world: DeliveryWorld) -> None:
        away(
            world.channel,
            lambda delivery: delivery.entry.content == "b" and world.clock() < START_MS + 30_000,
        )
        chat_id = await world.chat()
        async with world.working():
            news = await world.say(chat_id, "a", "b", "c")
            await asyncio.sleep(60)
            await world.worker.handle(news)
            await asyncio.sleep(60)
        assert world.channel.contents() == ["a", "c", "a", "c"]
        assert [dead_letter.sequence for dead_letter in await world.dead_letters()] == [2]

    play(scenario)


def test_poison_among_a_thousand() -> None:
    """It crashes its consumer twice, is quarantined with the traceback, and 999 arrive in order."""

    async def scenario(world: DeliveryWorld) -> None:
        async def crash(delivery: Delivery) -> DeliveryFailure | None:
            if delivery.entry.content == "500":
                raise ZeroDivisionError("boom")
            return await world.channel.take(delivery)

        world.channel.answer = crash
        chat_id = await world.chat()
        async with world.working():
            await world.say(chat_id, *map(str, range(1_000)))
            await asyncio.sleep(60)
        assert world.channel.contents() == [str(n) for n in range(1_000) if n != 500]
        (dead_letter,) = await world.dead_letters()
        assert (dead_letter.error, dead_letter.sequence) == ("poison", 501)
        assert dead_letter.detail.startswith("Traceback")
        assert dead_letter.detail.endswith("ZeroDivisionError: boom\n")
        assert world.channel.tried.count("500") == 2

    play(scenario)


def test_a_malformed_message_is_a_dead_letter() -> None:
    """What cannot be read is not tried at all, and the rest goes on."""

    async def scenario(world: DeliveryWorld) -> None:
        chat_id = await world.chat()
        news = await world.write(chat_id, "a", "b", "c")
        world.store.log._tables.chats[chat_id].wires[2] = b'{"chat_id": 3'
        async with world.working():
            await world.worker.handle(news)
            await asyncio.sleep(60)
        assert world.channel.contents() == ["a", "c"]
        (dead_letter,) = await world.dead_letters()
        assert (dead_letter.error, dead_letter.sequence, dead_letter.retry_count) == ("malformed", 2, 0)

    play(scenario)


def test_a_slow_recipient_leaves_room_for_others() -> None:
    """It hangs in many chats at once; another recipient gets everything meanwhile."""

    async def scenario(world: DeliveryWorld) -> None:
        world.channel.names = [HOOK, "wh_2"]

        async def hang(delivery: Delivery) -> DeliveryFailure | None:
            if delivery.recipient == HOOK:
                await asyncio.Event().wait()
            return await world.channel.take(delivery)

        world.channel.answer = hang
        chats = [await world.chat() for _ in range(40)]
        async with world.working():
            for number, chat_id in enumerate(chats):
                await world.say(chat_id, f"{number}")
            await asyncio.sleep(1)
            assert sorted(map(int, world.channel.contents("wh_2"))) == list(range(40))
            assert len(world.channel.tried) == 40 + QUEUES_PER_RECIPIENT_MAX

    play(scenario)


def test_a_removed_recipient_has_no_queue_and_no_dead_letters() -> None:
    """What was owed to it is forgotten when it is due."""

    async def scenario(world: DeliveryWorld) -> None:
        away(world.channel)
        chat_id = await world.chat()
        async with world.working():
            await world.say(chat_id, "a", "b")
            await asyncio.sleep(0.5)
            world.channel.names = []
            await asyncio.sleep(60)
        assert await world.kinds.deliveries.queues.due("", 2**60, 10) == []
        assert await world.dead_letters() == []

    play(scenario)


def test_without_retries_the_first_failure_is_the_last() -> None:
    """delivery.max_retries = 0."""

    async def scenario(world: DeliveryWorld) -> None:
        away(world.channel)
        chat_id = await world.chat()
        async with world.working():
            await world.say(chat_id, "a")
            await asyncio.sleep(0.1)
        assert [dead_letter.retry_count for dead_letter in await world.dead_letters()] == [0]

    play(scenario, policy=RetryPolicy(max_retries=0))
