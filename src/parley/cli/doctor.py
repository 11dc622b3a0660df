"""`parley doctor`: what around a server can be wrong, each line with what to do about it."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import stat
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import aiohttp
import apsw

from parley import __version__
from parley.cli.doctor_findings import CLOCK_MS_OFF_MAX, MARKS, Finding, State
from parley.cli.output import print_json
from parley.cli.places import Place
from parley.cli.problems import user_name
from parley.clock import from_iso, wall_clock
from parley.config import suggestion
from parley.errors import ParleyError
from parley.store.sqlite import schema
from parley.store.sqlite.beside import connect_beside
from parley.store.sqlite.database import FILE_NAME

PACKAGES = ("aiohttp", "apsw", "argon2-cffi", "msgspec", "prometheus-client", "structlog", "typer", "uvloop")
PYTHON_MIN = (3, 11)
FREE_BYTES_MIN = 256 * 1024 * 1024
FREE_BYTES_LOW = 2 * 1024 * 1024 * 1024
OPEN_FILES_MIN = 256
OPEN_FILES_LOW = 8_192
SYNCS_MEASURED = 25
SYNC_MS_HIGH = 20.0
SYNC_MS_BELIEVABLE = 0.01
CLOCK_YEAR_MIN_MS = 1_735_689_600_000
"""The start of 2025: a clock before that was never set."""
ANSWER_SECONDS_MAX = 5
MIB = 1024 * 1024


def examine(place: Place, url: str | None, as_json: bool) -> bool:
    """Print every finding; whether nothing is wrong."""
    findings: list[Finding] = []
    is_embedded = place.settings.store.engine == "sqlite"
    keeping = (_folder, _store) if is_embedded else (_services,)
    for look in (_software, _machine, *keeping, lambda place: _server(place, url)):
        for finding in look(place):
            findings.append(finding)
            if not as_json:
                _tell(finding)
    is_well = all(finding.state != "wrong" for finding in findings)
    if as_json:
        print_json({"ok": is_well, "findings": findings})
    return is_well


def _tell(finding: Finding) -> None:
    print(f"{MARKS[finding.state]} {finding.what:<14}{finding.says}")
    if finding.remedy:
        print(f"  {'':<14}→ {finding.remedy}")


# Software and machine


def _software(place: Place) -> Iterator[Finding]:
    version = sys.version.split()[0]
    if sys.version_info < PYTHON_MIN:
        yield Finding("wrong", "Python", version, "Parley needs 3.11 or newer")
    else:
        yield Finding("ok", "Python", version)
    found = {name: _version(name) for name in PACKAGES}
    missing = [name for name, number in found.items() if number is None]
    if missing:
        yield Finding("wrong", "packages", f"missing: {', '.join(missing)}", "run: make setup")
    numbers = ", ".join(f"{name} {number}" for name, number in found.items() if number)
    yield Finding("ok", "Parley", __version__)
    yield Finding("ok", "packages", f"SQLite {apsw.sqlite_lib_version()}, {numbers}")
    if place.unknown_variables:
        names = ", ".join(place.unknown_variables)
        meant = list(filter(None, map(suggestion, place.unknown_variables)))
        remedy = f"did you mean {', '.join(meant)}?" if meant else "check the spelling, or unset them"
        yield Finding("look", "variables", f"mean nothing: {names}", remedy)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _machine(place: Place) -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    remedy = "raise it where the server is started: ulimit -n 65536 (each connection needs one)"
    state: State = "wrong" if soft < OPEN_FILES_MIN else "look" if soft < OPEN_FILES_LOW else "ok"
    says = f"{soft:,} at once (up to {hard:,})" if hard != resource.RLIM_INFINITY else f"{soft:,} at once"
    yield Finding(state, "open files", says, "" if state == "ok" else remedy)
    now_ms = wall_clock()
    if now_ms < CLOCK_YEAR_MIN_MS:
        yield Finding("wrong", "clock", time.strftime("%Y-%m-%d %H:%M"), "set the clock (NTP)")


# The data folder


def _folder(place: Place) -> Iterator[Finding]:
    folder = place.folder
    if not place.may_be_looked_at:
        remedy = f"run as its owner, or: chown -R $(id -u) {folder}"
        yield Finding("wrong", "data folder", f"{folder} cannot be entered by {user_name()}", remedy)
        return
    if not folder.is_dir():
        remedy = f"parley serve --data {folder} makes it; or name yours with --data"
        yield Finding("wrong", "data folder", f"{folder} does not exist", remedy)
        return
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        remedy = f"run as its owner, or: chown -R $(id -u) {folder}"
        yield Finding("wrong", "data folder", f"{folder} cannot be written by {user_name()}", remedy)
        return
    yield Finding("ok", "data folder", str(folder.resolve()))
    yield from _privacy(folder)
    yield _space(folder)
    yield _sync(folder)


def _privacy(folder: Path) -> Iterator[Finding]:
    """Messages lie in the file as they are: nobody else may read it."""
    mode, file = stat.S_IMODE(folder.stat().st_mode), folder / FILE_NAME
    is_reachable = mode & (stat.S_IXGRP | stat.S_IXOTH)
    file_mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else 0
    if is_reachable and file_mode & (stat.S_IRGRP | stat.S_IROTH):
        says = f"others on this machine can read {file}"
        yield Finding("wrong", "privacy", says, f"chmod 700 {folder}")
    else:
        yield Finding("ok", "privacy", "only its owner can read it")


def _space(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    used = sum(path.stat().st_size for path in folder.glob(f"{FILE_NAME}*"))
    says = f"{free / MIB:,.0f} MiB free, {used / MIB:,.0f} MiB used by the store"
    if free < FREE_BYTES_MIN:
        return Finding("wrong", "disk", says, "make room: a full disk refuses every message")
    return Finding("look" if free < FREE_BYTES_LOW else "ok", "disk", says)


def _sync(folder: Path) -> Finding:
    median = _sync_ms(folder)
    says = f"{median:.2f} ms to make a write durable (median of {SYNCS_MEASURED})"
    if median > SYNC_MS_HIGH:
        return Finding(
            "look", "disk sync", says, "every commit waits that long; a local SSD takes under 2 ms"
        )
    if median < SYNC_MS_BELIEVABLE:
        return Finding("look", "disk sync", says, "too fast to be true: what is lost if the power fails?")
    return Finding("ok", "disk sync", says)


def _sync_ms(folder: Path) -> float:
    with tempfile.TemporaryFile(dir=folder) as file:
        return statistics.median(_timed(lambda: _write_through(file.fileno())) for _ in range(SYNCS_MEASURED))


def _write_through(descriptor: int) -> None:
    os.write(descriptor, b"\0" * 4096)
    os.fsync(descriptor)


def _timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


# The store


def _store(place: Place) -> Iterator[Finding]:
    if not place.may_be_looked_at:
        return
    if not place.has_store:
        if place.folder.is_dir():
            yield Finding("look", "store", "none yet", f"parley serve --data {place.folder} makes one")
        return
    try:
        with connect_beside(place.folder, read_only=True) as connection:
            yield from _inside(connection)
    except ParleyError as error:
        yield Finding("wrong", "store", str(error), "restore a backup, if the file is damaged")


def _inside(connection: apsw.Connection) -> Iterator[Finding]:
    yield Finding("ok", "schema", f"version {schema.version_of(connection)}")
    mode = connection.pragma("journal_mode")
    if mode == "wal":
        yield Finding("ok", "journal", "wal, synced at every commit (synchronous=full)")
    else:
        remedy = "start the server once: it sets wal again"
        yield Finding("wrong", "journal", f"{mode}, and commands would wait for the server", remedy)
    missing: Any = connection.execute(
        "SELECT count(*) FROM chats WHERE chat_id NOT IN (SELECT chat_id FROM chat_counters)"
    ).get
    if missing:
        yield Finding("wrong", "counters", f"{missing} chats have none", "run: parley recover --all")
    yield from _newest(connection)


def _newest(connection: apsw.Connection) -> Iterator[Finding]:
    """An entry from the future says that the clock was set back since."""
    created_at: Any = connection.execute(
        "SELECT CAST(wire AS TEXT) ->> 'created_at' FROM entries WHERE wire IS NOT NULL"
        " ORDER BY position DESC LIMIT 1"
    ).get
    if created_at is None:
        return
    ahead_ms = from_iso(str(created_at)) - wall_clock()
    if ahead_ms > CLOCK_MS_OFF_MAX:
        says = f"the last message is {ahead_ms / 1000:,.0f} s in the future"
        yield Finding("wrong", "clock", says, "the clock was set back; set it right (NTP)")
    else:
        yield Finding("ok", "last message", str(created_at))


# Services that nodes share


def _services(place: Place) -> Iterator[Finding]:
    from parley.cli.doctor_services import examine_services

    yield from examine_services(place.settings)


# The server


def _server(place: Place, url: str | None) -> Iterator[Finding]:
    if url is None and not place.may_be_looked_at:
        says = f"nobody can tell from here: {place.folder} cannot be entered"
        yield Finding("look", "server", says, "name its address with --url")
        return
    process = place.server_process() if place.may_be_looked_at else None
    if process is not None:
        yield Finding("ok", "server", f"runs on this folder (process {process})")
    elif url is None:
        yield Finding("look", "server", "none runs on this folder", place.how_to_serve())
        return
    yield from asyncio.run(_ask(url or place.server_url()))


async def _ask(url: str) -> list[Finding]:
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS_MAX)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as http, http.get(f"{url}/readyz") as answer:
            return [_readiness(url, answer.status), *_clock_of(answer.headers.get("Date"))]
    except (aiohttp.ClientError, OSError, ValueError) as error:
        says = f"{url} does not answer: {str(error) or type(error).__name__}"
        return [Finding("wrong", "address", says, "is it the right --url, and no firewall between?")]


def _readiness(url: str, status: int) -> Finding:
    if status == 200:
        return Finding("ok", "address", f"{url} is ready")
    return Finding("wrong", "address", f"{url} says {status}, not ready", "its log says why")


def _clock_of(date: str | None) -> Iterator[Finding]:
    if date is None:
        return
    off_ms = int(parsedate_to_datetime(date).timestamp() * 1000) - wall_clock()
    if abs(off_ms) > CLOCK_MS_OFF_MAX:
        says = f"the server's differs from this machine's by {off_ms / 1000:.0f} s"
        yield Finding("wrong", "clock", says, "let both follow NTP")
    else:
        yield Finding("ok", "clock", "the server's and this machine's agree")
