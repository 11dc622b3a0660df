"""`AccountAdmin` and `AuditLog`: what operators do to accounts, on every engine."""

import asyncio

import pytest
from msgspec import structs

from parley.errors import Refused
from parley.model import AccountDeletion, AccountState, Action, AuditRecord, Relation, Role, User
from parley.store.rows import StoreCounts
from tests.contracts.acting import (
    add_direct,
    add_group,
    add_people,
    add_person,
    change,
    code_of,
    message,
    rename,
    said,
    stored,
)
from tests.contracts.engines import Engine, OpenStore
from tests.contracts.test_accounts import add_session, new_user

ACTIVE, DISABLED, DELETED = AccountState.ACTIVE, AccountState.DISABLED, AccountState.DELETED


async def add_operator(store: OpenStore, username: str) -> str:
    user = structs.replace(new_user(store, username), is_operator=True)
    assert await store.accounts.add_user(user, "hash")
    return user.user_id


async def user_of(store: OpenStore, user_id: str) -> User:
    user = await store.accounts.user(user_id)
    assert user is not None
    return user


async def refusal(work: object) -> str:
    with pytest.raises(Refused) as caught:
        await work  # type: ignore[misc]
    return caught.value.refusal.code


# Disabled


async def test_a_state_is_kept(engine: Engine) -> None:
    """An account is disabled and enabled again, and a store that is opened again knows it."""
    async with engine.opened() as store:
        ann = await add_person(store, "ann")
        assert (await user_of(store, ann)).state is ACTIVE
        assert (await store.account_admin.set_state(ann, DISABLED, "")).state is DISABLED
        await store.reopen()
        assert (await user_of(store, ann)).state is DISABLED
        assert (await store.account_admin.set_state(ann, ACTIVE, "")).state is ACTIVE


async def test_a_profile_change_keeps_the_state(engine: Engine) -> None:
    """What a person writes over their profile, read before it was disabled, does not enable the account."""
    async with engine.opened() as store:
        ann = await add_person(store, "ann")
        before = await user_of(store, ann)
        await store.account_admin.set_state(ann, DISABLED, "")
        await store.accounts.update_user(structs.replace(before, about="back"))
        assert (await user_of(store, ann)).state is DISABLED


async def test_a_disabled_person_appends_nothing(engine: Engine) -> None:
    """Neither where they have just written nor where they never did, by a message or by a change."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        warm, cold = await add_group(store, ann, ben), await add_group(store, ann, ben)
        direct = await add_direct(store, ann, ben)
        for chat in (warm, direct):
            await said(store, chat, ann, "before")
        await store.account_admin.set_state(ann, DISABLED, "")
        for chat in (warm, cold, direct):
            assert await code_of(store, message(chat, ann, "after")) == "account_disabled"
            assert await code_of(store, message(chat, ben, "still here")) == "stored"
        assert await code_of(store, rename(warm, ann, "mine")) == "account_disabled"
        assert store.breaches() == []


async def test_an_enabled_person_appends_again(engine: Engine) -> None:
    """At once, also where the refusal could be remembered."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat, direct = await add_group(store, ann, ben), await add_direct(store, ann, ben)
        await store.account_admin.set_state(ann, DISABLED, "")
        for one in (chat, direct):
            assert await code_of(store, message(one, ann, "refused")) == "account_disabled"
        await store.account_admin.set_state(ann, ACTIVE, "")
        for one in (chat, direct):
            assert await code_of(store, message(one, ann, "welcome")) == "stored"


async def test_a_retry_of_a_disabled_person_is_answered_with_the_original(engine: Engine) -> None:
    """What was stored before stays stored, and its sender hears so."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        draft = message(chat, ann, "before")
        first = await stored(store, draft)
        await store.account_admin.set_state(ann, DISABLED, "")
        again = await stored(store, draft)
        assert (again.sequence, again.deduplicated) == (first.sequence, True)


async def test_a_disabled_person_may_be_added_and_removed_by_others(engine: Engine) -> None:
    """They stay a member like any other, and only do nothing themselves."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann)
        await store.account_admin.set_state(ben, DISABLED, "")
        assert await code_of(store, change(chat, ann, Action.JOINED, ben)) == "stored"
        assert await store.directory.role(chat, ben) is Role.MEMBER
        assert await code_of(store, change(chat, ann, Action.REMOVED, ben)) == "stored"
        assert await store.directory.role(chat, ben) is None
        assert store.breaches() == []


