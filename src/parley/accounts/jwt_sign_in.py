"""People of the operator's own login: a JSON Web Token says who they are. See docs/your-users.md.

Only the algorithms that the operator has pinned are believed, with a secret or with public keys, never with
both: so no public key can be taken for a secret. Nothing that a token names is fetched.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

import jwt
import msgspec
from jwt.types import Options

from parley.accounts.access import HTTP_DEVICE, Access
from parley.accounts.external_people import ExternalPeople
from parley.clock import Clock
from parley.core.jwt_claims import (
    EXPIRED,
    JWT_CHARS_MAX,
    NOT_A_JWT,
    TOO_LONG,
    UNKNOWN_KEY,
    WRONG_KEY_TYPE,
    WRONG_SIGNATURE,
    JwtIdentity,
    JwtRules,
    check_claims,
    check_header,
)
from parley.errors import ACCOUNT_DISABLED, Refusal, Refused
from parley.model import AccountState, Session

SESSION_PREFIX = "jwt_"
VERIFIED_MAX = 50_000
"""Tokens of connections that heartbeats ask for again without a second look at their signature."""
ONLY_SIGNATURE = Options(
    verify_signature=True,
    verify_exp=False,
    verify_nbf=False,
    verify_iat=False,
    verify_aud=False,
    verify_iss=False,
    verify_sub=False,
    verify_jti=False,
)
"""`check_claims` does the rest, by the server's own clock."""

KeyOf = Callable[[str | None, str], Awaitable[Any]]
"""The key for an id and an algorithm, as PyJWT takes it; Refused if there is none."""


class JwtVerifier:
    def __init__(self, rules: JwtRules, key_of: KeyOf, clock: Clock) -> None:
        self._rules = rules
        self._key_of = key_of
        self._clock = clock

    async def verify(self, token: str) -> JwtIdentity:
        """Who a token is for. Refused, for its own reason, if it is not believed."""
        if len(token) > JWT_CHARS_MAX:
            raise Refused(TOO_LONG)
        header = _header(token)
        _raise(check_header(header, self._rules))
        kid, algorithm = header.get("kid"), header["alg"]
        if kid is not None and not isinstance(kid, str):
            raise Refused(UNKNOWN_KEY)
        claims = _decode(token, await self._key_of(kid, algorithm), algorithm)
        found = check_claims(claims, self._rules, self._clock())
        if isinstance(found, Refusal):
            raise Refused(found)
        return found


def _header(token: str) -> dict[str, Any]:
    """What a token says of itself: nothing of it is believed yet."""
    try:
        data = base64.urlsafe_b64decode(token.partition(".")[0] + "===")
        return msgspec.json.decode(data, type=dict[str, Any])
    except (binascii.Error, msgspec.DecodeError, ValueError) as error:
        raise Refused(NOT_A_JWT) from error


def _decode(token: str, key: Any, algorithm: str) -> dict[str, Any]:
    try:
        return jwt.decode(token, key, algorithms=[algorithm], options=ONLY_SIGNATURE)
    except jwt.InvalidSignatureError as error:
        raise Refused(WRONG_SIGNATURE) from error
    except (jwt.InvalidKeyError, TypeError) as error:
        raise Refused(WRONG_KEY_TYPE) from error
    except (jwt.PyJWTError, ValueError) as error:
        raise Refused(NOT_A_JWT) from error


def _raise(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise Refused(refusal)


class JwtSignIn:
    """Tokens become people. A person whose account is disabled or deleted is refused, whatever they show."""

    def __init__(self, verifier: JwtVerifier, people: ExternalPeople, clock: Clock) -> None:
        self._verifier = verifier
        self._people = people
        self._clock = clock
        self._verified: OrderedDict[bytes, JwtIdentity] = OrderedDict()

    async def authenticate(self, token: str, *, is_recheck: bool = False) -> Access:
        """`is_recheck`: it was believed before on this connection; only its time and its person are asked."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        identity = self._verified.get(digest) if is_recheck else None
        if identity is None:
            identity = await self._verifier.verify(token)
            self._remember(digest, identity)
        elif identity.ends_at_ms <= self._clock():
            raise Refused(EXPIRED)
        user = await self._people.seen(identity.claim, identity.name)
        if user.state is not AccountState.ACTIVE:
            raise Refused(ACCOUNT_DISABLED)
        now_ms = self._clock()
        session = Session(
            session_id=f"{SESSION_PREFIX}{digest.hex()[:26]}",
            user_id=user.user_id,
            device_id=HTTP_DEVICE,
            device_name="",
            created_at_ms=now_ms,
            last_used_at_ms=now_ms,
            expires_at_ms=identity.ends_at_ms,
        )
        return Access(
            session=session, is_device_bound=False, may_operate=False, ends_at_ms=identity.ends_at_ms
        )

    def _remember(self, digest: bytes, identity: JwtIdentity) -> None:
        self._verified[digest] = identity
        self._verified.move_to_end(digest)
        if len(self._verified) > VERIFIED_MAX:
            self._verified.popitem(last=False)
