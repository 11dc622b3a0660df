"""Nobody chooses the address that they are counted under."""

from collections.abc import Iterable

import pytest
from aiohttp import ClientSession
from multidict import CIMultiDict

from parley.config import load
from parley.core.rates import REGISTRATIONS_PER_ADDRESS
from parley.errors import ConfigError
from tests.harness.clients import PASSWORD
from tests.harness.clock import VirtualClock
from tests.integration.gateway.serving import Place

OPEN = {"PARLEY_ACCOUNTS_REGISTRATION": "open", "PARLEY_LIMITS_RATES": "on"}
BURST = int(REGISTRATIONS_PER_ADDRESS.burst)
Headers = list[tuple[str, str]]


async def registrations(place: Place, requests: Iterable[Headers], **settings: str) -> list[int]:
    """The status of each registration, one after the other, within a moment."""
    async with place.serving({**OPEN, **settings}, VirtualClock()) as served, ClientSession() as session:
        found = []
        for number, headers in enumerate(requests):
            body = {"username": f"p{number}", "password": PASSWORD}
            url = f"{served.url}/v1/accounts"
            async with session.post(url, json=body, headers=CIMultiDict(headers)) as answer:
                found.append(answer.status)
        return found


ATTACKS: dict[str, list[Headers]] = {
    "a line of its own before the proxy's": [
        [("X-Forwarded-For", f"198.51.100.{n}"), ("X-Forwarded-For", "203.0.113.9")] for n in range(BURST + 1)
    ],
    "another address of its own network": [
        [("X-Forwarded-For", f"2001:db8:1:2::{n:x}")] for n in range(BURST + 1)
    ],
    "an address as IPv4 and as IPv6": [
        [("X-Forwarded-For", "203.0.113.9" if n % 2 else "::ffff:203.0.113.9")] for n in range(BURST + 1)
    ],
    "another port each time": [[("X-Forwarded-For", f"203.0.113.9:{n + 1}")] for n in range(BURST + 1)],
    "a Forwarded of its own beside the proxy's header": [
        [("Forwarded", f"for=198.51.100.{n}"), ("X-Forwarded-For", "203.0.113.9")] for n in range(BURST + 1)
    ],
    "an X-Forwarded-For of its own beside the proxy's Forwarded": [
        [("X-Forwarded-For", f"198.51.100.{n}"), ("Forwarded", "for=203.0.113.9")] for n in range(BURST + 1)
    ],
    "a quote that hides the proxy's element": [
        [("Forwarded", f'for=198.51.100.{n};by=", for=203.0.113.9')] for n in range(BURST + 1)
    ],
    "an obfuscated identifier": [[("Forwarded", f"for=_hidden{n}")] for n in range(BURST + 1)],
    "no address at all": [[("X-Forwarded-For", f"nobody-{n}")] for n in range(BURST + 1)],
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_disguise_does_not_lift_a_limit(place: Place, attack: str) -> None:
    """Behind one proxy, one client in many disguises is one client."""
    assert await registrations(place, ATTACKS[attack]) == [201] * BURST + [429]


async def test_a_neighbour_on_this_machine_is_no_proxy_once_proxies_are_named(place: Place) -> None:
    """With `server.proxies` only these name clients; another process of this machine does not."""
    requests: list[Headers] = [[("X-Forwarded-For", f"198.51.100.{n}")] for n in range(BURST + 1)]
    assert (await registrations(place, requests, PARLEY_SERVER_PROXIES="10.0.0.2"))[-1] == 429


async def test_clients_of_one_proxy_do_not_share_a_limit(place: Place) -> None:
    """Addresses that the proxy itself names are counted apart."""
    requests: list[Headers] = [[("Forwarded", f"for=198.51.100.{n}")] for n in range(BURST + 1)]
    assert await registrations(place, requests) == [201] * (BURST + 1)


@pytest.mark.parametrize("proxies", ["0.0.0.0/0", "::/0", "10.0.0.2/8", "proxy.example"])
def test_nobody_is_trusted_by_a_slip(proxies: str) -> None:
    """A setting that would trust everybody, a larger network than written, or a name is refused."""
    with pytest.raises(ConfigError, match=r"server\.proxies"):
        load(None, {"PARLEY_SERVER_PROXIES": proxies})
