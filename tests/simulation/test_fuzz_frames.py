"""Frames that no client of ours would send, on sockets that are otherwise well."""

from __future__ import annotations

import asyncio
import json
import struct
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from parley.wire import codes
from parley.wire.codec import JSON_PROTOCOL, MSGPACK_PROTOCOL
from tests import corpus, seeds
from tests.integration.gateway.bare import BINARY, CLOSE, TEXT, BareSocket, masked
from tests.simulation.fuzzing import (
    CASES,
    Finding,
    FuzzedServer,
    as_json,
    check_refusal,
    fuzzed_server,
    mutate_bytes,
    mutate_value,
)
from tests.tidy.repository import ROOT

LAST_ID = 4_711_000
PROTOCOL_CLOSES = {1000, 1002, 1003, 1007, 1009}
CLOSES = PROTOCOL_CLOSES | {one.code for one in vars(codes).values() if isinstance(one, codes.Close)}
INTERNAL = codes.INTERNAL.code
FRAGMENTED_AT = 7
VALID: list[dict[str, Any]] = [
    vector
    for path in sorted((ROOT / "tests/wire_vectors").glob("client.*.json"))
    for vector in json.loads(path.read_text(encoding="utf-8"))["vectors"]
]


class FuzzSocket:
    """Ann's connection: what is sent is followed by a heartbeat, whose answer ends the wait."""

    def __init__(self, server: FuzzedServer, protocol: str) -> None:
        self._server = server
        self._protocol = protocol
        self._bare = BareSocket(server.served.port)
        self._last_id = LAST_ID

    async def open(self, *, says_hello: bool) -> None:
        await self._bare.open(self._protocol)
        if says_hello:
            ann = self._server.ann
            self._write({"type": "hello", "id": LAST_ID, "token": ann.token, "device_id": ann.device_id})
            await self._bare.part()

    def _write(self, frame: dict[str, Any]) -> None:
        is_json = self._protocol == JSON_PROTOCOL
        payload = msgspec.json.encode(frame) if is_json else msgspec.msgpack.encode(frame)
        self._bare.send_raw(masked(TEXT if is_json else BINARY, payload))

    async def send(self, case: bytes, wire: bytes, *, is_framed: bool) -> tuple[list[bytes], bool]:
        """Whatever is answered, and whether the connection goes on.

        What breaks the frames of the WebSocket itself may leave the server waiting for the rest: then nothing
        more comes, and our end is closed.
        """
        self._bare.send_raw(wire)
        if is_framed:
            self._last_id += 1
            self._write({"type": "heartbeat", "id": self._last_id})
        else:
            self._bare.send_eof()
        answers: list[bytes] = []
        while True:
            try:
                kind, payload = await self._bare.part()
            except (asyncio.IncompleteReadError, ConnectionError):
                return answers, False
            if kind == CLOSE:
                self._check_close(case, payload)
                return answers, False
            if kind in (TEXT, BINARY):
                answers.append(payload)
                if is_framed and self._is_last(case, payload):
                    return answers, True

    def _is_last(self, case: bytes, payload: bytes) -> bool:
        is_json = self._protocol == JSON_PROTOCOL
        frame = msgspec.json.decode(payload) if is_json else msgspec.msgpack.decode(payload)
        if frame["type"] == "refused":
            check_refusal(case, frame["code"])
        return bool(frame.get("re") == self._last_id)

    @staticmethod
    def _check_close(case: bytes, payload: bytes) -> None:
        code = int.from_bytes(payload[:2], "big") if payload else 1000
        if code == INTERNAL or code not in CLOSES:
            raise Finding(case, f"it was closed with {code}")

    def abort(self) -> None:
        self._bare.close()


def framed(random: Random, kind: int, payload: bytes) -> tuple[bytes, bool]:
    """The payload on the wire: mostly as one message, sometimes in fragments, sometimes broken."""
    match random.randrange(10):
        case 0:
            first, rest = payload[:FRAGMENTED_AT], payload[FRAGMENTED_AT:]
            start, end = masked(kind, first), masked(0, rest)
            return bytes([start[0] & 0x7F]) + start[1:] + end, True
        case 1:
            return mutate_bytes(random, masked(kind, payload)), False
        case 2:
            size = random.choice((0, 1, 2**16, 2**31, 2**63 - 1, 2**64 - 1))
            return struct.pack(">BBQ", 0x80 | kind, 0xFF, size) + bytes(4) + payload, False
    return masked(kind, payload), True


def mutated(random: Random, server: FuzzedServer, is_json: bool) -> bytes:
    """A valid frame of some type with something wrong in it."""
    vector = random.choice(VALID)
    if random.random() < 0.6:
        example = json.loads(server.with_real_ids(random, as_json(vector["value"])))
        value = mutate_value(random, example)
        while random.random() < 0.3:
            value = mutate_value(random, value)
        try:
            return as_json(value) if is_json else msgspec.msgpack.encode(value)
        except (OverflowError, UnicodeEncodeError, msgspec.MsgspecError):  # MessagePack has smaller numbers
            return as_json(value)
    data = vector["json"].encode() if is_json else bytes.fromhex(vector["msgpack"])
    return mutate_bytes(random, server.with_real_ids(random, data))


@pytest.mark.parametrize("protocol", [JSON_PROTOCOL, MSGPACK_PROTOCOL])
@pytest.mark.timeout(600)
async def test_frames_that_no_client_sends_harm_nobody(tmp_path: Path, seed: int, protocol: str) -> None:
    """Whatever is in a frame, the answer is documented, and others neither notice it nor are told on."""
    random, is_json = Random(seed), protocol == JSON_PROTOCOL
    async with fuzzed_server(tmp_path) as server:
        socket: FuzzSocket | None = None
        for _ in range(CASES):
            seeds.try_seed()
            case = mutated(random, server, is_json)
            kind = random.choice((TEXT, BINARY)) if random.random() < 0.1 else TEXT if is_json else BINARY
            wire, is_framed = framed(random, kind, case)
            if socket is None:
                socket = FuzzSocket(server, protocol)
                await socket.open(says_hello=random.random() < 0.9)
            answers, goes_on = await socket.send(case, wire, is_framed=is_framed)
            await server.check(case, answers)
            if not goes_on:
                socket.abort()
                socket = None
        if socket is not None:
            socket.abort()


@pytest.mark.parametrize("name", corpus.cases("frames"))
async def test_a_frame_of_the_corpus_harms_nobody(tmp_path: Path, name: str) -> None:
    """What was met badly once is answered as documented, with and without a hello before it."""
    async with fuzzed_server(tmp_path) as server:
        case = server.with_real_ids(Random(0), corpus.cases("frames")[name])
        protocol = MSGPACK_PROTOCOL if name.endswith(".binary") else JSON_PROTOCOL
        kind = BINARY if name.endswith(".binary") else TEXT
        is_framed = not name.endswith(".raw")
        wire = masked(kind, case) if is_framed else case
        for says_hello in (True, False):
            socket = FuzzSocket(server, protocol)
            await socket.open(says_hello=says_hello)
            answers, _ = await socket.send(case, wire, is_framed=is_framed)
            await server.check(case, answers)
            socket.abort()
