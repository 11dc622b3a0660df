"""The checker lets good histories pass and names the rule of each broken one."""

import time
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.events import (
    Acknowledged,
    AnyEvent,
    CursorMoved,
    EntrySeen,
    Paged,
    Requested,
    Resumed,
    SendRejected,
    Sent,
    Stored,
    StoredVoid,
    StoreRead,
    VoidSeen,
)
from tests.harness.history import History, HistoryBreach, Rule, check
from tests.unit.harness.histories import BREAKERS, good_history

SEEDS = st.integers(0, 2**32)


def rules_breached(*events: AnyEvent) -> set[Rule]:
    return {breach.rule for breach in check(History(list(events)))}


def sent(number: int, sender_id: str = "ann", device_id: str = "phone", content: str = "hi") -> Sent:
    return Sent(
        chat_id="c",
        sender_id=sender_id,
        device_id=device_id,
        client_message_id=f"id{number}",
        content=content,
    )


def acknowledged(number: int, sequence: int, message_id: str | None = None) -> Acknowledged:
    return Acknowledged(
        chat_id="c",
        sender_id="ann",
        client_message_id=f"id{number}",
        message_id=message_id or f"msg{number}",
        sequence=sequence,
    )


def seen(number: int, sequence: int, reader: str = "r") -> EntrySeen:
    return EntrySeen(
        chat_id="c",
        reader=reader,
        sequence=sequence,
        message_id=f"msg{number}",
        client_message_id=f"id{number}",
        content="hi",
    )


def stored(number: int, sequence: int, sender_id: str = "ann") -> Stored:
    return Stored(
        chat_id="c",
        sequence=sequence,
        message_id=f"msg{number}",
        sender_id=sender_id,
        client_message_id=f"id{number}",
        content="hi",
    )


def refused(number: int, sender_id: str = "ann", temporary: bool = False) -> SendRejected:
    return SendRejected(
        chat_id="c", sender_id=sender_id, client_message_id=f"id{number}", code="code", temporary=temporary
    )


@given(SEEDS)
def test_a_good_history_passes(seed: int) -> None:
    """Whatever a server that keeps its promise does, no rule is breached."""
    assert check(History(good_history(Random(seed)))) == []


@pytest.mark.parametrize("rule", BREAKERS, ids=lambda rule: rule.name.lower())
@given(seed=SEEDS)
def test_a_random_breach_is_caught_as_what_it_is(rule: Rule, seed: int) -> None:
    """A good history that is broken in one way breaches that rule and no other."""
    random = Random(seed)
    broken = BREAKERS[rule](good_history(random), random)
    assert rules_breached(*broken) == {rule}


def test_every_rule_has_a_way_to_break_it() -> None:
    """No rule is left without a history that shows it can fail."""
    assert set(BREAKERS) == set(Rule)


def test_acks_that_disagree_breach_one_position_per_id() -> None:
    """Two acks of one id that name different positions are caught without reading the store."""
    assert rules_breached(acknowledged(1, 1), acknowledged(1, 2, "msg9")) == {Rule.ONE_POSITION_PER_ID}


def test_acks_that_name_two_message_ids_breach_one_position_per_id() -> None:
    """Two acks of one id at one position with different message ids are caught."""
    breaches = rules_breached(acknowledged(1, 1), acknowledged(1, 1, "msg_other"))
    assert breaches == {Rule.ONE_POSITION_PER_ID}


def test_a_client_id_matches_in_any_letter_case() -> None:
    """The same id in capitals at another position is the same message twice."""
    shouted = Acknowledged(chat_id="c", sender_id="ann", client_message_id="ID1", message_id="m", sequence=2)
    assert rules_breached(acknowledged(1, 1), shouted) == {Rule.ONE_POSITION_PER_ID}


def test_an_ack_that_readers_contradict_is_caught_without_the_store() -> None:
    """A reader who saw another message at an acknowledged position is evidence enough."""
    assert rules_breached(acknowledged(1, 1), seen(2, 1)) == {Rule.ACKNOWLEDGED_IS_STORED}


def test_a_jump_of_a_live_reader_is_caught() -> None:
    """A reader that is given 3 after 1 was led over 2."""
    assert rules_breached(seen(1, 1), seen(3, 3)) == {Rule.NO_CURSOR_PAST_UNRESOLVED}


def test_a_void_fills_a_run() -> None:
    """A reader that is told of a void steps over it, and may get the same position again."""
    void = VoidSeen(chat_id="c", reader="r", sequence=2)
    assert rules_breached(seen(1, 1), void, seen(3, 3), void, seen(3, 3)) == set()


def test_a_cursor_beyond_what_was_read_is_caught() -> None:
    """A reader that has 1 and acknowledges 2 has stepped over a position."""
    moved = CursorMoved(chat_id="c", reader="r", sequence=2)
    assert rules_breached(seen(1, 1), moved) == {Rule.NO_CURSOR_PAST_UNRESOLVED}


