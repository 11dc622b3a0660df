"""Connections that come and go: nothing of them is left behind, not even for the collector."""

import asyncio
import gc
import socket
import struct

import pytest

from parley.gateway import connection
from parley.gateway.turns import LoopShare, LoopTurns
from tests.harness.clients import Person
from tests.integration.gateway.serving import Place, Served
from tests.security.flooding import flood_socket
from tests.waiting import eventually

RESETS = 100
LEFT_EACH_MAX = 10
"""Objects in cycles. asyncio's own transports leave five, those of uvloop none; it was fifty before."""
LONG_SECONDS = 1e6
RESET_AT_CLOSE = struct.pack("ii", 1, 0)


async def test_a_connection_that_is_reset_leaves_no_cycle(place: Place) -> None:
    """After many resets before and after hello the collector finds next to nothing to free."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        await reset(served, ann, 5)
        gc.collect()
        gc.disable()
        try:
            await reset(served, ann, RESETS)
            left = gc.collect()
        finally:
            gc.enable()
    assert left < LEFT_EACH_MAX * RESETS


async def test_a_client_that_is_gone_before_its_turn_costs_no_more(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hello, and a reset while the server makes it wait: its chats are not read any more."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        entered, goes_on = asyncio.Event(), asyncio.Event()
        subscribed: list[object] = []

        async def give_way(self: LoopTurns, share: LoopShare) -> None:
            entered.set()
            await goes_on.wait()

        monkeypatch.setattr(LoopTurns, "enters_now", lambda *_: False)
        monkeypatch.setattr(LoopTurns, "give_way", give_way)
        monkeypatch.setattr(served.app.hub, "subscribe", subscribed.append)
        wire = await asyncio.to_thread(flood_socket, served.port, ann)
        await entered.wait()
        (socket_of_ann,) = served.app.gateway.connections
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        wire.close()
        await eventually(lambda: socket_of_ann._protocol.transport is None)
        goes_on.set()
        await eventually(lambda: not served.app.gateway.connections)
        assert subscribed == []


async def test_clients_that_are_gone_do_not_pile_up_in_line(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their user has used up the loop for long: each that is reset leaves the line, and nothing is kept."""
    monkeypatch.setattr(connection, "REQUEST_SECONDS_MAX", LONG_SECONDS)
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        live = served.app.gateway._live
        share = live.users.share_of(ann.user_id)
        share.spent = LONG_SECONDS
        live.turns.wait(share, lambda: None)
        await reset(served, ann, 6)
        assert share.waiting is not None
        assert len(share.waiting) == 1, "only what was there before"
        assert share.spent > LONG_SECONDS / 2
        share.spent = 0.0


async def test_a_client_that_is_gone_waits_for_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even for what its own first frames have cost, however slow the machine was meanwhile."""
    monkeypatch.setattr(connection, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(connection, "REQUEST_SECONDS_MAX", LONG_SECONDS)
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        live = served.app.gateway._live
        share = live.users.share_of(ann.user_id)
        share.spent = LONG_SECONDS
        live.turns.wait(share, lambda: None)
        await reset(served, ann, 2)


async def test_what_a_leaving_client_costs_is_paid_at_its_next_hello(place: Place) -> None:
    """Unsubscribing from many chats takes time, too: it is on the account of the user who comes back."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        share = served.app.gateway._live.users.share_of(ann.user_id)
        await reset(served, ann, 2)
        assert share.owed > 0


async def reset(served: Served, person: Person, count: int) -> None:
    """Connect, greet or not, and reset, one after the other."""
    for number in range(count):
        wire = await asyncio.to_thread(flood_socket, served.port, person if number % 2 else None)
        if number % 2:
            await eventually(lambda: bool(served.app.gateway.connections))
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        wire.close()
        await eventually(lambda: not served.app.gateway.connections)
