"""Who may post, and how often, as decisions."""

import pytest

from parley.core.append import AppendFacts, Missing, StoredBy, Verdict, decide_append
from parley.errors import ANNOUNCEMENT_ONLY, SLOW_MODE
from parley.model import Draft, Role, Target

OWN = Target(sequence=1, sender_id="user_1", is_group=True)


def draft(kind: str = "message") -> Draft:
    target = None if kind == "message" else OWN
    return Draft(chat_id="chat_1", sender_id="user_1", content="hi", kind=kind, target=target)


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("kind", ["message", "edit", "delete", "reaction"])
def test_announcements(role: Role, kind: str) -> None:
    """A member neither posts nor edits, and may delete and react; owners and admins do as they like."""
    facts = AppendFacts(role=role, original=StoredBy.NOBODY, announcement_only=True)
    is_refused = role is Role.MEMBER and kind in ("message", "edit")
    assert decide_append(draft(kind), facts) == (ANNOUNCEMENT_ONLY if is_refused else Verdict.PLACE)


@pytest.mark.parametrize(("since_ms", "wait_ms"), [(0, 5_000), (4_999, 1), (5_000, 0), (9_000, 0)])
def test_slow_mode_says_how_long(since_ms: int, wait_ms: int) -> None:
    """Until the time is over, exactly."""
    facts = AppendFacts(
        role=Role.MEMBER, original=StoredBy.NOBODY, slow_mode_seconds=5, since_last_ms=since_ms
    )
    assert decide_append(draft(), facts) == (SLOW_MODE.after(wait_ms) if wait_ms else Verdict.PLACE)


def test_slow_mode_asks_only_where_it_counts() -> None:
    """When somebody sent last is looked up for messages of members in a slow group, and for nothing else."""
    slow = AppendFacts(role=Role.MEMBER, original=StoredBy.NOBODY, slow_mode_seconds=5)
    assert decide_append(draft(), slow) is Missing.LAST_SENT
    for kind in ("edit", "reaction"):
        assert decide_append(draft(kind), slow) is Verdict.PLACE
    for role in (Role.ADMIN, Role.OWNER):
        assert decide_append(draft(), AppendFacts(role=role, slow_mode_seconds=5)) is Verdict.PLACE
    assert decide_append(draft(), AppendFacts(role=Role.MEMBER)) is Verdict.PLACE