async def test_a_disabled_person_creates_no_chat(engine: Engine) -> None:
    """Not even by a request that was under way."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        await store.account_admin.set_state(ann, DISABLED, "")
        assert await refusal(add_group(store, ann, ben)) == "account_disabled"
        assert await add_group(store, ben, ann)


async def test_an_unknown_account_is_refused(engine: Engine) -> None:
    """Neither disabled nor deleted."""
    async with engine.opened() as store:
        assert await refusal(store.account_admin.set_state("user_none", DISABLED, "")) == "not_found"
        assert await refusal(store.account_admin.delete_user("user_none", "", 1)) == "not_found"
        assert await refusal(store.account_admin.delete_user("", "", 1)) == "not_found"


# Deleted


async def test_a_deleted_account_is_empty_and_its_name_is_free(engine: Engine) -> None:
    """Nothing of the profile is left, the password fits no more, and somebody else takes the name."""
    async with engine.opened() as store:
        ann = await add_person(store, "ann")
        await store.accounts.update_user(
            structs.replace(await user_of(store, ann), display_name="Ann", about="hi")
        )
        await store.account_admin.delete_user(ann, "", store.clock())
        gone = await user_of(store, ann)
        assert (gone.display_name, gone.about, gone.last_seen, gone.state) == ("deleted", "", None, DELETED)
        assert await store.accounts.user_by_name("ann") is None
        found = await store.accounts.user_by_name(gone.username)
        assert found is not None
        assert found[1] == ""
        assert await store.accounts.add_user(new_user(store, "ann"), "hash")
        assert store.breaches() == []


async def test_a_deleted_account_stays_deleted(engine: Engine) -> None:
    """Deleting may be repeated; nothing enables the account or writes its profile."""
    async with engine.opened() as store:
        ann = await add_person(store, "ann")
        before = await user_of(store, ann)
        await store.account_admin.delete_user(ann, "", 1)
        gone = await user_of(store, ann)
        assert await store.account_admin.delete_user(ann, "", 2) == gone
        assert await refusal(store.account_admin.set_state(ann, ACTIVE, "")) == "not_found"
        await store.accounts.update_user(before, "another hash")
        assert await user_of(store, ann) == gone
        assert await store.accounts.user_by_name("ann") is None


async def test_nobody_writes_to_a_deleted_person(engine: Engine) -> None:
    """The direct chat stays, readable and with its members; sends of both are refused for good."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        direct = await add_direct(store, ann, ben)
        await said(store, direct, ann, "one")
        await said(store, direct, ben, "two")
        await store.account_admin.delete_user(ann, "", 1)
        assert await code_of(store, message(direct, ben, "three")) == "user_deleted"
        assert await code_of(store, message(direct, ann, "four")) == "account_disabled"
        assert (await store.log.read(direct, 0, 10)).head == 2
        assert await store.directory.role(direct, ben) is not None
        assert store.breaches() == []


