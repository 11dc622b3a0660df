"""`Engine.diagnose`: what `parley doctor` says of a store, asked by an engine that was never opened."""

from parley.store.rows import Finding
from tests.contracts.acting import add_group, add_people, said
from tests.contracts.engines import Engine, OpenStore, SqliteEngine


async def diagnosed(store: OpenStore) -> dict[str, Finding]:
    async with store.operator() as operator:
        return {finding.what: finding async for finding in operator.diagnose()}


async def written(store: OpenStore) -> str:
    (ann,) = await add_people(store, "ann")
    group = await add_group(store, ann)
    await said(store, group, ann, "hello")
    return group


async def test_a_store_that_is_well_is_told_as_such(engine: Engine) -> None:
    """Something is said of it, and nothing of that is wrong."""
    async with engine.opened() as store:
        await written(store)
        found = await diagnosed(store)
        assert found
        assert [finding for finding in found.values() if finding.state == "wrong"] == []


async def test_a_diagnosis_writes_nothing(engine: Engine) -> None:
    """Everything in the store is as before."""
    async with engine.opened() as store:
        await written(store)
        before = store.rows.everything()
        await diagnosed(store)
        assert store.rows.everything() == before


async def test_lost_counters_are_told(sqlite: SqliteEngine) -> None:
    """On SQLite it costs nothing to count them."""
    async with sqlite.opened() as store:
        store.set_counter(await written(store), None)
        found = await diagnosed(store)
        assert (found["counters"].state, found["counters"].says) == ("wrong", "1 chats have none")


async def test_a_clock_that_was_set_back_is_told(sqlite: SqliteEngine) -> None:
    """A message from the future cannot be."""
    async with sqlite.opened() as store:
        await written(store)
        store.clock.set(store.clock() - 60_000)
        found = await diagnosed(store)
        assert (found["clock"].state, found["clock"].says) == (
            "wrong",
            "the last message is 60 s in the future",
        )
