"""Rule: every fault of `make mutants` can still be planted, and every promise has one."""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

from tests.mutants import page
from tests.mutants.faults import (
    FAULTS_MIN,
    LIST,
    PROMISES,
    Fault,
    all_faults,
    problems_of,
    promise_of,
    promises_in,
)
from tests.tidy.repository import ROOT, Breach, assert_none

HERE = "tests/mutants/faults.jsonl"
TABLE = "| promise | tests |\n|---|---|\n| It works | x |\n"
SOUND = Fault(
    id="sound",
    promise="It works",
    says="it does not",
    file="src/one.py",
    old="return 1",
    new="return 2",
    test="tests/test_one.py::test_one[a]",
)


@cache
def promises() -> list[str]:
    return promises_in(PROMISES.read_text(encoding="utf-8"))


def misfits() -> Iterator[Breach]:
    for line, fault in enumerate(all_faults(), start=1):
        for problem in problems_of(fault, promises()):
            yield Breach(HERE, line, f"{fault.id}: {problem}")


def test_every_fault_still_applies() -> None:
    """Each fault stands in the code of today, breaks a promise, and has a test."""
    assert_none(misfits(), "the code has moved on: adapt the fault, then run make mutants")


def test_every_promise_has_a_fault() -> None:
    """None is without a fault that shows how it is watched."""
    broken = {promise_of(fault, promises()) for fault in all_faults()}
    assert [promise for promise in promises() if promise not in broken] == []


def test_the_readme_shows_ten_promises() -> None:
    """Its rows are rows of the page, word for word."""
    _, _, section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## What is promised")
    shown = promises_in(section.partition("\n## ")[0])
    assert len(shown) == 10
    assert set(shown) <= set(promises())


def test_faults_are_many_and_each_has_a_name_of_its_own() -> None:
    """There are enough faults, one on each line, and no id names two."""
    faults = all_faults()
    assert len(faults) == len(LIST.read_text(encoding="utf-8").splitlines()) >= FAULTS_MIN
    assert [name for name, count in Counter(fault.id for fault in faults).items() if count > 1] == []


def test_the_page_lists_every_fault() -> None:
    """What the page says of the faults is what the list says."""
    assert page.render(all_faults()) == page.PAGE.read_text(encoding="utf-8"), "run: make docs"


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A tree that the sound fault fits."""
    for name, text in {
        "src/one.py": "def one() -> int:\n    if True:\n        return 1\n",
        "tests/test_one.py": "async def test_one() -> None: ...\n",
        "tests/one.test.ts": 'test("one is one", () => {});\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("test", [SOUND.test, "tests/one.test.ts::one is one"])
def test_a_fault_that_fits_passes(sample: Path, test: str) -> None:
    """A fault that can be planted has no problem."""
    fault = msgspec.structs.replace(SOUND, test=test)
    assert list(problems_of(fault, promises_in(TABLE), sample)) == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"promise": "It is fast"}, "no promise"),
        ({"file": "src/two.py"}, "src/two.py does not exist"),
        ({"old": "return 3"}, "is not there any more"),
        ({"old": "r"}, "is there 3 times"),
        ({"new": "return )"}, "does not compile"),
        ({"test": "tests/test_two.py::test_one"}, "which does not exist"),
        ({"test": "tests/test_one.py::test_two[a]"}, "which is not in"),
        ({"test": "tests/one.test.ts::one is two"}, "which is not in"),
    ],
)
def test_a_fault_that_does_not_fit_is_caught(sample: Path, wrong: dict[str, str], says: str) -> None:
    """Each way in which a fault can fall behind the code is told in its own words."""
    fault = msgspec.structs.replace(SOUND, **wrong)
    (problem,) = problems_of(fault, promises_in(TABLE), sample)
    assert says in problem
