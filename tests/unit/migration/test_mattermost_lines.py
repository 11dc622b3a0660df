"""Lines of somebody else: what is not needed of them takes no memory, and what is broken is named."""

import json
import tracemalloc
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import pytest

from parley.migration import mattermost
from parley.migration.mattermost import MattermostExport
from parley.migration.workspaces import ImportFailed

VERSION = '{"type":"version","version":1}\n'
POST = {"team": "t", "channel": "c", "user": "ann", "message": "hi", "create_at": 1_600_000_000_000}
BROKEN = ["[" * 100_000, "{}", "[]", "{", '{"type":"post"}', '{"type":"user","user":{}}']


def export(path: Path, text: str) -> MattermostExport:
    path.write_text(VERSION + text, encoding="utf-8")
    return MattermostExport(path, "mattermost")


def archive(path: Path, packing: int = ZIP_DEFLATED) -> bytes:
    """The bytes of an export in a ZIP file."""
    line = json.dumps({"type": "channel", "channel": {"team": "t", "name": "c"}})
    with ZipFile(path, "w", packing) as made:
        made.writestr("import.jsonl", VERSION + line + "\n")
    return path.read_bytes()


def test_a_line_takes_as_much_memory_as_its_text(tmp_path: Path) -> None:
    """And not as much as all the objects in it, which are many times larger."""
    line = json.dumps({"type": "post", "post": {**POST, "more": [[]] * 500_000}}) + "\n"
    tracemalloc.start()
    try:
        found = export(tmp_path / "m.jsonl", line)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [person.username for person in found.people()] == ["ann"]
    assert peak < 4 * len(line)


@pytest.mark.parametrize(
    "line", ["[" * 100_000, "{}", "[]", "{", '{"type":"post"}', '{"type":"user","user":{}}']
)
def test_a_line_that_is_none_is_named(tmp_path: Path, line: str) -> None:
    """By its number, however deep it goes."""
    with pytest.raises(ImportFailed, match="line 2"):
        export(tmp_path / "m.jsonl", line)


def test_a_line_has_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read to its end, also in an archive, which gives a bit more than it is asked for."""
    monkeypatch.setattr(mattermost, "LINE_BYTES_MAX", 5_000)
    line = json.dumps({"type": "post", "post": {**POST, "message": "x" * 10_000}})
    with pytest.raises(ImportFailed, match="has a line of more than"):
        export(tmp_path / "m.jsonl", line)
    with ZipFile(tmp_path / "m.zip", "w", ZIP_DEFLATED) as made:
        made.writestr("import.jsonl", VERSION + line)
    with pytest.raises(ImportFailed, match="has a line of more than"):
        MattermostExport(tmp_path / "m.zip", "mattermost")


@pytest.mark.parametrize("packing", [ZIP_STORED, ZIP_DEFLATED])
def test_a_damaged_archive_is_named(tmp_path: Path, packing: int) -> None:
    """Where its sum is wrong, and where it cannot be unpacked."""
    path = tmp_path / "m.zip"
    data = bytearray(archive(path, packing))
    begin = data.index(b"import.jsonl") + len(b"import.jsonl")
    data[begin : begin + 8] = b"\xff" * 8
    path.write_bytes(data)
    with pytest.raises(ImportFailed, match=r"m\.zip cannot be read"):
        MattermostExport(path, "mattermost")
