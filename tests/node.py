"""Node for the clients in TypeScript: what a test or `make check` runs in each of them.

    npm("test")                               # a script of package.json; the test fails if it does
    npm("test", folder=WEB)                   # of another client
    build()                                   # dist/, once for each state of the sources
    python -m tests.node run check            # the same for make, in every client

Tools are installed by `npm ci`, once for each lock file. Without Node a test is skipped; with `CI=true` it
fails.
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ops import node_builds
from ops.node_builds import ROOT, install, version_of, why_not
from tests.services import in_ci, missing_note, unavailable

__all__ = ["ROOT", "build", "install", "node_tool", "npm", "version_of", "why_not"]

FOLDER, WEB, CONSOLE = node_builds.SDK, node_builds.WEB, node_builds.CONSOLE
CLIENTS = (FOLDER, *node_builds.PAGES)
MODULES = FOLDER / "node_modules"
NAME = "node"


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
    return node_builds.run([str(own) if own.exists() else name, *words], folder, env)


def play(story: str, browser: Path, folder: Path) -> None:
    """Every test of a file in `test/pages` passes, in Chromium and on a real server."""
    env = {"CHROMIUM": str(browser), "PARLEY_COMMAND": str(ROOT / ".venv/bin/parley")}
    npm("run", "test:pages", "--", f"test/pages/{story}", env=env, folder=folder)


def build(folder: Path = FOLDER) -> None:
    """Make `dist` of the sources, unless that is done. The test is skipped without Node."""
    node_tool("npm", "--version", folder=folder)
    node_builds.build(folder)


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
