"""Floods: how much later a member's message is acknowledged while somebody else means harm.

For each flood a server of its own: at rest, under the flood, and afterwards. The first row of each is p99 of
the member's acks under the flood against p99 at rest, the second the memory afterwards against before. Before
means after short floods that fill what stays filled for good: the pages of the store that are kept in memory,
which are bounded, are no leak; a leak goes on growing. To add a flood, write a function that starts it and
name it in `FLOODS`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import msgspec
from msgspec import Struct

from bench import frames
from bench.connection import Address, connect
from bench.floods import FEW_BYTES, Flood, open_socket
from bench.measuring import Stretch, measure
from bench.roles import Load, Writer
from bench.rows import Row, ratio_row
from bench.stage import Stage
from bench.world import Person, World

CHATS_FULL, CHATS_QUICK = 1_000, 300
STRANGERS = 60
ASKED_PEOPLE = 500
SOCKETS = 10
STALLED_SOCKETS = 100
CHURNING = 4
REST_SECONDS = 2.0
"""What a server may take to forget a flood."""
FILLING_FLOODS_MAX = 10
FILLED_SHARE = 1.05
"""What is filled when one more flood adds less than that."""
PING = bytes((0x89, 0x80)) + frames.ZERO_MASK
FRAGMENT_FIRST = bytes((0x01, 0x80)) + frames.ZERO_MASK
FRAGMENT_NEXT = bytes((0x00, 0x80)) + frames.ZERO_MASK
FRAMES_PER_WRITE = 10_000
REQUESTS_PER_WRITE = 50


class Victims(Struct, frozen=True):
    """Who is there: a member who writes, and somebody with many chats who floods, in a chat with others."""

    member: Person
    chat_id: str
    flooder: Person
    flooder_chat_id: str
    strangers: list[Person]


Start = Callable[[Flood, Address, Victims], None]


def pings(flood: Flood, address: Address, victims: Victims) -> None:
    for _ in range(SOCKETS):
        flood.write(open_socket(address), PING * FRAMES_PER_WRITE)


def empty_fragments(flood: Flood, address: Address, victims: Victims) -> None:
    for _ in range(SOCKETS):
        wire = open_socket(address)
        wire.sendall(FRAGMENT_FIRST)
        flood.write(wire, FRAGMENT_NEXT * FRAMES_PER_WRITE)


def overviews(flood: Flood, address: Address, victims: Victims) -> None:
    for _ in range(SOCKETS):
        asked = frames.frame(b'{"type":"sync_overview","limit":1000}')
        flood.write(open_socket(address, victims.flooder), asked * 100)


def presence_queries(flood: Flood, address: Address, victims: Victims) -> None:
    known = [person.user_id for person in victims.strangers]
    unknown = [f"user_{number:026d}" for number in range(ASKED_PEOPLE - len(known))]
    asked = msgspec.json.encode({"type": "presence_query", "user_ids": known + unknown})
    for _ in range(SOCKETS):
        flood.write(open_socket(address, victims.flooder), frames.frame(asked) * 10)


def slow_readers(flood: Flood, address: Address, victims: Victims) -> None:
    """Sockets of one user that read nothing, and somebody who writes to them."""
    for _ in range(STALLED_SOCKETS):
        flood.hold(open_socket(address, victims.flooder, FEW_BYTES))
    writer = victims.strangers[0]
    body = {"type": "send_message", "chat_id": victims.flooder_chat_id, "content": "x" * 20_000}
    sends = [
        frames.frame(msgspec.json.encode({**body, "client_message_id": frames.next_client_id().decode()}))
        for _ in range(500)
    ]
    flood.write(open_socket(address, writer), b"".join(sends))


def churn(flood: Flood, address: Address, victims: Victims) -> None:
    for _ in range(CHURNING):
        flood.churn(address, victims.flooder)


def requests(method: str, path: str, body: object = None) -> Start:
    """HTTP requests of the flooder, pipelined on some connections. `{chat}` is a chat, `{me}` the flooder."""

    def start(flood: Flood, address: Address, victims: Victims) -> None:
        place = path.replace("{chat}", victims.flooder_chat_id)
        content = b"" if body is None else msgspec.json.encode(body)
        content = content.replace(b"{me}", victims.flooder.user_id.encode())
        head = (
            f"{method} {place} HTTP/1.1\r\nHost: {address.host}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {victims.flooder.token}\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        for _ in range(SOCKETS):
            wire = socket.create_connection((address.host, address.port))
            flood.write(wire, (head.encode() + content) * REQUESTS_PER_WRITE)

    return start


FLOODS: dict[str, Start] = {
    "pings": pings,
    "empty_fragments": empty_fragments,
    "overviews": overviews,
    "presence_queries": presence_queries,
    "slow_readers": slow_readers,
    "churn": churn,
    "http_reads": requests("GET", "/v1/chats?limit=1000"),
    "renames": requests("PATCH", "/v1/chats/{chat}", {"title": "again"}),
    "joins": requests("POST", "/v1/chats/{chat}/members", {"user_id": "{me}"}),
    "groups": requests("POST", "/v1/chats", {"type": "group", "title": "another", "member_ids": []}),
    "logins": requests("POST", "/v1/sessions", {"username": "nobody", "password": "x", "device_id": "x"}),
}


async def abuse(stage: Stage) -> list[Row]:
    """All of them."""
    return [row for name, start in FLOODS.items() for row in await _play(stage, name, start)]


async def _play(stage: Stage, name: str, start: Start) -> list[Row]:
    chats = stage.pick(CHATS_FULL, CHATS_QUICK)

    async def populate(world: World) -> Victims:
        member, friend, flooder, *strangers = await world.people(3 + STRANGERS)
        for number in range(chats):
            other = strangers[number % STRANGERS]
            await world.fill(await world.group([other, flooder]), other, 2)
        shared = await world.group([flooder, *strangers])
        return Victims(member, await world.group([member, friend]), flooder, shared, strangers)

    load = Load()
    async with stage.serving(populate) as (server, victims):
        member = victims.member
        writer = Writer(load, victims.chat_id)
        await connect(server.address, frames.hello(member.token, member.device_id, live=False), writer)
        writer.start()

        async def flooded(seconds: float) -> Stretch:
            flood = Flood()
            await asyncio.to_thread(start, flood, server.address, victims)
            stretch = await measure(load, server, seconds, stage.warm_up_seconds)
            await asyncio.to_thread(flood.stop)
            await asyncio.sleep(REST_SECONDS)
            return stretch

        rest = await measure(load, server, stage.seconds, stage.warm_up_seconds)
        memory = 0
        for _ in range(FILLING_FLOODS_MAX):
            await flooded(stage.seconds / 2)
            memory, before = server.rss_bytes(), memory
            if memory <= before * FILLED_SHARE:
                break
        under = await flooded(stage.seconds)
        grown = server.rss_bytes() / memory
        load.running = False
    label = name.replace("_", " ")
    return [
        ratio_row(f"abuse_{name}", f"{label}: a member's p99", _slowed(rest, under), _notes(rest, under)),
        ratio_row(f"abuse_{name}_memory", f"{label}: memory afterwards", grown, []),
    ]


def _slowed(rest: Stretch, under: Stretch) -> float:
    return under.ack_ms[1] / max(rest.ack_ms[1], 0.001)


def _notes(rest: Stretch, under: Stretch) -> list[str]:
    figures = f"p99 {rest.ack_ms[1]:.1f} ms at rest, {under.ack_ms[1]:.1f} ms under the flood"
    return [*under.notes, f"{figures}; {rest.acks:,.0f} acks/s became {under.acks:,.0f}"]
