"""After a delete was answered the body is nowhere: in no row, no file and no memory of any node."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from parley.archive.manifest import SegmentEntry
from parley.archive.reader import BLOCK_UNUSED_SECONDS_MAX, BlockCache
from parley.core.deliveries import DeadLetter, QueueClaim
from parley.core.push_devices import NotificationOutcome, Provider, PushOutcome
from parley.model import Kind
from parley.store.sqlite.database import Database
from tests.contracts.acting import add_group, add_people, message, stored
from tests.contracts.cold_world import ColdWorld
from tests.contracts.engines import ENGINES, Engine, SqliteEngine
from tests.contracts.life_world import LifeWorld, delete, edit, make_life, react
from tests.contracts.test_retention import all_content, raw_bytes

SHARED = ("dynamodb-atomic", "dynamodb-two_phase", "cassandra-atomic", "cassandra-two_phase")
CACHE_BYTES = 1 << 20
EDITS = 5


@pytest.mark.parametrize("name", SHARED)
async def test_no_row_has_it_whichever_node_was_last(name: str, tmp_path: Path) -> None:
    """One node edits again and again while another deletes: of what was stored nothing is left."""
    async with ENGINES[name](tmp_path).opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        target = (await stored(store, message(chat, ann, "SECRET"))).message_id
        assert "SECRET" in repr(store.rows.everything())
        async with store.operator() as other:
            await other.open()
            here, there = make_life(store.engine, store.clock), make_life(other, store.clock)
            edits = [there.send(edit(chat, ann, target, f"SECRET {at}")) for at in range(EDITS)]
            outcomes = await asyncio.gather(
                *edits[:2], here.send(delete(chat, ann, target)), *edits[2:], return_exceptions=True
            )
            assert not isinstance(outcomes[2], BaseException)
            assert "SECRET" not in repr(store.rows.everything())
            page = await other.log.read(chat, 0, 100)
            assert b"SECRET" not in b"".join(page.entries)


async def test_no_memory_of_a_reader_has_it(engine: Engine, tmp_path: Path) -> None:
    """The node that deletes forgets at once, others with their next read of the chat, or after a while."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        one, two, three = nodes = [ColdWorld(store, tmp_path) for _ in range(3)]
        now = [0.0]
        three.reader._blocks = BlockCache(CACHE_BYTES, lambda: now[0])
        await store.log.append([message(chat, ann, f"SECRET {at}") for at in range(6)])
        await stored(store, message(chat, ann, "the last one stays in the engine"))
        await one.run()
        target = (await LifeWorld(store, one).entries(chat))[2]
        for node in nodes:
            await node.log.read(chat, 0, 6)
            assert b"SECRET 2" in in_memory(node)
        await LifeWorld(store, one).done(delete(chat, ann, target.message_id))
        assert b"SECRET 2" not in in_memory(one)
        assert b"SECRET 2" in in_memory(two)
        await two.log.read(chat, 0, 1)
        assert b"SECRET 2" not in in_memory(two)
        await three.reader.forget_unused()
        assert b"SECRET 2" in in_memory(three)
        now[0] += BLOCK_UNUSED_SECONDS_MAX + 1
        await three.reader.forget_unused()
        assert in_memory(three) == b""
        assert three.reader.cached_bytes == 0


