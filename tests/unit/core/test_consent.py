"""Who may add whom, cell by cell."""

import itertools

import pytest

from parley.core.consent import INVITATION_NEEDED, ConsentFacts, decide_adding
from parley.errors import BLOCKED, Refusal
from parley.model import Privacy
from parley.wire.limits import UNASKED_CHATS_MAX

EVERYONE, CONTACTS, NOBODY = Privacy.EVERYONE, Privacy.CONTACTS, Privacy.NOBODY

MAY = {
    (EVERYONE, False): None,
    (EVERYONE, True): None,
    (CONTACTS, False): INVITATION_NEEDED,
    (CONTACTS, True): None,
    (NOBODY, False): INVITATION_NEEDED,
    (NOBODY, True): INVITATION_NEEDED,
}
"""By setting, and whether whoever adds is a contact of the person."""


@pytest.mark.parametrize(("cell", "refusal"), list(MAY.items()))
def test_who_may_add(cell: tuple[Privacy, bool], refusal: Refusal | None) -> None:
    """Everyone lets all add, contacts the contacts, nobody none: the others may invite."""
    assert decide_adding(ConsentFacts(*cell)) == refusal


@pytest.mark.parametrize("cell", list(itertools.product(Privacy, (False, True), (0, UNASKED_CHATS_MAX))))
def test_a_block_outweighs_everything(cell: tuple[Privacy, bool, int]) -> None:
    """Who is blocked may not even invite, and hears the same whatever the setting is."""
    setting, is_contact, unasked = cell
    assert decide_adding(ConsentFacts(setting, is_contact, True, unasked)) == BLOCKED


@pytest.mark.parametrize(
    ("unasked", "is_contact", "refusal"),
    [
        (UNASKED_CHATS_MAX - 1, False, None),
        (UNASKED_CHATS_MAX, False, INVITATION_NEEDED),
        (UNASKED_CHATS_MAX, True, None),
    ],
)
def test_strangers_fill_a_share_and_no_more(unasked: int, is_contact: bool, refusal: Refusal | None) -> None:
    """When strangers have filled their share, they can only invite; contacts still add."""
    assert decide_adding(ConsentFacts(EVERYONE, is_contact, False, unasked)) == refusal
