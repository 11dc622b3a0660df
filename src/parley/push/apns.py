"""Apple's push service: HTTP/2, with a token that the server signs by its own key."""

from __future__ import annotations

import uuid
from pathlib import Path
from ssl import SSLContext
from typing import Any

import httpx
import jwt
import msgspec

from parley.clock import MS_PER_SECOND, Clock
from parley.core.push_devices import PushDevice
from parley.core.retry import DeliveryFailure, Fault, retry_after_ms
from parley.delivery.guarded_http import ATTEMPT_SECONDS_MAX
from parley.errors import ConfigError
from parley.push.answers import judge_status
from parley.push.ports import Notification, PushAnswer, failed, gone, taken

TOKEN_SECONDS_MAX = 50 * 60
"""Apple refuses a token that is older than an hour, and one that is renewed within 20 minutes."""
EXPIRES_SECONDS = 86_400
GONE_REASONS = frozenset({"BadDeviceToken", "DeviceTokenNotForTopic", "ExpiredToken", "Unregistered"})
UNAUTHORIZED_REASONS = frozenset(
    {
        "BadCertificate",
        "BadCertificateEnvironment",
        "BadTopic",
        "InvalidProviderToken",
        "MissingProviderToken",
        "TopicDisallowed",
        "MissingTopic",
    }
)
EXPIRED = "ExpiredProviderToken"
IDENTITY = uuid.UUID("1f0b9f2e-6d7a-5c53-9d7e-6b1f0a7c2d11")
"""The namespace of ids that follow from ours."""


class ApnsKey:
    """A signing key (a .p8 file), its id, and the team that it belongs to."""

    def __init__(self, path: str, key_id: str, team_id: str) -> None:
        try:
            self._private = Path(path).read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            raise ConfigError(f"push.apns_key cannot be read: {error}") from error
        self._key_id = key_id
        self._team_id = team_id
        self._token = ""
        self._since_ms = 0

    def token(self, now_ms: int) -> str:
        """Valid now, and renewed no more often than Apple allows."""
        if not self._token or not 0 <= now_ms - self._since_ms < TOKEN_SECONDS_MAX * MS_PER_SECOND:
            claims = {"iss": self._team_id, "iat": now_ms // MS_PER_SECOND}
            try:
                self._token = jwt.encode(claims, self._private, "ES256", headers={"kid": self._key_id})
            except (jwt.PyJWTError, ValueError) as error:
                raise ConfigError(f"push.apns_key is no key of Apple's: {error}") from error
            self._since_ms = now_ms
        return self._token

    def forget(self) -> None:
        """Apple says that the token has expired."""
        self._token = ""


class ApnsPush:
    """`topic`: the app's bundle id. `tls`: for tests; the system's certificates otherwise."""

    def __init__(
        self, endpoint: str, key: ApnsKey, topic: str, clock: Clock, tls: SSLContext | None = None
    ) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._key = key
        self._topic = topic
        self._clock = clock
        self._tls = tls
        self._client: httpx.AsyncClient | None = None

    async def send(self, device: PushDevice, notification: Notification) -> PushAnswer:
        now_ms = self._clock()
        headers = {
            "authorization": f"bearer {self._key.token(now_ms)}",
            "apns-id": str(uuid.uuid5(IDENTITY, f"{notification.event_id}/{device.device_id}")),
            "apns-topic": self._topic,
            "apns-push-type": "alert",
            "apns-collapse-id": notification.collapse_id,
            "apns-priority": "5" if notification.is_repeated else "10",
            "apns-expiration": str(now_ms // MS_PER_SECOND + EXPIRES_SECONDS),
        }
        url = f"{self._endpoint}/3/device/{device.address}"
        try:
            response = await self._open().post(url, content=_body(notification), headers=headers)
        except httpx.InvalidURL as error:
            return failed(DeliveryFailure(Fault.MALFORMED, str(error)))
        except httpx.HTTPError as error:
            has_connected = not isinstance(
                error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout
            )
            fault = Fault.TIMEOUT if isinstance(error, httpx.TimeoutException) else Fault.UNREACHABLE
            detail = str(error) or type(error).__name__
            return failed(DeliveryFailure(fault, detail, may_have_arrived=has_connected))
        return self._judge(response, now_ms)

    def _judge(self, response: httpx.Response, now_ms: int) -> PushAnswer:
        """By Apple's reason where it says more than the status."""
        reason = _reason(response.content)
        said = f"{response.status_code} {reason}".strip()
        if response.status_code == 200:
            return taken(f"200 apns-id {response.headers.get('apns-id', '')}")
        if response.status_code == 410 or reason in GONE_REASONS:
            return gone(said)
        if reason == EXPIRED:
            self._key.forget()
            return failed(DeliveryFailure(Fault.BUSY, said))
        if reason in UNAUTHORIZED_REASONS or response.status_code == 403:
            return failed(DeliveryFailure(Fault.UNAUTHORIZED, said))
        after = response.headers.get("retry-after", "")
        if response.status_code == 404:  # a bad path, not a token that is gone
            return failed(DeliveryFailure(Fault.REFUSED, said, retry_after_ms(after, now_ms)))
        return judge_status(response.status_code, reason, after, now_ms)

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(
                http1=False,
                http2=True,
                verify=self._tls if self._tls is not None else True,
                timeout=ATTEMPT_SECONDS_MAX,
                trust_env=False,
                follow_redirects=False,
            )
        return self._client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def _body(notification: Notification) -> bytes:
    alert = {"title": notification.title}
    if notification.content is not None:
        alert["body"] = notification.content
    aps: dict[str, Any] = {"alert": alert, "badge": notification.badge, "thread-id": notification.chat_id}
    if notification.is_repeated:
        aps["interruption-level"] = "passive"
    else:
        aps["sound"] = "default"
    return msgspec.json.encode(
        {
            "aps": aps,
            "event_id": notification.event_id,
            "chat_id": notification.chat_id,
            "message_id": notification.message_id,
        }
    )


def _reason(content: bytes) -> str:
    try:
        return str(msgspec.json.decode(content, type=dict[str, Any]).get("reason", "")) if content else ""
    except msgspec.DecodeError:
        return ""
