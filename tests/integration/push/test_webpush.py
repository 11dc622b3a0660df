"""Web Push: a push service that checks VAPID, and a browser that decrypts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
import msgspec
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from parley.clock import wall_clock
from parley.core.client_address import parse_networks
from parley.core.push_devices import Provider, PushDevice
from parley.core.retry import Fault
from parley.delivery.guarded_http import GuardedHttp
from parley.errors import ConfigError
from parley.push.ports import PushVerdict
from parley.push.webpush import WebPush
from parley.push.webpush_crypto import (
    VapidKey,
    check_subscription,
    decode_base64url,
    encode_base64url,
    encrypt,
    point_of,
)
from tests.integration.push.sample import NOTIFICATION, REPEATED, WITHOUT_PREVIEW, device

LOOPBACK = parse_networks(("127.0.0.0/8",))
SUBJECT = "mailto:ops@example.com"


class Browser:
    """The keys of a subscription, and what a browser does with what it gets."""

    def __init__(self) -> None:
        self._private = ec.generate_private_key(ec.SECP256R1())
        self._point = point_of(self._private.public_key())
        self._auth = bytes(range(16))

    def device(self, endpoint: str) -> PushDevice:
        keys = {"public_key": encode_base64url(self._point), "auth": encode_base64url(self._auth)}
        return device(Provider.WEBPUSH, endpoint, **keys)

    def decrypt(self, body: bytes) -> bytes:
        """RFC 8188 and 8291, from the receiver's side."""
        salt, size, length = body[:16], int.from_bytes(body[16:20]), body[20]
        sender, sealed = body[21 : 21 + length], body[21 + length :]
        assert len(sealed) <= size
        theirs = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender)
        shared = self._private.exchange(ec.ECDH(), theirs)
        info = b"WebPush: info\0" + self._point + sender
        keying = HKDF(hashes.SHA256(), 32, self._auth, info).derive(shared)
        key = HKDF(hashes.SHA256(), 16, salt, b"Content-Encoding: aes128gcm\0").derive(keying)
        nonce = HKDF(hashes.SHA256(), 12, salt, b"Content-Encoding: nonce\0").derive(keying)
        padded = AESGCM(key).decrypt(nonce, sealed, None).rstrip(b"\0")
        assert padded[-1:] == b"\2", "the only record"
        return padded[:-1]


class PushService:
    """As a browser's maker runs it: it checks who sends, and cannot read what."""

    def __init__(self) -> None:
        self.port = 0
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.status = 201
        self.retry_after = ""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/push/1"

    async def take(self, request: web.Request) -> web.Response:
        self.got.append((dict(request.headers), await request.read()))
        headers = {"Retry-After": self.retry_after} if self.retry_after else None
        return web.Response(status=self.status, headers=headers)

    def claims(self, headers: dict[str, str]) -> dict[str, Any]:
        """What the server says of itself, checked by the key that it sends along (RFC 8292)."""
        scheme, _, rest = headers["Authorization"].partition(" ")
        parts = dict(part.strip().split("=", 1) for part in rest.split(","))
        assert scheme == "vapid"
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), decode_base64url(parts["k"]))
        origin = f"http://127.0.0.1:{self.port}"
        return {"k": parts["k"], **jwt.decode(parts["t"], key, ["ES256"], audience=origin)}


