"""The file of the search index: what is in it, and what is not any more."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest

from parley.core.search import HitPlace, IndexBatch
from parley.errors import Refused, StoreUnavailable
from parley.search import fts
from parley.search.fts import FtsIndex

SEED = 0
CHATS, BATCHES, REMOVED = 3, 20, 10
LETTERS = "klmnopqrstuvwxyz"


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[FtsIndex]:
    index = FtsIndex(folder)
    await index.open()
    try:
        yield index
    finally:
        await index.close()


def raw_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


async def filled(index: FtsIndex, chance: random.Random) -> list[tuple[str, int, str]]:
    """Texts of all lengths in several chats, each with a word of its own: chat, position and word."""
    words = ["".join(chance.choices("abcdefghij", k=chance.randint(2, 8))) for _ in range(500)]
    secrets: list[tuple[str, int, str]] = []
    ends = {f"chat_{number}": 0 for number in range(CHATS)}
    for _ in range(BATCHES):
        chat, added = chance.choice(list(ends)), dict[int, tuple[int, str]]()
        first = ends[chat] + 1
        for sequence in range(first, first + chance.randint(1, 40)):
            secret = "".join(chance.choices(LETTERS, k=14))
            secrets.append((chat, sequence, secret))
            text = " ".join([*chance.choices(words, k=chance.randint(1, 60)), secret])
            added[sequence] = (sequence, text)
        last = max(added)
        assert await index.apply(chat, IndexBatch(1, ends[chat], last, last, added))
        ends[chat] = last
    return secrets


def leave_copies(path: Path) -> None:
    """Make free pages with the rows of before, as SQLite leaves them when it moves rows."""
    connection = apsw.Connection(str(path))
    connection.pragma("secure_delete", False)
    connection.execute("CREATE TABLE aside AS SELECT * FROM texts_content; DROP TABLE aside")
    connection.close()


@pytest.mark.parametrize("are_copies_left", [False, True])
async def test_a_removed_text_is_in_no_file(tmp_path: Path, are_copies_left: bool) -> None:
    """Also where SQLite has moved its row before: a copy that was left behind is found, and removed."""
    chance = random.Random(SEED)
    async with opened(tmp_path) as index:
        secrets = await filled(index, chance)
        gone = chance.sample(secrets, REMOVED)
        for chat, sequence, secret in gone:
            if are_copies_left:
                leave_copies(index.path)
            assert secret.encode() in raw_bytes(tmp_path)
            await index.remove(chat, [sequence])
        raw = raw_bytes(tmp_path)
        assert [secret for _, _, secret in gone if secret[4:].encode() in raw] == []
        kept = next(one for one in secrets if one not in gone)
        assert await index.find(f'"{kept[2]}"', [kept[0]], None, 5) == [HitPlace(kept[1], kept[0], kept[1])]


async def test_a_removal_that_failed_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is gone by then, and the copies of its text are looked for all the same."""
    chance = random.Random(SEED)
    async with opened(tmp_path) as index:
        chat, sequence, secret = (await filled(index, chance))[0]
        leave_copies(index.path)
        holds = fts._holds

        def failing(path: Path, traces: list[bytes]) -> bool:
            monkeypatch.setattr(fts, "_holds", holds)
            raise OSError("the disk does not answer")

        monkeypatch.setattr(fts, "_holds", failing)
        with pytest.raises(StoreUnavailable):
            await index.remove(chat, [sequence])
        await index.remove(chat, [sequence])
        assert secret[4:].encode() not in raw_bytes(tmp_path)


async def test_a_closed_index_is_one_file(tmp_path: Path) -> None:
    """After searches, too: no write-ahead log is left beside it."""
    async with opened(tmp_path) as index:
        chat, sequence, secret = (await filled(index, random.Random(SEED)))[0]
        for _ in range(2 * fts.FIND_THREADS):
            assert await index.find(f'"{secret}"', [chat], None, 5) == [HitPlace(sequence, chat, sequence)]
        assert len(list(tmp_path.iterdir())) > 1
    assert list(tmp_path.iterdir()) == [index.path]


async def test_many_texts_are_removed_at_once(tmp_path: Path) -> None:
    """As an erasure does it."""
    chance = random.Random(SEED)
    async with opened(tmp_path) as index:
        secrets = await filled(index, chance)
        gone = [one for one in secrets if one[0] == "chat_0"]
        assert len(gone) > fts.SCANNED_FOR_MAX
        await index.remove("chat_0", [sequence for _, sequence, _ in gone])
        raw = raw_bytes(tmp_path)
        assert [secret for _, _, secret in gone if secret[4:].encode() in raw] == []


async def test_a_search_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused as busy, its thread is free again, and the next search is answered."""
    async with opened(tmp_path) as index:
        batch = IndexBatch(1, 0, 1, 1, {1: (1, "apple")})
        assert await index.apply("chat", batch)
        usual = fts.FIND_SECONDS_MAX
        monkeypatch.setattr(fts, "FIND_SECONDS_MAX", 0.0)
        with pytest.raises(Refused) as refused:
            await index.find('"apple"', ["chat"], None, 5)
        assert refused.value.refusal.code == "busy"
        monkeypatch.setattr(fts, "FIND_SECONDS_MAX", usual)
        assert await index.find('"apple"', ["chat"], None, 5) == [HitPlace(1, "chat", 1)]


async def test_too_many_searches_at_once_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait in no queue without an end."""
    monkeypatch.setattr(fts, "FINDS_WAITING_MAX", 0)
    async with opened(tmp_path) as index:
        with pytest.raises(Refused) as refused:
            await index.find('"apple"', ["chat"], None, 5)
        assert refused.value.refusal.code == "busy"


async def test_what_was_forgotten_when_the_process_died_is_removed_later(tmp_path: Path) -> None:
    """A chat that is indexed anew finds nothing of before, and the rest of it leaves the file."""
    async with opened(tmp_path) as index:
        assert await index.apply("chat", IndexBatch(1, 0, 1, 1, {1: (1, "unspeakable")}))
        await index.reset("chat", 2)
        assert await index.find('"unspeakable"', ["chat"], None, 5) == []
        await index.collect()
        assert b"unspeakable" not in raw_bytes(tmp_path)
