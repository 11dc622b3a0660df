"""`Log.append`: membership and permissions are decided at a draft's own position, in its transaction."""

import asyncio

import pytest

from parley.model import Action, ChatType, Role
from tests.contracts.acting import (
    add_group,
    add_people,
    change,
    code_of,
    contents,
    message,
    new_chat,
    new_id,
    outcome,
    read_all,
    rename,
    stored,
    told,
)
from tests.contracts.engines import Engine, OpenStore


async def test_a_stranger_cannot_write(engine: Engine) -> None:
    """Who is not a member is refused, and nothing of the draft is stored."""
    async with engine.opened() as store:
        ann, eve = await add_people(store, "ann", "eve")
        chat = await add_group(store, ann)
        assert await code_of(store, message(chat, eve)) == "not_a_member"
        assert await read_all(store, chat) == []


async def test_who_was_just_removed_learns_of_no_id(engine: Engine) -> None:
    """Behind a removal in the same batch an id of somebody else's looks like any other to a stranger."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        taken = new_id()
        await stored(store, message(chat, ann, "mine", taken))
        batch = [change(chat, ann, Action.REMOVED, ben), message(chat, ben, "yours", taken)]
        assert [told(one) for one in (await store.log.append(batch)).outcomes] == ["stored", "not_a_member"]
        assert "mine" in contents(await read_all(store, chat))
        assert "yours" not in contents(await read_all(store, chat))


async def test_an_unknown_chat_looks_like_a_foreign_one(engine: Engine) -> None:
    """The refusals of a chat that does not exist and of somebody else's chat are equal."""
    async with engine.opened() as store:
        ann, eve = await add_people(store, "ann", "eve")
        chat = await add_group(store, ann)
        assert await outcome(store, message(chat, eve)) == await outcome(store, message("chat_nowhere", eve))


async def test_membership_counts_at_its_own_position_in_a_batch(engine: Engine) -> None:
    """Before joining and after leaving a draft is refused, between them it is stored, all in one batch."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann)
        result = await store.log.append(
            [
                message(chat, ben, "too early"),
                change(chat, ann, Action.JOINED, ben),
                message(chat, ben, "in time"),
                change(chat, ben, Action.LEFT, ben),
                message(chat, ben, "too late"),
            ]
        )
        assert [told(one) for one in result.outcomes] == [
            "not_a_member",
            "stored",
            "stored",
            "stored",
            "not_a_member",
        ]


async def test_a_change_is_an_entry_with_its_own_position(engine: Engine) -> None:
    """A change of members takes a sequence, a message id and no client id."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann)
        place = await stored(store, change(chat, ann, Action.JOINED, ben))
        (entry,) = await read_all(store, chat)
        assert (entry.kind, entry.sequence, entry.message_id) == ("member", 1, place.message_id)
        assert (entry.sender_id, entry.client_message_id) == (ann, None)


async def test_a_change_travels_with_its_news(engine: Engine) -> None:
    """The news of a change names what it changed; that of a message names nothing."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann)
        joined = change(chat, ann, Action.JOINED, ben)
        result = await store.log.append([message(chat, ann), joined])
        assert [at.change for at in result.persisted[0].positions] == [None, joined.change]


async def test_joining_notes_the_position(engine: Engine) -> None:
    """A member's `joined_sequence` is the position of the entry that let them in."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann)
        await stored(store, message(chat, ann))
        place = await stored(store, change(chat, ann, Action.JOINED, ben, Role.ADMIN))
        members = {member.user_id: member for member in await store.directory.members(chat, "", 10)}
        assert (members[ben].role, members[ben].joined_sequence) == (Role.ADMIN, place.sequence)
        assert (members[ann].role, members[ann].joined_sequence) == (Role.OWNER, 0)


async def test_only_the_first_of_two_admins_removes_the_other(engine: Engine) -> None:
    """Two admins who remove each other in one batch cannot both succeed: a role is needed at the position."""
    async with engine.opened() as store:
        ann, ben, cem = await add_people(store, "ann", "ben", "cem")
        chat = await add_group(store, ann, ben, cem)
        await make(store, chat, ann, (ben, Role.OWNER), (cem, Role.OWNER))
        result = await store.log.append(
            [change(chat, ben, Action.REMOVED, cem), change(chat, cem, Action.REMOVED, ben)]
        )
        assert [told(one) for one in result.outcomes] == ["stored", "not_a_member"]
        assert await store.directory.role(chat, ben) is Role.OWNER
        assert await store.directory.role(chat, cem) is None


async def test_only_one_of_two_owners_removes_the_other_in_two_batches(engine: Engine) -> None:
    """The same holds when the removals arrive at once in batches of their own."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await make(store, chat, ann, (ben, Role.OWNER))
        outcomes = await asyncio.gather(
            outcome(store, change(chat, ben, Action.REMOVED, ann)),
            outcome(store, change(chat, ann, Action.REMOVED, ben)),
        )
        assert sorted(told(one) for one in outcomes) == ["not_a_member", "stored"]


@pytest.mark.parametrize("action", [Action.LEFT, Action.REMOVED, Action.ROLE])
async def test_the_last_owner_stays(engine: Engine, action: Action) -> None:
    """A group never loses its last owner, also when two owners go in one batch."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await make(store, chat, ann, (ben, Role.OWNER))
        result = await store.log.append([change(chat, ann, action, ann), change(chat, ben, action, ben)])
        assert [told(one) for one in result.outcomes] == ["stored", "forbidden"]
        assert await store.directory.role(chat, ben) is Role.OWNER


