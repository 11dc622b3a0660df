"""The nginx sample of docs/expose.md lets through what the server and the SDK need."""

import re
from pathlib import Path

from parley.client.files import RANGE_PARTS
from parley.wire.limits import (
    ATTACHMENT_PART_BYTES,
    BODY_BYTES_MAX,
    IDLE_SECONDS_MAX,
    MIB,
    REQUEST_LINE_BYTES_MAX,
)

PAGE = Path(__file__).parents[3] / "docs" / "expose.md"
SAMPLE = PAGE.read_text(encoding="utf-8").partition("```nginx\n")[2].partition("```")[0]
UNITS = {"k": 1024, "m": MIB, "s": 1}


def value_of(directive: str) -> int:
    """The last number of a directive, in bytes or seconds."""
    found = re.search(rf"^\s*{directive} (?:\S+ )*(\d+)([kms]);$", SAMPLE, re.MULTILINE)
    assert found is not None, f"the sample says nothing of {directive}"
    return int(found[1]) * UNITS[found[2]]


def test_the_proxy_takes_what_is_uploaded() -> None:
    """As many parts as the SDK sends with one request, and every other body."""
    assert value_of("client_max_body_size") >= max(RANGE_PARTS * ATTACHMENT_PART_BYTES, BODY_BYTES_MAX)
    assert "proxy_request_buffering off;" in SAMPLE


def test_the_page_names_the_sizes() -> None:
    """What the page says in words is what the code sends."""
    text = PAGE.read_text(encoding="utf-8")
    assert f"**Bodies of {RANGE_PARTS * ATTACHMENT_PART_BYTES // MIB} MiB.**" in text
    assert f"in parts of {ATTACHMENT_PART_BYTES // MIB} MiB" in text
    assert f"send {RANGE_PARTS} of them with one request" in text
    assert f"Request lines of {REQUEST_LINE_BYTES_MAX // 1024} KiB" in text


def test_the_proxy_waits_as_long_as_the_server() -> None:
    """A WebSocket that is silent for as long as the server allows is not cut off before."""
    assert value_of("proxy_read_timeout") > IDLE_SECONDS_MAX
    assert value_of("proxy_send_timeout") > IDLE_SECONDS_MAX


def test_the_proxy_passes_websockets_and_long_addresses() -> None:
    """The headers of the upgrade, the host that origins are compared with, and long request lines."""
    for header in ("Upgrade $http_upgrade", "Connection $connection_upgrade", "Host $http_host"):
        assert f"proxy_set_header {header};" in SAMPLE
    assert "proxy_http_version 1.1;" in SAMPLE
    assert value_of("large_client_header_buffers") >= REQUEST_LINE_BYTES_MAX
