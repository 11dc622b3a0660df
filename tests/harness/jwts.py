"""JSON Web Tokens of an issuer of the tests, and its keys."""

from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import RSAAlgorithm

ISSUER, AUDIENCE = "https://login.example.com", "parley"
SECRET = "a secret of the tests that has bytes enough"
SETTINGS = {
    "PARLEY_AUTH_JWT_SECRET": SECRET,
    "PARLEY_AUTH_JWT_ISSUER": ISSUER,
    "PARLEY_AUTH_JWT_AUDIENCE": AUDIENCE,
}


@cache
def _rsa_keys() -> list[rsa.RSAPrivateKey]:
    return [rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2)]


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def rsa_key(number: int = 0) -> rsa.RSAPrivateKey:
    return _rsa_keys()[number]


def rsa_jwk(kid: str, number: int = 0, **more: Any) -> dict[str, Any]:
    """The public half, as an issuer publishes it."""
    return {**RSAAlgorithm.to_jwk(rsa_key(number).public_key(), as_dict=True), "kid": kid, **more}


def claims(now_ms: int, sub: Any = "4711", **changed: Any) -> dict[str, Any]:
    """Those of a good token; None leaves one out."""
    good = {"iss": ISSUER, "aud": AUDIENCE, "sub": sub, "exp": now_ms // 1000 + 600, "name": "Ann Example"}
    return {name: value for name, value in (good | changed).items() if value is not None}


def signed(body: dict[str, Any], key: Any = SECRET, algorithm: str = "HS256", **headers: Any) -> str:
    return jwt.encode(body, key, algorithm, headers=headers or None)
