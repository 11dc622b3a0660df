"""Web Push: encrypted by RFC 8291, authenticated by RFC 8292 (VAPID), sent by RFC 8030."""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import jwt
import msgspec
from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import UNSET, Struct, UnsetType

from parley.clock import MS_PER_SECOND, Clock
from parley.core.retry import DeliveryFailure, Fault
from parley.delivery.guarded_http import GuardedHttp
from parley.errors import ConfigError
from parley.push.answers import judge_status
from parley.push.ports import Notification, PushAnswer, failed
from parley.store.push.ports import PushStore
from parley.store.push.rows import PushDevice

CURVE = ec.SECP256R1()
KEY_BYTES, POINT_BYTES, AUTH_BYTES, SALT_BYTES = 32, 65, 16, 16
RECORD_BYTES = 4_096
"""Everything is in one record; push services take at most this much."""
TTL_SECONDS = 86_400
TOKEN_SECONDS = 12 * 3_600
"""RFC 8292 allows 24 hours."""
LAST_RECORD = b"\x02"

RandomBytes = Callable[[int], bytes]


class WebPushBody(Struct):
    """What the service worker of a page gets, decrypted. `tag` is for `showNotification`: it replaces the
    notification of the same chat. `repeated`: show it without a sound, it may be there already."""

    event_id: str
    chat_id: str
    message_id: str
    tag: str
    title: str
    badge: int
    repeated: bool
    content: str | UnsetType = UNSET
    sender_id: str | UnsetType = UNSET


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


class StoredVapidKeys:
    """The configured key, or the one that the first node made and stored."""

    def __init__(self, configured: str, store: PushStore) -> None:
        self._key = VapidKey(configured) if configured else None
        self._store = store

    async def get(self) -> VapidKey:
        if self._key is None:
            self._key = VapidKey(await self._store.key("vapid", VapidKey.new()))
        return self._key

    async def public_key(self) -> str:
        return (await self.get()).public_key

    def check_subscription(self, public_key: str, auth: str) -> None:
        check_subscription(public_key, auth)


class WebPush:
    def __init__(
        self,
        http: GuardedHttp,
        key: Callable[[], Awaitable[VapidKey]],
        subject: str,
        clock: Clock,
        random_bytes: RandomBytes = os.urandom,
    ) -> None:
        self._http = http
        self._key = key
        self._subject = subject
        self._clock = clock
        self._random_bytes = random_bytes

    async def send(self, device: PushDevice, notification: Notification) -> PushAnswer:
        shown = notification.content
        body = msgspec.json.encode(
            WebPushBody(
                event_id=notification.event_id,
                chat_id=notification.chat_id,
                message_id=notification.message_id,
                tag=notification.collapse_id,
                title=notification.title,
                badge=notification.badge,
                repeated=notification.is_repeated,
                content=UNSET if shown is None else shown,
                sender_id=UNSET if shown is None else notification.sender_id,
            )
        )
        try:
            sealed = encrypt(body, device.public_key, device.auth, self._random_bytes)
        except ValueError as error:
            return failed(
                DeliveryFailure(Fault.MALFORMED, f"the subscription's keys cannot be used: {error}")
            )
        key, now_ms = await self._key(), self._clock()
        headers = {
            "Authorization": key.authorization(device.address, self._subject, now_ms),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(TTL_SECONDS),
            "Topic": notification.collapse_id,
            "Urgency": "normal" if notification.is_repeated else "high",
        }
        answer = await self._http.post(device.address, sealed, headers)
        if isinstance(answer, DeliveryFailure):
            return failed(answer)
        return judge_status(answer.status, answer.text, answer.retry_after, now_ms)

    async def close(self) -> None:
        await self._http.close()


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
