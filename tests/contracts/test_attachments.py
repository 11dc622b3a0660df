"""The port `Attachments`: what is kept about files that messages refer to."""

import asyncio

from msgspec.structs import replace

from parley.core.attachments import CHARGED_BYTES_MIN, Attachment, AttachmentState
from parley.records.attachments import NOTE_MS
from tests.contracts.attachments import new_attachment
from tests.contracts.engines import Engine, OpenStore


async def test_a_file_is_found_by_chat_and_id(engine: Engine) -> None:
    """With all that was stored of it, also after a restart; not in another chat."""
    async with engine.opened() as store:
        plain = new_attachment(number=2, width=0, height=0, preview="", client_key=b"", sequence=0)
        await store.attachments.add(new_attachment())
        await store.attachments.add(plain)
        for _ in range(2):
            for file in (new_attachment(), plain):
                assert await store.attachments.get("chat_1", file.attachment_id) == file
                assert await store.attachments.get("chat_2", file.attachment_id) is None
            for unknown in ("", "att_3", "att_\0"):
                assert await store.attachments.get("chat_1", unknown) is None
            await store.reopen()


async def test_of_many_who_change_a_file_one_does(engine: Engine) -> None:
    """The others hear that it is not what they knew, and nothing of theirs is written."""
    async with engine.opened() as store:
        before = new_attachment()
        await store.attachments.add(before)
        wanted = [replace(before, since_ms=10 + number) for number in range(4)]
        done = await asyncio.gather(*(store.attachments.swap(before, after) for after in wanted))
        assert done.count(True) == 1
        stored = await store.attachments.get("chat_1", before.attachment_id)
        assert stored == wanted[done.index(True)]


async def test_a_removed_file_stays_away(engine: Engine) -> None:
    """A change that comes late does not bring it back; removing it again is no failure."""
    async with engine.opened() as store:
        file, other = new_attachment(), new_attachment(number=2)
        await store.attachments.add(file)
        await store.attachments.add(other)
        for _ in range(2):
            await store.attachments.remove(file)
        assert not await store.attachments.swap(file, replace(file, since_ms=10))
        await store.reopen()
        assert await store.attachments.get("chat_1", file.attachment_id) is None
        assert await store.attachments.unsettled() == [other]


async def test_only_what_is_attached_is_settled(engine: Engine) -> None:
    """A file in any other state is listed, whichever way it came there, also after a restart."""
    async with engine.opened() as store:
        files = [
            new_attachment(number=number, state=state)
            for number, state in enumerate(AttachmentState)
            if state is not AttachmentState.ATTACHED
        ]
        for file in files:
            await store.attachments.add(file)
        settled = replace(files[0], state=AttachmentState.ATTACHED)
        assert await store.attachments.swap(files[0], settled)
        store.clock.advance(NOTE_MS + 1)
        assert await _unsettled(store) == files[1:]
        assert await store.attachments.swap(settled, files[0])
        await store.reopen()
        for _ in range(2):
            assert await _unsettled(store) == files
            store.clock.advance(NOTE_MS + 1)


async def _unsettled(store: OpenStore) -> list[Attachment]:
    found = await store.attachments.unsettled()
    return sorted(found, key=lambda file: file.attachment_id)


async def test_files_take_room(engine: Engine) -> None:
    """Of their owner alone, whatever their state; a small one counts as a larger one, a removed one not."""
    async with engine.opened() as store:
        large, small = new_attachment(size=10**10), new_attachment("chat_2", number=2, size=1)
        other = new_attachment(number=3, user_id="user_2", size=10**6)
        for file in (large, small, other):
            await store.attachments.add(file)
        await store.attachments.swap(small, replace(small, state=AttachmentState.ATTACHED))
        assert await store.attachments.charged_bytes("user_1") == 10**10 + CHARGED_BYTES_MIN
        await store.attachments.remove(large)
        assert await store.attachments.charged_bytes("user_1") == CHARGED_BYTES_MIN
        assert await store.attachments.charged_bytes("user_3") == 0
