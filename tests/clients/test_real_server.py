"""The SDK in TypeScript on Node, through a network that hurts, while the server is killed twenty times."""

import asyncio
import json
from pathlib import Path
from random import Random

import pytest

from tests.clients.applications import Application
from tests.harness.proxy import Chaos, ChaosProxy
from tests.harness.server import ServerProcess
from tests.node import build

KILLS = 20
MESSAGES_EACH = 60
CHAOS = Chaos(delay_ms_max=10, cut_share=0.01, stall_share=0.02, drop_share=0.05, duplicate_share=0.1)

TALK = """
import { type Client, connect, login, register } from "parley-chat";
import { msgpack } from "parley-chat/msgpack";
import WebSocket from "ws";

const { PARLEY_URL: url = "", PROXY_URL: proxy = "", COUNT = "0" } = process.env;
const timing = { ackMs: 500, backoffBaseMs: 50, backoffMaxMs: 500, answerMs: 2_000 };
const people: { userId: string; token: string }[] = [];
for (const name of ["ada", "ben"]) {
  const userId = await register(url, name, "a long password");
  people.push({ userId, token: await login(url, name, "a long password", { deviceId: "one" }) });
}
const [ada, ben] = await Promise.all(people.map(({ token }, at) => connect(proxy, token, {
  deviceId: "one", WebSocket, timing, startOffline: true, ...(at === 1 && { codec: msgpack }),
})));
const started = await connect(url, people[0]?.token ?? "", { deviceId: "one", WebSocket });
const { chatId } = await started.createChat([people[1]?.userId ?? ""], "talk");
await started.close();
console.log("begun");

async function write(me: Client, name: string): Promise<void> {
  for (let at = 0; at < Number(COUNT); at += 1) {
    me.chat(chatId).send(`${name} ${at}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}
async function read(me: Client): Promise<string[]> {
  const texts: string[] = [];
  for await (const entry of me.chat(chatId)) {
    if (entry.kind === "message") texts.push(entry.content ?? "");
    if (texts.length === 2 * Number(COUNT)) break;
  }
  return texts;
}
const both = [ada, ben] as [Client, Client];
const reading = Promise.all(both.map(read));
await Promise.all([write(both[0], "ada"), write(both[1], "ben")]);
console.log("written");
console.log("read", JSON.stringify(await reading));
while (both.some((me) => me.unsent.length > 0)) await new Promise((resolve) => setTimeout(resolve, 50));
console.log("sent");
await Promise.all(both.map((me) => me.close()));
"""


@pytest.mark.timeout(300)
async def test_nothing_is_lost_or_doubled_while_the_server_is_killed_twenty_times(tmp_path: Path) -> None:
    """Two people talk, in JSON and MessagePack: both read every message once, in one order."""
    await asyncio.to_thread(build)
    folder = tmp_path / "application"
    folder.mkdir()
    application = Application(folder)
    application.write("talk.ts", TALK)
    await asyncio.to_thread(application.compile)
    server = ServerProcess(tmp_path / "data")
    await asyncio.to_thread(server.start)
    try:
        async with ChaosProxy(server.port, Random(26), CHAOS) as proxy:
            env = {"PARLEY_URL": server.url, "PROXY_URL": proxy.url, "COUNT": str(MESSAGES_EACH)}
            with application.running("talk.js", env) as output:
                await asyncio.to_thread(output.until, "begun")
                for _ in range(KILLS):
                    await asyncio.to_thread(server.restart)
                await asyncio.to_thread(output.until, "written")
                proxy.chaos = Chaos()
                proxy.cut_all()
                said = await asyncio.to_thread(output.until, "read ")
                await asyncio.to_thread(output.until, "sent")
                assert await asyncio.to_thread(output.ended) == 0
            assert proxy.happened["drop"]
            assert proxy.happened["duplicate"]
    finally:
        await asyncio.to_thread(server.kill)
    one, other = json.loads(said.removeprefix("read "))
    assert one == other
    for name in ("ada", "ben"):
        written = [f"{name} {at}" for at in range(MESSAGES_EACH)]
        assert [text for text in one if text.startswith(name)] == written
