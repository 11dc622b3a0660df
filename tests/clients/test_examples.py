"""The examples of the SDK in TypeScript: the bot is killed, the page is opened in a browser."""

import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.applications import Application
from tests.clients.test_browser import programs
from tests.harness.server import ServerProcess
from tests.node import ROOT, build, npm

EXAMPLES = ROOT / "examples/typescript"
TEXTS = [f"question {number}" for number in range(5)]

PERSON = """
import {{ connect, login, register }} from "parley-chat";
import WebSocket from "ws";

const url = "{url}";
const accounts = [];
for (const name of ["{ada}", "{bot}"]) {{
  const userId = await register(url, name, "a long password");
  accounts.push({{ userId, token: await login(url, name, "a long password", {{ deviceId: "one" }}) }});
}}
const [ada, bot] = accounts;
console.log("token", bot.token);
const me = await connect(url, ada.token, {{ deviceId: "one", WebSocket }});
const chat = await me.createChat([bot.userId], "questions");
const texts = {texts};
for (const text of texts) chat.send(text);
const answers: string[] = [];
for await (const entry of chat) {{
  if (entry.sender_id !== bot.userId || entry.kind !== "message") continue;
  answers.push(entry.content ?? "");
  console.log("answer", entry.content);
  if (answers.length === texts.length) break;
}}
await me.close();
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    build()
    with ServerProcess(tmp_path / "data") as started:
        yield started


@pytest.mark.timeout(180)
def test_the_bot_answers_each_message_once_though_it_is_killed(server: ServerProcess, tmp_path: Path) -> None:
    """Killed after its first answer, and started again."""
    folder = tmp_path / "application"
    folder.mkdir()
    application = Application(folder)
    names = {"ada": f"a{uuid.uuid4().hex[:12]}", "bot": f"b{uuid.uuid4().hex[:12]}"}
    application.write("person.ts", PERSON.format(url=server.url, texts=json.dumps(TEXTS), **names))
    application.compile()
    shutil.copy(EXAMPLES / "bot.js", folder / "out" / "bot.js")
    with application.running("person.js") as person:
        env = {"PARLEY_URL": server.url, "PARLEY_TOKEN": person.until("token ").split()[1]}
        with application.running("bot.js", env) as bot:
            bot.until("listens")
            person.until("answer ")
        with application.running("bot.js", env):
            assert person.ended() == 0
        said = [line.removeprefix("answer ") for line in person.lines.all() if line.startswith("answer ")]
    assert said == [f"You said: {text}" for text in TEXTS]


@pytest.mark.timeout(300)
def test_the_page_without_a_bundler_sends_what_was_written_offline() -> None:
    """In Chromium: sign up, write, and write on while the server is killed."""
    build()
    npm("exec", "--", "vitest", "run", "--config=vitest.browser.config.ts", "examples", env=programs())


@pytest.mark.timeout(300)
def test_the_widget_in_the_page_of_a_shop() -> None:
    """In Chromium: a visitor of the shop writes, is answered, and writes on while the server is killed."""
    build()
    npm("exec", "--", "vitest", "run", "--config=vitest.browser.config.ts", "widget", env=programs())
