"""One service in one data folder: start, readiness, status and stop."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ops.local_services import processes
from ops.local_services.faults import PortTaken, ServiceError
from ops.local_services.ports import free_ports, is_free
from ops.local_services.service import Place, Say, Service
from ops.local_services.state import Record

READY_SECONDS_MAX = 180.0
STOP_SECONDS_MAX = 15.0
PORT_TRIES_MAX = 3


@dataclass(frozen=True)
class Status:
    """The status of one service."""

    service: str
    state: str
    """`running`, `stopped`, `died`, or `unknown` where it was never started."""
    version: str = ""
    address: str = ""
    pid: int | None = None
    memory_bytes: int = 0


class Instance:
    """Reads and writes its record; the caller saves the record."""

    def __init__(self, service: Service, record: Record, folder: Path, say: Say) -> None:
        self.service = service
        self.record = record
        self._folder = folder / service.name
        self._log = self._folder / "service.log"
        self._say = say

    @property
    def place(self) -> Place:
        return Place(self._folder, self.record.ports, self.record.in_memory)

    @property
    def address(self) -> str:
        return self.place.address(self.service.port_names[0])

    @property
    def is_running(self) -> bool:
        return self.record.process is not None and processes.is_running(self.record.process)

    def spawn(self) -> None:
        """Start its program; PortTaken if another program uses its port."""
        if taken := [port for port in self.record.ports.values() if not is_free(port)]:
            raise PortTaken(f"{self.service.title} cannot listen on port {taken[0]}: another program does.")
        program = self.service.program(self._say)
        self.record.version = self.service.version(program)
        self._folder.mkdir(parents=True, exist_ok=True)
        self.record.process = processes.spawn(self.service.prepare(program, self.place), self._log)
        self.record.wanted = True

    def settle(self, save: Callable[[], None]) -> None:
        """Wait until it is ready. If another program took its port meanwhile, use another one."""
        for _ in range(PORT_TRIES_MAX - 1):
            try:
                return self.await_ready()
            except PortTaken:
                self.record.ports = new_ports(self.service)
                self.spawn()
                save()
        return self.await_ready()

    def await_ready(self) -> None:
        """Return when it answers; if it ends before, raise its last log line."""
        in_time = processes.wait_for(lambda: not self.is_running or self._answers(), READY_SECONDS_MAX)
        if not in_time:
            self.kill()
            raise ServiceError(
                f"{self.service.title} was not ready within {READY_SECONDS_MAX:.0f} s; see {self._log}."
            )
        if not self.is_running:
            raise self._early_end()

    def kill(self) -> None:
        """It has ended when this returns; it keeps its data and its ports."""
        if self.record.process is not None:
            processes.kill(self.record.process)

    def pause(self) -> None:
        if self.record.process is not None:
            processes.pause(self.record.process)

    def resume(self) -> None:
        if self.record.process is not None:
            processes.resume(self.record.process)

    def stop(self) -> None:
        """Stop it cleanly."""
        if self.record.process is not None and self.is_running:
            processes.stop(self.record.process, STOP_SECONDS_MAX)
            self._say(f"{self.service.name} has stopped")
        self.record.process = None
        self.record.wanted = False

    def announce(self, how: str) -> None:
        """Print its address, and its note for users."""
        note = f" ({self.service.note})" if self.service.note else ""
        self._say(f"{self.service.name} {self.record.version} {how} on {self.address}{note}")

    def status(self) -> Status:
        """Its current status."""
        name, version = self.service.name, self.record.version
        if self.record.process is None or not self.is_running:
            return Status(name, "died" if self.record.wanted else "stopped", version, self.address)
        memory = processes.memory_bytes(self.record.process)
        return Status(name, "running", version, self.address, self.record.process.pid, memory)

    def _answers(self) -> bool:
        try:
            return self.service.answers(self.place)
        except (OSError, ValueError, struct.error):
            return False  # Nothing listens yet, or another program that speaks another protocol.

    def _early_end(self) -> ServiceError:
        text = self._log.read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()] or ["nothing"]
        for line in lines:
            if "address already in use" in line.lower():
                return PortTaken(f"{self.service.title} could not take its port: {line}")
        return ServiceError(f"{self.service.title} ended at once: {lines[-1]} (the whole log: {self._log})")


def new_ports(service: Service) -> dict[str, int]:
    """A free port for each of its ports."""
    return dict(zip(service.port_names, free_ports(len(service.port_names)), strict=True))
