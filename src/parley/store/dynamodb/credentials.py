"""Where credentials come from: the environment, or whatever botocore's chain finds.

botocore knows profiles, single sign-on, containers and instances, and renews what expires. It is slow to
load and reads files and sockets, so it works in a thread, and nothing of it is touched per request.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from parley.errors import ConfigError
from parley.store.dynamodb.signing import Credentials

RENEW_SECONDS = 60.0
"""How often the chain is asked again; botocore renews what has less than 15 minutes to live."""

NONE_FOUND = (
    "no AWS credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    " (any two words do for DynamoDB Local), AWS_PROFILE, or give the machine a role"
)

FindCredentials = Callable[[], Awaitable[Credentials]]


def fixed(access_key: str, secret_key: str, token: str | None = None) -> FindCredentials:
    """Credentials that never change."""
    credentials = Credentials(access_key, secret_key, token)

    async def find() -> Credentials:
        return credentials

    return find


def credentials_from(environment: Mapping[str, str] = os.environ) -> FindCredentials:
    """Keys that stand in the environment as they are; otherwise botocore's chain."""
    access_key, secret_key = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if access_key and secret_key:
        return fixed(access_key, secret_key, environment.get("AWS_SESSION_TOKEN") or None)
    return Chain()


async def find_region(environment: Mapping[str, str] = os.environ) -> str:
    """The region that AWS tools would use here; ConfigError when there is none."""
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    region = region or await asyncio.to_thread(_profile_region)
    if region is None:
        raise ConfigError("dynamodb.region is not set, and neither is AWS_REGION")
    return region


def _profile_region() -> str | None:
    from botocore.session import Session

    region: str | None = Session().get_config_variable("region")
    return region


class Chain:
    """botocore's chain of providers. Found once, then asked again for what it has renewed."""

    def __init__(self) -> None:
        self._source: Any = None

    async def __call__(self) -> Credentials:
        """ConfigError when there are none."""
        return await asyncio.to_thread(self._find)

    def _find(self) -> Credentials:
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session

        try:
            self._source = self._source or Session().get_credentials()
            if self._source is None:
                raise ConfigError(NONE_FOUND)
            found = self._source.get_frozen_credentials()
        except BotoCoreError as error:
            raise ConfigError(f"the AWS credentials cannot be used: {error}") from error
        return Credentials(found.access_key, found.secret_key, found.token)
