"""The SDK's live models against a real server: two people, three devices."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from parley.client import (
    BadToken,
    Client,
    MessageStatus,
    Privacy,
    ReadReceipts,
    RequestRefused,
    What,
    connect,
    login,
    register,
    server_info,
)
from parley.model import Notify, QuietHours
from parley.wire.bodies import NewPushDevice
from tests.harness.server import ServerProcess
from tests.integration.sdk import PASSWORD, QUICK, Account, client, new_group, newcomer
from tests.waiting import eventually


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("people") / "data") as started:
        yield started


async def pair(server: ServerProcess) -> tuple[Account, Account]:
    return await newcomer(server), await newcomer(server)


async def with_devices(server: ServerProcess, name: str, *devices: str) -> tuple[str, list[Client]]:
    """Somebody, and a client on each of their devices."""
    user_id = await register(server.url, name, PASSWORD)
    tokens = [await login(server.url, name, PASSWORD, device, device_name=device) for device in devices]
    return user_id, [connect(server.url, token, timing=QUICK) for token in tokens]


async def stays(holds: Callable[[], bool], *witnesses: Client) -> None:
    """It holds although everybody has had what was sent before."""
    for witness in witnesses:
        await witness.overview()
    assert holds()


async def test_a_message_is_sent_then_delivered_then_read(server: ServerProcess) -> None:
    """Each step of the receiver shows in the status that the sender holds."""
    ann, ben = await pair(server)
    chat_id = await new_group(server, [ann, ben])
    async with client(server.url, ann) as sender:
        chat = await sender.chat(chat_id).open()
        sending = chat.send("hi")
        ack = await sending
        assert sending.status is MessageStatus.SENT
        async with client(server.url, ben) as receiver:
            entries = aiter(receiver.chat(chat_id))
            assert (await anext(entries)).content == "hi"
            receiver.chat(chat_id).done()
            await eventually(lambda: sending.status is MessageStatus.DELIVERED)
            await receiver.chat(chat_id).mark_read(ack.sequence)
            await eventually(lambda: sending.status is MessageStatus.READ)
        asked = await chat.receipts(ack.sequence)
        assert (asked.status, asked.member_count, [seen.user_id for seen in asked.read]) == (
            "read",
            1,
            [ben.user_id],
        )
        seen = chat.seen(ack.sequence)
        assert seen is not None
        assert [one.user_id for one in seen.read] == [ben.user_id]


async def test_reading_on_one_device_clears_unread_on_the_other(server: ServerProcess) -> None:
    """At once, and exactly as many as were read."""
    ann = await newcomer(server)
    ben_id, (phone, laptop) = await with_devices(server, "ben", "phone", "laptop")
    async with client(server.url, ann) as sender, phone, laptop:
        chat = await sender.direct_chat(ben_id)
        for number in range(5):
            await chat.send(str(number))
        await eventually(lambda: laptop.chat(chat.chat_id).unread == 5)
        assert chat.unread == 0
        await phone.chat(chat.chat_id).mark_read(3)
        assert phone.chat(chat.chat_id).unread == 2
        await eventually(lambda: laptop.chat(chat.chat_id).unread == 2)
        await phone.chat(chat.chat_id).mark_read((await chat.send("last")).message_id)
        await eventually(lambda: laptop.chat(chat.chat_id).unread == 0)
        await eventually(lambda: phone.chat(chat.chat_id).unread == 0)


async def test_models_survive_a_restart_of_the_server(server: ServerProcess) -> None:
    """After the reconnect they are what happened meanwhile."""
    ann, ben = await pair(server)
    chat_id = await new_group(server, [ann, ben])
    async with client(server.url, ann) as sender, client(server.url, ben) as receiver:
        chat = await sender.chat(chat_id).open()
        first = await chat.send("one")
        await receiver.chat(chat_id).mark_read(first.sequence)
        server.restart()
        second = chat.send("two")
        await second
        await eventually(lambda: receiver.chat(chat_id).unread == 1)
        await receiver.chat(chat_id).mark_read(2)
        await eventually(lambda: second.status is MessageStatus.READ)
        assert chat.status(first.sequence) is MessageStatus.READ


async def test_members_come_with_names_and_presence(server: ServerProcess) -> None:
    """An open chat knows who is in it, who comes, and who is there."""
    ann, ben = await pair(server)
    cas_id, (cas,) = await with_devices(server, "cas", "phone")
    chat_id = await new_group(server, [ann, ben])
    async with client(server.url, ann) as me:
        chat = await me.chat(chat_id).open()
        assert {member.user_id for member in chat.members} == {ann.user_id, ben.user_id}
        await chat.add_member(cas_id)
        await eventually(lambda: (found := chat.members.get(cas_id)) is not None and found.username == "cas")
        member = chat.members.get(cas_id)
        assert member is not None
        assert (member.status, member.last_seen) == ("offline", None)
        async with cas:
            await eventually(lambda: chat.members.get(cas_id).status == "online")  # type: ignore[union-attr]
            assert [view.status for view in await me.presence([cas_id])] == ["online"]
        await eventually(lambda: chat.members.get(cas_id).status == "offline")  # type: ignore[union-attr]
        await chat.remove_member(cas_id)
        await eventually(lambda: chat.members.get(cas_id) is None)


async def test_typing_is_seen_by_the_others(server: ServerProcess) -> None:
    """Until the message comes."""
    ann, ben = await pair(server)
    chat_id = await new_group(server, [ann, ben])
    async with client(server.url, ann) as typist, client(server.url, ben) as other:
        typist.chat(chat_id).type()
        await eventually(lambda: other.chat(chat_id).typing == [ann.user_id])
        await typist.chat(chat_id).send("said")
        await eventually(lambda: other.chat(chat_id).typing == [])
        assert typist.chat(chat_id).typing == []


async def test_who_hides_is_not_seen(server: ServerProcess) -> None:
    """Last seen and read receipts follow their settings, in the models as in the questions."""
    ann, ben = await pair(server)
    chat_id = await new_group(server, [ann, ben])
    async with client(server.url, ann) as me, client(server.url, ben) as hidden:
        settings = await hidden.update(
            last_seen_privacy=Privacy.NOBODY, send_read_receipts=False, about="gone"
        )
        assert (settings.last_seen_privacy, settings.send_read_receipts) == (Privacy.NOBODY, False)
        assert (await hidden.me()).about == "gone"
        chat = await me.chat(chat_id).open()
        sending = chat.send("hi")
        ack = await sending
        await hidden.chat(chat_id).mark_read(ack.sequence)
        await eventually(lambda: sending.status is MessageStatus.DELIVERED)
        await stays(lambda: sending.status is MessageStatus.DELIVERED, hidden, me)
        member = chat.members.get(ben.user_id)
        assert member is not None
        assert (member.status, member.last_seen) == ("offline", "unavailable")
        (view,) = await me.presence([ben.user_id])
        assert (view.status, view.last_seen) == ("offline", "unavailable")


async def test_a_blocked_person_reaches_nobody(server: ServerProcess) -> None:
    """Messages are refused for good, typing is not told, and unblocking makes it good again."""
    ann, ben = await pair(server)
    async with client(server.url, ann) as me, client(server.url, ben) as other:
        chat = await me.direct_chat(ben.user_id)
        await me.blocks.add(ben.user_id)
        assert [person.user_id for person in await me.blocks.all()] == [ben.user_id]
        sending = other.chat(chat.chat_id).send("hello?")
        with pytest.raises(RequestRefused) as refusal:
            await sending
        assert (refusal.value.code, refusal.value.temporary) == ("blocked", False)
        assert sending.status is MessageStatus.FAILED
        me.chat(chat.chat_id).type()
        await stays(lambda: other.chat(chat.chat_id).typing == [], me, other)
        await me.blocks.remove(ben.user_id)
        assert await me.blocks.all() == []
        await other.chat(chat.chat_id).send("hello!")


async def test_people_are_found_and_kept(server: ServerProcess) -> None:
    """By their exact username; contacts are a list of one's own."""
    ann = await newcomer(server)
    dora_id = await register(server.url, "dora", PASSWORD)
    async with client(server.url, ann) as me:
        found = await me.find("dora")
        assert found is not None
        assert found.user_id == dora_id
        assert await me.find("dor") is None
        assert (await me.person(dora_id)).username == "dora"
        for _ in range(2):
            assert (await me.contacts.add(dora_id)).username == "dora"
        assert [person.username for person in await me.contacts.all()] == ["dora"]
        await me.contacts.remove(dora_id)
        assert await me.contacts.all() == []


