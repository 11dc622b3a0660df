"""Damages the file of a store as a bad disk does: one page of it holds something else."""

from __future__ import annotations

import contextlib
from pathlib import Path

import apsw

from parley.store.folder import DATABASE_NAME

JUNK = b"\x55"
"""No page of SQLite begins with it."""


def pages_of(folder: Path, name: str) -> list[int]:
    """The pages of a table or an index: its root, or the leaves from the first row to the last."""
    with contextlib.closing(apsw.Connection(str(folder / DATABASE_NAME))) as connection:
        sql = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path"
        return [number for (number,) in connection.execute(sql, (name,))]


def root_of(folder: Path, name: str) -> int:
    """The page from which every row of a table or an index is found."""
    with contextlib.closing(apsw.Connection(str(folder / DATABASE_NAME))) as connection:
        found = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).get
        assert isinstance(found, int)
        return found


def overwrite(folder: Path, page: int) -> None:
    """Write junk over a page, also while a server has the file open; it meets that at its next new read."""
    path = folder / DATABASE_NAME
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.set_busy_timeout(5_000)
        size = connection.execute("SELECT page_size FROM pragma_page_size, changes").get  # opens its log, too
        assert isinstance(size, int)
        assert connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE) == (0, 0)
        with path.open("r+b") as file:
            file.seek((page - 1) * size)
            file.write(JUNK * size)
        connection.execute("UPDATE changes SET last = last + 1")  # so that the server's caches are old
