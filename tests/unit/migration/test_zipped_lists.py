"""Archives of somebody else: read object by object, and never unpacked to more than their bounds."""

import json
import tracemalloc
from pathlib import Path
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZIP_STORED, ZipFile

import pytest

from parley.migration import zipped_lists
from parley.migration.slack import SlackExport
from parley.migration.workspaces import ImportFailed
from parley.migration.zipped_lists import READ_CHARS, ZippedLists
from parley.wire.limits import MIB


def archive(path: Path, text: str, packing: int = ZIP_DEFLATED) -> Path:
    with ZipFile(path, "w", packing) as made:
        made.writestr("list.json", text)
    return path


def read(path: Path) -> list[object]:
    return [one for one, _ in ZippedLists(path).objects("list.json")]


def test_every_object_is_read(tmp_path: Path) -> None:
    """Also those that lie across two reads, and with letters of several bytes; what is no object is not."""
    wanted = [{"n": n, "text": "ü👩" * (n % 7), "more": [[{}], "]"]} for n in range(READ_CHARS // 20)]
    text = json.dumps([*wanted, 1, None, "x", [{}]], ensure_ascii=False, indent=1)
    found = list(ZippedLists(archive(tmp_path / "a.zip", "\ufeff" + text)).objects("list.json"))
    assert [one for one, _ in found] == wanted
    assert [json.loads(raw) for _, raw in found] == wanted
    assert list(ZippedLists(tmp_path / "a.zip").objects("other.json")) == []


@pytest.mark.parametrize("text", ["", "{}", "null", "[", '[{"a": 1}', '[{"a": ', "[" * 100_000, "[{}}]"])
def test_what_is_no_list_is_refused(tmp_path: Path, text: str) -> None:
    """In a sentence that names the file."""
    with pytest.raises(ImportFailed, match=r"list\.json"):
        read(archive(tmp_path / "a.zip", text))


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    """By its own words, before it is unpacked; what is small may be as repetitive as it is."""
    small, large = "[" + "{}," * 100_000 + "{}]", "[" + " " * 2 * MIB + "{}]"
    assert len(read(archive(tmp_path / "small.zip", small))) == 100_001
    with pytest.raises(ImportFailed, match="100 times larger"):
        read(archive(tmp_path / "large.zip", large))
    assert len(read(archive(tmp_path / "stored.zip", large, ZIP_STORED))) == 1
    with pytest.raises(ImportFailed, match="packed"):
        read(archive(tmp_path / "bz2.zip", "[]", ZIP_BZIP2))


def test_a_file_and_an_object_have_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However well they are packed."""
    monkeypatch.setattr(zipped_lists, "OBJECT_CHARS_MAX", 1_000)
    text = json.dumps([{"text": "x" * 4 * READ_CHARS}])
    with pytest.raises(ImportFailed, match="cannot be read"):
        read(archive(tmp_path / "a.zip", text))
    monkeypatch.setattr(zipped_lists, "MEMBER_BYTES_MAX", 1_000)
    with pytest.raises(ImportFailed, match="more than"):
        read(archive(tmp_path / "a.zip", text))


def test_a_day_takes_as_much_memory_as_its_file(tmp_path: Path) -> None:
    """And not as much as its objects, which are many times larger."""
    messages = [
        {"type": "message", "user": "U1", "text": str(n), "ts": f"15000000{n:02}.0", "blocks": [[]] * 2_000}
        for n in range(100)
    ]
    day = json.dumps(messages)
    with ZipFile(tmp_path / "slack.zip", "w", ZIP_DEFLATED) as made:
        made.writestr("users.json", json.dumps([{"id": "U1", "name": "ann"}]))
        made.writestr("channels.json", json.dumps([{"id": "C1", "name": "g"}]))
        made.writestr("g/2017-07-14.json", day)
    export = SlackExport(tmp_path / "slack.zip", "slack")
    (chat,) = export.chats()
    tracemalloc.start()
    try:
        read_messages = sum(1 for _ in export.messages(chat))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert read_messages == 100
    assert peak < 3 * len(day)


def test_a_file_that_cannot_be_unpacked_is_named(tmp_path: Path) -> None:
    """A bit that a disk turned is no error of ours."""
    path = archive(tmp_path / "a.zip", json.dumps([{"text": "x" * 500}]))
    data = bytearray(path.read_bytes())
    begin = data.index(b"list.json") + len(b"list.json")
    data[begin : begin + 8] = b"\xff" * 8
    path.write_bytes(data)
    with pytest.raises(ImportFailed, match=r"list\.json cannot be read"):
        read(path)
