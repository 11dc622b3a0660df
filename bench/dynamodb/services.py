"""DynamoDB Local, Kafka and Redis of one run, with their data on disk; that of DynamoDB Local in memory.

On disk it commits each item of a batch of writes by itself, which DynamoDB does not.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from bench import processes
from ops.local_services import ServiceSet
from ops.local_services.service import Say

INIT_SECONDS_MAX = 120
SECRET = "bench"
PREFIX = "bench-"


class Services:
    """Started for this process; they end with it, however it ends."""

    def __init__(self, folder: Path, say: Say) -> None:
        self._set = ServiceSet(folder, in_memory=True, owner=os.getpid(), say=say)

    def up(self, parley: Path) -> None:
        """Start all of them, and create Parley's tables and topics."""
        self._set.up()
        self.environment = {
            **self._set.environment(),
            "PARLEY_STORE_ENGINE": "dynamodb",
            "PARLEY_CLUSTER_SECRET": SECRET,
            "PARLEY_DYNAMODB_PREFIX": PREFIX,
            "PARLEY_LOG_LEVEL": "warning",
        }
        self._pids = {status.service: status.pid for status in self._set.status() if status.pid is not None}
        subprocess.run(
            [parley, "store", "init"],
            env={**os.environ, **self.environment},
            stdout=subprocess.DEVNULL,
            timeout=INIT_SECONDS_MAX,
            check=True,
        )

    @property
    def endpoint(self) -> str:
        return self.environment["PARLEY_DYNAMODB_ENDPOINT"]

    @property
    def region(self) -> str:
        return self.environment["PARLEY_DYNAMODB_REGION"]

    @property
    def brokers(self) -> list[str]:
        return self.environment["PARLEY_KAFKA_BROKERS"].split(",")

    def cpu_seconds(self) -> float:
        """What all of them have used so far."""
        return sum(processes.cpu_seconds(pid) for pid in self._pids.values())

    def destroy(self) -> None:
        self._set.destroy()
