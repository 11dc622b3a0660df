"""A server is backed up at work, lost, and restored elsewhere: what its clients hold in the end."""

import asyncio
import json
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest

from parley.client import Client
from parley.wire.frames import Entry
from tests.harness.server import ServerProcess, run_parley
from tests.integration.sdk import client, new_group, newcomer
from tests.selection import thorough
from tests.waiting import deadline, eventually

SENDERS = 8
DEADLINE_SECONDS = 40.0


class View:
    """What an application shows of a chat: it forgets everything when the log starts over."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.epochs: list[int] = []

    async def follow(self, somebody: Client, chat_id: str) -> None:
        chat = somebody.chat(chat_id)
        async for entry in chat:
            if not self.entries or entry.epoch != self.entries[-1].epoch:
                self.epochs.append(entry.epoch)
            if self.entries and entry.sequence <= self.entries[-1].sequence:
                self.entries.clear()
            self.entries.append(entry)
            chat.done()

    @property
    def contents(self) -> list[str]:
        return [entry.content for entry in self.entries]


async def talk(somebody: Client, chat_id: str, name: str, acked: list[str]) -> None:
    number = 0
    while True:
        number += 1
        await somebody.chat(chat_id).send(f"{name} {number}")
        acked.append(f"{name} {number}")


async def command(*arguments: str) -> dict[str, object]:
    done = await asyncio.to_thread(run_parley, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.timeout(120)
@pytest.mark.parametrize("sequencing", ["atomic", thorough("two_phase", "the same in the other mode")])
async def test_clients_of_a_lost_server_end_with_the_restored_log(tmp_path: Path, sequencing: str) -> None:
    """Backups under load, more writes, a kill, a restore elsewhere: clients start over and resend."""
    mode = {"PARLEY_STORE_SEQUENCING": sequencing}
    old = ServerProcess(tmp_path / "old", mode)
    new = ServerProcess(tmp_path / "new", mode)
    backups, acked = str(tmp_path / "backups"), list[str]()
    try:
        await asyncio.to_thread(old.start)
        ann, bob = await newcomer(old), await newcomer(old)
        chat_id = await new_group(old, [ann, bob])
        async with client(old.url, ann, outbox=tmp_path / "ann.db") as sender, client(old.url, bob) as reader:
            view = View()
            following = asyncio.create_task(view.follow(reader, chat_id))
            talking = [
                asyncio.create_task(talk(sender, chat_id, f"s{number}", acked)) for number in range(SENDERS)
            ]
            await eventually(lambda: len(acked) > 50, DEADLINE_SECONDS)
            await command("backup", backups, "--data", str(old.data))
            before = set(acked)
            made = await command("backup", backups, "--data", str(old.data))
            held = set(acked)
            assert made["based_on"], "the second one is an increment"
            await eventually(lambda: len(acked) > len(held) + 50, DEADLINE_SECONDS)
            await eventually(lambda: len(view.entries) > len(held), DEADLINE_SECONDS)
            await asyncio.to_thread(old.kill)
            for task in talking:
                task.cancel()
            await asyncio.gather(*talking, return_exceptions=True)
            unsent = sender.chat(chat_id).send("written while there was no server")

            new.port = old.port
            restored = await command("restore", backups, "--data", str(new.data))
            assert restored["backup_id"] == made["backup_id"]
            assert run_parley("check", "--data", str(new.data)).returncode == 0
            await asyncio.to_thread(new.start)
            async with deadline(DEADLINE_SECONDS):
                ack = await unsent
            await eventually(
                lambda: view.contents[-1:] == ["written while there was no server"], DEADLINE_SECONDS
            )
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
        assert before <= set(view.contents), "what was acknowledged before the backup began is there"
        assert len(view.epochs) == 2
        assert view.epochs[0] < view.epochs[1] == ack.epoch
    finally:
        await asyncio.to_thread(old.kill)
        await asyncio.to_thread(new.kill)
    with closing(apsw.Connection(str(new.sqlite_path))) as store:
        stored = [row[0] for row in store.execute("SELECT message_id FROM messages ORDER BY sequence")]
    assert [entry.message_id for entry in view.entries] == stored
    assert run_parley("check", "--data", str(new.data)).returncode == 0
