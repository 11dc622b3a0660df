"""The HTTP API, typed. Errors say what to do next."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from msgspec import UNSET

from parley.client.errors import BadToken, CannotConnect, RequestRefused
from parley.client.members import ChatSnapshot
from parley.client.operators import OperatorsApi
from parley.client.outbox import ack_for
from parley.client.storage import OutgoingMessage
from parley.clock import MS_PER_DAY, from_iso
from parley.errors import TOO_LARGE, Refusal
from parley.model import ChatType
from parley.wire import limits
from parley.wire.bodies import (
    Account,
    BlockList,
    ChatInfo,
    ChatList,
    ChatMarks,
    ContactList,
    Device,
    DeviceList,
    InvitationInfo,
    InvitationList,
    Me,
    MemberInfo,
    MemberList,
    NewPushDevice,
    PresenceList,
    Problem,
    Profile,
    PushDeviceInfo,
    PushDeviceList,
    Related,
    SendFound,
    SessionGranted,
    SessionList,
    VapidPublicKey,
)
from parley.wire.frames import Ack, Batch, Entry, OverviewChat, PresenceView
from parley.wire.page_bodies import ProfileList, ServerInfo, ShownEntry

HTTP_SECONDS_MAX = 30
TRANSFER_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=300)
"""A large file may take its time, as long as something moves: the server reads it again to verify it."""
DEVICE_ID_DEFAULT = "python-sdk"
UNAUTHENTICATED = 401
PROXY_TAKES_LESS = (
    "a proxy before {} takes no request of this size (HTTP status 413): its operator must allow larger ones"
)
CLOCK_SKEW_MS_MAX = MS_PER_DAY

Answer = TypeVar("Answer")


class Api:
    """Requests for one person. RequestRefused, BadToken or CannotConnect when one fails."""

    def __init__(self, http: aiohttp.ClientSession, url: str, token: str | None = None) -> None:
        self._http = http
        self._url = base_url(url)
        self.token = token

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
        return self.decoded(payload, answer)

    async def device_id(self) -> str:
        """The device that the token belongs to."""
        found = await self.call("GET", "sessions", SessionList)
        current = next((session for session in found.sessions if session.current), None)
        if current is None:
            raise BadToken("the server does not say which device this token is for; pass device_id")
        return current.device_id

    async def create_chat(self, chat_type: ChatType, member_ids: list[str], title: str | None) -> ChatInfo:
        body: dict[str, object] = {"type": chat_type.value, "member_ids": member_ids}
        if title is not None:
            body["title"] = title
        return await self.call("POST", "chats", ChatInfo, body)

    async def history(self, chat_id: str, params: dict[str, str]) -> Batch[Entry]:
        return await self.call("GET", f"{chat_path(chat_id)}/messages", Batch[Entry], params=params)

    async def shown(self, chat_id: str, params: dict[str, str]) -> Batch[ShownEntry]:
        """A page of the log as a reader sees it."""
        path = f"{chat_path(chat_id)}/messages"
        return await self.call("GET", path, Batch[ShownEntry], params={**params, "shown": "true"})

    async def chats(self, *, newest: int | None = None) -> list[OverviewChat]:
        """Every chat of the person, with titles and last entries; or so many with the latest entries, the
        latest first.
        """
        chats: dict[str, OverviewChat] = {}
        params = {"limit": str(min(newest or limits.OVERVIEW_CHATS_MAX, limits.OVERVIEW_CHATS_MAX))}
        if newest is not None:
            params["order"] = "newest"
        while True:
            page = await self.call("GET", "chats", ChatList, params=params)
            chats |= {chat.chat_id: chat for chat in page.chats}  # one that changes meanwhile comes again
            found = [chat for chat in chats.values() if chat.left is not True]
            if page.complete or (newest is not None and len(found) >= newest):
                return found[:newest]
            params["changed_since"] = page.token

    async def members(self, chat_id: str, begin: str = "") -> list[MemberInfo]:
        """Every member of a chat, or those whose names begin like this."""
        members: list[MemberInfo] = []
        params = {"limit": str(limits.PAGE_ENTRIES_MAX)}
        if begin:
            params["q"] = begin
        while True:
            page = await self.call("GET", f"{chat_path(chat_id)}/members", MemberList, params=params)
            members += page.members
            if page.next_after is None:
                return members
            params["after"] = page.next_after

    async def snapshot(self, chat_id: str) -> ChatSnapshot:
        """A chat with its members and, unless there are too many, how far each is."""
        info = await self.call("GET", chat_path(chat_id), ChatInfo)
        members = await self.members(chat_id)
        try:
            marks = await self.call("GET", f"{chat_path(chat_id)}/receipts", ChatMarks)
        except RequestRefused as error:
            if error.code != "bad_request":
                raise
            marks = None
        return ChatSnapshot(info, members, marks)

    async def presence(self, user_ids: list[str]) -> list[PresenceView]:
        """Who of these people is online, as far as the person may see it."""
        views: list[PresenceView] = []
        for first in range(0, len(user_ids), limits.PRESENCE_BATCH_MAX):
            asked = ",".join(user_ids[first : first + limits.PRESENCE_BATCH_MAX])
            found = await self.call("GET", "presence", PresenceList, params={"user_ids": asked})
            views += found.presences
        return views

    async def find_stored(self, message: OutgoingMessage) -> Ack | None:
        """The ack of a message that may already be stored; None if it is not.

        If the server knows the id, its answer decides. If not, search the log back to when the message was
        written: an id expires, an entry does not.
        """
        path = f"sends/{quote(message.chat_id, safe='')}/{quote(message.client_message_id, safe='')}"
        try:
            return ack_for(message.key, await self.call("GET", path, SendFound))
        except RequestRefused as error:
            if error.code != "not_found":
                raise
        oldest_ms = message.created_at_ms - CLOCK_SKEW_MS_MAX
        params = {"limit": str(limits.PAGE_ENTRIES_MAX), "before": str(2**53 - 1)}
        while True:
            page = await self.history(message.chat_id, params)
            for entry in page.entries:
                if entry.client_message_id == message.client_message_id:
                    return ack_for(message.key, entry)
            first = page.from_sequence
            if first <= 1 or not page.entries or from_iso(page.entries[0].created_at) < oldest_ms:
                return None
            params["before"] = str(first)

    async def _exchange(
        self, method: str, path: str, body: dict[str, object] | None, params: dict[str, str] | None
    ) -> tuple[int, bytes]:
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
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

    @asynccontextmanager
    async def transfer(
        self, method: str, url: str, data: AsyncIterator[bytes] | None, headers: dict[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A request to a signed address, without the token: its body or its answer may be very large."""
        try:
            async with self._http.request(
                method,
                f"{self._url}{url}",
                data=data,
                headers=headers,
                timeout=TRANSFER_TIMEOUT,
                skip_auto_headers=("Content-Type",),
            ) as response:
                if response.status >= 400:
                    raise self._refused(response.status, await response.read())
                yield response
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise unreachable(self._url, error) from error

    def decoded(self, payload: bytes, answer: type[Answer]) -> Answer:
        try:
            return msgspec.json.decode(payload or b"null", type=answer)
        except msgspec.DecodeError as error:
            raise CannotConnect(f"{self._url} is not a Parley server: {error}") from error

    def _refused(self, status: int, payload: bytes) -> RequestRefused | BadToken | CannotConnect:
        try:
            told = msgspec.json.decode(payload, type=Problem)
        except msgspec.DecodeError:
            if status == TOO_LARGE.status:  # the server's own refusal is JSON
                return RequestRefused(TOO_LARGE.because(PROXY_TAKES_LESS.format(self._url)))
            return CannotConnect(f"{self._url} is not a Parley server (HTTP status {status})")
        if status == UNAUTHENTICATED and self.token is not None:
            return BadToken(told.reason)
        retry_after_ms = None if told.retry_after_ms is UNSET else told.retry_after_ms
        return RequestRefused(Refusal(told.code, told.reason, told.temporary, retry_after_ms, status))


