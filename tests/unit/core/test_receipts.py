"""What became of a message, from how far members are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.core.receipts import receipts_of
from parley.model import DeliveryStatus, MemberCursor, ReadReceipts, SeenBy

SENDER = "sender"
FULL, SIMPLE, NONE = ReadReceipts.FULL, ReadReceipts.SIMPLE, ReadReceipts.NONE


def mark(user_id: str, delivered: int = 0, read: int = 0, joined: int = 0) -> MemberCursor:
    delivered = max(delivered, read)
    return MemberCursor(user_id, joined, delivered, f"d{delivered}", read, f"r{read}")


def everybody(_: MemberCursor) -> bool:
    return True


def status(*marks: MemberCursor, mode: ReadReceipts = FULL, sequence: int = 5) -> DeliveryStatus:
    return receipts_of(sequence, SENDER, marks, mode, everybody, everybody).status


def test_a_message_is_sent_then_delivered_then_read() -> None:
    """Each status needs everybody it was for."""
    assert status(mark("a"), mark("b")) is DeliveryStatus.SENT
    assert status(mark("a", delivered=5), mark("b", delivered=4)) is DeliveryStatus.SENT
    assert status(mark("a", delivered=5), mark("b", delivered=9)) is DeliveryStatus.DELIVERED
    assert status(mark("a", read=5), mark("b", delivered=9)) is DeliveryStatus.DELIVERED
    assert status(mark("a", read=5), mark("b", read=7)) is DeliveryStatus.READ


def test_the_sender_does_not_count() -> None:
    """How far the sender is says nothing of their own message."""
    assert status(mark(SENDER, read=9), mark("a")) is DeliveryStatus.SENT
    assert status(mark(SENDER), mark("a", read=5)) is DeliveryStatus.READ
    assert status(mark(SENDER, read=9)) is DeliveryStatus.SENT


def test_who_joined_later_does_not_count() -> None:
    """A member counts for what came after their own joining, not for what they read of the past."""
    marks = [mark("a", read=9), mark("late", joined=5), mark("later", joined=8, read=9)]
    found = receipts_of(5, SENDER, marks, FULL, everybody, everybody)
    assert (found.member_count, found.status) == (1, DeliveryStatus.READ)
    assert [seen.user_id for seen in found.read] == ["a"]
    assert receipts_of(6, SENDER, marks, FULL, everybody, everybody).member_count == 2


def test_modes_tell_less() -> None:
    """Simple tells that somebody read it, without a name; none tells nothing of reading."""
    marks = [mark("a", read=5), mark("b", delivered=6), mark("c", read=8)]
    full, simple, none = (receipts_of(5, SENDER, marks, mode, everybody, everybody) for mode in ReadReceipts)
    assert full.read == [SeenBy("a", "r5"), SeenBy("c", "r8")]
    assert (full.status, simple.status, none.status) == (
        DeliveryStatus.DELIVERED,
        DeliveryStatus.READ,
        DeliveryStatus.DELIVERED,
    )
    assert simple.read == [SeenBy(None, "r5")]
    assert none.read == []
    assert full.delivered == simple.delivered == none.delivered
    assert [seen.user_id for seen in full.delivered] == ["a", "b", "c"]


@pytest.mark.parametrize("mode", ReadReceipts)
def test_what_is_hidden_is_not_told(mode: ReadReceipts) -> None:
    """Members who may not be seen are in no list, and do not make a message delivered or read."""
    marks = [mark("a", read=5), mark("b", read=5)]
    found = receipts_of(5, SENDER, marks, mode, lambda one: one.user_id != "b", everybody)
    assert [seen.user_id for seen in found.delivered] == ["a"]
    assert found.status is (DeliveryStatus.READ if mode is SIMPLE else DeliveryStatus.SENT)
    unread = receipts_of(5, SENDER, marks, mode, everybody, lambda _: False)
    assert (unread.read, unread.status) == ([], DeliveryStatus.DELIVERED)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), max_size=6),
    st.integers(1, 9),
)
def test_status_agrees_with_the_lists(positions: list[tuple[int, int, int]], sequence: int) -> None:
    """A message is read by all exactly if the list of readers has everybody who counts, and so on."""
    marks = [mark(f"m{i}", delivered, read, joined) for i, (delivered, read, joined) in enumerate(positions)]
    found = receipts_of(sequence, SENDER, marks, FULL, everybody, everybody)
    readers = {seen.user_id for seen in found.read}
    assert readers <= {seen.user_id for seen in found.delivered}
    assert len(found.delivered) <= found.member_count == sum(joined < sequence for *_, joined in positions)
    everyone_read = len(readers) == found.member_count > 0
    assert (found.status is DeliveryStatus.READ) is everyone_read
