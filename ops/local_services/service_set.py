"""The services of one data folder: up, down, kill, start, pause, resume, reset."""

import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from ops.local_services import processes, state
from ops.local_services.cache import check_space, locked
from ops.local_services.cassandra import Cassandra
from ops.local_services.dynamodb import DynamoDb
from ops.local_services.faults import ServiceError
from ops.local_services.instance import Instance, Status, new_ports
from ops.local_services.kafka import Kafka
from ops.local_services.ports import is_free
from ops.local_services.redis import Redis
from ops.local_services.s3 import S3
from ops.local_services.service import Say, Service
from ops.local_services.state import Record, State

ORDINARY: tuple[Service, ...] = (Cassandra(), DynamoDb(), Redis(), S3(), Kafka())
NAMES = tuple(service.name for service in ORDINARY)
"""What `up` starts when nothing is named."""
CASSANDRA_RING = ("cassandra_1", "cassandra_2", "cassandra_3")
"""Three replicas. The first one is started first, alone: the others join its cluster."""
CASSANDRA_GUARDED = "cassandra_guarded"
SPECIAL: tuple[Service, ...] = (
    Cassandra(CASSANDRA_GUARDED, is_guarded=True),
    Cassandra(CASSANDRA_RING[0]),
    *(Cassandra(name, seed=CASSANDRA_RING[0]) for name in CASSANDRA_RING[1:]),
)
"""What is started by its name only."""
SERVICES = {service.name: service for service in (*ORDINARY, *SPECIAL)}
DATA_FREE_BYTES_MIN = 100 * 1000 * 1000
GUARD_POLL_SECONDS = 0.5
SECRET_VARIABLE, SECRET_BYTES = "PARLEY_CLUSTER_SECRET", 32
ENV_NAME, LOCK_NAME, GUARD_LOG_NAME = "services.env", "services.lock", "guard.log"
SCRIPT = Path(__file__).resolve().parents[1] / "services"


