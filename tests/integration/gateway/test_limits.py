"""Limits: rates, timeouts, what may be in flight, and readers that are too slow."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from aiohttp import ClientSession

from parley.core import rates
from parley.gateway.client_protocol import WAITING_BYTES_MAX
from parley.gateway.connection import IN_FLIGHT_CHARS_MAX, REFUSED_FRAMES_MAX, Connection
from parley.wire import codes, limits
from parley.wire.limits import OUTBOX_BYTES_MAX
from tests.harness.clients import Answer, Disconnected, HttpClient
from tests.harness.clock import VirtualClock
from tests.integration.gateway.bare import CLOSE, BareSocket, masked
from tests.integration.gateway.serving import Place, Served, assert_refused, message
from tests.integration.gateway.test_socket_rules import send
from tests.waiting import eventually

RATES_ON = {"PARLEY_LIMITS_RATES": "on"}
LARGE = "x" * 60_000


async def test_messages_are_limited_per_user(place: Place) -> None:
    """A burst passes, the next one is refused with when to come back, on every way, and then passes."""
    clock = VirtualClock()
    burst = int(rates.MESSAGES_PER_USER.burst)
    async with place.serving(RATES_ON, clock) as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        async with served.client(ann, live=False) as client:
            answers = [await client.post_message(chat, f"{n}") for n in range(burst)]
            assert {(await client.answered(answer))["type"] for answer in answers} == {"ack"}
            refused = await client.send_message(chat, "too fast")
            assert (refused["code"], refused["temporary"]) == ("rate_limited", True)
            assert refused["retry_after_ms"] == 20
            path = f"/v1/chats/{chat}/messages"
            assert_refused(await served.as_(ann).post(path, message()), 429, "rate_limited")
            assert (await served.as_(ben).post(path, message())).status == 201
            clock.advance(refused["retry_after_ms"])
            assert (await client.send_message(chat, "in time"))["type"] == "ack"


async def test_frames_are_limited_per_connection(place: Place) -> None:
    """Frames of any kind count; over the limit each is refused with its id, and the socket stays open."""
    clock = VirtualClock()
    burst = int(rates.FRAMES_PER_CONNECTION.burst)
    async with place.serving(RATES_ON, clock) as served:
        (ann,) = await served.people("ann")
        bare = BareSocket(served.port)
        await bare.open()
        bare.send([{"type": "nonsense", "id": number} for number in range(burst)])
        assert {frame["code"] for frame in await bare.frames(burst)} == {"unknown_type"}
        bare.send([{"type": "heartbeat", "id": 7}])
        refused = await bare.frame()
        assert (refused["re"], refused["code"], refused["retry_after_ms"]) == (7, "rate_limited", 5)
        clock.advance(1_000)
        assert (await bare.hello(ann))["type"] == "welcome"
        bare.close()


async def test_only_who_goes_on_in_spite_of_refusals_is_closed(place: Place) -> None:
    """Frames within the rate make up for refused ones; a thousand more refused than taken are the end."""
    clock = VirtualClock()
    burst = int(rates.FRAMES_PER_CONNECTION.burst)
    async with place.serving(RATES_ON, clock) as served:
        (ann,) = await served.people("ann")
        bare = BareSocket(served.port)
        await bare.open()
        assert (await bare.hello(ann, live=False))["type"] == "welcome"
        for _ in range(3):
            clock.advance(10_000)
            sent = burst + REFUSED_FRAMES_MAX // 2
            bare.send([{"type": "heartbeat", "id": number} for number in range(sent)])
            answers = [frame["type"] for frame in await bare.frames(sent)]
            assert answers.count("refused") == REFUSED_FRAMES_MAX // 2
        bare.send([{"type": "heartbeat"} for _ in range(REFUSED_FRAMES_MAX)])
        _, code = await bare.until_closed()
        assert code == codes.TOO_FAST.code
        bare.close()


async def test_registrations_are_limited_per_address(place: Place) -> None:
    """The eleventh account of an address within an hour is refused; another address is not."""
    clock = VirtualClock()
    async with place.serving({**RATES_ON, "PARLEY_ACCOUNTS_REGISTRATION": "open"}, clock) as served:
        for number in range(10):
            assert (await register(served, f"p{number}", "203.0.113.1")).status == 201
        refused = await register(served, "p10", "203.0.113.1")
        assert_refused(refused, 429, "rate_limited")
        assert refused.body["retry_after_ms"] == 360_000
        assert (await register(served, "p11", "203.0.113.2")).status == 201
        clock.advance(refused.body["retry_after_ms"])
        assert (await register(served, "p10", "203.0.113.1")).status == 201


async def test_failed_logins_are_limited_per_name_and_address(place: Place) -> None:
    """After some wrong passwords the name is closed for that address for a while, and for that one alone."""
    clock = VirtualClock()
    async with place.serving(RATES_ON, clock) as served:
        await served.people("ann", "ben")
        for _ in range(int(rates.FAILED_LOGINS.burst)):
            assert_refused(await log_in(served, "ann", "wrong"), 401, "unauthenticated")
        refused = await log_in(served, "ann", "correct horse battery")
        assert_refused(refused, 429, "rate_limited")
        assert (await log_in(served, "ben", "correct horse battery")).status == 201
        clock.advance(refused.body["retry_after_ms"])
        assert (await log_in(served, "ann", "correct horse battery")).status == 201


async def test_connections_are_limited_per_address(place: Place) -> None:
    """The hundred and first connection of a minute is refused with 429."""
    async with place.serving(RATES_ON, VirtualClock()) as served:
        sockets = [await served.session.ws_connect(f"{served.url}/v1/ws") for _ in range(100)]
        async with ClientSession() as another:
            refused = await HttpClient(another, served.url).get("/v1/ws")
        assert_refused(refused, 429, "rate_limited")
        for socket in sockets:
            await socket.close()


@pytest.mark.parametrize("forwarded", [False, True])
async def test_rates_are_off_for_a_direct_request_on_loopback(place: Place, forwarded: bool) -> None:
    """By default only what came through a proxy is limited."""
    burst = int(rates.FRAMES_PER_CONNECTION.burst)
    async with place.serving(clock=VirtualClock()) as served:
        bare = BareSocket(served.port)
        await bare.open(**({"X-Forwarded-For": "203.0.113.1"} if forwarded else {}))
        bare.send([{"type": "nonsense"} for _ in range(burst + 1)])
        frames = await bare.frames(burst + 1)
        assert (frames[-1]["code"] == "rate_limited") == forwarded
        bare.close()


async def test_who_says_no_hello_is_closed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that only refuses to greet ends with 4100, whatever else it says."""
    monkeypatch.setattr(limits, "HELLO_SECONDS_MAX", 0.1)
    async with place.serving() as served:
        silent, chatty = BareSocket(served.port), BareSocket(served.port)
        for bare in (silent, chatty):
            await bare.open()
        chatty.send([{"type": "heartbeat"}])
        assert (await silent.until_closed())[1] == 4100
        assert (await chatty.until_closed())[1] == 4100
        for bare in (silent, chatty):
            bare.close()


