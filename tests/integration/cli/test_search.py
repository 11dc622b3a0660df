"""`parley search`, through a running server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.server import ServerProcess
from tests.integration.cli.running import parley, succeed


@pytest.fixture
def server(data: Path) -> Iterator[ServerProcess]:
    with ServerProcess(data) as running:
        yield running


def test_messages_are_found_in_a_chat_and_everywhere(server: ServerProcess) -> None:
    """One line each, the newest first; escapes do not reach a terminal, and marks are not printed."""
    succeed("send", "Tea", "needle one", "--as", "ann", data=server.data)
    succeed("send", "ben", "-", "--as", "ann", data=server.data, given="needle \x1b[31mtwo")
    shown = succeed("search", "need*", "--as", "ann", data=server.data).stdout.splitlines()
    assert [line.split("  ")[-1] for line in shown] == ["needle \\x1b[31mtwo", "needle one"]
    shown = succeed("search", "need*", "--chat", "Tea", "--as", "ann", data=server.data).stdout.splitlines()
    assert [line.split("  ")[-1] for line in shown] == ["needle one"]
    found = succeed("search", "needle", "--as", "ann", "--limit", "1", "--json", data=server.data).json
    assert [hit["entry"]["content"] for hit in found["hits"]] == ["needle \x1b[31mtwo"]
    rest = succeed("search", "needle", "--as", "ann", "--before", found["next"], data=server.data)
    assert rest.stdout.rstrip().endswith("needle one")


def test_a_refused_search_is_a_sentence(server: ServerProcess) -> None:
    """What the server says, and status 1."""
    refused = parley("search", "!!", "--as", "ann", data=server.data)
    assert refused.status == 1
    assert "needs a letter or a digit" in refused.stderr
