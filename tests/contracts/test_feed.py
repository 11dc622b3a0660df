"""The `Feed` port: every position comes to each group, in the order of its chat, until it is handled."""

from pathlib import Path

import pytest
import structlog

from parley.bus.kafka import feed as kafka_feed
from parley.store.sqlite import feed
from tests.contracts.feeds import FEEDS, Open, Worker, done, rounds_until_all_work, working
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(params=FEEDS)
def opened(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Open:
    for engine in (kafka_feed, feed):
        monkeypatch.setattr(engine, "FINISH_SECONDS_MAX", 0.3)
    return FEEDS[request.param]


async def test_each_chat_comes_in_its_order(opened: Open, tmp_path: Path) -> None:
    """What many chats say in turns comes complete, ascending and once, from before and after the start."""
    async with opened(tmp_path) as world:
        chats = [await world.chat() for _ in range(6)]
        worker = Worker()
        for number in range(20):
            for chat_id in chats:
                await world.say(chat_id, f"{number}")
        async with working(world.feed, worker):
            for number in range(20):
                for chat_id in chats:
                    await world.say(chat_id, f"more {number}")
            await done(worker, 240)
        assert {chat_id: worker.of(chat_id) for chat_id in chats} == {
            chat_id: list(range(1, 41)) for chat_id in chats
        }


async def test_what_is_handled_does_not_come_again(opened: Open, tmp_path: Path) -> None:
    """A group that comes back goes on behind what it has handled."""
    async with opened(tmp_path) as world:
        chat_id = await world.chat()
        first, second = Worker(), Worker()
        await world.say(chat_id, "a", "b", "c")
        async with working(world.feed, first):
            await done(first, 3)
        await world.restart()
        await world.say(chat_id, "d", "e")
        async with working(world.feed, second):
            await done(second, 2)
        assert (first.of(chat_id), second.of(chat_id)) == ([1, 2, 3], [4, 5])


async def test_how_far_a_group_is_behind_is_told(opened: Open, tmp_path: Path) -> None:
    """Nothing of a group that never was; 0 when all is handled; then what came while nobody worked."""
    async with opened(tmp_path) as world:
        chat_id = await world.chat()
        await world.say(chat_id, "a", "b", "c")
        assert await world.feed.lags() == {}
        worker = Worker()
        async with working(world.feed, worker):
            await done(worker, 3)
        (group,) = await world.feed.lags()

        async def is_behind_by(count: int) -> bool:
            return await world.feed.lags() == {group: count}

        await eventually(lambda: is_behind_by(0))
        await world.say(chat_id, "d", "e")
        await eventually(lambda: is_behind_by(2))


async def test_what_is_not_handled_comes_again(opened: Open, tmp_path: Path) -> None:
    """A worker that ends in the midst of something loses nothing: the next one begins with it."""
    async with opened(tmp_path) as world:
        chat_id = await world.chat()
        first, second = Worker(), Worker()
        async with working(world.feed, first):
            await world.say(chat_id, "a", "b")
            await done(first, 2)
            first.hold = chat_id, 3
            await world.say(chat_id, "c")
            await eventually(lambda: (chat_id, 3) in first.tried)
        await world.restart()
        await world.say(chat_id, "d")
        async with working(world.feed, second):
            await eventually(lambda: (chat_id, 4) in second.handled, 30)
        assert first.of(chat_id) == [1, 2]
        assert second.of(chat_id)[-2:] == [3, 4]


async def test_what_fails_is_tried_again_in_its_place(opened: Open, tmp_path: Path) -> None:
    """A handler's error skips nothing and lets nothing of the same chat pass."""
    async with opened(tmp_path) as world:
        chat_id, other = await world.chat(), await world.chat()
        worker = Worker()
        worker.fail_at[chat_id, 2] = 2
        with structlog.testing.capture_logs() as lines:
            async with working(world.feed, worker):
                for content in "abc":
                    await world.say(chat_id, content)
                    await world.say(other, content)
                await done(worker, 6)
        assert (worker.of(chat_id), worker.of(other)) == ([1, 2, 3], [1, 2, 3])
        assert worker.tried.count((chat_id, 2)) == 3
        assert [line["event"] for line in lines if line["log_level"] == "error"] == ["a handler failed"] * 2


async def test_each_group_hears_everything(opened: Open, tmp_path: Path) -> None:
    """Groups do not take anything away from each other."""
    async with opened(tmp_path) as world:
        chat_id = await world.chat()
        one, two = Worker(), Worker()
        await world.say(chat_id, "a", "b")
        async with working(world.feed, one, "one"), working(world.feed, two, "two"):
            await done(one, 2)
            await done(two, 2)
        assert one.of(chat_id) == two.of(chat_id) == [1, 2]


async def test_members_of_a_group_share_the_chats(opened: Open, tmp_path: Path) -> None:
    """Two members handle everything once between them, each its own chats."""
    async with opened(tmp_path) as world:
        chats = [await world.chat() for _ in range(20)]
        one, two = Worker(), Worker()
        async with working(world.feed, one), working(world.feed, two):
            number = await rounds_until_all_work(world, chats, one, two)
            for _ in range(5):
                for chat_id in chats:
                    await world.say(chat_id, "x")
            await eventually(lambda: len({*one.handled, *two.handled}) == 20 * (number + 5), 30)
        for chat_id in chats:
            settled = [[n for n in worker.of(chat_id) if n > number] for worker in (one, two)]
            assert sorted(settled) == [[], list(range(number + 1, number + 6))]


async def test_a_member_that_leaves_passes_its_chats_on(opened: Open, tmp_path: Path) -> None:
    """What a member had under way when it left is handled by the one that stays, in order."""
    async with opened(tmp_path) as world:
        chats = [await world.chat() for _ in range(12)]
        stays, leaves = Worker(), Worker()
        async with working(world.feed, stays):
            async with working(world.feed, leaves):
                number = await rounds_until_all_work(world, chats, stays, leaves)
                held = leaves.handled[-1][0]
                leaves.hold = held, number + 1
                await world.say(held, "left behind")
                await eventually(lambda: leaves.hold in leaves.tried, 30)
            await world.say(held, "after")
            await eventually(lambda: (held, number + 2) in stays.handled, 30)
        assert stays.of(held)[-2:] == [number + 1, number + 2]
        assert number + 1 not in leaves.of(held)


async def test_a_member_that_joins_disturbs_nobody(opened: Open, tmp_path: Path) -> None:
    """While somebody handles slowly another one joins, and each chat stays complete and in order."""
    async with opened(tmp_path) as world:
        chats = [await world.chat() for _ in range(8)]
        slow, joins = Worker(hold=(chats[0], 1)), Worker()
        async with working(world.feed, slow):
            for chat_id in chats:
                await world.say(chat_id, "a", "b")
            await eventually(lambda: (chats[0], 1) in slow.tried, 30)
            async with working(world.feed, joins):
                for chat_id in chats:
                    await world.say(chat_id, "c")
                slow.go.set()
                await eventually(lambda: len({*slow.handled, *joins.handled}) == 24, 60)
        for chat_id in chats:
            for worker in (slow, joins):
                firsts = list(dict.fromkeys(worker.of(chat_id)))
                assert firsts == sorted(firsts)
