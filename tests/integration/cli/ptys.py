"""A command on a terminal of its own, and what a person would see there."""

import asyncio
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.harness.server import ServerProcess, parley_command
from tests.integration.cli.running import clean_environment
from tests.unit.cli.terminal import Terminal
from tests.waiting import deadline, stretched

COLUMNS, ROWS = 80, 24
SEEN_SECONDS_MAX = 30.0
UNSET_FOR_COMMANDS = ("COLUMNS", "LINES", "NO_COLOR")


class Window:
    """The command's screen."""

    def __init__(self, descriptor: int, process: "subprocess.Popen[bytes]") -> None:
        self._descriptor = descriptor
        self.process = process
        self.written = b""

    @property
    def lines(self) -> list[str]:
        terminal = Terminal(COLUMNS, ROWS)
        terminal.write(self.written.decode(errors="ignore"))
        return terminal.text

    async def shows(self, ending: str) -> None:
        """Watch it until a line ends so."""
        await self.until(lambda lines: any(line.endswith(ending) for line in lines))

    async def ends_with(self, beginning: str) -> None:
        """Watch it until the line under all others begins so."""
        await self.until(lambda lines: lines[-1].startswith(beginning))

    async def until(self, holds: Callable[[list[str]], bool]) -> None:
        """Watch it until it looks so."""
        loop = asyncio.get_running_loop()
        async with deadline(SEEN_SECONDS_MAX):
            while not holds(self.lines):
                readable = asyncio.Event()
                loop.add_reader(self._descriptor, readable.set)
                try:
                    await readable.wait()
                finally:
                    loop.remove_reader(self._descriptor)
                self.written += os.read(self._descriptor, 65_536)

    def interrupt(self) -> int:
        """What Ctrl-C does; the exit status. If it goes on, what it is at is told."""
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(stretched(SEEN_SECONDS_MAX))
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()
            at = os.read(self._descriptor, 65_536).decode(errors="replace")
            raise AssertionError(f"Ctrl-C did not end it:\n{at}") from None


@contextmanager
def window(server: ServerProcess, *arguments: str) -> Iterator[Window]:
    """A `parley` command with a terminal on all of its streams."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = clean_environment(
        {"PARLEY_DATA": str(server.data), "TERM": "xterm", "PYTHONFAULTHANDLER": "1"}
    )
    for name in UNSET_FOR_COMMANDS:
        environment.pop(name, None)
    process = subprocess.Popen(
        [*parley_command(), *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        preexec_fn=_hear_interrupts,
    )
    os.close(theirs)
    try:
        yield Window(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _hear_interrupts() -> None:
    """Who runs the tests in the background of a script has Ctrl-C ignored, in all that follows too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
