"""What an operator sees: lines that follow a message by its request id, and metrics that move."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
import structlog

from tests.harness.clients import Frame, HttpClient
from tests.harness.clock import VirtualClock
from tests.integration.gateway.bare import BareSocket
from tests.integration.gateway.serving import Place, Served, assert_refused, message, new_id
from tests.integration.gateway.test_socket_rules import send
from tests.waiting import eventually

Line = dict[str, Any]


@pytest.fixture
def lines() -> Iterator[list[Line]]:
    """Everything that is logged, at every level."""
    with structlog.testing.capture_logs() as captured:
        yield captured  # type: ignore[misc]


def events(lines: list[Line], request_id: str) -> list[str]:
    return [line["event"] for line in lines if line.get("request_id") == request_id]


async def post(client: HttpClient, served: Served, chat: str, body: Frame, request_id: str) -> int:
    """A send with an id of the client's own."""
    headers = {"X-Request-Id": request_id, "Authorization": f"Bearer {client.token}"}
    async with served.session.post(
        f"{served.url}/v1/chats/{chat}/messages", json=body, headers=headers
    ) as answer:
        return answer.status


async def test_a_request_id_follows_a_message_over_http(either: Place, lines: list[Line]) -> None:
    """Allocation, persistence, a retry and a refusal are each told with the id of their request."""
    async with either.serving() as served:
        ann, eve = await served.people("ann", "eve")
        chat = await served.as_(ann).create_group()
        body = message("hello")
        assert await post(served.as_(ann), served, chat, body, "first-try") == 201
        assert await post(served.as_(ann), served, chat, body, "second-try") == 200
        assert await post(served.as_(eve), served, chat, message(), "stranger") == 403
        assert events(lines, "first-try") == ["Sequence allocated", "Message persisted"]
        assert events(lines, "second-try") == ["Duplicate message detected"]
        assert events(lines, "stranger") == ["Message refused"]
        persisted = next(line for line in lines if line["event"] == "Message persisted")
        assert (persisted["chat_id"], persisted["sequence"], persisted["log_level"]) == (chat, 1, "debug")
        assert persisted["client_message_id"] == body["client_message_id"]
        assert "hello" not in str(lines), "what people write is nobody's business"


async def test_a_request_id_follows_a_message_over_a_socket(either: Place, lines: list[Line]) -> None:
    """Each frame has an id made of its connection's and its own number."""
    async with either.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        bare = BareSocket(served.port)
        await bare.open(**{"X-Request-Id": "my-socket"})
        await bare.hello(ann, live=False)
        bare.send([send(chat), send(chat)])
        await bare.frames(2)
        bare.close()
        for request_id in ("my-socket.2", "my-socket.3"):
            assert events(lines, request_id) == ["Sequence allocated", "Message persisted"]


async def test_a_race_is_told(place: Place, lines: list[Line], tmp_path: Path) -> None:
    """In two_phase, who took a number for a message that somebody faster stored says so."""
    held = tmp_path / "hold"
    held.touch()
    two_phase = {"PARLEY_STORE_SEQUENCING": "two_phase"}
    async with place.serving(two_phase, VirtualClock(), PARLEY_TEST_PAUSE=f"after_allocate:{held}") as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        body = message("once")
        slow = asyncio.create_task(post(served.as_(ann), served, chat, body, "slow"))
        await eventually(held.with_suffix(".paused").exists)
        assert await post(served.as_(ann), served, chat, body, "quick") == 201
        held.unlink()
        assert await slow == 200
    assert events(lines, "slow") == [
        "Sequence allocated",
        "Race condition resolved",
        "Duplicate message detected",
    ]


async def test_a_missing_counter_is_critical(either: Place, lines: list[Line]) -> None:
    """The line names the chat and what to do, the metric counts, and the send is refused with 503."""
    async with either.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        with apsw.Connection(str(served.sqlite.database.path)) as other:
            other.execute("DELETE FROM chat_counters WHERE chat_id = ?", (chat,))
        refused = await served.as_(ann).post(f"/v1/chats/{chat}/messages", message())
        assert_refused(refused, 503, "counter_missing")
        (line,) = [line for line in lines if line["event"] == "COUNTER_MISSING"]
        assert (line["log_level"], line["chat_id"]) == ("critical", chat)
        assert "parley recover" in line["hint"]
        assert served.metric("counter_missing_errors") == 1


