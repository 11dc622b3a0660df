"""What runs in a data folder: one file that survives the script."""

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
    """One service: kept after it ended, so that it comes back on the same ports."""

    ports: dict[str, int]
    version: str = ""
    in_memory: bool = False
    process: Process | None = None
    wanted: bool = False
    """False once somebody took it down: a wanted one that does not run has died."""


@dataclasses.dataclass
class State:
    services: dict[str, Record] = dataclasses.field(default_factory=dict)
    guard: Process | None = None


def load(folder: Path) -> State:
    """What the last run left; nothing if there was none."""
    path = folder / FILE_NAME
    try:
        return _state(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return State()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ServiceError(
            f"{path} is not what this script wrote; remove it once nothing of it runs."
        ) from error


def save(folder: Path, state: State) -> None:
    """Replace the file in one step: a crash leaves the old one or the new one."""
    new = folder / f"{FILE_NAME}.new"
    new.write_text(json.dumps(dataclasses.asdict(state), indent=2) + "\n", encoding="utf-8")
    os.replace(new, folder / FILE_NAME)


def _state(values: dict[str, Any]) -> State:
    services = {
        name: Record(**{**record, "process": _process(record["process"])})
        for name, record in values["services"].items()
    }
    return State(services, _process(values["guard"]))


def _process(values: dict[str, Any] | None) -> Process | None:
    return None if values is None else Process(**values)
