"""Reading a chat in which a tenth of the messages were edited or deleted, against one without."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import cast
from uuid import uuid4

from bench import frames
from bench.connection import connect
from bench.measuring import NS_PER_MS
from bench.roles import Load, OnePage
from bench.rows import Row, ratio_row
from bench.stage import Stage
from bench.world import Person, World
from parley.bodies.writer import EntryWriter
from parley.clock import wall_clock
from parley.model import Draft, Kind, Outcome
from parley.records.amendments import Amendments
from parley.records.chat_settings import SettingsOfChats
from parley.sending.answers import Done
from parley.sending.message_actions import MessageActions
from parley.sending.sender import Sender
from parley.store.sqlite.store import SqliteStore
from parley.wire.codec import decode_entry
from parley.wire.frames import RequestId

ENTRIES = 20_000
EVERY = 10
PAGE_ENTRIES = 1_000
TURNS = 20
DELETES_TIMED = 20
CONTENT = "y" * 128


class StraightSender(Sender):
    """Each draft is an append of its own."""

    def __init__(self, store: SqliteStore) -> None:
        self._log = store.log

    def submit(self, draft: Draft, request_id: RequestId, done: Done) -> None:
        raise AssertionError("whoever amends waits for the answer")

    async def send_all(self, drafts: Sequence[Draft], heard: Done | None = None) -> list[Outcome]:
        return (await self._log.append(drafts)).outcomes


class Unscrubbed(EntryWriter):
    """Leaves files as they are: a store is filled, nobody waits for what is gone."""

    async def scrub(self, traces: Sequence[bytes] | None = None) -> None:
        """Not now."""


def _life(store: SqliteStore, writer: type[EntryWriter] = EntryWriter) -> MessageActions:
    sender = StraightSender(store)
    return MessageActions(
        log=store.log,
        directory=store.directory,
        sender=sender,
        amendments=Amendments(store.records),
        settings=SettingsOfChats(store.records),
        bodies=writer(store.log, store.entries, None),
        clock=wall_clock,
    )


async def amended(stage: Stage) -> list[Row]:
    """Pages of the same size from both chats, in turn; and how long a delete takes in such a file."""
    entries = stage.pick(ENTRIES, ENTRIES // 4)
    delete_ms: list[float] = []

    async def populate(world: World) -> tuple[Person, str, str]:
        store = cast(SqliteStore, world.store)
        (person,) = await world.people(1)
        plain, changed = await world.group([person]), await world.group([person])
        for chat_id in (plain, changed):
            await world.fill(chat_id, person, entries)
        await _change(_life(store, Unscrubbed), store, changed, person, range(1, entries, EVERY))
        life = _life(store)
        for at in range(EVERY // 2, EVERY // 2 + DELETES_TIMED * EVERY, EVERY):
            began = time.perf_counter_ns()
            await _amend(life, store, changed, person, at, Kind.DELETE)
            delete_ms.append((time.perf_counter_ns() - began) / NS_PER_MS)
        return person, plain, changed

    async with stage.serving(populate) as (server, (person, plain, changed)):
        size_mb = stage.database.stat().st_size / 1e6
        hello = frames.hello(person.token, person.device_id, live=False)
        pagers = [OnePage(Load(), chat_id, PAGE_ENTRIES) for chat_id in (plain, changed)]
        for pager in pagers:
            await connect(server.address, hello, pager)
        times: tuple[list[int], list[int]] = ([], [])
        for turn in range(TURNS * entries // PAGE_ENTRIES):
            after = turn * PAGE_ENTRIES % entries
            for pager, taken in zip(pagers, times, strict=True):
                taken.append(await pager.page(after))
        for pager in pagers:
            pager.load.running = False
    without, with_changes = statistics.median(times[0]), statistics.median(times[1])
    label = f"pages of {PAGE_ENTRIES:,}: every tenth message edited or deleted, against none"
    notes = [
        f"medians {without / NS_PER_MS:.2f} ms without, {with_changes / NS_PER_MS:.2f} ms with",
        f"a delete took {statistics.median(delete_ms):.1f} ms (median) in a file of {size_mb:.0f} MB",
    ]
    return [ratio_row("amended", label, without / with_changes, notes)]


async def _change(
    life: MessageActions, store: SqliteStore, chat_id: str, person: Person, places: range
) -> None:
    for number, at in enumerate(places):
        await _amend(life, store, chat_id, person, at, Kind.DELETE if number % 2 else Kind.EDIT)


async def _amend(
    life: MessageActions, store: SqliteStore, chat_id: str, person: Person, at: int, kind: Kind
) -> None:
    client_id = uuid4()
    page = await store.log.read(chat_id, at - 1, 1)
    draft = Draft(
        chat_id=chat_id,
        sender_id=person.user_id,
        content=CONTENT if kind is Kind.EDIT else "",
        client_message_id=str(client_id),
        client_key=client_id.bytes,
        kind=kind.value,
        target_id=decode_entry(page.entries[0]).message_id,
    )
    await life.send(draft)
