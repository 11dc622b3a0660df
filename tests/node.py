"""Node for the clients in TypeScript: what a test or `make check` runs in each of them.

    npm("test")                               # a script of package.json; the test fails if it does
    npm("test", folder=WEB)                   # of another client
    build()                                   # dist/, once for each state of the sources
    python -m tests.node run check            # the same for make, in every client

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
WEB = ROOT / "clients/web"
CLIENTS = (FOLDER, WEB)
MODULES = FOLDER / "node_modules"
SOURCES = {
    FOLDER: ("src/**/*", "tsconfig*.json"),
    WEB: ("src/**/*", "public/**/*", "tools/*", "*.json", "*.ts", "index.html", "../typescript/src/**/*"),
}
"""What the `dist` of each is made of."""
PINS = ("package.json", "package-lock.json", ".npmrc")
NAME = "node"
VERSION_MIN = (20, 19)
INSTALL = ("ci", "--no-audit", "--no-fund", "--loglevel=error")


def npm(*words: str, env: Mapping[str, str] | None = None, folder: Path = FOLDER) -> str:
    """What npm writes. The test fails if npm does, and is skipped without Node."""
    done = node_tool("npm", *words, env=env, folder=folder)
    if done.returncode:
        pytest.fail(f"npm {' '.join(words)}\n{done.stdout}", pytrace=False)
    return done.stdout


def node_tool(
    name: str, *words: str, env: Mapping[str, str] | None = None, folder: Path = FOLDER
) -> subprocess.CompletedProcess[str]:
    """What a tool of the package comes to, good or bad. The test is skipped without Node."""
    if reason := why_not():
        missing_note(NAME).parent.mkdir(parents=True, exist_ok=True)
        missing_note(NAME).write_text(reason, encoding="utf-8")
        unavailable(NAME, reason)
    install(folder)
    own = folder / "node_modules/.bin" / name
    return _run([str(own) if own.exists() else name, *words], env, folder)


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


def install(folder: Path = FOLDER) -> None:
    """Install exactly what the lock file names, unless that is done."""
    with _locked(folder):
        _once(folder, ".installed", [folder / name for name in PINS], "npm", *INSTALL)


def build(folder: Path = FOLDER) -> None:
    """Make `dist` of the sources, unless that is done. The test is skipped without Node."""
    node_tool("npm", "--version", folder=folder)
    with _locked(folder):
        sources = {path for pattern in SOURCES[folder] for path in folder.glob(pattern) if path.is_file()}
        _once(folder, ".built", [folder / "node_modules/.installed", *sorted(sources)], "npm", "run", "build")


def _once(folder: Path, stamp_name: str, made_of: Sequence[Path], *command: str) -> None:
    """Run a command unless it was run for exactly these files."""
    stamp = folder / "node_modules" / stamp_name
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in made_of)).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="ascii") == wanted:
        return
    done = _run([*command], None, folder)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed\n{done.stdout}")
    stamp.write_text(wanted, encoding="ascii")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Workers of one run take turns: `npm ci` begins by removing what is there."""
    with (folder / ".npmrc").open(encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(command: list[str], env: Mapping[str, str] | None, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1", **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def main() -> int:
    """One npm command in every client; without Node it is left out, loudly."""
    if reason := why_not():
        print(f"\n*** {reason}: the clients in TypeScript are NOT checked. ***\n", file=sys.stderr)
        return 1 if in_ci() else 0
    for folder in CLIENTS:
        install(folder)
        if code := subprocess.run(["npm", *sys.argv[1:]], cwd=folder, check=False).returncode:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
