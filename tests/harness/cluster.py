"""Several nodes over the same services, each in its own process, to be killed, paused and restarted.

    with ClusterProcess(tmp_path, environment, ["n1", "n2", "n3"]) as cluster:
        ...talk to cluster["n1"].url...
        cluster["n1"].kill()
        cluster["n2"].pause()

`environment` has the addresses of the services, and the prefix of the cluster's tables and topics.
Methods block; from a coroutine call them with `asyncio.to_thread`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.harness.server import ServerFailed, ServerProcess, run_parley

INIT_SECONDS_MAX = 180.0
SECRET_BYTES = 16


class ClusterProcess:
    """`settings`: additional settings of a node, by its name. Each cluster has a secret of its own.

    Its nodes deliver to receivers on this machine, which tests have.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        names: Sequence[str],
        settings: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.environment = {
            "PARLEY_STORE_ENGINE": "dynamodb",
            "PARLEY_CLUSTER_SECRET": secrets.token_hex(SECRET_BYTES),
            "PARLEY_PUSH_ALLOWED_NETWORKS": "127.0.0.0/8",
            "PARLEY_WEBHOOKS_ALLOWED_NETWORKS": "127.0.0.0/8",
            **environment,
        }
        self.names = list(names)
        self._nodes = {
            name: ServerProcess(
                folder / name,
                {**self.environment, "PARLEY_CLUSTER_NODE": name, **(settings or {}).get(name, {})},
            )
            for name in names
        }

    def __getitem__(self, name: str) -> ServerProcess:
        return self._nodes[name]

    def __iter__(self) -> Iterator[ServerProcess]:
        return iter(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    def init(self) -> None:
        """Create the tables and topics."""
        made = run_parley("store", "init", timeout_seconds=INIT_SECONDS_MAX, environment=self.environment)
        if made.returncode:
            raise ServerFailed(f"the tables and topics could not be created\n{made.stdout}{made.stderr}")

    def start(self) -> None:
        """Start all nodes concurrently, and wait until each is ready."""
        for node in self:
            node.spawn()
        for node in self:
            node.await_ready()

    def kill(self) -> None:
        """SIGKILL for all nodes, including paused ones."""
        for node in self:
            node.kill()

    def __enter__(self) -> ClusterProcess:
        try:
            self.init()
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