class UserList:
    """The person's contacts, or the people they blocked. The server does not notify them."""

    def __init__(self, api: Api, name: str, page: type[ContactList | BlockList]) -> None:
        self._api = api
        self._name = name
        self._page = page

    async def all(self) -> list[Related]:
        """Every person on it."""
        people: list[Related] = []
        params = {"limit": str(limits.PAGE_ENTRIES_MAX)}
        while True:
            page = await self._api.call("GET", self._name, self._page, params=params)
            people += page.contacts if isinstance(page, ContactList) else page.blocks
            if page.next_after is None:
                return people
            params["after"] = page.next_after

    async def add(self, user_id: str) -> Related:
        """Adding twice changes nothing."""
        return await self._api.call("PUT", self._path(user_id), Related)

    async def remove(self, user_id: str) -> None:
        await self._api.call("DELETE", self._path(user_id), object)

    def _path(self, user_id: str) -> str:
        return f"{self._name}/{quote(user_id, safe='')}"


class InvitationsApi:
    """The person's invitations to chats. `updates` tells when they change."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def all(self) -> list[InvitationInfo]:
        """Every pending one."""
        found: list[InvitationInfo] = []
        params = {"limit": str(limits.PAGE_ENTRIES_MAX)}
        while True:
            page = await self._api.call("GET", "invitations", InvitationList, params=params)
            found += page.invitations
            if page.next_after is None:
                return found
            params["after"] = page.next_after

    async def accept(self, chat_id: str) -> None:
        """Join the chat."""
        await self._api.call("POST", self._path(chat_id), object)

    async def decline(self, chat_id: str) -> None:
        """The inviter is not told."""
        await self._api.call("DELETE", self._path(chat_id), object)

    def _path(self, chat_id: str) -> str:
        return f"invitations/{quote(chat_id, safe='')}"


class PushApi:
    """The person's devices that get notifications while none of them is connected."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def all(self) -> list[PushDeviceInfo]:
        """Every one, without its token."""
        return (await self._api.call("GET", "me/push", PushDeviceList)).devices

    async def register(self, device_id: str, device: NewPushDevice) -> PushDeviceInfo:
        """For a device that is logged in. `secret` is there once, for a webhook with a new address."""
        body = msgspec.to_builtins(device)
        return await self._api.call("PUT", self._path(device_id), PushDeviceInfo, body)

    async def remove(self, device_id: str) -> None:
        await self._api.call("DELETE", self._path(device_id), object)

    async def vapid_key(self) -> str:
        """What a browser needs to subscribe to Web Push."""
        return (await self._api.call("GET", "push/vapid", VapidPublicKey)).public_key

    def _path(self, device_id: str) -> str:
        return f"me/push/{quote(device_id, safe='')}"


