"""Tests of the SDK in TypeScript in one copy of the tree, and what came of each."""

import os
import re
import signal
import subprocess
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from ops import node_builds
from tests.mutants.copies import Copy
from tests.mutants.phases import Phase

SDK = node_builds.SDK.relative_to(node_builds.ROOT)
NAMED = re.compile(r"\w*Error|Closed|CannotConnect|BadToken|RequestRefused|ReadElsewhere|OutboxFull")
"""How the message of a failure begins: with the error's name."""
UNREADABLE = 78
"""The exit status for a file of tests that does not load: nothing in it was run."""


class Ended(Struct, rename="camel"):
    title: str
    status: str
    duration: float = 0
    failure_messages: list[str] = []


class File(Struct, rename="camel"):
    name: str
    status: str
    assertion_results: list[Ended]
    message: str = ""


class Report(Struct, rename="camel"):
    test_results: list[File]


def run_vitest(copy: Copy, tests: Sequence[str], seconds_max: float) -> tuple[int, str, list[Phase]]:
    """Vitest's exit status and words, and how each of these ended; TimeoutError when it does not end."""
    folder = copy.folder / SDK
    modules, report = folder / "node_modules", copy.folder.with_suffix(".vitest")
    if not modules.exists():
        modules.symlink_to(node_builds.SDK / "node_modules")
    report.unlink(missing_ok=True)
    wanted = {tuple(test.split("::", 1)) for test in tests}
    titles = "|".join(sorted(re.escape(title) for _, title in wanted))
    files = sorted({path.removeprefix(f"{SDK}/") for path, _ in wanted})
    command = [str(modules / ".bin/vitest"), "run", *files, "-t", f"(^| )({titles})$"]
    process = subprocess.Popen(
        [*command, "--reporter=json", f"--outputFile={report}"],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise TimeoutError(f"it did not end in {seconds_max:.0f} s") from error
    if not report.exists():
        return process.returncode, output, []
    found = msgspec.json.decode(report.read_bytes(), type=Report).test_results
    every = [(file, one) for file in found for one in file.assertion_results]
    named = [(f"{file.name.removeprefix(f'{copy.folder}/')}::{one.title}", one) for file, one in every]
    phases = [phase_of(test, one) for test, one in named if test in tests]
    unread = [file.message for file in found if file.status == "failed" and not file.assertion_results]
    said = [output, *(message for _, one in every for message in one.failure_messages), *unread]
    return UNREADABLE if unread else process.returncode, "\n".join(said), phases


def phase_of(test: str, one: Ended) -> Phase:
    errors = [f"vitest.{name_of(message)}" for message in one.failure_messages]
    return Phase(test, "call", one.status, one.duration / 1000, errors)


def name_of(message: str) -> str:
    """The name of the error that a message of Vitest begins with."""
    return found[0] if (found := NAMED.match(message)) else "unknown"
