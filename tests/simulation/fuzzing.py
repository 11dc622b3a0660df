"""Mutations of valid input, and a server that must not mind them.

What is claimed after every case: no traceback and no error in the log, no refusal `internal`, only refusals
that are documented, nothing that belongs to others, and a bystander who is still served.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import argon2
import structlog

from tests import seeds
from tests.harness.clients import Person, RawClient
from tests.integration.gateway.serving import Place, Served
from tests.tidy.repository import ROOT
from tests.wire_vectors import examples

CASES = 40 * seeds.ROUNDS if seeds.IS_VARIED else 300
MARKER = "only for ben and cas"
"""In the body and title of a chat that the fuzzer is not in."""
PROTOCOL = (ROOT / "docs/PROTOCOL.md").read_text(encoding="utf-8")
REFUSAL_CODES = set(re.findall(r"^\| `(\w+)` \| \d{3} \|", PROTOCOL, re.MULTILINE)) - {"internal"}
"""Those that the protocol documents."""
assert "bad_request" in REFUSAL_CODES

AWKWARD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    2**31,
    2**53,
    2**63,
    -(2**63),
    2**64,
    10**40,
    1e308,
    "",
    " ",
    "\0",
    "a" * 10_000,
    "\N{SNOWMAN}",
    "\N{GRINNING FACE}" * 100,
    "../../etc/passwd",
    "'; DROP TABLE entries; --",
    "2026-13-45T99:99:99Z",
    "0000-00-00T00:00:00Z",
    "9999-12-31T23:59:59.999999999Z",
    [],
    {},
    [[]],
    [None] * 100,
    {"": {}},
)
LITERALS = (b"NaN", b"-Infinity", b"1e999", b"01", b'"\\ud800"', b'"\\u0000"', b"[" * 2_000, b'{"a":' * 2_000)
BYTES = tuple(bytes([one]) for one in (0, 0x0A, 0x20, 0x22, 0x7F, 0x80, 0xC1, 0xED, 0xFE, 0xFF))


def mutate_value(random: Random, value: Any) -> Any:
    """The same shape with something in it that does not belong there."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        changed = dict(value)
        key = random.choice(sorted(changed))
        match random.randrange(6):
            case 0:
                del changed[key]
            case 1:
                changed[key + random.choice(("", "_", "\0"))] = changed.pop(key)
            case 2:
                changed[random.choice(("id", "re", "type", "chat_id", "live", "limit", "x"))] = random.choice(
                    AWKWARD
                )
            case 3:
                changed[key] = random.choice(AWKWARD)
            case _:
                changed[key] = mutate_value(random, changed[key])
        return changed
    if isinstance(value, list) and value and random.random() < 0.7:
        place = random.randrange(len(value))
        return [*value[:place], mutate_value(random, value[place]), *value[place:]]
    if isinstance(value, str) and value and random.random() < 0.5:
        place = random.randrange(len(value))
        return (
            value[:place] + random.choice(("", "\0", "x", "é", value)) + value[place + random.randrange(2) :]
        )
    if isinstance(value, int) and random.random() < 0.5:
        return value + random.choice((-1, 1, 1000, -1000, 2**40))
    return random.choice(AWKWARD)


