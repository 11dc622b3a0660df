"""What a block forbids: who is blocked neither opens nor writes the direct chat, whatever is under way."""

import asyncio

import pytest

from parley import ids
from parley.errors import BLOCKED, Refused
from parley.model import ChatType, Draft, Outcome, ReadReceipts
from tests.contracts.acting import (
    add_contact,
    add_direct,
    add_group,
    add_people,
    block,
    code_of,
    contents,
    head_of,
    message,
    new_chat,
    new_id,
    outcome,
    read_all,
    said,
    show_receipts,
    stored,
    told,
    unblock,
)
from tests.contracts.engines import Engine, OpenStore


async def test_who_is_blocked_cannot_write(engine: Engine) -> None:
    """Messages and changes of the blocked one are refused and leave nothing, also after a restart."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_direct(store, ann, ben)
        await said(store, chat, ben, "before")
        await block(store, ann, ben)
        for _ in range(2):
            assert await outcome(store, message(chat, ben)) == BLOCKED
            assert await code_of(store, show_receipts(chat, ben, ReadReceipts.NONE)) == "blocked"
            await store.reopen()
        assert contents(await read_all(store, chat)) == ["before"]
        assert (await head_of(store, chat), store.breaches()) == (1, [])


async def test_who_is_blocked_stays_so_from_try_to_try(engine: Engine) -> None:
    """A refusal makes nobody a member again: the next message, right after it, is refused as well."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_direct(store, ann, ben)
        await block(store, ann, ben)
        assert [await code_of(store, message(chat, ben)) for _ in range(3)] == ["blocked"] * 3


async def test_a_block_before_the_first_message_counts(engine: Engine) -> None:
    """Nobody has to have written for a block to hold."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_direct(store, ben, ann)
        await block(store, ann, ben)
        assert await code_of(store, message(chat, ben)) == "blocked"


async def test_who_blocks_may_still_write(engine: Engine) -> None:
    """A block is one-sided: it hinders only the other."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_direct(store, ann, ben)
        await block(store, ann, ben)
        outcomes = (await store.log.append([message(chat, who) for who in (ann, ben, ann, ben)])).outcomes
        assert [told(one) for one in outcomes] == ["stored", "blocked", "stored", "blocked"]


async def test_other_chats_stay_as_they_are(engine: Engine) -> None:
    """A group of the two, and what the blocked one has with others, is not touched."""
    async with engine.opened() as store:
        ann, ben, cem = await add_people(store, "ann", "ben", "cem")
        group, other = await add_group(store, ann, ben), await add_direct(store, ben, cem)
        own = await add_direct(store, cem, ann)
        await block(store, ann, ben)
        drafts = [message(group, ben), message(other, ben), message(own, cem)]
        assert [told(await outcome(store, draft)) for draft in drafts] == ["stored"] * 3


async def test_contacts_write_to_each_other(engine: Engine) -> None:
    """Whoever is held as a contact, and not blocked, opens and writes as anybody."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        await add_contact(store, ann, ben)
        chat = await add_direct(store, ben, ann)
        await add_contact(store, ben, ann)
        for _ in range(2):
            drafts = [message(chat, who) for who in (ann, ben)]
            assert [told(await outcome(store, draft)) for draft in drafts] == ["stored", "stored"]
            await store.reopen()
        await block(store, ann, ben)
        await unblock(store, ann, ben)
        await said(store, chat, ben, "still a contact")


async def test_unblocking_restores(engine: Engine) -> None:
    """After the block has ended the other writes and opens as before, also when it was repeated."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_direct(store, ann, ben)
        for _ in range(2):
            await block(store, ann, ben)
        assert await code_of(store, message(chat, ben)) == "blocked"
        for _ in range(2):
            await unblock(store, ann, ben)
        await said(store, chat, ben, "again")
        assert await add_direct(store, ben, ann) == chat
        await store.reopen()
        await said(store, chat, ben, "and again")


async def test_each_ones_block_is_their_own(engine: Engine) -> None:
    """When both have blocked each other, each lets the other in alone."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_direct(store, ann, ben)
        await block(store, ann, ben)
        await block(store, ben, ann)
        assert [await code_of(store, message(chat, who)) for who in (ann, ben)] == ["blocked", "blocked"]
        await unblock(store, ann, ben)
        assert [told(await outcome(store, message(chat, who))) for who in (ann, ben)] == ["blocked", "stored"]


async def test_a_retry_of_what_is_stored_is_answered(engine: Engine) -> None:
    """The original is told to its sender, although they were blocked since."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat, client_id = await add_direct(store, ann, ben), new_id()
        first = await stored(store, message(chat, ben, client_id=client_id))
        await block(store, ann, ben)
        for _ in range(2):
            again = await stored(store, message(chat, ben, client_id=client_id))
            assert (again.deduplicated, again.sequence, again.message_id) == (True, 1, first.message_id)
            await store.reopen()


