"""The SDK as an application uses it, over a real local socket."""

import asyncio
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from parley.client import Client, ReadElsewhere, RequestRefused, connect
from parley.client.storage import OutgoingMessage, SqliteStorage, StateChanges
from parley.clock import MS_PER_DAY, Clock, iso, wall_clock
from parley.wire.frames import Messages
from tests.harness.clock import VirtualClock
from tests.model_server.server import make_entry, raw
from tests.unit.client.fake_server import CHAT, DEVICE, OTHER_CHAT, QUICK, TOKEN, FakeServer, fake_server

OLD_ID = str(uuid.UUID(int=7, version=4))


def to(server: FakeServer, outbox: Path | None = None, clock: Clock = wall_clock) -> Client:
    path = None if outbox is None else str(outbox)
    return connect(server.url, TOKEN, device_id=DEVICE, outbox=path, timing=QUICK, clock=clock)


def fill(server: FakeServer, count: int, chat_id: str = CHAT) -> None:
    for _ in range(count):
        server.model.add(chat_id, make_entry(chat_id, server.model.head(chat_id) + 1))


async def read(me: Client, count: int, chat_id: str = CHAT) -> list[int]:
    """So many entries, the last one not yet processed."""
    sequences: list[int] = []
    async for entry in me.chat(chat_id):
        sequences.append(entry.sequence)
        if len(sequences) == count:
            break
    return sequences


async def test_history_is_read_page_by_page_and_then_live() -> None:
    """A loop yields the whole log from the device's cursor and goes on with what comes."""
    async with fake_server() as server, to(server) as me:
        fill(server, 20)
        live = Messages(chat_id=CHAT, epoch=1, entries=[raw(make_entry(CHAT, 21))])
        assert await read(me, 20) == list(range(1, 21))
        fill(server, 1)
        await server.tell(live)
        assert await read(me, 2) == [20, 21]


async def test_the_server_knows_the_cursor_of_a_device_without_a_file() -> None:
    """A client without a file goes on where the server last heard it was, counting only what is processed."""
    async with fake_server() as server:
        fill(server, 5)
        async with to(server) as me:
            await read(me, 3)
        assert server.model.cursor("user_me", CHAT) == 2
        async with to(server) as me:
            assert await read(me, 1) == [3]


async def test_a_cursor_survives_in_the_file(tmp_path: Path) -> None:
    """A client goes on where its own file says, even if the server heard otherwise."""
    async with fake_server() as server:
        fill(server, 5)
        async with to(server, tmp_path / "o.db") as me:
            await read(me, 3)
            me.chat(CHAT).done()
        server.model.tables.devices.clear()
        async with to(server, tmp_path / "o.db") as me:
            assert await read(me, 1) == [4]


async def test_a_loop_that_broke_off_sees_its_last_entry_again() -> None:
    """Only asking for the next entry, or saying so, counts as processed."""
    async with fake_server() as server, to(server) as me:
        fill(server, 3)
        assert await read(me, 2) == [1, 2]
        assert await read(me, 1) == [2]
        me.chat(CHAT).done()
        assert await read(me, 1) == [3]


async def test_a_loop_may_start_anywhere() -> None:
    """Seeking leaves the device's place for another, forwards and back to the start."""
    async with fake_server() as server, to(server) as me:
        fill(server, 9)
        me.chat(CHAT).seek(6)
        assert await read(me, 2) == [7, 8]
        me.chat(CHAT).seek(0)
        assert await read(me, 2) == [1, 2]


async def test_a_second_loop_takes_over() -> None:
    """One device has one cursor per chat, so that the first loop ends."""
    async with fake_server() as server, to(server) as me:
        first = asyncio.ensure_future(anext(aiter(me.chat(CHAT))))
        await asyncio.sleep(0)
        fill(server, 1)
        assert await read(me, 1) == [1]
        with pytest.raises(ReadElsewhere):
            await first


