"""What may be done with a file when; its name and its type."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from parley.core.attachments import (
    INERT_TYPES,
    MARGIN_MS,
    OCTETS,
    SETTLE_MS,
    AttachmentState,
    Found,
    clean_name,
    clean_type,
    decide_sweep,
    may_claim,
    next_part,
    seen_type,
    served_type,
)
from parley.wire.limits import ATTACHMENT_PART_BYTES
from tests.contracts.attachments import new_attachment

STATES = AttachmentState
UNUSED_MS = 10_000_000
KEY = b"k" * 16


@given(st.text(max_size=300))
def test_a_clean_name_is_one_part_of_a_path(name: str) -> None:
    """Whatever it was; it is clean already then."""
    cleaned = clean_name(name)
    assert not set(cleaned) & set('/\\\r\n\0"')
    assert cleaned not in (".", "..")
    assert clean_name(cleaned) == cleaned
    assert bool(cleaned) == (0 < len(name) <= 255)


def test_a_name_keeps_what_is_harmless() -> None:
    """Letters of every script; control characters and those that turn text around go."""
    assert clean_name("Müller ✓ 日本.tar.gz") == "Müller ✓ 日本.tar.gz"
    assert clean_name("a\u202egpj.exe") == "agpj.exe"
    assert clean_name("../../etc/passwd") == "_.._etc_passwd"


@given(st.text(max_size=200))
def test_no_type_makes_a_browser_run_a_file(content_type: str) -> None:
    """What is served is one of a few types."""
    assert served_type(clean_type(content_type)) in {OCTETS, *INERT_TYPES}


def test_a_type_must_be_what_it_says() -> None:
    """If a browser would show it; other types are only what somebody said."""
    assert seen_type("image/png", "PNG", b"") == "image/png"
    assert seen_type("image/png", "GIF", b"") == OCTETS
    assert seen_type("image/png", None, b"<html>") == OCTETS
    assert seen_type("video/mp4", None, b"\0\0\0\x20ftyp") == "video/mp4"
    assert seen_type("video/mp4", None, b"<html>") == OCTETS
    assert seen_type("text/html", None, b"<html>") == "text/html"


@pytest.mark.parametrize(
    ("state", "age_ms", "found", "wanted"),
    [
        (STATES.UPLOADING, MARGIN_MS, Found.UNKNOWN, None),
        (STATES.UPLOADING, MARGIN_MS + 1, Found.UNKNOWN, STATES.REMOVING),
        (STATES.COMPLETE, UNUSED_MS, Found.UNKNOWN, None),
        (STATES.COMPLETE, UNUSED_MS + 1, Found.UNKNOWN, STATES.REMOVING),
        (STATES.CLAIMED, SETTLE_MS, Found.HERE, None),
        (STATES.CLAIMED, SETTLE_MS + 1, Found.HERE, STATES.ATTACHED),
        (STATES.CLAIMED, SETTLE_MS + 1, Found.WITHOUT, STATES.REMOVING),
        (STATES.CLAIMED, SETTLE_MS + 1, Found.UNKNOWN, None),
        (STATES.CLAIMED, UNUSED_MS + 1, Found.UNKNOWN, STATES.REMOVING),
        (STATES.ATTACHED, UNUSED_MS * 100, Found.UNKNOWN, None),
        (STATES.REMOVING, SETTLE_MS, Found.UNKNOWN, None),
        (STATES.REMOVING, SETTLE_MS + 1, Found.HERE, STATES.ATTACHED),
        (STATES.REMOVING, SETTLE_MS + 1, Found.WITHOUT, UNSET),
        (STATES.REMOVING, SETTLE_MS + 1, Found.UNKNOWN, UNSET),
    ],
)
def test_what_the_sweep_does(state: STATES, age_ms: int, found: Found, wanted: object) -> None:
    """Nothing before its time; never anything to a file that a message has."""
    file = new_attachment(state=state, since_ms=0, upload_until_ms=0)
    assert decide_sweep(file, found, age_ms, UNUSED_MS) is wanted


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({}, True),
        ({"chat_id": "chat_2"}, False),
        ({"user_id": "user_2"}, False),
        ({"state": STATES.UPLOADING}, False),
        ({"state": STATES.REMOVING, "client_key": KEY}, False),
        ({"state": STATES.CLAIMED, "client_key": KEY}, True),
        ({"state": STATES.ATTACHED, "client_key": KEY}, True),
        ({"state": STATES.CLAIMED, "client_key": b"o" * 16}, False),
        ({"state": STATES.ATTACHED, "client_key": b"o" * 16}, False),
    ],
)
def test_who_may_send_a_file(changed: dict[str, Any], wanted: bool) -> None:
    """Its owner, in its chat, when it is complete; with another message than the first it is not."""
    assert may_claim(new_attachment(**changed), "chat_1", "user_1", KEY) is wanted
    assert not may_claim(None, "chat_1", "user_1", KEY)


def test_an_upload_goes_on_after_the_last_whole_part() -> None:
    """A hole, or a part of another size, ends what counts."""
    file = new_attachment(size=2 * ATTACHMENT_PART_BYTES + 1)
    whole = ATTACHMENT_PART_BYTES
    assert next_part(file, []) == 0
    assert next_part(file, [(0, whole), (2, 1)]) == 1
    assert next_part(file, [(0, whole), (1, whole - 1), (2, 1)]) == 1
    assert next_part(file, [(0, whole), (1, whole), (2, 1)]) == 3
