"""Who may see whom, cell by cell."""

import itertools

import pytest

from parley.core.privacy import includes, may_be_seen, may_see_presence, may_see_reads
from parley.model import Privacy, Relationship, User

EVERYONE, CONTACTS, NOBODY = Privacy.EVERYONE, Privacy.CONTACTS, Privacy.NOBODY

SHOWN = {
    (EVERYONE, False, False): True,
    (EVERYONE, True, False): True,
    (CONTACTS, False, False): False,
    (CONTACTS, True, False): True,
    (NOBODY, False, False): False,
    (NOBODY, True, False): False,
    (EVERYONE, False, True): False,
    (EVERYONE, True, True): False,
    (CONTACTS, False, True): False,
    (CONTACTS, True, True): False,
    (NOBODY, False, True): False,
    (NOBODY, True, True): False,
}
"""By setting, whether the other is a contact, and whether they are blocked."""


def person(user_id: str, privacy: Privacy) -> User:
    return User(user_id, user_id, user_id, "", False, "", privacy)


@pytest.mark.parametrize(("cell", "is_shown"), list(SHOWN.items()))
def test_what_a_setting_shows(cell: tuple[Privacy, bool, bool], is_shown: bool) -> None:
    """Everyone shows to all, contacts to contacts, nobody to none, and a block hides from anybody."""
    assert includes(*cell) is is_shown


@pytest.mark.parametrize(("theirs", "mine"), list(itertools.product(SHOWN, SHOWN)))
def test_seeing_is_mutual(theirs: tuple[Privacy, bool, bool], mine: tuple[Privacy, bool, bool]) -> None:
    """Somebody sees another exactly if each of them shows themself to the other."""
    me, other = person("me", mine[0]), person("other", theirs[0])
    seen = Relationship(
        user=other,
        is_contact=mine[1],
        has_contact=theirs[1],
        is_blocked=mine[2],
        has_blocked=theirs[2],
        is_acquainted=True,
    )
    mirrored = Relationship(me, theirs[1], mine[1], theirs[2], mine[2], is_acquainted=True)
    assert may_see_presence(me, seen) is (SHOWN[theirs] and SHOWN[mine])
    assert may_see_presence(me, seen) is may_see_presence(other, mirrored)


def test_strangers_see_nothing() -> None:
    """Without a chat or a contact between them nobody is seen, whatever the settings."""
    relationship = Relationship(person("other", EVERYONE), False, False, False, False, is_acquainted=False)
    assert not may_see_presence(person("me", EVERYONE), relationship)


KNOWN = {(True, False): False, (False, True): True, (True, True): True}
"""Whether somebody with no common chat is known, by whose contact they are: mine, and I theirs."""


@pytest.mark.parametrize(("contact", "is_seen"), list(KNOWN.items()))
def test_who_is_seen_without_a_common_chat(contact: tuple[bool, bool], is_seen: bool) -> None:
    """Without a chat between them somebody is seen by those whom they have as a contact, and by no others."""
    relationship = Relationship(person("other", EVERYONE), *contact, False, False, is_acquainted=False)
    assert may_see_presence(person("me", EVERYONE), relationship) is is_seen


@pytest.mark.parametrize("is_acquainted", [False, True])
@pytest.mark.parametrize(("theirs", "mine"), list(itertools.product(SHOWN, SHOWN)))
def test_being_seen_is_seeing_from_the_other_side(
    theirs: tuple[Privacy, bool, bool], mine: tuple[Privacy, bool, bool], is_acquainted: bool
) -> None:
    """One read tells whom a person sees, and who sees them."""
    me, other = person("me", mine[0]), person("other", theirs[0])
    seen = Relationship(other, mine[1], theirs[1], mine[2], theirs[2], is_acquainted)
    mirrored = Relationship(me, theirs[1], mine[1], theirs[2], mine[2], is_acquainted)
    assert may_be_seen(me, seen) is may_see_presence(other, mirrored)


def test_everybody_sees_themself() -> None:
    """One's own presence is never hidden from oneself."""
    me = person("me", NOBODY)
    assert may_see_presence(me, Relationship(me, False, False, False, False, is_acquainted=False))


@pytest.mark.parametrize(("reader", "viewer"), list(itertools.product((True, False), repeat=2)))
def test_who_sends_no_read_receipts_sees_none(reader: bool, viewer: bool) -> None:
    """Reading is seen only between people who both tell of it."""
    assert may_see_reads(reader, viewer) is (reader and viewer)
