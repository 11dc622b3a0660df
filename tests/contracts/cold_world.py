"""A store with a cold tier, as tests have it: the engine, its archiver, and the log over both tiers."""

from collections.abc import Callable, Sequence
from pathlib import Path

from parley.archive.archiver import ArchiveProgress, Archiver, NeededFrom
from parley.archive.reader import ArchiveReader
from parley.archive.tiers import TieredLog, TieredOverviews, rows_of
from parley.archive.verification import ArchiveVerifier, Verification
from parley.errors import StoreUnavailable
from parley.model import Page
from parley.objects.ports import Objects
from parley.store.ports import Log
from parley.store.rows import ArchiveMark
from parley.telemetry import Metrics
from tests.contracts.engines import OpenStore
from tests.contracts.object_stores import in_folder

CACHE_BYTES = 1024 * 1024


class CountedObjects:
    """Another `Objects` that counts requests, and fails all of them while it is away."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.is_away = False
        self.ranges: list[tuple[str, int, int]] = []
        self.create = objects.create
        self.find = objects.find
        self.where = objects.where
        self.delete = objects.delete

    async def read(self, name: str) -> bytes:
        self._check()
        return await self._objects.read(name)

    async def read_range(self, name: str, start: int, length: int) -> bytes:
        self._check()
        self.ranges.append((name, start, length))
        return await self._objects.read_range(name, start, length)

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailable("the cold store cannot be read: it is away")


class ColdWorld:
    """`after_days`: how old entries must be to be archived."""

    def __init__(
        self,
        store: OpenStore,
        folder: Path,
        *,
        after_days: int = 0,
        objects: Objects | None = None,
        consumers: Sequence[NeededFrom] = (),
        fault_point: Callable[[str], None] = lambda _: None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        engine = store.engine
        tier = engine.entries
        assert tier is not None
        self.store = store
        self.folder = folder / "cold"
        self.tier = tier
        self.objects = CountedObjects(objects or in_folder(folder))
        self.metrics = Metrics(store.clock)
        self.reader = ArchiveReader(tier, self.objects, self.metrics, cache_bytes)
        self.archiver = Archiver(
            engine.log,
            tier,
            engine.inspection,
            self.objects,
            self.reader,
            clock=store.clock,
            metrics=self.metrics,
            after_days=after_days,
            consumers=consumers,
            fault_point=fault_point,
        )
        self.log = TieredLog(engine.log, tier, self.reader)
        self.overviews = TieredOverviews(engine.overviews, tier, self.log)
        self.verifier = ArchiveVerifier(engine.log, tier, engine.inspection, self.objects)

    async def run(self) -> ArchiveProgress:
        return await self.archiver.run()

    async def mark(self, chat_id: str) -> ArchiveMark:
        return (await self.tier.marks([chat_id]))[chat_id]

    async def verify(self) -> Verification:
        return await self.verifier.run()

    def segments(self) -> list[Path]:
        return sorted(self.folder.glob("chats/*/*.seg"))


async def synced(log: Log, chat_id: str, limit: int = 7) -> list[tuple[int, bytes | None]]:
    """Every position of a chat as a client gets it that starts at 0, page by page."""
    rows: list[tuple[int, bytes | None]] = []
    while True:
        page: Page = await log.read(chat_id, len(rows), limit)
        assert page.from_sequence == len(rows) + 1
        rows += rows_of(page)
        if page.complete:
            return rows
        assert page.to_sequence > page.from_sequence - 1, "a page that is not the last has something"
