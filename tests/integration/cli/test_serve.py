"""`parley serve`, as an operator starts it."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from parley.cli.places import CommandFailed
from parley.cli.server import check_address
from tests.harness.server import Lines, ServerProcess
from tests.integration.cli.running import clean_environment, parley


def test_stdout_is_the_ready_line_alone(tmp_path: Path) -> None:
    """stdout carries one line, the folder says where the server is, and SIGTERM ends it with status 0."""
    with ServerProcess(tmp_path / "data") as server:
        sign = (tmp_path / "data" / "serve.url").read_text(encoding="utf-8")
        assert sign == server.url
        assert server.terminate() == 0
        assert server.stdout_lines() == [f"parley ready on {server.url}"]
    assert not (tmp_path / "data" / "serve.url").exists()


def test_a_second_server_leaves_the_first_alone(tmp_path: Path) -> None:
    """A folder in use is refused with the process that uses it, whose sign stays up."""
    with ServerProcess(tmp_path / "data") as server:
        run = parley("serve", "--port", "0", data=server.data)
        assert run.status == 1
        assert f"process {server.pid}" in run.stderr
        assert (server.data / "serve.url").read_text(encoding="utf-8") == server.url


def test_a_taken_port_is_a_sentence(tmp_path: Path) -> None:
    """A port that somebody else has is told, with what to do, and the command ends."""
    with ServerProcess(tmp_path / "one") as server:
        run = parley("serve", "--port", str(server.port), data=tmp_path / "two")
        assert run.status == 1
        assert "choose another --port" in run.stderr


def test_one_address_of_a_name_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """`localhost` may have an address of IPv6 on a machine that has none."""
    named = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, 0)) for host in ("192.0.2.1", "127.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: named)
    check_address("localhost", 0)


def test_every_address_of_a_name_must_be_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server listens on all of them."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        addresses = [("127.0.0.2", 0), taken.getsockname()]
        named = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in addresses]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: named)
        with pytest.raises(CommandFailed, match="is taken"):
            check_address("localhost", 0)


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("--roles", "gateway"), 1, "store.engine"),
        (("--roles", "gateway,juggler"), 1, "'juggler'"),
        (("--roles", ","), 1, "empty"),
        (("--port", "eighty"), 2, "--port"),
        (("--port", "70000"), 2, "65535"),
        (("--frobnicate",), 2, "--frobnicate"),
        (("--config", "/nowhere.toml"), 1, "/nowhere.toml"),
        (("--host", "no.such.host.invalid"), 1, "no.such.host.invalid"),
    ],
)
def test_a_mistake_at_start_is_a_sentence(
    arguments: tuple[str, ...], status: int, says: str, tmp_path: Path
) -> None:
    """What cannot be started is told without a traceback, and nothing hangs."""
    run = parley("serve", *arguments, data=tmp_path / "data")
    assert run.status == status
    assert says in run.stderr
    assert "Traceback" not in run.stderr


def test_help_names_every_option() -> None:
    """`serve --help` goes the long way and names all that the short way takes."""
    shown = parley("serve", "--help").stdout
    for option in ("--data", "--host", "--port", "--config", "--roles", "PARLEY_DATA"):
        assert option in shown


def test_a_start_imports_nothing_for_other_commands(tmp_path: Path) -> None:
    """A restart does not wait for the libraries of the command line."""
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "parley", "serve", "--port", "0"],
        env=clean_environment({"PARLEY_DATA": str(tmp_path / "data")}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    stdout, stderr = Lines(process.stdout), Lines(process.stderr)
    assert stdout.wait_for(lambda line: line.startswith("parley ready"), 20)
    process.terminate()
    process.wait()
    stderr.join()
    imported = {line.rpartition("|")[2].strip() for line in stderr.all() if "|" in line}
    assert "aiohttp" in imported
    assert imported.isdisjoint({"typer", "rich.console", "pydantic", "pygments"})
