"""`parley explain`: beside a server, and on a store that nobody serves."""

from pathlib import Path

from aiohttp import ClientSession

from parley.clock import wall_clock
from tests.harness.clients import HttpClient, RawClient
from tests.harness.server import ServerProcess
from tests.integration.cli.running import parley, succeed
from tests.integration.gateway.serving import message
from tests.waiting import eventually


async def test_explain_beside_a_server_and_without(tmp_path: Path) -> None:
    """With an operator the server is asked who was sent it; else the store says what it knows, and why."""
    with ServerProcess(tmp_path / "data") as server:
        async with ClientSession() as session:
            http = HttpClient(session, server.url)
            ann, ben = await http.newcomer("ann"), await http.newcomer("ben")
            chat = await http.of(ann).create_group(ben)
            async with RawClient(session, server.url, ben) as client:
                answer = await http.of(ann).post(f"/v1/chats/{chat}/messages", message())
                await client.live_entry(chat, 1)
                heard_ms = wall_clock()  # who goes in the same ms may have missed it
                await eventually(lambda: wall_clock() > heard_ms)
        message_id = answer.body["message_id"]
        alone = succeed("explain", message_id, data=server.data)
        assert "parley user add NAME --operator" in alone.stderr
        succeed("user", "add", "root", "--operator", "--password-stdin", data=server.data, given="a password")
        told = succeed("explain", message_id, data=server.data)
        assert (told.stderr, told.lines[0].split()[0]) == ("", message_id)
        (sent,) = [line.split() for line in told.lines if " sent " in line]
        assert {"ben", "phone"} <= set(sent)
        steps = succeed("explain", message_id, "--to", "ben", "--json", data=server.data).json["steps"]
        assert "sent" in {step["step"] for step in steps}
        missing = parley("explain", "msg_0", data=server.data)
        assert (missing.status, missing.stdout) == (1, "")
        assert "there is no message with this id" in missing.stderr
    after = succeed("explain", message_id, "--json", data=tmp_path / "data")
    assert "No server runs" in after.stderr
    found = {step["step"] for step in after.json["steps"]}
    assert "stored" in found
    assert "sent" not in found
