"""A deleted body after `kill -9`: whatever the process had done, nothing of it is left."""

import asyncio
import signal
from pathlib import Path

import pytest

from parley.client import connect
from parley.core.message_actions import ACTION_LABELS, NOTED
from parley.testing import faults
from tests.contracts.test_retention import raw_bytes
from tests.harness.server import ServerProcess
from tests.integration.cli.running import succeed
from tests.integration.cli.stores import one

CHAT = "chat_group"
NOTES = "SELECT count(*) FROM records WHERE kind = 'amendments'"


@pytest.mark.parametrize("label", ACTION_LABELS)
async def test_a_delete_is_finished_after_a_crash(data: Path, tmp_path: Path, label: str) -> None:
    """Killed before, behind and in the midst: what is stored is finished before the server is ready again."""
    token, armed = succeed("token", "ben", data=data).lines[0], tmp_path / "armed"
    with ServerProcess(data, {faults.CRASH: f"{label}:1:{armed}"}) as server:
        async with connect(server.url, token) as client:
            sent = await client.chat(CHAT).send("SECRET words")
            await client.chat(CHAT).edit(sent.message_id, "SECRET edit")
            armed.touch()
            client.chat(CHAT).delete(sent.message_id)
            assert await asyncio.to_thread(server.wait) == -signal.SIGKILL
    assert b"SECRET" in raw_bytes(data)
    assert one(data, NOTES) == 1
    is_stored = one(data, "SELECT count(*) FROM messages WHERE kind = 'delete'") == 1
    assert is_stored == (label != NOTED)
    with ServerProcess(data):
        assert (b"SECRET" in raw_bytes(data)) == (not is_stored)
        assert one(data, NOTES) == 0
