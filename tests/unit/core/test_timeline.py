"""The steps of a message, assembled from what is known of it."""

from typing import Any

import pytest
from msgspec.structs import replace

from parley.core.timeline import (
    Departure,
    ExplainedMessage,
    NodeTrace,
    RecipientFacts,
    Step,
    TimelineFacts,
    timeline_of,
)
from parley.model import AccountState, Action, StepName

SENT_MS = 1_000
MESSAGE = ExplainedMessage("msg_1", "chat_1", 5, "ann", SENT_MS)
BEN = RecipientFacts(user_id="ben", joined_sequence=0, devices={"phone": 0})
HERE = NodeTrace(node_id="one", since_ms=0, accepted_ms=990, sent_ms=1_010, devices=[("ben", "phone")])
FACTS = TimelineFacts(
    message=MESSAGE,
    recipients=[BEN],
    departures=[],
    traces=[HERE],
    silent={},
    is_published=None,
    others=[],
    more_members=0,
    asked_ms=9_000,
)


def told(**changed: Any) -> list[Step]:
    return timeline_of(replace(FACTS, **changed))


def names(steps: list[Step]) -> list[str]:
    return [step.name.value for step in steps]


def only(steps: list[Step], name: StepName) -> Step:
    (found,) = [step for step in steps if step.name is name]
    return found


def test_the_steps_are_in_the_order_of_their_times() -> None:
    """Those of the same time are in the order in which they happen."""
    ben = replace(
        BEN, delivered_up_to=5, delivered_ms=2_000, read_up_to=5, read_ms=2_000, devices={"phone": 5}
    )
    steps = told(recipients=[ben], others=[Step(1_500, StepName.PUSHED)])
    assert names(steps) == [
        "accepted",
        "stored",
        "published",
        "routed",
        "sent",
        "pushed",
        "acknowledged",
        "read",
    ]


def test_accepted_is_never_after_stored() -> None:
    """The times come from two clocks."""
    steps = told(traces=[replace(HERE, accepted_ms=SENT_MS + 7)])
    assert only(steps, StepName.ACCEPTED).at_ms == SENT_MS


def test_a_position_beyond_the_message_has_only_the_latest_possible_time() -> None:
    """A person who is further has it since this time or before, and the step says so."""
    exact = replace(BEN, delivered_up_to=5, delivered_ms=2_000, devices={"phone": 5})
    later = replace(exact, delivered_up_to=8, devices={"phone": 8})
    assert only(told(recipients=[exact]), StepName.ACKNOWLEDGED).detail == ""
    assert only(told(recipients=[later]), StepName.ACKNOWLEDGED).detail == "up to 8: this time or before"


def test_a_device_that_has_gone_leaves_what_its_owner_acknowledged() -> None:
    """The person has it, though none of the devices that are left does."""
    ben = replace(BEN, delivered_up_to=5, delivered_ms=2_000, devices={"new": 0})
    steps = told(recipients=[ben])
    assert only(steps, StepName.ACKNOWLEDGED).device_id == ""
    assert only(steps, StepName.SKIPPED).device_id == "new"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"devices": {}}, "is logged in on no device"),
        (
            {"devices": {"laptop": 4}},
            "was not connected; is at position 4 and reads the rest when it connects",
        ),
        ({"joined_sequence": 5}, "joined at 5, not before it"),
        ({"muted_until_ms": SENT_MS + 1}, "the chat was muted: no push"),
        ({"has_blocked": True}, "has blocked the sender: no push"),
        ({"state": AccountState.DISABLED}, "the account is disabled"),
    ],
)
def test_why_a_member_is_skipped(changed: dict[str, Any], why: str) -> None:
    """One reason, one step."""
    step = only(told(recipients=[replace(BEN, **changed)]), StepName.SKIPPED)
    assert (step.user_id, step.detail) == ("ben", why)


def test_a_mute_that_had_ended_is_no_reason() -> None:
    """It counts what held when the message was stored."""
    steps = told(recipients=[replace(BEN, muted_until_ms=SENT_MS)])
    assert "skipped" not in names(steps)


def test_the_sender_is_not_skipped() -> None:
    """Their other devices are sent the message; that they wait for it is no news."""
    ann = RecipientFacts(user_id="ann", joined_sequence=0, devices={"phone": 4})
    assert "skipped" not in names(told(recipients=[ann], traces=[HERE]))


def test_who_joined_later_was_not_sent_it() -> None:
    """A node names everybody who was connected then; only members were sent it."""
    assert "sent" not in names(told(recipients=[replace(BEN, joined_sequence=6)]))


def test_who_left_later_was_sent_it() -> None:
    """They were members then."""
    gone = Departure("ben", Action.LEFT, 6, 3_000)
    steps = told(recipients=[], departures=[gone])
    assert only(steps, StepName.SENT).user_id == "ben"
    assert only(steps, StepName.SKIPPED).detail == "left after it, at 6"


def test_who_was_removed_before_was_not_sent_it() -> None:
    """Though they were connected."""
    steps = told(recipients=[], departures=[Departure("ben", Action.REMOVED, 4, 500)])
    assert "sent" not in names(steps)
    assert only(steps, StepName.SKIPPED).detail == "removed before it, at 4"


def test_who_is_back_has_not_left() -> None:
    """A departure before one joined again is no reason."""
    steps = told(departures=[Departure("ben", Action.LEFT, 3, 500)])
    assert "skipped" not in names(steps)


@pytest.mark.parametrize(
    "changed",
    [
        {"traces": []},
        {"traces": [NodeTrace(node_id="one", since_ms=SENT_MS + 1)]},
        {"traces": [NodeTrace(node_id="one", since_ms=0)], "silent": {"two": "it is away"}},
    ],
)
def test_what_is_forgotten_is_not_guessed(changed: dict[str, Any]) -> None:
    """A node that started later, or does not answer, may have sent it."""
    steps = [step for step in told(**changed) if step.user_id == "ben"]
    assert only(steps, StepName.SKIPPED).detail == "is at position 0; no node remembers whether it was sent"


def test_a_node_that_does_not_answer_is_named() -> None:
    """With the reason."""
    step = only(told(silent={"two": "it is away"}), StepName.SKIPPED)
    assert (step.node, step.detail) == ("two", "did not say what it sent: it is away")


@pytest.mark.parametrize(
    ("is_published", "trace", "expected"),
    [
        (True, {"published_ms": 1_005}, ("published", 1_005, "")),
        (False, {"published_ms": 1_005}, ("published", 1_005, "")),
        (
            True,
            {"published_ms": 1_005, "is_published_then": False},
            ("published", 1_005, "this time or before"),
        ),
        (True, {}, ("published", SENT_MS, "it is on the bus; no node remembers since when")),
        (False, {}, ("skipped", 9_000, "it is not on the bus yet; the outbox has it")),
    ],
)
def test_whether_it_is_on_the_bus(
    is_published: bool, trace: dict[str, Any], expected: tuple[str, int, str]
) -> None:
    """The mark says whether, the node that did it says when; a mark may be behind, never ahead."""
    steps = told(is_published=is_published, traces=[replace(HERE, **trace)])
    found = [step for step in steps if step.name in (StepName.PUBLISHED, StepName.SKIPPED)]
    assert [(step.name.value, step.at_ms, step.detail) for step in found] == [expected]


def test_members_beyond_the_limit_are_counted() -> None:
    """So that nobody takes the list for complete."""
    assert only(told(more_members=9), StepName.SKIPPED).detail.startswith("9 more members")
