"""Floods: what one client makes the server do delays nobody else for long, whether rates are on or off.

The old code delayed each of these by several seconds. The bound leaves room for a busy machine.
"""

import contextlib
from collections.abc import Sized
from functools import partial

import msgspec
import pytest
from aiohttp import ClientSession

from parley.core import rates
from parley.gateway import client_protocol
from parley.gateway.client_protocol import TIMED_BYTES_MIN
from parley.gateway.turns import FRAME_SECONDS, SLICE_SECONDS
from tests.harness.clients import Frame, HttpClient, Person, RawClient
from tests.harness.clock import VirtualClock
from tests.harness.server import ServerProcess
from tests.integration.gateway.bare import TEXT, BareSocket, masked
from tests.integration.gateway.serving import Place, Served
from tests.integration.gateway.test_limits import RATES_ON, only, slow_queries
from tests.integration.gateway.test_process import Crowd, crowd_on, server
from tests.security.flooding import CONTINUATION, PING, flood_socket, flooding, slowest_seconds, unfinished
from tests.waiting import eventually

__all__ = ["server"]

DELAYED_SECONDS_MAX = 1.0
ANSWERS = 5
CHATS = 400
BUFFERED_PIECES = 24
PONG = 10
OVERVIEW = masked(TEXT, msgspec.json.encode({"type": "sync_overview", "limit": 1_000}))
FORWARDED = {"X-Forwarded-For": "203.0.113.7"}


async def slowest_send(crowd: Crowd) -> float:
    async with RawClient(crowd.session, crowd.server.url, crowd.ann, live=False) as client:
        return await slowest_seconds(ANSWERS, lambda: client.send_message(crowd.chat, "hi"))


async def test_pings_before_hello_delay_nobody(server: ServerProcess) -> None:
    """While an anonymous socket pings without end, a member's messages are acknowledged at once."""
    async with crowd_on(server) as crowd:
        with flooding(flood_socket(server.port), masked(PING, b"") * 20_000):
            assert await slowest_send(crowd) < DELAYED_SECONDS_MAX


async def test_pings_before_hello_do_not_delay_the_health_check(server: ServerProcess) -> None:
    """An operator's probe is answered while an anonymous socket pings without end."""
    async with ClientSession() as session:
        http = HttpClient(session, server.url)
        with flooding(flood_socket(server.port), masked(PING, b"") * 20_000):
            assert await slowest_seconds(ANSWERS, lambda: http.get("/healthz")) < DELAYED_SECONDS_MAX


async def test_empty_fragments_delay_nobody(server: ServerProcess) -> None:
    """Fragments without payload never become a message, and still others have their turn."""
    async with crowd_on(server) as crowd:
        wire = flood_socket(server.port)
        wire.sendall(unfinished(TEXT))
        with flooding(wire, unfinished(CONTINUATION) * 20_000):
            assert await slowest_send(crowd) < DELAYED_SECONDS_MAX


async def test_overviews_of_many_chats_delay_nobody(server: ServerProcess) -> None:
    """A user asks for hundreds of chats without end; another one's message is stored at once."""
    async with crowd_on(server) as crowd:
        eve = await crowd.http.newcomer("eve")
        for _ in range(CHATS):
            await crowd.http.of(eve).create_group()
        with flooding(flood_socket(server.port, eve), OVERVIEW * 200):
            assert await slowest_send(crowd) < DELAYED_SECONDS_MAX


