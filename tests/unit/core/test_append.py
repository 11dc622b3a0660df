"""The order in which a send is answered, one step after the other."""

from itertools import pairwise, product

import pytest
from msgspec.structs import replace

from parley.core.append import (
    NO_CHAT,
    AppendFacts,
    ChangeFacts,
    Decision,
    JoinFacts,
    Missing,
    StoredBy,
    Verdict,
    answer_again,
    decide_append,
    stored_by,
)
from parley.errors import (
    BLOCKED,
    COUNTER_MISSING,
    DUPLICATE_ID,
    FORBIDDEN,
    NO_SUCH_USER,
    NOT_A_MEMBER,
    OUT_OF_TURN,
    Refusal,
)
from parley.model import Action, Change, Draft, Role
from parley.wire.frames import Entry

ME, OTHER = "user_me", "user_other"
KEY, AFTER = b"k" * 16, b"a" * 16
MESSAGE = Draft(chat_id="chat_1", sender_id=ME, content="hi", client_key=KEY, after_key=AFTER)
RENAME = replace(MESSAGE, change=Change(Action.RENAMED, title="new"))
JOIN = Draft(chat_id="chat_1", sender_id=ME, content="", change=Change(Action.JOINED, ME))

FINE = AppendFacts(
    role=Role.OWNER,
    original=StoredBy.NOBODY,
    predecessor=StoredBy.SENDER,
    change=ChangeFacts(owners=1, join=JoinFacts()),
)

STEPS: list[tuple[Decision, dict[str, object]]] = [
    (Verdict.ANSWER, {"original": StoredBy.SENDER}),
    (NOT_A_MEMBER, {"role": None}),
    (BLOCKED, {"is_blocked": True}),
    (DUPLICATE_ID, {"original": StoredBy.OTHER}),
    (OUT_OF_TURN, {"predecessor": StoredBy.NOBODY}),
    (FORBIDDEN, {"role": Role.MEMBER}),
    (COUNTER_MISSING, {"trouble": COUNTER_MISSING}),
]
"""What each step answers, and the fact that leads there. FORBIDDEN is for the change."""


def test_a_draft_without_objections_is_placed() -> None:
    """A member's new message with a stored predecessor takes the next position."""
    assert decide_append(MESSAGE, FINE) is Verdict.PLACE


@pytest.mark.parametrize(("decision", "fact"), STEPS)
def test_each_fact_alone_decides(decision: Decision, fact: dict[str, object]) -> None:
    """Every step answers as its line of the table says."""
    assert decide_append(RENAME, replace(FINE, **fact)) == decision


@pytest.mark.parametrize(("earlier", "later"), list(pairwise(STEPS)))
def test_the_earlier_step_answers(
    earlier: tuple[Decision, dict[str, object]], later: tuple[Decision, dict[str, object]]
) -> None:
    """With two facts against a draft, the one that comes first in the order decides."""
    assert decide_append(RENAME, replace(FINE, **{**later[1], **earlier[1]})) == earlier[0]


@pytest.mark.parametrize("fact", [fact for _, fact in STEPS[1:]])
def test_a_retry_is_answered_whatever_has_changed(fact: dict[str, object]) -> None:
    """The original of the same sender is the answer, also for a stranger and without a counter."""
    assert decide_append(RENAME, replace(FINE, **{**fact, "original": StoredBy.SENDER})) is Verdict.ANSWER


def test_a_new_draft_costs_no_lookup() -> None:
    """Nothing needs to be known about the id of a draft that may be placed."""
    assert decide_append(MESSAGE, replace(FINE, original=StoredBy.UNKNOWN)) is Verdict.PLACE


@pytest.mark.parametrize("fact", [fact for _, fact in STEPS[1:] if "original" not in fact])
def test_nothing_is_refused_before_its_id_was_looked_up(fact: dict[str, object]) -> None:
    """A draft that cannot be placed may be a retry: that is found out first."""
    facts = replace(FINE, **{**fact, "original": StoredBy.UNKNOWN})
    assert decide_append(RENAME, facts) is Missing.ORIGINAL


def test_a_draft_without_an_id_has_no_original() -> None:
    """It is refused at once: there is nothing to look up."""
    facts = replace(FINE, role=None, original=StoredBy.UNKNOWN)
    assert decide_append(replace(MESSAGE, client_key=None), facts) == NOT_A_MEMBER


def test_an_unknown_predecessor_is_looked_up() -> None:
    """A draft that names a predecessor waits until it is known who stored that."""
    assert decide_append(MESSAGE, replace(FINE, predecessor=StoredBy.UNKNOWN)) is Missing.PREDECESSOR


