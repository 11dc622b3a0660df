"""What the port `Records` says of a change whose answer is lost, or whose store fails in the midst of it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest
import structlog

from parley.errors import OutcomeUnknown, StoreError
from parley.model import Link
from parley.store.cassandra.connection import Statement
from parley.store.dynamodb.driver import Fault, Request, Response, Send
from parley.store.ports import Records
from parley.store.sqlite import writer
from parley.store.tables import API_TOKENS, LINKS, ONE_LIST, PutRecord, RecordChange, RemoveRecord, listed
from parley.testing import faults
from parley.testing.dynamodb_faults import conflict, throttle, timeout_done, timeout_not_done
from tests.contracts.cassandra_engine import CassandraOpenStore
from tests.contracts.dynamodb_nodes import Later, nodes
from tests.contracts.engines import SqliteEngine
from tests.contracts.test_cassandra_log import SecondNode, two_nodes
from tests.contracts.test_records import new_link, new_token, token_id
from tests.waiting import eventually

Act = Callable[[], Awaitable[object]]

FIRST, SECOND, THIRD = (new_link(1, note=note) for note in ("first", "second", "third"))
CHANGES: dict[str, list[RecordChange[Link]]] = {
    "add": [PutRecord(new_link(2), before=None)],
    "replace": [PutRecord(SECOND, before=FIRST)],
    "write": [PutRecord(SECOND)],
    "remove": [RemoveRecord(listed("lnk_1"), before=FIRST)],
    "several": [PutRecord(SECOND, before=FIRST), PutRecord(new_link(2), before=None)],
}
AFTER: dict[str, list[Link]] = {
    "add": [FIRST, new_link(2)],
    "replace": [SECOND],
    "write": [SECOND],
    "remove": [],
    "several": [SECOND, new_link(2)],
}


class Once:
    """A fault at the first request that writes; `then` is done before the next one."""

    def __init__(self, fault: Fault, then: Act | None = None) -> None:
        self.met = 0
        self._fault = fault
        self._then = then

    def __call__(self, operation: str, request: Request) -> Fault | None:
        if operation not in ("PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"):
            return None
        self.met += 1
        if self.met == 1:
            return self._fault
        return self._first_then if self.met == 2 and self._then is not None else None

    async def _first_then(self, operation: str, request: Request, send: Send) -> Response:
        assert self._then is not None
        await self._then()
        return await send(operation, request)


async def links_in(records: Records) -> list[Link]:
    return await records.page(LINKS, ONE_LIST, "", 10)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("fault", [timeout_done, timeout_not_done, conflict, throttle])
async def test_dynamodb_finds_out_what_became_of_a_change(name: str, fault: Fault) -> None:
    """Done or not when the answer was lost, it is done once in the end, and said to be."""
    later = Later()
    async with nodes(1, faults=later) as (node,):
        await node.records.load(LINKS, [FIRST])
        later.now = once = Once(fault)
        assert await node.records.commit(LINKS, CHANGES[name])
        assert once.met > 1
        assert await links_in(node.records) == AFTER[name]


@asynccontextmanager
async def cassandra(is_done: bool, times: int = 1) -> AsyncIterator[tuple[CassandraOpenStore, SecondNode]]:
    """Two nodes; the second loses so many conditional writes to links, or their answers."""
    async with two_nodes("atomic") as (one, two):
        await one.records.load(LINKS, [FIRST])

        def is_lost(statements: Sequence[Statement]) -> bool:
            return (
                "records_links" in statements[0][0] and " IF " in statements[0][0] and two.faults.lost < times
            )

        if is_done:
            two.faults.loses_answer = is_lost
        else:
            two.faults.loses_request = is_lost
        yield one, two


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("is_done", [True, False])
async def test_cassandra_finds_out_what_became_of_a_change(name: str, is_done: bool) -> None:
    """Done or not when the answer was lost, it is done once in the end, and said to be."""
    async with cassandra(is_done) as (one, two):
        assert await two.records.commit(LINKS, CHANGES[name])
        assert two.faults.lost == 1
        assert await links_in(one.records) == AFTER[name]


async def test_dynamodb_does_not_guess_behind_another_change() -> None:
    """The answer was lost, and by now somebody else has written: it may have been made before."""
    later = Later()
    async with nodes(1, faults=later) as (node,):
        await node.records.load(LINKS, [FIRST])

        async def overtake() -> None:
            await node.records.load(LINKS, [THIRD])

        later.now = Once(timeout_done, overtake)
        with pytest.raises(OutcomeUnknown):
            await node.records.commit(LINKS, [PutRecord(SECOND, before=FIRST)])
        assert await links_in(node.records) == [THIRD]


async def test_cassandra_does_not_guess_behind_another_change() -> None:
    """The answer was lost, and by now somebody else has written: it may have been made before."""
    async with cassandra(is_done=True) as (one, two):
        asked = 0

        def overtake(statements: Sequence[Statement]) -> None:
            nonlocal asked
            asked += two.faults.lost
            if asked == 1:
                one.connection.execute(
                    "INSERT INTO records_links (partition, place, record) VALUES"
                    f" ('{ONE_LIST}', 'lnk_1', textAsBlob('{LINKS.encode(THIRD).decode()}'))"
                )

        two.faults.before = overtake
        with pytest.raises(OutcomeUnknown):
            await two.records.commit(LINKS, [PutRecord(SECOND, before=FIRST)])


async def test_dynamodb_raises_a_number_whatever_is_lost() -> None:
    """Again, until it is known."""
    for fault in (timeout_done, timeout_not_done, throttle):
        later = Later()
        async with nodes(1, faults=later) as (node,):
            await node.records.load(API_TOKENS, [new_token(1)])
            later.now = Once(fault)
            assert await node.records.raise_to(API_TOKENS, listed(token_id(1)), 7)
            assert await node.records.page(API_TOKENS, ONE_LIST, "", 9) == [new_token(1, last_used_at_ms=7)]


@pytest.mark.parametrize("fault", ["full", "io", "sync"])
async def test_sqlite_makes_all_of_a_change_or_nothing(
    sqlite: SqliteEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A disk that fails at a commit: it is told, and whatever is found afterwards is no half."""
    monkeypatch.setattr(writer, "REOPEN_FIRST_SECONDS", 0.0)
    disk = tmp_path / "disk"
    vfs = faults.vfs_from({faults.DISK: str(disk)})
    with structlog.testing.capture_logs():
        async with sqlite.opened(vfs=vfs) as store:
            assert await store.records.commit(LINKS, [PutRecord(FIRST)])
            disk.write_text(fault)
            with pytest.raises(StoreError):
                await store.records.commit(LINKS, CHANGES["several"])
            disk.write_text("")
            await eventually(lambda: store.store.available)
            assert await links_in(store.records) in ([FIRST], AFTER["several"])
            await store.records.load(LINKS, [FIRST])
            assert await store.records.commit(LINKS, CHANGES["replace"])


async def test_sqlite_says_when_a_commit_may_have_written(
    sqlite: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither done nor not done: the caller looks."""
    async with sqlite.opened() as store:
        await store.records.load(LINKS, [FIRST])
        ended = store.store.writer._committed

        def fail_afterwards(_: Exception | None, seconds: float) -> None:
            ended(apsw.IOError("so it seemed"), seconds)

        with monkeypatch.context() as once, structlog.testing.capture_logs():
            once.setattr(store.store.writer, "_committed", fail_afterwards)
            with pytest.raises(OutcomeUnknown):
                await store.records.commit(LINKS, CHANGES["several"])
        await eventually(lambda: store.store.available)
        assert await links_in(store.records) == AFTER["several"]
