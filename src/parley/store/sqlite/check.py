"""Whether a store keeps its promises, shown from its rows alone; on a live store as on a stopped one.

Everything streams: one read transaction per chunk, so that memory stays small and a server's checkpoints
are never held up for long. Each chunk is judged by what its own snapshot shows (its counter, its open
allocations), so a server that writes meanwhile can never look broken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

from parley.store.checks import Breach, Findings, Progress, Tell, silently
from parley.store.sqlite.beside import connect_beside, snapshot
from parley.store.sqlite.check_log import LogCheck
from parley.store.sqlite.check_people import PeopleCheck
from parley.store.sqlite.schema import MIGRATIONS

CHATS_PER_CHUNK = 500
FILE_PROBLEMS_MAX = 20
DAMAGED = "stop the server, copy the folder, and restore the last backup that passes this check"

Row = tuple[Any, ...]
ChatRow = tuple[int, str, int, str]


def check_folder(
    folder: Path, chat_ids: Sequence[str] | None = None, tell: Tell = silently, *, whole_file: bool = True
) -> Findings:
    """Check every chat, or only these; the file's own structure only with every chat."""
    with connect_beside(folder, read_only=True) as connection:
        return check_connection(connection, chat_ids, tell, whole_file=whole_file)


def check_connection(
    connection: apsw.Connection,
    chat_ids: Sequence[str] | None = None,
    tell: Tell = silently,
    *,
    whole_file: bool = True,
) -> Findings:
    """The same on an open connection. A file too damaged to be read on is a finding of its own."""
    findings = Findings()
    try:
        _check_all(connection, findings, chat_ids, tell, whole_file)
    except (apsw.CorruptError, apsw.NotADBError) as error:
        findings.add(Breach("file_integrity", f"the check could not go on: {error}", DAMAGED))
    return findings


def _check_all(
    connection: apsw.Connection,
    findings: Findings,
    chat_ids: Sequence[str] | None,
    tell: Tell,
    whole_file: bool,
) -> None:
    if chat_ids is None:
        _check_schema(connection, findings)
    log, people = LogCheck(connection, findings), PeopleCheck(connection, findings)
    total = len(chat_ids) if chat_ids is not None else _count_chats(connection)
    for chat_no, chat_id, epoch, chat_type in _chats(connection, chat_ids):
        tell(Progress(findings.chats, total, findings.entries))
        log.check(chat_no, chat_id, epoch, lambda: tell(Progress(findings.chats, total, findings.entries)))
        people.check_chat(chat_id, chat_type)
        findings.chats += 1
    people.check_cursors(chat_ids)
    if chat_ids is None:
        people.check_direct_keys()
        people.check_references()
        if whole_file:
            _check_file(connection, findings)
    tell(Progress(findings.chats, total, findings.entries))


def _count_chats(connection: apsw.Connection) -> int:
    count: Any = connection.execute("SELECT count(*) FROM chats").get
    return int(count)


def _chats(connection: apsw.Connection, chat_ids: Sequence[str] | None) -> Iterator[ChatRow]:
    columns = "SELECT chat_no, chat_id, epoch, chat_type FROM chats"
    if chat_ids is not None:
        for chat_id in chat_ids:
            yield from _rows(connection, f"{columns} WHERE chat_id = ?", (chat_id,))
        return
    after = -1
    page = f"{columns} WHERE chat_no > ? ORDER BY chat_no LIMIT ?"
    while rows := _rows(connection, page, (after, CHATS_PER_CHUNK)):
        yield from rows
        after = rows[-1][0]


def _rows(connection: apsw.Connection, sql: str, values: Row) -> list[ChatRow]:
    rows: list[Any] = connection.execute(sql, values).fetchall()
    return rows


def _check_schema(connection: apsw.Connection, findings: Findings) -> None:
    """Compare with a fresh store: a unique index that was dropped no longer keeps anything unique."""
    fresh = apsw.Connection(":memory:")
    for migration in MIGRATIONS:
        fresh.execute(migration)
    expected, found = _schema_of(fresh), _schema_of(connection)
    for name, sql in expected.items():
        if found.get(name) != sql:
            says = f"{name} is missing" if name not in found else f"{name} is not as this version makes it"
            remedy = "restore the file from a backup, or create it as a new store has it"
            findings.add(Breach("schema", says, remedy))


def _schema_of(connection: apsw.Connection) -> dict[str, str]:
    rows: list[Row] = connection.execute(
        "SELECT type || ' ' || name, sql FROM sqlite_schema"
        " WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    return {name: " ".join(sql.split()) for name, sql in rows}


def _check_file(connection: apsw.Connection, findings: Findings) -> None:
    with snapshot(connection):
        rows: list[Row] = connection.execute(f"PRAGMA quick_check({FILE_PROBLEMS_MAX})").fetchall()
    for (says,) in rows:
        if says != "ok":
            findings.add(Breach("file_integrity", str(says), DAMAGED))
