"""The interface of a service."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from ops.local_services.faults import ServiceError

LOOPBACK = "127.0.0.1"
ANSWER_SECONDS_MAX = 2.0
JAVA_VERSION_MIN = 17

Say = Callable[[str], None]


@dataclass(frozen=True)
class Place:
    """The folder and the ports of one instance of a service."""

    folder: Path
    ports: dict[str, int]
    in_memory: bool

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def address(self, port_name: str) -> str:
        return f"{LOOPBACK}:{self.ports[port_name]}"


class Service(Protocol):
    """A kind of service, without state."""

    name: str
    title: str
    port_names: tuple[str, ...]
    """The first one is for clients."""
    note: str
    """What users must know about it; may be empty."""
    can_forget: bool
    """Whether it can keep its data in memory only."""

    def program(self, say: Say) -> Path:
        """The path of its program, fetched if necessary."""
        ...

    def version(self, program: Path) -> str: ...

    def prepare(self, program: Path, place: Place) -> list[str]:
        """Prepare its data folder. Returns the command that starts it."""
        ...

    def answers(self, place: Place) -> bool:
        """Whether it answers a real request. OSError means no."""
        ...

    def variables(self, place: Place) -> dict[str, str]:
        """The environment variables for its clients."""
        ...


@cache
def java(title: str) -> str:
    """The Java to run a service with."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        where = f"in JAVA_HOME, {home}" if home else "on the PATH"
        hint = f"(Debian: apt install openjdk-{JAVA_VERSION_MIN}-jre-headless)"
        raise ServiceError(
            f"{title} needs Java {JAVA_VERSION_MIN} or newer, but there is no `java` {where} {hint}."
        )
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    number = re.search(r'version "(?:1\.)?(\d+)', said)
    if number is None or int(number[1]) < JAVA_VERSION_MIN:
        version = number[1] if number else "of an unknown version"
        raise ServiceError(f"{title} needs Java {JAVA_VERSION_MIN} or newer, but {found} is {version}.")
    return found


def java_command(title: str, libraries: Path, *arguments: str) -> list[str]:
    """Java with little memory, on all libraries of a folder."""
    return [java(title), "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{libraries}/*", *arguments]
