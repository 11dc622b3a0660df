"""Which client a request comes from: forwarding headers, and how far they are believed."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from parley.core.client_address import (
    HOPS_MAX,
    Address,
    client_address,
    is_in,
    parse_address,
    parse_networks,
)

PROXIES = parse_networks(("10.0.0.0/8", "2001:db8:ffff::/48", "127.0.0.1"))
PROXY, CLIENT = "10.0.0.2", "203.0.113.9"

addresses = st.ip_addresses()
lines = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"))


def counted(x_forwarded_for: list[str] | None = None, forwarded: list[str] | None = None) -> str:
    return client_address(PROXY, x_forwarded_for or [], forwarded or [], PROXIES)


def outside(address: Address) -> Address:
    """An address that is no proxy and is not another one in disguise."""
    assume(not is_in(address, PROXIES))
    assume(parse_address(str(address)) == address)
    return address


def element(address: Address) -> str:
    return f'"[{address}]"' if isinstance(address, IPv6Address) else str(address)


@pytest.mark.parametrize(
    ("said", "client"),
    [
        (["203.0.113.9"], CLIENT),
        (["198.51.100.7, 203.0.113.9"], CLIENT),
        (["198.51.100.7", "203.0.113.9"], CLIENT),
        (["203.0.113.9, 10.0.0.3, 10.0.0.4"], CLIENT),
        (["198.51.100.7, 203.0.113.9, 2001:db8:ffff::1"], CLIENT),
        (["203.0.113.9:4711"], CLIENT),
        (["::ffff:203.0.113.9"], CLIENT),
        (["[::ffff:203.0.113.9]:80"], CLIENT),
        (["2001:db8::1"], "2001:db8::/64"),
        (["fe80::1%eth0"], "fe80::/64"),
        (["10.0.0.3, 10.0.0.4"], "10.0.0.3"),
        (["unknown"], PROXY),
        (["203.0.113.9, unknown, 10.0.0.3"], "10.0.0.3"),
        (["203.0.113.9,"], PROXY),
        ([""], PROXY),
        (["203.0.113.9:port"], PROXY),
        (["[203.0.113.9"], PROXY),
    ],
)
def test_a_list_is_read_from_the_right(said: list[str], client: str) -> None:
    """The first address that is no known proxy is the client; what says no address is not passed over."""
    assert counted(said) == client


@pytest.mark.parametrize(
    ("said", "client"),
    [
        (["for=203.0.113.9"], CLIENT),
        (['For="203.0.113.9:4711"'], CLIENT),
        (["for=198.51.100.7, for=203.0.113.9;proto=https;by=10.0.0.2"], CLIENT),
        (['proto=https ; for="203.0.113.9"'], CLIENT),
        (["for=198.51.100.7", "for=203.0.113.9"], CLIENT),
        (['for="[2001:db8:cafe::17]:4711"'], "2001:db8:cafe::/64"),
        (['for="[2001:db8:cafe::17]:_port"'], "2001:db8:cafe::/64"),
        (['for="\\2\\03.0.113.9"'], CLIENT),
        (["for=203.0.113.9, for=10.0.0.3;by=10.0.0.2"], CLIENT),
        (['by="a, for=198.51.100.7", for=203.0.113.9'], CLIENT),
        (["for=_hidden"], PROXY),
        (["for=unknown"], PROXY),
        (["proto=https"], PROXY),
        (["for=203.0.113.9;for=198.51.100.7"], PROXY),
        (['for=198.51.100.7;by=", for=203.0.113.9'], PROXY),
        (["203.0.113.9"], PROXY),
        (["for="], PROXY),
        ([""], PROXY),
    ],
)
def test_forwarded_is_understood_as_the_rfc_has_it(said: list[str], client: str) -> None:
    """Quotes, brackets, ports and obfuscated identifiers; a line that is malformed says nothing."""
    assert counted(forwarded=said) == client


@given(lines, addresses)
def test_nothing_before_it_changes_what_the_proxy_appended(sent: str, real: Address) -> None:
    """Whatever a client sends as `X-Forwarded-For`, it is counted as the address that the proxy saw."""
    outside(real)
    assert counted([f"{sent}, {real}"]) == counted([sent, str(real)]) == counted([str(real)])


@given(lines, addresses)
@example('for=198.51.100.7;by="', IPv4Address(CLIENT))
@example('for="', IPv6Address("2001:db8::1"))
def test_a_client_cannot_choose_an_address_by_forwarded(sent: str, real: Address) -> None:
    """Whatever it sends before the proxy's own element, it is counted as itself or as the proxy."""
    outside(real)
    itself = counted([str(real)])
    assert counted(forwarded=[f"{sent}, for={element(real)}"]) in (itself, PROXY)
    assert counted(forwarded=[sent, f"for={element(real)}"]) == itself


@given(st.lists(lines, max_size=4), st.lists(lines, max_size=4), lines)
def test_no_text_makes_it_fail(listed: list[str], forwarded: list[str], peer: str) -> None:
    """Headers hold anything."""
    assert isinstance(client_address(peer, listed, forwarded, PROXIES), str)


@given(addresses, addresses)
def test_two_headers_that_disagree_name_nobody(first: Address, second: Address) -> None:
    """One of the two may be the client's own words, so the proxy counts, unless both say the same."""
    outside(first)
    outside(second)
    is_same = first == second
    told = counted([str(first)], [f"for={element(second)}"])
    assert told == (counted([str(first)]) if is_same else PROXY)


@given(st.ip_addresses(v=6), st.integers(0, 2**64 - 1))
def test_addresses_of_one_network_are_one_client(address: IPv6Address, other: int) -> None:
    """Whoever has a /64 has 2^64 addresses, and is counted once."""
    outside(address)
    neighbour = IPv6Network((address, 64), strict=False)[other]
    outside(neighbour)
    assert counted([str(address)]) == counted([str(neighbour)])


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_the_same_in_every_dress(address: IPv4Address) -> None:
    """Plain, with a port, mapped into IPv6."""
    for text in (f"{address}", f"{address}:1", f"::ffff:{address}", f"[::ffff:{address}]", f" {address}\t"):
        assert parse_address(text) == address


def test_an_endless_chain_of_proxies_is_not_followed() -> None:
    """What a client sends in the name of proxies costs no more than a few steps."""
    chain = ", ".join([CLIENT, *["10.0.0.3"] * HOPS_MAX])
    assert counted([chain]) == "10.0.0.3"


@pytest.mark.parametrize(
    "text", ["10.0.0.2/8", "chat.example", "", "10.0.0.0/33", "0.0.0.0/0", "::/0", "::ffff:0:0/96"]
)
def test_a_proxy_is_an_address_or_a_network(text: str) -> None:
    """A mistyped network does not silently trust a larger one, and nobody trusts everybody."""
    with pytest.raises(ValueError, match=r"no address and no network|every address"):
        parse_networks((text,))


def test_a_mapped_network_is_one_of_ipv4() -> None:
    """Clients of it come as IPv4."""
    assert parse_networks(("::ffff:10.0.0.0/104",)) == parse_networks(("10.0.0.0/8",))
