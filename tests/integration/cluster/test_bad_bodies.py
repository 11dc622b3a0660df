"""Calls about traces and outcomes whose bodies no node would send."""

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from parley.cluster.outcomes import OUTCOMES, TicketOutcome, outcome_routes
from parley.cluster.traces import TRACE, trace_routes
from parley.core.timeline import NodeTrace, TraceQuestion
from parley.errors import NOT_A_MEMBER
from parley.model import Appended, Outcome

STORED = Appended(message_id="msg_1", sequence=1, epoch=1, created_at="")
pack = msgspec.msgpack.encode


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (TRACE, b""),
        (TRACE, b"\xc1"),
        (TRACE, pack({"chat_id": "chat_1", "sequence": "5", "user_ids": []})),
        (TRACE, pack({"chat_id": "chat_1", "sequence": 5, "user_ids": [1]})),
        (OUTCOMES, b""),
        (OUTCOMES, pack({"ticket": 1})),
        (OUTCOMES, pack([TicketOutcome(1)])),
        (OUTCOMES, pack([TicketOutcome(1, STORED, NOT_A_MEMBER)])),
        (OUTCOMES, pack([TicketOutcome(1, STORED), TicketOutcome(2)])),
    ],
)
async def test_a_body_that_makes_no_sense_is_refused_and_does_nothing(path: str, body: bytes) -> None:
    """With status 400; of several outcomes none is taken if one is not well formed."""
    settled: list[tuple[int, Outcome]] = []
    app = web.Application()
    app.router.add_routes([*outcome_routes(settled.extend), *trace_routes(_trace)])
    async with TestClient(TestServer(app)) as client:
        answer = await client.post(path, data=body)
        assert answer.status == 400
    assert settled == []


def _trace(question: TraceQuestion) -> NodeTrace:
    raise AssertionError(question)
