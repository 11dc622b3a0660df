"""The bill of docs/scaling.md is what its arithmetic gives."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from bench.extrapolate import AS_BUILT, CHANGED, Load, Prices, bill, table

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"


def lines_of(load: Load) -> dict[str, float]:
    return {line.what: line.dollars for line in bill(load, Prices())}


def test_the_page_shows_what_the_arithmetic_gives() -> None:
    """Whoever changes an assumption, a measurement or a price also changes the page."""
    assert table(AS_BUILT, CHANGED, Prices()) in PAGE.read_text(encoding="utf-8")


def test_a_read_of_everybody_every_half_minute_is_reckoned_by_hand() -> None:
    """A million reads per 30 s are 86,400 million a month, at an eighth of a dollar for each million."""
    assert lines_of(AS_BUILT)["sessions read by heartbeats"] == pytest.approx(86_400 * 0.125)


def test_a_message_alone_costs_six_units_and_one_of_many_hardly_more_than_its_key() -> None:
    """The key twice, and twice the shares of twelve units of entries and of the head."""
    full = Load(replace(AS_BUILT.assumed, messages_per_transaction=49), AS_BUILT.measured)
    assert AS_BUILT.append_units == 6
    assert full.append_units == pytest.approx(2 * (1 + (12 + 1) / 49))


def test_what_every_gateway_reads_makes_more_gateways_needed() -> None:
    """Five times the people need more than five times the gateways, for each hears five times as much."""
    more = Load(replace(CHANGED.assumed, people=5 * CHANGED.assumed.people), CHANGED.measured)
    assert more.gateways > 5 * CHANGED.gateways
