"""kill -9 at every step of an archiver, in a server that people use: nothing is lost, doubled or reordered.

The server archives everything at once (`after_days = 0`), while people send. It dies at a labelled point and
starts again; what a client syncs from 0 is what was acknowledged, in the same order, every time.
"""

import asyncio
import uuid
from pathlib import Path

import pytest
from aiohttp import ClientSession

from parley.archive.steps import ARCHIVE_LABELS
from tests.harness.clients import HttpClient
from tests.harness.server import ServerProcess, run_parley
from tests.selection import thorough

MESSAGES_PER_ROUND = 15
SETTINGS = {
    "PARLEY_ARCHIVE_TARGET": "cold",
    "PARLEY_ARCHIVE_AFTER_DAYS": "0",
    "PARLEY_ARCHIVE_INTERVAL_SECONDS": "1",
}
Log = list[tuple[int, str]]


async def log_of(http: HttpClient, chat_id: str) -> Log:
    """Every entry of a chat, as a client gets it that starts at 0; every number is an entry or a void."""
    found: Log = []
    after = 0
    while True:
        answer = await http.get(f"/v1/chats/{chat_id}/messages", after=after, limit=7)
        assert answer.status == 200, answer.body
        page = answer.body
        numbers = [entry["sequence"] for entry in page["entries"]] + page.get("voids", [])
        assert sorted(numbers) == list(range(after + 1, page["to_sequence"] + 1))
        found += [(entry["sequence"], entry["content"]) for entry in page["entries"]]
        after = page["to_sequence"]
        if page["complete"]:
            return found


async def history_of(http: HttpClient, chat_id: str) -> Log:
    """The same, going back from the end."""
    found: Log = []
    before = 2**53 - 1
    while before > 1:
        page = (await http.get(f"/v1/chats/{chat_id}/messages", before=before, limit=7)).body
        found = [(entry["sequence"], entry["content"]) for entry in page["entries"]] + found
        before = page["from_sequence"]
    return found


async def send(http: HttpClient, chat_id: str, text: str, client_id: str) -> dict[str, object]:
    body = {"client_message_id": client_id, "content": text}
    answer = await http.post(f"/v1/chats/{chat_id}/messages", body)
    assert answer.status in (200, 201), answer.body
    found: dict[str, object] = answer.body
    return found


@pytest.mark.timeout(240)
@pytest.mark.parametrize("sequencing", ["atomic", thorough("two_phase", "the same in the other mode")])
async def test_a_server_that_dies_while_it_archives(tmp_path: Path, sequencing: str) -> None:
    """At every labelled point, one after the other, on the same data."""
    settings = {**SETTINGS, "PARLEY_STORE_SEQUENCING": sequencing}
    acknowledged: Log = []
    first_id = str(uuid.uuid4())
    async with ClientSession() as session:
        with ServerProcess(tmp_path / "data", settings) as server:
            http = HttpClient(session, server.url)
            ann = await http.newcomer("ann")
            chat = await http.of(ann).create_group()
            first = await send(http.of(ann), chat, "the first", first_id)
            acknowledged.append((1, "the first"))
            mine = http.of(ann)
            for label in ARCHIVE_LABELS:
                server.kill()
                armed = tmp_path / f"{label}.armed"
                crash = {**settings, "PARLEY_TEST_CRASH": f"{label}:1:{armed}"}
                await asyncio.to_thread(server.start, crash)
                mine = HttpClient(session, server.url).of(ann)
                for number in range(MESSAGES_PER_ROUND):
                    text = f"{label} {number}"
                    ack = await send(mine, chat, text, str(uuid.uuid4()))
                    acknowledged.append((int(str(ack["sequence"])), text))
                armed.touch()
                assert await asyncio.to_thread(server.wait, 60) == -9
                await asyncio.to_thread(server.start, settings)
                mine = HttpClient(session, server.url).of(ann)
                assert await log_of(mine, chat) == acknowledged
            assert await history_of(mine, chat) == acknowledged
            again = await send(mine, chat, "the first", first_id)
            assert (again["sequence"], again["message_id"]) == (1, first["message_id"])
            assert again["deduplicated"] is True
            await asyncio.to_thread(server.terminate)
    _check(tmp_path / "data", settings, len(acknowledged))


def _check(data: Path, settings: dict[str, str], entries: int) -> None:
    """What operators have finds nothing wrong, and a last run archives the rest."""
    run = run_parley("archive", "run", "--json", "--data", str(data), environment=settings)
    assert run.returncode == 0, run.stderr
    for command in (("archive", "verify"), ("check",)):
        found = run_parley(*command, "--json", "--data", str(data), environment=settings)
        assert found.returncode == 0, found.stdout + found.stderr
    status = run_parley("archive", "status", "--json", "--data", str(data), environment=settings)
    assert f'"trimmed_through":{entries - 1}' in status.stdout, status.stdout
