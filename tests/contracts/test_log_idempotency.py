"""`Log.append`: the same client key returns the same position, to its sender alone."""

import asyncio

import pytest

from parley import ids
from parley.model import Action
from tests.contracts.acting import (
    add_group,
    add_people,
    change,
    code_of,
    contents,
    message,
    new_id,
    outcome,
    place,
    places,
    read_all,
    said,
    stored,
    told,
)
from tests.contracts.engines import Engine


async def test_a_draft_sent_twice_is_stored_once(engine: Engine) -> None:
    """A retry answers the original position and message id, and changes nothing."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        draft = message(chat, ann, "once")
        first = await stored(store, draft)
        store.clock.advance(60_000)
        again = await stored(store, draft)
        assert (first.deduplicated, again.deduplicated, again.conflict) == (False, True, False)
        assert (again.sequence, again.message_id, again.created_at) == (
            first.sequence,
            first.message_id,
            first.created_at,
        )
        assert contents(await read_all(store, chat)) == ["once"]


async def test_a_draft_twice_in_one_batch_is_stored_once(engine: Engine) -> None:
    """Twins in one batch are folded: the second is answered with the first."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        draft = message(chat, ann, "once")
        other = message(chat, ann, "other")
        result = await store.log.append([draft, other, draft, draft])
        assert [told(one) for one in result.outcomes] == ["stored", "stored", "deduplicated", "deduplicated"]
        once, other_place, *twins = map(place, result.outcomes)
        assert twins == [once, once]
        assert await places(store, chat) == {"once": once, "other": other_place}


async def test_a_draft_in_many_batches_at_once_is_stored_once(engine: Engine) -> None:
    """Concurrent retries agree on one position, and exactly one of them is new."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        draft = message(chat, ann, "once")
        answers = await asyncio.gather(*(stored(store, draft) for _ in range(20)))
        assert {place(answer) for answer in answers} == {(await places(store, chat))["once"]}
        assert [answer.deduplicated for answer in answers].count(False) == 1
        assert contents(await read_all(store, chat)) == ["once"]


@pytest.mark.parametrize("in_one_batch", [True, False])
async def test_other_content_under_the_same_id_is_a_conflict(engine: Engine, in_one_batch: bool) -> None:
    """A retry with other content is answered with the original, which is kept, and says so."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        draft = message(chat, ann, "original")
        other = message(chat, ann, "changed", draft.client_message_id or "")
        if in_one_batch:
            first, again = (await store.log.append([message(chat, ann), draft, other])).outcomes[1:]
        else:
            first, again = await outcome(store, draft), await outcome(store, other)
        assert (told(again), getattr(again, "conflict", None)) == ("deduplicated", True)
        assert place(again) == place(first) == (await places(store, chat))["original"]
        assert "changed" not in contents(await read_all(store, chat))


async def test_another_content_type_is_a_conflict(engine: Engine) -> None:
    """The kind of content belongs to the content."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        draft = message(chat, ann, "same")
        await stored(store, draft)
        draft.content_type = "text/markdown"
        assert (await stored(store, draft)).conflict


@pytest.mark.parametrize("in_one_batch", [True, False])
async def test_an_id_taken_by_another_member_is_refused(engine: Engine, in_one_batch: bool) -> None:
    """A second member under the same id is refused as duplicate_id and learns nothing more."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        hers = message(chat, ann, "secret of ann")
        his = message(chat, ben, "his", hers.client_message_id or "")
        if in_one_batch:
            refused = (await store.log.append([hers, his])).outcomes[1]
        else:
            await stored(store, hers)
            refused = await outcome(store, his)
        assert told(refused) == "duplicate_id"
        assert "secret" not in repr(refused)
        assert contents(await read_all(store, chat)) == ["secret of ann"]


@pytest.mark.parametrize("in_one_batch", [True, False])
async def test_a_stranger_does_not_learn_that_an_id_is_taken(engine: Engine, in_one_batch: bool) -> None:
    """To somebody outside, a taken id and a free one look the same."""
    async with engine.opened() as store:
        ann, eve = await add_people(store, "ann", "eve")
        chat = await add_group(store, ann)
        hers = message(chat, ann)
        guess = message(chat, eve, "guess", hers.client_message_id or "")
        if in_one_batch:
            refused = (await store.log.append([hers, guess])).outcomes[1]
        else:
            await stored(store, hers)
            refused = await outcome(store, guess)
        assert (
            refused
            == await outcome(store, message(chat, eve))
            == await outcome(store, message("chat_x", eve))
        )


async def test_a_retry_after_removal_answers_the_original(engine: Engine) -> None:
    """Who was removed still learns that the message had been stored, and cannot send another."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        draft = message(chat, ben, "stored before")
        first = await stored(store, draft)
        await stored(store, change(chat, ann, Action.REMOVED, ben))
        again = await stored(store, draft)
        assert (again.sequence, again.deduplicated) == (first.sequence, True)
        assert await code_of(store, message(chat, ben)) == "not_a_member"


async def test_a_retry_whose_sender_leaves_in_the_same_batch_answers_the_original(engine: Engine) -> None:
    """The order within a batch makes no difference to a message that is stored."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        draft = message(chat, ben, "stored before")
        first = await stored(store, draft)
        result = await store.log.append([change(chat, ann, Action.REMOVED, ben), draft, message(chat, ben)])
        assert [told(one) for one in result.outcomes] == ["stored", "deduplicated", "not_a_member"]
        assert place(result.outcomes[1]) == place(first)


