"""The HTTP side of the contract, typed, with errors for people."""

from __future__ import annotations

import os
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from parley.client.bodies import (
    Account,
    ChatInfo,
    ChatList,
    ChatMarks,
    History,
    Login,
    MemberInfo,
    MemberList,
    PresenceList,
    Problem,
    SendFound,
    Sessions,
)
from parley.client.errors import BadToken, CannotConnect, RequestRefused
from parley.client.opened import Picture
from parley.errors import Refusal
from parley.model import ChatType
from parley.wire import limits
from parley.wire.frames import OverviewChat, PresenceView

HTTP_SECONDS_MAX = 30
DEVICE_ID_DEFAULT = "python-sdk"
UNAUTHENTICATED = 401

Answer = TypeVar("Answer")


class Api:
    """Requests for one person. RequestRefused, BadToken or CannotConnect when one does not work."""

    def __init__(self, http: aiohttp.ClientSession, url: str, token: str | None = None) -> None:
        self._http = http
        self._url = base_url(url)
        self._token = token

    async def call(
        self,
        method: str,
        path: str,
        answer: type[Answer],
        body: dict[str, object] | None = None,
        params: dict[str, str] | None = None,
    ) -> Answer:
        status, payload = await self._exchange(method, path, body, params)
        if status >= 400:
            raise self._refused(status, payload)
        return self._decoded(payload, answer)

    async def device_id(self) -> str:
        """The device that the token belongs to."""
        found = await self.call("GET", "sessions", Sessions)
        current = next((session for session in found.sessions if session.current), None)
        if current is None:
            raise BadToken("the server does not say which device this token is for; name it as device_id")
        return current.device_id

    async def create_chat(self, chat_type: ChatType, member_ids: list[str], title: str | None) -> ChatInfo:
        body: dict[str, object] = {"type": chat_type.value, "member_ids": member_ids}
        if title is not None:
            body["title"] = title
        return await self.call("POST", "chats", ChatInfo, body)

    async def history(self, chat_id: str, params: dict[str, str]) -> History:
        return await self.call("GET", f"{chat_path(chat_id)}/messages", History, params=params)

    async def chats(self) -> list[OverviewChat]:
        """Every chat of the person, as a person reads it."""
        chats: list[OverviewChat] = []
        params = {"limit": str(limits.OVERVIEW_CHATS_MAX)}
        while True:
            page = await self.call("GET", "chats", ChatList, params=params)
            chats += [chat for chat in page.chats if chat.left is not True]
            if page.complete:
                return chats
            params["changed_since"] = page.token

    async def members(self, chat_id: str) -> list[MemberInfo]:
        """Every member of a chat."""
        members: list[MemberInfo] = []
        params = {"limit": str(limits.PAGE_ENTRIES_MAX)}
        while True:
            page = await self.call("GET", f"{chat_path(chat_id)}/members", MemberList, params=params)
            members += page.members
            if page.next_after is None:
                return members
            params["after"] = page.next_after

    async def picture(self, chat_id: str) -> Picture:
        """A chat with its members and, if there are not too many, how far each is."""
        info = await self.call("GET", chat_path(chat_id), ChatInfo)
        members = await self.members(chat_id)
        try:
            marks = await self.call("GET", f"{chat_path(chat_id)}/receipts", ChatMarks)
        except RequestRefused as error:
            if error.code != "bad_request":
                raise
            marks = None
        return Picture(info, members, marks)

    async def presence(self, user_ids: list[str]) -> list[PresenceView]:
        """Who is there, as far as one may see it."""
        views: list[PresenceView] = []
        for first in range(0, len(user_ids), limits.PRESENCE_BATCH_MAX):
            asked = ",".join(user_ids[first : first + limits.PRESENCE_BATCH_MAX])
            found = await self.call("GET", "presence", PresenceList, params={"user_ids": asked})
            views += found.presences
        return views

    async def find_send(self, chat_id: str, client_message_id: str) -> SendFound | None:
        """What became of a message of one's own; None if nothing did."""
        path = f"sends/{quote(chat_id, safe='')}/{quote(client_message_id, safe='')}"
        try:
            return await self.call("GET", path, SendFound)
        except RequestRefused as error:
            if error.code == "not_found":
                return None
            raise

    async def _exchange(
        self, method: str, path: str, body: dict[str, object] | None, params: dict[str, str] | None
    ) -> tuple[int, bytes]:
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        data = None if body is None else msgspec.json.encode(body)
        if data is not None:
            headers["Content-Type"] = "application/json"
        try:
            async with self._http.request(
                method, f"{self._url}/v1/{path}", data=data, headers=headers, params=params
            ) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise unreachable(self._url, error) from error

    def _decoded(self, payload: bytes, answer: type[Answer]) -> Answer:
        try:
            return msgspec.json.decode(payload or b"null", type=answer)
        except msgspec.DecodeError as error:
            raise CannotConnect(f"what answers at {self._url} is no Parley server: {error}") from error

    def _refused(self, status: int, payload: bytes) -> RequestRefused | BadToken | CannotConnect:
        try:
            told = msgspec.json.decode(payload, type=Problem)
        except msgspec.DecodeError:
            return CannotConnect(f"what answers at {self._url} is no Parley server (HTTP status {status})")
        if status == UNAUTHENTICATED and self._token is not None:
            return BadToken(told.reason)
        return RequestRefused(Refusal(told.code, told.reason, told.temporary, told.retry_after_ms, status))


def chat_path(chat_id: str) -> str:
    return f"chats/{quote(chat_id, safe='')}"


def open_http() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=HTTP_SECONDS_MAX))


def base_url(url: str) -> str:
    """The server's address without a trailing slash; ws:// addresses are taken too."""
    scheme, separator, rest = url.rstrip("/").partition("://")
    scheme = {"ws": "http", "wss": "https"}.get(scheme, scheme)
    if not separator or scheme not in ("http", "https") or not rest:
        raise CannotConnect(f"{url!r} is no address of a server; it looks like http://127.0.0.1:8080")
    return f"{scheme}://{rest}"


def unreachable(url: str, error: Exception) -> CannotConnect:
    if isinstance(error, TimeoutError):
        return CannotConnect(f"{url} does not answer in time")
    if isinstance(error, aiohttp.ClientConnectorError):
        why = os.strerror(error.os_error.errno) if error.os_error.errno else str(error)
        return CannotConnect(f"nobody answers at {url}: {why}; is the server running?")
    return CannotConnect(f"cannot talk to {url}: {error}")


async def register(url: str, username: str, password: str) -> str:
    """Make an account; the answer is its user_id."""
    async with open_http() as http:
        body: dict[str, object] = {"username": username, "password": password}
        return (await Api(http, url).call("POST", "accounts", Account, body)).user_id


async def login(
    url: str, username: str, password: str, device_id: str = DEVICE_ID_DEFAULT, device_name: str | None = None
) -> str:
    """Make a session for a device; the answer is its token, for `connect`."""
    body: dict[str, Any] = {"username": username, "password": password, "device_id": device_id}
    if device_name is not None:
        body["device_name"] = device_name
    async with open_http() as http:
        return (await Api(http, url).call("POST", "sessions", Login, body)).token