@asynccontextmanager
async def service(allowed: Any = LOOPBACK) -> AsyncIterator[tuple[PushService, WebPush, VapidKey]]:
    server, app = PushService(), web.Application()
    app.router.add_post("/push/1", server.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port = runner.addresses[0][1]
    key = VapidKey(VapidKey.new())

    async def get() -> VapidKey:
        return key

    push = WebPush(GuardedHttp(allowed), get, SUBJECT, wall_clock)
    try:
        yield server, push, key
    finally:
        await push.close()
        await runner.cleanup()


async def test_a_browser_reads_what_the_service_cannot() -> None:
    """Encrypted for the subscription, signed by the server's key, collapsed by chat."""
    browser = Browser()
    async with service() as (server, push, key):
        answer = await push.send(browser.device(server.endpoint), NOTIFICATION)
        assert answer.verdict is PushVerdict.TAKEN
        headers, body = server.got[0]
        assert b"hello" not in body
        shown = msgspec.json.decode(browser.decrypt(body))
        assert (shown["title"], shown["content"], shown["badge"]) == ("Ann in Sailing", "hello 👋", 3)
        assert (shown["chat_id"], shown["tag"]) == (NOTIFICATION.chat_id, NOTIFICATION.collapse_id)
        claims = server.claims(headers)
        assert (claims["k"], claims["sub"]) == (key.public_key, SUBJECT)
        assert 0 < claims["exp"] - wall_clock() // 1_000 <= 24 * 3_600
        assert headers["Content-Encoding"] == "aes128gcm"
        assert headers["Topic"] == NOTIFICATION.collapse_id
        assert len(headers["Topic"]) <= 32
        assert int(headers["TTL"]) > 0


async def test_every_ring_is_encrypted_by_a_key_of_its_own() -> None:
    """The same message never looks the same."""
    browser = Browser()
    async with service() as (server, push, _):
        for _n in range(2):
            await push.send(browser.device(server.endpoint), NOTIFICATION)
        assert server.got[0][1][21:86] != server.got[1][1][21:86]
        assert browser.decrypt(server.got[0][1]) == browser.decrypt(server.got[1][1])


async def test_a_repeated_ring_says_so() -> None:
    """With the same tag, so that a service worker shows it without a sound."""
    browser = Browser()
    async with service() as (server, push, _):
        await push.send(browser.device(server.endpoint), REPEATED)
        shown = msgspec.json.decode(browser.decrypt(server.got[0][1]))
        assert (shown["repeated"], shown["tag"]) == (True, NOTIFICATION.collapse_id)


async def test_without_preview_nothing_is_said() -> None:
    """Not even to the browser."""
    browser = Browser()
    async with service() as (server, push, _):
        await push.send(browser.device(server.endpoint), WITHOUT_PREVIEW)
        shown = msgspec.json.decode(browser.decrypt(server.got[0][1]))
        assert shown["title"] == "New message"
        assert not {"content", "sender_id"} & set(shown)


@pytest.mark.parametrize(
    ("status", "verdict", "fault"),
    [
        (200, PushVerdict.TAKEN, None),
        (404, PushVerdict.GONE, None),
        (410, PushVerdict.GONE, None),
        (401, PushVerdict.FAILED, Fault.UNAUTHORIZED),
        (403, PushVerdict.FAILED, Fault.UNAUTHORIZED),
        (413, PushVerdict.FAILED, Fault.REFUSED),
        (429, PushVerdict.FAILED, Fault.BUSY),
        (500, PushVerdict.FAILED, Fault.SERVER_ERROR),
    ],
)
async def test_what_a_services_answers_mean(status: int, verdict: PushVerdict, fault: Fault | None) -> None:
    """A subscription that is gone goes, limits and troubles pass, and what is wrong stays wrong."""
    async with service() as (server, push, _):
        server.status, server.retry_after = status, "7"
        answer = await push.send(Browser().device(server.endpoint), NOTIFICATION)
        assert answer.verdict is verdict
        assert (answer.failure.fault if answer.failure else None) is fault
        if fault is Fault.BUSY and answer.failure is not None:
            assert answer.failure.retry_after_ms == 7_000


async def test_an_endpoint_on_a_private_address_is_not_asked() -> None:
    """A subscription is chosen by a client: it must not lead into the operator's network."""
    async with service(allowed=()) as (server, push, _):
        endpoint = server.endpoint.replace("http:", "https:")
        answer = await push.send(Browser().device(endpoint), NOTIFICATION)
        assert answer.failure is not None
        assert answer.failure.fault is Fault.FORBIDDEN_ADDRESS
        assert server.got == []


def test_the_example_of_the_standard() -> None:
    """RFC 8291, appendix A."""
    own = ec.derive_private_key(
        int.from_bytes(decode_base64url("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw")), ec.SECP256R1()
    )
    salt = decode_base64url("DGv6ra1nlYgDCS1FRnbzlw")
    sealed = encrypt(
        b"When I grow up, I want to be a watermelon",
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        "BTBZMqHH6r4Tts7J_aSIgg",
        lambda _: salt,
        own,
    )
    assert encode_base64url(sealed) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6Tlz"
        "AC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


@pytest.mark.parametrize("keys", [("", ""), ("AAAA", "AAAA"), ("é", "é"), ("BA" + "A" * 85, "A" * 22)])
def test_keys_that_are_none(keys: tuple[str, str]) -> None:
    """A subscription with them is refused."""
    with pytest.raises(ValueError):
        check_subscription(*keys)


@pytest.mark.parametrize("text", ["", "AAAA", "not base64", "A" * 43])
def test_a_private_key_that_is_none(text: str) -> None:
    """The operator hears of it at the start."""
    with pytest.raises(ConfigError):
        VapidKey(text)
