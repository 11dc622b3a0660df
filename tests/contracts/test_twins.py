"""`Log.append`: drafts of one id in one batch, and chains of drafts that name what comes before them."""

import pytest

from parley.model import Appended
from tests.contracts.acting import (
    add_group,
    add_people,
    code_of,
    contents,
    message,
    new_id,
    read_all,
    said,
    stored,
    told,
)
from tests.contracts.engines import Engine


@pytest.mark.parametrize("is_first_new", [True, False])
async def test_twins_in_one_batch_are_answered_with_the_place_of_the_first(
    engine: Engine, is_first_new: bool
) -> None:
    """Every answer names the one position, id and time at which the message is stored."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        draft = message(chat, ann, "twice")
        if not is_first_new:
            await stored(store, draft)
            store.clock.advance(60_000)
        batch = [
            message(chat, ann, "a"),
            draft,
            message(chat, ann, "b"),
            draft,
            message(chat, ann, "c"),
            draft,
        ]
        outcomes = (await store.log.append(batch)).outcomes
        (entry,) = [entry for entry in await read_all(store, chat) if entry.content == "twice"]
        place = entry.sequence, entry.message_id, entry.created_at, entry.epoch
        twins = [one for one in outcomes[1::2] if isinstance(one, Appended)]
        assert [(one.sequence, one.message_id, one.created_at, one.epoch) for one in twins] == [place] * 3


async def test_twins_do_not_move_their_neighbours(engine: Engine) -> None:
    """What stands between and behind twins is answered with the position where it is read."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        draft = message(chat, ann, "twice")
        batch = [draft, draft, message(chat, ann, "a"), draft, message(chat, ann, "b")]
        outcomes = (await store.log.append(batch)).outcomes
        found = {entry.content: entry.sequence for entry in await read_all(store, chat)}
        places = [one.sequence for one in outcomes if isinstance(one, Appended)]
        assert places == [found[one.content] for one in batch]


async def test_a_chain_goes_on_from_batch_to_batch(engine: Engine) -> None:
    """Each draft may name the last one of the batch before as its predecessor."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        chain = [message(chat, ann, "0")]
        for number in range(1, 6):
            chain.append(message(chat, ann, f"{number}", after=chain[-1].client_message_id or ""))
        outcomes = []
        for start in range(0, len(chain), 2):
            outcomes += (await store.log.append(chain[start : start + 2])).outcomes
        assert [told(one) for one in outcomes] == ["stored"] * 6
        assert contents(await read_all(store, chat)) == ["0", "1", "2", "3", "4", "5"]


async def test_who_has_just_sent_is_out_of_turn_all_the_same(engine: Engine) -> None:
    """Another message of the sender is no predecessor, neither in the batch nor stored just before."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "before")
        early = message(chat, ann, "early", after=new_id())
        assert await code_of(store, early) == "out_of_turn"
        result = await store.log.append([message(chat, ann, "beside"), early])
        assert [told(one) for one in result.outcomes] == ["stored", "out_of_turn"]


async def test_a_predecessor_later_in_the_batch_is_too_late(engine: Engine) -> None:
    """A draft that stands before the one it follows is refused, and its predecessor stored."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        first = message(chat, ann, "first")
        second = message(chat, ann, "second", after=first.client_message_id or "")
        result = await store.log.append([second, first])
        assert [told(one) for one in result.outcomes] == ["out_of_turn", "stored"]
        assert contents(await read_all(store, chat)) == ["first"]
