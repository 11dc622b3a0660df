"""The `Directory` port."""

import asyncio

import pytest
from msgspec.structs import replace

from parley.errors import Refused
from parley.model import Action, ChatType, ReadReceipts, Role
from tests.contracts.acting import (
    add_direct,
    add_group,
    add_people,
    change,
    code_of,
    listed,
    message,
    new_chat,
    outcome,
    show_receipts,
    stored,
    told,
)
from tests.contracts.engines import Engine


async def test_a_chat_is_created_with_everything_it_needs(engine: Engine) -> None:
    """Record, counter, members and roles are there when creating returns, and after a restart."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat, created = await store.directory.create_chat(new_chat(store, ann), [ben])
        for _ in range(2):
            assert (created, await store.directory.chat(chat.chat_id)) == (True, chat)
            assert await store.directory.role(chat.chat_id, ann) is Role.OWNER
            assert await store.directory.role(chat.chat_id, ben) is Role.MEMBER
            assert (await store.directory.member_count(chat.chat_id), store.counter(chat.chat_id)) == (2, 0)
            await store.reopen()


async def test_creating_appends_nothing(engine: Engine) -> None:
    """A new chat's log is empty."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        assert (await store.log.read(chat, 0, 10)).head == 0


async def test_naming_somebody_twice_makes_one_member(engine: Engine) -> None:
    """The creator and repeated names count once."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben, ann, ben)
        assert await store.directory.member_count(chat) == 2


async def test_a_chat_with_somebody_unknown_is_not_created(engine: Engine) -> None:
    """All or nothing: an unknown member refuses the whole chat."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = new_chat(store, ann)
        with pytest.raises(Refused) as refused:
            await store.directory.create_chat(chat, [ben, "user_unknown"])
        assert refused.value.refusal.code == "not_found"
        assert await store.directory.chat(chat.chat_id) is None
        assert (await store.directory.chat_ids_of(ben), store.counter(chat.chat_id)) == ([], None)
        assert (await listed(store, ben, None))[0] == []


async def test_a_refused_chat_fails_none_of_its_neighbours(engine: Engine) -> None:
    """Appends and chats that share a transaction with a refused one are kept and visible."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        other = new_chat(store, ann)
        results = await asyncio.gather(
            outcome(store, message(chat, ann, "before")),
            store.directory.create_chat(new_chat(store, ann), ["user_unknown"]),
            outcome(store, message(chat, ann, "after")),
            store.directory.create_chat(other, []),
            return_exceptions=True,
        )
        assert isinstance(results[1], Refused)
        assert (await store.log.heads([chat]))[chat].sequence == 2
        assert len((await store.log.read(chat, 0, 10)).entries) == 2
        assert await store.directory.chat(other.chat_id) == other


async def test_a_direct_chat_of_two_people_is_one_chat(engine: Engine) -> None:
    """Whoever of the two asks, and whenever, the same chat is returned."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        first, created = await store.directory.create_chat(new_chat(store, ann, ChatType.DIRECT), [ben])
        again, created_again = await store.directory.create_chat(new_chat(store, ben, ChatType.DIRECT), [ann])
        assert (created, created_again) == (True, False)
        assert again == first


async def test_a_direct_chat_created_at_once_by_both_is_one_chat(engine: Engine) -> None:
    """Concurrent requests of both people agree on one chat."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        made = await asyncio.gather(
            *(
                store.directory.create_chat(new_chat(store, one, ChatType.DIRECT), [other])
                for one, other in [(ann, ben), (ben, ann)] * 5
            )
        )
        assert len({chat.chat_id for chat, _ in made}) == 1
        assert [created for _, created in made].count(True) == 1


async def test_groups_of_the_same_people_are_different_chats(engine: Engine) -> None:
    """Only direct chats are shared."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        assert await add_group(store, ann, ben) != await add_group(store, ann, ben)