class PeopleApi:
    """Requests about people. RequestRefused or CannotConnect when one fails."""

    api: Api

    @property
    def contacts(self) -> UserList:
        return UserList(self.api, "contacts", ContactList)

    @property
    def blocks(self) -> UserList:
        """People who cannot write to this person directly, nor add them, nor see what they do."""
        return UserList(self.api, "blocks", BlockList)

    @property
    def invitations(self) -> InvitationsApi:
        """Chats that others wanted to add this person to, and may not without being asked."""
        return InvitationsApi(self.api)

    @property
    def operators(self) -> OperatorsApi:
        """What operators may do."""
        return OperatorsApi(self.api)

    async def delete_account(self, password: str = "", *, erase: bool = False) -> None:
        """Delete the person's own account for good; `erase` also removes what they wrote.

        People who sign in elsewhere have no password here. A wrong one is `BadToken`. The server closes the
        client afterwards.
        """
        params = {"erase": "bodies"} if erase else None
        await self.api.call("DELETE", "me", object, {"password": password}, params)

    @property
    def push(self) -> PushApi:
        """Devices that get notifications."""
        return PushApi(self.api)

    async def me(self) -> Me:
        """The person's own profile and settings."""
        return await self.api.call("GET", "me", Me)

    async def person(self, user_id: str) -> Profile:
        return await self.api.call("GET", f"users/{quote(user_id, safe='')}", Profile)

    async def people(self, user_ids: Sequence[str]) -> list[Profile]:
        """Those of these people who exist, members of your chats or not."""
        found: list[Profile] = []
        for first in range(0, len(user_ids), limits.PROFILES_MAX):
            params = {"ids": ",".join(user_ids[first : first + limits.PROFILES_MAX])}
            found += (await self.api.call("GET", "users", ProfileList, params=params)).users
        return found

    async def find(self, username: str) -> Profile | None:
        """The person with exactly this username."""
        try:
            return await self.api.call("GET", "users", Profile, params={"username": username})
        except RequestRefused as error:
            if error.code == "not_found":
                return None
            raise

    async def devices(self) -> list[Device]:
        """Every device with a session of the person, and when it was last used."""
        return (await self.api.call("GET", "devices", DeviceList)).devices

    async def sign_out(self) -> None:
        """End the session of this token. The server closes the client; a device without another session is
        forgotten.
        """
        await self.api.call("DELETE", "sessions/current", object)

    async def remove_device(self, device_id: str) -> None:
        """Revoke a device's sessions: its connections end and its cursors are deleted."""
        await self.api.call("DELETE", f"devices/{quote(device_id, safe='')}", object)


