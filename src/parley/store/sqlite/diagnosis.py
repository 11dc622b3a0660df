"""What `parley doctor` says of a file: its version, its journal, lost counters, a clock that was set back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from parley.clock import CLOCK_MS_OFF_MAX, MS_PER_SECOND, Clock, from_iso
from parley.store.rows import Finding
from parley.store.sqlite import schema
from parley.store.sqlite.command_connection import command_connection

LOST_COUNTERS = "SELECT count(*) FROM chats WHERE chat_id NOT IN (SELECT chat_id FROM chat_counters)"
NEWEST = (
    "SELECT CAST(wire AS TEXT) ->> 'created_at' FROM entries WHERE wire IS NOT NULL"
    " ORDER BY position DESC LIMIT 1"
)


def diagnose(folder: Path, clock: Clock) -> Iterator[Finding]:
    with command_connection(folder, read_only=True) as connection:
        version, library = schema.version_of(connection), apsw.sqlite_lib_version()
        yield Finding("ok", "schema", f"version {version}, in SQLite {library}")
        mode = connection.pragma("journal_mode")
        if mode == "wal":
            yield Finding("ok", "journal", "wal, synced at every commit (synchronous=full)")
        else:
            remedy = "start the server once: it sets wal again"
            yield Finding("wrong", "journal", f"{mode}, and commands would wait for the server", remedy)
        lost: Any = connection.execute(LOST_COUNTERS).get
        if lost:
            yield Finding("wrong", "counters", f"{lost} chats have none", "run: parley recover --all")
        created_at: Any = connection.execute(NEWEST).get
    if created_at is not None:
        yield _newest(str(created_at), clock())


def _newest(created_at: str, now_ms: int) -> Finding:
    """An entry from the future shows that the clock was set back."""
    ahead_ms = from_iso(created_at) - now_ms
    if ahead_ms <= CLOCK_MS_OFF_MAX:
        return Finding("ok", "last message", created_at)
    says = f"the last message is {ahead_ms / MS_PER_SECOND:,.0f} s in the future"
    return Finding("wrong", "clock", says, "the clock was set back; set it right (NTP)")
