"""Pages of other origins that may read answers: those of `server.origins`, and never with credentials.

A page shows its token in `Authorization`; there are no cookies, so nothing is lost by refusing credentials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

PREFLIGHT_SECONDS = 600
METHODS = "GET, POST, PUT, PATCH, DELETE"
REQUEST_HEADERS = "Authorization, Content-Range, Content-Type, Idempotency-Key, Range, X-Request-Id"
RESPONSE_HEADERS = "Content-Disposition, Content-Range, X-Request-Id, Retry-After"
PREFLIGHT = {
    "Access-Control-Allow-Methods": METHODS,
    "Access-Control-Allow-Headers": REQUEST_HEADERS,
    "Access-Control-Max-Age": str(PREFLIGHT_SECONDS),
}


def allowed_origin(origin: str | None, origins: Sequence[str]) -> str | None:
    """The origin of a request, if its pages may read the answer."""
    return origin if origin is not None and origin in origins else None


def is_preflight(method: str, headers: Mapping[str, str]) -> bool:
    """Whether a browser asks, before the request itself, if a page may make it."""
    return method == "OPTIONS" and "Access-Control-Request-Method" in headers


def headers_for(origin: str | None, origins: Sequence[str]) -> dict[str, str]:
    """What an answer says of origins. It depends on the origin, so caches must not share it."""
    vary = {"Vary": "Origin"} if origins else {}
    if origin is None:
        return vary
    return {**vary, "Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": RESPONSE_HEADERS}
