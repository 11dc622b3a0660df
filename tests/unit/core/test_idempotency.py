"""The id that stands for an `Idempotency-Key`."""

from msgspec.structs import replace

from parley import ids
from parley.core.idempotency import MS_PER_DAY, IdempotencySecret, client_id_of, earlier_client_id_of

SECRET = IdempotencySecret(bytes(32), 1_000)


def test_the_id_of_a_key_needs_the_secret() -> None:
    """Another secret, sender, chat or key gives another id; each is a client's id that a log takes."""
    other = replace(SECRET, secret=bytes([1]) * 32)
    asked = [
        ("k", "user_1", "chat_1", SECRET),
        ("k", "user_1", "chat_1", other),
        ("k", "user_2", "chat_1", SECRET),
        ("k", "user_1", "chat_2", SECRET),
        ("K", "user_1", "chat_1", SECRET),
    ]
    made = [client_id_of(*one) for one in asked] + [earlier_client_id_of("k", "user_1", "chat_1")]
    assert len(set(made)) == len(made)
    assert None not in map(ids.client_key, made)
    assert client_id_of(*asked[0]) == made[0]


def test_earlier_ids_are_met_for_a_week_and_a_day() -> None:
    """After that no key of an earlier version counts any more."""
    until_ms = SECRET.since_ms + 8 * MS_PER_DAY
    assert SECRET.may_meet_earlier_ids(until_ms - 1)
    assert not SECRET.may_meet_earlier_ids(until_ms)


def test_a_secret_is_read_as_it_was_written() -> None:
    """All nodes read what the first one wrote."""
    assert IdempotencySecret.parse(str(SECRET)) == SECRET
