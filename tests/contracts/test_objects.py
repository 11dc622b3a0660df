"""Object stores: a folder and a bucket keep the same promises."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from parley.app.archive import cold_objects
from parley.clock import wall_clock
from parley.config import Config
from parley.errors import ConfigError, StoreUnavailable
from parley.objects.folder import UNFINISHED
from parley.objects.ports import ObjectExists, ObjectMissing, Objects, ObjectStoreError, S3Settings
from parley.objects.targets import objects_at
from tests.services import s3_target

MS_PER_HOUR = 3_600_000
TARGETS: dict[str, Callable[[Path], str]] = {
    "folder": lambda folder: str(folder / "deep" / "objects"),
    "s3": lambda _: s3_target(),
}


@pytest.fixture(params=TARGETS)
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    return objects_at(TARGETS[request.param](tmp_path), os.environ)


async def test_an_object_is_read_as_it_was_written(objects: Objects) -> None:
    """Bytes come back whole, and by ranges."""
    await objects.create("a/one", b"0123456789")
    assert await objects.read("a/one") == b"0123456789"
    assert await objects.read_range("a/one", 2, 3) == b"234"
    assert await objects.read_range("a/one", 8, 100) == b"89"


async def test_an_object_is_written_once(objects: Objects) -> None:
    """A second write under the same key is refused, and changes nothing."""
    await objects.create("a/one", b"first")
    with pytest.raises(ObjectExists):
        await objects.create("a/one", b"second")
    assert await objects.read("a/one") == b"first"


async def test_of_many_writers_at_once_one_succeeds(objects: Objects) -> None:
    """A key that many create at the same time has the object of exactly one of them."""
    bodies = [str(number).encode() * 1000 for number in range(8)]
    results = await asyncio.gather(
        *(objects.create("contended", body) for body in bodies), return_exceptions=True
    )
    (winner,) = [body for body, result in zip(bodies, results, strict=True) if result is None]
    assert [type(result) for result in results if result is not None] == [ObjectExists] * 7
    assert await objects.read("contended") == winner


async def test_what_is_not_there_is_named(objects: Objects) -> None:
    """Reading nothing raises, in each way of reading; deleting nothing does not."""
    with pytest.raises(ObjectMissing, match="no/such"):
        await objects.read("no/such")
    with pytest.raises(ObjectMissing, match="no/such"):
        await objects.read_range("no/such", 0, 1)
    await objects.delete("no/such")


async def test_a_listing_has_what_begins_so_in_order(objects: Objects) -> None:
    """A prefix may end within a name; deleted objects are not listed."""
    assert await objects.find("") == []
    for key in ("b/two", "a/twelve", "a/two", "a/one"):
        await objects.create(key, key.encode())
    await objects.delete("b/two")
    listed = await objects.find("a/tw")
    assert [(one.key, one.size_bytes) for one in listed] == [("a/twelve", 8), ("a/two", 5)]
    assert [one.key for one in await objects.find("")] == ["a/one", "a/twelve", "a/two"]


async def test_a_listing_says_when_an_object_was_written(objects: Objects) -> None:
    """By the store's own clock: what is older than a day may be swept."""
    await objects.create("a/one", b"1")
    (listed,) = await objects.find("a/")
    assert abs(listed.modified_ms - wall_clock()) < MS_PER_HOUR


async def test_a_listing_of_a_folder_has_none_of_its_neighbour(objects: Objects) -> None:
    """A chat's objects are found by the chat's folder alone."""
    for key in ("chats/a/1", "chats/a/2", "chats/ab/1"):
        await objects.create(key, b"12345")
    assert [one.key for one in await objects.find("chats/a/")] == ["chats/a/1", "chats/a/2"]
    assert await objects.find("chats/none/") == []


async def test_a_deleted_object_is_gone(objects: Objects) -> None:
    """It may be deleted again, and created again."""
    await objects.create("a/one", b"first")
    for _ in range(2):
        await objects.delete("a/one")
    with pytest.raises(ObjectMissing):
        await objects.read("a/one")
    await objects.create("a/one", b"again")
    assert await objects.read("a/one") == b"again"


async def test_a_server_that_is_away_is_unavailable() -> None:
    """Nothing listens there: every request says so, as something that may pass."""
    s3 = S3Settings(endpoint="http://127.0.0.1:9", region="r", access_key_id="a", secret_access_key="b")
    objects = objects_at("s3://bucket", {}, s3)
    for request in (objects.read("x"), objects.create("x", b""), objects.delete("x"), objects.find("x/")):
        with pytest.raises(StoreUnavailable) as raised:
            await request
        assert not isinstance(raised.value, ObjectMissing)


def test_an_archive_that_can_never_work_is_refused(tmp_path: Path) -> None:
    """A file where the folder should be, and a bucket without a name."""
    (tmp_path / "file").write_text("")
    config = Config()
    for target in (str(tmp_path / "file" / "cold"), "s3://"):
        config.archive.target = target
        with pytest.raises(ConfigError, match=r"archive\.target"):
            cold_objects(config, {})


def test_others_on_the_machine_read_no_archive(tmp_path: Path) -> None:
    """The folder belongs to its owner alone."""
    config = Config()
    config.archive.target = str(tmp_path / "cold")
    cold_objects(config, {})
    assert (tmp_path / "cold").stat().st_mode & 0o077 == 0


async def test_a_crash_within_a_write_leaves_nothing_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file gets its name when it is whole: what was cut off is no object."""
    folder = objects_at(str(tmp_path), os.environ)
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", _die)
        patched.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            await asyncio.to_thread(lambda: asyncio.run(folder.create("a/one", b"half")))
    assert [path.name[: len(UNFINISHED)] for path in (tmp_path / "a").iterdir()] == [UNFINISHED]
    assert await folder.find("") == []
    await folder.create("a/one", b"whole")
    assert await folder.read("a/one") == b"whole"


def _die(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("key", ["../out", "/etc/passwd", "a//b", "a/./b", ""])
async def test_no_key_leads_out_of_the_folder(tmp_path: Path, key: str) -> None:
    """Keys come from manifests, which somebody may have changed."""
    with pytest.raises(ObjectStoreError, match="no key"):
        await objects_at(str(tmp_path), os.environ).read(key)


@pytest.mark.parametrize("target", ["http://bucket/x", "s3://", "s3:///prefix", "s3://bucket/x?versionId=1"])
def test_other_addresses_are_refused(target: str) -> None:
    """A target that is neither a folder nor a bucket is a mistake."""
    with pytest.raises(ConfigError, match="neither"):
        objects_at(target, {})