async def test_a_retry_needs_no_counter(engine: Engine) -> None:
    """A stored message is still answered when the chat can take no new one."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        draft = message(chat, ann)
        first = await stored(store, draft)
        store.set_counter(chat, None)
        again = await stored(store, draft)
        assert (place(again), again.deduplicated) == (place(first), True)


async def test_a_retry_is_out_of_turn_no_more_once_stored(engine: Engine) -> None:
    """A stored message is answered even if the predecessor it names was never stored."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        draft = message(chat, ann)
        first = await stored(store, draft)
        retry = message(chat, ann, draft.content, draft.client_message_id or "", after=new_id())
        again = await stored(store, retry)
        assert (place(again), again.deduplicated) == (place(first), True)


async def test_the_same_id_in_two_chats_names_two_messages(engine: Engine) -> None:
    """Ids are unique per chat, not beyond."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        one, two = await add_group(store, ann), await add_group(store, ann)
        draft = message(one, ann)
        result = await store.log.append([draft, message(two, ann, client_id=draft.client_message_id or "")])
        assert [told(item) for item in result.outcomes] == ["stored", "stored"]


async def test_client_ids_match_in_any_letter_case(engine: Engine) -> None:
    """An id in capitals is the same id, and each entry keeps the letters it was sent with."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        small = "abcdefab-cdef-4bcd-abcd-abcdefabcdef"
        first = await stored(store, message(chat, ann, "x", small.upper()))
        again = await stored(store, message(chat, ann, "x", small))
        assert (again.sequence, again.deduplicated) == (first.sequence, True)
        assert [entry.client_message_id for entry in await read_all(store, chat)] == [small.upper()]


async def test_keys_outlive_seven_days_and_a_restart(engine: Engine) -> None:
    """A retry after a week and a restart still answers the original."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        draft = message(chat, ann)
        first = await stored(store, draft)
        store.clock.advance(7 * 86_400_000)
        await store.reopen()
        assert (await stored(store, draft)).message_id == first.message_id


async def test_a_retry_beside_new_messages_keeps_them_dense(engine: Engine) -> None:
    """New messages around a retry take successive numbers."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        old = message(chat, ann, "old")
        await stored(store, old)
        result = await store.log.append([message(chat, ann, "a"), old, message(chat, ann, "b")])
        assert contents(await read_all(store, chat)) == ["old", "a", "b"]
        found = await places(store, chat)
        assert [place(one) for one in result.outcomes] == [found["a"], found["old"], found["b"]]


async def test_a_twin_of_a_refused_draft_keeps_its_place(engine: Engine) -> None:
    """A draft whose brother was refused is stored in its own turn, before what came after it."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        client_id = new_id()
        result = await store.log.append(
            [
                message(chat, ann, "refused", client_id, after=new_id()),
                message(chat, ben, "first", client_id),
                message(chat, ann, "second"),
            ]
        )
        assert [told(one) for one in result.outcomes] == ["out_of_turn", "stored", "stored"]
        assert contents(await read_all(store, chat)) == ["first", "second"]


async def test_find_key_finds_the_entry(engine: Engine) -> None:
    """The entry of a client's id is found as it travels; an unknown id or chat finds nothing."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        draft = message(chat, ann)
        await stored(store, draft)
        key = draft.client_key or b""
        assert await store.log.find_key(chat, key) == (await store.log.read(chat, 0, 1)).entries[0]
        assert await store.log.find_key(chat, ids.client_key(new_id()) or b"") is None
        assert await store.log.find_key("chat_unknown", key) is None


async def test_find_message_finds_the_place(engine: Engine) -> None:
    """A message id leads to its chat and sequence; what is no id of ours leads nowhere."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        first, second = await said(store, chat, ann, "a", "b")
        assert await store.log.find_message(second.message_id, [chat]) == (chat, 2)
        for unknown in ("", "msg_", "msg_" + "0" * 26, first.message_id.lower(), "\0"):
            assert await store.log.find_message(unknown, [chat]) is None


async def test_find_message_looks_at_every_chat_for_operators(engine: Engine) -> None:
    """Without a list of chats a message is found in whichever it is."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chats = [await add_group(store, ann) for _ in range(3)]
        for chat in chats:
            (only,) = await said(store, chat, ann, "a")
            assert await store.log.find_message(only.message_id, None) == (chat, 1)
            assert (
                await store.log.find_message(only.message_id, [other for other in chats if other != chat])
                is None
            )
        for unknown in ("", "msg_", "msg_" + "0" * 26, "\0"):
            assert await store.log.find_message(unknown, None) is None