def test_a_page_that_begins_too_late_is_caught() -> None:
    """A page after 0 that begins at 2 has left out 1."""
    asked = Requested(chat_id="c", reader="r", after=0)
    page = Paged(chat_id="c", reader="r", to_sequence=2, head=2)
    assert rules_breached(asked, seen(2, 2), page) == {Rule.NO_CURSOR_PAST_UNRESOLVED}


def test_an_empty_page_claims_nothing() -> None:
    """A page without entries that ends where it began is fine."""
    asked = Requested(chat_id="c", reader="r", after=7)
    assert rules_breached(asked, Paged(chat_id="c", reader="r", to_sequence=7, head=7)) == set()


def test_a_reader_may_resume_elsewhere() -> None:
    """A reader that starts again after another position owes nothing for what lies between."""
    resumed = Resumed(chat_id="c", reader="r", after=9)
    assert rules_breached(seen(1, 1), resumed, seen(10, 10)) == set()


def test_a_hole_in_the_store_is_caught() -> None:
    """A log whose head lies beyond a position that is nothing is not dense."""
    events = (sent(1), stored(1, 1), sent(3), stored(3, 3), StoreRead(chat_id="c", head=3))
    assert rules_breached(*events) == {Rule.NO_CURSOR_PAST_UNRESOLVED}


def test_an_entry_beyond_the_head_is_caught() -> None:
    """A log that holds more than its head says is not what readers are told."""
    events = (sent(1), stored(1, 1), StoreRead(chat_id="c", head=0))
    assert rules_breached(*events) == {Rule.NO_CURSOR_PAST_UNRESOLVED}


def test_a_void_that_became_an_entry_is_caught() -> None:
    """A position that was declared void and later holds a message has misled a reader."""
    void = VoidSeen(chat_id="c", reader="r", sequence=1)
    events = (sent(1), void, stored(1, 1), StoreRead(chat_id="c", head=1))
    assert rules_breached(*events) == {Rule.SAME_ORDER}


def test_a_refused_message_may_be_sent_again() -> None:
    """What is sent once more after a refusal may be stored."""
    events = (sent(1), refused(1), sent(1), stored(1, 1), StoreRead(chat_id="c", head=1))
    assert rules_breached(*events) == set()


def test_a_temporary_refusal_promises_nothing() -> None:
    """What was refused for now may be stored all the same."""
    events = (sent(1), refused(1, temporary=True), stored(1, 1), StoreRead(chat_id="c", head=1))
    assert rules_breached(*events) == set()


def test_an_id_that_another_member_used_is_not_this_senders() -> None:
    """A sender refused for a taken id is not contradicted by the message that took it."""
    events = (sent(1), sent(1, "ben"), refused(1, "ben"), stored(1, 1), StoreRead(chat_id="c", head=1))
    assert rules_breached(*events) == set()


def test_two_devices_owe_each_other_no_order() -> None:
    """The order of what two devices of one person send is free."""
    events = (sent(1), sent(2, device_id="desk"), stored(2, 1), stored(1, 2), StoreRead(chat_id="c", head=2))
    assert rules_breached(*events) == set()


def test_a_message_that_nobody_sent_is_caught() -> None:
    """A stored message under an id that no client used was made up."""
    assert rules_breached(stored(1, 1), StoreRead(chat_id="c", head=1)) == {Rule.CONTENT_AS_SENT}


def test_an_entry_of_the_server_needs_no_sender() -> None:
    """An entry without a client id, such as a change of members, was sent by nobody."""
    change = Stored(
        chat_id="c", sequence=1, message_id="m", sender_id="ann", client_message_id=None, content="{}"
    )
    assert rules_breached(change, StoreRead(chat_id="c", head=1)) == set()


def test_each_breach_is_told_in_a_sentence() -> None:
    """A breach shows its rule's name, the subject and what the rule says."""
    (breach,) = check(History([acknowledged(1, 1), StoreRead(chat_id="c", head=0)]))
    assert str(breach) == (
        "ACKNOWLEDGED_IS_STORED: id1 in c was acknowledged as msg1, nothing is stored"
        " (an acknowledged message is stored at the position of its ack)"
    )


def test_a_history_survives_being_written(tmp_path: Path) -> None:
    """What is read from a file equals what was written, event by event."""
    events = [*good_history(Random(1)), StoredVoid(chat_id="c", sequence=1)]
    History(events).write(tmp_path / "history.jsonl")
    assert History.read(tmp_path / "history.jsonl").events == events


def test_checking_takes_linear_time() -> None:
    """Ten times the events cost about ten times the time, not a hundred times."""
    small, large = ([seen(n, n) for n in range(1, size)] for size in (2_000, 20_000))
    assert duration(large) < 40 * max(duration(small), 0.001)


def duration(events: list[EntrySeen]) -> float:
    started = time.process_time()
    assert check(History([*events])) == list[HistoryBreach]()
    return time.process_time() - started
