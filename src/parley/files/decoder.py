"""Images are looked at by processes of their own, which end when they take too much. See docs/attachments.md.

The images of one person wait for each other, those of several people take turns.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import AbstractAsyncContextManager, suppress

import structlog

from parley.core.images import ImageFacts, begins_as_image, is_webp, last_told
from parley.errors import BUSY, SHUTTING_DOWN, Refused
from parley.files.images import DECODE_SECONDS_MAX, WHOLE
from parley.files.turns import FairTurns
from parley.wire.limits import MIB

DECODERS_AT_ONCE_MAX = 2
"""On one node; one of a person, whose images never take all."""
PICTURE_BYTES_MAX = 2 * MIB
"""Of a smaller picture; one of 960 pixels has a tenth of it."""
TOLD_BYTES_MAX = 8_192
"""All that a process tells fits into it."""
COMMAND = (sys.executable, "-P", "-s", "-m", "parley.files.images")

log = structlog.get_logger("parley.files")


class ImageDecoder:
    """`command`: what is run for one image."""

    def __init__(self, command: tuple[str, ...] = COMMAND) -> None:
        self._command = command
        self._turns = FairTurns(DECODERS_AT_ONCE_MAX)
        self.processes: set[Process] = set()
        self._is_closed = False

    def turn(self, person: str) -> AbstractAsyncContextManager[None]:
        """Inside, this person may look at one image."""
        return self._turns.turn(person)

    async def look(self, data: bytes, *, is_whole: bool) -> ImageFacts | None:
        """What is in a file, or in its beginning; None if that is no image.

        Without a preview if that would take too much time or memory. Refused if no process can be started
        now, and once it is closed.
        """
        if not begins_as_image(data):
            return None
        told, _ = await self._run(data, TOLD_BYTES_MAX, *([WHOLE] if is_whole else []))
        return last_told(told)

    async def shrink(self, data: bytes, side: int) -> bytes | None:
        """A smaller picture of a whole image; None if that would take too much, or there is none.

        Refused as `look` is.
        """
        if not begins_as_image(data):
            return None
        picture, is_done = await self._run(data, PICTURE_BYTES_MAX, str(side))
        return picture if is_done and is_webp(picture) else None

    async def _run(self, data: bytes, most: int, *arguments: str) -> tuple[bytes, bool]:
        """What a process tells of an image, and whether it ended by itself."""
        process = await self._start(*arguments)
        self.processes.add(process)
        told = bytearray()
        try:
            async with asyncio.timeout(DECODE_SECONDS_MAX):
                await _ask(process, data, told, most)
                if len(told) <= most:
                    await process.wait()
        except TimeoutError:
            pass  # it has told what it knew by then
        finally:
            self.processes.discard(process)
            _kill(process)
            await process.communicate()  # what it left unread would keep its pipe open
        if self._is_closed:
            raise Refused(SHUTTING_DOWN)
        if process.returncode:
            log.info("an image took too much, or broke its decoder", status=process.returncode)
        return bytes(told), process.returncode == 0 and len(told) <= most

    async def _start(self, *arguments: str) -> Process:
        """It gets nothing of the environment: there are secrets in it."""
        if self._is_closed:
            raise Refused(SHUTTING_DOWN)
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        try:
            return await asyncio.create_subprocess_exec(
                *self._command, *arguments, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment
            )
        except OSError as error:  # no memory, or too many processes
            log.warning("no process for an image could be started", error=str(error))
            raise Refused(BUSY) from error

    def close(self) -> None:
        """Every process ends now, and whoever waits for one is refused."""
        self._is_closed = True
        self._turns.close()
        for process in self.processes:
            _kill(process)


async def _ask(process: Process, data: bytes, told: bytearray, most: int) -> None:
    """Give a process the bytes, and read what it tells until it ends or tells more than it may."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(ConnectionError):  # it has ended
        for start in range(0, len(data), MIB):
            process.stdin.write(data[start : start + MIB])
            await process.stdin.drain()
        process.stdin.close()
    while (rest := most + 1 - len(told)) > 0 and (some := await process.stdout.read(rest)):
        told += some


def _kill(process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
