"""Object stores: a folder and a bucket keep the same promises."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from parley.errors import ConfigError
from parley.objects.folder import UNFINISHED
from parley.objects.ports import ObjectExists, ObjectMissing, Objects, ObjectStoreError, StoredObject
from parley.objects.targets import objects_at
from tests.services import s3_target

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
    assert await objects.find("a/tw") == [StoredObject("a/twelve", 8), StoredObject("a/two", 5)]
    assert [one.key for one in await objects.find("")] == ["a/one", "a/twelve", "a/two"]


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
