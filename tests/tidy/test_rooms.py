"""Rule: a room imports only what its contract in pyproject.toml allows; here each is shown to bite."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT
from tests.waiting import stretched

LINT_IMPORTS = str(Path(sys.executable).with_name("lint-imports"))

PORTS_ONLY = "Use cases await ports and never see a driver"

# A module put into a room, the import in it that the room must not have, and the contract that says so.
BREACHES = [
    ("errors.py", "parley.model", "Rooms stand in layers: each knows only what is below it"),
    ("wire/breach.py", "parley.ids", "wire knows only model and errors"),
    ("core/breach.py", "parley.clock", "core knows only model, errors, ids and wire"),
    ("client/breach.py", "parley.core", "client knows only the contract and how core reads a log"),
    ("chats/breach.py", "aiohttp", PORTS_ONLY),
    ("people/breach.py", "parley.sending.sender", "Rooms stand in layers: each knows only what is below it"),
    (
        "people/presence.py",
        "parley.ephemeral.local",
        "Use cases await ports and never see a driver",
    ),
    ("jobs/breach.py", "parley.ephemeral.local", PORTS_ONLY),
    (
        "store/dynamodb/driver/breach.py",
        "parley.store.ports",
        "The client of DynamoDB knows nothing of chats",
    ),
    (
        "delivery/worker.py",
        "parley.delivery.webhooks",
        "The queue of deliveries awaits ports and knows nothing of webhooks",
    ),
    ("gateway/breach.py", "apsw", "gateway never reaches the disk"),
    ("gateway/server.py", "parley.bus.embedded", "Only the composition root and its tools name an engine"),
    ("bus/ports.py", "parley.store.sqlite", "Commands open every store as the server does"),
    ("cli/doctor.py", "parley.store.sqlite", "Commands open every store as the server does"),
    ("sending/sender.py", "parley.bus.kafka", "Only the composition root and its tools name an engine"),
    ("chats/reader.py", "parley.store.dynamodb", "Commands open every store as the server does"),
    ("store/ports.py", "parley.testing", "Only the composition root and the commands reach into testing"),
]


def contracts() -> list[str]:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [contract["name"] for contract in config["tool"]["importlinter"]["contracts"]]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What lint-imports says of each contract for a copy of the sources with all breaches in it."""
    root: Path = tmp_path_factory.mktemp("breached")
    shutil.copy(ROOT / "pyproject.toml", root)
    shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for module, imported, _ in BREACHES:
        with (root / "src/parley" / module).open("a", encoding="utf-8") as file:
            file.write(f"\nimport {imported}\n")
    command = [LINT_IMPORTS, "--no-cache", "--no-logo"]
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "COLUMNS": "200"}
    output = subprocess.run(
        command, cwd=root, env=environment, check=False, capture_output=True, text=True, timeout=stretched(50)
    ).stdout
    return dict(re.findall(r"^(.+?) (KEPT|BROKEN)\b", output, re.MULTILINE))


@pytest.mark.parametrize(("module", "imported", "contract"), BREACHES)
def test_a_forbidden_import_is_caught(
    verdicts: dict[str, str], module: str, imported: str, contract: str
) -> None:
    """An import that a room must not have breaks its contract."""
    assert verdicts[contract] == "BROKEN", f"{module} may import {imported} unnoticed"


def test_every_contract_is_shown_to_bite() -> None:
    """No contract stands in pyproject.toml without a breach here that it catches."""
    assert {contract for _, _, contract in BREACHES} == set(contracts())


def described(page: str) -> list[str]:
    """The rooms in the first column of the table of rooms."""
    table = page.partition("\n## Rooms\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    return [room for cell in cells for room in re.findall(r"`(\w+)`", cell)]


def test_every_room_is_described_once() -> None:
    """The architecture tells of each folder and module of the package what it holds and may touch."""
    house = ROOT / "src/parley"
    sources = [*house.glob("*.py"), *house.glob("*/*.py")]  # a folder that is gone may have left its cache
    rooms = {path.relative_to(house).parts[0].removesuffix(".py") for path in sources} - {
        "__init__",
        "__main__",
    }
    page = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    assert sorted(described(page)) == sorted(rooms)


def test_the_table_of_rooms_is_read() -> None:
    """Rooms are the first column of that table and of no other."""
    rooms = "## Rooms\n\n| room | holds |\n|---|---|\n| `model`, `ids` | `x` |\n"
    page = f"## Hops\n\n| `hop` | x |\n\n{rooms}\n## More\n\n| `y` | z |\n"
    assert described(page) == ["model", "ids"]
