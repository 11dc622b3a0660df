"""The first hour with Parley: folders, mistakes and questions as somebody meets them who is new to it."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from parley.cli import main
from tests.harness.server import ServerProcess
from tests.integration.cli.running import Run, parley, parley_without_privileges, succeed
from tests.integration.cli.stores import one
from tests.integration.small_world import GROUP_ENTRIES

ELSEWHERE = """
[store]
engine = "dynamodb"
[dynamodb]
endpoint = "http://127.0.0.1:1"
region = "local"
"""


def sentence(run: Run) -> str:
    """The one line that a failed command leaves, and nothing else."""
    assert run.status == 1
    assert run.stdout == ""
    (line,) = run.stderr.splitlines()
    return line.removeprefix("parley: ")


class Here:
    """Commands in this process: for those that end before they would open a store or a connection."""

    def __init__(self, patch: pytest.MonkeyPatch, streams: pytest.CaptureFixture[str]) -> None:
        self._patch = patch
        self._streams = streams
        for name in [name for name in os.environ if name.startswith("PARLEY_")]:
            patch.delenv(name)

    def run(self, *arguments: str, **environment: str) -> Run:
        self._patch.setattr(sys, "argv", ["parley", *arguments])
        # A command configures the logs of its process, and this one belongs to all tests.
        self._patch.setattr("parley.cli.offline.configure_logs", lambda *_, **__: None)
        for name, value in environment.items():
            self._patch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            main()
        told = self._streams.readouterr()
        status = ended.value.code
        assert status is None or isinstance(status, int)
        return Run(subprocess.CompletedProcess(arguments, status or 0, told.out, told.err))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(monkeypatch, capsys)


@contextmanager
def closed(path: Path) -> Iterator[None]:
    """Nobody may look into a folder, or read a file."""
    mode = stat.S_IMODE(path.stat().st_mode)
    path.chmod(0)
    try:
        yield
    finally:
        path.chmod(mode)


# Stores are made by those who are asked to make one


@pytest.mark.parametrize(
    "command",
    [
        ("user", "add", "ada"),
        ("user", "list"),
        ("token", "ada"),
        ("chat", "create", "--as", "ada", "--title", "Tea"),
        ("chat", "direct", "ada", "bob"),
        ("chat", "list"),
        ("send", "Tea", "hi", "--as", "ada"),
        ("tail", "Tea", "--as", "ada"),
        ("check",),
        ("recover", "--all"),
    ],
)
def test_no_command_makes_a_store_by_the_way(command: tuple[str, ...], here: Here, tmp_path: Path) -> None:
    """On a folder without one, one sentence says so and what makes one; nothing is made."""
    said = sentence(here.run(*command, "--data", str(tmp_path / "new")))
    assert said.startswith(f"there is no store in {tmp_path / 'new'}: ")
    assert f"parley store init --data {tmp_path / 'new'}" in said
    assert not (tmp_path / "new").exists()


def test_a_store_is_made_by_a_word_of_its_own(tmp_path: Path) -> None:
    """`store init` makes an empty store in the folder, which commands then use, and may be repeated."""
    made = succeed("store", "init", data=tmp_path / "new")
    assert made.lines == [f"{tmp_path / 'new' / 'parley.db'}: created"]
    succeed("user", "add", "ada", data=tmp_path / "new")
    again = succeed("store", "init", data=tmp_path / "new")
    assert again.lines == [f"{tmp_path / 'new' / 'parley.db'}: already exists"]
    assert one(tmp_path / "new", "SELECT count(*) FROM users") == 1


def test_a_folder_remembers_the_engine_of_its_node(tmp_path: Path) -> None:
    """Beside a node on DynamoDB `user add` turns to DynamoDB, and makes no second store in the folder."""
    (tmp_path / "store.toml").write_text(ELSEWHERE, encoding="utf-8")
    aws = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
    run = parley("user", "add", "ada", data=tmp_path, environment=aws)
    assert run.status == 1
    assert "127.0.0.1:1" in run.stderr
    assert not (tmp_path / "parley.db").exists()


def test_a_server_of_another_engine_does_not_take_the_folder(tmp_path: Path) -> None:
    """Where a node on DynamoDB lived, `serve` without its settings says so instead of starting empty."""
    (tmp_path / "store.toml").write_text(ELSEWHERE, encoding="utf-8")
    said = sentence(parley("serve", "--port", "0", data=tmp_path))
    assert "PARLEY_STORE_ENGINE=dynamodb" in said
    assert not (tmp_path / "parley.db").exists()


def test_a_server_writes_what_its_folder_remembers(tmp_path: Path) -> None:
    """A command without the server's settings takes numbers as the server does."""
    with ServerProcess(tmp_path / "data", {"PARLEY_STORE_SEQUENCING": "two_phase"}):
        written = (tmp_path / "data" / "store.toml").read_text(encoding="utf-8")
    assert '[store]\nengine = "sqlite"\nsequencing = "two_phase"\n' in written


