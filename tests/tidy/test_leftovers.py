"""Rule: what is in `src` is finished; what is not goes to the issues."""

import re
from collections.abc import Iterator

import pytest

from tests.tidy.repository import Breach, Source, assert_none, python_sources

LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")


def leftovers(source: Source) -> Iterator[Breach]:
    for number, line in enumerate(source.text.splitlines(), 1):
        if found := LEFTOVER.search(line):
            yield source.breach(number, f"{found[0]}: {line.strip()}")


def test_sources_hold_no_leftovers() -> None:
    """No source file carries a note to finish it later."""
    breaches = [breach for source in python_sources("src") for breach in leftovers(source)]
    assert_none(breaches, "finish it or open an issue")


@pytest.mark.parametrize("line", ["x = 1  # TODO: later", "# FIXME", "# XXX", "raise NotImplementedError"])
def test_a_leftover_is_caught(line: str) -> None:
    """Each mark of unfinished work is a breach."""
    assert list(leftovers(Source("sample.py", line)))