async def test_many_flooding_sockets_of_one_user_have_one_share(server: ServerProcess) -> None:
    """Ten sockets of a user get no more of the loop than one."""
    async with crowd_on(server) as crowd:
        eve = await crowd.http.newcomer("eve")
        for _ in range(CHATS // 4):
            await crowd.http.of(eve).create_group()
        with contextlib.ExitStack() as floods:
            for _ in range(10):
                floods.enter_context(flooding(flood_socket(server.port, eve), OVERVIEW * 200))
            assert await slowest_send(crowd) < DELAYED_SECONDS_MAX


def has_size(found: Sized, size: int) -> bool:
    return len(found) == size


async def test_frames_that_wait_behind_a_slow_request_are_taken_in_turns(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came in meanwhile, a little at a time, is not taken in one go when the request is answered."""
    monkeypatch.setattr(client_protocol, "WAITING_BYTES_MAX", 2**30)  # all of it waits for the task
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        goes_on = slow_queries(served, monkeypatch)
        bare = BareSocket(served.port)
        await bare.open()
        await bare.hello(ann, live=False)
        waiting = only(served)._reader.queue.frames
        bare.send([{"type": "presence_query", "user_ids": []}])
        pings = (TIMED_BYTES_MIN - 1) // len(masked(PING, b""))
        sent = 0
        for count in (1, *[pings] * BUFFERED_PIECES):
            bare.send_raw(masked(PING, b"") * count)
            sent += count
            await eventually(partial(has_size, waiting, sent))  # each piece is read by itself
        waits = served.metric("parley_turn_waits_total")
        goes_on.set()
        while (await bare.part())[0] != PONG:
            pass
        for _ in range(sent - 1):
            await bare.part()
        slices = sent * FRAME_SECONDS / SLICE_SECONDS
        assert served.metric("parley_turn_waits_total") - waits >= int(slices) - 1 > 0
        bare.close()


async def test_pings_count_as_frames(place: Place) -> None:
    """Where rates are on, pings beyond the rate are not answered, and the client that goes on is closed."""
    burst = int(rates.FRAMES_PER_CONNECTION.burst)
    async with place.serving(RATES_ON, VirtualClock()) as served:
        bare = BareSocket(served.port)
        await bare.open()
        bare.send_raw(masked(PING, b"") * (burst + 1_002))
        pongs, code = 0, 0
        while not code:
            kind, payload = await bare.part()
            pongs += kind == 10
            code = int.from_bytes(payload[:2], "big") if kind == 8 else 0
        assert (pongs, code) == (burst, 4103)
        bare.close()


async def test_reads_are_weighed_by_what_they_cost(place: Place) -> None:
    """Overviews of many chats are refused before as many cheap frames would be, with when to come back."""
    clock = VirtualClock()
    async with place.serving(RATES_ON, clock) as served:
        (ann,) = await served.people("ann")
        bare = await with_chats(served, ann)
        refused = (await overviews(bare))[-1]
        assert (refused["type"], refused.get("code")) == ("refused", "rate_limited")
        clock.advance(refused["retry_after_ms"])
        bare.send([{"type": "heartbeat"}])
        assert (await bare.frame())["type"] == "heartbeat_ack"
        bare.close()


async def test_sockets_of_one_user_share_a_budget(place: Place) -> None:
    """What one of a user's sockets has used up, another one lacks."""
    async with place.serving(RATES_ON, VirtualClock()) as served:
        (ann,) = await served.people("ann")
        bare = await with_chats(served, ann)
        await overviews(bare)
        other = BareSocket(served.port)
        await other.open()
        await other.hello(ann, live=False)
        other.send([{"type": "heartbeat"}])
        assert (await other.frame())["code"] == "rate_limited"
        for socket in (bare, other):
            socket.close()


async def with_chats(served: Served, person: Person) -> BareSocket:
    """A greeted socket of somebody with some chats."""
    for _ in range(40):
        await served.as_(person).create_group()
    bare = BareSocket(served.port)
    await bare.open()
    await bare.hello(person, live=False)
    return bare


async def overviews(bare: BareSocket) -> list[Frame]:
    """The answers to as many overviews as a socket may send frames at once."""
    count = int(rates.FRAMES_PER_CONNECTION.burst)
    bare.send([{"type": "sync_overview"} for _ in range(count)])
    return await bare.frames(count)


async def test_sockets_of_one_address_share_a_rate_before_hello(place: Place) -> None:
    """Frames of strangers are counted by address, not by socket."""
    burst = int(rates.FRAMES_PER_CONNECTION.burst)
    async with place.serving(RATES_ON, VirtualClock()) as served:
        one, other = BareSocket(served.port), BareSocket(served.port)
        for bare in (one, other):
            await bare.open(**FORWARDED)
        one.send([{"type": "nonsense"} for _ in range(burst)])
        assert {frame["code"] for frame in await one.frames(burst)} == {"unknown_type"}
        other.send([{"type": "nonsense"}])
        assert (await other.frame())["code"] == "rate_limited"
        for bare in (one, other):
            bare.close()