async def test_a_lost_role_counts_at_once(engine: Engine) -> None:
    """An admin who is made a member in a batch cannot remove anybody later in it."""
    async with engine.opened() as store:
        ann, ben, cem = await add_people(store, "ann", "ben", "cem")
        chat = await add_group(store, ann, ben, cem)
        await make(store, chat, ann, (ben, Role.ADMIN))
        result = await store.log.append(
            [change(chat, ann, Action.ROLE, ben, Role.MEMBER), change(chat, ben, Action.REMOVED, cem)]
        )
        assert [told(one) for one in result.outcomes] == ["stored", "forbidden"]
        assert await store.directory.role(chat, cem) is Role.MEMBER


async def test_a_refused_change_changes_nothing(engine: Engine) -> None:
    """A member who may not rename, remove, add or promote leaves the chat as it was."""
    async with engine.opened() as store:
        ann, ben, cem = await add_people(store, "ann", "ben", "cem")
        chat = await add_group(store, ann, ben)
        before = await store.directory.chat(chat), await store.directory.members(chat, "", 10)
        for draft in (
            rename(chat, ben, "mine"),
            change(chat, ben, Action.REMOVED, ann),
            change(chat, ben, Action.JOINED, cem),
            change(chat, ben, Action.ROLE, ben, Role.OWNER),
        ):
            assert await code_of(store, draft) == "forbidden"
        assert (await store.directory.chat(chat), await store.directory.members(chat, "", 10)) == before
        assert await read_all(store, chat) == []


async def test_a_stranger_leaves_no_trace(engine: Engine) -> None:
    """Drafts of somebody outside, changes too, take no number and leave no void."""
    async with engine.opened() as store:
        ann, eve = await add_people(store, "ann", "eve")
        chat = await add_group(store, ann)
        for draft in (message(chat, eve), rename(chat, eve, "x"), change(chat, eve, Action.REMOVED, ann)):
            assert await code_of(store, draft) == "not_a_member"
        assert (store.counter(chat), (await store.log.read(chat, 0, 10)).voids) == (0, [])


async def test_nobody_joins_twice(engine: Engine) -> None:
    """Adding a member again is refused, in another batch and in the same one."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann)
        draft = change(chat, ann, Action.JOINED, ben)
        result = await store.log.append([draft, draft])
        assert [told(one) for one in result.outcomes] == ["stored", "bad_request"]
        assert await code_of(store, draft) == "bad_request"


async def test_nobody_unknown_joins(engine: Engine) -> None:
    """A person who does not exist cannot be added."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        assert await code_of(store, change(chat, ann, Action.JOINED, "user_unknown")) == "not_found"
        assert await store.directory.member_count(chat) == 1


async def test_an_open_group_is_joined_alone(engine: Engine) -> None:
    """Anybody joins an open group as a member, and only as that; a closed one lets nobody in."""
    async with engine.opened() as store:
        ann, ben, cem = await add_people(store, "ann", "ben", "cem")
        opened, closed = await add_group(store, ann, open_to_join=True), await add_group(store, ann)
        assert told(await outcome(store, change(opened, ben, Action.JOINED, ben))) == "stored"
        assert await code_of(store, change(opened, cem, Action.JOINED, cem, Role.ADMIN)) == "not_a_member"
        assert await code_of(store, change(closed, cem, Action.JOINED, cem)) == "not_a_member"


async def test_coming_back_after_leaving_works(engine: Engine) -> None:
    """Who left and was added again writes and is listed again."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await store.log.append(
            [
                change(chat, ben, Action.LEFT, ben),
                change(chat, ann, Action.JOINED, ben),
                message(chat, ben, "back"),
            ]
        )
        assert contents(await read_all(store, chat))[-1] == "back"
        assert await store.directory.chat_ids_of(ben) == [chat]


async def test_a_direct_chat_keeps_its_people(engine: Engine) -> None:
    """Nobody joins, leaves or renames a direct chat."""
    async with engine.opened() as store:
        ann, ben, cem = await add_people(store, "ann", "ben", "cem")
        chat, _ = await store.directory.create_chat(new_chat(store, ann, ChatType.DIRECT), [ben])
        for draft in (
            change(chat.chat_id, ann, Action.JOINED, cem),
            change(chat.chat_id, ben, Action.LEFT, ben),
            rename(chat.chat_id, ann, "us"),
        ):
            assert await code_of(store, draft) == "bad_request"


async def test_a_rename_is_seen_with_its_entry(engine: Engine) -> None:
    """The title changes in the transaction of the entry that says so."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        store.clock.advance(5_000)
        place = await stored(store, rename(chat, ann, "new \0 title"))
        found = await store.directory.chat(chat)
        assert found is not None
        assert (found.title, found.updated_at) == ("new \0 title", place.created_at)
        assert [entry.kind for entry in await read_all(store, chat)] == ["chat"]


async def test_a_foreign_removal_counts_with_the_next_draft(engine: Engine) -> None:
    """A member whom another program took out of the store cannot send any more."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await stored(store, message(chat, ben))
        store.remove_member(chat, ben)
        assert await code_of(store, message(chat, ben)) == "not_a_member"


async def make(store: OpenStore, chat: str, owner: str, *roles: tuple[str, Role]) -> None:
    """Give people their roles."""
    for person, role in roles:
        await stored(store, change(chat, owner, Action.ROLE, person, role))