def chat_path(chat_id: str) -> str:
    return f"chats/{quote(chat_id, safe='')}"


def open_http(ca: str | None = None, seconds_max: float = HTTP_SECONDS_MAX) -> aiohttp.ClientSession:
    """A session for requests. `ca`: a PEM file with the authorities to trust instead of the system's."""
    connector = aiohttp.TCPConnector(ssl=True if ca is None else _trusting(ca))
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=seconds_max))


def _trusting(ca: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:  # of ssl, too
        raise CannotConnect(f"there are no certificates of authorities in {ca}: {error.strerror}") from error


def base_url(url: str) -> str:
    """The server's address without a trailing slash. ws:// addresses are accepted, too."""
    scheme, separator, rest = url.rstrip("/").partition("://")
    scheme = {"ws": "http", "wss": "https"}.get(scheme, scheme)
    if not separator or scheme not in ("http", "https") or not rest:
        raise CannotConnect(f"{url!r} is not the address of a server; an example is http://127.0.0.1:8080")
    return f"{scheme}://{rest}"


def unreachable(url: str, error: Exception) -> CannotConnect:
    if isinstance(error, TimeoutError):
        return CannotConnect(f"{url} did not answer in time")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        return CannotConnect(f"the certificate of {url} is not trusted: {why}")
    if isinstance(error, aiohttp.ClientConnectorError):
        why = os.strerror(error.os_error.errno) if error.os_error.errno else str(error)
        return CannotConnect(f"cannot connect to {url}: {why}; is the server running?")
    return CannotConnect(f"the request to {url} failed: {error}")


async def register(url: str, username: str, password: str, *, invite: str = "", ca: str | None = None) -> str:
    """Create an account; `invite` is the token of an invitation link. Returns its user_id."""
    async with open_http(ca) as http:
        body: dict[str, object] = {"username": username, "password": password}
        if invite:
            body["invite"] = invite
        return (await Api(http, url).call("POST", "accounts", Account, body)).user_id


async def server_info(url: str, *, ca: str | None = None) -> ServerInfo:
    """What the server is, and whether one may register there. Nobody has to be logged in."""
    async with open_http(ca) as http:
        return await Api(http, url).call("GET", "server", ServerInfo)


async def reset_password(url: str, token: str, new_password: str, *, ca: str | None = None) -> None:
    """Set a new password with the token of a link that an operator made."""
    async with open_http(ca) as http:
        body: dict[str, object] = {"token": token, "new_password": new_password}
        await Api(http, url).call("POST", "password-reset", object, body)


async def login(
    url: str,
    username: str,
    password: str,
    device_id: str = DEVICE_ID_DEFAULT,
    device_name: str | None = None,
    *,
    ca: str | None = None,
) -> str:
    """Create a session for a device. Returns its token, for `connect`."""
    body: dict[str, Any] = {"username": username, "password": password, "device_id": device_id}
    if device_name is not None:
        body["device_name"] = device_name
    async with open_http(ca) as http:
        return (await Api(http, url).call("POST", "sessions", SessionGranted, body)).token
