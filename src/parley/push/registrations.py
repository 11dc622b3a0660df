"""The devices that a person registers for notifications."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Sequence

from parley.accounts.accounts import check_device
from parley.clock import Clock
from parley.core.client_address import Network
from parley.core.push_devices import DEVICES_PER_PERSON_MAX, Provider, PushDevice
from parley.core.safe_addresses import url_problem
from parley.errors import BAD_REQUEST, NOT_FOUND, Refused
from parley.model import User
from parley.push.ports import VapidKeys
from parley.records.accounts import Accounts
from parley.records.push import PushDevices
from parley.records.sessions import Sessions
from parley.wire.bodies import NewPushDevice

SECRET_PREFIX = "phs_"
FOR_PUSH = "push.allowed_networks"
"""The setting that names what addresses of people's devices may lead to, beside public ones."""
SECRET_BYTES = 32
TOKEN_CHARS_MAX = 4_096
APNS_TOKEN = re.compile(r"[0-9A-Fa-f]{8,512}")
NO_SUCH_DEVICE = NOT_FOUND.because("this device is not registered for push")
NO_SESSION = BAD_REQUEST.because("log in with this device_id first: a device that is logged out gets none")
NO_TOKEN = BAD_REQUEST.because("token is missing, or is none of this provider's")
NO_SUBSCRIPTION = BAD_REQUEST.because(
    "subscription is missing: it has endpoint, and keys with p256dh and auth"
)
TOO_MANY = BAD_REQUEST.because(f"you have {DEVICES_PER_PERSON_MAX} devices registered; remove one first")
NO_FEED = BAD_REQUEST.because("push on a store that nodes share needs kafka.brokers")
NO_WEB_PUSH = BAD_REQUEST.because(
    "this server has no Web Push: its operator has not installed the extra push"
)


def is_signed_in_elsewhere(user: User | None) -> bool:
    """Whether no session says which devices a person uses: their own system logs them in."""
    return user is not None and bool(user.external_id)


class PushRegistrations:
    """`providers`: those that this server is configured for. `vapid`: None without Web Push.

    `has_feed`: without one nothing notifies, so nothing is registered.
    """

    def __init__(
        self,
        devices: PushDevices,
        accounts: Accounts,
        sessions: Sessions,
        *,
        providers: Collection[Provider],
        vapid: VapidKeys | None,
        allowed: Sequence[Network],
        clock: Clock,
        has_feed: bool,
        random_text: Callable[[int], str] = secrets.token_urlsafe,
    ) -> None:
        self._devices = devices
        self._accounts = accounts
        self._sessions = sessions
        self.providers = providers
        self._vapid = vapid
        self._allowed = allowed
        self._clock = clock
        self._has_feed = has_feed
        self._random_text = random_text

    async def _is_signed_in(self, user_id: str, device_id: str) -> bool:
        sessions = await self._sessions.of(user_id)
        return any(session.device_id == device_id for session in sessions) or is_signed_in_elsewhere(
            await self._accounts.user(user_id)
        )

    async def register(
        self, user_id: str, device_id: str, wanted: NewPushDevice
    ) -> tuple[PushDevice, str | None]:
        """The device, and its secret if it is a webhook with a new address: it is never shown again."""
        check_device(device_id)
        provider = Provider(wanted.provider)
        if not self._has_feed:
            raise Refused(NO_FEED)
        if provider not in self.providers:
            raise Refused(BAD_REQUEST.because(f"this server is not configured for {provider.value}"))
        if not await self._is_signed_in(user_id, device_id):
            raise Refused(NO_SESSION)
        address, public_key, auth = self._address(provider, wanted)
        known = (await self._devices.of([user_id])).get(user_id, [])
        same = next((one for one in known if (one.device_id, one.address) == (device_id, address)), None)
        secret = ""
        if provider is Provider.WEBHOOK:
            secret = same.secret if same is not None else SECRET_PREFIX + self._random_text(SECRET_BYTES)
        device = PushDevice(
            user_id=user_id,
            device_id=device_id,
            provider=provider,
            address=address,
            public_key=public_key,
            auth=auth,
            preview=wanted.preview,
            secret=secret,
            created_ms=self._clock() if same is None else same.created_ms,
        )
        if not await self._devices.put(device):
            raise Refused(TOO_MANY)
        return device, secret if secret and same is None else None

    def _address(self, provider: Provider, wanted: NewPushDevice) -> tuple[str, str, str]:
        """Address, public key and auth; Refused if they cannot be a device's."""
        token = wanted.token or ""
        if provider is Provider.WEBPUSH:
            subscription = wanted.subscription
            if subscription is None or self._vapid is None:
                raise Refused(NO_SUBSCRIPTION)
            self._check_url(subscription.endpoint)
            try:
                self._vapid.check_subscription(subscription.keys.p256dh, subscription.keys.auth)
            except ValueError as error:
                raise Refused(BAD_REQUEST.because(str(error))) from error
            return subscription.endpoint, subscription.keys.p256dh, subscription.keys.auth
        if provider is Provider.WEBHOOK:
            self._check_url(token)
        elif provider is Provider.APNS and not APNS_TOKEN.fullmatch(token):
            raise Refused(NO_TOKEN)
        if not (0 < len(token) <= TOKEN_CHARS_MAX and token.isascii() and token.isprintable()):
            raise Refused(NO_TOKEN)
        return token, "", ""

    def _check_url(self, url: str) -> None:
        problem = url_problem(url, self._allowed, FOR_PUSH)
        if problem is not None:
            raise Refused(BAD_REQUEST.because(problem))

    async def listed(self, user_id: str) -> list[PushDevice]:
        return (await self._devices.of([user_id])).get(user_id, [])

    async def one(self, user_id: str, device_id: str) -> PushDevice:
        found = next((one for one in await self.listed(user_id) if one.device_id == device_id), None)
        if found is None:
            raise Refused(NO_SUCH_DEVICE)
        return found

    async def remove(self, user_id: str, device_id: str) -> None:
        if not await self._devices.remove(user_id, device_id):
            raise Refused(NO_SUCH_DEVICE)

    @property
    def has_providers(self) -> bool:
        return bool(self.providers)

    @property
    def has_web_push(self) -> bool:
        return self._vapid is not None

    async def public_key(self) -> str:
        """What a browser needs to subscribe."""
        if self._vapid is None:
            raise Refused(NO_WEB_PUSH)
        return await self._vapid.public_key()


async def forget_devices(devices: PushDevices, user_id: str, *, dry: bool = False) -> int:
    """The account is deleted: nothing of it stays. Returns how many devices there were.

    `dry`: only count them.
    """
    found = (await devices.of([user_id])).get(user_id, [])
    for device in () if dry else found:
        await devices.remove(user_id, device.device_id)
    return len(found)
