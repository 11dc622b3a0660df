"""`Log.seal`: a number that was taken and abandoned becomes a void, and readers go on."""

import asyncio
import contextlib
from collections.abc import Awaitable
from pathlib import Path

import apsw
import pytest

from parley.model import Action
from parley.store.sqlite.log import SEAL_AFTER_MS
from tests.contracts.acting import (
    add_group,
    add_people,
    change,
    contents,
    head_of,
    listed,
    message,
    position_of,
    read_all,
    said,
    sequences,
    stored,
    told,
)
from tests.contracts.engines import Engine, SqliteEngine


async def test_nothing_open_is_nothing_to_seal(engine: Engine) -> None:
    """Sealing a healthy log does nothing."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "a")
        store.clock.advance(SEAL_AFTER_MS * 10)
        assert await store.log.seal() == []
        assert (await store.log.read(chat, 0, 10)).voids == []


async def test_an_abandoned_number_is_sealed_after_its_delay(sqlite: SqliteEngine) -> None:
    """Readers stop before an open number until it is old enough, then step over a void."""
    async with sqlite.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "a")
        store.abandon(chat, 2, store.clock())
        store.clock.advance(SEAL_AFTER_MS - 1)
        assert await store.log.seal() == []
        store.clock.advance(1)
        (news,) = await store.log.seal()
        assert [(at.sequence, at.wire) for at in news.positions] == [(2, None)]
        page = await store.log.read(chat, 0, 10)
        assert (page.head, page.to_sequence, page.voids) == (2, 2, [2])


async def test_a_message_after_an_abandoned_number_seals_it(engine: Engine) -> None:
    """What is acknowledged is seen at once: a number that nobody will write is sealed before it."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "a")
        store.abandon(chat, 2, store.clock())
        assert (await stored(store, message(chat, ann, "b"))).sequence == 3
        assert (await head_of(store, chat), sequences(await read_all(store, chat))) == (3, [1, 3])
        assert (await position_of(store, ann, chat)).head == 3


async def test_sealing_shows_in_the_overview(sqlite: SqliteEngine) -> None:
    """A chat whose head moved because a number was sealed counts as changed."""
    async with sqlite.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await stored(store, message(chat, ann))
        store.abandon(chat, 2, store.clock())
        _, token = await listed(store, ann, None)
        store.clock.advance(SEAL_AFTER_MS)
        await store.log.seal()
        assert (await listed(store, ann, token))[0] == [chat]


@pytest.mark.parametrize("age_ms", [0, -86_400_000])
async def test_a_restart_seals_at_once_whatever_the_clock_says(sqlite: SqliteEngine, age_ms: int) -> None:
    """After a crash nobody is left to write an open number, even if the clock has stepped back since."""
    async with sqlite.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "a")
        store.abandon(chat, 2, store.clock() - age_ms)
        await store.reopen()
        page = await store.log.read(chat, 0, 10)
        assert (page.head, page.voids) == (2, [2])


