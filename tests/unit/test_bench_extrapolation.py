"""The bill of docs/scaling.md is what its arithmetic gives."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from bench.extrapolate import AS_BUILT, MILLION, TEN_MILLION, Load, Prices, bill, first_quota, table

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"


def lines_of(load: Load) -> dict[str, float]:
    return {line.what: line.dollars for line in bill(load, Prices())}


def test_the_page_shows_what_the_arithmetic_gives() -> None:
    """Whoever changes an assumption, a measurement or a price also changes the page."""
    assert table(AS_BUILT, TEN_MILLION, Prices()) in PAGE.read_text(encoding="utf-8")


def test_a_read_of_everybody_every_half_minute_is_reckoned_by_hand() -> None:
    """A million reads per 30 s are 86,400 million a month, at half an eighth of a dollar for each million."""
    assert lines_of(AS_BUILT)["sessions read by heartbeats"] == pytest.approx(86_400 * 0.125 / 2)


def test_a_million_people_cost_what_was_aimed_at() -> None:
    """At most 20,000 dollars a month, and no quota of a table below two million people."""
    assert sum(lines_of(AS_BUILT).values()) <= 20_000
    assert first_quota(AS_BUILT) >= 2 * MILLION


def test_a_message_alone_costs_six_units_and_one_of_many_hardly_more_than_its_key() -> None:
    """The key once, outside the transaction, and twice its shares of the entries and of the head."""
    full = Load(replace(AS_BUILT.assumed, messages_per_transaction=49), AS_BUILT.measured)
    assert AS_BUILT.append_units == 6
    assert full.append_units == pytest.approx(1 + 2 * (12 + 1) / 49)


def test_gateways_grow_with_people_and_no_faster() -> None:
    """Ten times the people need ten times the gateways: none hears what is not for its own clients."""
    assert TEN_MILLION.gateways == pytest.approx(10 * AS_BUILT.gateways)
