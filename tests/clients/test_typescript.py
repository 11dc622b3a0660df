"""The SDK in TypeScript: its own tests, and what is published of it."""

import pytest

from tests.node import npm, version_of


@pytest.mark.timeout(300)
def test_the_sdk_passes_its_tests() -> None:
    """Every test of vitest passes."""
    npm("test")


def test_a_version_is_compared_by_numbers() -> None:
    """Node 20.9 is older than Node 20.19."""
    assert version_of("v20.9.0") < (20, 19) <= version_of("v20.19.0")
