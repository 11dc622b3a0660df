"""The failure matrix of ADR-001 (ordering, delivery, idempotency), appendix B, and its "Confirmation".

Of the confirmation, "load tests" are `make bench`. Everything here runs on the embedded engine in both
sequencing modes.
"""

import asyncio
import uuid
from random import Random

import pytest

from parley.wire.limits import PAGE_ENTRIES_DEFAULT
from tests.acceptance.crashing import send_into_crash
from tests.acceptance.world import store_of, world_on
from tests.harness.clients import Disconnected
from tests.harness.proxy import Chaos, ChaosProxy
from tests.harness.server import ServerProcess

MISSED = 2 * PAGE_ENTRIES_DEFAULT + 50
"""Messages in each chat while somebody is away: three pages."""


async def test_network_timeout_during_send(server: ServerProcess) -> None:
    """The ack is lost on its way; the retry with the same id is answered with the original sequence."""
    async with world_on(server) as world:
        lossy = Chaos(drop_share=1, kinds_hit=frozenset({"ack"}))
        client_message_id = str(uuid.uuid4())
        proxy = ChaosProxy(server.port, Random(1), lossy)
        async with proxy, world.client(world.ann, proxy.url) as ann:
            lost = await ann.post_message(world.chat_id, "hello", client_message_id)
            await ann.live_entry(world.chat_id, 1)
            assert not lost.done()
            proxy.chaos.drop_share = 0
            retry = await ann.send_message(world.chat_id, "hello", client_message_id)
        assert (retry["sequence"], retry["deduplicated"]) == (1, True)
        assert list(store_of(world).messages.values()) == [client_message_id]


async def test_client_crash_before_ack(server: ServerProcess) -> None:
    """A client that dies before its ack retries after its restart, and nothing is stored twice."""
    async with world_on(server) as world:
        client_message_id = str(uuid.uuid4())
        async with world.client(world.ben) as ben:
            dying = world.client(world.ann)
            await dying.connect()
            await dying.post_message(world.chat_id, "hello", client_message_id)
            dying.abort()
            await dying.until_ended()
            async with world.client(world.ann) as ann:
                retry = await ann.send_message(world.chat_id, "hello", client_message_id)
            seen = await ben.live_entry(world.chat_id, retry["sequence"])
            await dying.close()
        assert (retry["sequence"], seen["client_message_id"]) == (1, client_message_id)
        assert list(store_of(world).messages) == [1]


@pytest.mark.parametrize("mode", ["atomic", "two_phase"], indirect=True)
async def test_server_crash_after_persist_before_ack(own_server: ServerProcess, mode: str) -> None:
    """A new server instance answers the retry with the sequence that the old one stored."""
    label = {"atomic": "after_commit_before_ack:1", "two_phase": "after_commit_before_ack:2"}[mode]
    async with world_on(own_server) as world:
        client_message_id = str(uuid.uuid4())
        await send_into_crash(world, label, client_message_id)
        await asyncio.to_thread(own_server.start)
        async with world.client(world.ann) as ann:
            retry = await ann.send_message(world.chat_id, "hello", client_message_id)
        assert (retry["sequence"], retry["deduplicated"]) == (1, True)


async def test_client_offline_for_extended_period(server: ServerProcess) -> None:
    """A client that was away finds by one overview which chats it missed, and reads each, page by page."""
    async with world_on(server) as world:
        chats = [world.chat_id, *[await world.http.of(world.ann).create_group(world.ben) for _ in range(3)]]
        quiet, talked_in = chats[0], chats[1:]
        async with world.client(world.ben) as ben:
            for chat_id in chats:
                await world.fill(20, chat_id)
                await ben.live_entry(chat_id, 20)
                await ben.tell("ack", chat_id=chat_id, last_acked_sequence=20)
            token = (await ben.request("sync_overview"))["token"]
        for chat_id in talked_in:
            await world.fill(MISSED, chat_id)
        async with world.client(world.ben) as ben:
            overview = await ben.request("sync_overview", changed_since=token)
            at = {chat["chat_id"]: chat for chat in overview["chats"]}
            missed = {
                chat_id: await ben.sync_all(chat_id, position["last_acked_sequence"], PAGE_ENTRIES_DEFAULT)
                for chat_id, position in at.items()
            }
        assert (overview["complete"], quiet in at) == (True, False)
        read = {chat_id: [entry["sequence"] for entry in entries] for chat_id, entries in missed.items()}
        assert read == {chat_id: list(range(21, 21 + MISSED)) for chat_id in talked_in}


