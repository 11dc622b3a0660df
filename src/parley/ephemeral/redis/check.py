"""Checks whether a Redis can be used, for `parley doctor` and for the start of a node."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct
from redis.asyncio import Redis
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    NoPermissionError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from parley.clock import MS_PER_SECOND
from parley.ephemeral.redis.client import client_of
from parley.errors import ConfigError

VERSION_MIN = (7, 0)
CHECK_SECONDS_MAX = 3.0
SECTIONS = ("server", "replication", "persistence")


class RedisFacts(Struct, frozen=True):
    """`product`: Redis or Valkey. `persistence`: what it writes to its disk. `clock_ms`: its clock."""

    address: str
    product: str
    version: str
    persistence: str
    clock_ms: int


async def check_redis(url: str) -> RedisFacts:
    """ConfigError when it cannot be used, with the reason and what to do, but never the password."""
    redis = client_of(url, CHECK_SECONDS_MAX)
    address = _address(redis)
    try:
        info = await redis.info(*SECTIONS)
        _check(info, address)
        seconds, microseconds = await redis.eval("return redis.call('TIME')", 0)
    except (RedisError, OSError) as error:
        raise ConfigError(_explanation(error, address)) from error
    finally:
        await redis.aclose()
    return _facts(info, address, int(seconds) * MS_PER_SECOND + int(microseconds) // 1_000)


def is_away(error: ConfigError) -> bool:
    """Whether `check_redis` could not reach Redis, which may be temporary. Other errors are mistakes."""
    cause = error.__cause__
    is_mistake = isinstance(cause, AuthenticationError | AuthorizationError | ResponseError)
    return isinstance(cause, BusyLoadingError) or (
        isinstance(cause, RedisConnectionError | RedisTimeoutError | OSError) and not is_mistake
    )


def _address(redis: Redis) -> str:
    settings = redis.connection_pool.connection_kwargs
    return settings.get("path") or f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}"


def _check(info: dict[str, Any], address: str) -> None:
    product, version = _product(info)
    if _parts(str(info.get("redis_version", "0"))) < VERSION_MIN:
        least = ".".join(map(str, VERSION_MIN))
        raise ConfigError(f"{product} {version} at {address} is too old: {least} or newer is needed")
    if info.get("redis_mode") == "cluster" or info.get("server_mode") == "cluster":
        raise ConfigError(f"{product} at {address} is a cluster of shards: a single primary is needed")
    if info.get("role") not in (None, "master"):
        raise ConfigError(f"{product} at {address} is a replica: name its primary in redis.url")
    if info.get("loading"):
        raise ConfigError(_loading(address))


def _explanation(error: RedisError | OSError, address: str) -> str:
    text = str(error).rstrip(".")
    match error:
        case BusyLoadingError():
            return _loading(address)
        case AuthenticationError():
            return f"Redis at {address} does not accept this user and password: correct redis.url"
        case NoPermissionError() | AuthorizationError():
            return f"Redis at {address} does not allow this user a command that Parley needs: {text}"
        case RedisConnectionError() | RedisTimeoutError() | OSError():
            return f"Redis at {address} does not answer: start it, or correct redis.url ({text})"
        case ResponseError() if "HELLO" in text:
            least = ".".join(map(str, VERSION_MIN))
            return f"Redis at {address} is too old: {least} or newer is needed"
    return f"Redis at {address} cannot be used: {text}"


def _loading(address: str) -> str:
    return f"Redis at {address} is still loading its data: start again when it is done"


def _facts(info: dict[str, Any], address: str, clock_ms: int) -> RedisFacts:
    product, version = _product(info)
    return RedisFacts(
        address=address,
        product=product,
        version=version,
        persistence="append-only file" if info.get("aof_enabled") else "snapshots at most",
        clock_ms=clock_ms,
    )


def _product(info: dict[str, Any]) -> tuple[str, str]:
    """Valkey reports a Redis version for old clients, and its own version besides."""
    if "valkey_version" in info:
        return "Valkey", str(info["valkey_version"])
    return "Redis", str(info.get("redis_version", "unknown"))


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
