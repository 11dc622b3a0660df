"""Objects as files of a folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from parley.objects.ports import ObjectExists, ObjectMissing, ObjectStoreError, StoredObject

FILE_MODE = 0o600
FOLDER_MODE = 0o700
UNFINISHED = ".unfinished-"
"""The begin of the names of files that are being written. A crash may leave one; nobody reads it."""

NS_PER_MS = 1_000_000

T = TypeVar("T")


class FolderObjects:
    """A key is a path in the folder. Only this user may read what is written."""

    def __init__(self, folder: Path, make_name: Callable[[int], str] = secrets.token_hex) -> None:
        self._folder = folder.absolute()
        self._make_name = make_name

    @property
    def where(self) -> str:
        return str(self._folder)

    async def create(self, key: str, data: bytes) -> None:
        await asyncio.to_thread(self._create, key, data)

    def _create(self, key: str, data: bytes) -> None:
        """The file gets its name once it is on the disk, and so does the name, before this returns."""
        path = self._path(key)
        try:
            try:
                self._link(path, data)
            except FileNotFoundError:  # its folder was empty, and deleted a moment ago
                self._link(path, data)
            self._sync(path)
        except FileExistsError as error:
            # Another writer may have linked it a moment ago: it must be on the disk here, too.
            self._sync(path)
            raise ObjectExists(self.where, key) from error
        except OSError as error:
            raise ObjectStoreError(f"{path} cannot be written: {error.strerror}") from error

    def _link(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
        unfinished = path.parent / f"{UNFINISHED}{self._make_name(8)}"
        try:
            _write_synced(unfinished, data)
            os.link(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)

    def _sync(self, path: Path) -> None:
        """The names that lead to a file, down from this store's own folder: they may be new as well."""
        for folder in path.parents:
            if folder.is_relative_to(self._folder):
                _sync_folder(folder)

    async def read(self, key: str) -> bytes:
        return await self._reading(key, Path.read_bytes)

    async def read_range(self, key: str, start: int, length: int) -> bytes:
        def read(path: Path) -> bytes:
            with open(path, "rb") as file:
                file.seek(start)
                return file.read(length)

        return await self._reading(key, read)

    async def _reading(self, key: str, read: Callable[[Path], T]) -> T:
        path = self._path(key)
        try:
            return await asyncio.to_thread(read, path)
        except FileNotFoundError as error:
            raise ObjectMissing(self.where, key) from error
        except OSError as error:
            raise ObjectStoreError(f"{path} cannot be read: {error.strerror}") from error

    async def find(self, prefix: str) -> list[StoredObject]:
        return await asyncio.to_thread(self._find, prefix)

    def _find(self, prefix: str) -> list[StoredObject]:
        found: list[StoredObject] = []
        try:
            for path in self._folder.joinpath(prefix.rpartition("/")[0]).rglob("*"):
                key = path.relative_to(self._folder).as_posix()
                if key.startswith(prefix) and not path.name.startswith(UNFINISHED):
                    with contextlib.suppress(FileNotFoundError):  # deleted since the folder was read
                        if path.is_file():
                            about = path.stat()
                            found.append(StoredObject(key, about.st_size, about.st_mtime_ns // NS_PER_MS))
        except OSError as error:
            raise ObjectStoreError(f"{self.where} cannot be read: {error.strerror}") from error
        return sorted(found, key=lambda one: one.key)

    async def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            await asyncio.to_thread(self._delete, path)
        except OSError as error:
            raise ObjectStoreError(f"{path} cannot be deleted: {error.strerror}") from error

    def _delete(self, path: Path) -> None:
        """With the folder, if it was the last file there."""
        path.unlink(missing_ok=True)
        if path.parent != self._folder:
            with contextlib.suppress(OSError):
                path.parent.rmdir()

    def _path(self, key: str) -> Path:
        """ObjectStoreError for a key that would lead out of the folder."""
        parts = key.split("/")
        if not all(parts) or ".." in parts or "." in parts:
            raise ObjectStoreError(f"{key!r} is no key of an object")
        return self._folder.joinpath(*parts)


def _write_synced(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
