"""Credentials, and the requests signed with them.

Credentials come from the environment, or from botocore's chain of providers. botocore knows profiles, single
sign-on, containers and instances, and renews what expires. It is slow to load and reads files and sockets,
so it runs in a thread, and no request waits for it.

The signature is AWS Signature Version 4 for the one kind of request that DynamoDB takes: a POST of JSON to
`/`. The names are those of the specification: canonical request, string to sign, signing key.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from time import gmtime, strftime
from typing import Any

from msgspec import Struct

from parley.clock import MS_PER_SECOND
from parley.errors import ConfigError

SERVICE = "dynamodb"
ALGORITHM = "AWS4-HMAC-SHA256"
CONTENT_TYPE = "application/x-amz-json-1.0"
TARGET_PREFIX = "DynamoDB_20120810."

RENEW_SECONDS = 60.0
"""How often the chain is asked again; botocore renews what has less than 15 minutes to live."""

NONE_FOUND = (
    "no AWS credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    " (DynamoDB Local accepts any two words), AWS_PROFILE, or give the machine a role"
)


class Credentials(Struct, frozen=True):
    """Who sends a request. Credentials that expire have a token."""

    access_key: str
    secret_key: str
    token: str | None = None


FindCredentials = Callable[[], Awaitable[Credentials]]


def fixed_credentials(access_key: str, secret_key: str, token: str | None = None) -> FindCredentials:
    """Credentials that never change."""
    credentials = Credentials(access_key, secret_key, token)

    async def find() -> Credentials:
        return credentials

    return find


def credentials_from(environment: Mapping[str, str] = os.environ) -> FindCredentials:
    """The keys in the environment variables; without them, what botocore's chain finds."""
    access_key, secret_key = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if access_key and secret_key:
        return fixed_credentials(access_key, secret_key, environment.get("AWS_SESSION_TOKEN") or None)
    return ProviderChain()


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


class ProviderChain:
    """botocore's chain of providers. Keeps the provider that it found, which renews its keys."""

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


class Signer:
    """Signs requests to one host in one region. The key of a day is derived once."""

    def __init__(self, host: str, region: str) -> None:
        self._host = host
        self._region = region
        self._second = -1
        self._stamp = ""
        self._key_of: tuple[str, str] = ("", "")
        self._key = b""

    def headers(self, credentials: Credentials, operation: str, body: bytes, now_ms: int) -> dict[str, str]:
        """Every header that the request needs, the signature included."""
        stamp = self._stamp_of(now_ms)
        target = TARGET_PREFIX + operation
        headers = {
            "Host": self._host,
            "Content-Type": CONTENT_TYPE,
            "X-Amz-Date": stamp,
            "X-Amz-Target": target,
        }
        names = "content-type;host;x-amz-date;x-amz-target"
        canonical = f"POST\n/\n\ncontent-type:{CONTENT_TYPE}\nhost:{self._host}\nx-amz-date:{stamp}\n"
        if credentials.token is not None:
            headers["X-Amz-Security-Token"] = credentials.token
            names = "content-type;host;x-amz-date;x-amz-security-token;x-amz-target"
            canonical += f"x-amz-security-token:{credentials.token}\n"
        canonical += f"x-amz-target:{target}\n\n{names}\n{sha256(body).hexdigest()}"
        day = stamp[:8]
        scope = f"{day}/{self._region}/{SERVICE}/aws4_request"
        to_sign = f"{ALGORITHM}\n{stamp}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
        signature = _digest(self._signing_key(credentials.secret_key, day), to_sign).hex()
        headers["Authorization"] = (
            f"{ALGORITHM} Credential={credentials.access_key}/{scope},"
            f" SignedHeaders={names}, Signature={signature}"
        )
        return headers

    def _stamp_of(self, now_ms: int) -> str:
        second = now_ms // MS_PER_SECOND
        if second != self._second:
            self._second, self._stamp = second, strftime("%Y%m%dT%H%M%SZ", gmtime(second))
        return self._stamp

    def _signing_key(self, secret: str, day: str) -> bytes:
        if self._key_of != (secret, day):
            key = _digest(f"AWS4{secret}".encode(), day)
            for part in (self._region, SERVICE, "aws4_request"):
                key = _digest(key, part)
            self._key_of, self._key = (secret, day), key
        return self._key


def _digest(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