# Nothing is left behind by a start that failed


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_a_taken_port_leaves_no_folder(tmp_path: Path) -> None:
    """The port is looked at before anything is made."""
    with taken_port() as port:
        said = sentence(parley("serve", "--port", str(port), data=tmp_path / "new"))
    assert said.startswith(f"port {port} of 127.0.0.1 is taken")
    assert not (tmp_path / "new").exists()


def test_an_address_of_another_machine_leaves_no_folder(tmp_path: Path) -> None:
    """Neither does a host that is not this one."""
    said = sentence(parley("serve", "--host", "192.0.2.1", "--port", "0", data=tmp_path / "new"))
    assert "192.0.2.1" in said
    assert not (tmp_path / "new").exists()


# What the system says in two words


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("store", "init")])
def test_a_file_in_place_of_the_folder_is_told(command: tuple[str, ...], tmp_path: Path) -> None:
    """One sentence names it and what to do."""
    (tmp_path / "data").touch()
    said = sentence(parley(*command, data=tmp_path / "data"))
    assert said == f"{tmp_path / 'data'} is a file, not a folder: choose another --data"


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("user", "add", "eve"), ("check",)])
def test_a_folder_of_somebody_else_is_told(command: tuple[str, ...], data: Path) -> None:
    """One sentence names the path, who was refused, and what to do."""
    with closed(data):
        said = sentence(parley_without_privileges(*command, data=data))
    assert said.startswith(str(data))
    assert "run this as its owner" in said


def test_a_store_of_somebody_else_is_told(data: Path) -> None:
    """The same for a file in a folder that may be entered."""
    with closed(data / "parley.db"):
        said = sentence(parley_without_privileges("user", "list", data=data))
    assert said.startswith(f"{data / 'parley.db'} cannot be used by the user ")


# Doctor


def test_the_doctor_survives_a_folder_that_it_may_not_enter(data: Path) -> None:
    """It says so with a remedy, and goes on to what else there is to look at."""
    with closed(data):
        run = parley_without_privileges("doctor", "--json", data=data)
    found = {finding["what"]: finding for finding in run.json["findings"]}
    assert (run.status, found["data folder"]["state"]) == (1, "wrong")
    assert "chown" in found["data folder"]["remedy"]
    assert "server" in found


def test_the_doctor_survives_a_path_that_it_may_not_follow(data: Path) -> None:
    """The same when not even the folder itself can be seen."""
    with closed(data):
        run = parley_without_privileges("doctor", "--json", data=data / "inner")
    found = {finding["what"]: finding["state"] for finding in run.json["findings"]}
    assert (run.status, found["data folder"]) == (1, "wrong")


# Configuration


def test_a_mistyped_variable_is_told_with_what_was_meant(data: Path) -> None:
    """Any command says it, and works."""
    run = parley("user", "list", data=data, environment={"PARLEY_STOR_ENGINE": "dynamodb"})
    assert run.status == 0
    assert (
        run.stderr
        == "Parley does not know the variable PARLEY_STOR_ENGINE; did you mean PARLEY_STORE_ENGINE?\n"
    )


