"""The live models as an application holds them, over a real local socket."""

import asyncio
import gc

import pytest

from parley.client import Client, Closed, MessageStatus, RequestRefused, Update, What, connect
from parley.wire.codes import GOING_AWAY
from parley.wire.frames import Messages, PresenceChanged, Typing
from tests.model_server.server import TIME, make_entry, raw, receipt
from tests.unit.client.fake_server import CHAT, DEVICE, OTHER_CHAT, QUICK, TOKEN, FakeServer, fake_server
from tests.waiting import eventually

BEN = "user_b"


def to(server: FakeServer) -> Client:
    return connect(server.url, TOKEN, device_id=DEVICE, timing=QUICK)


async def say(server: FakeServer, content: str = "hi", chat_id: str = CHAT) -> None:
    """Somebody else writes."""
    entry = make_entry(chat_id, server.model.head(chat_id) + 1, content, sender=BEN)
    server.model.add(chat_id, entry)
    await server.tell(Messages(chat_id=chat_id, epoch=1, entries=[raw(entry)]))


async def test_a_message_goes_from_sending_to_read() -> None:
    """Its status follows the ack, and then how far the others are."""
    async with fake_server() as server, to(server) as me:
        chat = await me.chat(CHAT).open()
        server.deaf = True
        sending = chat.send("hi")
        assert sending.status is MessageStatus.SENDING
        await server.until(lambda: bool(server.sends))
        server.deaf = False
        ack = await sending
        seen = [sending.status]
        updates = chat.updates()
        for kind in ("delivered", "read"):
            await server.tell(receipt(CHAT, BEN, kind, ack.sequence))
            assert await anext(updates) == Update(What.RECEIPTS, CHAT)
            seen.append(sending.status)
        assert seen == [MessageStatus.SENT, MessageStatus.DELIVERED, MessageStatus.READ]
        assert chat.status(ack.sequence) is MessageStatus.READ
        read_by = chat.seen(ack.sequence)
        assert read_by is not None
        assert [one.user_id for one in read_by.read] == [BEN]


async def test_a_message_that_is_refused_has_failed() -> None:
    """Its status says so, beside the error."""
    async with fake_server() as server, to(server) as me:
        sending = me.chat("chat_foreign").send("hi")
        with pytest.raises(RequestRefused):
            await sending
        assert sending.status is MessageStatus.FAILED


async def test_unread_and_typing_need_no_opening() -> None:
    """They are there for every chat of the list."""
    async with fake_server() as server, to(server) as me:
        chat, updates = me.chat(CHAT), me.updates()
        await say(server)
        await server.tell(Typing(chat_id=OTHER_CHAT, user_id=BEN, expires_in_ms=5_000))
        assert {await anext(updates), await anext(updates)} == {
            Update(What.UNREAD, CHAT),
            Update(What.TYPING, OTHER_CHAT),
        }
        assert (chat.unread, chat.unread_more, chat.typing) == (1, False, [])
        assert me.chat(OTHER_CHAT).typing == [BEN]
        await chat.mark_read(1)
        assert chat.unread == 0


async def test_a_closed_chat_shows_nothing() -> None:
    """Members are empty, and a message is at least sent."""
    async with fake_server() as server, to(server) as me:
        chat = me.chat(CHAT)
        ack = await chat.send("hi")
        assert (chat.is_open, len(chat.members), chat.seen(1)) == (False, 0, None)
        assert chat.status(ack.sequence) is MessageStatus.SENT
        await chat.open()
        members = chat.members
        assert [member.user_id for member in members] == ["user_me", BEN]
        assert (members[1].user_id, len(members), members[:1][0].user_id) == (BEN, 2, "user_me")
        chat.close()
        assert len(chat.members) == 0


async def test_members_are_live() -> None:
    """What was taken from the chat once shows what happens later."""
    async with fake_server() as server, to(server) as me:
        server.model.online.add(BEN)
        chat = await me.chat(CHAT).open()
        ben = chat.members.get(BEN)
        assert ben is not None
        updates = chat.updates()
        await say(server)
        await server.tell(receipt(CHAT, BEN, "read", 1))
        await eventually(lambda: (ben.status, ben.read_up_to) == ("online", 1))
        assert {await anext(updates), await anext(updates)} >= {Update(What.UNREAD, CHAT)}


async def test_a_chat_that_one_may_not_see_does_not_open() -> None:
    """The refusal comes out of `open`."""
    async with fake_server() as server, to(server) as me:
        server.problem = 403, "not_a_member"
        with pytest.raises(RequestRefused) as refusal:
            await me.chat(CHAT).open()
        assert refusal.value.code == "not_a_member"


