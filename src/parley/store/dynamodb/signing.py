"""AWS Signature Version 4 for the one kind of request that DynamoDB takes: a POST of JSON to `/`.

The names in here are those of the specification: canonical request, string to sign, signing key.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from time import gmtime, strftime

from msgspec import Struct

from parley.clock import MS_PER_SECOND

SERVICE = "dynamodb"
ALGORITHM = "AWS4-HMAC-SHA256"
CONTENT_TYPE = "application/x-amz-json-1.0"
TARGET_PREFIX = "DynamoDB_20120810."


class Credentials(Struct, frozen=True):
    """Whose request it is. The token goes with credentials that last for hours only."""

    access_key: str
    secret_key: str
    token: str | None = None


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