@pytest.mark.parametrize("what", ["forgotten", "forgotten with all", "not told"])
async def test_a_read_under_way_keeps_no_body(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A node is told of a removal while it reads, or is not told of any: the block is not cached."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        node = ColdWorld(store, tmp_path)
        await store.log.append([message(chat, ann, f"SECRET {at}") for at in range(6)])
        await stored(store, message(chat, ann, "the last one stays in the engine"))
        await node.run()
        read_range = node.objects.read_range

        async def slow(*arguments: Any) -> bytes:
            if what != "not told":
                node.reader.forget(chat) if what == "forgotten" else node.reader.forget_all()
            return await read_range(*arguments)

        node.reader.may_keep = lambda: what != "not told"
        monkeypatch.setattr(node.objects, "read_range", slow)
        page = await node.log.read(chat, 0, 6)
        assert b"SECRET 2" in b"".join(page.entries)
        assert in_memory(node) == b""
        monkeypatch.undo()
        node.reader.may_keep = lambda: True
        await node.log.read(chat, 0, 6)
        assert b"SECRET 2" in in_memory(node)
        node.reader.forget_all()
        assert (in_memory(node), node.reader.cached_bytes) == (b"", 0)


async def test_a_slow_edit_of_an_archived_message_brings_no_body_back(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node edits what is archived and not trimmed; while it writes a segment, another node deletes it."""

    async def needs_everything(_: str) -> int:
        return 1

    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        one, two = (ColdWorld(store, tmp_path, consumers=[needs_everything]) for _ in range(2))
        target = (await stored(store, message(chat, ann, "SECRET"))).message_id
        await stored(store, message(chat, ann, "the last one stays in the engine"))
        await one.run()
        mark = await one.mark(chat)
        assert (mark.archived_through, mark.trimmed_through) == (1, 0)
        upload, is_deleted = one.archiver.upload, list[bool]()

        async def slow_upload(*arguments: Any) -> SegmentEntry:
            if not is_deleted:
                is_deleted.append(True)
                await LifeWorld(store, two).done(delete(chat, ann, target))
            return await upload(*arguments)

        monkeypatch.setattr(one.archiver, "upload", slow_upload)
        await LifeWorld(store, one).done(edit(chat, ann, target, "SECRET edit"))
        assert is_deleted == [True]
        shown = await LifeWorld(store, two).entries(chat)
        assert [(entry.kind, entry.content) for entry in shown] == [
            ("message", ""),
            ("message", "the last one stays in the engine"),
            ("edit", ""),
            ("delete", ""),
        ]
        assert b"SECRET" not in all_content(two)


def in_memory(node: ColdWorld) -> bytes:
    """What a node's reader of the archive remembers of entries."""
    blocks = node.reader._blocks._blocks.values()
    return b"".join(wire or b"" for block in blocks for wire in block)


async def test_what_is_still_to_be_delivered_has_no_body(sqlite: SqliteEngine, tmp_path: Path) -> None:
    """A queue, a dead letter, a ring and a hash know of the message; none of them holds its text."""
    async with sqlite.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        target = await stored(store, message(chat, ann, "SECRET"))
        await store.deliveries.queues.extend(chat, ["webhook_1", ben], 1, 1, QueueClaim("token", 10**15))
        await store.deliveries.dead_letters.add(letter(chat, target.message_id, ann))
        ring = PushOutcome(
            chat_id=chat,
            sequence=1,
            user_id=ben,
            device_id="phone",
            provider=Provider.WEBPUSH,
            outcome=NotificationOutcome.RINGING,
            detail="",
            at_ms=store.clock(),
        )
        await store.push.outcomes.note(ring)
        world = LifeWorld(store)
        await world.done(react(chat, ben, target.message_id, "x"))
        assert b"SECRET" in raw_bytes(tmp_path)
        await world.done(delete(chat, ann, target.message_id))
        assert b"SECRET" not in raw_bytes(tmp_path)
        assert (await world.entries(chat))[0].kind == Kind.MESSAGE.value


def letter(chat: str, message_id: str, sender: str) -> DeadLetter:
    return DeadLetter(
        dlq_id="dlq_1",
        chat_id=chat,
        sequence=1,
        recipient="webhook_1",
        message_id=message_id,
        sender_id=sender,
        created_ms=1,
        error="e",
        detail="the receiver said no",
        retry_count=3,
        first_attempt_ms=1,
        last_attempt_ms=2,
        dlq_ms=3,
        changed_ms=4,
        source_topic="t",
        history=(),
    )


async def test_deletes_at_once_share_a_look_at_the_file(
    sqlite: SqliteEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many wait: each body is gone when its own delete is answered."""
    looks: list[int] = []
    clean = Database.clean

    def counted(self: Database, leftovers: list[bytes]) -> None:
        looks.append(len(leftovers))
        clean(self, leftovers)

    monkeypatch.setattr(Database, "clean", counted)
    async with sqlite.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        world = LifeWorld(store)
        texts = [await stored(store, message(chat, ann, f"SECRET {at}.")) for at in range(8)]

        async def remove(at: int) -> None:
            await world.done(delete(chat, ann, texts[at].message_id))
            assert f"SECRET {at}.".encode() not in raw_bytes(tmp_path)

        await asyncio.gather(*(remove(at) for at in range(8)))
        assert sum(looks) == 8
        assert len(looks) < 8
