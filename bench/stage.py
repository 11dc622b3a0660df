"""The setting of a scenario: a new folder, a populated store, a server on its core."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from bench.rows import Row
from bench.server import Server, serve_command
from bench.world import World, open_world
from parley.store.folder import DATABASE_NAME

RESULTS = Path(__file__).parent / "results"

T = TypeVar("T")


class Stage:
    """The settings of one run."""

    def __init__(self, parley: Path, server_cores: set[int], quick: bool) -> None:
        self._parley = parley
        self.server_cores = server_cores
        self.quick = quick
        self.database = Path()
        """The file of the server that is serving."""

    @property
    def own_cores(self) -> set[int]:
        """Where the generator runs."""
        return os.sched_getaffinity(0)

    def pick(self, full: int, quick: int) -> int:
        """The full size, or the smaller one for a quick run."""
        return quick if self.quick else full

    @property
    def seconds(self) -> float:
        return 2.0 if self.quick else 6.0

    @property
    def warm_up_seconds(self) -> float:
        return 0.5 if self.quick else 1.5

    @asynccontextmanager
    async def serving(
        self,
        populate: Callable[[World], Awaitable[T]],
        environment: Mapping[str, str] | None = None,
        module: str | None = None,
    ) -> AsyncIterator[tuple[Server, T]]:
        """A server on the store that `populate` has filled; both are deleted afterwards.

        `module` runs instead of `parley`, by its interpreter.
        """
        RESULTS.mkdir(exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=RESULTS))
        data = folder / "data"
        command = serve_command(self._parley, data, module)
        server = Server(command, folder / "stderr.log", self.server_cores, environment)
        try:
            async with open_world(data) as world:
                populated = await populate(world)
            server.launch()
            await server.ready()
            self.database = data / DATABASE_NAME
            yield server, populated
            await server.stop()
        finally:
            server.kill()
            shutil.rmtree(folder)


Scenario = Callable[[Stage], Coroutine[Any, Any, list[Row]]]
