"""Servers for the acceptance tests: shared ones that nobody breaks, and one's own to be killed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.world import MODES, mode_environment
from tests.harness.server import ServerProcess

StartServer = Callable[..., ServerProcess]


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """The sequencing mode; a test that takes it runs once in each."""
    return str(request.param)


@pytest.fixture(scope="session")
def shared_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ServerProcess]]:
    """One server per mode, started when first needed."""
    servers: dict[str, ServerProcess] = {}
    yield servers
    for server in servers.values():
        server.kill()


@pytest.fixture
def server(
    mode: str, shared_servers: dict[str, ServerProcess], tmp_path_factory: pytest.TempPathFactory
) -> ServerProcess:
    """A running server in this mode, shared with other tests: it must survive them."""
    if mode not in shared_servers:
        started = ServerProcess(tmp_path_factory.mktemp(mode) / "data", mode_environment(mode))
        started.start()
        shared_servers[mode] = started
    assert shared_servers[mode].is_running, "a test has killed the shared server"
    return shared_servers[mode]


@pytest.fixture
def own_server(tmp_path: Path, mode: str) -> Iterator[ServerProcess]:
    """A running server in this mode that the test may kill and start again."""
    with ServerProcess(tmp_path / "data", mode_environment(mode)) as started:
        yield started
