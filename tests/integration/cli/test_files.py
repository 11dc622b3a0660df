"""`parley send --file` and `parley file get`, through a running server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.server import ServerProcess
from tests.integration.cli.running import parley, succeed


@pytest.fixture
def server(data: Path) -> Iterator[ServerProcess]:
    with ServerProcess(data) as running:
        yield running


def test_files_go_with_a_message_and_come_back(server: ServerProcess, tmp_path: Path) -> None:
    """`tail` names them, another member gets them, and nothing is overwritten."""
    one, two = tmp_path / "one.txt", tmp_path / "two.bin"
    one.write_text("hello")
    two.write_bytes(bytes(5_000_000))
    sent = succeed(
        "send", "Tea", "--file", str(one), "--file", str(two), "--as", "ben", "--json", data=server.data
    ).json
    shown = succeed("tail", "Tea", "--once", "--from", str(sent["sequence"]), "--as", "ann", data=server.data)
    assert "[one.txt, 5 bytes, att_" in shown.stdout
    entry = succeed(
        "tail", "Tea", "--once", "--from", str(sent["sequence"]), "--as", "ann", "--json", data=server.data
    ).json
    ids = [file["attachment_id"] for file in entry["attachments"]]
    for file_id, source in zip(ids, (one, two), strict=True):
        target = tmp_path / f"got {source.name}"
        got = succeed(
            "file", "get", "Tea", file_id, "--to", str(target), "--as", "ann", "--json", data=server.data
        ).json
        assert (got["path"], got["name"]) == (str(target), source.name)
        assert target.read_bytes() == source.read_bytes()
    again = parley("file", "get", "Tea", ids[0], "--to", str(one), "--as", "ann", data=server.data)
    assert (again.status, "is there already" in again.stderr) == (1, True)


def test_a_message_needs_a_text_or_a_file(server: ServerProcess, tmp_path: Path) -> None:
    """A file that is not there is a mistake of whoever typed it."""
    for arguments in (["send", "Tea"], ["send", "Tea", "--file", str(tmp_path / "none")]):
        assert parley(*arguments, "--as", "ann", data=server.data).status == 2


def test_the_commands_say_where_files_are(data: Path, tmp_path: Path) -> None:
    """Into the data folder of the new server; elsewhere they are left, with a word; and so without them."""
    sent = tmp_path / "plan.txt"
    sent.write_bytes(bytes(5_000_000))
    with ServerProcess(data) as server:
        succeed("send", "Tea", "--file", str(sent), "--as", "ben", data=server.data)
        backed = succeed("backup", str(tmp_path / "kept"), data=server.data)
        assert ", 1 file, verified" in backed.stdout
        entry = succeed("tail", "Tea", "--once", "--as", "ann", "--json", data=server.data).lines[-1]
    attachment_id = entry.partition('"attachment_id":')[2].partition('"')[2].partition('"')[0]
    new, other = tmp_path / "new", tmp_path / "other"
    restored = succeed("restore", str(tmp_path / "kept"), data=new)
    assert f"1 file in {new / 'attachments'}." in restored.stdout
    with ServerProcess(new) as server:
        target = tmp_path / "got"
        got = "file", "get", "Tea", attachment_id, "--to", str(target), "--as", "ann"
        succeed(*got, data=server.data)
        assert target.read_bytes() == sent.read_bytes()
    away = {"PARLEY_ATTACHMENTS_TARGET": str(tmp_path / "away")}
    left = parley("restore", str(tmp_path / "kept"), data=other, environment=away)
    assert left.status == 0
    assert (
        f"1 file of the backup not restored: copy what {tmp_path / 'away'} lacks from files/" in left.stderr
    )
    assert not (tmp_path / "away").exists()
    without = parley("backup", str(tmp_path / "small"), "--no-files", data=new)
    assert "1 file not in the backup: they were left out" in without.stderr
    last = parley("restore", str(tmp_path / "small"), data=tmp_path / "last")
    assert "1 file not in the backup: put the bytes into" in last.stderr
