"""`parley send` and `tail`, through a running server."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from parley.clock import iso, wall_clock
from tests.harness.server import Lines, ServerProcess, parley_command
from tests.integration.cli.running import clean_environment, parley, succeed
from tests.integration.cli.stores import change, one
from tests.integration.small_world import GROUP_ENTRIES

LINE_SECONDS_MAX = 30.0


@pytest.fixture
def server(data: Path) -> Iterator[ServerProcess]:
    with ServerProcess(data) as running:
        yield running


@contextmanager
def following(server: ServerProcess, *arguments: str) -> Iterator[Lines]:
    """`parley tail` in the background."""
    process = subprocess.Popen(
        [*parley_command(), "tail", *arguments],
        env=clean_environment({"PARLEY_DATA": str(server.data)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
    )
    assert process.stdout is not None
    lines = Lines(process.stdout)
    try:
        yield lines
    finally:
        process.terminate()
        process.wait()
        lines.join()


def test_a_message_is_sent_with_a_token_of_its_own(server: ServerProcess) -> None:
    """`send --as` needs no login beside the data folder, and leaves no session behind."""
    sent = succeed("send", "Tea", "hello", "--as", "ben", "--json", data=server.data).json
    assert sent["sequence"] == GROUP_ENTRIES + 1
    assert one(server.data, "SELECT content FROM messages ORDER BY sequence DESC LIMIT 1") == "hello"
    assert one(server.data, "SELECT count(*) FROM sessions") == 0


def test_a_message_may_come_from_stdin_and_go_to_a_person(server: ServerProcess) -> None:
    """`send NAME -` puts all of stdin into the direct chat with that person."""
    succeed("send", "ben", "-", "--as", "ann", data=server.data, given="two\nlines\n")
    assert (
        one(server.data, "SELECT content FROM messages WHERE chat_id = 'chat_direct' AND sequence = 2")
        == "two\nlines"
    )


def test_a_message_says_when_it_was_sent(server: ServerProcess) -> None:
    """`send` tells the moment at which it was called, by this machine's clock."""
    before = iso(wall_clock())
    succeed("send", "Tea", "hello", "--as", "ben", data=server.data)
    told = str(one(server.data, "SELECT display_time FROM messages ORDER BY sequence DESC LIMIT 1"))
    assert before <= told <= iso(wall_clock())


def test_what_is_there_is_shown_once(server: ServerProcess) -> None:
    """`tail --once` prints a readable line per entry, with names, and ends."""
    run = succeed("tail", "Tea", "--as", "ben", "--once", "--from", "3", data=server.data)
    assert [line.split("  ", 1)[1] for line in run.lines[1:]] == [
        "#3  ann: message 3",
        "#5  ann: message 5",
        "#6  ann added cas",
    ]


def test_the_last_entries_are_shown(server: ServerProcess) -> None:
    """`tail -n` starts so many before the end; --json prints entries as they travel."""
    run = succeed("tail", "Tea", "--as", "ann", "--once", "-n", "2", "--json", data=server.data)
    assert '"sequence":5' in run.lines[0]
    assert '"kind":"member"' in run.lines[1]


def test_there_is_nothing_beyond_the_head(server: ServerProcess) -> None:
    """`tail --once --from` beyond it prints nothing, and says where the chat ends."""
    run = succeed("tail", "Tea", "--as", "ann", "--once", "--from", "1000", data=server.data)
    assert run.stdout == ""
    assert run.stderr == f"Nothing from #1000 on: the last is #{GROUP_ENTRIES}.\n"


def test_a_tail_waits_for_a_number_that_is_to_come(server: ServerProcess) -> None:
    """`--from` beyond the head shows that number first, nothing before it."""
    wanted = str(GROUP_ENTRIES + 3)
    with following(server, "Tea", "--as", "ann", "--from", wanted, "--json") as lines:
        for text in ("one", "two", "three"):
            succeed("send", "Tea", text, "--as", "ben", data=server.data)
        assert lines.wait_for(lambda line: '"three"' in line, LINE_SECONDS_MAX)
        said = lines.all()
    assert [json.loads(line)["content"] for line in said] == ["three"]


def test_from_and_last_both_hold(server: ServerProcess) -> None:
    """`-n` is how many of the last ones, of those from `--from` on."""
    options = ("--once", "--json", "--from", "2", "-n", "2")
    run = succeed("tail", "Tea", "--as", "ann", *options, data=server.data)
    assert [json.loads(line)["sequence"] for line in run.lines] == [5, 6]


def test_a_tail_follows_across_a_restart(server: ServerProcess) -> None:
    """What is sent later appears, also after a kill of the server, and no session outlives the tail."""
    with following(server, "Tea", "--as", "cas", "--from", str(GROUP_ENTRIES + 1)) as lines:
        succeed("send", "Tea", "first", "--as", "ann", data=server.data)
        assert lines.wait_for(lambda line: line.endswith("ann: first"), LINE_SECONDS_MAX)
        server.restart()
        succeed("send", "Tea", "second", "--as", "ben", data=server.data)
        assert lines.wait_for(lambda line: line.endswith("ben: second"), LINE_SECONDS_MAX)
        said = [line for line in lines.all() if ": " in line]
    assert [line.rsplit(": ", 1)[1] for line in said] == ["first", "second"]
    assert one(server.data, "SELECT count(*) FROM sessions") == 0


