"""What groups of a real broker have not done yet: by it a trim waits for them."""

import pytest

from parley.bus.events import PERSISTED
from parley.bus.kafka import backlogs
from parley.bus.kafka.backlogs import KafkaBacklogs
from parley.config import KafkaConfig
from parley.errors import StoreUnavailable
from parley.store.rows import EVERYTHING
from tests.contracts.buses import fresh_topics, node
from tests.contracts.feeds import Worker, done, working
from tests.harness.scripted_log import ScriptedLog
from tests.integration.bus.test_kafka import feed_of
from tests.integration.bus.topics import sequences_on
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(120)


def backlogs_of(kafka: KafkaConfig) -> KafkaBacklogs:
    return KafkaBacklogs(kafka, PERSISTED.name_in(kafka))


async def test_what_a_group_has_not_done_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the lowest position behind its offset on; nothing of a group without offsets."""
    kafka, log, worker = await fresh_topics(partitions=2), ScriptedLog(), Worker()
    found = backlogs_of(kafka)
    async with node(kafka, "one", log) as one:
        one.bus.publish([log.store("a", 1, 2, 3)])
        one.bus.publish([log.store("b", 1)])
        await eventually_on(kafka, {"a": 3, "b": 1})
        await eventually(lambda: is_answering(found), 30)
        assert await found.needed_from("a") == EVERYTHING, "no group has ever read it"
        async with working(feed_of(kafka), worker):
            await done(worker, 4)
        assert [await found.needed_from(chat) for chat in "ab"] == [EVERYTHING] * 2
        one.bus.publish([log.store("a", 4, 5)])
        await eventually_on(kafka, {"a": 5, "b": 1})
        assert [await found.needed_from(chat) for chat in "ab"] == [4, EVERYTHING]
        with monkeypatch.context() as patched:
            patched.setattr(backlogs, "BACKLOG_RECORDS_MAX", 1)
            assert await found.needed_from("a") == 1, "a long backlog is not looked through"


async def is_answering(found: KafkaBacklogs) -> bool:
    """A broker that has just started is loading its groups."""
    try:
        await found.needed_from("a")
    except StoreUnavailable:
        return False
    return True


async def eventually_on(kafka: KafkaConfig, counts: dict[str, int]) -> None:
    async def is_there() -> bool:
        found = await sequences_on(kafka)
        return {chat: len(set(numbers)) for chat, numbers in found.items()} == counts

    await eventually(is_there, 30)


async def test_a_bus_that_is_away_is_no_answer() -> None:
    """Who cannot ask trims nothing."""
    kafka = KafkaConfig()
    kafka.brokers = ["127.0.0.1:9"]
    with pytest.raises(StoreUnavailable, match="offsets"):
        await backlogs_of(kafka).needed_from("a")
