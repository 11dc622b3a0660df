"""Files of messages: on every engine they come with their entries and go with them; on every object store."""

from pathlib import Path

import pytest

from parley.core.attachments import AttachmentState
from parley.core.log_hash import empty_log, following
from parley.errors import NO_SUCH_ATTACHMENT, Refused
from parley.files.steps import FILE_LABELS
from parley.model import Appended
from tests.contracts.acting import add_group, add_people, message
from tests.contracts.cold_world import ColdWorld, synced
from tests.contracts.engines import ENGINES, Engine
from tests.contracts.files_world import HOUR_MS, FilesWorld, in_chunks
from tests.contracts.object_stores import OBJECT_STORES
from tests.contracts.test_archive import Died
from tests.integration.gateway.uploading import PART, shrink_parts, some_bytes

DATA = some_bytes(2 * PART + 500)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_parts(monkeypatch)


async def test_entries_carry_their_files(engine: Engine, tmp_path: Path) -> None:
    """Alone and among others in one append, also after a restart; the hash of the log covers them."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        world = FilesWorld(store, tmp_path)
        one, two = [await world.upload(chat, ann, DATA, name) for name in ("é ✓.bin", "b")]
        await world.send(message(chat, ann, "first"), one)
        drafts = [message(chat, ann, text) for text in ("a", "b", "c")]
        drafts[1].attachments, drafts[1].files = (two.attachment_id,), (two.file,)
        await store.log.append(drafts)
        for _ in range(2):
            entries = await world.entries(chat)
            found = [list(entry.attachments or ()) for entry in entries]
            assert found == [[one.file], [], [two.file], []]
            await store.reopen()
            world = FilesWorld(store, tmp_path)
        wires = [wire for _, wire in await synced(store.log, chat) if wire is not None]
        other = [wire.replace(one.sha256.encode(), b"0" * 64, 1) for wire in wires]
        assert other != wires
        assert following(empty_log(chat), 0, wires, ()) != following(empty_log(chat), 0, other, ())


async def test_erased_bodies_take_their_files_along(engine: Engine, tmp_path: Path) -> None:
    """From both tiers; the hash of the log stays, and what others wrote."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        cold = ColdWorld(store, tmp_path)
        world = FilesWorld(store, tmp_path, cold=cold)
        files = [await world.upload(chat, person, DATA) for person in (ann, ben, ann)]
        for file in files[:2]:
            await world.send(message(chat, file.user_id), file)
        await cold.run()
        await world.send(message(chat, ann), files[2])
        before = [wire for _, wire in await synced(cold.log, chat) if wire is not None]
        await world.erase(chat, ann)
        assert await world.stored() == await world.referred_to(chat) == {files[1].attachment_id}
        assert await store.attachments.unsettled() == []
        after = [wire for _, wire in await synced(cold.log, chat) if wire is not None]
        assert after != before
        assert following(empty_log(chat), 0, before, ()) == following(empty_log(chat), 0, after, ())


async def test_a_file_belongs_to_one_message(engine: Engine, tmp_path: Path) -> None:
    """A retry of that message is answered, also after it was erased; any other is refused."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        world = FilesWorld(store, tmp_path)
        file = await world.upload(chat, ann, DATA)
        draft = message(chat, ann)
        assert await world.try_send(message(chat, ben), file) == NO_SUCH_ATTACHMENT
        first = await world.send(draft, file)
        assert await world.try_send(message(chat, ann), file) == NO_SUCH_ATTACHMENT
        for _ in range(2):
            again = await world.send(draft, file)
            assert (again.sequence, again.deduplicated, again.conflict) == (first.sequence, True, False)
            await world.erase(chat, ann)
        assert await world.stored() == set()


@pytest.mark.parametrize("label", FILE_LABELS)
async def test_a_process_may_die_anywhere(engine: Engine, tmp_path: Path, label: str) -> None:
    """No message ever refers to bytes that are not there, and in the end no bytes are there without one."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        kept = await FilesWorld(store, tmp_path).upload(chat, ben, b"kept")
        await FilesWorld(store, tmp_path).send(message(chat, ben), kept)

        def die(reached: str) -> None:
            if reached == label:
                raise Died

        with pytest.raises(Died):
            await _whole_life(FilesWorld(store, tmp_path, fault_point=die), chat, ann)
        await store.reopen()
        world = FilesWorld(store, tmp_path)
        for _ in range(2):
            assert await world.referred_to(chat) <= await world.stored()
            for entry in await world.entries(chat):
                for told in entry.attachments or ():
                    found = await store.attachments.get(chat, told.attachment_id)
                    assert found is not None
                    await world.downloads.find(ben, chat, told.attachment_id)
            store.clock.advance(61_000)
            await world.removal.sweep()
        await world.sweep_all()
        assert await world.stored() == await world.referred_to(chat) >= {kept.attachment_id}
        assert await store.attachments.unsettled() == []
        assert await world.read(kept) == b"kept"


async def _whole_life(world: FilesWorld, chat: str, person: str) -> None:
    file = await world.upload(chat, person, DATA)
    await world.send(message(chat, person), file)
    await world.erase(chat, person)


@pytest.mark.parametrize("kind", OBJECT_STORES)
async def test_files_on_every_object_store(kind: str, tmp_path: Path) -> None:
    """Uploaded in ranges, read by ranges, removed with nothing left behind."""
    async with ENGINES["memory-atomic"](tmp_path).opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        world = FilesWorld(store, tmp_path, objects=OBJECT_STORES[kind](tmp_path))
        file = await world.announce(chat, ann, DATA)
        assert (await world.uploads.receive(file, 0, PART, in_chunks(DATA[:PART]))).received == PART
        assert (await world.uploads.progress(file)).received == PART
        done = await world.uploads.receive(file, PART, len(DATA), in_chunks(DATA[PART:]))
        assert done.attachment.state is AttachmentState.COMPLETE
        for start, end in [(0, len(DATA)), (PART - 1, PART + 1), (1, 2), (2 * PART, len(DATA))]:
            assert await world.read(file, start, end) == DATA[start:end]
        assert isinstance(await world.send(message(chat, ann), done.attachment), Appended)
        left = await world.upload(chat, ann, DATA)
        await world.erase(chat, ann)
        assert await world.stored() == {left.attachment_id}
        store.clock.advance(HOUR_MS + 1)
        await world.sweep_all()
        assert await world.stored() == set()


async def test_a_part_is_never_written_after_the_end_of_an_upload(tmp_path: Path) -> None:
    """Whatever is under way then is refused: the sweep would not find it."""
    async with ENGINES["memory-atomic"](tmp_path).opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        world = FilesWorld(store, tmp_path)
        file = await world.announce(chat, ann, DATA)
        store.clock.advance(HOUR_MS)
        with pytest.raises(Refused):
            await world.uploads.receive(file, 0, len(DATA), in_chunks(DATA))
        assert await world.stored() == set()
