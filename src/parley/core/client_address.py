"""Which client a request comes from, as far as known proxies say so in their forwarding headers.

Every proxy appends the address that it got a request from. A client may send the header itself, so only the
end of the list can be believed: the part that known proxies wrote. It is read from the right, and the first
address that is no known proxy is the client. When a known proxy does not name an address (`unknown`, an
obfuscated identifier, nonsense), the proxy itself counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

HOPS_MAX = 16
"""A longer chain of known proxies is not followed: a client could send one to cost time."""
IPV6_CLIENT_BITS = 64
"""One customer gets at least this network, and may take any address in it."""
MAPPED_BITS = 96
"""The part of an IPv4-mapped IPv6 address before the IPv4 address."""

BRACKETED = re.compile(r"\[([^\]]*)\](?::(?:\d{1,5}|_[\w.-]+))?", re.ASCII)
WITH_PORT = re.compile(r"([^:\[\]]+):(?:\d{1,5}|_[\w.-]+)", re.ASCII)
PAIR = re.compile(r"""[ \t]*([\w!#$%&'*+.^`|~-]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s",;]+))[ \t]*""", re.ASCII)
"""A pair of `Forwarded` (RFC 7239, section 4). Addresses with a port are also taken without quotes."""

LOOPBACK: tuple[Network, ...] = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))


def client_address(
    peer: str, x_forwarded_for: Sequence[str], forwarded: Sequence[str], proxies: Sequence[Network]
) -> str:
    """What the client of a request is counted as: an IPv4 address, or the /64 network of an IPv6 address.

    `x_forwarded_for` and `forwarded` are the lines of these headers, `peer` is who connected. A proxy writes
    one of the two headers and may pass on the other as the client sent it. So when they name different
    clients, neither is believed, and the proxy counts.
    """
    address = parse_address(peer)
    if address is None:
        return peer
    chains = [(x_forwarded_for, _listed), (forwarded, _forwarded)]
    named = {_walk(address, read(lines), proxies) for lines, read in chains if lines}
    return _counted(named.pop() if len(named) == 1 else address)


def _walk(address: Address, hops: Iterator[str], proxies: Sequence[Network]) -> Address:
    """From the peer towards the client, for as long as a known proxy says where the request came from."""
    for _, hop in zip(range(HOPS_MAX), hops, strict=False):
        named = parse_address(hop) if is_in(address, proxies) else None
        if named is None:
            break
        address = named
    return address


def _counted(address: Address) -> str:
    if isinstance(address, IPv4Address):
        return str(address)
    return str(IPv6Network((address, IPV6_CLIENT_BITS), strict=False))


def is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)


# Headers, read from the right


def _listed(lines: Sequence[str]) -> Iterator[str]:
    for line in reversed(lines):
        yield from reversed(line.split(","))


def _forwarded(lines: Sequence[str]) -> Iterator[str]:
    for line in reversed(lines):
        yield from reversed(_elements(line))


def _elements(line: str) -> list[str]:
    """Who each element of a line is `for`; empty where it does not say. A malformed line says nothing.

    Nothing in it can be believed then: a quote that the client left open could hide what the proxy appended.
    """
    found: list[str] = []
    at, pairs = 0, dict[str, str]()
    while pair := PAIR.match(line, at):
        name, quoted, plain = pair.group(1).lower(), pair.group(2), pair.group(3)
        if name in pairs:
            return [""]
        pairs[name] = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        at = pair.end()
        separator = line[at : at + 1]
        if separator != ";":
            found.append(pairs.get("for", ""))
            pairs = {}
        if not separator:
            return found
        if separator not in ",;":
            return [""]
        at += 1
    return [""]


# Addresses and networks as text


def parse_address(text: str) -> Address | None:
    """An address, with or without brackets and port; IPv4-mapped IPv6 is IPv4. None if it is none."""
    text = text.strip(" \t")
    if found := BRACKETED.fullmatch(text) or WITH_PORT.fullmatch(text):
        text = found[1]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


@lru_cache(maxsize=64)
def parse_networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    """Addresses and networks (CIDR). ValueError names the first that is neither, or that is everybody."""
    return tuple(map(_network, texts))


def _network(text: str) -> Network:
    try:
        network = ip_network(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no address and no network: {error}") from error
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    if mapped is not None and network.prefixlen >= MAPPED_BITS:
        network = IPv4Network((mapped, network.prefixlen - MAPPED_BITS))
    if network.prefixlen == 0:
        raise ValueError(f"{text!r} is every address: every client could choose what it is counted as")
    return network
