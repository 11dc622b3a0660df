"""A server that others can reach trusts no request for coming from this machine."""

from collections.abc import Mapping

import pytest
from aiohttp import ClientSession

from parley.config import load, risks
from parley.core.rates import FAILED_LOGINS
from tests.harness.clients import PASSWORD, Answer, HttpClient
from tests.integration.gateway.serving import Place, Served, assert_refused

EXPOSED = [
    {"PARLEY_SERVER_HOSTS": "chat.example"},
    {"PARLEY_CONSOLE_HOST": "ops.example"},
    {"PARLEY_CONSOLE_LISTEN": "0.0.0.0:0"},
    {"PARLEY_SERVER_ORIGINS": "https://chat.example"},
    {"PARLEY_SERVER_PROXIES": "10.0.0.2"},
    {"PARLEY_SERVER_HOST": "0.0.0.0"},
]
"""Each of them alone says that others reach the server: through a proxy, or by its address."""
OWN_LISTENER = {"PARLEY_METRICS_LISTEN": "127.0.0.1:0"}

silent_proxies = pytest.mark.parametrize("settings", EXPOSED, ids=lambda settings: next(iter(settings)))
"""A proxy that adds no header: its requests look like those of a person at this machine."""


@silent_proxies
async def test_a_silent_proxy_does_not_open_the_metrics(place: Place, settings: Mapping[str, str]) -> None:
    """Without a token `/metrics` is 401, although the request comes from loopback and has no header."""
    async with place.serving(settings) as served:
        assert (await served.http.get("/metrics")).status == 401


@silent_proxies
async def test_a_silent_proxy_does_not_open_registration(place: Place, settings: Mapping[str, str]) -> None:
    """Accounts are not given to whoever asks, as long as nobody said that they are."""
    async with place.serving(settings) as served:
        body = {"username": "mallory", "password": PASSWORD}
        assert_refused(await served.http.post("/v1/accounts", body), 403, "forbidden")


@silent_proxies
async def test_a_silent_proxy_does_not_spare_guesses_of_passwords(
    place: Place, settings: Mapping[str, str]
) -> None:
    """After some wrong passwords the next guess has to wait."""
    async with place.serving(settings) as served:
        await served.app.accounts.register("ann", PASSWORD)
        guesses = [await guess(served, f"wrong {number}") for number in range(int(FAILED_LOGINS.burst) + 1)]
        assert guesses[-1].status == 429


@silent_proxies
def test_a_password_of_one_letter_is_not_enough(settings: dict[str, str]) -> None:
    """Where others may guess, a password has eight letters unless the operator says otherwise."""
    assert load(None, settings)[0].password_chars_min == 8
    assert load(None, {})[0].password_chars_min == 1


@pytest.mark.parametrize("name", ["X-Forwarded-Port", "X-Forwarded-Prefix", "Via", "Forwarded", "X-Real-IP"])
async def test_no_header_of_a_proxy_looks_local(place: Place, name: str) -> None:
    """Whichever header a proxy adds, its requests are not taken for those of a person at this machine."""
    async with place.serving() as served, ClientSession(headers={name: "x"}) as session:
        assert (await HttpClient(session, served.url).get("/metrics")).status == 401


async def test_a_plain_loopback_server_stays_open_to_its_own_machine(place: Place) -> None:
    """Without any of those settings a person at the machine registers and reads metrics as documented."""
    async with place.serving() as served:
        assert (await served.http.get("/metrics")).status == 200
        assert (await served.http.post("/v1/accounts", {"username": "ann", "password": "x"})).status == 201


# Metrics on a listener of their own


async def test_metrics_with_their_own_listener_are_not_on_the_public_port(place: Place) -> None:
    """Whoever reaches the public port, also from this machine, needs an operator's token."""
    async with place.serving(OWN_LISTENER) as served:
        assert (await served.http.get("/metrics")).status == 401
        assert (await scraped(served, "/metrics")).status == 200
        assert (await scraped(served, "/readyz")).body == {"status": "ready"}


@pytest.mark.parametrize(
    "path", ["/v1/me", "/v1/ws", "/v1/openapi.json", "/v1/asyncapi.json", "/docs", "/v1/accounts"]
)
async def test_the_listener_of_metrics_is_no_second_way_in(place: Place, path: str) -> None:
    """Nothing that clients ask for is there."""
    async with place.serving(OWN_LISTENER) as served:
        assert_refused(await scraped(served, path), 404, "not_found")


async def test_a_web_page_cannot_read_metrics_by_rebinding_its_name(place: Place) -> None:
    """A page whose name resolves to loopback is refused by its `Host`."""
    async with place.serving(OWN_LISTENER) as served:
        assert (await scraped(served, "/metrics", {"Host": "evil.example"})).status == 400


# Warnings


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"PARLEY_SERVER_HOST": "0.0.0.0"}, "no TLS on 0.0.0.0"),
        ({"PARLEY_SERVER_HOST": "::"}, "can read passwords, tokens and messages"),
        ({"PARLEY_METRICS_LISTEN": "0.0.0.0:9100"}, "reads the metrics, no token needed"),
    ],
)
def test_an_operator_is_told_what_is_open(settings: dict[str, str], says: str) -> None:
    """The sentence names the risk."""
    (risk,) = risks(load(None, settings)[0])
    assert says in risk


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"PARLEY_SERVER_HOSTS": "chat.example"},
        {"PARLEY_SERVER_HOST": "10.0.0.7", "PARLEY_SERVER_PROXIES": "10.0.0.2"},
        {"PARLEY_SERVER_HOST": "0.0.0.0", "PARLEY_TLS_CERTIFICATE": "chat.pem"},
        {"PARLEY_METRICS_LISTEN": "127.0.0.1:9100"},
    ],
)
def test_no_alarm_is_false(settings: dict[str, str]) -> None:
    """Loopback, TLS, or a proxy that is named: there is nothing to warn of."""
    assert risks(load(None, settings)[0]) == []


async def guess(served: Served, password: str) -> Answer:
    body = {"username": "ann", "password": password, "device_id": "phone"}
    return await served.http.post("/v1/sessions", body)


async def scraped(served: Served, path: str, headers: Mapping[str, str] | None = None) -> Answer:
    """A request to the listener of metrics."""
    port = served.app.gateway.metrics_port
    async with ClientSession(headers=headers) as session:
        return await HttpClient(session, f"http://127.0.0.1:{port}").get(path)
