"""Who may do what, cell by cell."""

from collections.abc import Mapping

import pytest

from parley.core.append import AppendFacts, ChangeFacts, JoinFacts, decide_append
from parley.core.consent import ConsentFacts
from parley.core.permissions import decide_creation
from parley.errors import Refusal
from parley.model import Action, Change, ChatType, Draft, Privacy, ReadReceipts, Role
from parley.wire.limits import CHAT_MEMBERS_MAX, USER_CHATS_MAX

ME, OTHER = "user_me", "user_other"
OK = "place"
FORBIDDEN, NOT_A_MEMBER, NOT_FOUND, BAD_REQUEST = "forbidden", "not_a_member", "not_found", "bad_request"

OWNER, ADMIN, MEMBER, NOBODY = Role.OWNER, Role.ADMIN, Role.MEMBER, None
ACTORS = (OWNER, ADMIN, MEMBER, NOBODY)


def decided(
    change: Change,
    actor: Role | None,
    target: Role | None = None,
    chat_type: ChatType = ChatType.GROUP,
    owners: int = 2,
    open_to_join: bool = False,
    join: JoinFacts | None = None,
) -> str:
    """What a draft with this change is told when nothing else speaks against it."""
    draft = Draft(chat_id="chat_1", sender_id=ME, content="", change=change)
    facts = ChangeFacts(
        chat_type=chat_type, open_to_join=open_to_join, owners=owners, target=target, join=join or JoinFacts()
    )
    decision = decide_append(draft, AppendFacts(role=actor, change=facts))
    return decision.code if isinstance(decision, Refusal) else decision.value


def cells(table: Mapping[Role | None, tuple[str, ...]]) -> list[tuple[Role | None, Role | None, str]]:
    """Actor, target or new role, and what is decided, from rows in the order owner, admin, member."""
    return [
        (actor, other, code)
        for actor, row in table.items()
        for other, code in zip((OWNER, ADMIN, MEMBER), row, strict=True)
    ]


ADDS = {
    OWNER: (OK, OK, OK),
    ADMIN: (FORBIDDEN, FORBIDDEN, OK),
    MEMBER: (FORBIDDEN, FORBIDDEN, FORBIDDEN),
    NOBODY: (NOT_A_MEMBER, NOT_A_MEMBER, NOT_A_MEMBER),
}
REMOVES = {
    OWNER: (OK, OK, OK),
    ADMIN: (FORBIDDEN, FORBIDDEN, OK),
    MEMBER: (FORBIDDEN, FORBIDDEN, FORBIDDEN),
    NOBODY: (NOT_A_MEMBER, NOT_A_MEMBER, NOT_A_MEMBER),
}
GIVES_ROLE = {
    OWNER: (OK, OK, OK),
    ADMIN: (FORBIDDEN, FORBIDDEN, FORBIDDEN),
    MEMBER: (FORBIDDEN, FORBIDDEN, FORBIDDEN),
    NOBODY: (NOT_A_MEMBER, NOT_A_MEMBER, NOT_A_MEMBER),
}
RENAMES = {OWNER: OK, ADMIN: OK, MEMBER: FORBIDDEN, NOBODY: NOT_A_MEMBER}


@pytest.mark.parametrize(("actor", "role", "code"), cells(ADDS))
def test_adding_somebody(actor: Role | None, role: Role, code: str) -> None:
    """Owners add anybody as anything, admins add members, nobody else adds."""
    assert decided(Change(Action.JOINED, OTHER, role), actor) == code


@pytest.mark.parametrize(("actor", "target", "code"), cells(REMOVES))
def test_removing_somebody(actor: Role | None, target: Role, code: str) -> None:
    """Owners remove anybody, admins remove members, nobody else removes."""
    assert decided(Change(Action.REMOVED, OTHER), actor, target) == code


@pytest.mark.parametrize(("actor", "target", "code"), cells(GIVES_ROLE))
@pytest.mark.parametrize("given", Role)
def test_giving_a_role(given: Role, actor: Role | None, target: Role, code: str) -> None:
    """Only owners give and take roles."""
    assert decided(Change(Action.ROLE, OTHER, given), actor, target) == code


