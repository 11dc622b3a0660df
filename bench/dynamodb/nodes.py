"""Several nodes under one load, counted together or one by one."""

from __future__ import annotations

from pathlib import Path

from bench.dynamodb.services import Services
from bench.measuring import until
from bench.server import Server, ServerFailed

MEET_SECONDS_MAX = 20
TRANSACTIONS = 'parley_dynamodb_requests_total{operation="TransactWriteItems"}'
STORED = "parley_messages_stored_total"
FORWARDED = "parley_forwarded_drafts_total"
FORWARDED_BATCHES = "parley_forwarded_batches_total"
FORWARD_FAILURES = "parley_forward_failures_total"
KNOWN_NODES = "parley_nodes"


class Node(Server):
    """One `parley serve` with its own data folder, name and roles."""

    def __init__(
        self, parley: Path, name: str, roles: str, folder: Path, cores: set[int], environment: dict[str, str]
    ) -> None:
        self.name = name
        data = folder / name
        data.mkdir()
        super().__init__(
            [str(parley), "serve", "--data", str(data), "--roles", roles],
            folder / f"{name}.log",
            cores,
            {**environment, "PARLEY_CLUSTER_NODE": name},
        )


class Nodes:
    """The nodes of one cluster, in the order of the request."""

    def __init__(self, nodes: list[Node], services: Services) -> None:
        self._nodes = nodes
        self._services = services

    def __getitem__(self, index: int) -> Node:
        return self._nodes[index]

    def __len__(self) -> int:
        return len(self._nodes)

    async def start(self) -> None:
        """Start all nodes, and wait until each knows the others."""
        for node in self._nodes:
            node.launch()
        for node in self._nodes:
            await node.ready()
        await self._meet()

    async def _meet(self) -> None:
        known = dict.fromkeys((node.name for node in self._nodes), 0)

        async def look() -> None:
            for node in self._nodes:
                known[node.name] = int((await node.metrics()).get(KNOWN_NODES, 0))

        for _ in range(MEET_SECONDS_MAX):
            await look()
            if min(known.values()) >= len(self._nodes):
                return
            await until(lambda: False, 1)
        raise ServerFailed(f"the nodes do not know of each other: {known}")

    async def stop(self) -> None:
        for node in self._nodes:
            await node.stop()

    def kill(self) -> None:
        for node in self._nodes:
            node.kill()

    def cpu_seconds(self) -> float:
        return sum(node.cpu_seconds() for node in self._nodes)

    def helpers_cpu_seconds(self) -> float:
        return self._services.cpu_seconds()

    async def batches(self) -> tuple[float, float]:
        """Messages stored, and transactions sent for them, retries included."""
        metrics = await self.metrics()
        return metrics.get(STORED, 0), metrics.get(TRANSACTIONS, 0)

    async def metrics(self) -> dict[str, float]:
        """The sums over all nodes."""
        sums: dict[str, float] = {}
        for node in self._nodes:
            for name, value in (await node.metrics()).items():
                sums[name] = sums.get(name, 0.0) + value
        return sums
