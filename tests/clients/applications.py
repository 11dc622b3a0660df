"""Applications that use the SDK in TypeScript as it is published: compiled, and run by Node."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.harness.server import Lines
from tests.node import FOLDER, MODULES, build, node_tool
from tests.waiting import stretched

INSTALLED = ("ws", "react", "react-dom", "@types/node", "@types/react", "@types/react-dom", "@types/ws")
SETTINGS = {
    "strict": True,
    "exactOptionalPropertyTypes": True,
    "target": "ES2022",
    "module": "nodenext",
    "lib": ["ES2023", "DOM", "DOM.AsyncIterable"],
    "types": ["node"],
    "jsx": "react-jsx",
    "outDir": "out",
}
LINE_SECONDS_MAX = 30.0


class Application:
    """A folder in which the SDK is installed, with some code."""

    def __init__(self, folder: Path) -> None:
        build()
        self.folder = folder
        self._link("parley-chat", FOLDER)
        for name in INSTALLED:
            self._link(name, MODULES / name)
        (folder / "package.json").write_text('{ "type": "module" }', encoding="utf-8")
        settings = {"compilerOptions": SETTINGS, "exclude": ["out", "node_modules"]}
        (folder / "tsconfig.json").write_text(json.dumps(settings), encoding="utf-8")

    def _link(self, name: str, target: Path) -> None:
        place = self.folder / "node_modules" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target, target_is_directory=True)

    def write(self, name: str, code: str) -> None:
        (self.folder / name).write_text(code, encoding="utf-8")

    def compile(self) -> None:
        """Check every file, types of the SDK included, and write JavaScript."""
        done = node_tool("tsc", "--pretty", "false", "--project", str(self.folder))
        if done.returncode:
            pytest.fail(done.stdout, pytrace=False)

    @contextmanager
    def running(self, name: str, env: Mapping[str, str] | None = None) -> Iterator[Running]:
        """Run a module that was compiled; it is killed at the end of the block."""
        process = subprocess.Popen(
            ["node", str(self.folder / "out" / name)],
            cwd=self.folder,
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        lines = Lines(process.stdout)
        try:
            yield Running(process, lines)
        finally:
            process.kill()
            process.wait()
            lines.join()


class Running(NamedTuple):
    process: subprocess.Popen[str]
    lines: Lines

    def until(self, text: str) -> str:
        """The first line with this text. The test fails when there is none in time."""
        line = self.lines.wait_for(lambda said: text in said, LINE_SECONDS_MAX)
        if line is None:
            pytest.fail(f"no line with {text!r}:\n" + "\n".join(self.lines.all()), pytrace=False)
        return line

    def ended(self) -> int:
        """Its exit code, once it has ended by itself."""
        return self.process.wait(stretched(LINE_SECONDS_MAX))
