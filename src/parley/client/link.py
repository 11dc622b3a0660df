"""The shell around the engine: dials, reads, writes, saves and waits, and decides nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

from aiohttp import WSCloseCode

from parley.client.engine import Engine, Event
from parley.client.errors import CannotConnect, ClientError
from parley.client.keeping import Changes, Keeper
from parley.client.line import Ended, Line
from parley.client.timing import Timing, backoff_ms
from parley.clock import Clock
from parley.wire.codec import NotAFrame
from parley.wire.frames import Welcome

log = logging.getLogger("parley.client")

Dial = Callable[[], Awaitable[tuple[Line, Welcome]]]


class Link:
    """Keeps the engine connected until it is stopped or coming back cannot help."""

    def __init__(
        self,
        engine: Engine,
        dial: Dial,
        keeper: Keeper,
        executor: Executor,
        timing: Timing,
        clock: Clock,
        chance: Callable[[], float],
        tell: Callable[[list[Event]], None],
    ) -> None:
        self._engine = engine
        self._dial = dial
        self._keeper = keeper
        self._executor = executor
        self._timing = timing
        self._clock = clock
        self._chance = chance
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._line: Line | None = None
        self._poked = asyncio.Event()
        self._saving: asyncio.Task[None] | None = None
        self._pumping: asyncio.Task[None] | None = None
        self.welcomed = asyncio.Event()

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def poke(self) -> None:
        """The engine may have something to do."""
        self._poked.set()

    async def run(self, *, patient: bool) -> None:
        """Only ends by an error. Unless `patient`, the first attempt to connect must succeed."""
        async with asyncio.TaskGroup() as tasks:
            self._pumping = tasks.create_task(self._pump())
            tasks.create_task(self._stay_connected(patient))

    async def _stay_connected(self, patient: bool) -> None:
        attempt = 0
        while True:
            try:
                line, welcome = await self._dial()
            except CannotConnect as error:
                if not patient and not self.welcomed.is_set():
                    raise
                log.info("cannot connect, trying again: %s", error)
            else:
                attempt = 0
                await self._converse(line, welcome)
            await asyncio.sleep(backoff_ms(attempt, self._timing, self._chance()) / 1000)
            attempt += 1

    async def _converse(self, line: Line, welcome: Welcome) -> None:
        """Read until the connection ends; raise if it ended for good."""
        self._engine.connected(welcome, self.now_ms())
        self._line = line
        self.welcomed.set()
        self.poke()
        try:
            while True:
                frame = await line.receive()
                if frame is not None:
                    self._engine.receive(frame, self.now_ms())
                    self.poke()
        except NotAFrame as error:
            log.warning("the server sent what cannot be understood: %s", error)
            await line.close(WSCloseCode.PROTOCOL_ERROR)
        except Ended as ended:
            log.info("the connection ended: %s", ended)
            if ended.failure is not None:
                raise ended.failure from ended
        finally:
            self._line = None
            self._engine.disconnected()
            self.poke()

    async def _pump(self) -> None:
        while True:
            self._poked.clear()
            await self._pump_once()
            await self._sleep_until(self._engine.next_wake_ms())

    async def _pump_once(self) -> None:
        engine, now_ms, line = self._engine, self.now_ms(), self._line
        engine.tick(now_ms)
        self._save()
        frames = engine.frames_to_send(now_ms, self._clock())
        self._tell(engine.events())
        if line is None:
            return
        if engine.silent or (frames and not await line.send(frames)):
            line.hang_up()

    async def _sleep_until(self, wake_ms: int | None) -> None:
        seconds = None if wake_ms is None else max(0, wake_ms - self.now_ms()) / 1000
        try:
            async with asyncio.timeout(seconds):
                await self._poked.wait()
        except TimeoutError:
            pass  # It is time for `tick`.

    def _save(self) -> None:
        if self._saving is not None and not self._saving.done():
            return
        if self._saving is not None:
            self._saving.result()
            self._saving = None
        changes = self._engine.to_save()
        if not changes:
            return
        if self._keeper.blocking:
            self._saving = self._loop.create_task(self._commit(changes))
        else:
            self._keeper.commit(changes)
            self._engine.saved(changes)

    async def _commit(self, changes: Changes) -> None:
        try:
            await self._loop.run_in_executor(self._executor, self._keeper.commit, changes)
            self._engine.saved(changes)
        finally:
            self.poke()

    async def finish(self) -> None:
        """Before the end: what is processed is written down and acknowledged, the connection closed."""
        if self._pumping is not None:
            self._pumping.cancel()
            await asyncio.wait([self._pumping])
        if self._saving is not None:
            await self._saving
        self._engine.flush()
        await self._commit(self._engine.to_save())
        line = self._line
        if line is not None:  # it may end meanwhile
            await self._say_last_words(line)
            await line.close()

    async def _say_last_words(self, line: Line) -> None:
        """The last acks, and a heartbeat whose answer says that they have taken effect."""
        acks = self._engine.cursors.last_acks()
        if not acks:
            return
        last = self._engine.calls.add(None)
        try:
            async with asyncio.timeout(self._timing.drain_ms / 1000):
                await line.send([*acks, *self._engine.calls.transmit()])
                while last in self._engine.calls and self._line is line:
                    self._poked.clear()
                    await self._poked.wait()
        except TimeoutError:
            log.info("the server did not confirm the last acks; the next run may see entries again")


def cause_of(group: ExceptionGroup[ClientError]) -> ClientError:
    """The error behind a failed link."""
    first = group.exceptions[0]
    return cause_of(first) if isinstance(first, ExceptionGroup) else first
