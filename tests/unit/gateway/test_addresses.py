"""Whom the rates per address count."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from multidict import CIMultiDict

from parley.config import Config, ServerConfig
from parley.gateway.calls import address_of

PROXY, CLIENT = "10.0.0.2", "203.0.113.9"


def counted(peer: str, headers: list[tuple[str, str]], **settings: Any) -> str:
    request = SimpleNamespace(remote=peer, headers=CIMultiDict(headers))
    services = SimpleNamespace(config=Config(server=ServerConfig(**settings)))
    return address_of(cast(Any, request), cast(Any, services))


@pytest.mark.parametrize(
    ("settings", "peer", "believed"),
    [
        ({}, "127.0.0.1", True),
        ({}, "::1", True),
        ({"host": "0.0.0.0"}, "127.0.0.1", False),
        ({"proxies": [PROXY]}, PROXY, True),
        ({"proxies": ["10.0.0.0/8"]}, PROXY, True),
        ({"proxies": [PROXY]}, "127.0.0.1", False),
        ({"proxies": [PROXY]}, "192.0.2.66", False),
        ({"proxies": [PROXY, "127.0.0.1"]}, "127.0.0.1", True),
    ],
)
def test_only_a_known_proxy_may_name_another_address(
    settings: dict[str, Any], peer: str, believed: bool
) -> None:
    """One on this machine is known as long as nobody else can connect and no setting names others."""
    headers = [("X-Forwarded-For", f"198.51.100.7, {CLIENT}")]
    assert (counted(peer, headers, **settings) == CLIENT) == believed


def test_a_request_without_headers_is_its_peers() -> None:
    """Nobody names another address."""
    assert counted(PROXY, [], proxies=[PROXY]) == PROXY
