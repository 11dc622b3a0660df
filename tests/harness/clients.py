"""Thin clients that speak the protocol and nothing more: no retries, no cursor, no reordering.

    async with ClientSession() as session:
        http = HttpClient(session, server.url)
        ann = await http.newcomer("ann")
        async with RawClient(session, server.url, ann) as client:
            ack = await client.send_message(chat_id, "hi")

Every wait has a deadline. Answers are plain objects, so that a test sees exactly what the server sent.
"""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

import msgspec
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType
from msgspec import Struct

from parley.wire.codec import JSON_PROTOCOL, MSGPACK_PROTOCOL
from parley.wire.limits import PAGE_BYTES_MAX, PAGE_ENTRIES_MAX
from tests.waiting import DEADLINE_SECONDS, deadline

PASSWORD = "correct horse battery"
FRAME_BYTES_READ_MAX = 4 * PAGE_BYTES_MAX

Frame = dict[str, Any]


class Answer(Struct):
    """An HTTP response."""

    status: int
    body: Any
    headers: dict[str, str]


class Person(Struct):
    """An account with one device that is logged in."""

    username: str
    user_id: str
    device_id: str
    session_id: str
    token: str


class Unexpected(Exception):
    """A response that a helper did not expect."""


class HttpClient:
    """The HTTP API, with one token or none."""

    def __init__(self, session: ClientSession, url: str, token: str = "") -> None:
        self._session = session
        self.url = url
        self.token = token

    def of(self, person: Person) -> HttpClient:
        """The same server, with this person's token."""
        return HttpClient(self._session, self.url, person.token)

    async def request(self, method: str, path: str, body: object = None, **query: str | int) -> Answer:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        async with (
            deadline(),
            self._session.request(
                method, self.url + path, json=body, params=query or None, headers=headers
            ) as answer,
        ):
            text = await answer.read()
            is_json = answer.content_type == "application/json" and text
            said = msgspec.json.decode(text) if is_json else text.decode()
            return Answer(answer.status, said, dict(answer.headers))

    async def get(self, path: str, **query: str | int) -> Answer:
        return await self.request("GET", path, **query)

    async def post(self, path: str, body: object) -> Answer:
        return await self.request("POST", path, body)

    async def put(self, path: str, body: object = None) -> Answer:
        return await self.request("PUT", path, body)

    async def patch(self, path: str, body: object) -> Answer:
        return await self.request("PATCH", path, body)

    async def delete(self, path: str, body: object = None) -> Answer:
        return await self.request("DELETE", path, body)

    async def _made(self, path: str, body: object) -> Any:
        answer = await self.post(path, body)
        if answer.status not in (200, 201):
            raise Unexpected(f"POST {path}: {answer.status} {answer.body}")
        return answer.body

    async def register(self, username: str, password: str = PASSWORD) -> str:
        """A new account's user_id."""
        made = await self._made("/v1/accounts", {"username": username, "password": password})
        return str(made["user_id"])

    async def login(self, username: str, device_id: str = "phone", password: str = PASSWORD) -> Person:
        """A new session of an account."""
        made = await self._made(
            "/v1/sessions", {"username": username, "password": password, "device_id": device_id}
        )
        return Person(username, made["user_id"], device_id, made["session_id"], made["token"])

    async def newcomer(self, username: str, device_id: str = "phone") -> Person:
        """A new account, logged in."""
        await self.register(username)
        return await self.login(username, device_id)

    async def create_group(self, *members: Person, title: str = "group") -> str:
        """A new group of the caller and these members. Returns its chat_id."""
        body = {"type": "group", "title": title, "member_ids": [member.user_id for member in members]}
        return str((await self._made("/v1/chats", body))["chat_id"])

    async def create_direct(self, other: Person) -> str:
        made = await self._made("/v1/chats", {"type": "direct", "member_ids": [other.user_id]})
        return str(made["chat_id"])


