"""Rings in virtual time: crashes, retries, late arrivals, and who is owed one."""

import asyncio
from typing import Any

from msgspec.structs import replace

from parley.core.fanout import FanoutSizes
from parley.core.retry import DeliveryFailure, Fault
from parley.delivery.ports import PUSH_DELIVERIES
from parley.errors import StoreUnavailable
from parley.model import Fanout, Notify, Persisted, QuietHours
from parley.push.channel import collapse_id_of, local_minute
from parley.push.ports import Notification, PushAnswer, failed, recipient_of, taken
from tests.contracts.acting import add_group
from tests.unit.delivery.world import ALL
from tests.unit.push.world import PHONE, PushWorld, play

DAY = 86_400.0


def test_no_second_ring_after_a_death_behind_the_ring() -> None:
    """The worker dies after the provider took the ring and that was noted, before the queue ended."""

    async def scenario(world: PushWorld) -> None:
        queues = world.kinds.deliveries.queues
        real = queues.finish, queues.advance

        async def write_nothing(*_: object) -> Any:
            raise StoreUnavailable("the process is dead")

        queues.finish = queues.advance = write_nothing  # type: ignore[assignment, method-assign]
        async with world.working():
            await world.say("hello")
            await asyncio.sleep(0.1)
        queues.finish, queues.advance = real  # type: ignore[method-assign]
        assert world.provider.contents == ["hello"]
        assert await queues.due(PUSH_DELIVERIES.prefix, world.clock() + 60_000, 10), "the ring is still owed"
        world.restart()
        async with world.working():
            await asyncio.sleep(120)
        assert world.provider.contents == ["hello"]
        assert await queues.due(PUSH_DELIVERIES.prefix, world.clock() + 60_000, 10) == []

    play(scenario)


def test_news_that_come_again_in_parts_ring_for_nothing_older() -> None:
    """Three messages collapsed into one ring, and the feed gives the first two again, one by one."""

    async def scenario(world: PushWorld) -> None:
        async with world.working():
            news = await world.say("one", "two", "three")
            await asyncio.sleep(1)
            for stored in news.positions:
                await world.worker.handle(Persisted(news.chat_id, news.epoch, [stored]))
                await asyncio.sleep(1)
            assert world.provider.contents == ["three"]
            assert [await world.outcome(n) for n in (1, 2, 3)] == [
                ("skipped", "replaced"),
                ("skipped", "replaced"),
                ("pushed", "200"),
            ]
            await world.say("four")
            await asyncio.sleep(1)
        assert world.provider.contents == ["three", "four"]

    play(scenario)


def test_what_was_pushed_stays_pushed() -> None:
    """It was read meanwhile, and the feed gives it again: the provider's answer is what became of it."""

    async def scenario(world: PushWorld) -> None:
        async with world.working():
            news = await world.say("hello")
            await asyncio.sleep(1)
            world.store.cursors.note_read(world.ben, world.chat, 1, world.clock())
            await world.store.cursors.flush()
            await world.worker.handle(news)
            await asyncio.sleep(1)
        assert await world.outcome(1) == ("pushed", "200")

    play(scenario)


def test_a_ring_of_unknown_outcome_is_repeated_without_a_sound() -> None:
    """The worker dies while the provider has the ring: the same notification again, by the same ids."""

    async def scenario(world: PushWorld) -> None:
        async def hang(notification: Notification) -> PushAnswer:
            await asyncio.Event().wait()
            return taken("")

        world.provider.answer = hang
        async with world.working():
            await world.say("hello")
            await asyncio.sleep(1)
        assert await world.outcome(1) == ("ringing", "")
        world.restart()
        world.provider.answer = world.provider.take
        async with world.working():
            await asyncio.sleep(120)
        first, second = world.provider.got
        assert (first.is_repeated, second.is_repeated) == (False, True)
        assert (first.event_id, first.collapse_id) == (second.event_id, second.collapse_id)
        assert await world.outcome(1) == ("pushed", "200")

    play(scenario)


