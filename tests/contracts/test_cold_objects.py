"""The `ColdObjects` port, on a folder and on a real S3 server."""

import asyncio
from pathlib import Path

import pytest

from parley.archive.objects import ColdObjectMissing, ColdObjects, S3Settings, open_objects
from parley.errors import ConfigError, StoreUnavailable
from tests.contracts.object_stores import OBJECT_STORES


@pytest.fixture(params=list(OBJECT_STORES))
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ColdObjects:
    return OBJECT_STORES[request.param](tmp_path)


async def names(objects: ColdObjects, prefix: str) -> list[str]:
    return sorted([stored.name async for stored in objects.list(prefix)])


async def test_an_object_is_read_back(objects: ColdObjects) -> None:
    """All of it, and any part of it."""
    data = bytes(range(256)) * 40
    assert await objects.create("chats/a/one.seg", data)
    assert await objects.read("chats/a/one.seg") == data
    assert await objects.read_range("chats/a/one.seg", 100, 300) == data[100:300]
    assert await objects.read_range("chats/a/one.seg", len(data) - 5, len(data) + 100) == data[-5:]


async def test_an_object_is_written_once(objects: ColdObjects) -> None:
    """A second one of the same name is refused, and the first one stays."""
    assert await objects.create("chats/a/one.seg", b"first")
    assert not await objects.create("chats/a/one.seg", b"second")
    assert await objects.read("chats/a/one.seg") == b"first"


async def test_of_many_writers_one_wins(objects: ColdObjects) -> None:
    """However many create the same name at once, one of them is told that it did."""
    contents = [f"writer {number}".encode() for number in range(8)]
    won = await asyncio.gather(*(objects.create("chats/a/race", data) for data in contents))
    assert sum(won) == 1
    assert await objects.read("chats/a/race") == contents[won.index(True)]


async def test_a_missing_object_is_told_from_a_store_that_is_away(objects: ColdObjects) -> None:
    """To read what is not there is another error than not to be able to read."""
    for missing in (objects.read("chats/a/none"), objects.read_range("chats/a/none", 0, 5)):
        with pytest.raises(ColdObjectMissing):
            await missing


async def test_a_deleted_object_is_gone(objects: ColdObjects) -> None:
    """It may be deleted again, and created again."""
    await objects.create("chats/a/one.seg", b"first")
    for _ in range(2):
        await objects.delete("chats/a/one.seg")
    with pytest.raises(ColdObjectMissing):
        await objects.read("chats/a/one.seg")
    assert await objects.create("chats/a/one.seg", b"again")


async def test_objects_are_listed_by_prefix(objects: ColdObjects) -> None:
    """Only those below it, with their sizes."""
    for name in ("chats/a/1", "chats/a/2", "chats/ab/1"):
        await objects.create(name, b"12345")
    assert await names(objects, "chats/a/") == ["chats/a/1", "chats/a/2"]
    assert await names(objects, "chats/none/") == []
    assert [stored.bytes async for stored in objects.list("chats/ab/")] == [5]


async def test_a_server_that_is_away_is_unavailable() -> None:
    """Nothing listens there: every request says so, as something that may pass."""
    s3 = S3Settings(endpoint="http://127.0.0.1:9", region="r", access_key_id="a", secret_access_key="b")
    objects = open_objects("s3://bucket", s3)
    for request in (objects.read("x"), objects.create("x", b""), objects.delete("x"), names(objects, "x/")):
        with pytest.raises(StoreUnavailable):
            await request


def test_a_target_that_can_never_work_is_refused(tmp_path: Path) -> None:
    """A file where the folder should be, and a bucket without a name."""
    (tmp_path / "file").write_text("")
    for target in (str(tmp_path / "file" / "cold"), "s3://"):
        with pytest.raises(ConfigError, match=r"archive\.target"):
            open_objects(target, S3Settings())


def test_others_on_the_machine_read_nothing(tmp_path: Path) -> None:
    """The folder belongs to its owner alone."""
    open_objects(str(tmp_path / "cold"), S3Settings())
    assert (tmp_path / "cold").stat().st_mode & 0o077 == 0