async def test_a_device_is_registered_and_people_are_mentioned(server: ServerProcess) -> None:
    """Push by the SDK, what rings, and mentions that others read."""
    ann, ben = await pair(server)
    async with client(server.url, ann) as me, client(server.url, ben) as other:
        device_id = (await me.devices())[0].device_id
        wanted = NewPushDevice(provider="webhook", token="https://example.com/ring", preview=False)
        made = await me.push.register(device_id, wanted)
        assert made.secret
        assert [one.device_id for one in await me.push.all()] == [device_id]
        await me.push.remove(device_id)
        assert await me.push.all() == []
        assert len(await me.push.vapid_key()) == 87
        quiet = QuietHours("22:00", "07:00", "UTC")
        assert (await me.update(do_not_disturb=quiet)).do_not_disturb == quiet
        assert (await me.update(about="hm")).do_not_disturb == quiet
        assert (await me.update(do_not_disturb=None)).do_not_disturb is None
        chat = await me.create_chat([ben.user_id], "mentions")
        assert (await chat.notify(Notify.MENTIONS)).notify is Notify.MENTIONS
        await chat.send("hi", mentions=[ben.user_id])
        async for entry in other.chat(chat.chat_id):
            if entry.kind == "message":
                assert entry.mentions == [ben.user_id]
                break


