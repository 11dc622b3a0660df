"""The model server on a real local socket, with a script for what goes wrong."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
from aiohttp import WSMsgType, web
from msgspec import Struct

from parley.client import Timing
from parley.errors import Refusal
from parley.model import ChatType, MemberCursor, ReadReceipts, Role
from parley.wire.bodies import ChatInfo, ChatMarks, MemberInfo, MemberList, SessionInfo, SessionList
from parley.wire.codec import CODECS, JSON_PROTOCOL, MSGPACK, Codec, InvalidFrame
from parley.wire.codes import UNAUTHENTICATED, Close
from parley.wire.frames import Hello, MessageBatch, Messages, ReadReceipt, SendMessage, ServerFrames, refused
from tests.model_server.server import TIME, ModelServer

TOKEN = "prl_good"
DEVICE = "device"
CHAT = "chat_1"
OTHER_CHAT = "chat_2"
QUICK = Timing(
    ack_ms=300, backoff_base_ms=10, backoff_max_ms=50, cursor_flush_ms=5, answer_ms=2_000, drain_ms=2_000
)


class Socket:
    def __init__(self, socket: web.WebSocketResponse, codec: Codec) -> None:
        self._socket = socket
        self._codec = codec

    async def send(self, frame: ServerFrames) -> None:
        if self._codec is MSGPACK and isinstance(frame, Messages | MessageBatch):
            entries = MSGPACK.entries([bytes(raw) for raw in frame.entries])
            frame = msgspec.structs.replace(frame, entries=entries)
        kind = WSMsgType.BINARY if self._codec.binary else WSMsgType.TEXT
        await self._socket.send_frame(self._codec.encode(frame), kind)

    async def close(self, close: Close) -> None:
        await self._socket.close(code=close.code, message=close.reason.encode())


class FakeServer:
    """One person's server. `model` holds the logs; what is told of requests is kept for the tests."""

    def __init__(self) -> None:
        self.model = ModelServer([CHAT, OTHER_CHAT])
        self.sockets: set[Socket] = set()
        self.url = ""
        self.user_id = "user_me"
        self.connections = 0
        self.sends: list[SendMessage] = []
        self.reads: list[ReadReceipt] = []
        self.looked_for: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.people = ["user_me", "user_b"]
        self.problem: tuple[int, str] | None = None
        self.deaf = False
        self.welcome_refusal: Refusal | None = None
        self.changed = asyncio.Condition()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until it holds; looked at whenever something was received."""
        async with self.changed:
            await self.changed.wait_for(holds)

    async def close_all(self, close: Close) -> None:
        for socket in list(self.sockets):
            await socket.close(close)

    async def tell(self, frame: ServerFrames) -> None:
        for socket in list(self.sockets):
            await socket.send(frame)

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        response = web.WebSocketResponse(protocols=tuple(CODECS))
        await response.prepare(request)
        codec = CODECS[response.ws_protocol or JSON_PROTOCOL]
        socket = Socket(response, codec)
        self.connections += 1
        try:
            async for message in response:
                request_frame = codec.decode(message.data)
                assert not isinstance(request_frame, InvalidFrame), request_frame
                await self._receive(socket, request_frame)
        finally:
            self.sockets.discard(socket)
            await self._note()
        return response

    async def _receive(self, socket: Socket, frame: Struct) -> None:
        match frame:
            case Hello():
                await self._greet(socket, frame)
            case SendMessage():
                self.sends.append(frame)
                await self._note()
                if not self.deaf:
                    await self._answer(socket, frame)
            case _:
                if isinstance(frame, ReadReceipt):
                    self.reads.append(frame)
                await self._answer(socket, frame)
                await self._note()

    async def _greet(self, socket: Socket, hello: Hello) -> None:
        if self.welcome_refusal is not None:
            await socket.send(refused(self.welcome_refusal, hello.id))
        elif hello.token != TOKEN or hello.device_id != DEVICE:
            await socket.close(UNAUTHENTICATED)
        else:
            self.sockets.add(socket)
            await socket.send(self.model.welcome(self.user_id))
        await self._note()

    async def _answer(self, socket: Socket, frame: Struct) -> None:
        answers, news = self.model.answer(frame, self.user_id)  # type: ignore[arg-type]
        for answer in answers:
            await socket.send(answer)
        for message in news:
            await self.tell(message)

    async def _note(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    # HTTP

    async def sessions(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            problem = {"code": "unauthenticated", "reason": "log in again", "temporary": False}
            return web.json_response(problem, status=401)
        another = SessionInfo("ses_0", "another", "", TIME, TIME, current=False)
        return said(SessionList([another, SessionInfo("ses_1", DEVICE, "", TIME, TIME, current=True)]))

    async def find_send(self, request: web.Request) -> web.Response:
        self.looked_for[request.match_info["client_message_id"]] += 1
        problem = {"code": "not_found", "reason": "no message of yours", "temporary": False}
        return web.json_response(problem, status=404)

    async def chat(self, request: web.Request) -> web.Response:
        chat_id = request.match_info["chat_id"]
        self.asked["chat"] += 1
        if self.problem is not None:
            status, code = self.problem
            return web.json_response(
                {"code": code, "reason": code, "temporary": status >= 500}, status=status
            )
        info = ChatInfo(
            chat_id=chat_id,
            type=ChatType.GROUP,
            title="Tea",
            created_by="user_me",
            created_at=TIME,
            updated_at=TIME,
            epoch=1,
            head=self.model.head(chat_id),
            role=Role.OWNER,
            member_count=len(self.people),
            open_to_join=False,
            read_receipts=ReadReceipts.FULL,
            muted=False,
            muted_until=None,
        )
        return said(info)

    async def members(self, request: web.Request) -> web.Response:
        members = [
            MemberInfo(user_id, Role.MEMBER, TIME, 0, user_id, "", "offline", None) for user_id in self.people
        ]
        return said(MemberList(members, None))

    async def receipts(self, request: web.Request) -> web.Response:
        chat_id = request.match_info["chat_id"]
        marks = [
            MemberCursor(
                user_id,
                joined_sequence=0,
                delivered_up_to=self.model.delivered(chat_id, user_id),
                delivered_at=TIME,
                read_up_to=self.model.read(chat_id, user_id),
                read_at=TIME,
            )
            for user_id in self.people
        ]
        return said(ChatMarks(ReadReceipts.FULL, marks, read_by_anybody=0))

    async def presence(self, request: web.Request) -> web.Response:
        user_ids = request.query["user_ids"].split(",")
        self.asked.update(user_ids)
        found = [{"user_id": user_id, "status": "online", "last_seen": TIME} for user_id in user_ids]
        return web.json_response({"presences": found})

    async def me(self, request: web.Request) -> web.Response:
        names = {"user_id": "user_me", "username": "me", "display_name": "Me", "about": ""}
        settings = {"last_seen_privacy": "everyone", "send_read_receipts": True}
        return web.json_response(names | settings | await request.json())

    async def history(self, request: web.Request) -> web.Response:
        log = self.model.logs[request.match_info["chat_id"]]
        limit = min(int(request.query["limit"]), self.model.page_entries_max)
        if "before" in request.query:
            end = min(int(request.query["before"]) - 1, len(log))
            start = max(0, end - limit)
        else:
            start = min(int(request.query["after"]), len(log))
            end = min(start + limit, len(log))
        page = MessageBatch(
            chat_id=CHAT,
            epoch=self.model.tables.chats[CHAT].chat.epoch,
            entries=[
                msgspec.Raw(msgspec.json.encode(entry)) for entry in log[start:end] if entry is not None
            ],
            voids=[number for number in range(start + 1, end + 1) if log[number - 1] is None],
            from_sequence=start + 1,
            to_sequence=end,
            head=len(log),
            complete=end >= len(log),
            reset=False,
        )
        return web.Response(body=msgspec.json.encode(page), content_type="application/json")


@asynccontextmanager
async def fake_server() -> AsyncIterator[FakeServer]:
    server = FakeServer()
    app = web.Application()
    app.router.add_get("/v1/ws", server.serve)
    app.router.add_get("/v1/sessions", server.sessions)
    app.router.add_get("/v1/sends/{chat_id}/{client_message_id}", server.find_send)
    app.router.add_get("/v1/chats/{chat_id}/messages", server.history)
    app.router.add_get("/v1/chats/{chat_id}", server.chat)
    app.router.add_get("/v1/chats/{chat_id}/members", server.members)
    app.router.add_get("/v1/chats/{chat_id}/receipts", server.receipts)
    app.router.add_get("/v1/presence", server.presence)
    app.router.add_patch("/v1/me", server.me)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


def said(body: Struct) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")
