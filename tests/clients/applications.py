"""Applications that use the SDK in TypeScript as it is published: compiled, and run by Node."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue

import pytest

from tests.node import FOLDER, MODULES, build, node_tool

INSTALLED = ("ws", "react", "react-dom", "@types/node", "@types/react", "@types/ws")
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
    def running(self, name: str, env: Mapping[str, str] | None = None) -> Iterator[Output]:
        """Run a module that was compiled; it is killed at the end of the block."""
        process = subprocess.Popen(
            ["node", str(self.folder / "out" / name)],
            cwd=self.folder,
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        output = Output(process)
        try:
            yield output
        finally:
            process.kill()
            output.close()


class Output:
    """The lines of a process, as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines = Queue[str | None]()
        self.seen: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def until(self, text: str) -> str:
        """The next line with this text. The test fails when there is none in time, or the process ends."""
        while True:
            try:
                line = self._lines.get(timeout=LINE_SECONDS_MAX)
            except Empty:
                line = None
            if line is None:
                pytest.fail(f"no line with {text!r}:\n" + "\n".join(self.seen), pytrace=False)
            self.seen.append(line)
            if text in line:
                return line

    def ended(self) -> int:
        """Its exit code, once it has ended by itself."""
        return self._process.wait(LINE_SECONDS_MAX)

    def close(self) -> None:
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
