"""Chromium, in which pages are tested: from a package of Debian or Ubuntu, with what it needs, without root.

A Chromium on the PATH is used as it is. Otherwise the package and those of its libraries that this machine
lacks are unpacked into one folder, beside a script that starts it with them.
"""

import re
import shutil
import subprocess
from pathlib import Path

from ops.local_services.cache import fetched
from ops.local_services.faults import ServiceError
from ops.local_services.fetching import fetch_all_by_apt
from ops.local_services.service import Say

NAME = "chromium"
TITLE = "Chromium"
VERSION_MIN = 120
FONTS = """<?xml version="1.0"?>
<fontconfig>
  <include ignore_missing="yes">/etc/fonts/fonts.conf</include>
  <dir prefix="relative">usr/share/fonts</dir>
</fontconfig>
"""
SCRIPT = """#!/bin/sh
here=${{0%/*}}
LD_LIBRARY_PATH="{libraries}" FONTCONFIG_FILE="$here/fonts.conf" exec "$here/usr/lib/chromium/chromium" "$@"
"""


def program(say: Say) -> Path:
    """Its path: on the PATH, or fetched."""
    for name in (NAME, "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found is not None:
            check_version(Path(found))
            return Path(found)
    try:
        folder = fetched(f"{NAME}-{VERSION_MIN}", lambda into: _fetch(into, say), say)
    except ServiceError as failure:
        raise ServiceError(f"{failure} Or install one.") from failure
    return folder / NAME


def check_version(found: Path) -> None:
    """ServiceError if it does not run on this machine, or is too old."""
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    number = re.search(r"(\d+)\.\d+\.\d+", said.stdout)
    if number is None:
        raise ServiceError(f"{found} does not run on this machine: {said.stderr.strip()}")
    if int(number[1]) < VERSION_MIN:
        raise ServiceError(f"{found} is {number[1]}, but {VERSION_MIN} is needed.")


def _fetch(into: Path, say: Say) -> None:
    say("fetching Chromium by apt, about 120 MB")
    fetch_all_by_apt(NAME, into, say)
    folders = {file.parent.relative_to(into) for file in (into / "usr" / "lib").rglob("*.so*")}
    libraries = ":".join(f"$here/{folder}" for folder in sorted(folders))
    script = into / NAME
    script.write_text(SCRIPT.format(libraries=libraries), encoding="utf-8")
    script.chmod(0o755)
    (into / "fonts.conf").write_text(FONTS, encoding="utf-8")
    check_version(script)