async def test_nobody_lets_a_deleted_person_in(engine: Engine) -> None:
    """Neither into a group nor into a new chat."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann)
        await store.account_admin.delete_user(ben, "", 1)
        assert await code_of(store, change(chat, ann, Action.JOINED, ben)) == "not_found"
        assert await refusal(add_group(store, ann, ben)) == "not_found"
        assert await refusal(add_direct(store, ann, ben)) == "not_found"


async def test_a_deleted_person_hands_over_and_leaves(engine: Engine) -> None:
    """They make another member owner and leave; the last one of a group leaves nobody behind."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        shared, alone = await add_group(store, ann, ben), await add_group(store, ann)
        await store.account_admin.delete_user(ann, "", 1)
        assert await code_of(store, change(shared, ann, Action.LEFT, ann, Role.OWNER)) == "forbidden"
        assert await code_of(store, change(shared, ann, Action.ROLE, ben, Role.OWNER)) == "stored"
        assert await code_of(store, change(shared, ann, Action.LEFT, ann, Role.OWNER)) == "stored"
        assert await code_of(store, change(alone, ann, Action.LEFT, ann, Role.OWNER)) == "stored"
        assert await store.directory.chat_ids_of(ann) == []
        assert await store.directory.role(shared, ben) is Role.OWNER
        assert store.breaches() == []


async def test_a_deletion_is_listed_until_it_is_finished(engine: Engine) -> None:
    """Also by a store that is opened again, and without the name, which is free."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        await store.account_admin.delete_user(ann, "", 1)
        await store.account_admin.delete_user(ben, "", 2)
        await store.reopen()
        assert await store.account_admin.deletions() == [
            AccountDeletion(ann, 1),
            AccountDeletion(ben, 2),
        ]
        await store.account_admin.finish_deletion(ann)
        await store.account_admin.finish_deletion(ann)
        assert await store.account_admin.deletions() == [AccountDeletion(ben, 2)]


async def test_lists_with_a_deleted_person_stay_whole(engine: Engine) -> None:
    """Whoever has them as a contact still does, and can end it."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        for one, other in ((ann, ben), (ben, ann)):
            await store.relations.set_relation(one, other, Relation.CONTACT, "2026-01-01T00:00:00.000Z")
        await store.account_admin.delete_user(ann, "", 1)
        assert store.breaches() == []
        assert await store.relations.set_relation(ann, ben, Relation.CONTACT, None) is None
        assert await store.relations.set_relation(ben, ann, Relation.CONTACT, None) is None
        assert store.breaches() == []


# Operators


async def test_the_last_operator_stays(engine: Engine) -> None:
    """Without another active operator as a witness an operator is neither disabled nor deleted."""
    async with engine.opened() as store:
        ann, ben = await add_operator(store, "ann"), await add_operator(store, "ben")
        cat = await add_person(store, "cat")
        for witness in ("", ann, cat, "user_none"):
            assert await refusal(store.account_admin.set_state(ann, DISABLED, witness)) == "last_operator"
            assert await refusal(store.account_admin.delete_user(ann, witness, 1)) == "last_operator"
        await store.account_admin.set_state(ann, DISABLED, ben)
        assert await refusal(store.account_admin.set_state(ben, DISABLED, ann)) == "last_operator"
        assert await refusal(store.account_admin.delete_user(ben, ann, 1)) == "last_operator"
        await store.account_admin.delete_user(ann, "", 1)
        assert (await user_of(store, ann)).is_operator is False
        assert (await user_of(store, ben)).state is ACTIVE


async def test_two_operators_cannot_disable_each_other(engine: Engine) -> None:
    """At the same time: one of them is left."""
    async with engine.opened() as store:
        ann, ben = await add_operator(store, "ann"), await add_operator(store, "ben")
        await asyncio.gather(
            store.account_admin.set_state(ann, DISABLED, ben),
            store.account_admin.delete_user(ben, ann, 1),
            return_exceptions=True,
        )
        states = [(await user_of(store, one)).state for one in (ann, ben)]
        assert states.count(ACTIVE) == 1


# Search