SOURCE_NAMES = [
    "sequence_allocation_latency_p99",
    "sequence_allocation_errors",
    "counter_missing_errors",
    "idempotency_hit_rate",
    "sequence_gap_rate",
    "transaction_conflict_rate",
    "messages_per_chat_per_minute",
]
OWN_NAMES = [
    "sequence_allocation_latency_bucket",
    "parley_commit_seconds_count",
    "parley_commit_jobs_count",
    "parley_batch_messages_count",
    "parley_fanout_lag_seconds_count",
    "parley_commit_failures_total",
    "parley_messages_stored_total",
    "parley_deliveries_total",
    "parley_connections",
    "parley_outbox_bytes",
    "parley_http_requests_total",
]


async def test_every_metric_has_its_name(place: Place) -> None:
    """The names that alerts and dashboards rely on are there as soon as there was a message."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        await served.said(ann, await served.as_(ann).create_group(), "x")
        found = set(samples(await text_of(served)))
        assert [name for name in SOURCE_NAMES + OWN_NAMES if name not in found] == []


async def test_metrics_move(either: Place) -> None:
    """Messages, retries, refusals, deliveries and connections are counted as they happen."""
    async with either.serving() as served:
        ann, ben, eve = await served.people("ann", "ben", "eve")
        chat = await served.as_(ann).create_group(ben)
        path = f"/v1/chats/{chat}/messages"
        async with served.client(ben) as client:
            body = message()
            for _ in range(2):
                await served.as_(ann).post(path, body)
            await served.said(ann, chat, "2", "3")
            await served.as_(eve).post(path, message())
            await client.live_entry(chat, 3)
            metrics = samples(await text_of(served))
        assert metrics["parley_messages_stored_total"] == 3
        assert metrics["idempotency_hit_rate"] == pytest.approx(1 / 5)
        assert metrics['parley_messages_refused_total{code="not_a_member"}'] == 1
        assert metrics["parley_deliveries_total"] == 3
        assert metrics["parley_connections"] == 1
        assert metrics[f'messages_per_chat_per_minute{{chat_id="{chat}"}}'] == 3
        assert metrics["sequence_gap_rate"] == 0
        assert 0 < metrics["sequence_allocation_latency_p99"] < 5
        assert metrics['parley_http_requests_total{route="/v1/chats/{chat_id}/messages",status="201"}'] == 3


async def test_a_void_counts_as_a_gap_and_not_as_a_message(place: Place) -> None:
    """In two_phase a number that came to nothing raises the gap rate."""
    async with place.serving({"PARLEY_STORE_SEQUENCING": "two_phase"}) as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        await served.said(ann, chat, "1")
        early = message("too early", after_client_message_id=new_id())
        assert_refused(await served.as_(ann).post(f"/v1/chats/{chat}/messages", early), 409, "out_of_turn")
        metrics = samples(await text_of(served))
        assert metrics["sequence_gap_rate"] == pytest.approx(1 / 2)
        assert metrics["parley_messages_stored_total"] == 1


async def test_hostile_routes_do_not_multiply_metrics(place: Place) -> None:
    """However many addresses are tried, the number of series stays bounded."""
    async with place.serving() as served:
        for number in range(50):
            await served.http.get(f"/nowhere/{number}")
            await served.http.get(f"/v1/users/user_{number}")
        routes = {name for name in samples(await text_of(served)) if name.startswith("parley_http_requests")}
        assert len(routes) <= 6


async def text_of(served: Served) -> str:
    body: str = (await served.http.get("/metrics")).body
    return body


def samples(text: str) -> dict[str, float]:
    """Every sample by its name, with labels as they are written and, if it has any, without them too."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[name] = found[name.partition("{")[0]] = float(value)
    return found