def mutate_bytes(random: Random, data: bytes) -> bytes:
    """A few bytes flipped, lost, doubled or put in between."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        place = random.randrange(len(changed) + 1)
        end = min(len(changed), place + random.choice((0, 1, 2, 4, 16, 64)))
        match random.randrange(5):
            case 0:
                del changed[place:end]
            case 1:
                changed[place:place] = changed[place:end]
            case 2:
                changed[place:end] = random.randbytes(end - place)
            case 3:
                changed[place:place] = random.choice((*BYTES, *LITERALS))
            case _ if place < len(changed):
                changed[place] ^= 1 << random.randrange(8)
    return bytes(changed)


def as_json(value: Any) -> bytes:
    """Also of what no encoder of the server would write."""
    return json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")


class Finding(AssertionError):
    """An input that was met badly, with all that is needed to keep it."""

    def __init__(self, case: bytes, what: str) -> None:
        super().__init__(f"{what}\nkeep it in tests/corpus, with example ids: {case!r}")


class LogWatch:
    """What was logged that should not be: a traceback, or an error at all."""

    def __init__(self, lines: list[MutableMapping[str, Any]]) -> None:
        self._lines = lines

    def check(self, case: bytes) -> None:
        for line in self._lines:
            if line.get("exc_info") or line["log_level"] in ("error", "critical"):
                raise Finding(case, f"it was logged: {line}")
        self._lines.clear()


@contextmanager
def watched_log() -> Iterator[LogWatch]:
    with structlog.testing.capture_logs() as lines:
        yield LogWatch(lines)


class FuzzedServer:
    """Ann, who sends what she likes, ben, who wants to be served, and what ben and cas say to each other."""

    def __init__(self, served: Served, log: LogWatch) -> None:
        self.served = served
        self.log = log
        self.ann: Person
        self.ben: Person
        self.chat_id = ""
        self.hidden_chat_id = ""
        self.message_id = ""
        self._bystander: RawClient
        self._anns = 0

    async def settle(self) -> None:
        self.ben, self._cas = await self.served.people("ben", "cas")
        as_ben = self.served.as_(self.ben)
        self.hidden_chat_id = await as_ben.create_group(self._cas, title=MARKER)
        await self.served.said(self.ben, self.hidden_chat_id, MARKER)
        await self.renew()
        self._bystander = self.served.client(self.ben)
        await self._bystander.connect()

    async def renew(self) -> None:
        """Another ann: the one before has logged herself out, or left."""
        self._anns += 1
        self.ann = await self.served.http.newcomer(f"ann{self._anns}")
        self.chat_id = await self.served.as_(self.ben).create_group(self.ann)
        (said,) = await self.served.said(self.ben, self.chat_id, "hello, ann")
        self.message_id = said["message_id"]

    async def leave(self) -> None:
        await self._bystander.close()

    def with_real_ids(self, random: Random, example: bytes) -> bytes:
        """An example of the vectors, about what is there; sometimes about what is not ann's to see."""
        chat_id = self.hidden_chat_id if random.random() < 0.2 else self.chat_id
        user_id = random.choice((self.ann.user_id, self.ben.user_id, self._cas.user_id))
        for stands_for, real in (
            (examples.CHAT, chat_id),
            (examples.USER, user_id),
            (examples.OTHER, self.ben.user_id),
            (examples.MESSAGE, self.message_id),
        ):
            assert len(stands_for) == len(real), "lengths within a binary frame stay right"
            example = example.replace(stands_for.encode(), real.encode())
        is_text = example[:1].isascii()
        return example.replace(examples.TOKEN.encode(), self.ann.token.encode()) if is_text else example

    async def check(self, case: bytes, answers: Iterable[bytes]) -> None:
        """After each case: nothing logged, nothing told, and ben is served."""
        for answer in answers:
            if MARKER.encode() in answer:
                raise Finding(case, f"it told what is not ann's to see: {answer!r}")
        self.log.check(case)
        if not await self.serves_ben():
            raise Finding(case, "ben was not served")

    async def serves_ben(self) -> bool:
        """Whether somebody else is answered; what came before that has been looked at by then."""
        return bool((await self._bystander.heartbeat())["type"] == "heartbeat_ack")


@asynccontextmanager
async def fuzzed_server(folder: Path) -> AsyncIterator[FuzzedServer]:
    """A whole server on SQLite, in this process."""
    cheap = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    with watched_log() as log, mock.patch("parley.accounts.accounts.HASHER", cheap):
        async with Place(folder, {}).serving() as served:
            server = FuzzedServer(served, log)
            await server.settle()
            try:
                yield server
            finally:
                await server.leave()


def check_refusal(case: bytes, code: object) -> None:
    if code not in REFUSAL_CODES:
        raise Finding(case, f"it was refused as {code!r}")
