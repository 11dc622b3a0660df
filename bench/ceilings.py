"""The ceilings of this machine, measured in the same run: compare the rest of the table with them."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from bench import frames, raw_log
from bench.connection import connect_all
from bench.measuring import drain, measure
from bench.roles import Load, Writer
from bench.rows import Row, acks_row
from bench.server import Server
from bench.stage import RESULTS, Stage

BLOCK = b"x" * 4096
ECHO_CONNECTIONS = 100


async def measure_ceilings(stage: Stage) -> list[Row]:
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ceilings-", dir=RESULTS) as folder:
        return [
            _fdatasync(Path(folder) / "synced", stage.seconds / 2),
            _sqlite(Path(folder) / "log.sqlite3", stage.seconds / 2),
            await _echo(Path(folder) / "echo.log", stage),
        ]


def _fdatasync(path: Path, seconds: float) -> Row:
    """Append a block and wait for the disk, over and over."""
    taken: list[float] = []
    with path.open("wb", buffering=0) as file:
        start = before = time.perf_counter()
        while before - start < seconds:
            file.write(BLOCK)
            os.fdatasync(file.fileno())
            now = time.perf_counter()
            taken.append(now - before)
            before = now
    taken.sort()
    return Row(
        name="fdatasync",
        label="fdatasync after each 4 KiB",
        unit="syncs/s",
        value=len(taken) / (before - start),
        p50_ms=1e3 * taken[len(taken) // 2],
        p99_ms=1e3 * taken[len(taken) * 99 // 100],
    )


def _sqlite(path: Path, seconds: float) -> Row:
    """Entry, key and counter of 256 messages in each transaction, and nothing else."""
    raw_log.create_log(path, chats=1)
    connection = raw_log.open_log(path)
    batches, wires = raw_log.Batches(1), [b"x" * raw_log.WIRE_BYTES] * raw_log.BATCH_MESSAGES
    written, cpu, start = 0, time.process_time(), time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        raw_log.write(connection, batches.next(wires))
        raw_log.commit(connection)
        written += len(wires)
    cpu = time.process_time() - cpu
    connection.close()
    return Row(
        name="sqlite",
        label=f"SQLite, batches of {raw_log.BATCH_MESSAGES}",
        unit="messages/s",
        value=written / elapsed,
        cpu_us=1e6 * cpu / written,
        batch=raw_log.BATCH_MESSAGES,
    )


async def _echo(log: Path, stage: Stage) -> Row:
    load = Load()
    server = Server([sys.executable, "-m", "bench.echo"], log, stage.server_cores)
    server.launch()
    try:
        await server.ready()
        writers = [Writer(load, "chat_echo") for _ in range(ECHO_CONNECTIONS)]
        hello = frames.hello("none", "bench", live=False)
        await connect_all(server.address, [(hello, writer) for writer in writers])
        for writer in writers:
            writer.start()
        stretch = await measure(load, server, stage.seconds / 2, stage.warm_up_seconds)
        stretch.notes += await drain(load)
    finally:
        load.running = False
        server.kill()
    return acks_row("echo", "bare aiohttp WebSocket, decode + encode", stretch)
