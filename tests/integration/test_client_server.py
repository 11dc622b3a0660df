"""The SDK against a real server: everything an application asks of it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from parley.client import BadToken, RequestRefused, connect, login, register
from parley.client.storage import OutgoingMessage, SqliteStorage, StateChanges
from parley.clock import MS_PER_DAY, wall_clock
from parley.model import ChatType, Role
from tests.harness.server import ServerProcess
from tests.integration.sdk import PASSWORD, QUICK, client, new_group, newcomer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("sdk") / "data") as started:
        yield started


async def test_from_an_account_to_a_message_read(server: ServerProcess) -> None:
    """Register, log in, connect, open a chat, send and read: the way of the README."""
    await register(server.url, "ada", PASSWORD)
    bob_id = await register(server.url, "bob", PASSWORD)
    ada_token = await login(server.url, "ada", PASSWORD)
    bob_token = await login(server.url, "bob", PASSWORD, device_id="phone", device_name="Bob's phone")
    async with connect(server.url, ada_token) as ada, connect(server.url, bob_token, codec="msgpack") as bob:
        chat = await ada.direct_chat(bob_id)
        ack = await chat.send("hi")
        async for entry in bob.chat(chat.chat_id):
            assert (entry.content, entry.sender_id, entry.message_id) == ("hi", ada.user_id, ack.message_id)
            break


async def test_wrong_passwords_and_taken_names_are_refused(server: ServerProcess) -> None:
    """The reason is for people, the code for programs."""
    await register(server.url, "carol", PASSWORD)
    with pytest.raises(RequestRefused) as taken:
        await register(server.url, "carol", PASSWORD)
    assert taken.value.code == "username_taken"
    with pytest.raises(RequestRefused) as wrong:
        await login(server.url, "carol", "not her password")
    assert wrong.value.code == "unauthenticated"


async def test_chats_members_and_titles(server: ServerProcess) -> None:
    """What a group is made of can be seen and changed."""
    accounts = [await newcomer(server) for _ in range(3)]
    async with client(server.url, accounts[0]) as me:
        chat = await me.create_chat([accounts[1].user_id], "before")
        await chat.rename("after")
        await chat.add_member(accounts[2].user_id, Role.ADMIN)
        await chat.remove_member(accounts[1].user_id)
        info = await chat.info()
        assert (info.title, info.type, info.head, info.member_count) == ("after", ChatType.GROUP, 3, 2)
        await chat.open()
        roles = {member.user_id: member.role for member in chat.members}
        assert roles == {accounts[0].user_id: Role.OWNER, accounts[2].user_id: Role.ADMIN}
        (listed,) = await me.chats()
        assert (listed.chat_id, listed.title, listed.head) == (chat.chat_id, "after", 3)


async def test_changes_of_a_chat_are_entries_of_its_log(server: ServerProcess) -> None:
    """Messages and changes come in one order with one cursor."""
    accounts = [await newcomer(server) for _ in range(2)]
    chat_id = await new_group(server, accounts)
    async with client(server.url, accounts[0]) as ann, client(server.url, accounts[1]) as ben:
        await ann.chat(chat_id).send("one")
        await ann.chat(chat_id).rename("new title")
        await ann.chat(chat_id).send("two")
        kinds = []
        async for entry in ben.chat(chat_id):
            kinds.append((entry.sequence, entry.kind))
            if entry.content == "two":
                break
        assert kinds == [(1, "message"), (2, "chat"), (3, "message")]


async def test_a_window_opens_around_a_message(server: ServerProcess) -> None:
    """By its position or by its id, and shows what became of messages inside it."""
    account = await newcomer(server)
    chat_id = await new_group(server, [account])
    async with client(server.url, account) as ann:
        chat = ann.chat(chat_id)
        acks = [await chat.send(str(number)) for number in range(40)]
        await chat.react(acks[-1].message_id, "+1")
        middle = acks[20]
        window = await chat.window(around=middle.message_id, size=11)
        same = await chat.window(around=middle.sequence, size=11)
        assert [entry.message_id for entry in window.entries] == [ack.message_id for ack in acks[15:26]]
        assert window.entries == same.entries
        while await window.newer(10):
            pass
        assert (window.is_at_start, window.is_at_end) == (False, True)
        assert [one.reaction for one in window.messages[-1].reactions] == ["+1"]
        with pytest.raises(RequestRefused) as unknown:
            await chat.window(around="msg_00000000000000000000000000")
        assert unknown.value.code == "not_found"


async def test_cursors_and_unread_are_known_to_the_server(server: ServerProcess) -> None:
    """What a device has processed and what its person has read are in the overview."""
    accounts = [await newcomer(server) for _ in range(2)]
    chat_id = await new_group(server, accounts)
    async with client(server.url, accounts[0]) as ann:
        for number in range(5):
            await ann.chat(chat_id).send(str(number))
    async with client(server.url, accounts[1]) as ben:
        async for entry in ben.chat(chat_id):
            if entry.sequence == 4:
                break
        await ben.chat(chat_id).mark_read(2)
    async with client(server.url, accounts[1]) as ben:
        (position,) = await ben.overview()
        assert (position.head, position.last_acked_sequence) == (5, 3)
        assert (position.read_up_to, position.unread) == (2, 3)
        assert [entry.sequence for entry in (await ben.chat(chat_id).history(before=3)).entries] == [1, 2]
        with pytest.raises(RequestRefused) as beyond:
            await ben.chat(chat_id).mark_read(99)
        assert beyond.value.code == "ahead_of_log"


async def test_a_loop_over_all_chats_takes_in_new_ones(server: ServerProcess) -> None:
    """A chat that is created while the loop runs is read by it, too."""
    accounts = [await newcomer(server) for _ in range(2)]
    first = await new_group(server, accounts)
    async with client(server.url, accounts[0]) as ann, client(server.url, accounts[1]) as ben:
        await ann.chat(first).send("first")
        everything = aiter(ben)
        assert (await anext(everything)).chat_id == first
        second = await ann.create_chat([accounts[1].user_id])
        await second.send("second")
        entry = await anext(everything)
        assert (entry.chat_id, entry.content) == (second.chat_id, "second")


async def test_whoever_is_removed_learns_it(server: ServerProcess) -> None:
    """The loop of a removed member ends with `not_a_member`, and his messages are refused."""
    accounts = [await newcomer(server) for _ in range(2)]
    chat_id = await new_group(server, accounts)
    async with client(server.url, accounts[0]) as ann, client(server.url, accounts[1]) as ben:
        reading = asyncio.ensure_future(anext(aiter(ben.chat(chat_id))))
        await ben.overview()
        await ann.chat(chat_id).remove_member(accounts[1].user_id)
        with pytest.raises(RequestRefused) as left:
            await reading
        assert left.value.code == "not_a_member"
        with pytest.raises(RequestRefused):
            await ben.chat(chat_id).send("still here?")


async def test_a_revoked_session_ends_the_client(server: ServerProcess) -> None:
    """A device that was logged out elsewhere says that a new login is needed."""
    account = await newcomer(server)
    chat_id = await new_group(server, [account])
    async with client(server.url, account) as me:
        found = await me.api.call("GET", "sessions", dict[str, list[dict[str, object]]])
        await me.api.call("DELETE", f"sessions/{found['sessions'][0]['session_id']}", object)
        with pytest.raises(BadToken):
            await anext(aiter(me.chat(chat_id)))


@pytest.mark.parametrize("was_stored", [True, False])
async def test_a_message_older_than_the_keys_is_looked_for(
    server: ServerProcess, tmp_path: Path, was_stored: bool
) -> None:
    """After eight days in an outbox a message is stored once, whether or not it had arrived back then."""
    account = await newcomer(server)
    chat_id = await new_group(server, [account])
    old_id = "7d5c36f2-5f0a-4b35-9d3f-0f3c6f1f0a77"
    if was_stored:
        async with client(server.url, account) as me:
            await me.chat(chat_id).send("old", client_message_id=old_id)
    storage = SqliteStorage(str(tmp_path / "outbox.db"))
    created_at_ms = wall_clock() - 8 * MS_PER_DAY
    old = OutgoingMessage(
        chat_id=chat_id, client_message_id=old_id, content="old", created_at_ms=created_at_ms
    )
    storage.commit(StateChanges(added=[old]))
    storage.close()
    async with client(server.url, account, outbox=tmp_path / "outbox.db") as me:
        (sending,) = me.unsent
        ack = await sending
        assert (ack.sequence, ack.deduplicated) == (1, was_stored)
        assert (await me.chat(chat_id).info()).head == 1


async def test_two_devices_of_one_person_have_their_own_cursors(server: ServerProcess) -> None:
    """What the phone has processed, the laptop still gets."""
    await register(server.url, "dora", PASSWORD)
    tokens = [await login(server.url, "dora", PASSWORD, device) for device in ("phone", "laptop")]
    async with connect(server.url, tokens[0], timing=QUICK) as phone:
        chat = await phone.create_chat([], "notes")
        await chat.send("one")
        await chat.send("two")
        entries = aiter(chat)
        assert [(await anext(entries)).sequence, (await anext(entries)).sequence] == [1, 2]
    async with connect(server.url, tokens[1], timing=QUICK) as laptop:
        assert (await anext(aiter(laptop.chat(chat.chat_id)))).sequence == 1
    async with connect(server.url, tokens[0], timing=QUICK) as phone:
        assert (await anext(aiter(phone.chat(chat.chat_id)))).sequence == 2