@pytest.mark.parametrize("actor", ACTORS)
def test_renaming(actor: Role | None) -> None:
    """Owners and admins rename a chat."""
    assert decided(Change(Action.RENAMED, title="new"), actor) == RENAMES[actor]


@pytest.mark.parametrize("action", [Action.LEFT, Action.REMOVED])
@pytest.mark.parametrize("role", Role)
def test_leaving(action: Action, role: Role) -> None:
    """Everybody may leave, also by removing themselves."""
    assert decided(Change(action, ME), role, role) == OK


@pytest.mark.parametrize("actor", Role)
@pytest.mark.parametrize("target", Role)
def test_nobody_leaves_for_somebody_else(actor: Role, target: Role) -> None:
    """Leaving is one's own act: making another leave is called removing."""
    assert decided(Change(Action.LEFT, OTHER), actor, target) == FORBIDDEN


@pytest.mark.parametrize(
    "change",
    [Change(Action.LEFT, ME), Change(Action.REMOVED, ME), Change(Action.ROLE, ME, ADMIN)],
    ids=["leave", "remove", "step down"],
)
def test_the_last_owner_stays(change: Change) -> None:
    """A group never loses its only owner."""
    assert decided(change, OWNER, OWNER, owners=1) == FORBIDDEN


def test_the_last_owner_may_be_confirmed() -> None:
    """Making the only owner an owner again takes nothing away."""
    assert decided(Change(Action.ROLE, ME, OWNER), OWNER, OWNER, owners=1) == OK


@pytest.mark.parametrize("action", [Action.LEFT, Action.REMOVED, Action.ROLE])
@pytest.mark.parametrize("actor", Role)
def test_who_is_no_member_cannot_be_changed(actor: Role, action: Action) -> None:
    """Changing somebody who is not in the chat is refused as not_found."""
    assert decided(Change(action, OTHER), actor, None) == NOT_FOUND


@pytest.mark.parametrize("actor", Role)
def test_nobody_joins_twice(actor: Role) -> None:
    """Adding a member again is a bad request."""
    assert decided(Change(Action.JOINED, OTHER), actor, MEMBER) == BAD_REQUEST


@pytest.mark.parametrize("open_to_join", [True, False])
def test_joining_alone(open_to_join: bool) -> None:
    """Anybody joins an open group, nobody a closed one."""
    change = Change(Action.JOINED, ME, MEMBER)
    assert decided(change, None, None, open_to_join=open_to_join) == (OK if open_to_join else NOT_A_MEMBER)


@pytest.mark.parametrize("role", [OWNER, ADMIN])
def test_joining_alone_gives_no_power(role: Role) -> None:
    """Whoever joins an open group joins as member, and as nothing else."""
    assert decided(Change(Action.JOINED, ME, role), None, None, open_to_join=True) == NOT_A_MEMBER


def test_an_open_group_lets_no_stranger_bring_others() -> None:
    """Being open lets people join, not add somebody else."""
    assert decided(Change(Action.JOINED, OTHER), None, None, open_to_join=True) == NOT_A_MEMBER


@pytest.mark.parametrize("actor", ACTORS)
def test_choosing_read_receipts(actor: Role | None) -> None:
    """In a group owners and admins choose what it tells of who has read."""
    change = Change(Action.READ_RECEIPTS, read_receipts=ReadReceipts.NONE)
    assert decided(change, actor) == RENAMES[actor]


@pytest.mark.parametrize("actor", Role)
def test_choosing_read_receipts_of_a_direct_chat(actor: Role) -> None:
    """Either of the two chooses what a direct chat tells."""
    change = Change(Action.READ_RECEIPTS, read_receipts=ReadReceipts.NONE)
    assert decided(change, actor, None, ChatType.DIRECT) == OK