class Disconnected(Exception):
    """The connection ended; `code` is the close code, 1006 when there was none."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"disconnected with {code} {reason}".rstrip())
        self.code = code
        self.reason = reason


class Observer(Protocol):
    """Gets every frame of a connection, in order."""

    def sent(self, frame: Frame) -> None:
        """Called before the frame is sent."""
        ...

    def received(self, frame: Frame) -> None:
        """Called before any task that waits for the frame continues."""
        ...


class RawClient:
    """One WebSocket. Frames that answer no request are in `unasked`, in the order of their arrival."""

    def __init__(
        self,
        session: ClientSession,
        url: str,
        person: Person,
        *,
        msgpack: bool = False,
        live: bool = True,
        observer: Observer | None = None,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._session = session
        self._deadline_seconds = deadline_seconds
        self._url = url + "/v1/ws"
        self._protocol = MSGPACK_PROTOCOL if msgpack else JSON_PROTOCOL
        self._observer = observer
        self._live = live
        self._socket: ClientWebSocketResponse
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Frame]] = {}
        self._last_id = 0
        self._news = asyncio.Event()
        self.person = person
        self.unasked: list[Frame] = []
        self.welcome: Frame = {}
        self.ended: Disconnected | None = None

    async def __aenter__(self) -> RawClient:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the socket and send nothing."""
        async with deadline(self._deadline_seconds):
            self._socket = await self._session.ws_connect(
                self._url, protocols=[self._protocol], max_msg_size=FRAME_BYTES_READ_MAX, autoping=True
            )
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def connect(self) -> None:
        """Open the socket and send hello."""
        await self.open()
        try:
            self.welcome = await self.request(
                "hello", token=self.person.token, device_id=self.person.device_id, live=self._live
            )
            if self.welcome["type"] != "welcome":
                raise Unexpected(str(self.welcome))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close it with a handshake, if it is open; abort if the server does not answer."""
        if self._reading is None:
            return
        try:
            async with deadline(self._deadline_seconds):
                await self._socket.close()
                await asyncio.wait([self._reading])
        except TimeoutError:
            self.abort()
            raise
        await self._reading

    def abort(self) -> None:
        """Break it without a close frame, as a lost network does."""
        wire = self._socket.get_extra_info("socket")
        if wire is not None:
            wire.shutdown(socket.SHUT_RDWR)

    async def post(self, kind: str, **fields: Any) -> asyncio.Future[Frame]:
        """Send a request. Returns at once, with a future for the answer."""
        self._last_id += 1
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._waiting[self._last_id] = answer
        await self.tell(kind, id=self._last_id, **fields)
        return answer

    async def tell(self, kind: str, **fields: Any) -> None:
        """Send a frame and expect no answer."""
        frame = {"type": kind, **fields}
        if self._observer is not None:
            self._observer.sent(frame)
        try:
            await self.write(frame)
        except (OSError, RuntimeError) as error:
            raise self.ended or Disconnected(1006, str(error)) from error

    async def write(self, frame: Frame) -> None:
        if self._protocol == MSGPACK_PROTOCOL:
            await self._socket.send_bytes(msgspec.msgpack.encode(frame))
        else:
            await self._socket.send_str(msgspec.json.encode(frame).decode())

    async def write_raw(self, data: str | bytes) -> None:
        """Send any payload, even if it is not a frame."""
        if isinstance(data, str):
            await self._socket.send_str(data)
        else:
            await self._socket.send_bytes(data)

    async def request(self, kind: str, **fields: Any) -> Frame:
        """Send a request and wait for its answer, which may be a refusal."""
        return await self.answered(await self.post(kind, **fields))

    async def answered(self, answer: asyncio.Future[Frame]) -> Frame:
        async with deadline(self._deadline_seconds):
            return await answer

    async def post_message(
        self, chat_id: str, content: str, client_message_id: str = "", **fields: Any
    ) -> asyncio.Future[Frame]:
        return await self.post(
            "send_message",
            chat_id=chat_id,
            content=content,
            client_message_id=client_message_id or str(uuid.uuid4()),
            **fields,
        )

    async def send_message(
        self, chat_id: str, content: str, client_message_id: str = "", **fields: Any
    ) -> Frame:
        """Send a message, by default with a new id. Returns its ack or its refusal."""
        return await self.answered(await self.post_message(chat_id, content, client_message_id, **fields))

    async def sync(self, chat_id: str, after: int = 0, limit: int = PAGE_ENTRIES_MAX, **fields: Any) -> Frame:
        return await self.request(
            "sync_request", chat_id=chat_id, last_acked_sequence=after, limit=limit, **fields
        )

    async def sync_all(self, chat_id: str, after: int = 0, limit: int = PAGE_ENTRIES_MAX) -> list[Frame]:
        """Every entry after a position, page by page."""
        entries: list[Frame] = []
        while True:
            page = await self.sync(chat_id, after, limit)
            if page["type"] != "message_batch":
                raise Unexpected(str(page))
            entries += page["entries"]
            if page["complete"]:
                return entries
            after = page["to_sequence"]

    async def heartbeat(self) -> Frame:
        return await self.request("heartbeat")

    async def until(self, fits: Callable[[RawClient], bool]) -> None:
        """Wait until a condition holds, checked after each frame; Disconnected if the socket ends first."""
        async with deadline(self._deadline_seconds):
            while not fits(self):
                if self.ended is not None:
                    raise self.ended
                self._news.clear()
                await self._news.wait()

    async def until_ended(self) -> Disconnected:
        """Wait until the connection ends. Returns how it ended."""
        assert self._reading is not None
        async with deadline(self._deadline_seconds):
            await asyncio.wait([self._reading])
        assert self.ended is not None
        return self.ended

    def heard(self, kind: str, /, **fields: Any) -> list[Frame]:
        """The unsolicited frames of a type, with these fields, in the order of their arrival."""
        wanted = {"type": kind, **fields}
        return [frame for frame in self.unasked if all(frame.get(k) == v for k, v in wanted.items())]

    async def hear(self, kind: str, /, **fields: Any) -> Frame:
        """Wait for such an unsolicited frame. Returns the last one."""
        await self.until(lambda client: bool(client.heard(kind, **fields)))
        return self.heard(kind, **fields)[-1]

    def live_entries(self, chat_id: str) -> list[Frame]:
        """The live entries of a chat, in the order of their arrival."""
        frames = [frame for frame in self.unasked if frame["type"] == "messages"]
        return [entry for frame in frames if frame["chat_id"] == chat_id for entry in frame["entries"]]

    async def live_entry(self, chat_id: str, sequence: int) -> Frame:
        """Wait for a live entry."""

        def found(client: RawClient) -> bool:
            return any(entry["sequence"] == sequence for entry in client.live_entries(chat_id))

        await self.until(found)
        return next(entry for entry in self.live_entries(chat_id) if entry["sequence"] == sequence)

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                if message.type is WSMsgType.TEXT:
                    self._receive(msgspec.json.decode(message.data))
                elif message.type is WSMsgType.BINARY:
                    self._receive(msgspec.msgpack.decode(message.data))
        finally:
            self._end()

    def _receive(self, frame: Frame) -> None:
        if self._observer is not None:
            self._observer.received(frame)
        answer = self._waiting.pop(frame.get("re") or 0, None)
        if answer is None:
            self.unasked.append(frame)
        elif not answer.done():
            answer.set_result(frame)
        self._news.set()

    def _end(self) -> None:
        self.ended = Disconnected(self._socket.close_code or 1006)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(self.ended)
                answer.exception()  # marks it as retrieved: perhaps no task waits for it
        self._waiting.clear()
        self._news.set()
