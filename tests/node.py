"""Node for the clients in TypeScript: what a test or `make check` runs in `clients/typescript`.

    npm("test")                               # a script of package.json; the test fails if it does
    build()                                   # dist/, once for each state of the sources
    python -m tests.node run check            # the same for make

Tools are installed by `npm ci`, once for each lock file. Without Node a test is skipped; with `CI=true` it
fails.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.services import in_ci, missing_note, unavailable

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "clients/typescript"
MODULES = FOLDER / "node_modules"
STAMP = MODULES / ".installed"
BUILT = MODULES / ".built"
PINS = ("package.json", "package-lock.json", ".npmrc")
NAME = "node"
VERSION_MIN = (20, 19)
INSTALL = ("ci", "--no-audit", "--no-fund", "--loglevel=error")


def npm(*words: str, env: Mapping[str, str] | None = None) -> str:
    """What npm writes. The test fails if npm does, and is skipped without Node."""
    done = node_tool("npm", *words, env=env)
    if done.returncode:
        pytest.fail(f"npm {' '.join(words)}\n{done.stdout}", pytrace=False)
    return done.stdout


def node_tool(
    name: str, *words: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What a tool of the package comes to, good or bad. The test is skipped without Node."""
    if reason := why_not():
        missing_note(NAME).parent.mkdir(parents=True, exist_ok=True)
        missing_note(NAME).write_text(reason, encoding="utf-8")
        unavailable(NAME, reason)
    install()
    own = MODULES / ".bin" / name
    return _run([str(own) if own.exists() else name, *words], env)


@cache
def why_not() -> str | None:
    """Why nothing can be run here; None if it can."""
    wanted = ".".join(map(str, VERSION_MIN))
    if shutil.which("node") is None or shutil.which("npm") is None:
        return f"Node {wanted} or newer is not on the PATH, or npm is not"
    found = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return None if version_of(found) >= VERSION_MIN else f"Node is {found}, and {wanted} is needed"


def version_of(text: str) -> tuple[int, int]:
    """`v20.19.4` is (20, 19)."""
    major, minor = re.findall(r"\d+", text)[:2]
    return int(major), int(minor)


def install() -> None:
    """Install exactly what the lock file names, unless that is done."""
    with _locked():
        _once(STAMP, [FOLDER / name for name in PINS], "npm", *INSTALL)


def build() -> None:
    """Make `dist` of the sources, unless that is done. The test is skipped without Node."""
    node_tool("npm", "--version")
    with _locked():
        sources = [*FOLDER.glob("src/**/*"), *FOLDER.glob("tsconfig*.json"), STAMP]
        _once(BUILT, sorted(path for path in sources if path.is_file()), "npm", "run", "build")


def _once(stamp: Path, made_of: Sequence[Path], *command: str) -> None:
    """Run a command unless it was run for exactly these files."""
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in made_of)).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="ascii") == wanted:
        return
    done = _run([*command], None)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed\n{done.stdout}")
    stamp.write_text(wanted, encoding="ascii")


@contextmanager
def _locked() -> Iterator[None]:
    """Workers of one run take turns: `npm ci` begins by removing what is there."""
    with (FOLDER / ".npmrc").open(encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(command: list[str], env: Mapping[str, str] | None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=FOLDER,
        env={**os.environ, "NO_COLOR": "1", **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def main() -> int:
    """One npm command; without Node it is left out, loudly."""
    if reason := why_not():
        print(f"\n*** {reason}: the TypeScript SDK is NOT checked. ***\n", file=sys.stderr)
        return 1 if in_ci() else 0
    install()
    return subprocess.run(["npm", *sys.argv[1:]], cwd=FOLDER, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
