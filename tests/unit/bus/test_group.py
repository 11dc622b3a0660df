"""A member of a consumer group that leaves while a rebalance takes its partitions."""

import asyncio
from collections.abc import Collection
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from parley.bus.kafka import group
from parley.bus.kafka.group import GroupMember, PartitionShare

TOPIC = "events"
PARTITION = TopicPartition(TOPIC, 0)
FINISH_SECONDS = 5.0


class ScriptedConsumer:
    """As much of a consumer as a member asks of it: it fetches one record, and then waits."""

    def __init__(self) -> None:
        self._fetched = [{PARTITION: [cast(ConsumerRecord, ScriptedRecord(7))]}]
        self.committed: list[dict[TopicPartition, int]] = []
        self.is_stopped = False

    def subscribe(self, topics: list[str], listener: object) -> None:
        assert topics == [TOPIC]

    async def start(self) -> None:
        pass

    def assignment(self) -> Collection[TopicPartition]:
        return ()

    async def stop(self) -> None:
        self.is_stopped = True

    async def getmany(self, timeout_ms: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        if self._fetched:
            return self._fetched.pop()
        await asyncio.Event().wait()
        raise AssertionError("nobody wakes it")

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        self.committed.append(offsets)

    def paused(self) -> Collection[TopicPartition]:
        return ()


class ScriptedRecord:
    def __init__(self, offset: int) -> None:
        self.offset = offset


class SlowMember(GroupMember[PartitionShare]):
    """Handles records for as long as the test wants."""

    def __init__(self, consumer: ScriptedConsumer) -> None:
        super().__init__(
            cast(AIOKafkaConsumer, cast(Any, consumer)), TOPIC, "routers", lambda: 0.0, FINISH_SECONDS
        )
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()

    def make_share(self, offset: int) -> PartitionShare:
        return PartitionShare(offset)

    async def handle(self, share: PartitionShare, records: list[ConsumerRecord]) -> None:
        self.begun.set()
        await self.may_end.wait()
        share.done_through = records[-1].offset + 1


@pytest.mark.parametrize("leaves_first", [True, False])
async def test_a_rebalance_takes_partitions_of_a_member_that_leaves(
    leaves_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever comes first: nothing fails, and what is done is committed once."""
    monkeypatch.setattr(group, "close_consumer", ScriptedConsumer.stop)
    consumer = ScriptedConsumer()
    member = SlowMember(consumer)
    running = asyncio.create_task(member.run())
    await member.begun.wait()

    async def rebalance() -> None:
        await member.on_partitions_revoked([PARTITION])

    if leaves_first:
        running.cancel()
        await asyncio.sleep(0)
        revoking = asyncio.create_task(rebalance())
    else:
        revoking = asyncio.create_task(rebalance())
        await asyncio.sleep(0)
        running.cancel()
    await asyncio.sleep(0)
    member.may_end.set()
    ended = await asyncio.gather(running, revoking, return_exceptions=True)
    assert [type(one) for one in ended] == [asyncio.CancelledError, type(None)]
    assert consumer.committed == [{PARTITION: 8}]
    assert consumer.is_stopped
    assert member.lag() == 0
