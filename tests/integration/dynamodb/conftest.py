"""Tables of their own for each test, in the DynamoDB of the run."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from parley.store.dynamodb.driver import Dynamo, Faults
from tests.services import dynamodb_endpoint, fresh_prefix

REGION = "us-east-1"

OpenDynamo = Callable[..., AbstractAsyncContextManager[Dynamo]]


@pytest.fixture
def prefix() -> str:
    return fresh_prefix()


@pytest.fixture
def open_dynamo(prefix: str) -> OpenDynamo:
    """Opens clients of the same tables; `faults` are one client's own."""
    endpoint = dynamodb_endpoint()

    @asynccontextmanager
    async def opened(faults: Faults | None = None) -> AsyncIterator[Dynamo]:
        dynamo = Dynamo(endpoint, REGION, prefix=prefix, faults=faults)
        await dynamo.open()
        try:
            yield dynamo
        finally:
            await dynamo.close()

    return opened
