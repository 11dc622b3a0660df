"""Stores for the commands to work on: made once through the real rooms, copied for each test."""

import asyncio
import random
import sqlite3
import uuid
from contextlib import closing
from itertools import count
from pathlib import Path

from parley import ids
from parley.clock import from_iso
from parley.model import Action, Change, Chat, ChatType, Draft, Kind, Role, User
from parley.store.sqlite.store import SqliteStore
from parley.telemetry import Metrics

BEGINNING = "2026-01-01T00:00:00.000Z"
GROUP_ENTRIES = 6
"""Messages 1 to 5, then Cas joins."""
VOID_AT = 4


class Ticking:
    """A clock that is a second later each time it is looked at."""

    def __init__(self) -> None:
        self._ticks = count(from_iso(BEGINNING), 1000)

    def __call__(self) -> int:
        return next(self._ticks)


def open_store(folder: Path) -> SqliteStore:
    clock = Ticking()
    make_ids = ids.Ids(random.Random(1).getrandbits)
    return SqliteStore(folder, clock=clock, ids=make_ids, metrics=Metrics(clock))


def message(chat_id: str, sender_id: str, text: str) -> Draft:
    client_message_id = str(uuid.uuid4())
    return Draft(
        chat_id=chat_id,
        sender_id=sender_id,
        content=text,
        client_message_id=client_message_id,
        client_key=ids.client_key(client_message_id),
    )


def chat(chat_id: str, chat_type: ChatType, title: str | None) -> Chat:
    return Chat(chat_id, chat_type, title, "user_ann", BEGINNING, BEGINNING, 1)


async def _fill(folder: Path) -> None:
    store = open_store(folder)
    await store.open()
    for name in ("ann", "ben", "cas"):
        await store.accounts.add_user(User(f"user_{name}", name, name, "", False, BEGINNING), "no hash")
    await store.directory.create_chat(chat("chat_group", ChatType.GROUP, "Tea"), ["user_ben"])
    await store.directory.create_chat(chat("chat_direct", ChatType.DIRECT, None), ["user_ben"])
    for number in range(1, GROUP_ENTRIES):
        await store.log.append([message("chat_group", "user_ann", f"message {number}")])
    change = Change(Action.JOINED, "user_cas", Role.MEMBER)
    content = '{"action":"joined","user_id":"user_cas","role":"member"}'
    joining = Draft(
        chat_id="chat_group", sender_id="user_ann", content=content, kind=Kind.MEMBER.value, change=change
    )
    await store.log.append([joining])
    await store.log.append([message("chat_direct", "user_ben", "psst")])
    store.cursors.note_acked("user_ben", "phone", "chat_group", 3, from_iso(BEGINNING))
    store.cursors.note_read("user_ben", "chat_group", 2, from_iso(BEGINNING))
    await store.close()


def fill(folder: Path) -> None:
    """Ann, Ben and Cas; a group with a void in it, a direct chat, and Ben's cursors."""
    asyncio.run(_fill(folder))
    change(
        folder,
        f"UPDATE entries SET kind = 0, sender_no = NULL, client_id = NULL, message_id = NULL, wire = NULL"
        f" WHERE chat_no = 1 AND sequence = {VOID_AT}",
    )


def change(folder: Path, *statements: str) -> None:
    """What somebody with sqlite3 in hand can do to a store."""
    with closing(sqlite3.connect(folder / "parley.db", timeout=10, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def one(folder: Path, query: str) -> object:
    """The single value that a query finds."""
    with closing(sqlite3.connect(folder / "parley.db", timeout=10)) as connection:
        row = connection.execute(query).fetchone()
        return row[0] if row else None
