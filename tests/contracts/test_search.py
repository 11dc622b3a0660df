"""Search over every engine: what it finds equals a naive scan of the log, whatever was done, and when."""

import random
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from parley.core.message_actions import tombstone
from parley.core.search import HitPlace, IndexBatch
from parley.errors import NOT_A_MEMBER, Refusal, Refused
from parley.model import Action, Kind, Relation
from parley.search.fts import FtsIndex
from parley.search.index import IndexPosition
from parley.search.indexer import SearchIndexer
from parley.search.service import LocalSearches, SearchService
from parley.wire.frames import Entry
from tests.contracts.acting import add_group, add_people, change, decode_entry, message, outcome, stored
from tests.contracts.cold_world import synced
from tests.contracts.engines import Engine, OpenStore
from tests.contracts.life_world import LifeWorld, delete, edit

STEPS = 40
SEED = 15
WORDS = ("apple", "apples", "Ärger", "北京", "don't", "x1")
QUERIES = (*WORDS, "app*", "är*", "北", "apple x1", "don t")


class SearchWorld:
    """A search index beside an engine."""

    def __init__(self, store: OpenStore, folder: Path) -> None:
        self.store = store
        self.index = FtsIndex(folder)
        self.indexer = SearchIndexer(store.log, self.index, store.metrics, self._chats)
        self.searches = LocalSearches(store.log, self.index, self.indexer)
        self.service = SearchService(self.searches, store.directory, store.relations)

    async def _chats(self) -> AsyncIterator[list[str]]:
        yield [row.chat_id async for rows in self.store.engine.inspection.chats(None) for row in rows]

    async def found(self, user_id: str, chat_id: str, text: str, limit: int = 3) -> list[int] | Refusal:
        """The positions of all hits, page by page."""
        before, found = 2**40, list[int]()
        try:
            while True:
                answer = await self.service.in_chat(user_id, chat_id, text, before, limit)
                found += [hit.place.sequence for hit in answer.hits]
                if answer.next is None:
                    return found
                before = answer.next.sequence
        except Refused as error:
            return error.refusal

    async def found_everywhere(self, user_id: str, text: str) -> set[tuple[str, int]]:
        before, found = "", set[tuple[str, int]]()
        while True:
            answer = await self.service.everywhere(user_id, text, before, 4)
            hits = {(hit.place.chat_id, hit.place.sequence) for hit in answer.hits}
            assert not hits & found
            found |= hits
            if answer.next is None:
                return found
            before = str(answer.next)


@asynccontextmanager
async def searching(store: OpenStore, folder: Path) -> AsyncIterator[SearchWorld]:
    world = SearchWorld(store, folder)
    await world.index.open()
    try:
        yield world
    finally:
        await world.index.close()


def words_of(text: str) -> list[str]:
    """A naive tokenizer: what this test writes, and no more."""
    plain = text.lower().replace("ä", "a")
    return re.findall(r"[a-z0-9]+|[一-鿿]", plain)


def matches(content: str, text: str) -> bool:
    words = words_of(content)
    for part in text.split():
        wanted = words_of(part)
        starts = range(len(words) - len(wanted) + 1)

        def fits(at: int, wanted: Sequence[str] = wanted, part: str = part) -> bool:
            *whole, last = words[at : at + len(wanted)]
            is_last = last.startswith(wanted[-1]) if part.endswith("*") else last == wanted[-1]
            return whole == wanted[:-1] and is_last

        if not any(map(fits, starts)):
            return False
    return True


async def scanned(store: OpenStore, chat_id: str, text: str, blocked: set[str]) -> list[int]:
    """What somebody finds who reads the whole log, the newest first."""
    entries = [decode_entry(wire) for _, wire in await synced(store.log, chat_id) if wire is not None]
    return [
        entry.sequence
        for entry in reversed(entries)
        if is_shown(entry) and entry.sender_id not in blocked and matches(entry.content, text)
    ]


def is_shown(entry: Entry) -> bool:
    return entry.kind == Kind.MESSAGE.value and entry.deleted is not True


