"""What `parley doctor` says of a file: its version, its journal, lost counters, a clock that was set back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw

from parley.clock import CLOCK_MS_OFF_MAX, MS_PER_SECOND, Clock, from_iso
from parley.errors import StoreDamaged
from parley.store.rows import Finding
from parley.store.sqlite import schema
from parley.store.sqlite.command_connection import DAMAGED, command_connection
from parley.store.sqlite.damage import DAMAGE, check_roots

LOOK_SECONDS_MAX = 5.0
LOOK_STEPS = 10_000
"""Instructions of SQLite between two looks at the clock."""
TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name = 'entries', name"
"""The entries last: they are most of the file."""
LOST_COUNTERS = "SELECT count(*) FROM chats WHERE chat_id NOT IN (SELECT chat_id FROM chat_counters)"
NEWEST = (
    "SELECT CAST(wire AS TEXT) ->> 'created_at' FROM entries WHERE wire IS NOT NULL"
    " ORDER BY position DESC LIMIT 1"
)


def diagnose(folder: Path, clock: Clock, seconds: Callable[[], float] = time.monotonic) -> Iterator[Finding]:
    """`seconds`: a clock that only rises."""
    with command_connection(folder, read_only=True) as connection:
        damage = list(find_damage(connection, seconds))
        yield from damage
        if any(finding.state == "wrong" for finding in damage):
            return
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


def find_damage(connection: apsw.Connection, seconds: Callable[[], float]) -> Iterator[Finding]:
    """What a short look at the pages finds: root pages, then table after table while there is time."""
    try:
        check_roots(connection)
        tables = [str(name) for (name,) in connection.execute(TABLES)]
    except (StoreDamaged, *DAMAGE) as error:
        yield Finding("wrong", "pages", str(error), DAMAGED)
        return
    give_up_at = seconds() + LOOK_SECONDS_MAX
    connection.set_progress_handler(lambda: seconds() > give_up_at, LOOK_STEPS)
    looked, problems = 0, list[str]()
    try:
        for name in tables:
            try:
                rows = connection.execute(f'PRAGMA quick_check("{name}")').fetchall()
                problems += [f"table {name}: {says}" for (says,) in rows if says != "ok"]
            except DAMAGE as error:
                problems.append(f"table {name}: {error}")
            looked += 1
    except apsw.InterruptError:
        pass
    finally:
        connection.set_progress_handler(None)
    if problems:
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        yield Finding("wrong", "pages", f"damaged: {' '.join(problems[0].split())}{more}", DAMAGED)
    elif looked == len(tables):
        yield Finding("ok", "pages", f"those of all {looked} tables are sound")
    else:
        says = f"those of {looked} of {len(tables)} tables are sound, in {LOOK_SECONDS_MAX:.0f} s"
        yield Finding("ok", "pages", f"{says}; parley check reads all")


def _newest(created_at: str, now_ms: int) -> Finding:
    """An entry from the future shows that the clock was set back."""
    ahead_ms = from_iso(created_at) - now_ms
    if ahead_ms <= CLOCK_MS_OFF_MAX:
        return Finding("ok", "last message", created_at)
    says = f"the last message is {ahead_ms / MS_PER_SECOND:,.0f} s in the future"
    return Finding("wrong", "clock", says, "the clock was set back; set it right (NTP)")
