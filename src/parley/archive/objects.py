"""The object store behind the cold tier: a folder, or anything with the API of S3, both through obstore."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import msgspec
import obstore
from msgspec import Struct
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, S3Store

from parley.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from obstore.store import S3Config

S3_SCHEME = "s3://"
FOLDER_MODE = 0o700
LISTED_AT_ONCE = 1_000
REQUEST_SECONDS_MAX = 10.0
RETRIES_MAX = 2
RETRY_SECONDS_MAX = 15.0


class ColdObjectMissing(Exception):
    """There is no object of this name."""


class ColdObject(Struct, frozen=True):
    name: str
    bytes: int
    modified_ms: int


class ColdObjects(Protocol):
    """ColdObjects by name, each written once and never changed. StoreUnavailable: it cannot be reached."""

    async def create(self, name: str, data: bytes) -> bool:
        """Durable before it returns, whole or not at all. False: there is one of this name, left as it is."""
        ...

    async def read(self, name: str) -> bytes:
        """The whole object. ColdObjectMissing if there is none."""
        ...

    async def read_range(self, name: str, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end`, fewer if the object ends before. ColdObjectMissing as above."""
        ...

    def list(self, prefix: str) -> AsyncIterator[ColdObject]:
        """Every object below this prefix, in no order."""
        ...

    async def delete(self, name: str) -> None:
        """Afterwards there is none of this name, as if there had never been one. May be repeated."""
        ...


class ObstoreObjects:
    """`folder`: of a local store, whose files are synced to the disk; None for S3."""

    def __init__(self, store: LocalStore | S3Store, folder: Path | None) -> None:
        self._store = store
        self._folder = folder

    async def create(self, name: str, data: bytes) -> bool:
        try:
            await obstore.put_async(self._store, name, data, mode="create")
        except AlreadyExistsError:
            # Another archiver may have written it a moment ago: it must be on the disk here, too.
            if self._folder is not None:
                await asyncio.to_thread(_sync, self._folder, name)
            return False
        except (BaseError, OSError, ValueError) as error:
            raise _unavailable("written", error) from error
        if self._folder is not None:
            await asyncio.to_thread(_sync, self._folder, name)
        return True

    async def read(self, name: str) -> bytes:
        async def whole() -> bytes:
            found = await obstore.get_async(self._store, name)
            return bytes(await found.bytes_async())

        return await _reading(name, whole())

    async def read_range(self, name: str, start: int, end: int) -> bytes:
        async def part() -> bytes:
            return bytes(await obstore.get_range_async(self._store, name, start=start, end=end))

        return await _reading(name, part())

    async def list(self, prefix: str) -> AsyncIterator[ColdObject]:
        pages = obstore.list(self._store, prefix=prefix, chunk_size=LISTED_AT_ONCE)
        while True:
            try:
                page = await anext(pages, None)
            except (BaseError, OSError, ValueError) as error:
                raise _unavailable("listed", error) from error
            if page is None:
                return
            for one in page:
                modified_ms = int(one["last_modified"].timestamp() * 1_000)
                yield ColdObject(one["path"], one["size"], modified_ms)

    async def delete(self, name: str) -> None:
        try:
            with contextlib.suppress(FileNotFoundError):
                await obstore.delete_async(self._store, name)
        except (BaseError, OSError, ValueError) as error:
            raise _unavailable("deleted", error) from error


async def _reading(name: str, work: Awaitable[bytes]) -> bytes:
    try:
        return await work
    except FileNotFoundError as error:
        raise ColdObjectMissing(name) from error
    except (BaseError, OSError, ValueError) as error:
        raise _unavailable("read", error) from error


def _unavailable(how: str, error: Exception) -> StoreUnavailable:
    first = str(error).strip().split("\n", 1)[0]
    return StoreUnavailable(f"the cold store cannot be {how}: {first}")


def _sync(folder: Path, name: str) -> None:
    """The file and the names that lead to it are on the disk when this returns."""
    path = folder / name
    try:
        for one in (path, *(parent for parent in path.parents if parent.is_relative_to(folder))):
            descriptor = os.open(one, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    except OSError as error:
        raise StoreUnavailable(f"the cold store cannot be written: {error}") from error


class S3Settings(Struct, frozen=True, kw_only=True):
    """What is empty is taken from the environment, as programs for AWS do."""

    endpoint: str = ""
    region: str = ""
    access_key_id: str = ""
    secret_access_key: str = ""


def open_objects(target: str, s3: S3Settings) -> ObstoreObjects:
    """A folder, which is created, or s3://bucket/prefix. ConfigError if it can never be used."""
    try:
        if target.startswith(S3_SCHEME):
            return ObstoreObjects(_s3_store(target, s3), None)
        folder = Path(target).resolve()
        folder.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
        return ObstoreObjects(LocalStore(folder), folder)
    except (BaseError, OSError, ValueError) as error:
        first = str(error).strip().split("\n", 1)[0]
        raise ConfigError(f"archive.target {target} cannot be used: {first}") from error


def _s3_store(target: str, s3: S3Settings) -> S3Store:
    bucket, _, prefix = target.removeprefix(S3_SCHEME).strip("/").partition("/")
    if not bucket:
        raise ConfigError(f"archive.target {target} names no bucket: s3://bucket/prefix")
    given = {name: value for name, value in msgspec.structs.asdict(s3).items() if value}
    return S3Store(
        bucket,
        prefix=prefix or None,
        config=cast("S3Config", given),
        virtual_hosted_style_request=not s3.endpoint,
        client_options={
            "allow_http": s3.endpoint.startswith("http://"),
            "timeout": timedelta(seconds=REQUEST_SECONDS_MAX),
        },
        retry_config={
            "max_retries": RETRIES_MAX,
            "retry_timeout": timedelta(seconds=RETRY_SECONDS_MAX),
        },
    )
