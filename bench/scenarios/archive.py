"""The cold tier against the hot one, in one run and one process: bytes, catch-up, requests, throughput.

Without a server: what is compared is where entries come from, not how they travel. The texts are words of
different lengths, which compress like a chat's; each entry has ids that do not compress.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
import uuid
from pathlib import Path

from bench.rows import Row, ratio_row
from bench.stage import RESULTS, Stage
from parley import ids
from parley.archive.archiver import Archiver
from parley.archive.reader import ArchiveReader
from parley.archive.tiers import TieredLog
from parley.clock import MS_PER_DAY, iso
from parley.model import ChatType, Draft, StoredChat, User
from parley.objects.targets import objects_at
from parley.records.kinds import Kinds
from parley.store.folder import DATABASE_NAME
from parley.store.ports import Log
from parley.store.sqlite.store import SqliteStore
from parley.telemetry import Metrics

BEGINNING_MS = 1_767_225_600_000
AFTER_DAYS = 30
BATCH = 512
PAGE = 1_000
CACHE_BYTES = 32 * 1024 * 1024
WORDS = 4_000
PER_REQUESTS = 10_000


class Ticking:
    """A clock that moves a second with each look."""

    def __init__(self) -> None:
        self.now_ms = BEGINNING_MS

    def __call__(self) -> int:
        self.now_ms += 1_000
        return self.now_ms


async def archive(stage: Stage) -> list[Row]:
    """One chat, archived whole."""
    RESULTS.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=RESULTS))
    try:
        return await _measure(folder, stage.pick(1_000_000, 50_000))
    finally:
        shutil.rmtree(folder)


async def _measure(folder: Path, count: int) -> list[Row]:
    clock = Ticking()
    metrics = Metrics(clock)
    store = SqliteStore(folder, clock=clock, ids=ids.Ids(random.Random(1).getrandbits), metrics=metrics)
    await store.open()
    try:
        chat_id = await _fill(store, clock, count)
        store.database.rewrite()
        hot_bytes = (folder / DATABASE_NAME).stat().st_size / count
        hot_rate = await _caught_up(store.log, chat_id, count)

        objects = objects_at(str(folder / "cold"), {})
        reader = ArchiveReader(store.entries, objects, metrics, CACHE_BYTES)
        archiver = Archiver(
            store.log,
            store.entries,
            store.inspection,
            objects,
            reader,
            clock=clock,
            metrics=metrics,
            after_days=AFTER_DAYS,
        )
        clock.now_ms += 2 * AFTER_DAYS * MS_PER_DAY
        began = time.perf_counter()
        done = await archiver.run()
        archived_rate = done.entries / (time.perf_counter() - began)
        assert done.trimmed == count - 1

        store.database.rewrite()
        left_bytes = (folder / DATABASE_NAME).stat().st_size / count
        cold_bytes = sum(path.stat().st_size for path in (folder / "cold").rglob("*.*")) / count
        fresh = ArchiveReader(store.entries, objects, metrics, CACHE_BYTES)
        before = _requests(metrics)
        cold_rate = await _caught_up(TieredLog(store.log, store.entries, fresh), chat_id, count)
        requests = (_requests(metrics) - before) / count * PER_REQUESTS
    finally:
        await store.close()
    sizes = f"hot {hot_bytes:,.0f}, cold {cold_bytes:,.0f}, left behind {left_bytes:,.0f} bytes a message"
    rates = f"hot {hot_rate:,.0f}, cold {cold_rate:,.0f} entries/s through {count:,}"
    return [
        ratio_row(
            "archive_bytes",
            "bytes of an archived message, with what is left behind, against hot",
            (cold_bytes + left_bytes) / hot_bytes,
            [sizes],
        ),
        ratio_row(
            "archive_catch_up", "catch-up through archived entries against hot", cold_rate / hot_rate, [rates]
        ),
        Row(
            name="archive_requests",
            label=f"requests to the cold store for {PER_REQUESTS:,} entries",
            unit="requests",
            value=requests,
            notes=[
                f"a cache of {CACHE_BYTES // 1024 // 1024} MiB holds {fresh.cached_bytes:,} bytes at the end"
            ],
        ),
        Row(
            name="archive_run", label="archived, verified and trimmed", unit="entries/s", value=archived_rate
        ),
    ]


def _requests(metrics: Metrics) -> float:
    return metrics.registry.get_sample_value("parley_archive_reads_total") or 0.0


async def _fill(store: SqliteStore, clock: Ticking, count: int) -> str:
    chance = random.Random(7)
    letters = "etaoinshrdlucmfwypvbgk"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(WORDS)]
    people = [f"user_{uuid.UUID(int=chance.getrandbits(128)).hex}" for _ in range(8)]
    now = iso(clock())
    accounts = Kinds(store, clock).accounts
    for number, user_id in enumerate(people):
        await accounts.add_user(User(user_id, f"p{number}", f"p{number}", "", False, now), "hash")
    chat = StoredChat("chat_" + "0" * 26, ChatType.GROUP, "bench", people[0], now, now, 1, False)
    await store.directory.create_chat(chat, people[1:])
    for start in range(0, count, BATCH):
        drafts = []
        for _ in range(min(BATCH, count - start)):
            client_id = str(uuid.UUID(int=chance.getrandbits(128), version=4))
            text = " ".join(chance.choices(words, k=chance.randint(3, 20)))
            drafts.append(
                Draft(
                    chat_id=chat.chat_id,
                    sender_id=chance.choice(people),
                    content=text,
                    client_message_id=client_id,
                    client_key=ids.client_key(client_id),
                )
            )
        await store.log.append(drafts)
    return chat.chat_id


async def _caught_up(log: Log, chat_id: str, count: int) -> float:
    """Entries per second of a client that starts at 0."""
    began, after = time.perf_counter(), 0
    while after < count:
        page = await log.read(chat_id, after, PAGE)
        assert page.from_sequence == after + 1
        after = page.to_sequence
    return count / (time.perf_counter() - began)
