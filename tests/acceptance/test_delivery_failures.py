"""The failure matrix of ADR-001 (ordering, delivery, idempotency), appendix B, and its "Confirmation".

Of the confirmation, "load tests" are `make bench`. Everything here runs on the embedded engine in both
sequencing modes.
"""

import asyncio
import uuid
from random import Random

import pytest

from parley.testing.clients import Disconnected
from parley.testing.proxy import Chaos, ChaosProxy
from parley.testing.server import ServerProcess
from tests.acceptance.crashing import send_into_crash
from tests.acceptance.world import store_of, world_on


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
    """A client that was away reads everything after its last acknowledged sequence, page by page."""
    async with world_on(server) as world:
        await world.fill(20)
        async with world.client(world.ben) as ben:
            await ben.tell("ack", chat_id=world.chat_id, last_acked_sequence=0)
            assert (await ben.heartbeat())["type"] == "heartbeat_ack"
        await world.fill(250)
        async with world.client(world.ben) as ben:
            missed = await ben.sync_all(world.chat_id, after=20, limit=100)
        assert [entry["sequence"] for entry in missed] == list(range(21, 271))


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
    """No message loss: what some had seen and some had not is there for everybody afterwards."""
    async with world_on(own_server) as world:
        await world.fill(5)
        client_message_id = str(uuid.uuid4())
        await send_into_crash(world, "mid_fanout:1", client_message_id)
        await asyncio.to_thread(own_server.start)
        entries = await world.read_all()
        assert [entry["sequence"] for entry in entries] == [1, 2, 3, 4, 5, 6]
        assert entries[-1]["client_message_id"] == client_message_id
