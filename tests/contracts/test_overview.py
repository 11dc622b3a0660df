"""`Overviews.changed`: what changed for a user, exactly, page by page, and nothing acknowledged is missed."""

import asyncio

import pytest

from parley.errors import Refused
from parley.model import Action, ReadReceipts, Role
from parley.store.rules import NEWEST
from tests.contracts.acting import (
    add_group,
    add_people,
    change,
    head_of,
    listed,
    message,
    position_of,
    rename,
    said,
    show_receipts,
    stored,
)
from tests.contracts.engines import Engine, OpenStore, SqliteEngine


async def test_without_a_token_every_chat_is_listed(engine: Engine) -> None:
    """All chats of a person are there, empty ones too, and nobody else's."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        empty, busy = await add_group(store, ann), await add_group(store, ann, ben)
        await add_group(store, ben)
        await said(store, busy, ben, "hi")
        assert sorted((await listed(store, ann, None))[0]) == sorted([empty, busy])


async def test_the_newest_come_first(engine: Engine) -> None:
    """By their last entries, an empty chat by its creation, and what becomes newer is not missed."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chats = []
        for _ in range(5):
            store.clock.advance(1_000)
            chats.append(await add_group(store, ann, ben))
        for chat in (chats[3], chats[0], chats[1]):  # 2 and 4 stay empty
            store.clock.advance(1_000)
            await said(store, chat, ben, "hi")
        left = await add_group(store, ben, ann)
        await stored(store, change(left, ann, Action.LEFT, ann))
        store.clock.advance(1_000)
        await stored(store, rename(chats[0], ann, "Old"))  # an entry, too
        await store.member_states.mute(ann, chats[2], "2999-01-01T00:00:00.000Z")
        newest = [chats[0], chats[1], chats[3], chats[4], chats[2]]
        whole = await store.overviews.changed(ann, "phone", NEWEST, 10)
        assert ([at.chat_id for at in whole.positions], whole.complete) == (newest, True)
        assert [at.head for at in whole.positions] == [2, 1, 1, 0, 0]
        page = await store.overviews.changed(ann, "phone", NEWEST, 2)
        assert ([at.chat_id for at in page.positions], page.complete) == (newest[:2], False)
        store.clock.advance(1_000)
        await said(store, chats[2], ben, "news")
        seen = list(page.positions)
        while not page.complete:
            page = await store.overviews.changed(ann, "phone", page.token, 2)
            seen += page.positions
        rest, _ = await listed(store, ann, page.token)
        assert {at.chat_id for at in seen} | set(rest) == set(newest)
        assert [at.head for at in seen if at.chat_id == chats[2]] in ([1], [])
        assert (chats[2] in rest) != (chats[2] in {at.chat_id for at in seen})


async def test_who_has_no_chats_gets_an_empty_complete_answer(engine: Engine) -> None:
    """An empty overview is complete and its token is good."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        changed = await store.overviews.changed(ann, "phone", None, 10)
        assert (changed.positions, changed.complete) == ([], True)
        assert (await listed(store, ann, changed.token))[0] == []


async def test_nothing_is_listed_when_nothing_changed(engine: Engine) -> None:
    """The token of a complete overview lists nothing until something happens, also after a restart."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat, foreign = await add_group(store, ann), await add_group(store, ben)
        await said(store, chat, ann, "1", "2")
        _, token = await listed(store, ann, None)
        await said(store, foreign, ben, "elsewhere")
        await store.reopen()
        assert (await listed(store, ann, token))[0] == []


