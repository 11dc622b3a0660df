"""A server in the test's own process, on a free port; see `serving`."""

import pytest

from tests.forking import CHEAP_HASHER
from tests.integration.gateway.serving import Place


@pytest.fixture(autouse=True)
def cheap_hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords cost next to nothing here: what their hash is worth is tested elsewhere."""
    monkeypatch.setattr("parley.accounts.accounts.HASHER", CHEAP_HASHER)


@pytest.fixture(params=["atomic", "two_phase"])
def either(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A place to serve from, once per sequencing mode."""
    return Place(tmp_path_factory.mktemp("data"), {"PARLEY_STORE_SEQUENCING": request.param})


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A place to serve from, with the default settings."""
    return Place(tmp_path_factory.mktemp("data"), {})