@pytest.mark.parametrize("action", sorted(set(Action) - {Action.READ_RECEIPTS}))
@pytest.mark.parametrize("actor", Role)
def test_a_direct_chat_is_fixed(actor: Role, action: Action) -> None:
    """Neither people nor title of a direct chat change, whoever asks."""
    assert decided(Change(action, OTHER), actor, MEMBER, ChatType.DIRECT) == BAD_REQUEST


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("chat_type", ChatType)
def test_strangers_learn_nothing(action: Action, chat_type: ChatType) -> None:
    """Who is no member is told so, whatever the chat is and whatever is asked."""
    assert decided(Change(action, OTHER), None, MEMBER, chat_type) == NOT_A_MEMBER


@pytest.mark.parametrize(
    ("consent", "code"),
    [
        (ConsentFacts(has_blocked=True), "blocked"),
        (ConsentFacts(Privacy.NOBODY), FORBIDDEN),
        (ConsentFacts(Privacy.CONTACTS, is_contact=True), OK),
    ],
    ids=["blocked", "nobody may", "contacts may"],
)
def test_adding_needs_consent(consent: ConsentFacts, code: str) -> None:
    """Whoever adds another one needs their consent, be they the owner."""
    assert decided(Change(Action.JOINED, OTHER), OWNER, join=JoinFacts(consent=consent)) == code


def test_joining_alone_is_consent() -> None:
    """Who joins by themself is not asked whether they may."""
    join = JoinFacts(consent=ConsentFacts(Privacy.NOBODY))
    assert decided(Change(Action.JOINED, ME), None, open_to_join=True, join=join) == OK


def test_who_may_not_add_does_not_learn_who_consents() -> None:
    """A member without the right to add is told just that, whomever they name."""
    join = JoinFacts(consent=ConsentFacts(has_blocked=True))
    assert decided(Change(Action.JOINED, OTHER), MEMBER, join=join) == FORBIDDEN


@pytest.mark.parametrize(
    ("join", "code"),
    [
        (JoinFacts(user_exists=False), NOT_FOUND),
        (JoinFacts(chat_members=CHAT_MEMBERS_MAX), BAD_REQUEST),
        (JoinFacts(user_chats=USER_CHATS_MAX), BAD_REQUEST),
        (JoinFacts(chat_members=CHAT_MEMBERS_MAX - 1, user_chats=USER_CHATS_MAX - 1), OK),
    ],
    ids=["unknown person", "full chat", "too many chats", "just enough room"],
)
def test_joining_needs_a_person_and_room(join: JoinFacts, code: str) -> None:
    """A person who does not exist, a full chat and a person in too many chats are refused."""
    assert decided(Change(Action.JOINED, OTHER), OWNER, join=join) == code


GONE, FULL = JoinFacts(user_exists=False), JoinFacts(user_chats=USER_CHATS_MAX)
BLOCKS = JoinFacts(consent=ConsentFacts(has_blocked=True), user_chats=USER_CHATS_MAX)


@pytest.mark.parametrize(
    ("people", "code"),
    [
        ({ME: JoinFacts(is_disabled=True), "user_a": BLOCKS, OTHER: GONE}, NOT_FOUND),
        ({ME: JoinFacts(is_disabled=True), OTHER: BLOCKS}, "account_disabled"),
        ({ME: FULL, "user_a": FULL, OTHER: BLOCKS}, "blocked"),
        ({ME: FULL, OTHER: JoinFacts()}, BAD_REQUEST),
        ({ME: JoinFacts(), OTHER: FULL}, BAD_REQUEST),
        ({ME: BLOCKS}, BAD_REQUEST),
        ({ME: JoinFacts(consent=ConsentFacts(Privacy.NOBODY)), OTHER: JoinFacts(is_disabled=True)}, OK),
    ],
    ids=["unknown person", "creator", "consent", "full creator", "full person", "own consent", "nothing"],
)
def test_creating_a_chat_is_refused_in_one_order(people: Mapping[str, JoinFacts], code: str) -> None:
    """People who do not exist, then the creator's account, then consent of the others, then limits."""
    refusal = decide_creation(ME, people)
    assert (refusal.code if refusal is not None else OK) == code