async def test_a_retry_of_what_was_refused_is_stored_after_the_block(engine: Engine) -> None:
    """A refused message has left no trace of its id."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat, client_id = await add_direct(store, ann, ben), new_id()
        await block(store, ann, ben)
        assert await code_of(store, message(chat, ben, client_id=client_id)) == "blocked"
        await unblock(store, ann, ben)
        assert not (await stored(store, message(chat, ben, client_id=client_id))).deduplicated


# Opening


async def opening(store: OpenStore, creator: str, other: str) -> str:
    """What comes of opening the direct chat: `created`, `there`, or the code of the refusal."""
    try:
        _, created = await store.directory.create_chat(new_chat(store, creator, ChatType.DIRECT), [other])
    except Refused as refused:
        return refused.refusal.code
    return "created" if created else "there"


async def test_who_is_blocked_cannot_open_the_chat(engine: Engine) -> None:
    """Neither a new direct chat nor the one that exists is given to the blocked one."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        await block(store, ann, ben)
        assert await opening(store, ben, ann) == "blocked"
        assert await store.directory.chat_ids_of(ben) == []
        assert [await opening(store, ann, ben) for _ in range(2)] == ["created", "there"]
        assert await opening(store, ben, ann) == "blocked"
        await unblock(store, ann, ben)
        assert await opening(store, ben, ann) == "there"


async def test_a_block_holds_in_a_chat_that_is_opened_later(engine: Engine) -> None:
    """The blocker opens the chat, and the other cannot answer until unblocked."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        await block(store, ann, ben)
        chat = await add_direct(store, ann, ben)
        for _ in range(2):
            assert [told(await outcome(store, message(chat, who))) for who in (ann, ben)] == [
                "stored",
                "blocked",
            ]
            await store.reopen()
        await unblock(store, ann, ben)
        await said(store, chat, ben, "at last")


async def test_a_block_ends_no_group(engine: Engine) -> None:
    """Who is in a group with a person whom they block later stays there, and both go on writing."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ben, ann)
        await block(store, ann, ben)
        await said(store, chat, ben, "hello")


async def test_opening_at_once_with_a_block_is_one_or_the_other(engine: Engine) -> None:
    """Whichever comes first, after both the blocked one cannot write."""
    async with engine.opened() as store:
        for number in range(5):
            ann, ben = await add_people(store, f"ann{number}", f"ben{number}")
            opened, _ = await asyncio.gather(opening(store, ben, ann), block(store, ann, ben))
            assert opened in ("created", "blocked")
            chat = await add_direct(store, ann, ben)
            assert await code_of(store, message(chat, ben)) == "blocked"


# Under way


@pytest.mark.parametrize("turns_before", [0, 1, 3, 10, 30])
async def test_nothing_is_stored_after_the_block(engine: Engine, turns_before: int) -> None:
    """Once the block is answered, no message of the blocked one is added, also none that was under way."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_direct(store, ann, ben)
        drafts = [message(chat, ben) for _ in range(40)]
        sending = asyncio.create_task(send_at_once(store, drafts))
        for _ in range(turns_before):
            await asyncio.sleep(0)
        await block(store, ann, ben)
        there = await keys_stored(store, chat, drafts)
        outcomes = await sending
        assert {told(one) for one in outcomes} <= {"stored", "blocked"}
        assert [told(one) for one in outcomes].count("stored") == len(there)
        assert await keys_stored(store, chat, drafts) == there
        assert await code_of(store, message(chat, ben)) == "blocked"


async def test_blocks_and_messages_take_turns(engine: Engine) -> None:
    """However often it changes, what was answered before a message is sent decides about it."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_direct(store, ann, ben)
        for _ in range(5):
            await asyncio.gather(block(store, ann, ben), said(store, chat, ann, "noise"))
            assert await code_of(store, message(chat, ben)) == "blocked"
            await asyncio.gather(unblock(store, ann, ben), said(store, chat, ann, "noise"))
            assert told(await outcome(store, message(chat, ben))) == "stored"


async def send_at_once(store: OpenStore, drafts: list[Draft]) -> list[Outcome]:
    return await asyncio.gather(*(outcome(store, draft) for draft in drafts))


async def keys_stored(store: OpenStore, chat: str, drafts: list[Draft]) -> set[str]:
    """The client ids of those drafts that are in the log."""
    found = set()
    for draft in drafts:
        assert draft.client_message_id is not None
        if await store.log.find_key(chat, ids.client_key(draft.client_message_id) or b""):
            found.add(draft.client_message_id)
    return found
