"""Objects in a bucket that speaks the API of S3, through obstore.

What the settings leave empty comes from the variables that AWS's own tools read (AWS_REGION,
AWS_ACCESS_KEY_ID …, AWS_ENDPOINT_URL_S3 for a server that is not AWS), or from the machine's role.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from parley.objects.ports import ObjectExists, ObjectMissing, ObjectStoreError, S3Settings, StoredObject

ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
REGION_DEFAULT = "us-east-1"
REQUEST_SECONDS_MAX = 30.0
RETRIES_MAX = 2
RETRY_SECONDS_MAX = 15.0
MS_PER_SECOND = 1_000

SERVER_SAYS = re.compile(r"<Message>([^<]+)</Message>")

T = TypeVar("T")


class S3Objects:
    """The objects of one bucket whose keys begin with a prefix."""

    def __init__(
        self, bucket: str, prefix: str, environment: Mapping[str, str], settings: S3Settings
    ) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._store = S3Store(bucket, **_options(environment, settings))

    @property
    def where(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    async def create(self, key: str, data: bytes) -> None:
        """In one conditional request: no object is ever replaced, by whomever."""
        try:
            await self._store.put_async(self._prefix + key, data, mode="create", use_multipart=False)
        except AlreadyExistsError as error:
            raise ObjectExists(self.where, key) from error
        except BaseError as error:
            raise self._failed(error) from error

    async def read(self, key: str) -> bytes:
        async def read() -> bytes:
            found = await self._store.get_async(self._prefix + key)
            return bytes(await found.bytes_async())

        return await self._asking(key, read())

    async def read_range(self, key: str, start: int, length: int) -> bytes:
        async def read() -> bytes:
            return bytes(await self._store.get_range_async(self._prefix + key, start=start, length=length))

        return await self._asking(key, read())

    async def find(self, prefix: str) -> list[StoredObject]:
        found: list[StoredObject] = []
        wanted = self._prefix + prefix
        # obstore lists whole parts of a path, so what begins with half a part is looked for above it
        folder = wanted.rpartition("/")[0]
        try:
            async for some in self._store.list(prefix=folder or None):
                found += [
                    StoredObject(
                        one["path"].removeprefix(self._prefix),
                        one["size"],
                        int(one["last_modified"].timestamp() * MS_PER_SECOND),
                    )
                    for one in some
                    if one["path"].startswith(wanted)
                ]
        except BaseError as error:
            raise self._failed(error) from error
        return sorted(found, key=lambda one: one.key)

    async def delete(self, key: str) -> None:
        try:
            await self._store.delete_async(self._prefix + key)
        except FileNotFoundError:
            return
        except BaseError as error:
            raise self._failed(error) from error

    async def _asking(self, key: str, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except FileNotFoundError as error:  # what obstore raises for a key without an object
            raise ObjectMissing(self.where, key) from error
        except BaseError as error:
            raise self._failed(error) from error

    def _failed(self, error: BaseError) -> ObjectStoreError:
        said = SERVER_SAYS.search(str(error))
        reason = said[1] if said is not None else str(error).splitlines()[0]
        return ObjectStoreError(f"{self.where} cannot be used: {reason}")


def _options(environment: Mapping[str, str], settings: S3Settings) -> dict[str, Any]:
    endpoint = settings.endpoint or _first(environment, ENDPOINT_VARIABLES) or ""
    region = settings.region or _first(environment, REGION_VARIABLES) or REGION_DEFAULT
    options: dict[str, Any] = {
        "region": region,
        "client_options": {
            "allow_http": endpoint.startswith("http://"),
            "timeout": timedelta(seconds=REQUEST_SECONDS_MAX),
        },
        "retry_config": {
            "max_retries": RETRIES_MAX,
            "retry_timeout": timedelta(seconds=RETRY_SECONDS_MAX),
        },
    }
    if endpoint:
        options |= {"endpoint": endpoint, "virtual_hosted_style_request": False}
    if settings.access_key_id:
        options |= {"access_key_id": settings.access_key_id}
    if settings.secret_access_key:
        options |= {"secret_access_key": settings.secret_access_key}
    return options


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((environment[name] for name in names if environment.get(name)), None)
