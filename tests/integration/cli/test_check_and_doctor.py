"""`parley check`, `doctor`, `demo` and `bench` as an operator or a newcomer sees them."""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from parley.cli import doctor
from parley.cli.places import find_place
from parley.store.invariants import ALIASES, INVARIANTS
from tests.harness.damage import overwrite, pages_of
from tests.harness.server import ServerProcess
from tests.integration.cli.running import parley, succeed
from tests.integration.cli.stores import change, one
from tests.integration.small_world import GROUP_ENTRIES


@pytest.fixture
def server(data: Path) -> Iterator[ServerProcess]:
    with ServerProcess(data) as running:
        yield running


def test_a_clean_store_is_summed_up(data: Path) -> None:
    """A whole store prints a short table, and every invariant by name in JSON."""
    run = succeed("check", data=data)
    assert run.lines[0].split() == ["CHATS", "ENTRIES", "VOIDS", "OPEN", "SECONDS"]
    assert run.lines[1].split()[:3] == ["2", str(GROUP_ENTRIES), "1"]
    report = succeed("check", "--json", data=data).json
    assert report["ok"]
    assert report["invariants"] == dict.fromkeys([*INVARIANTS, *ALIASES], 0)


def test_a_broken_store_fails_with_what_to_do(data: Path) -> None:
    """A breach is status 1, with its name, the chat, the number and the next step."""
    change(data, "DELETE FROM messages WHERE chat_id = 'chat_group' AND sequence = 2")
    run = parley("check", data=data)
    assert run.status == 1
    assert "✗ log_density  chat_group #2" in run.stdout
    assert "parley recover chat_group --seal-holes --apply" in run.stdout
    told = parley("check", "Tea", "--json", data=data).json
    assert told["invariants"]["log_density"] == 1
    assert {breach["chat_id"] for breach in told["breaches"]} == {"chat_group"}


def test_something_else_in_place_of_a_store_is_a_sentence(tmp_path: Path) -> None:
    """A file that is no store is told as such."""
    (tmp_path / "parley.db").write_bytes(b"this is not a database, however long it is made to be" * 100)
    run = parley("check", data=tmp_path)
    assert run.status == 1
    assert "✗ file_integrity" in run.stdout
    assert "file is not a database" in run.stdout
    assert "Traceback" not in run.stderr


def test_a_damaged_page_is_named_by_check_and_doctor(data: Path) -> None:
    """Each says which table, and what to do; neither ends in a traceback."""
    overwrite(data, pages_of(data, "entry_at")[0])
    checked = parley("check", data=data)
    assert (checked.status, checked.stderr) == (1, "")
    assert "✗ file_integrity" in checked.stdout
    assert "entries" in checked.stdout
    assert "restore the last backup" in checked.stdout
    told = parley("doctor", "--json", data=data)
    assert told.status == 1
    (pages,) = [finding for finding in told.json["findings"] if finding["what"] == "pages"]
    assert pages["state"] == "wrong"
    assert "entries" in pages["says"]
    assert "restore the last backup" in pages["remedy"]


def test_a_newer_store_is_left_alone(data: Path) -> None:
    """A store of a later version is neither checked nor changed."""
    change(data, "PRAGMA user_version = 99")
    run = parley("check", data=data)
    assert run.status == 1
    assert "use a newer Parley" in run.stderr


def test_a_healthy_place_passes_the_doctor(server: ServerProcess) -> None:
    """Everything around a running server is looked at, and nothing is wrong."""
    server.data.chmod(0o700)
    report = succeed("doctor", "--json", data=server.data).json
    seen = {finding["what"]: finding["state"] for finding in report["findings"]}
    assert report["ok"]
    assert {"Python", "packages", "data folder", "disk", "disk sync", "journal", "server"} <= set(seen)
    assert (seen["address"], seen["jobs"]) == ("ok", "ok")