def test_control_characters_do_not_reach_a_terminal(server: ServerProcess) -> None:
    """A message with escape sequences is shown with its escapes spelled out."""
    succeed("send", "Tea", "-", "--as", "ann", data=server.data, given="\x1b]0;owned\x07 \u202eevil")
    shown = succeed("tail", "Tea", "--as", "ben", "--once", "-n", "1", data=server.data).stdout
    assert "\\x1b]0;owned\\x07 \\u202eevil" in shown
    assert "\x1b" not in shown


def test_a_token_from_the_environment_is_enough(server: ServerProcess, tmp_path: Path) -> None:
    """With PARLEY_TOKEN and PARLEY_URL no data folder is needed; a wrong --as is noticed."""
    token = succeed("token", "ann", data=server.data).stdout.strip()
    environment = {"PARLEY_TOKEN": token, "PARLEY_URL": server.url}
    sent = parley("send", "chat_group", "hi", data=tmp_path / "none", environment=environment)
    assert sent.status == 0, sent.stderr
    wrong = parley("send", "chat_group", "hi", "--as", "ben", data=tmp_path / "none", environment=environment)
    assert wrong.status == 1
    assert "this token is ann's" in wrong.stderr


def test_a_refusal_is_told_at_once(server: ServerProcess) -> None:
    """A chat that cannot take messages, or is not one's own, is a sentence and status 1."""
    change(server.data, "DELETE FROM chat_counters WHERE chat_id = 'chat_group'")
    for arguments, says in {
        ("send", "Tea", "hi", "--as", "ann"): "counter_missing",
        ("send", "chat_direct", "hi", "--as", "cas"): "not_a_member",
        ("tail", "chat_direct", "--as", "cas"): "not_a_member",
        ("send", "Nothing", "hi", "--as", "cas"): "cas is in: Tea",
        ("send", "Tea", "hi"): "PARLEY_TOKEN",
        ("send", "Tea", "hi", "--token", "prl_wrong"): "parley token",
    }.items():
        run = parley(*arguments, data=server.data)
        assert run.status == 1
        assert says in run.stderr
        assert "Traceback" not in run.stderr


def test_no_server_says_how_to_start_one(data: Path) -> None:
    """Talking to a folder that nobody serves names the command that serves it."""
    run = parley("send", "Tea", "hi", "--as", "ann", data=data)
    assert run.status == 1
    assert f"parley serve --data {data}" in run.stderr


def test_a_server_on_another_folder_is_told_apart(server: ServerProcess, tmp_path: Path) -> None:
    """A token made in one folder and shown to another folder's server is explained."""
    succeed("store", "init", data=tmp_path / "other")
    succeed("user", "add", "ann", data=tmp_path / "other")
    run = parley("send", "Tea", "hi", "--as", "ann", "--url", server.url, data=tmp_path / "other")
    assert run.status == 1
    assert "runs on another folder" in run.stderr


@pytest.mark.timeout(180)
def test_a_message_is_answered_edited_reacted_to_and_deleted(server: ServerProcess) -> None:
    """Each command names the message by its number or its id, and `tail` says what was done."""
    sent = succeed("send", "Tea", "helo", "--as", "ben", "--json", data=server.data).json
    number, message_id = str(sent["sequence"]), str(sent["message_id"])
    succeed("send", "Tea", "hi!", "--reply-to", number, "--as", "ann", data=server.data)
    succeed("edit", "Tea", f"#{number}", "hello", "--as", "ben", data=server.data)
    succeed("react", "Tea", message_id, "👍", "--as", "ann", data=server.data)
    succeed("react", "Tea", number, "👍", "--off", "--as", "ann", data=server.data)
    refused = parley("delete", "Tea", "999", "--as", "ann", data=server.data)
    assert (refused.status, "there is no #999" in refused.stderr) == (1, True)

    def lines() -> list[str]:
        shown = succeed("tail", "Tea", "--as", "ann", "--once", "--from", number, data=server.data)
        return [line.split("  ", 2)[2] for line in shown.lines[1:]]

    assert lines() == [
        "ben (edited): hello",
        f"ann (answers #{number}): hi!",
        f"ben edited #{number}: hello",
        f"ann 👍 to #{number}",
        f"ann took 👍 back from #{number}",
    ]
    succeed("delete", "Tea", number, "--as", "ben", data=server.data)
    assert [lines()[at] for at in (0, 2, 5)] == [
        "ben: (deleted)",
        f"ben edited #{number}",
        f"ben deleted #{number}",
    ]