async def test_invitations_are_heard_and_answered(server: ServerProcess) -> None:
    """An update tells of each; who accepts is in the chat, who declines is not, and both lists end empty."""
    ann, ben = await pair(server)
    async with client(server.url, ann) as me, client(server.url, ben) as other:
        assert (await me.update(who_may_add=Privacy.NOBODY)).who_may_add is Privacy.NOBODY
        updates = aiter(me.updates())
        first = await other.create_chat([ann.user_id], "one")
        second = await other.create_chat([], "two")
        assert not await second.add_member(ann.user_id)
        wanted, heard = {first.chat_id, second.chat_id}, set[str | None]()
        while not wanted <= heard:
            update = await anext(updates)
            heard |= {update.chat_id} if update.what is What.INVITATIONS else set()
        assert {one.chat_id for one in await me.invitations.all()} == wanted
        await me.invitations.accept(first.chat_id)
        await me.invitations.decline(second.chat_id)
        assert await me.invitations.all() == []
        assert [chat.title for chat in await me.chats()] == ["one"]


async def test_devices_are_listed_and_removed(server: ServerProcess) -> None:
    """A removed device is out at once."""
    _, (phone, laptop) = await with_devices(server, "eva", "phone", "laptop")
    async with phone:
        devices = {device.device_id: device for device in await phone.devices()}
        assert (devices["phone"].current, devices["laptop"].current) == (True, False)
        async with laptop:
            chat = await laptop.create_chat([], "notes")
            reading = aiter(laptop.chat(chat.chat_id))
            await phone.remove_device("laptop")
            with pytest.raises(BadToken):
                await anext(reading)
        assert [device.device_id for device in await phone.devices()] == ["phone"]


async def test_settings_of_a_chat(server: ServerProcess) -> None:
    """Muting is one's own, on every device; what a chat tells of readers is everybody's."""
    ann, ben = await pair(server)
    chat_id = await new_group(server, [ann, ben])
    async with client(server.url, ann) as me, client(server.url, ben) as other:
        chat = await me.chat(chat_id).open()
        await chat.mute(datetime.now(UTC) + timedelta(hours=1))
        await eventually(lambda: chat.muted)
        assert not other.chat(chat_id).muted
        await chat.unmute()
        await eventually(lambda: not chat.muted)
        info = await chat.set_read_receipts("simple")
        assert info.read_receipts is ReadReceipts.SIMPLE
        sending = chat.send("hi")
        ack = await sending
        await other.chat(chat_id).mark_read(ack.sequence)
        await eventually(lambda: sending.status is MessageStatus.READ)
        seen = chat.seen(ack.sequence)
        assert seen is not None
        assert [one.user_id for one in seen.read] == [None]


async def test_a_foreign_chat_does_not_open(server: ServerProcess) -> None:
    """As if it did not exist."""
    ann, ben = await pair(server)
    chat_id = await new_group(server, [ann])
    async with client(server.url, ben) as stranger:
        for asked in (chat_id, "chat_nowhere"):
            with pytest.raises(RequestRefused) as refusal:
                await stranger.chat(asked).open()
            assert refusal.value.code == "not_a_member"


async def test_a_page_as_a_reader_sees_it(server: ServerProcess) -> None:
    """With reactions, replies and quotes; by position, message, time, and ids; and with names for all."""
    ann, ben = await pair(server)
    group = await new_group(server, [ann, ben])
    async with client(server.url, ann) as me, client(server.url, ben) as other:
        chat, theirs = me.chat(group), other.chat(group)
        first = await chat.send("shall we?")
        await theirs.react(first.message_id, "x")
        reply = await theirs.send("yes", reply_to=first.message_id)
        page = await chat.shown(around=first.message_id)
        assert page.entries[0].reply_count == 1
        assert isinstance(page.entries[0].reactions, list)
        assert [one.reaction for one in page.entries[0].reactions] == ["x"]
        assert (await chat.lookup([reply.message_id]))[0].replied == page.entries[-1].replied
        assert (await chat.shown(at=first.created_at, limit=1)).entries[0].sequence == 1
        name = (await other.me()).username
        assert [one.user_id for one in await chat.members_called(name[:12])] == [ben.user_id]
        assert [one.user_id for one in await me.people([ben.user_id, "user_0"])] == [ben.user_id]
        assert (await server_info(server.url)).name == "Parley"


async def test_a_client_signs_itself_out(server: ServerProcess) -> None:
    """Its token opens nothing any more."""
    ann = await newcomer(server)
    async with client(server.url, ann) as me:
        await me.sign_out()
        with pytest.raises(BadToken):
            await me.me()
