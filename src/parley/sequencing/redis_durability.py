"""Whether a Redis may hold counters: what is wrong with its settings, in sentences for an operator."""

from __future__ import annotations

from collections.abc import Mapping

from redis.exceptions import ResponseError

from parley.errors import StoreUnavailable
from parley.sequencing.redis import answered, connect

UNKNOWN_SETTINGS = (
    "Redis does not tell its settings: see to it elsewhere that appendonly is yes, appendfsync is always"
    " and maxmemory-policy is noeviction"
)


def problems_in(settings: Mapping[str, str]) -> list[str]:
    """What is wrong with these settings for counters that must survive; nothing when all is well."""
    problems = []
    if settings.get("appendonly") != "yes":
        problems.append("appendonly is off: a restart loses every counter; set appendonly yes")
    elif settings.get("appendfsync") != "always":
        problems.append(
            f"appendfsync is {settings.get('appendfsync')}: a power failure can set counters back by what was"
            " not written; set appendfsync always"
        )
    policy = settings.get("maxmemory-policy")
    if policy != "noeviction":
        problems.append(f"maxmemory-policy is {policy}: counters can be evicted; set it to noeviction")
    return problems


async def durability_problems(url: str) -> list[str]:
    """What is wrong with the Redis at this address; StoreUnavailable when it does not answer."""
    redis = connect(url)
    try:
        found = await answered(redis.config_get("appendonly", "appendfsync", "maxmemory-policy"))
    except StoreUnavailable as error:
        if isinstance(error.__cause__, ResponseError):
            return [UNKNOWN_SETTINGS]  # managed services take CONFIG away
        raise
    finally:
        await redis.aclose()
    return problems_in({name or "": value or "" for name, value in found.items()})
