"""The SDK when a process dies: the server's, and its own."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.harness.server import ServerProcess
from tests.integration.sdk import Account, Recorder, client, new_group, newcomer

MESSAGES = 120
CRASHES = 4


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as started:
        yield started


async def test_a_server_that_is_killed_again_and_again(server: ServerProcess) -> None:
    """Senders and readers live through every `kill -9`: nothing acknowledged is lost, nothing is doubled."""
    accounts = [await newcomer(server) for _ in range(2)]
    recorder = Recorder(await new_group(server, accounts))
    async with client(server.url, accounts[0]) as ann, client(server.url, accounts[1]) as ben:
        reading = asyncio.gather(
            *[
                recorder.read(me, account, until=2 * MESSAGES)
                for me, account in zip((ann, ben), accounts, strict=True)
            ]
        )
        for round_number in range(CRASHES):
            contents = [f"{round_number}: {count}" for count in range(MESSAGES // CRASHES)]
            sending = asyncio.gather(
                recorder.send(ann, accounts[0], contents), recorder.send(ben, accounts[1], contents)
            )
            await asyncio.to_thread(server.restart)
            await sending
        await reading
    assert recorder.breaches(server) == []


class Killed:
    """A sender process that is killed after some kept messages, and started again with the same file."""

    def __init__(self, server: ServerProcess, account: Account, chat_id: str, outbox: Path) -> None:
        self._arguments = [server.url, account.token, account.device_id, chat_id, str(outbox), str(MESSAGES)]
        self.kept: list[str] = []

    def run(self, lines: int | None) -> bool:
        """Whether it came to its end; it is killed after so many lines."""
        command = [
            sys.executable,
            "-m",
            "tests.integration.sdk_process",
            *self._arguments,
            str(len(self.kept) + 1),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for count, line in enumerate(process.stdout, 1):
                if line.strip() == "done":
                    return True
                self.kept.append(line.split()[1])
                if count == lines:
                    process.kill()  # What it still printed is read to the end.
        return False


@pytest.mark.randomised
async def test_a_client_that_is_killed_again_and_again(
    server: ServerProcess, tmp_path: Path, seed: int
) -> None:
    """Whatever its outbox kept before a `kill -9` is stored exactly once, in the order of sending."""
    account = await newcomer(server)
    chat_id = await new_group(server, [account])
    sender, random = Killed(server, account, chat_id, tmp_path / "outbox.db"), Random(seed)
    for _ in range(CRASHES):
        await asyncio.to_thread(sender.run, random.randint(1, MESSAGES // CRASHES))
    assert await asyncio.to_thread(sender.run, None)
    async with client(server.url, account) as me:
        stored = [entry.client_message_id for entry in (await me.chat(chat_id).history(limit=1_000)).entries]
    assert [message_id for message_id in stored if message_id in sender.kept] == sender.kept
    assert len(stored) == len(set(stored))
    assert len(stored) <= len(sender.kept) + CRASHES, "only what was kept but not yet printed may be added"
