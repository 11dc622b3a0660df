"""Group commit: one transaction for everything that waits, and only its COMMIT leaves the loop.

The statements run on the event loop, where they cost microseconds. COMMIT waits for the disk and runs in a
thread. Jobs that arrive meanwhile make the next transaction (docs/decisions/0002-commit-in-a-thread.md).

A failed COMMIT may have written: its jobs end with `OutcomeUnknown`, and nothing is read or written until the
store is reopened and made durable.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

import apsw
import structlog
from msgspec import Struct

from parley.errors import (
    OutcomeUnknown,
    ParleyError,
    Refused,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
)
from parley.store.ports import APPEND_SECONDS_MAX
from parley.store.sqlite.damage import DAMAGE, note, store_error, tables_of
from parley.store.sqlite.database import Database
from parley.store.two_phase import FaultPoint
from parley.telemetry import Metrics

T = TypeVar("T")

BUSY_RETRY_SECONDS = 0.005
BUSY_SECONDS_MAX = APPEND_SECONDS_MAX
REOPEN_FIRST_SECONDS = 0.1
REOPEN_SECONDS_MAX = 2.0

log = structlog.get_logger("parley.store")


class Transaction:
    """What a job may touch. `change` is the number of this commit; it is taken when it is first asked for.

    `is_careful`: the jobs have failed once without lookups; now they look everything up, and `tables` names
    those of the last statement. A job may run twice, so it must leave nothing behind but rows.
    """

    __slots__ = ("_change", "_last", "connection", "execute", "executemany", "is_careful")

    def __init__(self, connection: apsw.Connection, is_careful: bool) -> None:
        self.connection = connection
        self.is_careful = is_careful
        self.execute = self._noted(connection.execute) if is_careful else connection.execute
        self.executemany = self._noted(connection.executemany) if is_careful else connection.executemany
        self._change = 0
        self._last = ""

    def _noted(self, execute: Callable[..., apsw.Cursor]) -> Callable[..., apsw.Cursor]:
        def noted(sql: str, *values: object) -> apsw.Cursor:
            self._last = sql
            return execute(sql, *values)

        return noted

    @property
    def tables(self) -> str:
        return tables_of(self._last)

    @property
    def change(self) -> int:
        if not self._change:
            row: Any = self.execute("UPDATE changes SET last = last + 1 RETURNING last").fetchone()
            self._change = row[0] if row else 1
        return self._change

    def undo_to(self, savepoint: str) -> None:
        """Undo what was written since, the number of this commit included."""
        self.execute(f"ROLLBACK TO {savepoint}")
        self._change = 0


class Piggyback(Protocol):
    """Small writes that join the next transaction."""

    def write_pending(self, transaction: Transaction) -> None:
        """Write what is pending."""
        ...

    def committed(self) -> None:
        """What was written, and has not failed, is durable."""
        ...

    def failed(self, damage: StoreDamaged | None = None) -> None:
        """What was written may be lost: write it again with the next transaction. `damage`: it met some."""
        ...


class WriteJob(Struct, eq=False):
    """One part of a transaction, and the future that its caller awaits. `place`: what it is about."""

    work: Callable[[Transaction], object]
    committed: Callable[[Any], None] | None
    done: asyncio.Future[object]
    place: str = ""
    result: object = None
    error: Exception | None = None


class Writer:
    """The only user of the writer connection."""

    def __init__(self, database: Database, metrics: Metrics, fault_point: FaultPoint) -> None:
        self._database = database
        self.metrics = metrics
        self._fault_point = fault_point
        self._queued: list[WriteJob] = []
        self._committing: list[WriteJob] | None = None
        self._piggybacks: list[Piggyback] = []
        self._failure: StoreError | None = None
        """Why the store is being reopened."""
        self._forget: list[Callable[[], None]] = []
        self._undo: list[Callable[[], None]] = []
        self._data_version = 0
        self._busy_since = 0.0
        self._retry: asyncio.TimerHandle | None = None
        self._reopening: asyncio.Task[None] | None = None
        self._closed = False
        self._commits: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """True: commit the open transaction. False: end the thread."""
        self._thread = threading.Thread(target=self._run_commits, name="parley-commit", daemon=True)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    @property
    def available(self) -> bool:
        return self._reopening is None and not self._closed

    @property
    def is_reopening(self) -> bool:
        """What was committed last is not known."""
        return self._reopening is not None

    def add_piggyback(self, piggyback: Piggyback) -> None:
        self._piggybacks.append(piggyback)

    def on_foreign_write(self, forget: Callable[[], None]) -> None:
        """Call `forget` when another program may have changed the file."""
        self._forget.append(forget)

    def on_undo(self, undo: Callable[[], None]) -> None:
        """Call `undo` when the open transaction was undone, so that memory follows."""
        self._undo.append(undo)

    def why_unavailable(self) -> StoreError:
        """Damage is told as such: a file does not heal by being opened again."""
        if isinstance(self._failure, StoreDamaged):
            return StoreDamaged(self._failure.place, self._failure.problem)
        return StoreUnavailable("the store is being reopened after a failed write")

    async def run(
        self,
        work: Callable[[Transaction], T],
        committed: Callable[[T], None] | None = None,
        place: str = "",
    ) -> T:
        """The result of `work`, once it is durable. If `work` raises, only its own writes are undone.

        `committed` is called with the result before anything else happens, so that memory follows the file.
        `place`: what to name if it meets damage, such as a chat.
        """
        if not self.available:
            raise self.why_unavailable()
        job = WriteJob(work, committed, self._loop.create_future(), place)
        self._queued.append(job)
        self._begin_if_idle()
        return cast(T, await job.done)

    def _begin_if_idle(self) -> None:
        if self._committing is None and self._retry is None and self._queued and self.available:
            self._begin()

    def _begin(self) -> None:
        """Open a transaction, run every queued job in it, hand its COMMIT to the thread."""
        connection = self._database.writer
        self._retry = None
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            self._wait_for_lock()
            return
        except apsw.Error as error:
            self._give_up(error)
            return
        self._busy_since = 0.0
        jobs, self._queued = self._queued, []
        self._committing = jobs
        self._fault_point("before_write")
        try:
            self._check_foreign_writes(connection)
            self._run_jobs(connection, jobs)
        except apsw.BusyError:  # another program took the lock between the two runs of the jobs
            self._committing, self._queued = None, jobs + self._queued
            self._wait_for_lock()
            return
        except apsw.Error as error:
            self._roll_back(error)
            return
        self._fault_point("after_write_before_commit")
        self.metrics.commit_jobs.observe(len(jobs))
        self._commits.put(True)

    def _run_jobs(self, connection: apsw.Connection, jobs: list[WriteJob]) -> None:
        """Run all jobs together. If one fails, run them again, each in a savepoint, so that it fails alone.

        A savepoint copies every page that is changed after it: a third of the cost of a batch.
        """
        try:
            transaction = Transaction(connection, is_careful=False)
            for job in jobs:
                job.result = job.work(transaction)
            for piggyback in self._piggybacks:
                piggyback.write_pending(transaction)
        except (apsw.FullError, apsw.IOError, apsw.BusyError):
            raise
        except Exception:
            left, piggybacks = list(jobs), list(self._piggybacks)
            while not self._run_apart(connection, left, piggybacks):
                pass

    def _run_apart(
        self, connection: apsw.Connection, jobs: list[WriteJob], piggybacks: list[Piggyback]
    ) -> bool:
        """Each by itself, in a new transaction. False: one met damage, and was removed from its list.

        SQLite does not commit a transaction that met damage, so all others are to be run once more.
        """
        connection.execute("ROLLBACK")
        _call(self._undo)
        for piggyback in piggybacks:
            piggyback.failed()
        connection.execute("BEGIN IMMEDIATE")
        self._check_foreign_writes(connection)
        transaction = Transaction(connection, is_careful=True)
        for job in jobs:
            try:
                self._run_alone(job, transaction)
            except DAMAGE as error:
                job.error = self._damaged(error, transaction.tables, job.place)
                jobs.remove(job)
                return False
        for piggyback in piggybacks:
            try:
                piggyback.write_pending(transaction)
            except DAMAGE as error:
                piggyback.failed(self._damaged(error, transaction.tables))
                piggybacks.remove(piggyback)
                return False
        return True

    def _damaged(self, error: apsw.Error, tables: str, place: str = "") -> StoreDamaged:
        damage = StoreDamaged(place or tables, f"{tables}: {error}" if place else str(error))
        note(self.metrics, damage, by_write=True)
        return damage

    def _run_alone(self, job: WriteJob, transaction: Transaction) -> None:
        job.error = None
        transaction.execute("SAVEPOINT job")
        try:
            job.result = job.work(transaction)
        except apsw.Error:
            raise
        except Refused as refused:  # refused before it changed what is remembered
            job.error = refused
            transaction.undo_to("job")
        except Exception as error:
            note(self.metrics, error, by_write=True)
            job.error = error
            transaction.undo_to("job")
            _call(self._undo)
        transaction.execute("RELEASE job")

    def check_for_foreign_writes(self) -> None:
        """Between transactions: notice that another program has written."""
        if self._committing is None and self.available:
            try:
                self._check_foreign_writes(self._database.writer)
            except apsw.Error as error:
                self._give_up(error)

    def _check_foreign_writes(self, connection: apsw.Connection) -> None:
        version: Any = connection.execute("PRAGMA data_version").get
        if version != self._data_version:
            self._data_version = version
            _call(self._forget)

    def _wait_for_lock(self) -> None:
        now = self._loop.time()
        self._busy_since = self._busy_since or now
        if now - self._busy_since > BUSY_SECONDS_MAX:
            self._busy_since = 0.0
            self._fail_queued(StoreBusy("another program holds the store's write lock"))
            return
        self._retry = self._loop.call_later(BUSY_RETRY_SECONDS, self._begin)

    def _run_commits(self) -> None:
        """In the thread: commit whenever asked to, wait for the disk, and tell the loop."""
        while self._commits.get():
            started = self.metrics.now()
            error: Exception | None = None
            try:
                self._database.writer.execute("COMMIT")
            except apsw.Error as failure:
                error = failure
            seconds = self.metrics.now() - started
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it every caller
                self._loop.call_soon_threadsafe(self._committed, error, seconds)

    def _committed(self, error: Exception | None, seconds: float) -> None:
        jobs, self._committing = self._committing or [], None
        if error is not None:
            self._lose(jobs, error)
            return
        self._fault_point("after_commit_before_ack")
        self.metrics.commit_seconds.observe(seconds)
        for piggyback in self._piggybacks:
            piggyback.committed()
        if any(job.error is not None and not isinstance(job.error, Refused) for job in jobs):
            _call(self._undo)  # what was read since the job failed is older than this commit
        for job in jobs:
            if job.committed is not None and job.error is None:
                job.committed(job.result)
            _settle(job.done, job.result, job.error)
        self._begin_if_idle()

    def _roll_back(self, error: apsw.Error) -> None:
        """A statement failed before COMMIT: nothing was written, and every caller may try again."""
        jobs, self._committing = self._committing or [], None
        if (more := self.metrics.lines.admit("store write failed", self._loop.time())) is not None:
            log.error("store write failed", error=str(error), **more)
        _call(self._forget)
        for piggyback in self._piggybacks:
            piggyback.failed()
        for job in jobs:
            _settle(job.done, None, store_error(error, "the store cannot write"))
        try:
            if self._database.writer.in_transaction:
                self._database.writer.execute("ROLLBACK")
        except apsw.Error as worse:
            self._give_up(worse)
            return
        if isinstance(error, apsw.FullError):
            self._begin_if_idle()
        else:
            self._give_up(error)

    def _lose(self, jobs: list[WriteJob], error: Exception) -> None:
        """COMMIT failed, and may have written: say so, and use nothing until the store is reopened."""
        log.critical("commit failed, outcome unknown", error=str(error), jobs=len(jobs))
        self.metrics.commit_failures.inc()
        for piggyback in self._piggybacks:
            piggyback.failed()
        for job in jobs:
            _settle(job.done, None, OutcomeUnknown(f"the commit failed: {error}"))
        self._give_up(error)

    def _failure_of(self, error: Exception) -> StoreError:
        failure = error
        if isinstance(error, apsw.Error):
            failure = store_error(error, "the store cannot write")
        note(self.metrics, failure, by_write=True)
        return failure if isinstance(failure, StoreError) else StoreUnavailable(str(error))

    def _give_up(self, error: Exception) -> None:
        """Refuse what is queued, and try to reopen the store until that works."""
        self._failure = self._failure_of(error)
        self._fail_queued(self._failure)
        if self._reopening is None and not self._closed:
            self._reopening = self._loop.create_task(self._reopen())

    async def _reopen(self) -> None:
        pause = REOPEN_FIRST_SECONDS
        while True:
            try:
                await self._loop.run_in_executor(None, self._database.reopen)
                break
            except StoreDamaged as error:
                self._failure = self._failure_of(error)
            except ParleyError as error:
                log.error("store still unavailable", error=str(error))
            await asyncio.sleep(pause)
            pause = min(2 * pause, REOPEN_SECONDS_MAX)
        self._data_version = 0
        _call(self._forget)
        self._reopening = self._failure = None
        log.warning("store reopened")
        self._begin_if_idle()

    def _fail_queued(self, error: Exception) -> None:
        jobs, self._queued = self._queued, []
        for job in jobs:
            _settle(job.done, None, error)

    async def close(self) -> None:
        """Finish what was queued, then close the file."""
        with contextlib.suppress(ParleyError):
            await self.run(lambda _: None)
        self._closed = True
        if self._reopening is not None:
            self._reopening.cancel()
        self._commits.put(False)
        await self._loop.run_in_executor(None, self._thread.join)
        self._database.close()


def _call(hooks: list[Callable[[], None]]) -> None:
    for hook in hooks:
        hook()


def _settle(done: asyncio.Future[object], result: object, error: Exception | None) -> None:
    if done.done():
        return  # the caller was cancelled
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(result)
