"""The setting of a scenario on shared engines: running services, tables, and nodes on their core."""

from __future__ import annotations

import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

from bench.dynamodb.nodes import Node, Nodes
from bench.dynamodb.services import PREFIX, Services
from bench.server import Server
from bench.stage import RESULTS, Stage
from bench.world import World
from ops.local_services.service import Say
from parley import ids
from parley.clock import wall_clock
from parley.store.dynamodb.driver import Dynamo, Faults, credentials_from
from parley.store.dynamodb.store import DynamoStore
from parley.store.ports import Allocator
from parley.telemetry import Metrics

EVERY_ROLE = "gateway,ingest,delivery"
AWS_LIKE_DELAY_MS = 10
PATIENCE_SECONDS = 60.0
"""DynamoDB Local is compiled at first, which takes long on a busy machine."""

T = TypeVar("T")


class SharedStage(Stage):
    """A stage with the services, and a `folder` for the files of a run."""

    def __init__(
        self, parley: Path, server_cores: set[int], quick: bool, services: Services, folder: Path
    ) -> None:
        super().__init__(parley, server_cores, quick)
        self.parley = parley
        self.services = services
        self.folder = folder

    @asynccontextmanager
    async def nodes(
        self, *roles: str, endpoint: str | None = None, environment: dict[str, str] | None = None
    ) -> AsyncIterator[Nodes]:
        """A node for each of these roles, on the same services; stopped afterwards."""
        folder = Path(tempfile.mkdtemp(prefix="nodes-", dir=self.folder))
        variables = {**self.services.environment, **(environment or {})}
        if endpoint is not None:
            variables["PARLEY_DYNAMODB_ENDPOINT"] = endpoint
        tag = secrets.token_hex(3)
        made = [
            Node(self.parley, f"{tag}-{number}", of_one, folder, self.server_cores, variables)
            for number, of_one in enumerate(roles or (EVERY_ROLE,))
        ]
        nodes = Nodes(made, self.services)
        try:
            await nodes.start()
            yield nodes
            await nodes.stop()
        finally:
            nodes.kill()
            shutil.rmtree(folder)

    @asynccontextmanager
    async def stand_in(self, delay_ms: float) -> AsyncIterator[str]:
        """The address of a stand-in that accepts every write, on the generator's core."""
        async with self._beside("bench.dynamodb.stand_in", "--delay-ms", str(delay_ms)) as endpoint:
            yield endpoint

    @asynccontextmanager
    async def remembering_stand_in(self) -> AsyncIterator[str]:
        """The address of a stand-in with the latency of DynamoDB that stores what one node writes."""
        async with self._beside("bench.dynamodb.remembering") as endpoint:
            yield endpoint

    @asynccontextmanager
    async def _beside(self, module: str, *options: str) -> AsyncIterator[str]:
        command = [sys.executable, "-m", module, "--behind", self.services.endpoint, *options]
        server = Server(command, self.folder / "stand-in.log", self.own_cores)
        server.launch()
        try:
            await server.ready()
            yield f"http://{server.address.host}:{server.address.port}"
        finally:
            server.kill()

    async def populate(self, populate: Callable[[World], Awaitable[T]]) -> T:
        """What a scenario needs in the store before its nodes start."""
        async with self.store() as store:
            return await populate(World(store, ids.Ids(secrets.randbits)))

    @asynccontextmanager
    async def store(
        self,
        *,
        endpoint: str | None = None,
        faults: Faults | None = None,
        allocate_by: Callable[[Dynamo], Allocator] | None = None,
        publishes: bool = False,
    ) -> AsyncIterator[DynamoStore]:
        """A store of this process's own, on the same tables."""
        dynamo = self.client(endpoint, faults)
        store = DynamoStore(
            dynamo,
            clock=wall_clock,
            ids=ids.Ids(secrets.randbits),
            metrics=Metrics(wall_clock),
            allocator=None if allocate_by is None else allocate_by(dynamo),
            publishes=publishes,
        )
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    def client(self, endpoint: str | None = None, faults: Faults | None = None) -> Dynamo:
        services = self.services
        return Dynamo(
            endpoint or services.endpoint,
            services.region,
            prefix=PREFIX,
            credentials=credentials_from(services.environment),
            faults=faults,
            answer_seconds=PATIENCE_SECONDS,
            deadline_seconds=2 * PATIENCE_SECONDS,
        )


@contextmanager
def open_services(parley: Path, say: Say) -> Iterator[tuple[Services, Path]]:
    """Services for one run, and their folder; their data is deleted with them.

    Start them before the generator is pinned to a core: they may run on any core.
    """
    RESULTS.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="shared-", dir=RESULTS))
    services = Services(folder / "services", say)
    try:
        services.up(parley)
        yield services, folder
    finally:
        services.destroy()
        shutil.rmtree(folder, ignore_errors=True)
