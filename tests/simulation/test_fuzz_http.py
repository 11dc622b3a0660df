"""Requests over HTTP that no client of ours would make."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
import pytest

from tests import corpus, seeds
from tests.integration.gateway.serving import message
from tests.integration.gateway.test_openapi import Call, calls
from tests.simulation.fuzzing import (
    AWKWARD,
    CASES,
    Finding,
    FuzzedServer,
    as_json,
    check_refusal,
    fuzzed_server,
    mutate_bytes,
    mutate_value,
)
from tests.waiting import deadline
from tests.wire_vectors import examples

ROUND_TRIPS_BEFORE_EOF = 3
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "get", "PRI")
PATH_NAME = re.compile(r"\{(\w+)\}")
PATHS = ("..", "%", "%00", "%2e%2e%2f", "%ff", "a/b")
HEADERS = (
    "Content-Type: text/plain",
    "Content-Type: application/json; charset=utf-7",
    "Transfer-Encoding: chunked",
    "Content-Length: 5",
    "Content-Encoding: gzip",
    "Expect: 100-continue",
    "Upgrade: websocket\r\nConnection: Upgrade",
    "X-Request-Id: " + "x" * 5_000,
    "X-Forwarded-For: ,,,[::1],\x00",
    "Host: ]",
    "Cookie: " + "a=b;" * 500,
    ": no name",
)


class Request(NamedTuple):
    """`is_whole`: the server knows where it ends, so that an answer can be waited for."""

    wire: bytes
    is_whole: bool


def written(method: str, path: str, token: str, body: bytes | None, headers: tuple[str, ...] = ()) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *headers]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    head = "\r\n".join(lines) + "\r\n\r\n"
    return head.encode("utf-8", "surrogatepass") + (body or b"")


class HttpFuzzer:
    """Draws requests: every operation of the document, with something wrong in one of its parts."""

    def __init__(self, random: Random, server: FuzzedServer) -> None:
        self._random = random
        self._server = server

    def request(self) -> Request:
        random, server = self._random, self._server
        sent, ann, ben = message("hello"), server.ann.user_id, server.ben.user_id
        call = random.choice(calls(sent, ann, ben, ben))
        part = random.choice(("body", "body", "path", "query", "head", "wire", "token", "method"))
        method = random.choice(METHODS) if part == "method" else call.method
        target = self._target(call, part, sent["client_message_id"])
        token = mutate_bytes(random, server.ann.token.encode()).decode("latin-1") if part == "token" else ""
        token = (token or server.ann.token).replace("\r", "").replace("\n", "")
        body = None if call.body is None else self._body(call.body, part)
        if part != "head":
            wire = written(method, target, token, body)
            return Request(mutate_bytes(random, wire) if part == "wire" else wire, part != "wire")
        return Request(written(method, target, token, body, (random.choice(HEADERS),)), False)

    def _target(self, call: Call, part: str, client_message_id: str) -> str:
        random, server = self._random, self._server
        names: dict[str, Any] = {
            "chat_id": server.hidden_chat_id if random.random() < 0.2 else server.chat_id,
            "user_id": server.ben.user_id,
            "session_id": server.ann.session_id,
            "dlq_id": "dlq_0",
            "job_id": "job_0",
            "webhook_id": "wh_0",
            "message_id": "msg_0",
            "attachment_id": "att_0",
            "device_id": "watch",
            "client_message_id": client_message_id,
            "sequence": 1,
            "file": "docs.js",
        }
        for name in PATH_NAME.findall(call.path):
            names.setdefault(name, f"{name}_0")
        query: dict[str, Any] = dict(call.query)
        if part == "path":
            name = random.choice(sorted(names))
            names[name] = random.choice((*AWKWARD, *PATHS, mutate_value(random, names[name])))
        if part == "query":
            query = mutate_value(random, query) if query else {"limit": random.choice(AWKWARD)}
            query = query if isinstance(query, dict) else {"after": query}
        path = call.path.format(**{name: _quoted(value) for name, value in names.items()})
        asked = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in query.items())
        return f"{path}?{asked}" if asked else path

    def _body(self, body: Any, part: str) -> bytes:
        if part != "body":
            return as_json(body)
        if self._random.random() < 0.7:
            return as_json(mutate_value(self._random, mutate_value(self._random, body)))
        return mutate_bytes(self._random, as_json(body))


def _quoted(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if "%" in text else quote(text, safe="", errors="surrogatepass")


async def exchanged(server: FuzzedServer, request: Request) -> bytes:
    """Everything that is answered until the server closes.

    Where it may wait for more, our end is closed: not before it had the time to answer, because a client that
    is gone is not answered.
    """
    async with deadline():
        reader, writer = await asyncio.open_connection("127.0.0.1", server.served.port)
        reading = asyncio.create_task(reader.read())
        try:
            writer.write(request.wire)
            if not request.is_whole:
                for _ in range(ROUND_TRIPS_BEFORE_EOF):
                    await server.serves_ben()
                if not reading.done():
                    writer.write_eof()
            return await reading
        except ConnectionError:
            return b""
        finally:
            writer.transport.abort()


def check_answer(case: bytes, answer: bytes) -> int:
    """The status: never a 500, and a refusal is one of the documented ones."""
    if not answer:
        return 0
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    if status == 500:
        raise Finding(case, f"it was answered with 500: {body!r}")
    if status >= 400 and b"\r\ncontent-type: application/json" in head.lower() and body:
        check_refusal(case, msgspec.json.decode(body)["code"])
    return status


@pytest.mark.timeout(600)
async def test_requests_that_no_client_makes_harm_nobody(tmp_path: Path, seed: int) -> None:
    """Whatever is wrong with a request, the answer is documented; others neither notice nor are told on."""
    random = Random(seed)
    async with fuzzed_server(tmp_path) as server:
        fuzzer = HttpFuzzer(random, server)
        for _ in range(CASES):
            seeds.try_seed()
            request = fuzzer.request()
            answer = await exchanged(server, request)
            status = check_answer(request.wire, answer)
            await server.check(request.wire, [answer])
            if status == 401 and server.ann.token.encode() in request.wire:
                await server.renew()


@pytest.mark.parametrize("name", corpus.cases("http"))
async def test_a_request_of_the_corpus_harms_nobody(tmp_path: Path, name: str) -> None:
    """What was met badly once is answered as documented."""
    async with fuzzed_server(tmp_path) as server:
        case = corpus.cases("http")[name]
        assert examples.TOKEN.encode() in case or b"Authorization" not in case
        wire = server.with_real_ids(Random(0), case)
        answer = await exchanged(server, Request(wire, False))
        check_answer(wire, answer)
        await server.check(wire, [answer])