async def test_duplicate_client_message_id_with_different_content(server: ServerProcess) -> None:
    """An id used for other content is answered with the original, whose content is kept."""
    async with world_on(server) as world:
        client_message_id = str(uuid.uuid4())
        async with world.client(world.ann) as ann:
            first = await ann.send_message(world.chat_id, "original", client_message_id)
            other = await ann.send_message(world.chat_id, "changed", client_message_id)
        assert (other["sequence"], other["message_id"]) == (first["sequence"], first["message_id"])
        assert (other["deduplicated"], other["conflict"]) == (True, True)
        assert [entry["content"] for entry in await world.read_all()] == ["original"]


async def test_client_reconnects_with_stale_sequence(server: ServerProcess) -> None:
    """Correct catch-up: from any stale position exactly what is missing comes, ascending, once."""
    async with world_on(server) as world:
        await world.fill(30)
        async with world.client(world.ben) as ben:
            for stale in (0, 1, 15, 29, 30):
                page = await ben.sync(world.chat_id, stale)
                assert [entry["sequence"] for entry in page["entries"]] == list(range(stale + 1, 31))
                assert (page["complete"], page["reset"], page["head"]) == (True, False, 30)


async def test_client_reconnects_with_a_position_beyond_the_log(server: ServerProcess) -> None:
    """A position that the log never had is answered from the beginning, and says so."""
    async with world_on(server) as world:
        await world.fill(3)
        async with world.client(world.ben) as ben:
            page = await ben.sync(world.chat_id, 4)
        assert (page["reset"], page["from_sequence"]) == (True, 1)
        assert [entry["sequence"] for entry in page["entries"]] == [1, 2, 3]


async def test_duplicate_message_submission(server: ServerProcess) -> None:
    """No duplicate stored: one message submitted many times at once on many connections is there once."""
    async with world_on(server) as world:
        client_message_id = str(uuid.uuid4())
        clients = [world.client(world.ann, live=False) for _ in range(8)]
        await asyncio.gather(*(client.connect() for client in clients))
        submissions = (
            client.send_message(world.chat_id, "hello", variant)
            for client in clients
            for variant in (client_message_id, client_message_id.upper())
        )
        acks = await asyncio.gather(*submissions)
        await asyncio.gather(*(client.close() for client in clients))
        assert len({(ack["sequence"], ack["message_id"]) for ack in acks}) == 1
        assert sum(not ack["deduplicated"] for ack in acks) == 1
        assert len(store_of(world).messages) == 1


async def test_client_disconnects_before_ack(server: ServerProcess) -> None:
    """Retry succeeds with same sequence: the connection breaks between the send and its ack."""
    async with world_on(server) as world:
        client_message_id = str(uuid.uuid4())
        async with ChaosProxy(server.port, Random(2)) as proxy, world.client(world.ben) as ben:
            ann = world.client(world.ann, proxy.url)
            await ann.connect()
            proxy.chaos.kinds_hit, proxy.chaos.drop_share = frozenset({"ack", "messages"}), 1
            answer = await ann.post_message(world.chat_id, "hello", client_message_id)
            stored = await ben.live_entry(world.chat_id, 1)
            proxy.cut_all()
            with pytest.raises(Disconnected):
                await ann.answered(answer)
            await ann.close()
        async with world.client(world.ann) as ann:
            retry = await ann.send_message(world.chat_id, "hello", client_message_id)
        assert (retry["sequence"], retry["message_id"]) == (stored["sequence"], stored["message_id"])
        assert retry["deduplicated"]


async def test_gateway_crashes_mid_fanout(own_server: ServerProcess) -> None:
    """No message loss: readers that heard one message and not the next have both once and in order."""
    async with world_on(own_server) as world:
        await world.fill(5)
        readers = [world.client(world.ben), world.client(world.ben, msgpack=True)]
        # The readers of one codec are told before those of the other: the third telling is in the midst of
        # the second message, which is stored by then.
        sent = [str(uuid.uuid4()), str(uuid.uuid4())]
        await send_into_crash(world, "mid_fanout:3", *sent, readers=readers)
        await asyncio.to_thread(own_server.start)
        for reader in readers:
            live = reader.live_entries(world.chat_id)
            assert [entry["sequence"] for entry in live] == [6]
            async with world.client(world.ben) as again:
                missed = await again.sync_all(world.chat_id, after=6)
            assert [entry["sequence"] for entry in missed] == [7]
            assert [entry["client_message_id"] for entry in [*live, *missed]] == sent
        assert [entry["sequence"] for entry in await world.read_all()] == [1, 2, 3, 4, 5, 6, 7]
