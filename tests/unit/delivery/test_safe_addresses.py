"""Which addresses a webhook may have."""

from ipaddress import ip_address

import pytest

from parley.core.client_address import parse_networks
from parley.core.safe_addresses import is_safe, url_problem

UNSAFE = [
    "127.0.0.1",
    "127.8.9.1",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "fe80::1",
    "fc00::1",
    "fd12:3456::1",
    "fec0::1",
    "ff02::1",
    "64:ff9b::7f00:1",
    pytest.param("2002:7f00:1::1", id="tunnel"),
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
]
PUBLIC = ["8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "::ffff:8.8.8.8"]


@pytest.mark.parametrize("text", UNSAFE)
def test_what_is_not_public_is_out_of_reach(text: str) -> None:
    """Loopback, private, link-local, special, mapped and tunnelled addresses."""
    assert not is_safe(ip_address(text), (), is_plain=False)


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_need_tls(text: str) -> None:
    """Plain http is only for networks that the operator allows."""
    assert is_safe(ip_address(text), (), is_plain=False)
    assert not is_safe(ip_address(text), (), is_plain=True)


@pytest.mark.parametrize("text", ["10.1.2.3", "::ffff:10.1.2.3"])
def test_an_allowed_network_is_within_reach(text: str) -> None:
    """Also without TLS; its neighbours are not."""
    allowed = parse_networks(("10.1.0.0/16",))
    assert is_safe(ip_address(text), allowed, is_plain=True)
    assert not is_safe(ip_address("10.2.0.1"), allowed, is_plain=False)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com/x",
        "ftp://example.com/",
        "file:///etc/passwd",
        "http://example.com/",
        "https://",
        "https://user:pw@example.com/",
        "https://example.com/#part",
        "https://example.com:99999/",
        "https://exa mple.com/",
        "https://example.com\\@example.org/",
        "https://[::1]example.com/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://example.com/" + "x" * 2_000,
    ],
)
def test_a_bad_address_is_refused_when_it_is_added(url: str) -> None:
    """As far as the text says it; the rest is checked at each connection."""
    assert url_problem(url, ()) is not None


def test_a_good_address_is_taken() -> None:
    """https anywhere, http where something is allowed."""
    assert url_problem("https://example.com:8443/hook?x=1", ()) is None
    assert url_problem("http://10.0.0.5/hook", parse_networks(("10.0.0.0/8",))) is None
