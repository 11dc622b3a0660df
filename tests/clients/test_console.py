"""The console in the browser: its own tests, what it weighs, and operators who use it in Chromium."""

import re
from pathlib import Path

import pytest

from ops import node_builds
from tests.clients.test_web import SECONDS_MAX, browser
from tests.node import CONSOLE, build, npm, play

__all__ = ["browser"]

STORIES = sorted(path.name for path in CONSOLE.glob("test/pages/*.test.ts"))
FIRST_VISIT_KB_MAX = 90


@pytest.mark.timeout(120)
def test_the_parts_of_the_console_do_what_they_say() -> None:
    """Every test that needs no browser passes."""
    npm("test", folder=CONSOLE)


@pytest.mark.timeout(120)
def test_the_first_visit_is_small() -> None:
    """At most 90 KB compressed, in at most 8 requests."""
    build(CONSOLE)
    found = re.search(r"([\d.]+) KB in \d requests", npm("run", "size", folder=CONSOLE))
    assert found is not None
    assert float(found[1]) <= FIRST_VISIT_KB_MAX


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.parametrize("story", STORIES)
def test_operators_use_the_console(browser: Path, story: str) -> None:
    """Every test of the file passes, in Chromium and on a real server."""
    build(CONSOLE)
    node_builds.compress(CONSOLE)
    play(story, browser, CONSOLE)