async def test_who_is_silent_for_too_long_is_closed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle socket ends with a resumable code, and one that beats stays."""
    monkeypatch.setattr(limits, "IDLE_SECONDS_MAX", 0.5)
    monkeypatch.setattr("parley.gateway.server.IDLE_SWEEP_SECONDS", 0.05)
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        idle = served.client(ann)
        await idle.connect()
        async with served.client(ben) as beating:
            while idle.ended is None:
                await beating.heartbeat()
            assert idle.ended.code == 4002
            assert (await beating.heartbeat())["type"] == "heartbeat_ack"


async def test_a_revocation_reaches_who_never_beats(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that sends other frames only is closed too, although nobody told it that its session ended."""
    monkeypatch.setattr(limits, "IDLE_SECONDS_MAX", 0.5)
    monkeypatch.setattr("parley.gateway.server.IDLE_SWEEP_SECONDS", 0.05)
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        client = served.client(ann)
        await client.connect()
        await served.app.kinds.sessions.end(ann.user_id, [ann.session_id])
        with contextlib.suppress(Disconnected):
            while client.ended is None:
                await client.request("sync_overview")
        assert (await client.until_ended()).code == 4102


async def test_too_much_in_flight_stops_the_reading(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit nothing is refused: the server reads on when the store has caught up."""
    monkeypatch.setattr(limits, "IN_FLIGHT_MAX", 8)
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        bare = BareSocket(served.port)
        await bare.open()
        await bare.hello(ann, live=False)
        connection = only(served)
        with held_lock(served.sqlite.database.path):
            bare.send([send(chat, id=number) for number in range(100)])
            await eventually(lambda: in_flight(connection) == 8)
            assert (await served.http.get("/healthz")).status == 200
            assert in_flight(connection) == 8
        answers = await bare.frames(100)
        assert [(answer["type"], answer["re"]) for answer in answers] == [("ack", n) for n in range(100)]
        bare.close()


async def test_large_messages_in_flight_stop_the_reading_sooner(place: Place) -> None:
    """A connection does not fill the way to the log, which all chats share, with large messages."""
    content = "x" * (IN_FLIGHT_CHARS_MAX // 4)
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        bare = BareSocket(served.port)
        await bare.open()
        await bare.hello(ann, live=False)
        connection = only(served)
        with held_lock(served.sqlite.database.path):
            bare.send([send(chat, id=number, content=content) for number in range(12)])
            await eventually(lambda: in_flight(connection) == 4)
            assert (await served.http.get("/healthz")).status == 200
            assert in_flight(connection) == 4
        answers = await bare.frames(12)
        assert [(answer["type"], answer["re"]) for answer in answers] == [("ack", n) for n in range(12)]
        bare.close()


async def test_frames_behind_a_slow_request_wait_within_a_bound_and_in_order(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that goes on sending is not read beyond it; what it sent is performed in its order."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        goes_on = slow_queries(served, monkeypatch)
        bare = BareSocket(served.port)
        await bare.open()
        await bare.hello(ann, live=False)
        queue = only(served)._reader.queue
        bare.send([{"type": "presence_query", "id": 0, "user_ids": []}])
        bare.send([send(chat, id=number, content=LARGE) for number in range(1, 21)])
        await eventually(lambda: queue.waiting_bytes > WAITING_BYTES_MAX)
        assert (await served.http.get("/healthz")).status == 200
        assert queue.waiting_bytes < WAITING_BYTES_MAX + 2 * len(LARGE)
        goes_on.set()
        assert [answer["re"] for answer in await bare.frames(21)] == list(range(21))
        bare.close()


async def test_a_close_behind_a_slow_request_is_heard_after_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is still answered, and then the close."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        goes_on = slow_queries(served, monkeypatch)
        bare = BareSocket(served.port)
        await bare.open()
        await bare.hello(ann, live=False)
        queue = only(served)._reader.queue
        bare.send([{"type": "presence_query", "id": 7, "user_ids": []}])
        bare.send_raw(masked(CLOSE, (1000).to_bytes(2, "big")))
        await eventually(lambda: bool(queue.frames))
        goes_on.set()
        frames, code = await bare.until_closed()
        assert ([frame["re"] for frame in frames], code) == ([7], 1000)
        bare.close()


def slow_queries(served: Served, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Presence queries are answered once this is set."""
    goes_on = asyncio.Event()

    async def query(*_: object) -> list[object]:
        await goes_on.wait()
        return []

    monkeypatch.setattr(served.app.social.presence, "query", query)
    return goes_on


def in_flight(connection: Connection) -> int:
    return connection._in_flight


def only(served: Served) -> Connection:
    (connection,) = served.app.gateway.connections
    return connection


@contextlib.contextmanager
def held_lock(path: Path) -> Iterator[None]:
    """Another connection in a write transaction: the store can commit nothing meanwhile."""
    with contextlib.closing(apsw.Connection(str(path))) as other:
        other.setbusytimeout(5_000)  # the server may be writing
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def test_a_reader_that_is_too_slow_is_closed_and_loses_nothing(place: Place) -> None:
    """Its outbox stays bounded, it is closed with 4001, others go on, and it finds everything after it."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        slow = BareSocket(served.port, received_bytes=8_192)
        await slow.open()
        await slow.hello(ben)
        connection = only(served)
        largest, sent = 0, 0
        async with served.client(ann) as sender:
            while not served.metric("parley_connections_closed_total", code="4001"):
                await sender.send_message(chat, LARGE)
                sent += 1
                largest = max(largest, connection.outbox_bytes)
                assert sent < 300
            frames, code = await slow.until_closed()
            await sender.live_entry(chat, sent)
        assert (code, largest <= OUTBOX_BYTES_MAX) == (4001, True)
        seen = [entry["sequence"] for frame in frames for entry in frame["entries"]]
        assert seen == list(range(1, len(seen) + 1))
        slow.close()
        async with served.client(ben) as again:
            rest = await again.sync_all(chat, after=seen[-1] if seen else 0)
        assert [entry["sequence"] for entry in rest] == list(range(len(seen) + 1, sent + 1))


async def test_a_reader_that_never_reads_is_cut_off(place: Place) -> None:
    """A peer that takes neither the data nor the close is cut off, and its buffers are freed."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        stuck = BareSocket(served.port, received_bytes=8_192)
        await stuck.open()
        await stuck.hello(ben)
        connection = only(served)
        async with served.client(ann, live=False) as sender:
            while not served.metric("parley_connections_closed_total", code="4001"):
                await sender.send_message(chat, LARGE)
            await eventually(lambda: connection not in served.app.gateway.connections)
        assert connection.outbox_bytes == 0
        stuck.close()


async def test_who_asks_for_much_at_once_is_answered(place: Place) -> None:
    """Many large pages asked for in one packet all come, to a reader that reads."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        await served.said(ann, chat, *[LARGE] * 17)
        bare = BareSocket(served.port)
        await bare.open()
        await bare.hello(ann, live=False)
        sync = {"type": "sync_request", "chat_id": chat, "last_acked_sequence": 0, "limit": 1000}
        bare.send([{**sync, "id": number} for number in range(30)])
        answers = await bare.frames(30)
        assert [answer["re"] for answer in answers] == list(range(30))
        assert {len(answer["entries"]) for answer in answers} == {17}
        bare.close()


async def register(served: Served, username: str, address: str) -> Answer:
    body = {"username": username, "password": "x"}
    headers = {"X-Forwarded-For": f"198.51.100.7, {address}"}
    async with served.session.post(f"{served.url}/v1/accounts", json=body, headers=headers) as answer:
        return Answer(answer.status, await answer.json(), dict(answer.headers))


async def log_in(served: Served, username: str, password: str) -> Answer:
    body = {"username": username, "password": password, "device_id": "phone"}
    return await served.http.post("/v1/sessions", body)
