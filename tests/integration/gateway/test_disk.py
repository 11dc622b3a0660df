"""A disk that is full or fails: no false ack, a clear refusal, and service again when it works again."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.harness.clients import Disconnected, Frame, HttpClient, Person, RawClient
from tests.harness.server import ServerProcess, run_parley
from tests.integration.gateway.serving import new_id
from tests.waiting import eventually, stretched

FAULTS = ("full", "sync", "io")
REFUSALS = {"store_unavailable", "outcome_unknown"}


class Patient:
    """A server whose disk can be made ill, and one person with a chat on it."""

    def __init__(self, folder: Path, sequencing: str = "atomic") -> None:
        self.switch = folder / "disk"
        environment = {"PARLEY_TEST_DISK": str(self.switch), "PARLEY_STORE_SEQUENCING": sequencing}
        self.server = ServerProcess(folder / "data", environment)
        self.session: ClientSession
        self.http: HttpClient
        self.ann: Person
        self.chat = ""
        self.acked: dict[str, Frame] = {}
        self.refused: dict[str, str] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[RawClient]:
        """A client that is connected; everything acknowledged is checked at the end."""
        with self.server:
            async with ClientSession() as self.session:
                self.http = HttpClient(self.session, self.server.url)
                self.ann = await self.http.newcomer("ann")
                self.chat = await self.http.of(self.ann).create_group()
                async with RawClient(self.session, self.server.url, self.ann, live=False) as client:
                    yield client
            await asyncio.to_thread(self.server.restart)
            await self.check_promise()

    def break_disk(self, fault: str) -> None:
        self.switch.write_text(fault)

    def heal_disk(self) -> None:
        self.switch.unlink()

    async def send(self, client: RawClient, client_id: str = "") -> str:
        """Send, remember how it ended, and return that in one word."""
        client_id = client_id or new_id()
        answer = await client.send_message(self.chat, f"content of {client_id}", client_id)
        if answer["type"] == "ack":
            self.acked[client_id] = answer
            self.refused.pop(client_id, None)
            return "deduplicated" if answer["deduplicated"] else "stored"
        self.refused[client_id] = answer["code"]
        assert answer["temporary"] is True
        return str(answer["code"])

    async def is_ready(self) -> bool:
        return (await self.http.get("/readyz")).status == 200

    async def check_promise(self) -> None:
        """After a restart each acknowledged message is where its ack said, once, and the store is sound."""
        async with ClientSession() as session, RawClient(session, self.server.url, self.ann) as client:
            entries = await client.sync_all(self.chat)
        places = {entry["client_message_id"]: entry for entry in entries}
        assert len(places) == len(entries), "stored twice"
        for client_id, ack in self.acked.items():
            assert places[client_id]["sequence"] == ack["sequence"]
            assert places[client_id]["message_id"] == ack["message_id"]
        check = await asyncio.to_thread(run_parley, "check", "--data", str(self.server.data))
        assert check.returncode == 0, check.stdout


@pytest.mark.parametrize("sequencing", ["atomic", "two_phase"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_failing_disk_gives_no_false_ack(tmp_path: Path, fault: str, sequencing: str) -> None:
    """While it fails every send is refused as temporary; once healed the retries are stored, each once."""
    patient = Patient(tmp_path, sequencing)
    async with patient.running() as client:
        assert [await patient.send(client) for _ in range(3)] == ["stored"] * 3
        patient.break_disk(fault)
        outcomes = {await patient.send(client) for _ in range(20)}
        assert outcomes <= REFUSALS
        await eventually(lambda: is_down(patient))
        reading = await client.sync(patient.chat)
        assert (reading["type"], reading["code"]) == ("refused", "store_unavailable")
        assert await patient.send(client) == "store_unavailable"
        assert (await patient.http.of(patient.ann).get("/v1/me")).status == 503
        patient.heal_disk()
        await eventually(patient.is_ready)
        for client_id in list(patient.refused):
            assert await patient.send(client, client_id) in {"stored", "deduplicated"}
        assert [await patient.send(client) for _ in range(3)] == ["stored"] * 3
    no_tracebacks(patient.server)


@pytest.mark.parametrize("fault", FAULTS)
async def test_while_the_disk_fails_the_server_is_not_ready(tmp_path: Path, fault: str) -> None:
    """The store is opened again only when it can be written, however little there was to lose."""
    patient = Patient(tmp_path)
    async with patient.running() as first:
        await first.close()
        await asyncio.to_thread(patient.server.restart)
        async with RawClient(patient.session, patient.server.url, patient.ann, live=False) as client:
            patient.break_disk(fault)
            assert await patient.send(client) in REFUSALS
            for _ in range(20):
                assert await patient.send(client) == "store_unavailable"
                assert not await patient.is_ready()
            patient.heal_disk()
            await eventually(patient.is_ready)
            assert await patient.send(client) == "stored"


async def is_down(patient: Patient) -> bool:
    return not await patient.is_ready()


async def test_an_unknown_outcome_that_was_stored_is_deduplicated(tmp_path: Path) -> None:
    """A commit whose sync failed may be there after all: then the retry is answered with the original."""
    patient = Patient(tmp_path)
    async with patient.running() as client:
        await patient.send(client)
        patient.break_disk("sync")
        lost = new_id()
        assert await patient.send(client, lost) == "outcome_unknown"
        patient.heal_disk()
        await eventually(patient.is_ready)
        stored = {entry["client_message_id"] for entry in await client.sync_all(patient.chat)}
        retried = await patient.send(client, lost)
        assert (retried == "deduplicated") == (lost in stored)


@pytest.mark.parametrize("fault", FAULTS)
async def test_positions_that_could_not_be_written_are_written_later(fault: str, tmp_path: Path) -> None:
    """Acks and reading marks noted while the disk fails are refused to nobody and lost to nobody."""
    patient = Patient(tmp_path)
    async with patient.running() as client:
        for _ in range(3):
            await patient.send(client)
        assert "heads" in await client.heartbeat()
        patient.break_disk(fault)
        await client.tell("ack", chat_id=patient.chat, last_acked_sequence=2)
        await client.tell("read_receipt", chat_id=patient.chat, read_up_to=1)
        assert (await client.request("sync_overview"))["code"] in REFUSALS
        patient.heal_disk()
        await eventually(patient.is_ready)
        (listed,) = (await client.request("sync_overview"))["chats"]
        assert (listed["last_acked_sequence"], listed["read_up_to"]) == (2, 1)


async def test_the_disk_fails_under_load(tmp_path: Path) -> None:
    """Many writers through several failures: what was acknowledged is kept, what was not may be retried."""
    patient = Patient(tmp_path)
    async with patient.running() as client:
        healthy = asyncio.Event()
        healthy.set()

        async def write() -> None:
            for _ in range(30):
                client_id = new_id()
                while await patient.send(client, client_id) in REFUSALS:
                    await healthy.wait()
                    await eventually(patient.is_ready)

        writers = [asyncio.create_task(write()) for _ in range(8)]
        for fault in FAULTS:
            await patient.send(client)
            healthy.clear()
            patient.break_disk(fault)
            await eventually(lambda: bool(patient.refused) or done(writers))
            patient.heal_disk()
            healthy.set()
        await asyncio.gather(*writers)
        assert len(patient.acked) >= 240
    no_tracebacks(patient.server)


def done(tasks: list[asyncio.Task[None]]) -> bool:
    return all(task.done() for task in tasks)


async def test_a_server_with_a_failing_disk_still_ends_in_time(tmp_path: Path) -> None:
    """SIGTERM while the store cannot write: exit 0 within ten seconds, and nothing acknowledged is lost."""
    patient = Patient(tmp_path)
    async with patient.running() as client:
        await patient.send(client)
        patient.break_disk("io")
        await patient.send(client)
        started = asyncio.get_running_loop().time()
        assert await asyncio.to_thread(patient.server.terminate) == 0
        assert asyncio.get_running_loop().time() - started < stretched(10)
        with pytest.raises(Disconnected):
            await client.heartbeat()
        patient.heal_disk()
        await asyncio.to_thread(patient.server.start)


async def test_another_program_holding_the_lock_makes_sends_wait(tmp_path: Path) -> None:
    """Sends wait while somebody else writes, and are stored when that one is done."""
    patient = Patient(tmp_path)
    async with patient.running() as client:
        with locked(patient.server.sqlite_path):
            waiting = [asyncio.create_task(patient.send(client)) for _ in range(5)]
            assert (await client.sync(patient.chat))["type"] == "message_batch"
            assert not any(task.done() for task in waiting)
        assert await asyncio.gather(*waiting) == ["stored"] * 5


async def test_another_program_that_keeps_the_lock_gets_sends_refused(tmp_path: Path) -> None:
    """Before its time is up a send is refused as not stored, reading goes on, and later sends work."""
    patient = Patient(tmp_path)
    async with patient.running() as client:
        with locked(patient.server.sqlite_path):
            assert await patient.send(client) == "store_unavailable"
            assert await patient.is_ready()
            assert (await patient.http.of(patient.ann).get("/v1/me")).status == 200
        refused = next(iter(patient.refused))
        assert refused not in {e["client_message_id"] for e in await client.sync_all(patient.chat)}
        assert await patient.send(client, refused) == "stored"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program with the write lock, with its own SQLite: it is another process than the server."""
    with closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def no_tracebacks(server: ServerProcess) -> None:
    assert "Traceback" not in "\n".join(server.stderr_lines())