def test_a_predecessor_of_another_sender_does_not_count() -> None:
    """A draft follows its own sender's messages only."""
    assert decide_append(MESSAGE, replace(FINE, predecessor=StoredBy.OTHER)) == OUT_OF_TURN


@pytest.mark.parametrize("predecessor", StoredBy)
def test_a_draft_without_a_predecessor_needs_none(predecessor: StoredBy) -> None:
    """What names no predecessor is never out of turn."""
    facts = replace(FINE, predecessor=predecessor)
    assert decide_append(replace(MESSAGE, after_key=None), facts) is Verdict.PLACE


def test_a_join_looks_for_room_last() -> None:
    """Whether the person exists and there is room is looked up only for a join that is allowed."""
    facts = AppendFacts(role=None, change=ChangeFacts(open_to_join=True))
    assert decide_append(JOIN, facts) is Missing.JOIN
    facts.change = ChangeFacts(open_to_join=True, join=JoinFacts(user_exists=False))
    assert decide_append(JOIN, facts) == NO_SUCH_USER


def test_a_closed_group_looks_for_an_invitation() -> None:
    """Who is no member of a closed group may join it with an invitation for just this role."""
    facts = AppendFacts(role=None, change=ChangeFacts())
    assert decide_append(JOIN, facts) is Missing.JOIN
    for invited_as, decision in (
        (None, NOT_A_MEMBER),
        (Role.ADMIN, NOT_A_MEMBER),
        (Role.MEMBER, Verdict.PLACE),
    ):
        facts.change = ChangeFacts(join=JoinFacts(invited_as=invited_as))
        assert decide_append(JOIN, facts) == decision


def test_only_who_was_invited_may_accept() -> None:
    """Neither another person nor anything but a join gets in by an invitation."""
    invited = ChangeFacts(join=JoinFacts(invited_as=Role.MEMBER))
    for draft in (MESSAGE, RENAME, replace(JOIN, sender_id="user_other")):
        facts = AppendFacts(role=None, original=StoredBy.NOBODY, change=invited)
        assert decide_append(draft, facts) == NOT_A_MEMBER


@pytest.mark.parametrize("draft", [MESSAGE, RENAME, JOIN], ids=["message", "rename", "join"])
def test_a_chat_that_does_not_exist_has_no_members(draft: Draft) -> None:
    """An unknown chat is answered like one that the sender is not in."""
    assert decide_append(draft, NO_CHAT) == NOT_A_MEMBER


def test_every_combination_of_known_facts_is_decided() -> None:
    """With every fact known, nothing is left to look up."""
    combinations = product(
        [MESSAGE, RENAME, JOIN],
        [None, *Role],
        [False, True],
        [StoredBy.NOBODY, StoredBy.SENDER, StoredBy.OTHER],
        [StoredBy.NOBODY, StoredBy.SENDER, StoredBy.OTHER],
        [None, COUNTER_MISSING],
    )
    for draft, role, is_blocked, original, predecessor, trouble in combinations:
        facts = AppendFacts(
            role=role,
            is_blocked=is_blocked,
            original=original,
            predecessor=predecessor,
            change=FINE.change,
            trouble=trouble,
        )
        assert isinstance(decide_append(draft, facts), Verdict | Refusal)


def test_who_stored_an_id() -> None:
    """An id is free, the sender's own, or another person's."""
    found = [stored_by(sender_id, MESSAGE) for sender_id in (None, ME, OTHER)]
    assert found == [StoredBy.NOBODY, StoredBy.SENDER, StoredBy.OTHER]


@pytest.mark.parametrize(
    ("content", "content_type", "conflict"),
    [("hi", "text/plain", False), ("other", "text/plain", True), ("hi", "text/html", True)],
)
def test_a_retry_is_told_where_the_original_is(content: str, content_type: str, conflict: bool) -> None:
    """The original's place, and whether the retry says something else."""
    original = Entry(
        chat_id="chat_1",
        sequence=7,
        epoch=2,
        kind="message",
        message_id="msg_1",
        sender_id=ME,
        client_message_id=None,
        content=content,
        content_type=content_type,
        created_at="then",
        server_timestamp="then",
    )
    answer = answer_again(MESSAGE, original)
    assert (answer.sequence, answer.epoch, answer.message_id, answer.created_at) == (7, 2, "msg_1", "then")
    assert (answer.deduplicated, answer.conflict) == (True, conflict)
