"""The clients in TypeScript, made by Node: what `make run`, the wheel and the tests share.

Tools are installed by `npm ci`, once for each lock file; a `dist` is made once for each state of its sources.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SDK, WEB, CONSOLE = (ROOT / "clients" / name for name in ("typescript", "web", "console"))
PAGES = (WEB, CONSOLE)
PAGE_SOURCES = (
    "src/**/*",
    "public/**/*",
    "*.json",
    "*.ts",
    "index.html",
    "../typescript/src/**/*",
    "../ui/src/**/*",
    "../ui/*.ts",
)
SOURCES = {
    SDK: ("src/**/*", "tsconfig*.json"),
    WEB: PAGE_SOURCES,
    CONSOLE: PAGE_SOURCES,
}
"""What the `dist` of each is made of."""
PINS = ("package.json", "package-lock.json", ".npmrc")
VERSION_MIN = (20, 19)
INSTALL = ("ci", "--no-audit", "--no-fund", "--loglevel=error")


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


def install(folder: Path) -> None:
    """Install exactly what the lock file names, unless that is done."""
    with _locked(folder):
        _once(folder, ".installed", [folder / name for name in PINS], "npm", *INSTALL)


def build(folder: Path) -> None:
    """Make `dist` of the sources, unless that is done."""
    install(folder)
    with _locked(folder):
        if not (folder / "dist").exists():
            (folder / "node_modules/.built").unlink(missing_ok=True)
        sources = {path for pattern in SOURCES[folder] for path in folder.glob(pattern) if path.is_file()}
        _once(folder, ".built", [folder / "node_modules/.installed", *sorted(sources)], "npm", "run", "build")


def compress(folder: Path) -> None:
    """Put a compressed file beside each file of `dist` that gains by it, unless that is done."""
    with _locked(folder):
        if not (folder / "dist/index.html.gz").exists():
            _checked(["node", str(ROOT / "ops/compress.mjs"), str(folder / "dist")], folder)


def _once(folder: Path, stamp_name: str, made_of: Sequence[Path], *command: str) -> None:
    """Run a command unless it was run for exactly these files."""
    stamp = folder / "node_modules" / stamp_name
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in made_of)).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="ascii") == wanted:
        return
    _checked(list(command), folder)
    stamp.write_text(wanted, encoding="ascii")


def _checked(command: list[str], folder: Path) -> None:
    done = run(command, folder)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed\n{done.stdout}")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Those who build at the same time take turns: `npm ci` begins by removing what is there."""
    with (folder / ".npmrc").open(encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(
    command: list[str], folder: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1", **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