class Gate:
    """Keeps the first batch that has taken its numbers until it is let through."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self._used = False

    def __call__(self, label: str) -> Awaitable[None] | None:
        if label != "after_allocate" or self._used:
            return None
        self._used = True
        self.reached.set()
        return self._wait()

    async def _wait(self) -> None:
        await self.opened.wait()


@pytest.fixture
def two_phase(tmp_path: Path) -> SqliteEngine:
    return SqliteEngine("two_phase", tmp_path)


async def test_a_draft_overtaken_while_it_waits_is_stored_at_its_number(two_phase: SqliteEngine) -> None:
    """Who took 1 and is slow still writes at 1, and nobody reads 2 before that."""
    gate = Gate()
    async with two_phase.opened(fault_point=gate) as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        slow = asyncio.create_task(stored(store, message(chat, ann, "slow")))
        await gate.reached.wait()
        assert (await stored(store, message(chat, ann, "quick"))).sequence == 2
        assert (await head_of(store, chat), await read_all(store, chat)) == (0, [])
        gate.opened.set()
        assert (await slow).sequence == 1
        assert contents(await read_all(store, chat)) == ["slow", "quick"]


async def test_a_draft_whose_number_was_sealed_takes_another(two_phase: SqliteEngine) -> None:
    """A number is written once: who comes after the seal is stored at a new one, exactly once."""
    gate = Gate()
    async with two_phase.opened(fault_point=gate) as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        draft = message(chat, ann, "slow")
        slow = asyncio.create_task(stored(store, draft))
        await gate.reached.wait()
        store.clock.advance(SEAL_AFTER_MS)
        await store.log.seal()
        gate.opened.set()
        place = await slow
        page = await store.log.read(chat, 0, 10)
        assert (place.sequence, page.voids, page.head) == (2, [1], 2)
        assert told(await stored(store, draft)) == "deduplicated"


async def test_a_retry_overtakes_its_held_original(two_phase: SqliteEngine) -> None:
    """The retry of a held draft is stored once; the original leaves a void and is answered with the retry."""
    gate = Gate()
    async with two_phase.opened(fault_point=gate) as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        draft = message(chat, ann, "once")
        slow = asyncio.create_task(stored(store, draft))
        await gate.reached.wait()
        retry = await stored(store, draft)
        gate.opened.set()
        original = await slow
        assert (original.sequence, original.deduplicated) == (retry.sequence, True) == (2, True)
        page = await store.log.read(chat, 0, 10)
        assert (page.voids, page.head, len(page.entries)) == ([1], 2, 1)


async def test_a_removal_while_a_draft_waits_counts(two_phase: SqliteEngine) -> None:
    """Membership is decided when the entry is written, not when its number was taken."""
    gate = Gate()
    async with two_phase.opened(fault_point=gate) as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        slow = asyncio.create_task(store.log.append([message(chat, ben, "late")]))
        await gate.reached.wait()
        await stored(store, change(chat, ann, Action.REMOVED, ben))
        gate.opened.set()
        assert [told(one) for one in (await slow).outcomes] == ["not_a_member"]
        page = await store.log.read(chat, 0, 10)
        assert (page.voids, page.head) == ([1], 2)


async def test_a_removal_never_stands_before_what_was_decided_without_it(two_phase: SqliteEngine) -> None:
    """A change that was overtaken gives its number up: nobody has a message behind his own removal."""
    gate = Gate()
    async with two_phase.opened(fault_point=gate) as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        removal = asyncio.create_task(stored(store, change(chat, ann, Action.REMOVED, ben)))
        await gate.reached.wait()
        message_place = await stored(store, message(chat, ben, "before"))
        gate.opened.set()
        removal_place = await removal
        assert (message_place.sequence, removal_place.sequence) == (2, 3)
        page = await store.log.read(chat, 0, 10)
        assert (page.voids, page.head) == ([1], 3)


async def test_what_was_written_before_a_failure_is_answered_as_written(
    two_phase: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If only a part of a batch must be written again and that fails, the rest is still acknowledged."""
    monkeypatch.setattr("parley.store.sqlite.writer.BUSY_SECONDS_MAX", 0.05)
    gate, locks = Gate(), contextlib.ExitStack()

    def hold(label: str) -> Awaitable[None] | None:
        if label == "after_allocate" and gate.opened.is_set():
            other = locks.enter_context(contextlib.closing(apsw.Connection(str(two_phase.path))))
            other.execute("BEGIN IMMEDIATE")
        return gate(label)

    async with two_phase.opened(fault_point=hold) as store:
        (ann,) = await add_people(store, "ann")
        kept, lost = await add_group(store, ann), await add_group(store, ann)
        sending = asyncio.create_task(
            store.log.append([message(kept, ann, "kept"), message(lost, ann, "lost")])
        )
        await gate.reached.wait()
        store.foreign(
            "UPDATE open_allocations SET allocated_at_ms = 0"
            " WHERE chat_no = (SELECT chat_no FROM chats WHERE chat_id = ?)",
            (lost,),
        )
        await store.log.seal()
        gate.opened.set()
        result = await sending
        locks.close()
        assert [told(one) for one in result.outcomes] == ["stored", "store_unavailable"]
        assert kept in {news.chat_id for news in result.persisted}
        assert contents(await read_all(store, lost)) == []
