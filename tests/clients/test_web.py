"""The chat in the browser: its own tests, what it weighs, and people who use it in Chromium."""

import re
from pathlib import Path

import pytest

from ops import node_builds
from ops.local_services import chromium
from ops.local_services.faults import ServiceError
from tests.node import ROOT, WEB, build, npm, play
from tests.services import unavailable

COMMAND = ROOT / ".venv/bin/parley"
STORIES = sorted(path.name for path in WEB.glob("test/pages/*.test.ts"))
SECONDS_MAX = 400


@pytest.fixture(scope="module")
def browser() -> Path:
    """Chromium; without it the test is skipped, and fails in CI."""
    try:
        return chromium.program(lambda _: None)
    except ServiceError as failure:
        unavailable("chromium", str(failure))


@pytest.mark.timeout(120)
def test_the_parts_of_the_chat_do_what_they_say() -> None:
    """Every test that needs no browser passes."""
    npm("test", folder=WEB)


@pytest.mark.timeout(180)
def test_the_first_visit_is_small() -> None:
    """At most 110 KB compressed, in at most 8 requests."""
    build(WEB)
    assert re.search(r"KB in \d requests", npm("run", "size", folder=WEB))


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.parametrize("story", STORIES)
def test_people_use_the_chat(browser: Path, story: str) -> None:
    """Every test of the file passes, in Chromium and on a real server."""
    build(WEB)
    node_builds.compress(WEB)
    play(story, browser, WEB)


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("wanted", ["however long", "what was missed"])
def test_a_chat_of_a_hundred_thousand_messages_is_as_light(browser: Path, wanted: str) -> None:
    """At most 120 rows and 2,500 nodes, scrolled or after a jump; 10,000 missed ones are counted."""
    build(WEB)
    node_builds.compress(WEB)
    env = {
        "CHROMIUM": str(browser),
        "PARLEY_COMMAND": str(COMMAND),
        "MESSAGES": "100000",
        "MISSED": "10000",
    }
    arguments = ("test/pages/numbers.test.ts", "--testTimeout=850000", f"--test-name-pattern={wanted}")
    npm("run", "test:pages", "--", *arguments, env=env, folder=WEB)
