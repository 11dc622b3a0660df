"""Retries and dead letters as they stand in topics, in virtual time."""

import asyncio

import msgspec

from parley.config import KafkaConfig
from parley.core.deliveries import DeliveryQueue
from tests.contracts.test_dead_letters import dead_letter
from tests.harness.clock import START_MS, VirtualClock, run_virtual
from tests.unit.delivery.retry_topics import MemoryTopics


def test_a_retry_that_is_due_later_than_any_topic_lasts_takes_another_one() -> None:
    """`Retry-After: 400` waits in the longest topic, and then in the shortest for the rest."""

    async def scenario(clock: VirtualClock) -> None:
        topics, woken = MemoryTopics(clock), list[tuple[str, int]]()

        async def wake(chat_id: str, recipient: str) -> None:
            woken.append((chat_id, clock() - START_MS))

        queue = DeliveryQueue(
            chat_id="c", recipient="wh_1", next_sequence=1, target=1, due_ms=START_MS + 400_000
        )
        reading = asyncio.create_task(topics.consume("wh_", wake))
        await topics.tell_retry(queue)
        assert list(topics.records) == ["messages.retry.5m"]
        await asyncio.sleep(900)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        ((chat_id, at_ms),) = woken
        assert chat_id == "c"
        assert 400_000 <= at_ms <= 400_200
        assert {name: len(records) for name, records in topics.records.items() if records} == {
            "messages.retry.5m": 2
        }

    run_virtual(scenario)


def test_a_forged_retry_ends() -> None:
    """What is due later than any retry can be is woken, which does nothing, and is not kept for ever."""

    async def scenario(clock: VirtualClock) -> None:
        topics, woken = MemoryTopics(clock), list[str]()

        async def wake(chat_id: str, recipient: str) -> None:
            woken.append(chat_id)

        queue = DeliveryQueue(chat_id="c", recipient="wh_1", next_sequence=1, target=1, due_ms=2**50)
        reading = asyncio.create_task(topics.consume("wh_", wake))
        await topics.tell_retry(queue)
        await asyncio.sleep(3_600)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert woken == ["c"]
        assert sum(map(len, topics.records.values())) == 1

    run_virtual(scenario)


def test_a_dead_letter_says_what_happened_and_where_its_event_came_from() -> None:
    """The record's fields are those that were agreed; the topic that it names is one that exists."""

    async def scenario(clock: VirtualClock) -> None:
        topics = MemoryTopics(clock, KafkaConfig(prefix="p."))
        await topics.tell_dead(dead_letter(3), "hello")
        await topics.tell_dead(dead_letter(4, chat_id="user_2"), "")
        said, of_an_account = map(msgspec.json.decode, topics.records["p.messages.dlq"])
        assert said == {
            "original_message": {
                "msg_id": "msg_3",
                "sender": "user_2",
                "recipient": "wh_1",
                "content": "hello",
                "timestamp": "1970-01-01T00:00:00.003Z",
            },
            "error": "timeout",
            "error_detail": "no answer",
            "retry_count": 3,
            "first_attempt": "1970-01-01T00:00:00.004Z",
            "last_attempt": "1970-01-01T00:00:00.010Z",
            "dlq_timestamp": "1970-01-01T00:00:00.030Z",
            "source_topic": "p.messages.persisted",
            "source_partition": 0,
            "source_offset": 3,
            "status": "pending",
        }
        assert of_an_account["source_topic"] == ""

    run_virtual(scenario)