async def test_exactly_what_changed_is_listed(engine: Engine) -> None:
    """A new message lists its chat and no other."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chats = [await add_group(store, ann) for _ in range(5)]
        _, token = await listed(store, ann, None)
        await said(store, chats[3], ann, "news")
        await said(store, chats[1], ann, "more news")
        assert sorted((await listed(store, ann, token))[0]) == sorted([chats[3], chats[1]])


@pytest.mark.parametrize(
    "what", ["message", "acked", "read", "joined", "left", "renamed", "created", "role", "receipts"]
)
async def test_every_kind_of_change_counts(engine: Engine, what: str) -> None:
    """Messages, positions, people, titles, roles and new chats all show after the token."""
    async with engine.opened() as store:
        ann, ben, cem = await add_people(store, "ann", "ben", "cem")
        chat = await add_group(store, ann, ben)
        await said(store, chat, ann, "1", "2")
        _, token = await listed(store, ben, None)
        match what:
            case "message":
                await said(store, chat, ann, "3")
            case "acked":
                store.cursors.note_acked(ben, "phone", chat, 2, store.clock())
            case "read":
                store.cursors.note_read(ben, chat, 2, store.clock())
            case "joined":
                await stored(store, change(chat, ann, Action.JOINED, cem))
            case "left":
                await stored(store, change(chat, ben, Action.LEFT, ben))
            case "renamed":
                await stored(store, rename(chat, ann, "new"))
            case "created":
                chat = await add_group(store, ann, ben)
            case "role":
                await stored(store, change(chat, ann, Action.ROLE, ben, Role.ADMIN))
            case "receipts":
                await stored(store, show_receipts(chat, ann, ReadReceipts.NONE))
        await store.cursors.flush()
        assert (await listed(store, ben, token))[0] == [chat]


async def test_a_position_that_does_not_rise_is_no_change(engine: Engine) -> None:
    """Acknowledging or reading again what was, or less, lists nothing."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "1", "2", "3")
        store.cursors.note_acked(ann, "phone", chat, 3, store.clock())
        store.cursors.note_read(ann, chat, 2, store.clock())
        await store.cursors.flush()
        _, token = await listed(store, ann, None)
        for sequence in (3, 2, 1):
            store.cursors.note_acked(ann, "phone", chat, sequence, store.clock())
            store.cursors.note_read(ann, chat, min(sequence, 2), store.clock())
            await store.cursors.flush()
        assert (await listed(store, ann, token))[0] == []


async def test_a_left_chat_is_told_once(engine: Engine) -> None:
    """Removal shows after the token as `left`; a fresh overview does not list the chat at all."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        _, token = await listed(store, ben, None)
        await stored(store, change(chat, ann, Action.REMOVED, ben))
        changed = await store.overviews.changed(ben, "phone", token, 10)
        assert [(at.chat_id, at.left, at.unread) for at in changed.positions] == [(chat, True, 0)]
        await said(store, chat, ann, "after")
        assert (await listed(store, ben, changed.token))[0] == []
        assert (await listed(store, ben, None))[0] == []


async def test_a_left_chat_tells_nothing_of_what_came_after(engine: Engine) -> None:
    """Who was removed sees the head at that moment, however often the old token is asked again."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        _, token = await listed(store, ben, None)
        await said(store, chat, ann, "1", "2")
        place = await stored(store, change(chat, ann, Action.REMOVED, ben))
        await said(store, chat, ann, "secret", "secret")
        (at,) = (await store.overviews.changed(ben, "phone", token, 10)).positions
        assert (at.left, at.head) == (True, place.sequence)


