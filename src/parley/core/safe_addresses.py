"""Which addresses the server may connect to for others: public ones, and those that the operator allows."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv6Address, IPv6Network

from yarl import URL

from parley.core.client_address import Address, Network, is_in, parse_address

NAT64 = IPv6Network("64:ff9b::/96")
URL_CHARS_MAX = 2_000
FOR_WEBHOOKS = "webhooks.allowed_networks"
"""The setting that names what webhooks of operators may reach; people's push webhooks have another one."""


def is_safe(address: Address, allowed: Sequence[Network], *, is_plain: bool) -> bool:
    """Whether a connection may be made. `is_plain`: without TLS, which is only for allowed networks.

    What an IPv6 address carries within itself counts: of a mapped one the IPv4 address. A tunnel's address
    leads wherever its inner address says, so no tunnel is public.
    """
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if is_in(address, allowed):
        return True
    return not is_plain and _is_public(address)


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address):
        is_tunnel = address.sixtofour is not None or address.teredo is not None or address in NAT64
        is_compatible = int(address) >> 32 == 0
        if is_tunnel or is_compatible or address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def parse_url(url: str) -> URL | None:
    """As the HTTP client reads it, so that what is checked is what it connects to; None if it is none."""
    try:
        return URL(url)
    except ValueError:
        return None


def url_problem(url: str, allowed: Sequence[Network], setting: str = FOR_WEBHOOKS) -> str | None:
    """Why a webhook cannot have this address, as far as the text says it; None if it can.

    `setting`: what operators call the networks that are allowed.
    """
    parts = parse_url(url)
    if parts is None:
        return "url is not a valid address"
    host = parts.raw_host
    if len(url) > URL_CHARS_MAX or not url.isascii() or any(char.isspace() for char in url):
        return f"url must be ASCII without spaces, at most {URL_CHARS_MAX} characters"
    if parts.scheme not in ("http", "https") or not host:
        return "url must begin with https:// and name a host"
    if parts.raw_user is not None or parts.raw_password is not None or parts.raw_fragment:
        return "url must have no user, password or fragment"
    is_plain = parts.scheme == "http"
    if is_plain and not allowed:
        return f"url must be https; plain http is only for networks in {setting}"
    address = parse_address(host)
    if address is not None and not is_safe(address, allowed, is_plain=is_plain):
        return f"{host} is not a public address, and not in {setting}"
    return None
