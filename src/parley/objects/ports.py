"""What is kept in an object store: bytes under a key, written once and whole."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from parley.errors import StoreUnavailable


class ObjectStoreError(StoreUnavailable):
    """The object store refused, or could not be reached. Nothing half written is ever read."""


class ObjectMissing(ObjectStoreError):
    """There is no object under this key."""

    def __init__(self, where: str, key: str) -> None:
        super().__init__(f"{where} has no object {key}")
        self.key = key


class ObjectExists(ObjectStoreError):
    """There is an object under this key already, and it stays as it is."""

    def __init__(self, where: str, key: str) -> None:
        super().__init__(f"{where} has an object {key} already")
        self.key = key


class StoredObject(Struct, frozen=True):
    """An object as a listing shows it."""

    key: str
    size_bytes: int
    modified_ms: int


class S3Settings(Struct, frozen=True, kw_only=True):
    """What is empty is taken from the environment, as programs for AWS do."""

    endpoint: str = ""
    region: str = ""
    access_key_id: str = ""
    secret_access_key: str = ""


class Objects(Protocol):
    """Objects under keys: names with slashes. ObjectStoreError where it cannot be used."""

    @property
    def where(self) -> str:
        """The folder or the address, for people."""
        ...

    async def create(self, key: str, data: bytes) -> None:
        """Durable when it returns. ObjectExists if there is one, also after an attempt with a lost answer."""
        ...

    async def read(self, key: str) -> bytes:
        """The whole object; ObjectMissing if there is none."""
        ...

    async def read_range(self, key: str, start: int, length: int) -> bytes:
        """Bytes from `start` on, fewer at the end of the object; ObjectMissing if there is none."""
        ...

    async def find(self, prefix: str) -> list[StoredObject]:
        """The objects whose key begins so, in the order of their keys; looks into no other folder."""
        ...

    async def delete(self, key: str) -> None:
        """Gone when it returns. Nothing happens if there is none."""
        ...