async def test_a_chat_joined_again_is_listed_as_usual(engine: Engine) -> None:
    """Coming back undoes `left`."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await stored(store, change(chat, ben, Action.LEFT, ben))
        _, token = await listed(store, ben, None)
        await stored(store, change(chat, ann, Action.JOINED, ben))
        (at,) = (await store.overviews.changed(ben, "phone", token, 10)).positions
        assert (at.chat_id, at.left, at.head) == (chat, False, 2)


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
async def test_pages_list_every_chat_once(engine: Engine, limit: int) -> None:
    """Chats that changed in one commit are split over pages without loss or repetition."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chats = [await add_group(store, ann) for _ in range(7)]
        await store.log.append([message(chat, ann) for chat in chats])
        seen, pages = await all_pages(store, ann, None, limit)
        assert sorted(seen) == sorted(chats)
        assert pages == -(-len(chats) // limit)


async def test_a_page_that_ends_exactly_is_complete(engine: Engine) -> None:
    """No empty last page follows a full one."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        for _ in range(4):
            await add_group(store, ann)
        first = await store.overviews.changed(ann, "phone", None, 2)
        second = await store.overviews.changed(ann, "phone", first.token, 2)
        assert (first.complete, second.complete, len(second.positions)) == (False, True, 2)


async def test_a_message_between_pages_is_not_missed(engine: Engine) -> None:
    """A chat that was listed on an early page and changes before the last one is listed again."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chats = [await add_group(store, ann) for _ in range(4)]
        page = await store.overviews.changed(ann, "phone", None, 2)
        await said(store, page.positions[0].chat_id, ann, "between")
        seen, _ = await all_pages(store, ann, page.token, 2)
        assert sorted(seen) == sorted({*chats[2:], page.positions[0].chat_id})


async def test_a_batch_that_was_planned_twice_hides_nothing(engine: Engine) -> None:
    """A batch with a change and a retry in it counts as one change, and the next commit as a later one."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        first, second, third = [await add_group(store, ann) for _ in range(3)]
        retried = message(second, ann)
        await stored(store, retried)
        _, token = await listed(store, ann, None)
        await store.log.append([change(second, ann, Action.JOINED, ben), retried, message(third, ann)])
        page = await store.overviews.changed(ann, "phone", token, 1)
        assert ([at.chat_id for at in page.positions], page.complete) == ([second], False)
        await said(store, first, ann, "acknowledged before the next page")
        seen, _ = await all_pages(store, ann, page.token, 1)
        assert sorted(seen) == sorted([third, first])


async def test_nothing_acknowledged_before_the_request_is_missed(engine: Engine) -> None:
    """Under concurrent writers, each ack is covered by every overview that is asked for after it."""
    async with engine.opened() as store:
        people = await add_people(store, "ann", *(f"p{n}" for n in range(4)))
        chats = [await add_group(store, *people) for _ in range(4)]
        heads = dict.fromkeys(chats, 0)

        async def write(writer: str, chat: str) -> None:
            for _ in range(15):
                place = await stored(store, message(chat, writer))
                heads[chat] = max(heads[chat], place.sequence)

        async def watch() -> None:
            token, known = None, dict.fromkeys(chats, 0)
            while any(head < 15 for head in known.values()):
                acknowledged = dict(heads)
                changed = await store.overviews.changed(people[0], "phone", token, 2)
                known |= {at.chat_id: at.head for at in changed.positions}
                token = changed.token
                if changed.complete:
                    assert all(known[chat] >= acknowledged[chat] for chat in chats)
                await asyncio.sleep(0)

        await asyncio.gather(watch(), *(write(*pair) for pair in zip(people[1:], chats, strict=True)))


async def test_a_chat_without_its_counter_is_not_missed(engine: Engine) -> None:
    """A message that was acknowledged before the counter was lost still shows after an older token."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        _, token = await listed(store, ann, None)
        await said(store, chat, ann, "acknowledged")
        store.set_counter(chat, None)
        changed = await store.overviews.changed(ann, "phone", token, 10)
        assert [(at.chat_id, at.head) for at in changed.positions] == [(chat, 1)]


async def test_a_number_sealed_without_its_counter_moves_every_head(sqlite: SqliteEngine) -> None:
    """The list and the log end at the same place, although nobody knows what was given away."""
    async with sqlite.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "1")
        store.abandon(chat, 2, store.clock())
        store.set_counter(chat, None)
        await store.reopen()
        assert ((await position_of(store, ann, chat)).head, await head_of(store, chat)) == (2, 2)
        assert (await store.log.read(chat, 1, 10)).voids == [2]


@pytest.mark.parametrize(
    "token", ["", ".", "1", "1.", ".1", "a.b", "-1.0", "1.0.0", "9" * 30 + ".1", "١.١", " 1.1"]
)
async def test_a_token_that_is_none_is_refused(engine: Engine, token: str) -> None:
    """What no overview has said is a bad request, never a failure."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        with pytest.raises(Refused) as refused:
            await store.overviews.changed(ann, "phone", token, 10)
        assert refused.value.refusal.code == "bad_request"


async def test_positions_are_those_of_the_asking_device(engine: Engine) -> None:
    """Each device finds its own cursor in the overview, and the person's reading position."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "1", "2", "3")
        store.cursors.note_acked(ann, "phone", chat, 3, store.clock())
        store.cursors.note_acked(ann, "tablet", chat, 1, store.clock())
        store.cursors.note_read(ann, chat, 2, store.clock())
        await store.cursors.flush()
        phone, tablet = [await position_of(store, ann, chat, device) for device in ("phone", "tablet")]
        assert (phone.last_acked_sequence, phone.read_up_to) == (3, 2)
        assert (tablet.last_acked_sequence, tablet.read_up_to) == (1, 2)


async def all_pages(store: OpenStore, user: str, token: str | None, limit: int) -> tuple[list[str], int]:
    """Every chat that is listed until the overview is complete, and the number of pages."""
    seen, pages = list[str](), 0
    while True:
        changed = await store.overviews.changed(user, "phone", token, limit)
        seen += [at.chat_id for at in changed.positions]
        pages, token = pages + 1, changed.token
        if changed.complete:
            return seen, pages
