"""What a JSON Web Token must say before it is believed: which algorithm, which key, which claims. No IO.

Its signature is checked in `accounts.jwt_sign_in`. Each thing that can be wrong has a reason of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from msgspec import Struct

from parley.core.shown_text import shown_text
from parley.errors import UNAUTHENTICATED, Refusal
from parley.wire.limits import DISPLAY_NAME_CHARS_MAX, EXTERNAL_ID_CHARS_MAX

HMAC = {"HS256": 32, "HS384": 48, "HS512": 64}
"""The algorithms with a secret, and how many bytes that must have."""
KEY_TYPES = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
"""The algorithms with a public key, and the type of key that each takes."""

MS_PER_SECOND = 1_000
LEEWAY_SECONDS = 30
"""How far the clocks of issuer and server may be apart."""
LEEWAY_SECONDS_MAX = 300
JWT_CHARS_MAX = 8_192

NOT_A_JWT = UNAUTHENTICATED.because("the token is no JSON Web Token")
TOO_LONG = UNAUTHENTICATED.because(f"the token has more than {JWT_CHARS_MAX} characters")
WRONG_ALGORITHM = UNAUTHENTICATED.because("the token's algorithm is not one that this server accepts")
CRITICAL = UNAUTHENTICATED.because("the token asks for something (crit) that this server does not know")
UNKNOWN_KEY = UNAUTHENTICATED.because("the token is signed with a key that this server does not know")
WRONG_KEY_TYPE = UNAUTHENTICATED.because("the token's key is not of the type that its algorithm takes")
WRONG_SIGNATURE = UNAUTHENTICATED.because("the token's signature is wrong")
WRONG_ISSUER = UNAUTHENTICATED.because("the token has another issuer (iss) than this server trusts")
WRONG_AUDIENCE = UNAUTHENTICATED.because("the token is for another audience (aud) than this server")
NO_EXPIRY = UNAUTHENTICATED.because("the token does not say when it expires (exp)")
EXPIRED = UNAUTHENTICATED.because("the token has expired; get a new one")
NOT_YET = UNAUTHENTICATED.because("the token is not valid yet (nbf)")
FROM_THE_FUTURE = UNAUTHENTICATED.because("the token was issued in the future (iat)")
NO_PERSON = UNAUTHENTICATED.because("the token does not say, as a text, who it is for")


class JwtRules(Struct, frozen=True, kw_only=True):
    """What is trusted: see `[auth.jwt]` in docs/configure.md."""

    algorithms: frozenset[str]
    issuer: str
    audience: str
    user_claim: str = "sub"
    leeway_seconds: int = LEEWAY_SECONDS


class JwtIdentity(Struct, frozen=True):
    """Who a token is for. `ends_at_ms`: when it must not be used any more."""

    claim: str
    name: str
    ends_at_ms: int


def check_header(header: Mapping[str, Any], rules: JwtRules) -> Refusal | None:
    """What is wrong with the header of a token. Addresses and keys in it are never looked at."""
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in rules.algorithms:
        return WRONG_ALGORITHM
    if "crit" in header:
        return CRITICAL
    return None


def check_key_type(key: Mapping[str, Any], algorithm: str) -> Refusal | None:
    """Whether a key of a published set is for this algorithm, by its own words."""
    is_named = key.get("alg") in (None, algorithm)
    if key.get("kty") != KEY_TYPES.get(algorithm) or not is_named or key.get("use") not in (None, "sig"):
        return WRONG_KEY_TYPE
    return None


def check_claims(claims: Mapping[str, Any], rules: JwtRules, now_ms: int) -> JwtIdentity | Refusal:
    """Who a token with these claims is for, or why it is not believed. Its signature is right."""
    if claims.get("iss") != rules.issuer:
        return WRONG_ISSUER
    audiences = claims.get("aud")
    if rules.audience not in (audiences if isinstance(audiences, list) else [audiences]):
        return WRONG_AUDIENCE
    ends_at_ms = _check_times(claims, rules.leeway_seconds * MS_PER_SECOND, now_ms)
    if isinstance(ends_at_ms, Refusal):
        return ends_at_ms
    claim = claims.get(rules.user_claim)
    if not is_external_id(claim):
        return NO_PERSON
    name = claims.get("name")
    shown = shown_text(name[:DISPLAY_NAME_CHARS_MAX]) if isinstance(name, str) else ""
    return JwtIdentity(claim, shown, ends_at_ms)


def _check_times(claims: Mapping[str, Any], leeway_ms: int, now_ms: int) -> int | Refusal:
    """When the token must not be used any more: as it says, or later if the clocks may differ."""
    expires_ms = _time(claims.get("exp"))
    if expires_ms is None:
        return NO_EXPIRY
    if expires_ms + leeway_ms <= now_ms:
        return EXPIRED
    for claim, refusal in (("nbf", NOT_YET), ("iat", FROM_THE_FUTURE)):
        if claim in claims:
            since_ms = _time(claims[claim])
            if since_ms is None or since_ms > now_ms + leeway_ms:
                return refusal
    return expires_ms if expires_ms > now_ms else expires_ms + leeway_ms


def _time(value: Any) -> int | None:
    """Milliseconds of a time in seconds; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**40:
        return None
    return int(value * MS_PER_SECOND)


def is_external_id(text: Any) -> TypeGuard[str]:
    """Whether this can be who somebody is in another system. A number is nobody: 7 and "7" would be one."""
    is_text = isinstance(text, str) and 0 < len(text) <= EXTERNAL_ID_CHARS_MAX
    return is_text and text.isprintable() and text == text.strip()
