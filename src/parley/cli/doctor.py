"""`parley doctor`: checks a server's environment. Each problem comes with what to do about it."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from email.utils import parsedate_to_datetime
from importlib import metadata
from pathlib import Path

import aiohttp

from parley import __version__
from parley.cli.offline import make_offline_engine
from parley.cli.output import print_json, printable
from parley.cli.places import Place
from parley.cli.problems import explain, user_name
from parley.client.api import open_http
from parley.clock import CLOCK_MS_OFF_MAX, wall_clock
from parley.config import risks, suggestion
from parley.errors import ParleyError
from parley.store.folder import DATABASE_NAME, open_to_others
from parley.store.rows import Finding, Health
from parley.telemetry import configure_logs

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
REASON_CHARS_MAX = 200
STORE_DAMAGED = "parley_store_damaged"
MEND = "see the runbook of ParleyStoreDamaged in docs/runbooks.md"
OVERDUE, FAILING = "parley_job_overdue", "parley_job_failing_runs"
WEBHOOKS_PAUSED = "parley_webhooks_paused"
UNUSABLE = "nothing can be stored until this is right; if a file is damaged, restore a backup"
MARKS: dict[Health, str] = {"ok": "✓", "look": "!", "wrong": "✗"}


def examine(place: Place, url: str | None, as_json: bool, ca: str | None = None) -> bool:
    """Print every finding. Returns whether none is wrong."""
    findings: list[Finding] = []
    configure_logs("critical", as_json=False)  # what is wrong is a finding
    store_checks = (_store, _services) if place.is_shared else (_folder, _store)
    for look in (_software, _machine, *store_checks, _exposure, lambda place: _server(place, url, ca)):
        for finding in look(place):
            findings.append(finding)
            if not as_json:
                _print_finding(finding)
    is_well = all(finding.state != "wrong" for finding in findings)
    if as_json:
        print_json({"ok": is_well, "findings": findings})
    return is_well


def _print_finding(finding: Finding) -> None:
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
    yield Finding("ok", "packages", numbers)
    if place.unknown_variables:
        names = ", ".join(place.unknown_variables)
        meant = list(filter(None, map(suggestion, place.unknown_variables)))
        remedy = f"did you mean {', '.join(meant)}?" if meant else "check the spelling, or unset them"
        yield Finding("look", "variables", f"unknown: {names}", remedy)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _machine(place: Place) -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    remedy = "raise it where the server is started: ulimit -n 65536 (each connection needs one)"
    state: Health = "wrong" if soft < OPEN_FILES_MIN else "look" if soft < OPEN_FILES_LOW else "ok"
    says = f"{soft:,} at once (up to {hard:,})" if hard != resource.RLIM_INFINITY else f"{soft:,} at once"
    yield Finding(state, "open files", says, "" if state == "ok" else remedy)
    now_ms = wall_clock()
    if now_ms < CLOCK_YEAR_MIN_MS:
        yield Finding("wrong", "clock", time.strftime("%Y-%m-%d %H:%M"), "set the clock (NTP)")


# The data folder


def _folder(place: Place) -> Iterator[Finding]:
    folder = place.folder
    if not place.is_accessible:
        remedy = f"run as its owner, or: chown -R $(id -u) {folder}"
        yield Finding("wrong", "data folder", f"{folder} cannot be entered by {user_name()}", remedy)
        return
    if not folder.is_dir():
        remedy = f"parley serve --data {folder} creates it; or name yours with --data"
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
    """Messages are in the file unencrypted: no other user may read it."""
    if found := open_to_others(folder):
        says = f"others on this machine can read or change {', '.join(map(str, found))}"
        yield Finding("wrong", "privacy", says, f"chmod 700 {folder}")
    else:
        yield Finding("ok", "privacy", "only its owner can read it")


def _space(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    used = sum(path.stat().st_size for path in folder.glob(f"{DATABASE_NAME}*"))
    says = f"{free / MIB:,.0f} MiB free, {used / MIB:,.0f} MiB used by the store"
    if free < FREE_BYTES_MIN:
        return Finding("wrong", "disk", says, "free some space: with a full disk, every send is refused")
    return Finding("look" if free < FREE_BYTES_LOW else "ok", "disk", says)


def _sync(folder: Path) -> Finding:
    try:
        median = _sync_ms(folder)
    except OSError as error:
        says = f"a file of 4 KiB cannot be written: {error.strerror}"
        return Finding(
            "wrong", "disk sync", says, "free some space, or look at the system's log: every send is refused"
        )
    says = f"{median:.2f} ms to make a write durable (median of {SYNCS_MEASURED})"
    if median > SYNC_MS_HIGH:
        return Finding(
            "look", "disk sync", says, "every commit waits this long; a local SSD takes under 2 ms"
        )
    if median < SYNC_MS_BELIEVABLE:
        return Finding(
            "look", "disk sync", says, "too fast for a real disk: a power failure may lose messages"
        )
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
    if not place.is_shared and not place.is_accessible:
        return
    if place.is_shared or place.has_store:
        yield from asyncio.run(_all(_diagnose(place)))
    elif place.folder.is_dir():
        yield Finding("look", "store", "none yet", f"parley serve --data {place.folder} creates one")


async def _all(findings: AsyncIterator[Finding]) -> list[Finding]:
    return [finding async for finding in findings]


async def _diagnose(place: Place) -> AsyncIterator[Finding]:
    """What the engine of the place says, whichever it is."""
    try:
        engine = make_offline_engine(place)
        try:
            async for finding in engine.diagnose():
                yield finding
        finally:
            await engine.close()
    except ParleyError as error:
        yield Finding("wrong", "store", explain(error), UNUSABLE)


# Services that nodes share


def _services(place: Place) -> Iterator[Finding]:
    from parley.cli.doctor_services import examine_services

    yield from asyncio.run(examine_services(place.settings))


# The server


def _exposure(place: Place) -> Iterator[Finding]:
    """What the configuration of this command would open; a running server may have another."""
    for risk in risks(place.settings):
        yield Finding("look", "exposure", *risk.split("; ", 1))


def _server(place: Place, url: str | None, ca: str | None) -> Iterator[Finding]:
    if url is None and not place.is_accessible:
        says = f"unknown: this user cannot enter {place.folder}"
        yield Finding("look", "server", says, "name its address with --url")
        return
    process = place.server_process() if place.is_accessible else None
    if process is not None:
        yield Finding("ok", "server", f"runs on this folder (process {process})")
    elif url is None:
        yield Finding("look", "server", "none runs on this folder", place.how_to_serve())
        return
    yield from asyncio.run(_ask(url or place.server_url(), ca))


async def _ask(url: str, ca: str | None) -> list[Finding]:
    try:
        async with open_http(ca, ANSWER_SECONDS_MAX) as http:
            async with http.get(f"{url}/readyz") as answer:
                why = "" if answer.status == 200 else await answer.text()
                findings = [_readiness(url, answer.status, why), *_clock_of(answer.headers.get("Date"))]
            async with http.get(f"{url}/metrics") as answer:
                is_told = answer.status == 200  # to this machine, unless the server is exposed
                metrics = await answer.text() if is_told else ""
                return [*findings, *damage_in(metrics), *webhooks_in(metrics), *_jobs_in(metrics)]
    except (aiohttp.ClientError, OSError, ValueError) as error:
        says = f"{url} does not answer: {str(error) or type(error).__name__}"
        return [Finding("wrong", "address", says, "check --url, and firewalls in between")]


def damage_in(metrics: str) -> Iterator[Finding]:
    """Places that one server has found damaged since its start, by its metrics."""
    from prometheus_client.parser import text_string_to_metric_families

    for family in text_string_to_metric_families(metrics):
        if family.name == STORE_DAMAGED and (count := sum(sample.value for sample in family.samples)):
            says = f"the server met damage in {count:.0f} places; its log names them"
            yield Finding("wrong", "damage", says, MEND)


def webhooks_in(metrics: str) -> Iterator[Finding]:
    """Webhooks that do not answer one server, by its metrics."""
    from prometheus_client.parser import text_string_to_metric_families

    for family in text_string_to_metric_families(metrics):
        if family.name == WEBHOOKS_PAUSED and (count := sum(sample.value for sample in family.samples)):
            says = f"{count:.0f} do not answer and are paused"
            yield Finding("look", "webhooks", says, "parley webhook list shows which, and since when")


def _jobs_in(metrics: str) -> Iterator[Finding]:
    """The jobs of one server that fail or are late, by its metrics."""
    from prometheus_client.parser import text_string_to_metric_families

    values = {
        (sample.name, sample.labels["job"]): sample.value
        for family in text_string_to_metric_families(metrics)
        if family.name in (OVERDUE, FAILING)
        for sample in family.samples
    }
    names = [job for name, job in values if name == OVERDUE]
    overdue = [job for job in names if values[OVERDUE, job]]
    failing = [job for job in names if values.get((FAILING, job)) and job not in overdue]
    yield from job_findings(len(names), overdue, failing)


def job_findings(count: int, overdue: list[str], failing: list[str]) -> Iterator[Finding]:
    """What to say of so many jobs."""
    remedy = "parley jobs list --as OPERATOR shows the errors"
    if overdue:
        yield Finding("wrong", "jobs", f"not successful for several intervals: {', '.join(overdue)}", remedy)
    if failing:
        yield Finding("look", "jobs", f"failing, and tried again: {', '.join(failing)}", remedy)
    if count and not overdue and not failing:
        yield Finding("ok", "jobs", f"{count} run, none fails")


def _readiness(url: str, status: int, why: str) -> Finding:
    if status == 200:
        return Finding("ok", "address", f"{url} is ready")
    says = f"{url} is not ready (HTTP status {status}) {printable(why)[:REASON_CHARS_MAX]}".rstrip()
    return Finding("wrong", "address", says, "its log says why")


def _clock_of(date: str | None) -> Iterator[Finding]:
    if date is None:
        return
    off_ms = int(parsedate_to_datetime(date).timestamp() * 1000) - wall_clock()
    if abs(off_ms) > CLOCK_MS_OFF_MAX:
        says = f"the server's clock differs from this machine's by {off_ms / 1000:.0f} s"
        yield Finding("wrong", "clock", says, "synchronise both with NTP")
    else:
        yield Finding("ok", "clock", "the server's and this machine's agree")