def test_a_provider_that_is_busy_is_asked_again_aloud() -> None:
    """It said that it did not ring, so the next attempt does; and it waits as long as the provider asks."""

    async def scenario(world: PushWorld) -> None:
        async def busy(notification: Notification) -> PushAnswer:
            world.provider.answer = world.provider.take
            return failed(DeliveryFailure(Fault.BUSY, "429", 30_000))

        world.provider.answer = busy
        async with world.working():
            await world.say("hello")
            await asyncio.sleep(29)
            assert len(world.provider.got) == 1
            assert await world.outcome(1) == ("failed", "busy: 429")
            await asyncio.sleep(2)
        assert [notification.is_repeated for notification in world.provider.got] == [False, False]

    play(scenario)


def test_three_retries_and_then_a_dead_letter() -> None:
    """At about 1, 2 and 4 seconds, whatever comes meanwhile: newer messages do not begin it anew."""

    async def scenario(world: PushWorld) -> None:
        times: list[int] = []

        async def refuse(notification: Notification) -> PushAnswer:
            times.append(world.clock())
            return failed(DeliveryFailure(Fault.SERVER_ERROR, "503"))

        world.provider.answer = refuse
        async with world.working():
            await world.say("one")
            await asyncio.sleep(0.5)
            await world.say("two")
            await asyncio.sleep(60)
        assert [round((at - times[0]) / 1_000) for at in times] == [0, 1, 3, 7]
        assert world.provider.contents == ["one", "two", "two", "two"]
        (dead_letter,) = await world.kinds.deliveries.dead_letters.find(ALL, "", 10)
        assert (dead_letter.sequence, dead_letter.recipient) == (2, recipient_of(world.ben, PHONE))
        assert dead_letter.source_topic == "messages.notifications"

    play(scenario)


def test_a_connection_that_died_without_a_word() -> None:
    """Ben's phone seems connected, but receives nothing: it rings when its lease has ended."""

    async def scenario(world: PushWorld) -> None:
        await world.registry.connected([(world.ben, PHONE)], "node_1")
        async with world.working():
            await world.say("hello", "are you there?")
            await asyncio.sleep(30)
            assert world.provider.got == []
            await asyncio.sleep(60)
            assert world.provider.contents == ["are you there?"]

    play(scenario)


def test_who_received_a_message_is_not_rung_for_it_later() -> None:
    """The phone acknowledged it, and went to sleep."""

    async def scenario(world: PushWorld) -> None:
        await world.registry.connected([(world.ben, PHONE)], "node_1")
        async with world.working():
            await world.say("hello")
            world.store.cursors.note_acked(world.ben, PHONE, world.chat, 1, world.clock())
            await world.store.cursors.flush()
            await world.registry.disconnected([(world.ben, PHONE)], "node_1")
            await asyncio.sleep(120)
        assert world.provider.got == []

    play(scenario)


def test_mentions_are_found_behind_newer_messages() -> None:
    """Ben wants mentions alone: the newest one rings, not the newest message."""

    async def scenario(world: PushWorld) -> None:
        await world.store.member_states.set_notify(world.ben, world.chat, Notify.MENTIONS)
        async with world.working():
            await world.say("one", mentions=(world.ben,))
            news = await world.write("two", mentions=(world.ben,))
            later = await world.write(*(f"chatter {n}" for n in range(60)))
            news.positions += later.positions
            await world.worker.handle(news)
            await asyncio.sleep(1)
        assert world.provider.contents[-1] == "two"
        assert "chatter 59" not in world.provider.contents

    play(scenario)


def test_a_large_chat_owes_rings_to_the_mentioned_alone() -> None:
    """`read`: nothing is written per member."""

    async def scenario(world: PushWorld) -> None:
        async with world.working():
            news = await world.say("hello everybody")
            assert await world.channel.owed(news) == []
            news = await world.say("hello ben", mentions=(world.ben, "user_stranger"))
            assert await world.channel.owed(news) == [recipient_of(world.ben, PHONE)]
            await asyncio.sleep(1)
        assert world.provider.contents == ["hello ben"]

    play(scenario, FanoutSizes(write_below=1, read_above=1))