async def test_all_chats_in_one_loop() -> None:
    """A loop over the client yields every chat's entries, each chat in its order."""
    async with fake_server() as server, to(server) as me:
        fill(server, 9)
        fill(server, 9, OTHER_CHAT)
        seen: dict[str, list[int]] = {CHAT: [], OTHER_CHAT: []}
        async for entry in me:
            seen[entry.chat_id].append(entry.sequence)
            if sum(map(len, seen.values())) == 18:
                break
        assert seen == {CHAT: list(range(1, 10)), OTHER_CHAT: list(range(1, 10))}


async def test_a_loop_of_its_own_takes_a_chat_out_of_the_loop_over_all() -> None:
    """What the loop over all left unprocessed comes again in the other, and each goes on by itself."""
    async with fake_server() as server, to(server) as me:
        fill(server, 2)
        everything = aiter(me)
        assert (await anext(everything)).chat_id == CHAT
        assert await read(me, 1) == [1]
        fill(server, 1, OTHER_CHAT)
        await server.tell(Messages(chat_id=OTHER_CHAT, epoch=1, entries=[raw(make_entry(OTHER_CHAT, 1))]))
        assert (await anext(everything)).chat_id == OTHER_CHAT
        assert await read(me, 2) == [1, 2]


async def test_a_chat_that_is_not_ones_own_ends_the_loop() -> None:
    """Whoever may not read learns it instead of waiting for ever."""
    async with fake_server() as server, to(server) as me:
        with pytest.raises(RequestRefused) as refusal:
            await read(me, 1, "chat_of_others")
        assert refusal.value.code == "not_a_member"


async def test_a_log_that_was_started_over_is_read_again() -> None:
    """Entries come from 1 in the new epoch, and the chat counts the restart."""
    async with fake_server() as server, to(server) as me:
        fill(server, 4)
        assert await read(me, 4) == [1, 2, 3, 4]
        server.model.start_over(CHAT)
        await server.tell(Messages(chat_id=CHAT, epoch=2, entries=[raw(make_entry(CHAT, 3, epoch=2))]))
        async for entry in me.chat(CHAT):
            if entry.epoch == 2:
                break
        assert (entry.sequence, me.chat(CHAT).restarts) == (1, 1)


async def test_mark_read_returns_when_it_has_taken_effect() -> None:
    """The receipt reaches the server before the call returns; a refusal is raised."""
    async with fake_server() as server, to(server) as me:
        fill(server, 3)
        await me.chat(CHAT).mark_read(2)
        assert [(frame.chat, frame.read_up_to) for frame in server.reads] == [(CHAT, 2)]
        with pytest.raises(RequestRefused, match="not a member"):
            await me.mark_read("chat_of_others", 1)


async def test_the_overview_is_asked_anew() -> None:
    """What changed since the welcome is in it."""
    async with fake_server() as server, to(server) as me:
        fill(server, 3)
        heads = {chat.chat_id: chat.head for chat in await me.overview()}
        assert heads == {CHAT: 3, OTHER_CHAT: 0}


async def test_history_moves_no_cursor() -> None:
    """Looking back shows entries without reading on."""
    async with fake_server() as server, to(server) as me:
        fill(server, 10)
        page = await me.chat(CHAT).history(before=5, limit=2)
        assert [entry.sequence for entry in page.entries] == [3, 4]
        assert await read(me, 1) == [1]


async def send_and_fall(server: FakeServer, outbox: Path, clock: Clock = wall_clock) -> tuple[str, str]:
    """Two messages in the outbox of a client that ended by an error."""
    with suppress(ZeroDivisionError):
        async with to(server, outbox, clock) as me:
            first, second = me.chat(CHAT).send("a"), me.chat(CHAT).send("b")
            await second.kept()
            raise ZeroDivisionError
    return first.client_message_id, second.client_message_id


async def test_unacknowledged_messages_survive_the_process(tmp_path: Path) -> None:
    """The next client with the same file sends them, in order and under the same ids, before newer ones."""
    async with fake_server() as server:
        server.deaf = True
        first, second = await send_and_fall(server, tmp_path / "o.db")
        server.deaf = False
        async with to(server, tmp_path / "o.db") as me:
            left = me.unsent
            await me.chat(CHAT).send("c")
            assert [(await sending).sequence for sending in left] == [1, 2]
        ids = server.model.stored_ids(CHAT, "user_me")
        assert ids[:2] == [first, second]
        async with to(server, tmp_path / "o.db") as me:
            assert me.unsent == []


