"""Google's protocol: an access token by a signed assertion, then one request for each ring."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import msgspec
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from parley.clock import wall_clock
from parley.core.push_devices import Provider
from parley.core.retry import Fault
from parley.errors import ConfigError
from parley.push.fcm import SCOPE, FcmPush, ServiceAccount, read_account
from parley.push.ports import PushVerdict
from tests.integration.push.sample import NOTIFICATION, REPEATED, WITHOUT_PREVIEW, device

PHONE = device(Provider.FCM, "a-token:of-a-phone")
KEY = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
PEM = KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()


class Google:
    """The token endpoint and the messaging endpoint; it verifies what it gets."""

    def __init__(self) -> None:
        self.port = 0
        self.tokens = 0
        self.token_status = 200
        self.got: list[dict[str, Any]] = []
        self.answers: list[tuple[int, dict[str, Any], dict[str, str]]] = []

    async def grant(self, request: web.Request) -> web.Response:
        form = await request.post()
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        uri = f"http://127.0.0.1:{self.port}/token"
        claims = jwt.decode(str(form["assertion"]), KEY.public_key(), ["RS256"], audience=uri)
        assert (claims["iss"], claims["scope"]) == ("parley@project.iam", SCOPE)
        assert claims["exp"] - claims["iat"] <= 3_600
        if self.token_status != 200:
            return web.json_response({"error": "invalid_grant"}, status=self.token_status)
        self.tokens += 1
        return web.json_response({"access_token": f"token-{self.tokens}", "expires_in": 3_600})

    async def send(self, request: web.Request) -> web.Response:
        assert request.match_info["project"] == "project-1"
        assert request.headers["Authorization"] == f"Bearer token-{self.tokens}"
        self.got.append((await request.json())["message"])
        name = {"name": "projects/project-1/messages/1"}
        status, body, headers = self.answers.pop(0) if self.answers else (200, name, {})
        return web.json_response(body, status=status, headers=headers)

    def account(self) -> ServiceAccount:
        return ServiceAccount("project-1", "parley@project.iam", PEM, f"http://127.0.0.1:{self.port}/token")


@asynccontextmanager
async def google(clock: Any = wall_clock) -> AsyncIterator[tuple[Google, FcmPush]]:
    server, app = Google(), web.Application()
    app.router.add_post("/token", server.grant)
    app.router.add_post("/v1/projects/{project}/messages:send", server.send)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = runner.addresses[0][1]
    push = FcmPush(f"http://127.0.0.1:{server.port}", server.account(), clock)
    try:
        yield server, push
    finally:
        await push.close()
        await runner.cleanup()


def error(status: int, code: str, fcm: str = "", **headers: str) -> tuple[int, Any, dict[str, str]]:
    kind = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
    details = [{"@type": kind, "errorCode": fcm}] if fcm else []
    return status, {"error": {"code": status, "status": code, "details": details}}, headers


async def test_a_ring_as_google_wants_it() -> None:
    """To one token, collapsed by chat, with the data that an app needs, all of it text."""
    async with google() as (server, push):
        answer = await push.send(PHONE, NOTIFICATION)
        assert (answer.verdict, answer.detail) == (PushVerdict.TAKEN, "200 projects/project-1/messages/1")
        (got,) = server.got
        assert got["token"] == PHONE.address
        assert got["notification"] == {"title": "Ann in Sailing", "body": "hello 👋"}
        android = got["android"]
        assert (android["collapse_key"], android["priority"]) == (NOTIFICATION.collapse_id, "HIGH")
        assert android["notification"] == {"tag": NOTIFICATION.collapse_id, "notification_count": 3}
        assert got["data"]["message_id"] == NOTIFICATION.message_id
        assert all(isinstance(value, str) for value in got["data"].values())


async def test_a_repeated_ring_says_so() -> None:
    """With the same tag, so that it replaces the first one."""
    async with google() as (server, push):
        await push.send(PHONE, NOTIFICATION)
        await push.send(PHONE, REPEATED)
        assert [got["data"]["repeated"] for got in server.got] == ["0", "1"]
        assert len({got["android"]["notification"]["tag"] for got in server.got}) == 1


async def test_without_preview_nothing_is_said() -> None:
    """Google, too, reads what it delivers."""
    async with google() as (server, push):
        await push.send(PHONE, WITHOUT_PREVIEW)
        assert server.got[0]["notification"] == {"title": "New message", "body": "New message"}


async def test_the_access_token_is_kept_until_it_ends() -> None:
    """One for many rings, and another one in time."""
    now = [time.time_ns() // 1_000_000 - 3_500_000]
    async with google(lambda: now[0]) as (server, push):
        for _ in range(3):
            await push.send(PHONE, NOTIFICATION)
        assert server.tokens == 1
        now[0] += 3_400_000
        await push.send(PHONE, NOTIFICATION)
        assert server.tokens == 2


@pytest.mark.parametrize(
    ("answer", "verdict", "fault"),
    [
        (error(404, "NOT_FOUND", "UNREGISTERED"), PushVerdict.GONE, None),
        (error(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT"), PushVerdict.FAILED, Fault.REFUSED),
        (error(403, "PERMISSION_DENIED", "SENDER_ID_MISMATCH"), PushVerdict.FAILED, Fault.UNAUTHORIZED),
        (error(401, "UNAUTHENTICATED"), PushVerdict.FAILED, Fault.UNAUTHORIZED),
        (error(404, "NOT_FOUND"), PushVerdict.FAILED, Fault.REFUSED),
        (error(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED"), PushVerdict.FAILED, Fault.BUSY),
        (error(503, "UNAVAILABLE", "UNAVAILABLE"), PushVerdict.FAILED, Fault.SERVER_ERROR),
        (error(500, "INTERNAL", "INTERNAL"), PushVerdict.FAILED, Fault.SERVER_ERROR),
    ],
)
async def test_what_googles_codes_mean(answer: Any, verdict: PushVerdict, fault: Fault | None) -> None:
    """A dead token goes, quotas and troubles pass, and what is wrong stays wrong."""
    async with google() as (server, push):
        server.answers = [answer]
        got = await push.send(PHONE, NOTIFICATION)
        assert got.verdict is verdict
        assert (got.failure.fault if got.failure else None) is fault


async def test_google_asks_to_wait() -> None:
    """Retry-After is obeyed."""
    async with google() as (server, push):
        server.answers = [error(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED", **{"Retry-After": "60"})]
        answer = await push.send(PHONE, NOTIFICATION)
        assert answer.failure is not None
        assert answer.failure.retry_after_ms == 60_000


async def test_an_access_token_that_is_refused_is_not_kept() -> None:
    """The next ring asks for another."""
    async with google() as (server, push):
        server.answers = [error(401, "UNAUTHENTICATED")]
        await push.send(PHONE, NOTIFICATION)
        assert (await push.send(PHONE, NOTIFICATION)).verdict is PushVerdict.TAKEN
        assert server.tokens == 2


@pytest.mark.parametrize(("status", "fault"), [(400, Fault.UNAUTHORIZED), (503, Fault.SERVER_ERROR)])
async def test_no_access_token(status: int, fault: Fault) -> None:
    """Google refuses the account, or has troubles of its own."""
    async with google() as (server, push):
        server.token_status = status
        answer = await push.send(PHONE, NOTIFICATION)
        assert answer.failure is not None
        assert answer.failure.fault is fault


async def test_nobody_listens() -> None:
    """Unreachable, which is temporary."""
    account = ServiceAccount("project-1", "parley@project.iam", PEM, "http://127.0.0.1:9/token")
    push = FcmPush("http://127.0.0.1:9", account, wall_clock)
    answer = await push.send(PHONE, NOTIFICATION)
    await push.close()
    assert answer.failure is not None
    assert answer.failure.fault is Fault.UNREACHABLE
    assert not answer.failure.may_have_arrived


def test_credentials_that_are_none(tmp_path: Path) -> None:
    """The operator hears of it at the start."""
    path = tmp_path / "account.json"
    for text in ("", "{}", "[]"):
        path.write_text(text)
        with pytest.raises(ConfigError):
            read_account(str(path))
    path.write_bytes(msgspec.json.encode({"project_id": "p", "client_email": "e", "private_key": "k"}))
    assert read_account(str(path)).project_id == "p"
