"""Keys and encryption of Web Push: RFC 8291 and RFC 8292 (VAPID)."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import urlsplit

import jwt
from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from parley.clock import MS_PER_SECOND
from parley.errors import ConfigError

CURVE = ec.SECP256R1()
KEY_BYTES, POINT_BYTES, AUTH_BYTES, SALT_BYTES = 32, 65, 16, 16
RECORD_BYTES = 4_096
"""Everything is in one record; push services take at most this much."""
TOKEN_SECONDS = 12 * 3_600
"""RFC 8292 allows 24 hours."""
LAST_RECORD = b"\x02"

RandomBytes = Callable[[int], bytes]


class VapidKey:
    """The server's key pair for Web Push. `text`: its private key, 32 bytes in base64url."""

    def __init__(self, text: str) -> None:
        try:
            number = int.from_bytes(decode_base64url(text))
            self._private = ec.derive_private_key(number, CURVE)
        except ValueError as error:
            raise ConfigError("push.vapid_private_key must be 32 bytes in base64url") from error
        self.public_key = encode_base64url(point_of(self._private.public_key()))

    @staticmethod
    def new() -> str:
        """A new private key, as text."""
        number = ec.generate_private_key(CURVE).private_numbers().private_value
        return encode_base64url(number.to_bytes(KEY_BYTES))

    def authorization(self, endpoint: str, subject: str, now_ms: int) -> str:
        """The header for one push service (RFC 8292, 3)."""
        parts = urlsplit(endpoint)
        claims: dict[str, str | int] = {
            "aud": f"{parts.scheme}://{parts.netloc}",
            "exp": now_ms // MS_PER_SECOND + TOKEN_SECONDS,
        }
        if subject:
            claims["sub"] = subject
        return f"vapid t={jwt.encode(claims, self._private, 'ES256')}, k={self.public_key}"


def encrypt(
    body: bytes,
    public_key: str,
    auth: str,
    random_bytes: RandomBytes,
    own: ec.EllipticCurvePrivateKey | None = None,
) -> bytes:
    """A message for one subscription (RFC 8291, 3.4). ValueError if its keys are none.

    `own`: the key of this message alone; a new one if it is not given.
    """
    theirs, secret = decode_base64url(public_key), decode_base64url(auth)
    check_subscription(public_key, auth)
    receiver = ec.EllipticCurvePublicKey.from_encoded_point(CURVE, theirs)
    own = own or ec.generate_private_key(CURVE)
    ours = point_of(own.public_key())
    salt = random_bytes(SALT_BYTES)
    shared = own.exchange(ec.ECDH(), receiver)
    keying = _derive(secret, shared, b"WebPush: info\0" + theirs + ours, KEY_BYTES)
    key = _derive(salt, keying, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(salt, keying, b"Content-Encoding: nonce\0", 12)
    sealed = AESGCM(key).encrypt(nonce, body + LAST_RECORD, None)
    return salt + RECORD_BYTES.to_bytes(4) + bytes([len(ours)]) + ours + sealed


def check_subscription(public_key: str, auth: str) -> None:
    """ValueError unless these can be the keys of a browser's subscription."""
    point = decode_base64url(public_key)
    if len(point) != POINT_BYTES or len(decode_base64url(auth)) != AUTH_BYTES:
        raise ValueError("p256dh has 65 bytes and auth 16, both in base64url")
    try:
        ec.EllipticCurvePublicKey.from_encoded_point(CURVE, point)
    except InvalidKey as error:
        raise ValueError("p256dh is no point of the curve") from error


def point_of(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def encode_base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def decode_base64url(text: str) -> bytes:
    """With or without padding; ValueError if it is something else."""
    return urlsafe_b64decode(text.encode("ascii", "replace") + b"=" * (-len(text) % 4))


def _derive(salt: bytes, secret: bytes, info: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, salt, info).derive(secret)