async def test_a_message_says_when_it_was_sent() -> None:
    """By the client's own clock, unless the application knows better."""
    clock = VirtualClock()
    async with fake_server() as server, to(server, clock=clock) as me:
        await me.chat(CHAT).send("now")
        await me.chat(CHAT).send("then", display_time="1999-12-31T23:59:59Z")
        assert [sent.display_time for sent in server.sends] == [iso(clock()), "1999-12-31T23:59:59Z"]


async def test_a_message_that_is_delivered_late_says_when_it_was_sent(tmp_path: Path) -> None:
    """Every retry has the time of the first attempt, also those of the next client with the same file."""
    clock = VirtualClock()
    sent_at = iso(clock())
    async with fake_server() as server:
        server.deaf = True
        await send_and_fall(server, tmp_path / "o.db", clock)
        server.deaf = False
        clock.advance(3 * 60 * 60 * 1000)
        async with to(server, tmp_path / "o.db", clock) as me:
            for sending in me.unsent:
                await sending
        assert len(server.sends) >= 4
        assert {sent.display_time for sent in server.sends} == {sent_at}


def leave_old_message(path: Path) -> None:
    """An outbox in which a message has been waiting for more than the seven days of the keys."""
    storage = SqliteStorage(str(path))
    created_at_ms = wall_clock() - 8 * MS_PER_DAY
    message = OutgoingMessage(
        chat_id=CHAT, client_message_id=OLD_ID, content="old", created_at_ms=created_at_ms
    )
    storage.commit(StateChanges(added=[message]))
    storage.close()


async def test_an_old_message_is_looked_for_and_then_sent(tmp_path: Path) -> None:
    """When it is neither known by its id nor in the log, it goes out."""
    leave_old_message(tmp_path / "o.db")
    async with fake_server() as server, to(server, tmp_path / "o.db") as me:
        fill(server, 3)
        (sending,) = me.unsent
        assert (await sending).sequence == 4
        assert server.looked_for[OLD_ID] == 1


async def test_an_old_message_in_the_log_is_not_sent_again(tmp_path: Path) -> None:
    """Although its key has expired, its entry is found and counts as the ack."""
    leave_old_message(tmp_path / "o.db")
    async with fake_server() as server:
        server.model.add(CHAT, make_entry(CHAT, 1, sender="user_me", cid=OLD_ID))
        fill(server, 20)
        async with to(server, tmp_path / "o.db") as me:
            (sending,) = me.unsent
            ack = await sending
            assert (ack.sequence, ack.deduplicated) == (1, True)
        assert server.sends == []


@pytest.mark.parametrize("content", ["x" * 65_537, "\x00" * 60_000])
async def test_what_no_server_would_take_is_refused_at_once(content: str) -> None:
    """Too many bytes, or too many once they are escaped, never reach the outbox."""
    async with fake_server() as server, to(server) as me:
        with pytest.raises(RequestRefused) as refusal:
            me.chat(CHAT).send(content)
        assert refusal.value.code == "too_large"
        assert me.unsent == []


async def test_the_largest_message_is_taken() -> None:
    """The limit itself is allowed."""
    async with fake_server() as server, to(server) as me:
        assert (await me.chat(CHAT).send("x" * 65_536)).sequence == 1


async def test_an_application_may_name_its_own_id() -> None:
    """Its id is used as it is, must be a UUIDv4, and cannot be queued twice."""
    async with fake_server() as server, to(server) as me:
        server.deaf = True
        chat = me.chat(CHAT)
        sending = chat.send("hi", client_message_id=OLD_ID)
        with pytest.raises(RequestRefused, match="already queued"):
            chat.send("hi", client_message_id=OLD_ID)
        with pytest.raises(RequestRefused, match="UUIDv4"):
            chat.send("hi", client_message_id="1")
        await server.until(lambda: len(server.sends) == 1)
        server.deaf = False
        assert (await sending).client_message_id == OLD_ID
