"""Ticks, typing and presence in few letters."""

import pytest

from parley.cli.display import presence, ticks, typing
from parley.client import Member
from parley.core.receipts import MessageReceipts
from parley.model import DeliveryStatus, SeenBy

AT = "2026-03-01T09:30:00.000Z"


def receipts(status: DeliveryStatus, members: int, *read: str | None) -> MessageReceipts:
    return MessageReceipts(members, status, [], [SeenBy(user_id, AT) for user_id in read])


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (receipts(DeliveryStatus.SENT, 1), ("dim", "✓")),
        (receipts(DeliveryStatus.DELIVERED, 1), ("dim", "✓✓")),
        (receipts(DeliveryStatus.READ, 1, "user_ben"), ("read", "✓✓")),
        (receipts(DeliveryStatus.DELIVERED, 3), ("dim", "✓✓")),
        (receipts(DeliveryStatus.DELIVERED, 3, "user_ben"), ("dim", "✓✓ read by 1 of 3")),
        (receipts(DeliveryStatus.READ, 2, "user_ben", "user_cas"), ("read", "✓✓")),
        (receipts(DeliveryStatus.READ, 3, None), ("read", "✓✓")),
        (receipts(DeliveryStatus.SENT, 0), ("dim", "✓")),
    ],
)
def test_ticks_say_what_became_of_a_message(told: MessageReceipts, shown: tuple[str, str]) -> None:
    """One when it is stored, two when everybody has it, another colour when everybody has read it."""
    assert ticks(told) == shown


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ([], ""),
        (["ada"], "ada is typing…"),
        (["ada", "ben"], "ada and ben are typing…"),
        (["ada", "ben", "cas"], "ada, ben and cas are typing…"),
        (["ada", "ben", "cas", "dan"], "several people are typing…"),
    ],
)
def test_typing_is_a_sentence(names: list[str], says: str) -> None:
    """Few are named, many are not."""
    assert typing(names) == says


@pytest.mark.parametrize(
    ("status", "last_seen", "says"),
    [
        ("online", AT, "ada is online"),
        ("offline", AT, "ada, last seen: 01 March, "),
        ("offline", "unavailable", "ada, last seen: unavailable"),
        ("offline", None, "ada is offline"),
    ],
)
def test_presence_is_a_phrase(status: str, last_seen: str | None, says: str) -> None:
    """What may not be seen is said to be unavailable."""
    assert presence(Member(user_id="user_ada", status=status, last_seen=last_seen), "ada").startswith(says)
