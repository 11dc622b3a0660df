"""Retention, holds and erasure on every engine: what is removed is found nowhere, the log stays whole."""

import asyncio
from pathlib import Path

import pytest

from parley.archive.segment import check_segment
from parley.bodies.retention import Retention
from parley.bodies.writer import Choice, EntryWriter
from parley.clock import MS_PER_DAY
from parley.store.dynamodb import scans
from parley.store.folder import DATABASE_NAME
from parley.store.rows import ChatRetention
from tests.contracts.acting import add_group, add_people, decode_entry, message, stored
from tests.contracts.cold_world import ColdWorld, synced
from tests.contracts.engines import Engine, OpenStore, SqliteEngine
from tests.contracts.object_stores import in_folder, in_s3

MESSAGES = 12


@pytest.fixture(autouse=True)
def _look_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks broken on DynamoDB is broken: nobody writes meanwhile."""
    monkeypatch.setattr(scans, "READ_AGAIN_SECONDS", 0.0)


def retention_of(store: OpenStore, cold: ColdWorld | None, days: int = 0) -> Retention:
    engine = store.engine
    eraser = EntryWriter(engine.log, engine.entries, None if cold is None else cold.archiver)
    return Retention(eraser, store.kinds.retentions, engine.inspection, store.clock, store.metrics, days)


async def two_people(store: OpenStore) -> tuple[str, str, str]:
    """Ann and Ben write in turn: some in batches, which share items, some alone."""
    ann, ben = await add_people(store, "ann", "ben")
    chat = await add_group(store, ann, ben)
    await store.log.append(
        [message(chat, (ann, ben)[at % 2], f"{('ann', 'ben')[at % 2]} secret {at}") for at in range(MESSAGES)]
    )
    for at in range(MESSAGES, 2 * MESSAGES):
        await stored(store, message(chat, (ann, ben)[at % 2], f"{('ann', 'ben')[at % 2]} secret {at}"))
    return ann, ben, chat


async def bodies(cold: ColdWorld, chat_id: str) -> list[str]:
    return [decode_entry(wire).content for _, wire in await synced(cold.log, chat_id) if wire is not None]


def raw_bytes(*folders: Path) -> bytes:
    return b"".join(path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file())


def all_content(cold: ColdWorld) -> bytes:
    """Everything in the segments, uncompressed."""
    return b"".join(
        entry.wire or b"" for path in cold.segments() for entry in check_segment(path.read_bytes())[2]
    )


@pytest.mark.parametrize("archived", [0, MESSAGES])
async def test_a_person_is_erased_from_both_tiers(engine: Engine, tmp_path: Path, archived: int) -> None:
    """Their bodies are gone, everything else is as it was; the archive verifies, and may be archived on."""
    async with engine.opened() as store:
        ann, ben, chat = await two_people(store)
        cold = ColdWorld(store, tmp_path)
        if archived:
            await cold.run()
            await store.log.append([message(chat, ann, f"ann secret late {at}") for at in range(3)])
        before = await synced(cold.log, chat)
        report = await retention_of(store, cold).erase(ann)
        assert report.bodies == sum(b"ann secret" in (wire or b"") for _, wire in before)
        after = await synced(cold.log, chat)
        for (_, old), (_, new) in zip(before, after, strict=True):
            assert old is not None
            assert new is not None
            was, now = decode_entry(old), decode_entry(new)
            if was.sender_id == ben:
                assert new == old
            else:
                assert (now.content, now.deleted, now.message_id) == ("", True, was.message_id)
        assert b"ann secret" not in all_content(cold)
        assert (await retention_of(store, cold).erase(ann)).bodies == 0
        await cold.run()
        verified = await cold.verify()
        assert (verified.faults, await synced(cold.log, chat)) == ([], after)
        assert store.breaches() == []
        (shown,) = (await cold.overviews.changed(ben, "phone", None, 100)).positions
        assert shown.unread == 0


async def test_erased_bodies_are_in_no_file(tmp_path: Path) -> None:
    """Not in the database, not in its write-ahead log, not in the folder of the cold tier."""
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        ann, _, chat = await two_people(store)
        cold = ColdWorld(store, tmp_path)
        await cold.run()
        await store.log.append([message(chat, ann, f"ann secret late {at}") for at in range(3)])
        await retention_of(store, cold).erase(ann)
        assert b"ann secret" not in raw_bytes(tmp_path)
        assert b"ann secret" not in all_content(cold)
        assert (tmp_path / DATABASE_NAME).is_file()


async def test_only_segments_with_such_bodies_are_rewritten(engine: Engine, tmp_path: Path) -> None:
    """Their neighbours stay, and the chain runs through what was rewritten as before."""
    async with engine.opened() as store:
        ann, ben, chat = await two_people(store)
        cold = ColdWorld(store, tmp_path)
        await cold.run()
        await store.log.append([message(chat, ben, f"ben later {at}") for at in range(3)])
        await cold.run()
        first, second = cold.segments()
        await retention_of(store, cold).erase(ann)
        assert second in cold.segments()
        assert first not in cold.segments()
        assert (await cold.verify()).faults == []


async def test_entries_that_share_an_item_across_the_border(engine: Engine, tmp_path: Path) -> None:
    """What the engine still holds below its mark, because later entries share its item, is erased, too."""
    async with engine.opened() as store:
        ann, _, chat = await two_people(store)
        await store.deliveries.queues.extend(chat, ["webhook_1"], 6, 7)
        cold = ColdWorld(store, tmp_path)
        await cold.run()
        assert (await cold.mark(chat)).trimmed_through == 5
        await retention_of(store, cold).erase(ann)
        page = await store.log.read_before(chat, 2 * MESSAGES + 1, 100)
        assert not [wire for wire in page.entries if b"ann secret" in wire]
        assert (await cold.verify()).faults == []


async def test_erasure_on_s3(tmp_path: Path) -> None:
    """Segments are written again, and the old ones are gone."""
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        ann, _, chat = await two_people(store)
        objects = in_s3(tmp_path)
        cold = ColdWorld(store, tmp_path, objects=objects)
        await cold.run()
        old = [one.key for one in await objects.find("chats/") if one.key.endswith(".seg")]
        await retention_of(store, cold).erase(ann)
        new = [one.key for one in await objects.find("chats/") if one.key.endswith(".seg")]
        assert set(old).isdisjoint(new)
        assert not any("ann" in body for body in await bodies(cold, chat))
        assert (await cold.verify()).faults == []


async def test_an_archiver_at_work_brings_no_body_back(engine: Engine, tmp_path: Path) -> None:
    """What it has read before the erasure cannot be recorded after it, and is not left behind either."""
    async with engine.opened() as store:
        ann, _, chat = await two_people(store)
        keeper = retention_of(store, ColdWorld(store, tmp_path))
        eraser = asyncio.Event()
        held: list[asyncio.Task[object]] = []

        def erase_meanwhile(label: str) -> None:
            if label == "archive_before_record" and not held:
                held.append(asyncio.ensure_future(keeper.erase(ann)))

        slow = ColdWorld(store, tmp_path, fault_point=erase_meanwhile)
        record = slow.tier.record

        async def after_the_erasure(chat_id: str, mark: object) -> bool:
            await held[0]
            eraser.set()
            return await record(chat_id, mark)  # type: ignore[arg-type]

        slow.archiver._tier = _Late(slow.tier, after_the_erasure)  # type: ignore[assignment]
        await slow.archiver.run()
        assert eraser.is_set()
        cold = ColdWorld(store, tmp_path)
        assert b"ann secret" not in all_content(cold)
        await cold.run()
        assert not any("ann" in body for body in await bodies(cold, chat))
        assert b"ann secret" not in all_content(cold)
        assert (await cold.verify()).faults == []


class _Late:
    """A tier whose record waits."""

    def __init__(self, tier: object, record: object) -> None:
        self._tier = tier
        self.record = record

    def __getattr__(self, name: str) -> object:
        return getattr(self._tier, name)


async def test_retention_removes_what_is_old(engine: Engine, tmp_path: Path) -> None:
    """The report says what will go; then it goes, and only that."""
    async with engine.opened() as store:
        ann, _, chat = await two_people(store)
        store.clock.advance(10 * MS_PER_DAY)
        await stored(store, message(chat, ann, "young"))
        cold = ColdWorld(store, tmp_path, after_days=5)
        await cold.run()
        keeper = retention_of(store, cold, days=7)
        before = await synced(cold.log, chat)
        report = await keeper.report()
        assert (report.bodies, await synced(cold.log, chat)) == (2 * MESSAGES, before)
        assert (await keeper.apply()).bodies == 2 * MESSAGES
        assert await bodies(cold, chat) == [""] * (2 * MESSAGES) + ["young"]
        assert (await keeper.apply()).bodies == 0
        assert (await cold.verify()).faults == []
        assert store.breaches() == []


async def test_a_chat_may_differ(engine: Engine, tmp_path: Path) -> None:
    """Days of its own override those of the server, and 0 keeps for ever."""
    async with engine.opened() as store:
        _, _, chat = await two_people(store)
        store.clock.advance(10 * MS_PER_DAY)
        keeper = retention_of(store, None, days=7)
        for days, wanted in ((0, 0), (20, 0), (9, 2 * MESSAGES)):
            await store.kinds.retentions.decide(chat, ChatRetention(days=days))
            assert (await keeper.report()).bodies == wanted


async def test_a_hold_keeps_everything(engine: Engine, tmp_path: Path) -> None:
    """Neither retention nor an erasure removes anything from a chat under a legal hold; both name it."""
    async with engine.opened() as store:
        ann, _, chat = await two_people(store)
        store.clock.advance(10 * MS_PER_DAY)
        keeper = retention_of(store, None, days=7)
        await store.kinds.retentions.decide(chat, ChatRetention(days=1, is_held=True))
        for report in (await keeper.apply(), await keeper.erase(ann)):
            assert (report.bodies, [(line.chat_id, line.is_held) for line in report.lines]) == (
                0,
                [(chat, True)],
            )
        await store.kinds.retentions.decide(chat, ChatRetention())
        assert (await keeper.erase(ann)).bodies == MESSAGES


async def test_segments_of_others_are_not_read(tmp_path: Path) -> None:
    """The index of a segment says who wrote: an erasure skips those of other people."""
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        _, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ben)
        await store.log.append([message(chat, ben, f"{at}") for at in range(5)])
        cold = ColdWorld(store, tmp_path, objects=in_folder(tmp_path))
        await cold.run()
        read: list[str] = []
        whole = cold.objects.read

        async def noted(name: str) -> bytes:
            read.append(name)
            return await whole(name)

        cold.objects.read = noted  # type: ignore[method-assign]
        eraser = EntryWriter(store.engine.log, cold.tier, cold.archiver)
        assert (await eraser.erase(chat, Choice(sender_id="user_other"))).bodies == 0
        assert not [name for name in read if name.endswith(".seg")]


async def test_positions_of_devices_are_forgotten(engine: Engine) -> None:
    """Those of the person, of all devices and chats, and of nobody else; also after a restart."""
    async with engine.opened() as store:
        ann, ben, chat = await two_people(store)
        other = await add_group(store, ben, ann)
        await stored(store, message(other, ben))
        for user_id, device, where in ((ann, "phone", chat), (ann, "pad", other), (ben, "phone", chat)):
            store.cursors.note_acked(user_id, device, where, 1, store.clock())
        await store.cursors.flush()
        assert await store.member_states.forget_cursors(ann) == 2
        assert await store.member_states.forget_cursors(ann) == 0
        await store.reopen()
        assert await store.cursors.position(ann, "phone", chat) == 0
        assert await store.cursors.position(ann, "pad", other) == 0
        assert await store.cursors.position(ben, "phone", chat) == 1