def test_jobs_and_nodes_are_listed(server: ServerProcess) -> None:
    """To an operator, as a table or as JSON; somebody else is refused with a sentence."""
    added = parley(
        "user", "add", "root", "--operator", "--password-stdin", data=server.data, given="a password\n"
    )
    assert added.status == 0, added.stderr
    table = succeed("jobs", "list", "--as", "root", data=server.data)
    assert table.lines[0].split()[:3] == ["JOB", "NODE", "SCOPE"]
    listed = succeed("jobs", "list", "--as", "root", "--json", data=server.data).json["jobs"]
    assert {"sealing", "account_deletions"} <= {job["name"] for job in listed}
    assert len(table.lines) == len(listed) + 1
    (node,) = succeed("nodes", "list", "--as", "root", "--json", data=server.data).json["nodes"]
    assert node["is_self"]
    assert node["node_id"] in succeed("nodes", "list", "--as", "root", data=server.data).stdout
    refused = parley("jobs", "list", "--as", "ann", data=server.data)
    assert refused.status == 1
    assert "this needs an operator's token" in refused.stderr


def test_any_request_is_a_command(server: ServerProcess) -> None:
    """An operator asks for what has no command of its own; a refusal is a sentence."""
    parley("user", "add", "boss", "--operator", "--password-stdin", data=server.data, given="a password\n")
    asked = ("api", "GET", "/v1/admin/chats", "limit=1", "type=group", "--as", "boss")
    found = succeed(*asked, data=server.data).json
    assert len(found["chats"]) <= 1
    made = ("api", "POST", "admin/invites", "--body", '{"uses": 2}', "--as", "boss")
    assert succeed(*made, data=server.data).json["uses"] == 2
    refused = parley("api", "GET", "admin/chats", "--as", "ann", data=server.data)
    assert (refused.status, "operator" in refused.stderr) == (1, True)
    assert parley("api", "FETCH", "admin/chats", data=server.data).status == 2
    assert parley("api", "GET", "admin/chats", "limit", data=server.data).status == 2
    assert parley("api", "POST", "admin/chats", "--body", "{", data=server.data).status == 2


def test_what_is_wrong_is_told_with_a_remedy(data: Path) -> None:
    """An open folder, a lost counter and a dead address are each told, and the status is 1."""
    data.chmod(0o755)
    (data / "parley.db").chmod(0o644)
    change(data, "DELETE FROM chat_counters")
    run = parley("doctor", "--url", "http://127.0.0.1:9", data=data)
    assert run.status == 1
    for remedy in (f"chmod 700 {data}", "parley recover --all", "--url"):
        assert remedy in run.stdout
    wrong = {line.split()[1] for line in run.lines if line.startswith("✗")}
    assert wrong == {"privacy", "counters", "address"}


def test_a_full_disk_is_a_finding(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be written is told with the rest, which is what an operator needs most then."""

    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(doctor, "_write_through", refuse)
    monkeypatch.setattr(doctor, "configure_logs", lambda *_, **__: None)
    assert not doctor.examine(find_place(data, None), None, as_json=True)
    findings = {found["what"]: found for found in json.loads(capsys.readouterr().out)["findings"]}
    assert findings["disk sync"]["state"] == "wrong"
    assert "No space left on device" in findings["disk sync"]["says"]
    assert {"data folder", "journal", "server"} <= set(findings)


def test_the_demo_may_be_repeated(server: ServerProcess) -> None:
    """A second demo finds the people, chats and messages of the first and adds nothing."""
    first = succeed("demo", "--json", data=server.data).json
    count = one(server.data, "SELECT count(*) FROM entries")
    assert succeed("demo", "--json", data=server.data).json == first
    assert one(server.data, "SELECT count(*) FROM entries") == count
    assert one(server.data, "SELECT count(*) FROM sessions") == 0


def test_the_demo_says_what_to_try(server: ServerProcess) -> None:
    """The commands that it prints work as they are."""
    shown = succeed("demo", data=server.data)
    send = next(line for line in shown.lines if "parley send" in line)
    assert f"--data {server.data}" in send
    assert succeed("send", "Weekend hike", "I bring cake", "--as", "noah", data=server.data).status == 0
    assert (
        "noah: I bring cake"
        in succeed("tail", "Weekend hike", "--as", "mia", "--once", data=server.data).stdout
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--url", "http://127.0.0.1:9"), "is the server running?"),
        (("--url", "http://chat.example.org"), "--anyway"),
    ],
)
def test_a_demo_that_cannot_be_given_says_why(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    """Neither a dead address nor somebody else's machine is filled."""
    run = parley("demo", *arguments, data=tmp_path)
    assert run.status == 1
    assert says in run.stderr


def test_bench_hands_its_options_on() -> None:
    """`parley bench --help` is the help of the benchmarks."""
    assert "--both-cores" in succeed("bench", "--help").stdout
