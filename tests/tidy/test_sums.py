"""Rule: what an engine must be stays small in sum. Rules for each class alone were kept, and missed that."""

import pytest
from msgspec import Struct

from docs.engine_contract import ports_of
from parley.store import ports
from tests.tidy.repository import ROOT
from tests.tidy.test_glossary import words_of

METHODS_MAX = 83
"""Of all ports together, with those that an engine may leave out."""
MAY_BE_LEFT_OUT = {"Outbox", "Feed", "Allocator"}
"""Some engine that is there has none of its own: no port is optional that every engine has."""
GLOSSARY_WORDS_MAX = 90
LINES_IN_RESERVE = 100
"""A sum that is lower than its limit by more than this has become smaller: lower the limit, too."""


class Sum(Struct, frozen=True):
    """Lines of the Python files in a folder, without those in the folders `besides`."""

    folder: str
    lines_max: int
    besides: tuple[str, ...] = ()

    @property
    def lines(self) -> int:
        out = tuple(ROOT / self.folder / one for one in self.besides)
        files = [
            path
            for path in (ROOT / self.folder).rglob("*.py")
            if not any(path.is_relative_to(folder) for folder in out)
        ]
        return sum(path.read_text(encoding="utf-8").count("\n") for path in files)


SUMS = (
    Sum("src/parley/store", 21_800, ("dynamodb/driver",)),
    Sum("src/parley/store/sqlite", 5_420),
    Sum("src/parley/store/dynamodb", 6_660, ("driver",)),
    Sum("src/parley/store/cassandra", 5_360),
    Sum("src/parley/records", 2_110),
    Sum("tests/memory", 1_500),
)
"""A limit falls with what it counts. Whoever raises one says why in the commit."""


def test_the_contract_is_small() -> None:
    """All methods of all ports, counted as docs/adding-an-engine.md counts them."""
    assert sum(len(port.methods) for port in ports_of(ports.Engine)) <= METHODS_MAX


def test_no_port_is_optional_that_every_engine_has() -> None:
    """What no engine lacks has no None, and no branch on it."""
    optional = {port.kind.__name__ for port in ports_of(ports.Engine) if port.left_out}
    assert optional == MAY_BE_LEFT_OUT


def test_the_contract_is_in_two_files() -> None:
    """What serves, and what commands need."""
    assert {port.file for port in ports_of(ports.Engine)} == {"ports.py", "maintenance.py"}


@pytest.mark.parametrize("counted", SUMS, ids=lambda counted: counted.folder)
def test_a_folder_does_not_grow(counted: Sum) -> None:
    """And its limit follows it down."""
    assert counted.lines_max - LINES_IN_RESERVE <= counted.lines <= counted.lines_max


def test_the_glossary_does_not_grow() -> None:
    """Each word of it costs every newcomer."""
    assert len(words_of((ROOT / "docs/GLOSSARY.md").read_text("utf-8"))) <= GLOSSARY_WORDS_MAX


def test_lines_are_counted() -> None:
    """With those of folders within, and without those that are left out."""
    inside, outside = Sum("tests/tidy", 0), Sum("tests", 0, ("tidy",))
    assert inside.lines > 0
    assert inside.lines + outside.lines == Sum("tests", 0).lines