def test_a_hybrid_chat_owes_nothing_to_those_who_want_nothing() -> None:
    """Those who muted it or want mentions alone get no queue."""

    async def scenario(world: PushWorld) -> None:
        states = world.store.member_states
        eve = await world.person("eve")
        chat = await add_group(world.acting, world.ann, world.ben, eve)
        await states.set_notify(world.ben, chat, Notify.MENTIONS)
        await states.mute(eve, chat, "2100-01-01T00:00:00.000Z")
        assert await world.channel.owed(await world.write("hello", chat=chat)) == []
        await states.mute(eve, chat, None)
        news = await world.write("hello", chat=chat)
        assert await world.channel.owed(news) == [recipient_of(eve, PHONE)]
        news = await world.write("ben!", mentions=(world.ben,), chat=chat)
        assert sorted(await world.channel.owed(news)) == sorted(
            [recipient_of(world.ben, PHONE), recipient_of(eve, PHONE)]
        )

    play(scenario, FanoutSizes(write_below=1, read_above=1_000))


def test_a_changed_strategy_loses_nothing() -> None:
    """From `write` to `read` and back: what was said while it was `write` rings, each time."""

    async def scenario(world: PushWorld) -> None:
        fanouts = world.kinds.push.fanouts
        async with world.working():
            for strategy in (Fanout.WRITE, Fanout.READ, Fanout.HYBRID, Fanout.READ, Fanout.WRITE):
                await fanouts.choose(world.chat, strategy)
                await asyncio.sleep(31)  # until every node has seen the choice
                await world.say(strategy.value)
                await asyncio.sleep(1)
        assert world.provider.contents == ["write", "hybrid", "write"]

    play(scenario)


def test_old_messages_ring_for_nobody() -> None:
    """The feed passes over the whole log when the first device registers."""

    async def scenario(world: PushWorld) -> None:
        news = await world.write("old")
        await asyncio.sleep(8 * DAY)
        assert await world.channel.owed(news) == []

    play(scenario)


def test_a_device_that_registered_later_is_not_owed_what_was_before() -> None:
    """It has not been there."""

    async def scenario(world: PushWorld) -> None:
        news = await world.write("before")
        (phone,) = (await world.kinds.push.devices.of([world.ben]))[world.ben]
        await world.kinds.push.devices.put(replace(phone, created_ms=world.clock() + 1))
        assert await world.channel.owed(news) == []

    play(scenario)


def test_a_provider_that_refuses_the_server_is_counted() -> None:
    """The alert looks at it."""

    async def scenario(world: PushWorld) -> None:
        async def refuse(notification: Notification) -> PushAnswer:
            return failed(DeliveryFailure(Fault.UNAUTHORIZED, "403 InvalidProviderToken"))

        world.provider.answer = refuse
        async with world.working():
            await world.say("hello")
            await asyncio.sleep(1)
        labels = {"provider": "fcm", "outcome": "unauthorized"}
        assert world.metrics.registry.get_sample_value("parley_push_outcomes_total", labels) == 1
        assert await world.outcome(1) == ("refused", "unauthorized: 403 InvalidProviderToken")

    play(scenario)


def test_the_minute_of_the_day_where_somebody_lives() -> None:
    """With and without daylight saving time."""
    berlin = QuietHours("22:00", "07:00", "Europe/Berlin")
    assert local_minute(berlin, 1_768_435_200_000) == 60  # 2026-01-15T00:00Z is 01:00
    assert local_minute(berlin, 1_784_073_600_000) == 120  # 2026-07-15T00:00Z is 02:00


def test_collapse_ids_fit_every_provider() -> None:
    """At most 32 characters of base64url for Web Push, and another one for each chat."""
    one, two = collapse_id_of("chat_1"), collapse_id_of("chat_2")
    assert one != two
    assert len(one) <= 32
    assert one.replace("-", "").replace("_", "").isalnum()


def test_nothing_rings_for_a_bot() -> None:
    """Its device is registered, and the provider hears nothing, not even of a mention."""

    async def scenario(world: PushWorld) -> None:
        accounts = world.kinds.accounts
        ben = await accounts.user(world.ben)
        assert ben is not None
        await accounts.update_user(replace(ben, is_bot=True))
        async with world.working():
            await world.say("hello")
            await asyncio.sleep(60)
        assert world.provider.contents == []
        assert await world.outcome(1) == ("skipped", "bot")

    play(scenario)