class ServiceSet:
    """The services of one data folder. Several processes may use them: each verb locks the folder.

    With an `owner`, a guard process outlives this one: when the process with that id has ended, the guard
    kills the services and deletes their data.
    """

    def __init__(
        self,
        folder: Path,
        *,
        in_memory: bool = False,
        owner: int | None = None,
        env_file: Path | None = None,
        say: Say = lambda _: None,
    ) -> None:
        self.folder = folder.resolve()
        self.env_file = env_file or self.folder / ENV_NAME
        self._in_memory = in_memory
        self._owner = owner
        self._say = say

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop all; keeps their data and logs after an error."""
        if kind is None:
            self.destroy()
        else:
            self.kill(*self.known())

    def up(self, *names: str) -> None:
        """Start these, or all, and return when each is ready. Running ones are left unchanged."""
        for failure in self.try_up(*names).values():
            raise failure

    def try_up(self, *names: str) -> dict[str, ServiceError]:
        """The same, but starts what it can and returns the failures."""
        failures: dict[str, ServiceError] = {}
        with self._locked() as current:
            self._watch_owner(current)
            launched = []
            for service in chosen(names):
                try:
                    launched += self._launch(current, service)
                except ServiceError as failure:
                    failures[service.name] = failure
            for instance in launched:
                try:
                    instance.settle(lambda: state.save(self.folder, current))
                    instance.announce("is ready")
                except ServiceError as failure:
                    failures[instance.service.name] = failure
        return failures

    def start(self, *names: str) -> None:
        """Start services that were killed or stopped or have died, on the same ports and data."""
        with self._locked() as current:
            for instance in self._instances(current, names):
                if not instance.is_running:
                    instance.spawn()
                    state.save(self.folder, current)
                    instance.await_ready()
                    instance.announce("is ready again")

    def kill(self, *names: str) -> None:
        """kill -9: they have ended when this returns, and `start` starts them again."""
        with self._locked() as current:
            for instance in self._instances(current, names):
                instance.kill()

    def pause(self, *names: str) -> None:
        """SIGSTOP: they stand still with their connections open, until `resume`, or until they are killed."""
        with self._locked() as current:
            for instance in self._instances(current, names):
                instance.pause()

    def resume(self, *names: str) -> None:
        """They go on where they stood."""
        with self._locked() as current:
            for instance in self._instances(current, names):
                instance.resume()

    def down(self, *names: str) -> None:
        """Stop these, or all, cleanly; their data stays."""
        with self._locked() as current:
            for service in _started(current, names):
                self._instance(current, service).stop()

    def reset(self, *names: str) -> None:
        """Stop these, or all, delete their data, and start them again."""
        self.down(*names)
        with self._locked() as current:
            for service in _started(current, names):
                shutil.rmtree(self._instance(current, service).place.data, ignore_errors=True)
        self.up(*names)

    def destroy(self) -> None:
        """Kill all, and delete everything that they and this class have written in the folder."""
        if not (self.folder / state.FILE_NAME).exists():
            return
        self.kill(*self.known())
        for name in self.known():
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for path in (self.env_file, *(self.folder / name for name in (GUARD_LOG_NAME, LOCK_NAME))):
            path.unlink(missing_ok=True)
        (self.folder / state.FILE_NAME).unlink(missing_ok=True)

    def known(self) -> list[str]:
        """The services that were ever started in this folder."""
        return list(state.load(self.folder).services)

    def status(self, *names: str) -> list[Status]:
        """The status of these, or all; does not wait for the lock."""
        current = state.load(self.folder)
        return [
            self._instance(current, service).status()
            if service.name in current.services
            else Status(service.name, "unknown")
            for service in chosen(names)
        ]

    def environment(self, *names: str) -> dict[str, str]:
        """The environment variables for clients of these services, or of all, that run."""
        return self._variables(state.load(self.folder), names)

    def guard(self, owner: int) -> None:
        """Destroy when the process with this id has ended, unless another process has destroyed before."""
        process = processes.process_of(owner)
        while process is not None and processes.is_running(process):
            if not (self.folder / state.FILE_NAME).exists():
                return
            time.sleep(GUARD_POLL_SECONDS)
        self.destroy()
        with suppress(OSError):  # The owner may have other files there.
            self.folder.rmdir()

    @contextmanager
    def _locked(self) -> Iterator[State]:
        make_private(self.folder)
        with locked(self.folder / LOCK_NAME, lambda: self._say(f"waiting for another run in {self.folder}")):
            current = state.load(self.folder)
            current.secret = current.secret or secrets.token_hex(SECRET_BYTES)
            try:
                yield current
            finally:
                state.save(self.folder, current)
                self._write_environment(current)

    def _launch(self, current: State, service: Service) -> list[Instance]:
        """Start it on its previous ports, unless they are taken. Empty if it is already running."""
        record = current.services.get(service.name)
        in_memory = self._in_memory and service.can_forget
        if record is not None and self._instance(current, service).is_running:
            if record.in_memory != in_memory:
                where = "in memory" if record.in_memory else "on disk"
                raise ServiceError(f"{service.name} is running with its data {where}: stop it first (down).")
            self._instance(current, service).announce("is already running")
            return []
        check_space(self.folder, DATA_FREE_BYTES_MIN)
        if record is None or not all(map(is_free, record.ports.values())):
            record = Record(ports=new_ports(service))
        record.in_memory = in_memory
        instance = Instance(service, record, self.folder, self._say)
        instance.spawn()
        current.services[service.name] = record
        state.save(self.folder, current)
        return [instance]

    def _watch_owner(self, current: State) -> None:
        if self._owner is None or (current.guard is not None and processes.is_running(current.guard)):
            return
        state.save(self.folder, current)  # For the guard, a folder without state was destroyed.
        command = [sys.executable, str(SCRIPT), "guard", str(self._owner), "--data", str(self.folder)]
        current.guard = processes.spawn(command, self.folder / GUARD_LOG_NAME)
        state.save(self.folder, current)

    def _instances(self, current: State, names: Sequence[str]) -> list[Instance]:
        for name in names:
            if name not in current.services:
                raise ServiceError(f"{name} was never started in {self.folder}: run `ops/services up`.")
        return [self._instance(current, SERVICES[name]) for name in names]

    def _instance(self, current: State, service: Service) -> Instance:
        return Instance(service, current.services[service.name], self.folder, self._say)

    def _variables(self, current: State, names: Sequence[str]) -> dict[str, str]:
        instances = [self._instance(current, service) for service in _started(current, names)]
        variables: dict[str, str] = {}
        for instance in instances:
            if instance.record.wanted:
                variables |= instance.service.variables(instance.place)
        return variables

    def _write_environment(self, current: State) -> None:
        variables = self._variables(current, ())
        if variables:
            variables[SECRET_VARIABLE] = current.secret
        lines = [f"{name}={value}\n" for name, value in variables.items()]
        self.env_file.parent.mkdir(parents=True, exist_ok=True)
        state.write_private(self.env_file, "".join(lines))


def make_private(folder: Path) -> None:
    """Create a folder and its parents for this user only: `data` is also a server's folder."""
    if not folder.exists():
        make_private(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def _started(current: State, names: Sequence[str]) -> list[Service]:
    """Those of the named services, or all, that were ever started in a folder."""
    return [one for one in chosen(names or list(SERVICES)) if one.name in current.services]


def chosen(names: Sequence[str]) -> list[Service]:
    """The named services, or all ordinary ones, in the best order for starting."""
    for name in names:
        if name not in SERVICES:
            raise ServiceError(f"There is no service {name!r}; there are {', '.join(NAMES)}.")
    return [service for service in SERVICES.values() if service.name in (names or NAMES)]
