"""From the start of a process to its end."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import resource
import signal
import sys
from collections.abc import Callable
from typing import Protocol

import structlog

from parley.app.node import App
from parley.config import Config, risks
from parley.wire.limits import MIB

SWITCH_INTERVAL_SECONDS = 1e-4
"""How long the commit thread waits at most for the GIL that it needs only to say that it is done."""

GC_THRESHOLDS = (50_000, 20, 100)
"""Batches free what they make by reference counting; the collector only looks for the rare cycle."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Of mallopt(3)."""
FREE_BYTES_KEPT = 16 * MIB
"""A page of a log is made and freed within a turn. Given back each time, its memory would have to be cleared
by the kernel for the next one, which takes longer than making the page."""

log = structlog.get_logger("parley.app")


class Served(Protocol):
    """What runs until it is told to stop."""

    async def start(self) -> int: ...

    async def stop(self) -> None: ...

    def reload(self) -> None: ...


def make(config: Config) -> Served:
    """What the roles ask for."""
    if config.cluster.roles == ["sequencer"]:
        from parley.app.sequencer import SequencerApp

        return SequencerApp(config)
    return App(config)


def raise_descriptor_limit() -> None:
    """As far as the operator allows: the lower limit is for programs that cannot count beyond 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # some systems say "unlimited" and do not mean it
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def keep_freed_memory() -> None:
    """As much as the constant says, for allocations up to a quarter of it. Only glibc can be told so."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, FREE_BYTES_KEPT // 4)
        mallopt(M_TRIM_THRESHOLD, FREE_BYTES_KEPT)


async def serve(config: Config, ready: Callable[[str], None]) -> None:
    """Run until SIGTERM or SIGINT."""
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    raise_descriptor_limit()
    keep_freed_memory()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopping.set)
    served = make(config)
    if isinstance(served, App):
        served.on_drain = stopping.set
    port = await served.start()
    if config.scheme == "https":  # without a certificate a lost terminal ends the server, as usual
        loop.add_signal_handler(signal.SIGHUP, served.reload)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    host = f"[{config.server.host}]" if ":" in config.server.host else config.server.host
    is_sequencer = config.cluster.roles == ["sequencer"]
    scheme = "https" if is_sequencer and config.cluster.tls_certificate else config.scheme
    url = f"{scheme}://{host}:{port}"
    store = config.store
    log.info("ready", url=url, engine=store.engine, sequencing=store.sequencing, roles=config.cluster.roles)
    for risk in risks(config):
        log.warning(risk)
    ready(url)
    await stopping.wait()
    log.info("draining")
    await served.stop()
    log.info("stopped")
