"""Tests that take `own_redis` may do to it what they like."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.ephemeral.own_redis import OwnRedis
from tests.services import OwnServices


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[OwnRedis]:
    with OwnServices(tmp_path, in_memory=True) as services:
        services.up("redis")
        yield OwnRedis(services)
