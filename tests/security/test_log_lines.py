"""What a client says reaches the log only as a field of our own lines, and no terminal as it is."""

import asyncio
from pathlib import Path

import pytest

from tests.harness.server import ServerProcess
from tests.integration.gateway.bare import BareSocket


@pytest.mark.parametrize("form", ["json", "text"])
async def test_a_clients_text_makes_no_line_of_its_own(tmp_path: Path, form: str) -> None:
    """A library that warns of what a client said does so in our form, and without control characters."""
    with ServerProcess(tmp_path / "data", {"PARLEY_LOG_FORMAT": form, "PARLEY_LOG_LEVEL": "debug"}) as server:
        bare = BareSocket(server.port)
        await bare.open("evil\u009b31m")
        bare.close()
        assert await asyncio.to_thread(server.terminate) == 0
    said = server.stderr_lines()
    assert [line for line in said if "evil" in line and "[debug" not in line and '"debug"' not in line] == []
    assert all(line.isprintable() for line in said)