def test_a_mistyped_variable_is_logged_by_the_server(tmp_path: Path) -> None:
    """A server's log has it in the warning."""
    with ServerProcess(tmp_path / "data", {"PARLEY_SERVER_PROXY": "10.0.0.1"}) as server:
        logged = [line for line in server.log_lines() if line["event"] == "unknown environment variable"]
    assert [(line["name"], line["did_you_mean"]) for line in logged] == [
        ("PARLEY_SERVER_PROXY", "PARLEY_SERVER_PROXIES")
    ]


def test_the_doctor_says_what_was_meant(data: Path) -> None:
    """Its remedy is the variable that exists."""
    run = parley("doctor", "--json", data=data, environment={"PARLEY_DTAA": "x"})
    found = next(finding for finding in run.json["findings"] if finding["what"] == "variables")
    assert "PARLEY_DTAA" in found["says"]
    assert "PARLEY_DATA" in found["remedy"]


@pytest.mark.parametrize("command", [("serve",), ("user", "list")])
def test_a_wrong_setting_names_its_variable(command: tuple[str, ...], here: Here) -> None:
    """As the server and every command read it."""
    said = sentence(here.run(*command, PARLEY_SERVER_PORT="eighty"))
    assert said == "server.port must be a whole number, not 'eighty' (PARLEY_SERVER_PORT)"


def test_wrong_roles_name_the_option(here: Here, tmp_path: Path) -> None:
    """What was said on the command line is looked for there."""
    said = sentence(here.run("serve", "--roles", "cook", "--data", str(tmp_path)))
    assert said.endswith("(--roles)")


# Talking


@pytest.fixture
def server(data: Path) -> Iterator[ServerProcess]:
    with ServerProcess(data) as running:
        yield running


def test_an_empty_message_is_a_mistake_of_usage(here: Here, data: Path) -> None:
    """No server is asked for it."""
    run = here.run("send", "Tea", "", "--as", "ann", "--data", str(data))
    assert (run.status, "the message is empty" in run.stderr) == (2, True)


def test_nothing_on_stdin_is_not_sent(server: ServerProcess) -> None:
    """An empty line is an empty message, too, and nothing is stored."""
    run = parley("send", "Tea", "-", "--as", "ann", data=server.data, given="\n")
    assert (run.status, "the message is empty" in run.stderr) == (2, True)
    assert one(server.data, "SELECT max(sequence) FROM entries WHERE chat_no = 1") == GROUP_ENTRIES


def test_a_server_that_crashed_is_looked_for_where_it_was(server: ServerProcess) -> None:
    """`demo` names its last address, `send` how to start it there again."""
    server.kill()
    assert server.url in parley("demo", data=server.data).stderr
    said = parley("send", "Tea", "hi", "--as", "ann", data=server.data).stderr
    assert f"parley serve --data {server.data} --port {server.port}" in said


# Help and completion


def test_an_operator_is_promised_what_there_is(here: Here) -> None:
    """`--operator` names what an operator may use: the routes under /v1/admin, and /metrics."""
    shown = " ".join(here.run("user", "add", "--help").stdout.split())
    assert "/metrics" in shown
    assert "/v1/admin" in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(shell: str, here: Here) -> None:
    """What the shell asks for once is a script that asks parley again at each Tab."""
    run = here.run(_PARLEY_COMPLETE=f"source_{shell}")
    assert f"_PARLEY_COMPLETE=complete_{shell}" in run.stdout


def test_a_word_is_completed() -> None:
    """After `parley chat re` come the commands that begin so."""
    asked = {"_PARLEY_COMPLETE": "complete_bash", "COMP_WORDS": "parley chat re", "COMP_CWORD": "2"}
    assert parley(environment=asked).stdout.split() == ["remove", "rename"]


def test_help_offers_completion(here: Here) -> None:
    """Whoever reads the help learns how to have it."""
    assert "--install-completion" in here.run("--help").stdout


def test_help_keeps_the_defaults(here: Here) -> None:
    """What is in brackets is taken for markup and vanishes."""
    shown = here.run("serve", "--help").stdout.replace("│", "")
    assert "(default: ./data)" in " ".join(shown.split())
