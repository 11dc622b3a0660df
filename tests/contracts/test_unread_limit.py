"""Unread messages are counted up to a limit: what is said just below, at and just above it."""

import pytest

from parley.store import compared_overviews
from parley.store.cassandra import overview as cassandra_overview
from parley.store.dynamodb import overview as dynamodb_overview
from parley.store.sqlite import overview
from tests.contracts.acting import add_group, add_people, message, position_of
from tests.contracts.engines import Engine
from tests.memory import cursors

LIMIT = 4
"""A small one in place of 999, so that it is reached at once."""


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (overview, compared_overviews, dynamodb_overview, cassandra_overview, cursors):
        monkeypatch.setattr(module, "UNREAD_MAX", LIMIT)


async def test_more_is_said_only_above_the_limit(engine: Engine) -> None:
    """Exactly as many as the limit are no more than the limit; one more is."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await store.log.append([message(chat, ben) for _ in range(LIMIT - 1)])
        found = []
        for _ in range(3):
            at = await position_of(store, ann, chat)
            found.append((at.unread, at.unread_more))
            await store.log.append([message(chat, ben)])
        assert found == [(LIMIT - 1, False), (LIMIT, False), (LIMIT, True)]
