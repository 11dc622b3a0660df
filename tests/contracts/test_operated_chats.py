"""What operators see of chats is composed of ports: it is the same on every engine."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import structs

from parley.chats.log_hasher import LogHasher
from parley.chats.operated_chats import OperatedChats
from parley.errors import ACCOUNT_DISABLED, FORBIDDEN
from parley.gateway.chat_finder import ChatFinder
from parley.gateway.engine_beside import EngineBeside
from parley.model import AccountState, Action, ChatType, Draft, PersonDevices
from parley.store import ports
from tests.contracts.acting import (
    add_direct,
    add_group,
    add_people,
    change,
    code_of,
    new_chat,
    rename,
    said,
    stored,
)
from tests.contracts.engines import Engine, OpenStore

T = TypeVar("T")


class Beside(EngineBeside):
    """An engine as a command has it, without a thread."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store

    async def ask(self, question: Callable[[ports.Engine], Awaitable[T]]) -> T:
        async with self._store.operator() as engine:
            return await question(engine)


def operated(store: OpenStore) -> OperatedChats:
    beside = Beside(store)

    async def counter_of(chat_id: str) -> int | None:
        return (await beside.ask(lambda engine: engine.repairs.remains(chat_id))).counter

    return OperatedChats(
        log=store.log,
        directory=store.directory,
        member_states=store.member_states,
        relations=store.relations,
        cursors=store.cursors,
        device_lists=store.kinds.device_lists,
        retentions=store.kinds.retentions,
        hasher=LogHasher(store.log, store.kinds.log_hashes, store.metrics),
        counter_of=counter_of,
    )


async def found(store: OpenStore, query: str, chat_type: ChatType | None, limit: int) -> list[str]:
    """The chats of all pages, in their order."""
    finder, chats, after = ChatFinder(Beside(store), store.directory, store.clock), list[str](), ""
    while True:
        page = await finder.find(query, chat_type, after, limit)
        chats += [chat.chat_id for chat in page.chats]
        if page.next_after is None:
            return chats
        after = page.next_after


async def test_chats_are_found(engine: Engine, pages_of_two: None) -> None:
    """The newest first, by type and by a part of the title, over as many pages as it takes."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        groups = []
        for title in ("Kitchen crew", "Lunch", "The kitchen sink"):
            store.clock.advance(1)
            chat = structs.replace(new_chat(store, ann), title=title)
            groups.append((await store.directory.create_chat(chat, [ben]))[0].chat_id)
        store.clock.advance(1)
        direct = await add_direct(store, ann, ben)
        for limit in (1, 3):
            assert await found(store, "", None, limit) == [direct, *groups[::-1]]
            assert await found(store, "kitchen", ChatType.GROUP, limit) == [groups[2], groups[0]]
        assert await found(store, "ann,ben", None, 2) == [direct]
        assert await found(store, groups[0], None, 2) == [groups[0]]
        assert await found(store, "ann,eve", None, 2) == []


async def test_a_chat_and_its_members_are_seen(engine: Engine) -> None:
    """Its head, counter and voids, and how far a member and each of their devices are."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await said(store, chat, ann, "one", "two", "three")
        store.cursors.note_acked(ben, "phone", chat, 2, store.clock())
        await store.cursors.flush()
        await store.kinds.device_lists.add(PersonDevices(ben, {"phone": 5}))
        chats = operated(store)
        state = await chats.state(chat)
        assert (state.head.sequence, state.counter, state.member_count) == (3, 3, 2)
        assert (state.counted.voids, state.counted.through) == (0, 3)
        assert state.last is not None
        assert state.last.sequence == 3
        page = await chats.members(chat, "", 10)
        by_id = {one.member.user_id: one for one in page.members}
        assert by_id[ben].settings.delivered_up_to == 2
        assert [(one.device_id, one.position) for one in by_id[ben].devices] == [("phone", 2)]
        assert by_id[ann].devices == []


async def test_a_log_is_read_around_a_position(engine: Engine) -> None:
    """By its number or by the id of a message; without either, its end."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_direct(store, ann, ben)
        entries = await said(store, chat, ann, *"abcdefgh")
        chats = operated(store)
        for around in (4, entries[3].message_id):
            page = await chats.log(chat, around, 3)
            assert (page.from_sequence, page.to_sequence) == (3, 5)
        assert (await chats.log(chat, None, 2)).from_sequence == 7


async def test_an_operator_acts_in_the_name_of_whoever_is_there(engine: Engine) -> None:
    """Neither a disabled account nor the rules of posting stand in the way; the last owner may be removed."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await store.account_admin.set_state(ann, AccountState.DISABLED, "")
        assert await code_of(store, rename(chat, ann, "mine")) == ACCOUNT_DISABLED.code
        assert (await stored(store, by_operator(rename(chat, ann, "kind")))).sequence == 1
        assert await code_of(store, change(chat, ben, Action.REMOVED, ann)) == FORBIDDEN.code
        last = by_operator(change(chat, ann, Action.REMOVED, ann))
        assert await code_of(store, last) == FORBIDDEN.code
        assert (await stored(store, by_operator(change(chat, ann, Action.REMOVED, ben)))).sequence == 2
        assert (await stored(store, last)).sequence == 3
        assert await store.directory.member_count(chat) == 0
        found = await store.directory.chat(chat)
        assert found is not None
        assert found.title == "kind"
        assert store.breaches() == []


def by_operator(draft: Draft) -> Draft:
    return structs.replace(draft, by_operator=True)