async def test_members_come_in_pages(engine: Engine) -> None:
    """Members are listed in the order of their ids, each once, page after page."""
    async with engine.opened() as store:
        people = await add_people(store, *(f"p{n}" for n in range(7)))
        chat = await add_group(store, *people)
        after, seen = "", list[str]()
        while page := await store.directory.members(chat, after, 3):
            seen += [member.user_id for member in page]
            after = seen[-1]
        assert seen == sorted(people)


async def test_unknown_chats_and_people_have_nothing(engine: Engine) -> None:
    """Every question about what does not exist has an empty answer."""
    async with engine.opened() as store:
        assert await store.directory.chat("chat_unknown") is None
        assert await store.directory.role("chat_unknown", "user_unknown") is None
        assert await store.directory.members("chat_unknown", "", 10) == []
        assert await store.directory.member_count("chat_unknown") == 0
        assert await store.directory.chat_ids_of("user_unknown") == []


async def test_chats_of_a_person_are_those_of_this_moment(engine: Engine) -> None:
    """Joining and leaving show at once in the list of a person's chats."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        one, two = await add_group(store, ann, ben), await add_group(store, ann)
        assert await store.directory.chat_ids_of(ben) == [one]
        await stored(store, change(two, ann, Action.JOINED, ben))
        await stored(store, change(one, ben, Action.LEFT, ben))
        assert await store.directory.chat_ids_of(ben) == [two]


async def test_titles_are_kept_letter_by_letter(engine: Engine) -> None:
    """A title with U+0000 and emoji is found again as it was."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = new_chat(store, ann)
        odd = type(chat)(
            chat.chat_id, chat.chat_type, "a\0b 👩‍👧", ann, chat.created_at, chat.updated_at, chat.epoch
        )
        await store.directory.create_chat(odd, [])
        await store.reopen()
        assert await store.directory.chat(chat.chat_id) == odd


@pytest.mark.parametrize("said", ReadReceipts)
async def test_a_chat_says_what_it_tells_of_readers(engine: Engine, said: ReadReceipts) -> None:
    """How much is told of who has read is kept from the start, and after every change of it."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        kept = replace(new_chat(store, ann), read_receipts=said)
        await store.directory.create_chat(kept, [])
        chat = await add_group(store, ann)
        store.clock.advance(1_000)
        before = await store.directory.chat(chat)
        assert before is not None
        place = await stored(store, show_receipts(chat, ann, said))
        for _ in range(2):
            assert await store.directory.chat(kept.chat_id) == kept
            found = await store.directory.chat(chat)
            assert found == replace(before, read_receipts=said, updated_at=place.created_at)
            await store.reopen()


async def test_who_may_say_what_a_chat_tells_of_readers(engine: Engine) -> None:
    """In a group its admins and owners, in a direct chat both people; a refusal changes nothing."""
    async with engine.opened() as store:
        ann, ben, cem = await add_people(store, "ann", "ben", "cem")
        group, direct = await add_group(store, ann, ben), await add_direct(store, ann, ben)
        assert await code_of(store, show_receipts(group, ben, ReadReceipts.NONE)) == "forbidden"
        assert await code_of(store, show_receipts(direct, cem, ReadReceipts.NONE)) == "not_a_member"
        for chat in (group, direct):
            found = await store.directory.chat(chat)
            assert found is not None
            assert found.read_receipts is ReadReceipts.FULL
        await stored(store, show_receipts(direct, ben, ReadReceipts.SIMPLE))
        await stored(store, show_receipts(direct, ann, ReadReceipts.NONE))
        await stored(store, change(group, ann, Action.ROLE, ben, Role.ADMIN))
        await stored(store, show_receipts(group, ben, ReadReceipts.NONE))


async def test_a_chat_is_usable_as_soon_as_it_is_created(engine: Engine) -> None:
    """Members write right after creation has returned."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        assert [told(await outcome(store, message(chat, who))) for who in (ann, ben)] == ["stored", "stored"]
