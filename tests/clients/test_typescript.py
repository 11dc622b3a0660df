"""The SDK in TypeScript: its own tests, and what is published of it."""

import pytest

from tests.node import build, npm, version_of
from tests.seeds import try_seed


@pytest.mark.timeout(300)
def test_the_sdk_passes_its_tests() -> None:
    """Every test of vitest passes."""
    npm("test")


WALKS = 100
"""Of one repeat."""


@pytest.mark.randomised
@pytest.mark.timeout(300)
def test_tabs_lose_and_double_nothing_whatever_happens_to_them(seed: int) -> None:
    """Two to five tabs of one database crash, freeze, thaw and write, and duties are drawn, by new seeds."""
    for _ in range(WALKS):
        try_seed()
    first = str(seed % 2**31)
    chance = {"PARLEY_WALKS": str(WALKS), "PARLEY_WALKS_FIRST": first, "PARLEY_SIMULATE_SEED": first}
    npm("exec", "--", "vitest", "run", "test/shell/tabsWalk.test.ts", "test/core/", env=chance)


@pytest.mark.timeout(300)
def test_what_is_published_is_small_and_sound() -> None:
    """Sizes, what importing does, the files of the package, publint and the types of every entry."""
    build()
    npm("exec", "--", "vitest", "run", "--config=vitest.package.config.ts")


def test_a_version_is_compared_by_numbers() -> None:
    """Node 20.9 is older than Node 20.19."""
    assert version_of("v20.9.0") < (20, 19) <= version_of("v20.19.0")
