"""Which damage is logged, counted, and keeps a server from being ready."""

from parley.core.damage import ELSEWHERE, LINE_SECONDS, PLACES_MAX, DamageRecord


def test_a_place_is_logged_once_in_a_while() -> None:
    """However often it is met; another place is logged at once."""
    record = DamageRecord()
    assert [record.met("chat_a", now) for now in (10.0, 11.0, 10.0 + LINE_SECONDS)] == [True, False, True]
    assert record.met("chat_b", 12.0)
    assert record.count == 2


def test_a_write_that_met_damage_stops_readiness_for_its_time() -> None:
    """The longest time counts, and reads stop nothing."""
    record = DamageRecord()
    record.met("chat_a", 10.0)
    assert not record.stops_writes(10.0)
    record.stop_writes(10.0, 300.0)
    record.stop_writes(20.0, 1.0)
    assert (record.stops_writes(309.0), record.stops_writes(310.0)) == (True, False)


def test_the_memory_of_damage_is_bounded() -> None:
    """A thousand places and one for all others."""
    record = DamageRecord()
    for number in range(PLACES_MAX + 5):
        record.met(f"chat_{number}", 10.0)
    assert record.count == PLACES_MAX + 1
    assert not record.met(ELSEWHERE, 11.0)