async def test_people_are_found_by_parts_of_their_names(engine: Engine) -> None:
    """In any case, by username or display name; an empty query finds everybody."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        await store.accounts.update_user(structs.replace(await user_of(store, ben), display_name="Hannah"))
        assert await found(store, "AN") == {ann, ben}
        assert await found(store, "hannah") == {ben}
        assert await found(store, "nobody") == set()
        assert await found(store, "") == {ann, ben}


async def test_people_are_found_in_any_script(engine: Engine) -> None:
    """Capitals of any script count as small letters, and a letter with its accent apart as one with it."""
    names = {"ÉMILE Šťastný": "émile š", "Émile B.": "E\u0301MILE B", "Жанна": "ЖАННА", "Groß": "GROSS"}
    async with engine.opened() as store:
        people = await add_people(store, *(f"p{number}" for number in range(len(names))))
        for person, name in zip(people, names, strict=True):
            await store.accounts.update_user(structs.replace(await user_of(store, person), display_name=name))
        assert [await found(store, query) for query in names.values()] == [{person} for person in people]


async def test_a_search_comes_in_pages(engine: Engine) -> None:
    """Each person once, whatever the size of the page."""
    async with engine.opened() as store:
        people = await add_people(store, *(f"p{number}" for number in range(5)))
        assert await found(store, "p", limit=2) == set(people)


async def found(store: OpenStore, query: str, limit: int = 10) -> set[str]:
    people: list[str] = []
    after: str | None = ""
    while after is not None:
        page = await store.account_admin.find_users(query, after, limit)
        assert len(page.users) <= limit
        people += [user.user_id for user in page.users]
        after = page.next_after
    assert len(people) == len(set(people))
    return set(people)


async def test_people_and_chats_are_counted(engine: Engine) -> None:
    """Every account and every chat, also an account that was deleted."""
    async with engine.opened() as store:
        assert await store.account_admin.counts() == StoreCounts(0, 0)
        ann, ben = await add_person(store, "ann"), await add_person(store, "ben")
        await add_group(store, ann, ben)
        await store.account_admin.delete_user(ben, "", store.clock())
        assert await store.account_admin.counts() == StoreCounts(2, 1)


# Sessions


async def test_expired_sessions_are_ended(engine: Engine) -> None:
    """Those that have run out, and no others; the store stays whole."""
    async with engine.opened() as store:
        ann = await add_person(store, "ann")
        old = await add_session(store, ann, "old", b"1")
        store.clock.advance(1)
        new = await add_session(store, ann, "new", b"2")
        assert await store.sessions.end_expired(old.expires_at_ms - 1) == 0
        assert await store.sessions.end_expired(old.expires_at_ms) == 1
        assert await store.sessions.of(ann) == [new]
        assert await store.sessions.by_token(b"1") is None
        assert store.breaches() == []


async def test_a_session_remembers_its_origin(engine: Engine) -> None:
    """Where it was opened from, as a hash that the store does not understand."""
    async with engine.opened() as store:
        ann = await add_person(store, "ann")
        session = structs.replace(
            await add_session(store, ann, "one", b"1"), session_id="ses_two", origin="o"
        )
        await store.sessions.add(session, b"2")
        await store.reopen()
        assert await store.sessions.by_token(b"2") == session


# The audit log


def audit_record(number: int, outcome: str = "begun") -> AuditRecord:
    return AuditRecord(
        audit_id=f"aud_{number}",
        at="2026-01-01T00:00:00.000Z",
        actor="cli:root",
        action="user.disable",
        target_id="user_1",
        request_id="req_1",
        detail="why",
        outcome=outcome,
    )


async def test_records_come_newest_first_in_pages(engine: Engine) -> None:
    """Every record once, also after the store was opened again."""
    async with engine.opened() as store:
        for number in range(5):
            await store.kinds.audit.record(audit_record(number))
        await store.reopen()
        assert await store.kinds.audit.records("", 2) == [audit_record(4), audit_record(3)]
        assert await store.kinds.audit.records("aud_3", 2) == [audit_record(2), audit_record(1)]
        assert await store.kinds.audit.records("aud_0", 2) == []


async def test_a_record_gets_its_outcome(engine: Engine) -> None:
    """The same record again replaces it."""
    async with engine.opened() as store:
        await store.kinds.audit.record(audit_record(1))
        await store.kinds.audit.record(audit_record(1, "done"))
        assert await store.kinds.audit.records("", 9) == [audit_record(1, "done")]
