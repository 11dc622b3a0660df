"""Guessing passwords: however many guess from wherever, guesses are few and the owner gets in."""

import asyncio
import threading
from collections.abc import Mapping

import pytest

from parley.core.rates import FAILED_LOGINS, FAILED_LOGINS_PER_ACCOUNT, FAILED_LOGINS_PER_ADDRESS
from tests.harness.clients import Answer
from tests.harness.clock import VirtualClock
from tests.integration.gateway.serving import Place, Served, assert_refused
from tests.waiting import eventually

PASSWORD = "correct horse battery"
PROXIED = {"PARLEY_SERVER_PROXIES": "127.0.0.1", "PARLEY_ACCOUNTS_REGISTRATION": "open"}
LIMITED = {**PROXIED, "PARLEY_LIMITS_RATES": "on"}
HOME, ELSEWHERE = "198.51.100.1", "203.0.113.250"
PER_PAIR, PER_ACCOUNT = int(FAILED_LOGINS.burst), int(FAILED_LOGINS_PER_ACCOUNT.burst)
PER_ADDRESS = int(FAILED_LOGINS_PER_ADDRESS.burst)


async def log_in(served: Served, username: str, password: str, address: str, device_id: str = "pc") -> Answer:
    body = {"username": username, "password": password, "device_id": device_id}
    return await posted(served, "/v1/sessions", body, {"X-Forwarded-For": address})


async def posted(served: Served, path: str, body: object, headers: Mapping[str, str]) -> Answer:
    async with served.session.post(served.url + path, json=body, headers=dict(headers)) as answer:
        text = await answer.read()
        return Answer(answer.status, await answer.json() if text else "", dict(answer.headers))


async def guess_from_many_addresses(served: Served, username: str) -> None:
    """As many wrong passwords as the account has, none of them from home."""
    for number in range(PER_ACCOUNT):
        address = f"203.0.113.{number // PER_PAIR}"
        assert_refused(await log_in(served, username, "wrong", address), 401, "unauthenticated")


async def test_guessing_one_account_from_many_addresses_is_stopped(place: Place) -> None:
    """A botnet has so many guesses at an account in an hour, however many addresses it has."""
    async with place.serving(LIMITED, VirtualClock()) as served:
        await served.http.register("ann")
        await guess_from_many_addresses(served, "ann")
        assert_refused(await log_in(served, "ann", "wrong", ELSEWHERE), 429, "rate_limited")


async def test_guesses_from_elsewhere_do_not_lock_the_owner_out(place: Place) -> None:
    """At an address where the account has a session, the owner has a budget of their own."""
    async with place.serving(LIMITED, VirtualClock()) as served:
        await served.http.register("ann")
        assert (await log_in(served, "ann", PASSWORD, HOME)).status == 201
        await guess_from_many_addresses(served, "ann")
        assert_refused(await log_in(served, "ann", PASSWORD, ELSEWHERE), 429, "rate_limited")
        assert (await log_in(served, "ann", PASSWORD, HOME)).status == 201


async def test_guessing_many_accounts_from_one_address_is_stopped(place: Place) -> None:
    """Also for a person who never logged in from there; and for one who did, it is not."""
    async with place.serving(LIMITED, VirtualClock()) as served:
        await served.people("ann", "ben")
        assert (await log_in(served, "ann", PASSWORD, ELSEWHERE)).status == 201
        for number in range(PER_ADDRESS):
            refused = await log_in(served, f"guess{number}", "wrong", ELSEWHERE)
            assert_refused(refused, 401, "unauthenticated")
        assert_refused(await log_in(served, "ben", PASSWORD, ELSEWHERE), 429, "rate_limited")
        assert (await log_in(served, "ben", PASSWORD, HOME)).status == 201
        assert (await log_in(served, "ann", PASSWORD, ELSEWHERE)).status == 201


async def test_a_limit_does_not_tell_whether_an_account_exists(place: Place) -> None:
    """A name that nobody has is closed after as many guesses as one that somebody has."""
    async with place.serving(LIMITED, VirtualClock()) as served:
        await served.http.register("ann")
        answers = {
            name: [(await log_in(served, name, "wrong", HOME)).status for _ in range(PER_PAIR + 1)]
            for name in ("ann", "nobody")
        }
        assert answers["ann"] == answers["nobody"] == [401] * PER_PAIR + [429]


async def test_a_known_address_has_no_endless_guesses(place: Place) -> None:
    """Somebody at the owner's own address gets no more guesses than anywhere else."""
    async with place.serving(LIMITED, VirtualClock()) as served:
        await served.http.register("ann")
        assert (await log_in(served, "ann", PASSWORD, HOME)).status == 201
        for _ in range(PER_PAIR):
            assert_refused(await log_in(served, "ann", "wrong", HOME), 401, "unauthenticated")
        assert_refused(await log_in(served, "ann", PASSWORD, HOME), 429, "rate_limited")


async def test_a_stolen_token_does_not_help_to_guess_the_password(place: Place) -> None:
    """`POST me/password` has as few tries as a login; another session of the person has its own."""
    async with place.serving(LIMITED, VirtualClock()) as served:
        stolen = await served.http.newcomer("ann")
        own = await served.http.login("ann", "tablet")
        wrong = {"old_password": "wrong", "new_password": "a thief was here"}
        for _ in range(PER_PAIR):
            assert_refused(await served.as_(stolen).post("/v1/me/password", wrong), 401, "unauthenticated")
        right = {"old_password": PASSWORD, "new_password": "a thief was here"}
        assert (await served.as_(stolen).post("/v1/me/password", right)).status == 429
        assert (await served.as_(own).post("/v1/me/password", right)).status == 204


class HeldHasher:
    """Verifies nothing before it is let go on, one password at a time; remembers the order."""

    def __init__(self) -> None:
        self.verified: list[str] = []
        self._allowed = threading.Semaphore(0)

    def hash(self, password: str) -> str:
        return password

    def verify(self, stored: str, password: str) -> bool:
        self._allowed.acquire()
        self.verified.append(password)
        return stored == password

    def let(self, count: int) -> None:
        self._allowed.release(count)


@pytest.mark.parametrize("limits", ["on", "off"])
async def test_a_flood_of_guesses_does_not_starve_other_logins(
    place: Place, monkeypatch: pytest.MonkeyPatch, limits: str
) -> None:
    """While one address has fifty guesses in the queue, a login from another is among the next few."""
    hasher = HeldHasher()
    monkeypatch.setattr("parley.accounts.accounts.HASHER", hasher)
    async with place.serving({**PROXIED, "PARLEY_LIMITS_RATES": limits}) as served:
        await served.http.register("ann")
        hashes = served.app.accounts._hashes
        flood = [
            asyncio.create_task(log_in(served, f"guess{number}", "wrong", ELSEWHERE)) for number in range(50)
        ]
        await eventually(lambda: hashes._waiting == 48)
        owner = asyncio.create_task(log_in(served, "ann", PASSWORD, HOME))
        await eventually(lambda: hashes._waiting == 49)
        hasher.let(4)
        await eventually(lambda: len(hasher.verified) == 4)
        assert PASSWORD in hasher.verified
        hasher.let(47)
        assert (await owner).status == 201
        await asyncio.gather(*flood)
