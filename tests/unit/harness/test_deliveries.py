"""The delivery checker lets good deliveries pass and names the rule of each breach."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tests.harness.deliveries import (
    ArrivedDelivery,
    ArrivedRing,
    DeliveryRule,
    check_deliveries,
)

LOGS = {"chat_a": ["msg_1", "msg_2", "msg_3"], "chat_b": ["msg_4"], "chat_empty": []}


def delivery(number: int, chat_id: str = "chat_a") -> ArrivedDelivery:
    return ArrivedDelivery(chat_id, f"msg_{number}", f"evt_{number}")


def ring(number: int, chat_id: str = "chat_a", *, is_silent: bool = False) -> ArrivedRing:
    return ArrivedRing("phone", chat_id, f"msg_{number}", f"evt_{number}", is_silent, f"notice of {chat_id}")


DELIVERIES = [delivery(1), delivery(4, "chat_b"), delivery(2), delivery(1), delivery(2), delivery(3)]
RINGS = [ring(1), ring(4, "chat_b"), ring(1, is_silent=True), ring(3), ring(3, is_silent=True)]


def rules_breached(
    deliveries: Sequence[ArrivedDelivery] = DELIVERIES,
    rings: Sequence[ArrivedRing] = RINGS,
    given_up: Sequence[str] = (),
) -> set[DeliveryRule]:
    return {breach.rule for breach in check_deliveries(LOGS, deliveries, {"phone": rings}, given_up)}


def test_repetitions_and_collapsed_rings_break_nothing() -> None:
    """What came is at least once, in order by first sight, and sounds once."""
    assert rules_breached() == set()


BROKEN_DELIVERIES = {
    "a missing one": (DELIVERIES[:-1], {DeliveryRule.ALL_DELIVERED}),
    "an overtaken one": (
        [delivery(1), delivery(4, "chat_b"), delivery(3), delivery(2)],
        {DeliveryRule.DELIVERED_IN_ORDER},
    ),
    "one that is not stored": ([*DELIVERIES, delivery(5)], {DeliveryRule.NOTHING_UNKNOWN}),
    "one of another chat": ([*DELIVERIES, delivery(4, "chat_a")], {DeliveryRule.NOTHING_UNKNOWN}),
    "another id": (
        [*DELIVERIES, replace(delivery(3), event_id="evt_9")],
        {DeliveryRule.ONE_EVENT_ID},
    ),
}


@pytest.mark.parametrize(("deliveries", "rules"), BROKEN_DELIVERIES.values(), ids=BROKEN_DELIVERIES)
def test_a_broken_delivery_is_named(deliveries: list[ArrivedDelivery], rules: set[DeliveryRule]) -> None:
    """Missing, overtaken, unknown, or under another id."""
    assert rules_breached(deliveries=deliveries) == rules


BROKEN_RINGS = {
    "a second sound": ([*RINGS, ring(3)], {DeliveryRule.AUDIBLE_ONCE}),
    "a silent one, then a sound twice": (
        [ring(4, "chat_b"), ring(3, is_silent=True), ring(3), ring(3)],
        {DeliveryRule.AUDIBLE_ONCE},
    ),
    "a chat that never rang": (
        [at for at in RINGS if at.chat_id == "chat_a"],
        {DeliveryRule.NEWEST_RINGS},
    ),
    "only an older message": (RINGS[:3], {DeliveryRule.NEWEST_RINGS}),
    "an older message after a newer": ([*RINGS, ring(2)], {DeliveryRule.RINGS_IN_ORDER}),
    "one that is not stored": ([*RINGS, ring(5)], {DeliveryRule.NOTHING_UNKNOWN}),
    "a second notification": (
        [*RINGS, replace(RINGS[-1], collapse_id="another")],
        {DeliveryRule.ONE_NOTIFICATION},
    ),
    "a notification of two chats": (
        [replace(at, collapse_id="the only one") for at in RINGS],
        {DeliveryRule.ONE_NOTIFICATION},
    ),
    "an event id of two messages": (
        [*RINGS[:-2], replace(ring(3), event_id="evt_1")],
        {DeliveryRule.ONE_EVENT_ID},
    ),
}


@pytest.mark.parametrize(("rings", "rules"), BROKEN_RINGS.values(), ids=BROKEN_RINGS)
def test_a_broken_ring_is_named(rings: list[ArrivedRing], rules: set[DeliveryRule]) -> None:
    """A second sound, a chat that stays silent, or the wrong notification."""
    assert rules_breached(rings=rings) == rules


def test_dead_letters_are_not_owed() -> None:
    """What was given up may be missing, and nothing else."""
    assert rules_breached([delivery(1), delivery(2), delivery(4, "chat_b")], RINGS[:3], ["msg_3"]) == set()
    assert rules_breached([delivery(1), delivery(4, "chat_b")], given_up=["msg_3"]) == {
        DeliveryRule.ALL_DELIVERED
    }
