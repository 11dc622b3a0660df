"""`Listing`: what commands show, asked by an engine that was never opened."""

import pytest
from msgspec import structs

from parley.clock import iso
from parley.model import Action, ChatType, Role, Session, User
from parley.records.listing import Listing
from parley.store import ports
from parley.store.rows import ListedChat, ListedMember, ListedUser
from parley.store.rules import SAME_TITLE_MAX
from tests.contracts.acting import add_direct, add_group, add_people, change, new_chat, rename, said, stored
from tests.contracts.engines import Engine, OpenStore

NOBODY = ["", "zoe", "user_00000000000000000000000000", "x" * 3000, "\ud800", "user\x1fa"]
"""Names that mean nothing, some of which no key of a table could be."""


def listing_of(store: OpenStore, operator: ports.Engine) -> Listing:
    return Listing(operator, store.clock)


async def add_session(store: OpenStore, user_id: str, name: str, expires_at_ms: int) -> None:
    now = store.clock()
    session = Session(f"ses_{name}", user_id, name, name, now, now, expires_at_ms)
    await store.sessions.add(session, name.encode())


async def add_titled(store: OpenStore, owner: str, title: str | None, *others: str) -> str:
    chat = structs.replace(new_chat(store, owner), title=title)
    return (await store.directory.create_chat(chat, list(others)))[0].chat_id


async def found(store: OpenStore, name: str) -> list[str]:
    """The chats that a name may mean."""
    async with store.operator() as engine:
        return [chat.chat_id for chat in await listing_of(store, engine).find_chats(name)]


# Users


async def test_an_empty_store_lists_nothing(engine: Engine) -> None:
    """Without people and chats every list is empty."""
    async with engine.opened() as store, store.operator() as operator:
        assert (
            await listing_of(store, operator).users(),
            await listing_of(store, operator).chats(),
        ) == ([], [])


async def test_users_are_listed_by_name(engine: Engine, pages_of_two: None) -> None:
    """Every user is listed once, in the order of the names, over as many pages as it takes."""
    async with engine.opened() as store:
        await add_people(store, "dan", "ben", "eva", "ann", "cas")
        async with store.operator() as operator:
            assert [user.username for user in await listing_of(store, operator).users()] == [
                "ann",
                "ben",
                "cas",
                "dan",
                "eva",
            ]


async def test_a_user_is_listed_as_stored(engine: Engine) -> None:
    """Name, rights and the time are those of the account."""
    async with engine.opened() as store:
        now = iso(store.clock())
        await store.accounts.add_user(User("user_ann", "ann", "Ann B.", "about", True, now), "hash")
        async with store.operator() as operator:
            (ann,) = await listing_of(store, operator).users()
        assert ann == ListedUser("user_ann", "ann", "Ann B.", True, "active", now, 0, 0)


async def test_a_user_is_listed_with_counts(engine: Engine, pages_of_two: None) -> None:
    """Chats that the user left and sessions that have run out do not count."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        group, _, _ = [await add_group(store, ann, ben) for _ in range(3)]
        await stored(store, change(group, ann, Action.REMOVED, ben))
        for name, left_ms in (("phone", 1), ("tablet", 1), ("laptop", 0), ("watch", -1)):
            await add_session(store, ben, name, store.clock() + left_ms)
        async with store.operator() as operator:
            listed = {
                user.user_id: (user.chats, user.sessions)
                for user in await listing_of(store, operator).users()
            }
        assert listed == {ann: (3, 0), ben: (2, 2)}


async def test_a_user_is_found_by_name_and_by_id(engine: Engine) -> None:
    """Both mean the same person."""
    async with engine.opened() as store:
        _, ben = await add_people(store, "ann", "ben")
        async with store.operator() as operator:
            assert [await listing_of(store, operator).user_id_of(name) for name in ("ben", ben)] == [
                ben,
                ben,
            ]


@pytest.mark.parametrize("name", NOBODY, ids=repr)
async def test_a_name_of_nobody_finds_nobody(engine: Engine, name: str) -> None:
    """An unknown name is no error, whatever was typed."""
    async with engine.opened() as store:
        await add_people(store, "ann")
        async with store.operator() as operator:
            listing = listing_of(store, operator)
            assert await listing.user_id_of(name) is None
            assert (await listing.find_chats(name), await listing.chats(name)) == ([], [])
            assert await listing.members(name) == []


# Chats


async def test_chats_are_listed_oldest_first(engine: Engine, pages_of_two: None) -> None:
    """The time of its creation orders a chat, also when the clock was set back between two of them."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        made = []
        for step in (0, 3_000, 3_000, -5_000, 2_000):
            store.clock.set(store.clock() + step)
            made.append(await add_group(store, ann, ben))
        async with store.operator() as operator:
            expected = [made[place] for place in (0, 3, 1, 4, 2)]
            assert [chat.chat_id for chat in await listing_of(store, operator).chats()] == expected
            assert [chat.chat_id for chat in await listing_of(store, operator).chats(ben)] == expected


