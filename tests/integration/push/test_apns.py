"""Apple's protocol: HTTP/2, a signed token, headers that collapse, and reasons that mean something."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from parley.clock import wall_clock
from parley.core.push_devices import Provider
from parley.core.retry import Fault
from parley.errors import ConfigError
from parley.push.apns import TOKEN_SECONDS_MAX, ApnsKey, ApnsPush
from parley.push.ports import PushVerdict
from tests.integration.push.http2 import Http2Answer, Http2Server, http2_server, pem_of
from tests.integration.push.sample import NOTIFICATION, REPEATED, WITHOUT_PREVIEW, device
from tests.waiting import eventually

PHONE = device(Provider.APNS, "ab" * 32)
KEY = ec.generate_private_key(ec.SECP256R1())


def key_file(folder: Path) -> str:
    path = folder / "AuthKey.p8"
    path.write_bytes(pem_of(KEY))
    return str(path)


@asynccontextmanager
async def apple(folder: Path) -> AsyncIterator[tuple[Http2Server, ApnsPush]]:
    async with http2_server(folder) as (server, tls):
        key = ApnsKey(key_file(folder), "KEYID12345", "TEAMID1234")
        push = ApnsPush(server.url, key, "chat.parley.app", wall_clock, tls)
        try:
            yield server, push
        finally:
            await push.close()


def reason(status: int, text: str, **headers: str) -> Http2Answer:
    return Http2Answer(status, msgspec.json.encode({"reason": text}), headers)


async def test_a_ring_as_apple_wants_it(tmp_path: Path) -> None:
    """The token verifies by the public key, and the headers name the app, the chat and the ring."""
    async with apple(tmp_path) as (server, push):
        server.answers = [Http2Answer(200, headers={"apns-id": "an-id"})]
        answer = await push.send(PHONE, NOTIFICATION)
        assert (answer.verdict, answer.detail) == (PushVerdict.TAKEN, "200 apns-id an-id")
        (got,) = server.got
        assert (got.headers[":method"], got.headers[":path"]) == ("POST", f"/3/device/{PHONE.address}")
        scheme, token = got.headers["authorization"].split()
        assert scheme == "bearer"
        claims = jwt.decode(token, KEY.public_key(), algorithms=["ES256"])
        assert claims["iss"] == "TEAMID1234"
        assert jwt.get_unverified_header(token) == {"alg": "ES256", "kid": "KEYID12345", "typ": "JWT"}
        assert got.headers["apns-topic"] == "chat.parley.app"
        assert got.headers["apns-push-type"] == "alert"
        assert got.headers["apns-priority"] == "10"
        assert got.headers["apns-collapse-id"] == NOTIFICATION.collapse_id
        assert len(got.headers["apns-collapse-id"]) <= 64
        body = msgspec.json.decode(got.body)
        assert body["aps"]["alert"] == {"title": "Ann in Sailing", "body": "hello 👋"}
        assert (body["aps"]["badge"], body["aps"]["sound"]) == (3, "default")
        assert (body["chat_id"], body["message_id"]) == (NOTIFICATION.chat_id, NOTIFICATION.message_id)


async def test_a_repeated_ring_is_the_same_and_silent(tmp_path: Path) -> None:
    """The same id and the same collapse id, without a sound."""
    async with apple(tmp_path) as (server, push):
        await push.send(PHONE, NOTIFICATION)
        await push.send(PHONE, REPEATED)
        first, second = server.got
        for name in ("apns-id", "apns-collapse-id"):
            assert first.headers[name] == second.headers[name]
        aps = msgspec.json.decode(second.body)["aps"]
        assert "sound" not in aps
        assert aps["interruption-level"] == "passive"


async def test_without_preview_nothing_is_said(tmp_path: Path) -> None:
    """Apple, too, reads what it delivers."""
    async with apple(tmp_path) as (server, push):
        await push.send(PHONE, WITHOUT_PREVIEW)
        assert msgspec.json.decode(server.got[0].body)["aps"]["alert"] == {"title": "New message"}


async def test_rings_share_a_connection_and_a_token(tmp_path: Path) -> None:
    """Apple refuses those who make new ones all the time."""
    async with apple(tmp_path) as (server, push):
        for _ in range(5):
            await push.send(PHONE, NOTIFICATION)
        assert server.connections == 1
        assert len({got.headers["authorization"] for got in server.got}) == 1


def test_a_token_is_renewed_before_it_is_an_hour_old(tmp_path: Path) -> None:
    """And not sooner than that."""
    key = ApnsKey(key_file(tmp_path), "KEYID12345", "TEAMID1234")
    first = key.token(1_000_000)
    assert key.token(1_000_000 + TOKEN_SECONDS_MAX * 1_000 - 1) == first
    assert key.token(1_000_000 + TOKEN_SECONDS_MAX * 1_000) != first


@pytest.mark.parametrize(
    ("answer", "verdict", "fault"),
    [
        (reason(410, "Unregistered"), PushVerdict.GONE, None),
        (reason(400, "BadDeviceToken"), PushVerdict.GONE, None),
        (reason(400, "DeviceTokenNotForTopic"), PushVerdict.GONE, None),
        (reason(403, "InvalidProviderToken"), PushVerdict.FAILED, Fault.UNAUTHORIZED),
        (reason(400, "TopicDisallowed"), PushVerdict.FAILED, Fault.UNAUTHORIZED),
        (reason(403, "ExpiredProviderToken"), PushVerdict.FAILED, Fault.BUSY),
        (reason(429, "TooManyRequests"), PushVerdict.FAILED, Fault.BUSY),
        (reason(500, "InternalServerError"), PushVerdict.FAILED, Fault.SERVER_ERROR),
        (reason(503, "Shutdown"), PushVerdict.FAILED, Fault.SERVER_ERROR),
        (reason(413, "PayloadTooLarge"), PushVerdict.FAILED, Fault.REFUSED),
        (reason(404, "BadPath"), PushVerdict.FAILED, Fault.REFUSED),
        (Http2Answer(400, b"<html>"), PushVerdict.FAILED, Fault.REFUSED),
    ],
)
async def test_what_apples_reasons_mean(
    tmp_path: Path, answer: Http2Answer, verdict: PushVerdict, fault: Fault | None
) -> None:
    """A dead token goes, limits and troubles pass, and what is wrong stays wrong."""
    async with apple(tmp_path) as (server, push):
        server.answers = [answer]
        got = await push.send(PHONE, NOTIFICATION)
        assert got.verdict is verdict
        assert (got.failure.fault if got.failure else None) is fault
        assert got.detail


async def test_an_expired_token_is_renewed(tmp_path: Path) -> None:
    """The next ring has another one."""
    clock = iter([1_800_000_000_000, 1_800_000_001_000])
    async with http2_server(tmp_path) as (server, tls):
        key = ApnsKey(key_file(tmp_path), "KEYID12345", "TEAMID1234")
        push = ApnsPush(server.url, key, "chat.parley.app", lambda: next(clock), tls)
        server.answers = [reason(403, "ExpiredProviderToken")]
        await push.send(PHONE, NOTIFICATION)
        await push.send(PHONE, NOTIFICATION)
        await push.close()
        assert len({got.headers["authorization"] for got in server.got}) == 2


async def test_apple_asks_to_wait(tmp_path: Path) -> None:
    """Retry-After is obeyed."""
    async with apple(tmp_path) as (server, push):
        server.answers = [reason(429, "TooManyRequests", **{"retry-after": "30"})]
        answer = await push.send(PHONE, NOTIFICATION)
        assert answer.failure is not None
        assert answer.failure.retry_after_ms == 30_000


async def test_a_broken_connection_is_temporary(tmp_path: Path) -> None:
    """And the next ring opens another one."""
    async with apple(tmp_path) as (server, push):
        await push.send(PHONE, NOTIFICATION)
        server.cut()
        answers: list[Any] = [await push.send(PHONE, NOTIFICATION) for _ in range(3)]
        assert answers[-1].verdict is PushVerdict.TAKEN
        assert all(one.failure is None or one.failure.is_temporary for one in answers)


async def test_nobody_listens(tmp_path: Path) -> None:
    """Unreachable, which is temporary."""
    key = ApnsKey(key_file(tmp_path), "KEYID12345", "TEAMID1234")
    push = ApnsPush("https://127.0.0.1:9", key, "chat.parley.app", wall_clock)
    answer = await push.send(PHONE, NOTIFICATION)
    await push.close()
    assert answer.failure is not None
    assert answer.failure.fault is Fault.UNREACHABLE
    assert not answer.failure.may_have_arrived


async def test_a_connection_that_breaks_before_the_answer(tmp_path: Path) -> None:
    """Apple may have the ring: the next attempt must not make a sound again."""
    async with apple(tmp_path) as (server, push):
        await push.send(PHONE, NOTIFICATION)
        server.silent = True
        asked = asyncio.ensure_future(push.send(PHONE, NOTIFICATION))
        await eventually(lambda: len(server.got) == 2)
        server.cut()
        answer = await asked
        assert answer.failure is not None
        assert answer.failure.is_temporary
        assert answer.failure.may_have_arrived


def test_a_key_that_is_none(tmp_path: Path) -> None:
    """The operator hears of it at the start."""
    with pytest.raises(ConfigError):
        ApnsKey(str(tmp_path / "nothing.p8"), "KEYID12345", "TEAMID1234")
    path = tmp_path / "text.p8"
    path.write_text("no key")
    with pytest.raises(ConfigError):
        ApnsKey(str(path), "KEYID12345", "TEAMID1234").token(0)
