"""Rule: a class name means one thing in the whole project."""

import ast
from collections import defaultdict
from collections.abc import Iterable

from tests.tidy.repository import Breach, Source, assert_none, python_sources

SHARED = ("src/", "tests/harness/")
"""Where a name is read by people who did not write it. A test's own helpers are its own affair."""


def repeated(sources: Iterable[Source]) -> list[Breach]:
    """Every definition of a class whose name another class has, too."""
    found: dict[str, list[Breach]] = defaultdict(list)
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(source.breach(node.lineno, f"class {node.name}"))
    return [breach for breaches in found.values() if len(breaches) > 1 for breach in breaches]


def test_a_class_name_means_one_thing() -> None:
    """No two classes of the sources and of the tests' harness have the same name."""
    sources = [source for source in python_sources() if source.path.startswith(SHARED)]
    assert_none(repeated(sources), "one class name, one meaning: give one of them a longer name")


def test_a_name_with_two_meanings_is_caught() -> None:
    """Two classes of one name are told, each with its place; other names are not."""
    one, two = (
        Source("src/a.py", "class DeliveryQueue: ...\n"),
        Source("src/b.py", "x = 1\nclass DeliveryQueue: ...\n"),
    )
    other = Source("src/c.py", "class Queue: ...\n")
    assert len(repeated([one, two, other])) == 2
    assert not repeated([one, other])
