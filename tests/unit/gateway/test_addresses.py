"""Whom the rates per address count."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from parley.config import Config, Server
from parley.gateway.calls import address_of


@pytest.mark.parametrize(
    ("peer", "forwarded", "counted"),
    [
        ("127.0.0.1", "198.51.100.7, 203.0.113.9", "203.0.113.9"),
        ("10.0.0.2", "203.0.113.9", "203.0.113.9"),
        ("192.0.2.66", "203.0.113.9", "192.0.2.66"),
        ("192.0.2.66", None, "192.0.2.66"),
    ],
)
def test_only_a_known_proxy_may_name_another_address(peer: str, forwarded: str | None, counted: str) -> None:
    """A client cannot choose the address that it is counted under."""
    headers = {} if forwarded is None else {"X-Forwarded-For": forwarded}
    request = SimpleNamespace(remote=peer, headers=headers)
    services = SimpleNamespace(config=Config(server=Server(proxies=["10.0.0.2"])))
    assert address_of(cast(Any, request), cast(Any, services)) == counted
