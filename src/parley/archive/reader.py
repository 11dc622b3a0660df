"""Reads archived entries: only the blocks that are needed, with a bounded cache of what was read.

The engine is asked for every read which manifest counts, so a node never serves what another has rewritten.
Segments and manifests never change, so what is cached under their names is right for ever. But a body that
was removed must not stay in memory: blocks of a chat go when its manifest is another one, when another node
says that bodies of it were removed, and any block some minutes after its last use.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import structlog

from parley.archive.manifest import (
    ArchiveManifest,
    SegmentEntry,
    decode_manifest,
    folder_of,
    manifest_name,
)
from parley.archive.segment import (
    BlockPlace,
    SegmentDamaged,
    SegmentIndex,
    SegmentMissing,
    decode_index,
    decode_wires,
)
from parley.errors import StoreDamaged, StoreUnavailable
from parley.objects.ports import ObjectMissing, Objects
from parley.store.damage import note_damage
from parley.store.paging import Row
from parley.store.rows import ArchiveMark
from parley.telemetry import Metrics

T = TypeVar("T")

READ_SECONDS_MAX = 3.0
"""A request of a client is answered within five seconds: what takes longer is refused as temporary."""
READ_AHEAD_BYTES = 512 * 1024
"""Of blocks that are fetched together because they are likely to be wanted next."""
FETCH_BYTES_MAX = 4 * READ_AHEAD_BYTES
MANIFESTS_CACHED_MAX = 2_000
INDEXES_CACHED_MAX = 1_000
VERSIONS_KEPT_MAX = 20_000
BLOCK_UNUSED_SECONDS_MAX = 300.0
"""So long after its last use a block stays in memory."""

log = structlog.get_logger("parley.archive")


class Marks(Protocol):
    """Who knows which manifest of a chat counts: the port `Entries`."""

    async def marks(self, chat_ids: Sequence[str]) -> dict[str, ArchiveMark]: ...


class BlockCache:
    """Blocks of entries, as JSON, by segment and first number; the least recently used is dropped first.

    `seconds`: a clock that only rises.
    """

    def __init__(self, bytes_max: int, seconds: Callable[[], float]) -> None:
        self._bytes_max = bytes_max
        self._seconds = seconds
        self._used: dict[tuple[str, int], float] = {}
        self._blocks: OrderedDict[tuple[str, int], list[bytes | None]] = OrderedDict()
        self._bytes: dict[tuple[str, int], int] = {}
        self.size_bytes = 0

    def get(self, key: tuple[str, int]) -> list[bytes | None] | None:
        found = self._blocks.get(key)
        if found is not None:
            self._blocks.move_to_end(key)
            self._used[key] = self._seconds()
        return found

    def put(self, key: tuple[str, int], wires: list[bytes | None]) -> None:
        size = sum([len(wire) for wire in wires if wire is not None])
        self.size_bytes += size - self._bytes.get(key, 0)
        self._blocks[key], self._bytes[key] = wires, size
        self._used[key] = self._seconds()
        while self.size_bytes > self._bytes_max and self._blocks:
            self._drop(next(iter(self._blocks)))

    def _drop(self, key: tuple[str, int]) -> None:
        del self._blocks[key], self._used[key]
        self.size_bytes -= self._bytes.pop(key)

    def drop_chat(self, chat_id: str) -> None:
        folder = f"{folder_of(chat_id)}/"
        for key in [key for key in self._blocks if key[0].startswith(folder)]:
            self._drop(key)

    def drop_all(self) -> None:
        for key in list(self._blocks):
            self._drop(key)

    def drop_unused(self) -> None:
        """Blocks that nobody has read for a while. Those of replaced segments are never read again."""
        before = self._seconds() - BLOCK_UNUSED_SECONDS_MAX
        while self._blocks and self._used[next(iter(self._blocks))] < before:
            self._drop(next(iter(self._blocks)))


class ArchiveReader:
    """`seconds_max`: how long one read may take, the requests to the object store included."""

    def __init__(
        self,
        tier: Marks,
        objects: Objects,
        metrics: Metrics,
        cache_bytes: int,
        seconds_max: float = READ_SECONDS_MAX,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tier = tier
        self._objects = objects
        self._metrics = metrics
        self._seconds_max = seconds_max
        self._blocks = BlockCache(cache_bytes, seconds)
        self._versions: dict[str, int] = {}
        """Of the manifest by which each chat was last read here."""
        self._manifests: OrderedDict[str, ArchiveManifest] = OrderedDict()
        self._indexes: OrderedDict[str, SegmentIndex] = OrderedDict()
        self._forgets = 0
        """How often something was forgotten: a read that began before caches nothing after it."""
        self.may_keep: Callable[[], bool] = lambda: True
        """Whether this process hears of bodies that others remove. Without that it caches no block."""

    @property
    def cached_bytes(self) -> int:
        return self._blocks.size_bytes

    async def rows(self, chat_id: str, first: int, last: int) -> list[Row]:
        """Every archived position from `first` to `last`, in order. All of them, or an error.

        StoreUnavailable: the object store does not answer, or lacks an object, as a folder does whose disk
        is not mounted. StoreDamaged: it holds something else than was archived.
        """
        return await self._in_time(chat_id, lambda: self._rows(chat_id, first, last))

    async def _rows(self, chat_id: str, first: int, last: int) -> list[Row]:
        mark, forgets = await self._mark(chat_id)
        for is_last in (False, True):
            try:
                return await self._read(await self.manifest(chat_id, mark), first, last, forgets)
            except ObjectMissing as missing:
                # What was rewritten meanwhile is deleted under its old name.
                newer, forgets = await self._mark(chat_id)
                if is_last or newer.version == mark.version:
                    raise SegmentMissing(f"{missing.key} is missing") from missing
                mark = newer
        raise AssertionError("the second round returns or raises")

    async def _mark(self, chat_id: str) -> tuple[ArchiveMark, int]:
        """Which manifest counts, and how often something was forgotten before that was asked."""
        forgets = self._forgets
        mark = (await self._tier.marks([chat_id])).get(chat_id, ArchiveMark())
        if self._versions.get(chat_id, mark.version) != mark.version:
            self.forget(chat_id)
            forgets += 1
        if len(self._versions) >= VERSIONS_KEPT_MAX:
            self._versions.clear()
        self._versions[chat_id] = mark.version
        return mark, forgets

    def forget(self, chat_id: str) -> None:
        """Segments of this chat were replaced: what they held is in no memory of this reader."""
        self._forgets += 1
        self._blocks.drop_chat(chat_id)

    def forget_all(self) -> None:
        """Segments of any chat may have been replaced."""
        self._forgets += 1
        self._blocks.drop_all()

    async def forget_unused(self) -> None:
        """What nobody has read for a while is dropped: another node may have replaced it."""
        self._blocks.drop_unused()

    async def _in_time(self, chat_id: str, work: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._seconds_max):
                return await work()
        except TimeoutError as error:
            self._metrics.archive_read_failures.inc()
            raise StoreUnavailable("the cold store does not answer in time") from error
        except SegmentDamaged as error:
            self._metrics.archive_read_failures.inc()
            now = asyncio.get_running_loop().time()
            if (more := self._metrics.lines.admit(f"archive of {chat_id}", now)) is not None:
                hint = f"run: parley archive verify {chat_id}"
                log.critical("an archive is damaged", chat_id=chat_id, reason=str(error), hint=hint, **more)
            if isinstance(error, SegmentMissing):
                raise StoreUnavailable(f"archived entries cannot be read: {error}") from error
            damage = StoreDamaged(f"the archive of {chat_id}", str(error))
            note_damage(self._metrics, damage)
            raise damage from error
        except StoreUnavailable:
            self._metrics.archive_read_failures.inc()
            raise

    async def manifest(self, chat_id: str, mark: ArchiveMark) -> ArchiveManifest:
        """The manifest that a mark names. ObjectMissing, SegmentDamaged: it is not there as it was."""
        if mark.version == 0:
            return ArchiveManifest(chat_id=chat_id)
        name = manifest_name(chat_id, mark.version, mark.manifest)

        async def load() -> ArchiveManifest:
            return decode_manifest(await self._fetch(self._objects.read(name)), mark)

        return await _cached(self._manifests, f"{name} {mark.manifest}", load, MANIFESTS_CACHED_MAX)

    async def index(self, segment: SegmentEntry) -> SegmentIndex:
        """The index of a segment."""

        async def load() -> SegmentIndex:
            length = segment.bytes - segment.index_offset
            part = self._objects.read_range(segment.name, segment.index_offset, length)
            return decode_index(await self._fetch(part), segment.index_offset)

        return await _cached(self._indexes, segment.name, load, INDEXES_CACHED_MAX)

    async def _fetch(self, work: Awaitable[bytes]) -> bytes:
        data = await work
        self._metrics.archive_reads.inc()
        self._metrics.archive_read_bytes.inc(len(data))
        return data

    async def _read(self, manifest: ArchiveManifest, first: int, last: int, forgets: int) -> list[Row]:
        found: list[Row] = []
        for segment in manifest.spanning(first, last):
            index = await self.index(segment)
            for place in index.spanning(first, last):
                block = self._blocks.get((segment.name, place.first))
                if block is None:
                    block = await self._load(segment, index, place, last, forgets)
                low, high = max(first, place.first), min(last, place.last)
                if low != first + len(found):
                    raise SegmentDamaged(f"its archive has nothing at {first + len(found)}")
                found += zip(range(low, high + 1), block[low - place.first :], strict=False)
        if len(found) != last - first + 1:
            raise SegmentDamaged(f"its archive does not hold every number from {first} to {last}")
        return found

    async def _load(
        self, segment: SegmentEntry, index: SegmentIndex, wanted: BlockPlace, last: int, forgets: int
    ) -> list[bytes | None]:
        """Fetch a block, and with the same request those behind it that are wanted; returns the block.

        A reader who had the block before goes on, and is likely to want what follows.
        """
        at = index.blocks.index(wanted)
        before = index.blocks[at - 1] if at else None
        goes_on = before is not None and self._blocks.get((segment.name, before.first)) is not None
        places, size = [wanted], wanted.length
        for place in index.blocks[at + 1 :]:
            size += place.length
            is_wanted = place.first <= last or (goes_on and size <= READ_AHEAD_BYTES)
            if not is_wanted or size > FETCH_BYTES_MAX:
                break
            places.append(place)
        start, end = wanted.offset, places[-1].offset + places[-1].length
        data = await self._fetch(self._objects.read_range(segment.name, start, end - start))
        parts = [
            (place, data[place.offset - start : place.offset - start + place.length]) for place in places
        ]
        blocks = await asyncio.to_thread(_decode_all, parts)
        if forgets != self._forgets or not self.may_keep():
            return blocks[0]
        for place, block in zip(reversed(places), reversed(blocks), strict=True):
            self._blocks.put((segment.name, place.first), block)
        return blocks[0]


def _decode_all(parts: list[tuple[BlockPlace, bytes]]) -> list[list[bytes | None]]:
    return [decode_wires(place, data) for place, data in parts]


async def _cached(
    cache: OrderedDict[str, T], key: str, load: Callable[[], Awaitable[T]], count_max: int
) -> T:
    found = cache.get(key)
    if found is None:
        found = cache[key] = await load()
    cache.move_to_end(key)
    while len(cache) > count_max:
        cache.popitem(last=False)
    return found
