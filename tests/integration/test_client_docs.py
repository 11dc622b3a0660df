"""The examples of docs/sdk-python.md, as they stand there, on a real server."""

import asyncio
import re
import textwrap
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.harness.server import ServerProcess
from tests.integration.sdk import client, new_group, newcomer
from tests.waiting import stretched

PAGE = Path(__file__).resolve().parents[2] / "docs/sdk-python.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("docs") / "data") as started:
        yield started


async def printed(example: Coroutine[Any, Any, None], is_enough: Callable[[str], bool]) -> str:
    """What an example prints until it is enough; its loop has no end."""
    output: list[str] = []
    enough = asyncio.Event()

    def note(*words: object) -> None:
        output.append(" ".join(map(str, words)))
        if is_enough(output[-1]):
            enough.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", note)
        running = asyncio.ensure_future(example)
        waiting = asyncio.ensure_future(enough.wait())
        await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED, timeout=stretched(20))
        running.cancel()
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await running
    return "\n".join(output)


async def test_the_first_example_sends_and_reads(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From an account to an entry of one's own, with an outbox file."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(EXAMPLES[0].replace("asyncio.run(main())", ""), names)
    names["URL"] = server.url
    assert "hi" in await printed(names["main"](), lambda line: line.endswith(" hi"))


def as_function(*examples: str) -> Callable[..., Coroutine[Any, Any, None]]:
    """Examples that follow each other, for a client and its chat."""
    names: dict[str, Any] = {}
    body = textwrap.indent("".join(examples), "    ")
    exec(f"async def main(me, chat_id, chat):\n{body}", names)
    main: Callable[..., Coroutine[Any, Any, None]] = names["main"]
    return main


async def test_the_examples_of_a_message_change_it_and_show_it(server: ServerProcess) -> None:
    """What was edited, reacted to, answered and deleted is so, for one message and in a window."""
    ada = await newcomer(server)
    chat_id = await new_group(server, [ada])
    async with client(server.url, ada) as me:
        main = as_function(EXAMPLES[1], EXAMPLES[2])
        output = await printed(
            main(me, chat_id, me.chat(chat_id)), lambda line: "oops" in line or " True " in line
        )
    lines = output.splitlines()
    assert lines[0].startswith("hello, everybody 2")
    assert lines[0].endswith("[('👍', 1)] 1")
    assert [line.split()[1] for line in lines[1:]] == ["hello,", "hi!", "True"]


async def test_the_example_of_what_is_live_shows_members_and_status(server: ServerProcess) -> None:
    """Its loop hears that the message is stored."""
    ada, ben = [await newcomer(server), await newcomer(server)]
    chat_id = await new_group(server, [ada, ben])
    async with client(server.url, ada) as me:
        main = as_function(EXAMPLES[3])
        output = await printed(main(me, chat_id, None), lambda line: line.startswith("receipts sent"))
        assert "receipts sent" in output