async def test_what_is_found_is_what_a_scan_finds(engine: Engine, tmp_path: Path) -> None:
    """After any interleaving of sends, edits, deletes, changes of members, blocks, and passes of the job."""
    chance = random.Random(SEED)
    async with engine.opened() as store, searching(store, tmp_path / "index") as world:
        people = await add_people(store, "ann", "ben", "eve")
        chats = [await add_group(store, *people) for _ in range(2)]
        life = LifeWorld(store)
        sent: list[tuple[str, str, str]] = []
        members = {chat: set(people) for chat in chats}
        blocked: dict[str, set[str]] = {person: set() for person in people}
        for _ in range(STEPS):
            who, chat = chance.choice(people), chance.choice(chats)
            match chance.randrange(12):
                case 0 if who != people[0]:
                    is_member = who in members[chat]
                    action = Action.REMOVED if is_member else Action.JOINED
                    told = await outcome(store, change(chat, people[0], action, who))
                    if not isinstance(told, Refusal):  # somebody who was blocked cannot add people
                        (members[chat].discard if is_member else members[chat].add)(who)
                case 1:
                    other = chance.choice([one for one in people if one != who])
                    since = None if other in blocked[who] else "2026-01-01T00:00:00.000Z"
                    await store.relations.set_relation(who, other, Relation.BLOCK, since)
                    (blocked[who].discard if since is None else blocked[who].add)(other)
                case 2:
                    await world.indexer.follow_news()
                    world.indexer.look_again()
                case 3 | 4 | 5 if sent:
                    chat, sender, message_id = chance.choice(sent)
                    draft = (
                        delete(chat, sender, message_id)
                        if chance.random() < 0.4
                        else edit(chat, sender, message_id, drawn(chance))
                    )
                    await life.try_send(draft)
                case _ if who in members[chat]:
                    appended = await stored(store, message(chat, who, drawn(chance)))
                    sent.append((chat, who, appended.message_id))
                case _:
                    pass
            who, text = chance.choice(people), chance.choice(QUERIES)
            for chat in chats:
                found = await world.found(who, chat, text)
                if who not in members[chat]:
                    assert found == NOT_A_MEMBER
                else:
                    assert found == await scanned(store, chat, text, blocked[who])
            everywhere = {
                (chat, sequence)
                for chat in chats
                if who in members[chat]
                for sequence in await scanned(store, chat, text, blocked[who])
            }
            assert await world.found_everywhere(who, text) == everywhere


def drawn(chance: random.Random) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(chance.randrange(1, 4)))


async def test_a_restored_log_is_indexed_anew(engine: Engine, tmp_path: Path) -> None:
    """An index that is ahead of its log, or of another epoch, belongs to another log."""
    async with engine.opened() as store, searching(store, tmp_path / "index") as world:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await store.log.append([message(chat, ann, "apple")])
        assert await world.found(ann, chat, "apple") == [1]
        position = (await world.index.positions([chat]))[chat]
        await world.index.reset(chat, position.epoch + 1)
        assert await world.index.find('"apple"', [chat], None, 5) == []
        assert await world.found(ann, chat, "apple") == [1]
        assert (await world.index.positions([chat]))[chat] == position


async def test_the_index_moves_over_what_it_has_alone(engine: Engine, tmp_path: Path) -> None:
    """A batch that does not begin where the index ends changes nothing."""
    async with engine.opened() as store, searching(store, tmp_path / "index") as world:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        gap = IndexBatch(1, after=3, through=4, at=9, added={4: (9, "apple")})
        assert not await world.index.apply(chat, gap)
        assert await world.index.positions([chat]) == {}
        assert await world.index.apply(chat, IndexBatch(1, after=0, through=2, at=5, added={2: (5, "apple")}))
        assert not await world.index.apply(chat, gap)
        assert (await world.index.positions())[chat] == IndexPosition(1, 2, 5)
        assert await world.index.find('"apple"', [chat], None, 5) == [HitPlace(5, chat, 2)]


@pytest.mark.parametrize("limit", [1, 3])
async def test_bodies_that_were_erased_leave_the_index(engine: Engine, tmp_path: Path, limit: int) -> None:
    """They are found by nobody at once, and a comparison takes them out of the file."""
    async with engine.opened() as store, searching(store, tmp_path / "index") as world:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        for number in range(4):
            await store.log.append([message(chat, ann, f"unspeakable{number} apple")])
        assert await world.found(ann, chat, "apple", limit) == [4, 3, 2, 1]
        await LifeWorld(store).bodies.rewrite(chat, [2, 3], tombstone)
        assert await world.found(ann, chat, "apple", limit) == [4, 1]
        assert await world.indexer.compare(chat) == 2
        assert await world.indexer.compare(chat) == 0
        raw = b"".join(path.read_bytes() for path in (tmp_path / "index").iterdir())
        assert b"unspeakable1" not in raw
        assert b"unspeakable0" in raw
