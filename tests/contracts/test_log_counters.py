"""The counter of a chat: what happens when another program has touched it."""

import pytest

from tests.contracts.acting import (
    add_group,
    add_people,
    code_of,
    contents,
    entries_of,
    head_of,
    message,
    outcome,
    position_of,
    read_all,
    resolved,
    said,
    sequences,
    stored,
)
from tests.contracts.engines import Engine, OpenStore


async def test_a_new_chat_has_its_counter_at_zero(engine: Engine) -> None:
    """Creating a chat creates its counter, and the first message is number 1."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        assert store.counter(chat) == 0
        assert (await stored(store, message(chat, ann))).sequence == 1
        assert store.counter(chat) == 1


async def test_without_its_counter_a_chat_takes_nothing(engine: Engine) -> None:
    """A missing counter refuses the send, allocates nothing, and is not put back."""
    async with engine.opened() as store:
        ann, chat = await written(store, 3)
        store.set_counter(chat, None)
        refused = await outcome(store, message(chat, ann))
        assert (getattr(refused, "code", ""), getattr(refused, "temporary", None)) == (
            "counter_missing",
            True,
        )
        assert store.counter(chat) is None
        assert sequences(await read_all(store, chat)) == [1, 2, 3]


async def test_reading_needs_no_counter(engine: Engine) -> None:
    """Pages, heads and the overview are as before when the counter is gone, also after a restart."""
    async with engine.opened() as store:
        ann, chat = await written(store, 3)
        store.set_counter(chat, None)
        for _ in range(2):
            assert await head_of(store, chat) == 3
            assert sequences(await read_all(store, chat)) == [1, 2, 3]
            assert sequences(entries_of(await store.log.read_before(chat, 3, 10))) == [1, 2]
            assert (await position_of(store, ann, chat)).head == 3
            await store.reopen()


async def test_other_chats_go_on_without_it(engine: Engine) -> None:
    """A chat without a counter does not fail its neighbours in the same batch."""
    async with engine.opened() as store:
        ann, broken = await written(store, 3)
        healthy = await add_group(store, ann)
        store.set_counter(broken, None)
        result = await store.log.append([message(broken, ann), message(healthy, ann)])
        assert [getattr(one, "code", "stored") for one in result.outcomes] == ["counter_missing", "stored"]


async def test_a_counter_that_is_put_back_serves_again(engine: Engine) -> None:
    """After the repair the next message takes the next number, without a restart."""
    async with engine.opened() as store:
        ann, chat = await written(store, 3)
        store.set_counter(chat, None)
        await code_of(store, message(chat, ann))
        store.set_counter(chat, 3)
        assert (await stored(store, message(chat, ann))).sequence == 4
        assert store.counter(chat) == 4


async def test_a_counter_behind_its_log_takes_nothing(engine: Engine) -> None:
    """A counter below the last entry is inconsistent: nothing is written over what is there."""
    async with engine.opened() as store:
        ann, chat = await written(store, 5)
        store.set_counter(chat, 2)
        refused = await outcome(store, message(chat, ann))
        assert getattr(refused, "code", "") == "counter_inconsistent"
        assert "value 2 but max message sequence is 5" in getattr(refused, "reason", "")
        assert (await head_of(store, chat), len(await read_all(store, chat))) == (5, 5)
        assert (await position_of(store, ann, chat)).head == 5


async def test_a_counter_ahead_of_its_log_leaves_voids(engine: Engine) -> None:
    """Numbers that the counter gave away are sealed with the next message, which comes after them."""
    async with engine.opened() as store:
        ann, chat = await written(store, 2)
        store.set_counter(chat, 5)
        assert (await stored(store, message(chat, ann, "after"))).sequence == 6
        page = await store.log.read(chat, 0, 10)
        assert (page.voids, resolved(page), page.head) == ([3, 4, 5], [1, 2, 3, 4, 5, 6], 6)


async def test_numbers_given_away_are_not_yet_resolved(engine: Engine) -> None:
    """Until they are sealed, neither the head nor the overview steps over them."""
    async with engine.opened() as store:
        ann, chat = await written(store, 2)
        store.set_counter(chat, 5)
        await store.reopen()
        page = await store.log.read(chat, 0, 10)
        at = await position_of(store, ann, chat)
        assert (page.head, await head_of(store, chat), at.head) in {(2, 2, 2), (5, 5, 5)}


async def test_a_counter_far_ahead_is_a_mistake(engine: Engine) -> None:
    """A counter that jumped by millions is refused instead of filled with voids."""
    async with engine.opened() as store:
        ann, chat = await written(store, 2)
        store.set_counter(chat, 5_000_000)
        assert await code_of(store, message(chat, ann)) == "counter_inconsistent"
        assert await head_of(store, chat) == 2


@pytest.mark.parametrize("counter", [None, 1, 9])
async def test_a_foreign_write_is_noticed_by_the_next_append(engine: Engine, counter: int | None) -> None:
    """What was remembered of a chat never hides what another program did to its counter."""
    async with engine.opened() as store:
        ann, chat = await written(store, 2)
        store.set_counter(chat, counter)
        answered = await outcome(store, message(chat, ann, "probe"))
        expected = {None: "counter_missing", 1: "counter_inconsistent", 9: "stored"}[counter]
        assert getattr(answered, "code", "stored") == expected
        assert ("probe" in contents(await read_all(store, chat))) == (expected == "stored")


async def test_a_counter_one_behind_its_log_takes_nothing(engine: Engine) -> None:
    """The smallest step back is one too many: its number would be given twice."""
    async with engine.opened() as store:
        ann, chat = await written(store, 2)
        store.set_counter(chat, 1)
        await store.reopen()
        assert await code_of(store, message(chat, ann)) == "counter_inconsistent"
        assert contents(await read_all(store, chat)) == ["0", "1"]


@pytest.mark.parametrize(("ahead", "code"), [(3, "stored"), (4, "counter_inconsistent")])
async def test_a_counter_may_be_ahead_up_to_a_limit(
    engine: Engine, ahead: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many voids as a crash can leave are made, and not one more."""
    for module in ("parley.store.rules", "parley.store.two_phase"):
        monkeypatch.setattr(f"{module}.STRAY_POSITIONS_MAX", 3)
    async with engine.opened() as store:
        ann, chat = await written(store, 2)
        store.set_counter(chat, 2 + ahead)
        answered = await outcome(store, message(chat, ann))
        assert getattr(answered, "code", "stored") == code


async def written(store: OpenStore, messages: int) -> tuple[str, str]:
    """A person, and their chat with so many messages."""
    (ann,) = await add_people(store, "ann")
    chat = await add_group(store, ann)
    await said(store, chat, ann, *(f"{n}" for n in range(messages)))
    return ann, chat
