"""Kafka and DynamoDB Local, killed and started again under real clients."""

import asyncio
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.services import OwnServices

TOPIC = "kept"


async def write_event(brokers: str, value: bytes) -> None:
    """One event that every replica has acknowledged."""
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=1)])
    await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=brokers, acks="all") as producer:
        await producer.send_and_wait(TOPIC, value)


async def first_event(brokers: str) -> bytes:
    async with AIOKafkaConsumer(bootstrap_servers=brokers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        event = await consumer.getone()
        assert isinstance(event.value, bytes)
        return event.value


@pytest.mark.timeout(150)
async def test_kafka_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    """An event is there after kill -9 and start, at the same address."""
    with OwnServices(tmp_path) as services:
        await asyncio.to_thread(services.up, "kafka")
        brokers = services.environment()["PARLEY_KAFKA_BROKERS"]
        await write_event(brokers, b"hello")
        await asyncio.to_thread(services.kill, "kafka")
        await asyncio.to_thread(services.start, "kafka")
        assert services.environment()["PARLEY_KAFKA_BROKERS"] == brokers
        assert await first_event(brokers) == b"hello"


@pytest.mark.timeout(150)
def test_dynamodb_keeps_its_tables(tmp_path: Path) -> None:
    """A table is there after kill -9 and start, at the same address."""
    with OwnServices(tmp_path) as services:
        services.up("dynamodb")
        found = services.environment()
        client: Any = botocore.session.Session().create_client(
            "dynamodb",
            endpoint_url=found["PARLEY_DYNAMODB_ENDPOINT"],
            region_name=found["PARLEY_DYNAMODB_REGION"],
            aws_access_key_id=found["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=found["AWS_SECRET_ACCESS_KEY"],
        )
        client.create_table(
            TableName="kept",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        services.kill("dynamodb")
        services.start("dynamodb")
        assert client.list_tables()["TableNames"] == ["kept"]
        client.close()
