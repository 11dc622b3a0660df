"""The examples of docs/sdk-typescript.md, as they stand there, on a real server."""

import re
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.applications import Application
from tests.harness.server import ServerProcess
from tests.node import ROOT, build

PAGE = (ROOT / "docs/sdk-typescript.md").read_text(encoding="utf-8")
NODE, BROWSER, WINDOW, LIVE, FILES, TESTING, ROUTE = re.findall(r"(?sm)^```ts\n(.*?)^```", PAGE)
(COMPONENT,) = re.findall(r"(?sm)^```tsx\n(.*?)^```", PAGE)

CONTEXT = """
{imports}
import {{ type Chat, type Client, connect, login, type MessageState, register }} from "parley-chat";
import WebSocket from "ws";

const url = "{url}";
await register(url, "{name}", "a long password");
const token = await login(url, "{name}", "a long password", {{ deviceId: "laptop" }});
const me = await connect(url, token, {{ deviceId: "laptop", WebSocket }});
const draw = (messages: readonly MessageState[]) => {{
  console.log("drawn", messages.map((one) => one.entry.content));
}};

async function example(me: Client, chat: Chat, messageId: string): Promise<void> {{
{body}
}}

const started = await me.createChat([], "notes");
const ack = await started.send("hi").stored;
await example(me, started, ack.message_id);
await me.close();
"""

SHOWN = """
import { createElement } from "react";
import { renderToString } from "react-dom/server";
import { connect } from "parley-chat";
import { VirtualServer } from "parley-chat/testing";

const server = new VirtualServer();
const token = server.addPerson("ada");
const me = await connect(server.url, token, { deviceId: "laptop", platform: server.platform() });
console.log(renderToString(createElement(Conversation, { chat: me.chat(server.addChat(["ada"])) })));
await me.close();
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    build()
    with ServerProcess(tmp_path_factory.mktemp("docs") / "data") as started:
        yield started


def fresh_name() -> str:
    return f"u{uuid.uuid4().hex[:12]}"


@pytest.mark.timeout(180)
def test_every_example_does_what_it_says(server: ServerProcess, tmp_path: Path) -> None:
    """Each compiles; run by Node it sends, shows a window, hears what changed, moves a file, and the rest."""
    application = Application(tmp_path)
    fragments = {"window": WINDOW, "live": LIVE, "files": FILES, "route": ROUTE}
    first = NODE.replace("http://127.0.0.1:8080", server.url).replace('"ada"', f'"{fresh_name()}"')
    application.write("node.ts", first)
    application.write("browser.ts", f"declare function askYourLogin(): Promise<string>;\n{BROWSER}")
    for name, code in fragments.items():
        imports, body = re.findall(r"(?m)^import .*$", code), re.sub(r"(?m)^import .*\n", "", code)
        given = {"imports": "\n".join(imports), "body": textwrap.indent(body, "  ")}
        application.write(f"{name}.ts", CONTEXT.format(url=server.url, name=fresh_name(), **given))
    application.write("testing.ts", TESTING)
    application.write("component.tsx", f"{COMPONENT}{SHOWN}")
    application.compile()
    with application.running("node.js") as output:
        assert output.until(" hi").split()[0].isdigit()
    with application.running("window.js") as output:
        output.until("drawn [ 'hi' ]")
        assert output.ended() == 0
    with application.running("live.js") as output:
        output.until("receipts sent")
    with application.running("files.js") as output:
        output.until("16 of 16")
        output.until("list.txt tea, milk, bread")
        assert output.ended() == 0
    with application.running("testing.js") as output:
        output.until("[ 'tea?', 'yes' ]")
        assert output.ended() == 0
    with application.running("component.js") as output:
        output.until("<p>Loading…</p>")
        assert output.ended() == 0
    with application.running("route.js") as output:
        output.until(" true")
        assert output.ended() == 0
