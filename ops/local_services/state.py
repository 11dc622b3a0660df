"""The state of the services of a data folder: one file that survives the script."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from ops.local_services.faults import ServiceError
from ops.local_services.processes import Process

FILE_NAME = "services.json"


@dataclasses.dataclass
class Record:
    """One service; kept after it ended, so that it can restart on the same ports."""

    ports: dict[str, int]
    version: str = ""
    in_memory: bool = False
    process: Process | None = None
    wanted: bool = False
    """False once it was stopped: a wanted service that does not run has died."""


@dataclasses.dataclass
class State:
    """`secret`: what the nodes on these services share, once there are some."""

    services: dict[str, Record] = dataclasses.field(default_factory=dict)
    guard: Process | None = None
    secret: str = ""


def load(folder: Path) -> State:
    """The state of the last run; empty if there was none."""
    path = folder / FILE_NAME
    try:
        return _state(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return State()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ServiceError(f"{path} is damaged; stop the services that it lists, then delete it.") from error


def save(folder: Path, state: State) -> None:
    """Replace the file in one step: a crash leaves the old one or the new one."""
    new = folder / f"{FILE_NAME}.new"
    write_private(new, json.dumps(dataclasses.asdict(state), indent=2) + "\n")
    os.replace(new, folder / FILE_NAME)


def write_private(path: Path, text: str) -> None:
    """A file that only this user can read, also if it was there before."""
    with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)


def _state(values: dict[str, Any]) -> State:
    services = {
        name: Record(**{**record, "process": _process(record["process"])})
        for name, record in values["services"].items()
    }
    return State(services, _process(values["guard"]), str(values.get("secret", "")))


def _process(values: dict[str, Any] | None) -> Process | None:
    return None if values is None else Process(**values)
