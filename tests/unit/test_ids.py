"""Ids ascend, are unique, say what they name and survive the way to bytes and back."""

import secrets
import uuid
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley import ids
from parley.ids import Ids, client_key, message_key, ulid, ulid_to_bytes

TIMES_MS = st.integers(0, 2**48 - 1)
CHANCES = st.integers(0, 2**80 - 1)


@given(TIMES_MS, CHANCES)
def test_a_ulid_holds_its_time_and_chance(now_ms: int, chance: int) -> None:
    """The 16 bytes behind a ULID are 48 bits of time and 80 of chance."""
    assert ulid_to_bytes(ulid(now_ms, chance)) == (now_ms << 80 | chance).to_bytes(16, "big")


def test_a_ulid_is_written_as_others_write_it() -> None:
    """The example of the ULID specification's time part comes out right."""
    assert ulid(1_469_918_176_385, 0)[:10] == "01ARYZ6S41"


@given(st.lists(TIMES_MS, min_size=2, max_size=2, unique=True), CHANCES, CHANCES)
def test_ulids_sort_by_time(times_ms: list[int], one: int, other: int) -> None:
    """The later of two times has the greater text, whatever chance says."""
    earlier, later = sorted(times_ms)
    assert ulid(earlier, one) < ulid(later, other)


@given(st.lists(st.integers(-1_000, 1_000), min_size=1, max_size=50), st.integers(0, 2**32))
def test_ids_of_one_maker_ascend(steps_ms: list[int], seed: int) -> None:
    """Each id is greater than the one before, even when the clock stands still or steps back."""
    maker, now_ms, made = Ids(Random(seed).getrandbits), 1_700_000_000_000, []
    for step_ms in steps_ms:
        now_ms += step_ms
        made.append(maker.next(ids.MESSAGE, now_ms))
    assert made == sorted(set(made))


def test_ids_of_many_makers_differ() -> None:
    """Makers that start in the same millisecond do not meet."""
    made = [Ids(secrets.randbits).next(ids.USER, 1_700_000_000_000) for _ in range(1_000)]
    assert len(set(made)) == 1_000


def test_ids_ascend_across_the_end_of_chance() -> None:
    """When chance drew its greatest number, the next id moves on to the next millisecond."""
    maker = Ids(lambda bits: 2**bits - 1)
    first, second = (maker.next(ids.MESSAGE, 1_000) for _ in range(2))
    assert first < second


@given(TIMES_MS, CHANCES)
def test_a_message_id_survives_the_way_to_its_key(now_ms: int, chance: int) -> None:
    """A message id has the key of its ULID."""
    assert message_key(ids.MESSAGE + ulid(now_ms, chance)) == (now_ms << 80 | chance).to_bytes(16, "big")


@pytest.mark.parametrize(
    "text", ["", "msg_", "msg_short", "chat_" + "0" * 26, "0" * 26, "msg_" + "I" * 26, "msg_" + "é" * 26]
)
def test_what_is_no_message_id_has_no_key(text: str) -> None:
    """Text that no maker of ours made has no key, and looking causes no error."""
    assert message_key(text) is None


@given(st.uuids(version=4))
def test_a_uuid4_is_a_client_id_in_any_letter_case(value: uuid.UUID) -> None:
    """Capitals, small letters and a mixture have the same 16 bytes."""
    assert client_key(str(value)) == client_key(str(value).upper()) == value.bytes


@given(st.uuids(version=1) | st.uuids(version=3) | st.uuids(version=5))
def test_other_uuids_are_no_client_ids(value: uuid.UUID) -> None:
    """A UUID of another version is refused: its maker may not be unique."""
    assert client_key(str(value)) is None


@given(st.text(max_size=40))
def test_arbitrary_text_is_no_client_id(text: str) -> None:
    """Any text is taken or refused without an error."""
    key = client_key(text)
    assert key is None or len(key) == 16


@pytest.mark.parametrize(
    "text",
    [
        "550e8400e29b41d4a716446655440000",
        "{550e8400-e29b-41d4-a716-446655440000}",
        "550e8400-e29b-41d4-a716-44665544000",
        "550e8400-e29b-41d4-a716-44665544000 ",
        "550e8400-e29b-41d4-a716-44665544000g",
        "550e8400-e29b-41d4-c716-446655440000",
        " 50e8400-e29b-41d4-a716-446655440000",
        "55 e84 0-e29b-41d4-a716-446655440000",
        "٥50e8400-e29b-41d4-a716-446655440000",
    ],
)
def test_a_client_id_has_one_form(text: str) -> None:
    """Braces, missing hyphens, spaces and foreign digits are refused."""
    assert client_key(text) is None