async def test_a_chat_that_is_opened_again_at_once_opens() -> None:
    """Only who waited for the earlier opening hears that it was closed."""
    async with fake_server() as server, to(server) as me:
        chat = me.chat(CHAT)
        first = asyncio.ensure_future(chat.open())
        await asyncio.sleep(0)
        chat.close()
        assert (await chat.open()).is_open
        with pytest.raises(RequestRefused):
            await first


async def test_opening_outlasts_a_server_that_cannot_answer() -> None:
    """It is asked again until it can."""
    async with fake_server() as server, to(server) as me:
        server.problem = 503, "store_unavailable"
        opening = asyncio.ensure_future(me.chat(CHAT).open())
        await eventually(lambda: server.asked["chat"] >= 2)
        server.problem = None
        assert (await opening).is_open


async def test_an_open_chat_is_looked_at_again_after_a_reconnect() -> None:
    """What was read while the connection was gone is known."""
    async with fake_server() as server, to(server) as me:
        chat = await me.chat(CHAT).open()
        ack = await chat.send("hi")
        server.model.read_up_to(CHAT, BEN, ack.sequence)
        updates = chat.updates()
        await server.close_all(GOING_AWAY)
        assert await anext(updates) == Update(What.CONNECTION)
        await eventually(lambda: chat.status(ack.sequence) is MessageStatus.READ)


async def test_who_shows_what_they_read_sees_at_once_what_others_have_read() -> None:
    """What happened before is told by no frame: open chats are looked at again."""
    async with fake_server() as server, to(server) as me:
        chat = await me.chat(CHAT).open()
        ack = await chat.send("hi")
        server.model.read_up_to(CHAT, BEN, ack.sequence)
        await me.update(about="here")
        assert server.asked["chat"] == 1
        await me.update(send_read_receipts=True)
        await eventually(lambda: chat.status(ack.sequence) is MessageStatus.READ)


async def test_presence_is_asked_once_in_a_while() -> None:
    """A second question within thirty seconds is answered from memory."""
    async with fake_server() as server, to(server) as me:
        first = await me.presence([BEN, "user_c"])
        again = await me.presence(["user_c", BEN, "user_d"])
        assert [view.user_id for view in first] == [BEN, "user_c"]
        assert [view.user_id for view in again] == ["user_c", BEN, "user_d"]
        assert (server.asked[BEN], server.asked["user_d"]) == (1, 1)


async def test_whoever_is_watched_is_known_without_asking() -> None:
    """The subscription tells it, and every change."""
    async with fake_server() as server, to(server) as me:
        server.model.online.add(BEN)
        updates = me.updates()
        me.watch_presence([BEN])
        assert await anext(updates) == Update(What.PRESENCE, user_id=BEN)
        assert [view.status for view in await me.presence([BEN])] == ["online"]
        await server.tell(PresenceChanged(user_id=BEN, status="offline", last_seen=TIME))
        assert await anext(updates) == Update(What.PRESENCE, user_id=BEN)
        assert [view.status for view in await me.presence([BEN])] == ["offline"]
        assert server.asked[BEN] == 0


async def test_typing_is_told_to_others() -> None:
    """Each start and stop reaches the server; the model server tells everybody."""
    async with fake_server() as server, to(server) as me, connect(server.url, TOKEN, device_id=DEVICE) as ben:
        ben.core.user_id = BEN
        updates = ben.chat(CHAT).updates()
        me.chat(CHAT).type()
        assert await anext(updates) == Update(What.TYPING, CHAT)
        assert ben.chat(CHAT).typing == ["user_me"]
        me.chat(CHAT).stop_typing()
        assert await anext(updates) == Update(What.TYPING, CHAT)
        assert ben.chat(CHAT).typing == []


async def test_updates_of_a_slow_loop_are_told_once() -> None:
    """A thousand changes of one thing are one update, and a loop that was left is forgotten."""
    async with fake_server() as server, to(server) as me:
        updates = me.chat(CHAT).updates()
        for _ in range(20):
            await say(server)
        await eventually(lambda: me.chat(CHAT).unread == 20)
        assert await anext(updates) == Update(What.UNREAD, CHAT)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(updates), 0)
        del updates
        gc.collect()
        assert len(me._update_streams) == 0


async def test_the_loop_over_updates_ends_with_the_client() -> None:
    """Whoever waits is told that nothing more comes."""
    async with fake_server() as server:
        async with to(server) as me:
            waiting = asyncio.ensure_future(anext(me.updates()))
            await asyncio.sleep(0)
        with pytest.raises(Closed):
            await waiting