async def test_a_group_is_listed_as_it_is_now(engine: Engine) -> None:
    """Title, size and counter are those after the last change."""
    async with engine.opened() as store:
        ann, ben, cas = await add_people(store, "ann", "ben", "cas")
        created_at = iso(store.clock())
        group = await add_group(store, ann, ben, cas)
        await stored(store, rename(group, ann, "Tea"))
        await stored(store, change(group, ann, Action.REMOVED, cas))
        async with store.operator() as operator:
            assert await listing_of(store, operator).chats() == [
                ListedChat(group, "group", "Tea", 2, 2, created_at)
            ]


async def test_a_direct_chat_is_titled_by_its_people(engine: Engine) -> None:
    """Who is in it stands in place of a title, in the order of the names."""
    async with engine.opened() as store:
        ben, ann = await add_people(store, "ben", "ann")
        created_at, direct = iso(store.clock()), await add_direct(store, ben, ann)
        async with store.operator() as operator:
            assert await listing_of(store, operator).chats() == [
                ListedChat(direct, "direct", "ann, ben", 2, 0, created_at)
            ]


async def test_only_the_chats_of_a_person_are_listed(engine: Engine, pages_of_two: None) -> None:
    """Those that the person is in now, and no others."""
    async with engine.opened() as store:
        ann, ben, cas = await add_people(store, "ann", "ben", "cas")
        left = await add_group(store, ann, ben)
        staying = [await add_group(store, ann, ben) for _ in range(3)]
        await add_group(store, ann, cas)
        await stored(store, change(left, ann, Action.REMOVED, ben))
        async with store.operator() as operator:
            assert [chat.chat_id for chat in await listing_of(store, operator).chats(ben)] == staying


async def test_a_lost_counter_shows(engine: Engine) -> None:
    """A chat without its counter is listed, and says so."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        group = await add_group(store, ann)
        await said(store, group, ann, "one")
        store.set_counter(group, None)
        async with store.operator() as operator:
            (chat,) = await listing_of(store, operator).chats()
        assert (chat.chat_id, chat.sequence_counter) == (group, None)


# Names of chats


async def test_a_chat_is_found_by_its_id(engine: Engine) -> None:
    """An id means one chat, even if it is also a title."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        group = await add_titled(store, ann, "Tea")
        await add_titled(store, ann, group)
        assert await found(store, group) == [group]


@pytest.mark.parametrize("typed", ["Grüner Tee", "grüner tee", "GRÜNER TEE"])
async def test_a_chat_is_found_by_its_title(engine: Engine, typed: str) -> None:
    """Capital letters do not matter, in any alphabet."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        group = await add_titled(store, ann, "Grüner Tee")
        await add_titled(store, ann, "Grüner Tee?")
        assert await found(store, typed) == [group]


async def test_all_chats_of_one_title_are_found(engine: Engine, pages_of_two: None) -> None:
    """A title may mean several chats: those that it may mean come oldest first."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        groups = []
        for title in ("Tea", "Coffee", "tea", "Tea"):
            groups.append(await add_titled(store, ann, title))
            store.clock.advance(1000)
        assert await found(store, "Tea") == [groups[0], groups[2], groups[3]]


async def test_no_more_chats_of_one_title_are_found_than_a_person_reads(engine: Engine) -> None:
    """A title that very many chats have finds some of them."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        for _ in range(SAME_TITLE_MAX + 1):
            await add_titled(store, ann, "Tea")
        assert len(await found(store, "Tea")) == SAME_TITLE_MAX


async def test_a_chat_without_a_title_is_found_by_no_title(engine: Engine) -> None:
    """An empty name is not the title of groups that have none."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        await add_titled(store, ann, None)
        assert (await found(store, ""), await found(store, "None")) == ([], [])


