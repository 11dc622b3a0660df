"""promtool, which checks and tests the alerts of `ops/alerts.yml`: from a package of Debian or Ubuntu.

It is not published for pip, npm or Maven, and building it needs 1.5 GB of Go modules. The package is
downloaded and unpacked without root, so its version is that of the distribution: `VERSION_MIN` is the oldest
tested one.
"""

import re
import shutil
import subprocess
from pathlib import Path

from ops.local_services.cache import fetched
from ops.local_services.faults import ServiceError
from ops.local_services.fetching import fetch_by_apt
from ops.local_services.service import Say

NAME = "promtool"
TITLE = "promtool"
VERSION_MIN = (2, 42)
PACKAGES = ("promtool", "prometheus")
"""Newer distributions have it in a package of its own."""


def program(say: Say) -> Path:
    """Its path, fetched if necessary; otherwise one on the PATH."""
    try:
        folder = fetched(f"{NAME}-{'.'.join(map(str, VERSION_MIN))}", lambda into: _fetch(into, say), say)
        return folder / NAME
    except ServiceError as failure:
        found = shutil.which(NAME)
        if found is None:
            raise ServiceError(f"{failure} Or install one (it is part of Prometheus).") from failure
        check_version(Path(found))
        say(f"using {found} instead: {failure}")
        return Path(found)


def check_version(found: Path) -> None:
    """ServiceError if it does not run on this machine, or is too old for the rules."""
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    number = re.search(r"version (\d+)\.(\d+)", said.stdout + said.stderr)
    if number is None:
        raise ServiceError(f"{found} does not run on this machine: {said.stderr.strip()}")
    if (int(number[1]), int(number[2])) < VERSION_MIN:
        raise ServiceError(
            f"{found} is {number[1]}.{number[2]}, but {VERSION_MIN[0]}.{VERSION_MIN[1]} is needed."
        )


def _fetch(into: Path, say: Say) -> None:
    say("fetching promtool by apt, about 40 MB")
    unpacked = into / "unpacked"
    fetch_by_apt(PACKAGES, unpacked, say)
    found = unpacked / "usr" / "bin" / NAME
    if not found.is_file():
        raise ServiceError("The package of Prometheus has no promtool.")
    check_version(found)
    found.rename(into / NAME)
    shutil.rmtree(unpacked)
