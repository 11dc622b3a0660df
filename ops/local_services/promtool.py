"""promtool, which checks and tries the alerts of `ops/alerts.yml`: from a package of Debian or Ubuntu.

Nobody publishes it by pip, npm or Maven, and building it takes 1.5 GB of Go modules. A package is fetched and
unpacked without root, so its version is that of the distribution: `VERSION_MIN` is the oldest that was tried.
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
    """Where it is, fetched if it was not before; else one that is on the PATH."""
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
    """Refuse one that does not run here, or is too old to understand the rules."""
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    number = re.search(r"version (\d+)\.(\d+)", said.stdout + said.stderr)
    if number is None:
        raise ServiceError(f"{found} does not run on this machine: {said.stderr.strip()}")
    if (int(number[1]), int(number[2])) < VERSION_MIN:
        raise ServiceError(
            f"{found} is {number[1]}.{number[2]}, and {VERSION_MIN[0]}.{VERSION_MIN[1]} is needed."
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