@pytest.mark.parametrize("typed", ["ann,ben", "ben, ann", " ben ,ann "])
async def test_a_direct_chat_is_found_by_its_people(engine: Engine, typed: str) -> None:
    """Two names with a comma between them mean their direct chat, in either order."""
    async with engine.opened() as store:
        ann, ben, cas = await add_people(store, "ann", "ben", "cas")
        await add_direct(store, ann, cas)
        direct = await add_direct(store, ann, ben)
        assert await found(store, typed) == [direct]


async def test_a_direct_chat_is_found_by_the_ids_of_its_people(engine: Engine) -> None:
    """Wherever a username may stand, an id may stand."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        direct = await add_direct(store, ann, ben)
        assert await found(store, f"{ben},ann") == [direct]


@pytest.mark.parametrize("typed", ["ann,cas", "ann,zoe", "ann,ann", "ann,", ",", "ann", "ann,ben,cas"])
async def test_two_names_without_a_direct_chat_find_nothing(engine: Engine, typed: str) -> None:
    """People who have no direct chat, and names of nobody, find none."""
    async with engine.opened() as store:
        ann, ben, _ = await add_people(store, "ann", "ben", "cas")
        await add_direct(store, ann, ben)
        assert await found(store, typed) == []


async def test_a_title_comes_before_two_names(engine: Engine) -> None:
    """A group that is called like two people is found in place of their direct chat."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        await add_direct(store, ann, ben)
        group = await add_titled(store, ann, "ann,ben")
        assert await found(store, "ann,ben") == [group]


# Members


async def test_members_are_listed_as_they_joined(engine: Engine, pages_of_two: None) -> None:
    """In the order of their joining; those who came together, by name."""
    async with engine.opened() as store:
        eva, dan, cas, ben, ann = await add_people(store, "eva", "dan", "cas", "ben", "ann")
        group = await add_group(store, dan, eva, cas)
        for person in (ben, ann):
            await stored(store, change(group, dan, Action.JOINED, person))
        await stored(store, change(group, dan, Action.REMOVED, eva))
        async with store.operator() as operator:
            members = await listing_of(store, operator).members(group)
        assert [(member.username, member.joined_sequence) for member in members] == [
            ("cas", 0),
            ("dan", 0),
            ("ben", 1),
            ("ann", 2),
        ]


async def test_a_member_is_listed_with_positions(engine: Engine) -> None:
    """Role, time and how far the member has received and read."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        now, group = iso(store.clock()), await add_group(store, ann, ben)
        await said(store, group, ann, "one", "two", "three")
        store.cursors.note_acked(ben, "phone", group, 3, store.clock())
        store.cursors.note_read(ben, group, 2, store.clock())
        await store.cursors.flush()
        async with store.operator() as operator:
            members = await listing_of(store, operator).members(group)
        assert members == [
            ListedMember(ann, "ann", Role.OWNER.value, now, 0, 0, 0),
            ListedMember(ben, "ben", Role.MEMBER.value, now, 0, 3, 2),
        ]


async def test_a_member_without_an_account_is_listed(engine: Engine) -> None:
    """A broken row is shown, without a name, and before those who joined with it."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        group = await add_group(store, ann, ben)
        store.rows.delete_user(ben)
        async with store.operator() as operator:
            members = await listing_of(store, operator).members(group)
        assert [(member.user_id, member.username) for member in members] == [(ben, None), (ann, "ann")]


async def test_a_direct_chat_of_a_lost_account_is_listed(engine: Engine) -> None:
    """The title names those who are left."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        await add_direct(store, ann, ben)
        store.rows.delete_user(ben)
        async with store.operator() as operator:
            assert [(chat.type, chat.title) for chat in await listing_of(store, operator).chats()] == [
                (ChatType.DIRECT.value, "ann")
            ]


async def test_listing_writes_nothing(engine: Engine) -> None:
    """Whatever is asked, everything in the store is as before."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        group = await add_group(store, ann, ben)
        store.set_counter(group, None)
        before = store.rows.everything()
        async with store.operator() as operator:
            listing = listing_of(store, operator)
            await listing.users()
            await listing.user_id_of("ben")
            await listing.chats()
            await listing.find_chats("group")
            await listing.members(group)
        assert store.rows.everything() == before
