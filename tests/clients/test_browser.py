"""The SDK in TypeScript in a real browser, with a real server; both are killed."""

import sys
from pathlib import Path

import pytest

from tests.node import build, npm
from tests.services import chromium_program

PARLEY = Path(sys.executable).with_name("parley")


def programs() -> dict[str, str]:
    """Where the browser and the server are, for tests of vitest."""
    return {"PARLEY_CHROMIUM": str(chromium_program()), "PARLEY_PROGRAM": str(PARLEY)}


@pytest.mark.timeout(420)
def test_chromium_loses_and_doubles_nothing() -> None:
    """Tabs are closed, the leader, the browser and the server killed; five tabs share one connection."""
    build()
    npm("exec", "--", "vitest", "run", "--config=vitest.browser.config.ts", "browser.test", env=programs())
