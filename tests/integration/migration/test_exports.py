"""Exports: a chat as lines and as a page, and what is kept about a person; and imports by the command."""

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from parley.clock import wall_clock
from parley.migration.exports import about_person, page_of_chat
from parley.migration.rows import StoreRows
from tests.contracts.acting import message
from tests.contracts.engines import SqliteOpenStore
from tests.contracts.full_store import FullStore
from tests.integration.cli.running import parley
from tests.integration.migration.exported import slack_zip

HOSTILE = "<script>alert(1)</script><img src=https://evil.example/x onerror=a> \"'&amp; </p></article>"


class Page(HTMLParser):
    """The tags and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attributes

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with an imported workspace."""
    folder = tmp_path / "data"
    assert parley("store", "init", data=folder).status == 0
    done = parley("import", str(slack_zip(tmp_path / "slack.zip")), "--json", data=folder)
    assert done.status == 0, done.stderr
    assert done.json["messages_stored"] == 6
    return folder


def test_a_chat_is_one_entry_a_line(data: Path) -> None:
    """In the order of the log, as it travels."""
    done = parley("export", "chat", "general", data=data)
    lines = [json.loads(line) for line in done.lines]
    assert [line["sequence"] for line in lines] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [line["kind"] for line in lines] == ["message"] * 5 + ["reaction"] + ["member"] * 2
    assert lines[1]["content"] == "second"


def test_a_chat_is_a_page_by_the_command(data: Path) -> None:
    """The page names people as they call themselves, and when they wrote."""
    page = Page(parley("export", "chat", "general", "--html", data=data).stdout)
    assert "Ada" not in page.tags
    assert "ada" in page.text
    assert "2017-07-14T02:40:01.000Z" in page.text
    assert page.tags.count("article") == 8


async def test_whatever_people_write_is_text_of_the_page(tmp_path: Path) -> None:
    """No tag, no address and no script comes from a message, a name or a title; nothing is loaded."""
    store = SqliteOpenStore(tmp_path, "atomic", {})
    await store.open()
    try:
        full = await FullStore(store).fill()
        await store.log.append([message(full.group, full.people["ann"], HOSTILE)])

        async def name_of(_: str) -> str:
            return HOSTILE

        found = [part async for part in page_of_chat(store.log, full.group, HOSTILE, name_of)]
        page = Page("".join(found))
    finally:
        await store.close()
    known = {"html", "head", "meta", "title", "style", "body", "h1", "article", "header", "b", "time", "p"}
    assert set(page.tags) == known
    assert {name for name, _ in page.attributes} <= {
        "lang",
        "charset",
        "http-equiv",
        "content",
        "name",
        "class",
        "id",
    }
    assert HOSTILE in page.text
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


async def test_a_page_tells_what_was_done_to_messages(tmp_path: Path) -> None:
    """With the newest content of each, and nothing of what was deleted."""
    store = SqliteOpenStore(tmp_path, "atomic", {})
    await store.open()
    try:
        full = await FullStore(store).fill()

        async def name_of(_: str) -> str:
            return "who"

        page = "".join([part async for part in page_of_chat(store.log, full.lively, "Tea", name_of)])
    finally:
        await store.close()
    told = [line.partition("<p>")[2].partition("</p>")[0] for line in page.splitlines() if "<article" in line]
    assert told == [
        "second words",
        "(deleted)",
        "edited a message: second words",
        "👍",
        "👎",
        "took 👎 back",
        "deleted a message",
    ]
    assert "so?" not in page


async def test_what_is_kept_about_a_person(tmp_path: Path) -> None:
    """Their records and messages, those that mention them, and none of their secrets or of others' lists."""
    store = SqliteOpenStore(tmp_path, "atomic", {})
    store.clock.advance(wall_clock() - store.clock())
    await store.open()
    try:
        full = await FullStore(store).fill()
        async with store.operator() as operator:
            transfer = StoreRows(operator)
            ann = [line async for line in about_person(transfer, full.people["ann"])]
            bob = [line async for line in about_person(transfer, full.people["bob"])]
            cat = [line async for line in about_person(transfer, full.people["cat"])]
    finally:
        await store.close()
    kinds = {line["record"] for line in ann}
    assert kinds >= {
        "KeptPerson",
        "KeptSession",
        "KeptMember",
        "KeptState",
        "KeptCursor",
        "KeptRelation",
        "Entry",
    }
    assert {"PushDevice", "PushOutcome", "Lane", "Invitation"} <= {line["record"] for line in bob}
    assert {line["name"].split("\x1f")[-1] for line in cat if line["record"] == "KeptMark"} == {"👍", "👎"}
    assert "so?" not in json.dumps(ann + cat), "it was deleted"
    texts = json.dumps(ann + bob)
    for secret in ("hash of ann", "another hash", "token_hash", '"auth"'):
        assert secret not in texts
    contents = [line["content"] for line in ann if line["record"] == "Entry"]
    assert "see @ann" in contents, "somebody else mentions her"
    assert "alone" not in contents, "written by another after she left"
    listing = {line["user_id"] for line in bob if line["record"] == "KeptRelation"}
    assert listing <= {full.people["bob"]}, "who lists or has blocked him is not his to know"


def test_a_person_by_the_command(data: Path) -> None:
    """One JSON value a line."""
    done = parley("export", "person", "ada.l", data=data)
    lines = [json.loads(line) for line in done.lines]
    assert lines[0]["record"] == "KeptPerson"
    assert lines[0]["user"]["display_name"] == "ada"
    assert sum(line["record"] == "Entry" for line in lines) >= 2


def test_an_import_is_told_in_a_sentence(data: Path, tmp_path: Path) -> None:
    """And a check finds nothing wrong in what it made."""
    done = parley("import", str(tmp_path / "slack.zip"), data=data)
    assert done.stdout.startswith(
        "0 messages of 0 new persons and 4 known ones in 0 new chats; 6 messages in 2 chats"
    )
    assert "left out: 1 channel_join" in done.stderr
    assert parley("check", data=data).status == 0
    assert "no ZIP" in parley("import", str(tmp_path / "slack.zip.none"), "--kind", "slack", data=data).stderr
