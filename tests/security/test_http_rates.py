"""One client floods the HTTP API: with reads, with writes, with tokens that it guesses, without any."""

import pytest
from aiohttp import ClientSession

from parley.core import rates
from parley.gateway.api import ROUTES
from parley.gateway.system import OPERATIONS
from tests.harness.clients import Answer, HttpClient
from tests.harness.clock import VirtualClock
from tests.integration.gateway.serving import Place, Served, assert_refused

RATES_ON = {"PARLEY_LIMITS_RATES": "on"}
PAGES = {"/", "/console", "/assets/{asset}", "/sw.js", "/manifest.webmanifest"}
"""What a browser opens: files, the same for everybody."""
FREE = PAGES | {"/healthz", "/readyz", "/metrics", "/v1/ws"}
"""Beside them what a load balancer and an operator ask; connections have a rate of their own."""


async def until_refused(http: HttpClient, path: str, **query: str | int) -> tuple[int, Answer]:
    """How many requests pass, and the first that does not."""
    for passed in range(10_000):
        answer = await http.get(path, **query)
        if answer.status == 429:
            return passed, answer
    raise AssertionError("no request was refused")


async def test_a_flood_of_reads_is_refused(place: Place) -> None:
    """After a burst, reads of one person are refused with when to come back, and another's are not."""
    clock = VirtualClock()
    async with place.serving(RATES_ON, clock) as served:
        eve, ann = await served.people("eve", "ann")
        passed, refused = await until_refused(served.as_(eve), "/v1/me")
        assert passed == rates.COST_PER_USER.burst
        assert_refused(refused, 429, "rate_limited")
        assert (await served.as_(ann).get("/v1/me")).status == 200
        clock.advance(refused.body["retry_after_ms"])
        assert (await served.as_(eve).get("/v1/me")).status == 200


async def test_a_second_token_is_no_second_budget(place: Place) -> None:
    """The budget is the person's, over all their devices and routes."""
    async with place.serving(RATES_ON, VirtualClock()) as served:
        eve, *_ = await served.people("eve")
        tablet = await served.http.login("eve", "tablet")
        await until_refused(served.as_(eve), "/v1/me")
        assert_refused(await served.as_(tablet).get("/v1/chats"), 429, "rate_limited")


async def test_large_pages_cost_more_than_small_ones(place: Place) -> None:
    """A page of a thousand rows takes ten times what an ordinary request does."""
    async with place.serving(RATES_ON, VirtualClock()) as served:
        (eve,) = await served.people("eve")
        passed, _ = await until_refused(served.as_(eve), "/v1/contacts", limit=1_000)
        assert passed == rates.COST_PER_USER.burst // 11


async def test_many_people_in_one_presence_query_cost_more(place: Place) -> None:
    """A query about five hundred people takes fifty times what an ordinary request does."""
    async with place.serving(RATES_ON, VirtualClock()) as served:
        (eve,) = await served.people("eve")
        asked = ",".join(f"user_{number}" for number in range(500))
        passed, _ = await until_refused(served.as_(eve), "/v1/presence", user_ids=asked)
        assert passed == rates.COST_PER_USER.burst // 51


async def test_guessing_tokens_is_refused_for_the_address_alone(place: Place) -> None:
    """Who guesses tokens is soon refused; a person with a valid one at the same address is not."""
    async with place.serving(RATES_ON, VirtualClock()) as served:
        (ann,) = await served.people("ann")
        guesser = HttpClient(served.session, served.url, "prl_guess")
        passed, refused = await until_refused(guesser, "/v1/me")
        assert passed <= rates.COST_PER_ADDRESS.burst
        assert_refused(refused, 429, "rate_limited")
        assert (await served.as_(ann).get("/v1/me")).status == 200


@pytest.mark.parametrize("path", ["/v1/openapi.json", "/v1/asyncapi.json", "/docs", "/docs/docs.js"])
async def test_a_flood_without_a_session_is_refused_per_address(place: Place, path: str) -> None:
    """What anybody may read is counted for the address that asks."""
    async with place.serving(RATES_ON, VirtualClock()) as served:
        passed, _ = await until_refused(served.http, path)
        assert passed == rates.COST_PER_ADDRESS.burst
        assert (await asked_from(served, path, "203.0.113.9")) == 200


async def asked_from(served: Served, path: str, address: str) -> int:
    """The status that a request through a proxy gets for a client of this address."""
    async with (
        ClientSession() as session,
        session.get(served.url + path, headers={"X-Forwarded-For": address}) as answer,
    ):
        return answer.status


def test_every_route_has_its_cost() -> None:
    """A new route takes something from a budget, unless it is named here."""
    free = {operation.path for operation in (*ROUTES, *OPERATIONS) if not operation.cost}
    assert free == FREE


def test_no_route_costs_more_than_a_budget_holds() -> None:
    """A request that costs more than a burst could never be answered."""
    most = max(operation.cost for operation in ROUTES)
    assert most < rates.COST_PER_ADDRESS.burst < rates.COST_PER_USER.burst


async def test_the_budget_is_off_on_plain_loopback(place: Place) -> None:
    """With `limits.rates = "auto"` a person at this machine is not counted."""
    async with place.serving(clock=VirtualClock()) as served:
        (ann,) = await served.people("ann")
        asked = [await served.as_(ann).get("/v1/contacts", limit=1_000) for _ in range(100)]
        assert {answer.status for answer in asked} == {200}
