"""Firebase Cloud Messaging, version 1: an access token by a service account, then requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import jwt
import msgspec
from msgspec import Struct

from parley.clock import MS_PER_SECOND, Clock
from parley.core.notifications import NEW_MESSAGE
from parley.core.push_devices import PushDevice
from parley.core.retry import DeliveryFailure, Fault
from parley.delivery.guarded_http import ATTEMPT_SECONDS_MAX, no_answer
from parley.errors import ConfigError
from parley.push.answers import judge_status
from parley.push.ports import Notification, PushAnswer, failed, gone, taken

SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ASSERTION_SECONDS = 3_600
RENEW_SECONDS = 300
"""An access token is renewed so long before its end."""
TTL_SECONDS = 86_400
GONE_CODES = frozenset({"UNREGISTERED"})
UNAUTHORIZED_CODES = frozenset({"SENDER_ID_MISMATCH", "THIRD_PARTY_AUTH_ERROR"})


class ServiceAccount(Struct):
    """The file that Google gives for a service account; what it has beside this is not needed."""

    project_id: str
    client_email: str
    private_key: str
    token_uri: str = "https://oauth2.googleapis.com/token"


class AccessToken(Struct):
    access_token: str
    expires_in: int = 3_600


def read_account(path: str) -> ServiceAccount:
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=ServiceAccount)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"push.fcm_credentials cannot be read: {error}") from error


class FcmPush:
    def __init__(self, endpoint: str, account: ServiceAccount, clock: Clock) -> None:
        self._url = f"{endpoint.rstrip('/')}/v1/projects/{quote(account.project_id, safe='')}/messages:send"
        self._account = account
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._token = ""
        self._until_ms = 0

    async def send(self, device: PushDevice, notification: Notification) -> PushAnswer:
        try:
            token = await self._access_token()
            if isinstance(token, DeliveryFailure):
                return failed(token)
            return await self._send(token, device, notification)
        except (aiohttp.ClientError, OSError) as error:
            return failed(no_answer(error))

    async def _send(self, token: str, device: PushDevice, notification: Notification) -> PushAnswer:
        body = msgspec.json.encode({"message": _message(device, notification)})
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        async with self._open().post(
            self._url, data=body, headers=headers, allow_redirects=False
        ) as response:
            content = await response.read()
            after = response.headers.get("Retry-After", "")
        if response.status == 200:
            return taken(f"200 {_text(content, 'name')}")
        code, said = _error(content), f"{response.status} {_error(content)}".strip()
        if code in GONE_CODES or (response.status == 404 and not code):
            return gone(said)
        if code in UNAUTHORIZED_CODES or response.status in (401, 403):
            self._token = ""
            return failed(DeliveryFailure(Fault.UNAUTHORIZED, said))
        if response.status == 404:
            return failed(DeliveryFailure(Fault.REFUSED, said))
        return judge_status(response.status, code, after, self._clock())

    async def _access_token(self) -> str | DeliveryFailure:
        """The cached one, while it is valid."""
        now_ms = self._clock()
        if self._token and now_ms < self._until_ms:
            return self._token
        now = now_ms // MS_PER_SECOND
        claims = {
            "iss": self._account.client_email,
            "scope": SCOPE,
            "aud": self._account.token_uri,
            "iat": now,
            "exp": now + ASSERTION_SECONDS,
        }
        try:
            assertion = jwt.encode(claims, self._account.private_key, "RS256")
        except (jwt.PyJWTError, ValueError) as error:
            return DeliveryFailure(Fault.UNAUTHORIZED, f"push.fcm_credentials has no usable key: {error}")
        form = urlencode({"grant_type": GRANT, "assertion": assertion}).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        async with self._open().post(self._account.token_uri, data=form, headers=headers) as response:
            content = await response.read()
        if response.status != 200:
            judged = judge_status(response.status, _text(content, "error"), "", now_ms)
            if judged.failure is not None and judged.failure.is_temporary:
                return judged.failure
            return DeliveryFailure(Fault.UNAUTHORIZED, f"no access token: {judged.detail}")
        try:
            found = msgspec.json.decode(content, type=AccessToken)
        except msgspec.DecodeError as error:
            return DeliveryFailure(Fault.SERVER_ERROR, f"no access token: {error}")
        self._token = found.access_token
        self._until_ms = now_ms + max(0, found.expires_in - RENEW_SECONDS) * MS_PER_SECOND
        return self._token

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=ATTEMPT_SECONDS_MAX),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._session

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _message(device: PushDevice, notification: Notification) -> dict[str, Any]:
    """The same tag replaces the notification of the chat; the same collapse key replaces a waiting one."""
    shown = {"title": notification.title, "body": notification.content or NEW_MESSAGE}
    android: dict[str, Any] = {
        "collapse_key": notification.collapse_id,
        "priority": "NORMAL" if notification.is_repeated else "HIGH",
        "ttl": f"{TTL_SECONDS}s",
        "notification": {"tag": notification.collapse_id, "notification_count": notification.badge},
    }
    return {
        "token": device.address,
        "notification": shown,
        "android": android,
        "data": {
            "event_id": notification.event_id,
            "chat_id": notification.chat_id,
            "message_id": notification.message_id,
            "badge": str(notification.badge),
            "repeated": "1" if notification.is_repeated else "0",
        },
    }


def _text(content: bytes, name: str) -> str:
    try:
        return str(msgspec.json.decode(content, type=dict[str, Any]).get(name, ""))
    except msgspec.DecodeError:
        return ""


def _error(content: bytes) -> str:
    """FCM's own code where there is one, else Google's status."""
    try:
        error = msgspec.json.decode(content, type=dict[str, dict[str, Any]])["error"]
        codes = [one["errorCode"] for one in error.get("details", []) if "errorCode" in one]
        return str(codes[0] if codes else error.get("status", ""))
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""
