"""Sessions: bounded in number, ended in time, and gone when they are ended."""

import asyncio

import pytest

from parley.app.engines import EXPIRED_FIRST_SECONDS, EXPIRED_SECONDS, expired_sessions
from parley.clock import MS_PER_DAY
from parley.model import Session
from parley.records.raised import EMBEDDED_SECONDS, RaisedLater
from parley.records.sessions import Sessions
from parley.wire import limits
from tests.harness.clock import VirtualClock, run_virtual
from tests.harness.jobs import supervised
from tests.integration.gateway.serving import Place, assert_refused
from tests.memory.records import MemoryRecords
from tests.memory.tables import Tables


async def test_logins_without_end_leave_a_bounded_number_of_sessions(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more than allowed ends the least recently used, with its socket; the others stay."""
    monkeypatch.setattr("parley.accounts.accounts.USER_SESSIONS_MAX", 3)
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        first = await served.http.newcomer("ann", "first")
        others = []
        for name in ("second", "third"):
            clock.advance(1_000)
            others.append(await served.http.login("ann", name))
        async with served.client(first) as client:
            clock.advance(1_000)
            last = await served.http.login("ann", "fourth")
            assert (await client.until_ended()).code == 4102
        assert_refused(await served.as_(first).get("/v1/me"), 401, "unauthenticated")
        for person in (*others, last):
            assert (await served.as_(person).get("/v1/me")).status == 200


def test_the_limit_of_sessions_is_a_hundred() -> None:
    """A number that operators and clients may rely on."""
    assert limits.USER_SESSIONS_MAX == 100


def test_expired_sessions_do_not_pile_up() -> None:
    """A server ends them soon after its start and then regularly, without being asked."""

    async def scenario(clock: VirtualClock) -> None:
        records = MemoryRecords(Tables())
        sessions = Sessions(records, RaisedLater(records, EMBEDDED_SECONDS))
        async with supervised(clock, expired_sessions(sessions, records, clock)):
            for wait_seconds in (EXPIRED_FIRST_SECONDS, EXPIRED_SECONDS):
                await sessions.add(session("ses_1", clock() - 1), b"old")
                await sessions.add(new := session("ses_2", clock() + MS_PER_DAY), b"new")
                await asyncio.sleep(wait_seconds + 1)
                assert await sessions.of("user_1") == [new]
                assert await sessions.by_token(b"old") is None

    run_virtual(scenario)


def session(session_id: str, expires_at_ms: int) -> Session:
    return Session(session_id, "user_1", "phone", "", 0, 0, expires_at_ms)
