"""A person edits the store of a stopped server: a check and the devices that read it notice."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from parley.client import Chat, Client, LogDifference, What
from tests.harness.server import ServerProcess, run_parley
from tests.integration.sdk import Account, client, new_group, newcomer
from tests.waiting import eventually

MESSAGES = 30
Fault = Callable[[sqlite3.Connection, str], None]
ENTRY = "chat_no = (SELECT chat_no FROM chats WHERE chat_id = ?) AND sequence = ?"


def changed(db: sqlite3.Connection, chat_id: str) -> None:
    text = "CAST(json_set(CAST(wire AS TEXT), '$.content', 'never said') AS BLOB)"
    db.execute(f"UPDATE entries SET wire = {text} WHERE {ENTRY}", (chat_id, 7))


def voided(db: sqlite3.Connection, chat_id: str) -> None:
    nothing = "kind = 0, sender_no = NULL, client_id = NULL, message_id = NULL, wire = NULL"
    db.execute(f"UPDATE entries SET {nothing} WHERE {ENTRY}", (chat_id, 7))


def swapped(db: sqlite3.Connection, chat_id: str) -> None:
    """Two texts, and everything else of the rows stays."""
    found = [
        db.execute(f"SELECT wire ->> 'content' FROM entries WHERE {ENTRY}", (chat_id, at)) for at in (7, 8)
    ]
    texts = [cursor.fetchone()[0] for cursor in found]
    for at, text in zip((8, 7), texts, strict=True):
        body = "CAST(json_set(CAST(wire AS TEXT), '$.content', ?) AS BLOB)"
        db.execute(f"UPDATE entries SET wire = {body} WHERE {ENTRY}", (text, chat_id, at))


def is_hashed(data: Path, through: int) -> bool:
    """Whether the server's job has stored the hash at the end of the log."""
    with closing(sqlite3.connect(data / "parley.db")) as db:
        found: tuple[int | None] = db.execute(
            "SELECT max(record ->> 'sequence') FROM records WHERE kind = 'log_hashes'"
        ).fetchone()
    return found[0] == through


def edit(data: Path, statement: Callable[[sqlite3.Connection], object]) -> None:
    with closing(sqlite3.connect(data / "parley.db")) as db, db:
        statement(db)


async def read_to(chat: Chat, content: str) -> list[str]:
    """What the chat shows up to a text."""
    seen = []
    async for entry in chat:
        seen.append(entry.content)
        if entry.content == content:
            break
    chat.done()
    return seen


async def difference(me: Client, chat: Chat) -> LogDifference:
    """What the client tells of, once it does."""
    if chat.log_difference is None:
        async for update in me.updates():
            if update.what is What.LOG:
                break
    assert chat.log_difference is not None
    return chat.log_difference


async def talk(server: ServerProcess, ann: Account, ben: Account, outbox: Path) -> str:
    """A group in which Ann has said something, and Ben's phone has read it."""
    chat_id = await new_group(server, [ann, ben])
    async with client(server.url, ann) as writer, client(server.url, ben, outbox=outbox) as reader:
        await asyncio.gather(*[writer.chat(chat_id).send(f"{n}") for n in range(MESSAGES)])
        await writer.chat(chat_id).send("last")
        await read_to(reader.chat(chat_id), "last")
        assert reader.chat(chat_id).log_difference is None
    return chat_id


@pytest.mark.parametrize("fault", [changed, voided, swapped])
async def test_what_was_done_to_the_log_is_noticed(fault: Fault, tmp_path: Path) -> None:
    """By `parley check` and who reads it; once the operator accepts it, by who had read the original."""
    data, outbox = tmp_path / "data", tmp_path / "phone.db"
    with ServerProcess(data) as server:
        ann, ben = await newcomer(server), await newcomer(server)
        chat_id = await talk(server, ann, ben, outbox)
        await eventually(lambda: is_hashed(data, MESSAGES + 1))
    edit(data, lambda db: fault(db, chat_id))
    checked = run_parley("check", "--data", str(data))
    assert checked.returncode == 1
    assert "log_hash_agreement" in checked.stdout
    with ServerProcess(data) as server:
        async with client(server.url, ann) as late:
            late.chat(chat_id).seek(0)
            seen = await read_to(late.chat(chat_id), "last")
            found = await difference(late, late.chat(chat_id))
            assert (found.sequence, found.is_lasting) == (MESSAGES + 1, True)
            assert seen[0] == "0"
        async with client(server.url, ben, outbox=outbox) as reader:
            await reader.overview()
            assert reader.chat(chat_id).log_difference is None, "what it has is what was sent"
    edit(data, lambda db: db.execute("DELETE FROM records WHERE kind = 'log_hashes'"))
    assert run_parley("check", "--data", str(data)).returncode == 0
    with ServerProcess(data) as server:
        async with client(server.url, ann, seed=1) as writer:
            await writer.chat(chat_id).send("after")
        async with client(server.url, ben, outbox=outbox) as reader:
            chat = reader.chat(chat_id)
            seen = await read_to(chat, "after")
            found = await difference(reader, chat)
            assert not found.is_lasting
            assert (seen[0], chat.restarts) == ("0", 1), "it was read again from its start"


async def test_a_device_proves_what_is_archived(tmp_path: Path) -> None:
    """From the first entry on, across the border, also one that had read it before: no difference is told."""
    data, outbox = tmp_path / "data", tmp_path / "phone.db"
    settings = {"PARLEY_ARCHIVE_TARGET": "cold", "PARLEY_ARCHIVE_AFTER_DAYS": "0"}
    with ServerProcess(data, settings) as server:
        ann, ben = await newcomer(server), await newcomer(server)
        chat_id = await talk(server, ann, ben, outbox)
        await eventually(lambda: is_hashed(data, MESSAGES + 1))
        assert run_parley("archive", "run", "--data", str(data), environment=settings).returncode == 0
        async with client(server.url, ben, seed=1) as writer:
            await writer.chat(chat_id).send("after")
        await eventually(lambda: is_hashed(data, MESSAGES + 2))
        async with client(server.url, ben, outbox=outbox) as reader, client(server.url, ben, seed=2) as late:
            late.chat(chat_id).seek(0)
            seen = await read_to(late.chat(chat_id), "after")
            assert seen == [*map(str, range(MESSAGES)), "last", "after"]
            assert await read_to(reader.chat(chat_id), "after") == ["after"]
            assert late.chat(chat_id).log_difference is reader.chat(chat_id).log_difference is None
    checked = run_parley("check", "--data", str(data), environment=settings)
    assert checked.returncode == 0, checked.stdout
