"""Hashes over a log whose begin is in the cold tier, on every engine: pages, the job, checks, devices.

Every hash is compared with a replay of the log by a second implementation (tests/harness/log_replay.py).
"""

from pathlib import Path

import msgspec
import pytest

from parley.archive.bulk import ArchivedLogs
from parley.archive.segment import ArchivedEntry, check_segment
from parley.archive.tiers import rows_of
from parley.bodies.writer import Choice, EntryWriter
from parley.chats.log_hasher import STORED_EVERY, LogHasher
from parley.checks.check import check
from parley.client.log_proof import LogProof
from parley.core.log_hash import LogHash
from parley.model import Persisted, StoredEntry
from parley.store.dynamodb import scans
from tests.contracts.acting import add_group, add_people, decode_entry, message
from tests.contracts.cold_world import ColdWorld
from tests.contracts.engines import Engine, OpenStore
from tests.contracts.test_log_hashes import at_once
from tests.harness.log_replay import replayed_log

ENTRIES = 2 * STORED_EVERY + 10


@pytest.fixture(autouse=True)
def _look_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks broken on DynamoDB is broken: nobody writes meanwhile."""
    monkeypatch.setattr(scans, "READ_AGAIN_SECONDS", 0.0)


class HashedArchive:
    """A group whose log was hashed, then archived but for its newest entry, then went on."""

    def __init__(self, store: OpenStore, folder: Path) -> None:
        self.store = store
        self.cold = ColdWorld(store, folder)
        self.ann = self.ben = self.chat_id = ""

    async def fill(self, *, is_hashed: bool = True) -> "HashedArchive":
        self.ann, self.ben = await add_people(self.store, "ann", "ben")
        self.chat_id = await add_group(self.store, self.ann, self.ben)
        await self.say(ENTRIES)
        self.store.abandon(self.chat_id, ENTRIES + 1, self.store.clock())
        await self.say(2)
        if is_hashed:
            await self.follow()
        assert (await self.cold.run()).failed == {}
        await self.say(3)
        return self

    async def say(self, count: int) -> None:
        people = (self.ann, self.ben)
        drafts = [message(self.chat_id, people[n % 2], f"secret {n}") for n in range(count)]
        await self.store.log.append(drafts)

    def hasher(self) -> LogHasher:
        return LogHasher(self.cold.log, at_once(self.store), self.store.metrics)

    async def follow(self) -> None:
        hasher = self.hasher()
        head = (await self.store.log.heads([self.chat_id]))[self.chat_id]
        hasher.persisted([Persisted(self.chat_id, head.epoch, [StoredEntry(head.sequence, None)])])
        await hasher.follow_news()

    async def replayed(self) -> list[bytes]:
        return await replayed_log(self.cold.log, self.chat_id)

    async def broken(self) -> list[tuple[str, int | None]]:
        """As `parley check` finds it with the archive at hand."""
        async with self.store.operator() as operator:
            archived = ArchivedLogs(operator.inspection, self.cold.objects, self.store.metrics)
            findings = await check(operator, archived=archived.of_chat)
        return [(breach.invariant, breach.sequence) for breach in findings.breaches]

    async def rewrite(self, edit: dict[int, str]) -> None:
        """Write other texts into the archive, with digests and chain that fit: only the hash tells."""
        mark = await self.cold.mark(self.chat_id)
        archiver = self.cold.archiver
        manifest = await archiver.manifest(self.chat_id, mark)
        (segment,) = manifest.segments
        entries = await archiver.segment(segment)
        for sequence, text in edit.items():
            wire = entries[sequence - 1].wire
            assert wire is not None
            changed = msgspec.structs.replace(decode_entry(wire), content=text)
            entries[sequence - 1] = ArchivedEntry(sequence, msgspec.json.encode(changed))
        new = await archiver.upload(self.chat_id, entries, [])
        assert await archiver.record(self.chat_id, mark, manifest, [new]) is not None


async def test_pages_across_the_border_have_the_hash_of_the_log(engine: Engine, tmp_path: Path) -> None:
    """Pages of both tiers, across the border and at the end: each hash is that of a replay from 1."""
    async with engine.opened() as store:
        world = await HashedArchive(store, tmp_path).fill()
        expected = await world.replayed()
        border = (await world.cold.mark(world.chat_id)).trimmed_through
        assert border == len(expected) - 5
        for after, limit in ((0, 10), (STORED_EVERY, STORED_EVERY), (border - 4, 6), (border, 100)):
            page = await world.cold.log.read(world.chat_id, after, limit)
            assert await world.hasher().hash_of(page) == expected[page.to_sequence]


async def test_the_job_goes_on_from_a_trimmed_log(engine: Engine, tmp_path: Path) -> None:
    """From the last stored hash, also if that is of an entry that is archived by now."""
    async with engine.opened() as store:
        world = await HashedArchive(store, tmp_path).fill()
        await world.say(STORED_EVERY)
        await world.cold.run()
        await world.follow()
        expected = await world.replayed()
        last = len(expected) - 1
        assert await store.kinds.log_hashes.last(world.chat_id, 1, 10**6) == LogHash(1, last, expected[last])
        assert await world.broken() == []


async def test_a_log_that_was_archived_before_it_was_hashed_gets_its_hashes(
    engine: Engine, tmp_path: Path
) -> None:
    """As after a restore, whose epoch has none: the job reads through the cold tier."""
    async with engine.opened() as store:
        world = await HashedArchive(store, tmp_path).fill(is_hashed=False)
        assert await store.kinds.log_hashes.last(world.chat_id, 1, 10**6) is None
        await world.follow()
        expected = await world.replayed()
        for at in (STORED_EVERY, 2 * STORED_EVERY, len(expected) - 1):
            assert await store.kinds.log_hashes.last(world.chat_id, 1, at) == LogHash(1, at, expected[at])
        assert await world.broken() == []


async def test_an_erased_archive_keeps_its_hashes(engine: Engine, tmp_path: Path) -> None:
    """In both tiers: pages, check and a device that had read the original agree."""
    async with engine.opened() as store:
        world = await HashedArchive(store, tmp_path).fill()
        await world.follow()
        before = await world.replayed()
        eraser = EntryWriter(store.engine.log, world.cold.tier, world.cold.archiver)
        erased = await eraser.erase(world.chat_id, Choice(sender_id=world.ann))
        assert erased.hot > 0
        assert erased.cold > 0
        segments = [check_segment(path.read_bytes())[2] for path in world.cold.segments()]
        assert any(entry.digest for entries in segments for entry in entries)
        assert await world.replayed() == before
        page = await world.cold.log.read(world.chat_id, 0, STORED_EVERY)
        assert await world.hasher().hash_of(page) == before[STORED_EVERY]
        assert await world.broken() == []


async def test_a_check_names_an_entry_that_was_changed_in_the_archive(engine: Engine, tmp_path: Path) -> None:
    """Digests and chain of the archive fit what was written there; the hash is that of what was said."""
    async with engine.opened() as store:
        world = await HashedArchive(store, tmp_path).fill()
        await world.rewrite({3: "never said"})
        assert (await world.cold.verify()).faults == []
        assert await world.broken() == [("log_hash_agreement", STORED_EVERY)]


async def test_a_check_names_an_archive_that_cannot_be_read(engine: Engine, tmp_path: Path) -> None:
    """It is no silent pass; what is in the engine is still checked."""
    async with engine.opened() as store:
        world = await HashedArchive(store, tmp_path).fill()
        for path in world.cold.segments():
            path.write_bytes(path.read_bytes()[:-1])
        assert await world.broken() == [("sync_completeness", 1)]


async def test_a_device_verifies_its_log_across_the_border(engine: Engine, tmp_path: Path) -> None:
    """What the SDK computes along the pages is what each page carries, from the first archived entry on."""
    async with engine.opened() as store:
        world = await HashedArchive(store, tmp_path).fill()
        await world.follow()
        proof, after, compared = LogProof(world.chat_id, 0, None), 0, 0
        while True:
            page = await world.cold.log.read(world.chat_id, after, STORED_EVERY)
            for sequence, wire in rows_of(page):
                proof.add(sequence, None if wire is None else decode_entry(wire))
            assert await world.hasher().hash_of(page) == proof.value
            after, compared = page.to_sequence, compared + 1
            if page.complete:
                break
        assert compared >= 3
