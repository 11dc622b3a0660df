"""Running commands, and a server beside them."""

import ctypes
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.harness.server import parley_command, run_command
from tests.waiting import stretched

COMMAND_SECONDS_MAX = 40.0
PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2


class Run:
    """A command that has ended."""

    def __init__(self, process: subprocess.CompletedProcess[str]) -> None:
        self.status = process.returncode
        self.stdout = process.stdout
        self.stderr = process.stderr

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without what a developer may have set for Parley."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PARLEY_")}
    return {**kept, **(extra or {})}


def parley(
    *arguments: str, data: Path | None = None, given: str = "", environment: Mapping[str, str] | None = None
) -> Run:
    """Run a command on a data folder, with this on its stdin."""
    return Run(
        run_command(
            [*parley_command(), *arguments],
            environment=_environment_on(data, environment),
            timeout_seconds=COMMAND_SECONDS_MAX,
            given=given,
        )
    )


def parley_without_privileges(*arguments: str, data: Path) -> Run:
    """The same for a user whom file permissions can stop, also where the tests run as root."""
    process = subprocess.run(
        [*parley_command(), *arguments],
        capture_output=True,
        text=True,
        timeout=stretched(COMMAND_SECONDS_MAX),
        check=False,
        env=_environment_on(data, None),
        preexec_fn=_obey_permissions if os.geteuid() == 0 else None,
    )
    return Run(process)


def _environment_on(data: Path | None, environment: Mapping[str, str] | None) -> dict[str, str]:
    where = {"PARLEY_DATA": str(data)} if data is not None else {}
    return clean_environment({**where, **(environment or {})})


def _obey_permissions() -> None:
    """Whoever runs the tests as root would otherwise never be refused a file."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        if prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "cannot give up a capability")


def succeed(*arguments: str, data: Path | None = None, given: str = "") -> Run:
    """The same, and it must work."""
    run = parley(*arguments, data=data, given=given)
    assert run.status == 0, run.stderr
    return run
