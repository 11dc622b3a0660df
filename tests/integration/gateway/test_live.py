"""Live delivery: to every device of every member, in order, without a gap, and to nobody else."""

import asyncio
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from parley.core.session import check_send
from parley.model import Draft, Head
from parley.wire.frames import SendMessage
from tests.harness.clients import Person, RawClient
from tests.harness.clock import VirtualClock
from tests.integration.gateway.bare import BareSocket
from tests.integration.gateway.serving import Place, message
from tests.waiting import eventually


def positions(client: RawClient, chat_id: str) -> list[int]:
    """Every position of a chat that came live, entries and voids, in the order they came."""
    found = []
    for frame in client.unasked:
        if frame["type"] == "messages" and frame["chat_id"] == chat_id:
            entries = [entry["sequence"] for entry in frame["entries"]]
            found += sorted(entries + frame.get("voids", []))
    return found


async def until_position(client: RawClient, chat_id: str, sequence: int) -> None:
    await client.until(lambda c: sequence in positions(c, chat_id))


async def test_a_message_reaches_every_device_of_every_member(either: Place) -> None:
    """Two people with two devices each, in both codecs, all get the same entry; an outsider gets nothing."""
    async with either.serving() as served:
        ann, ben, eve = await served.people("ann", "ben", "eve")
        tablets = [await served.http.login(name, "tablet") for name in ("ann", "ben")]
        chat = await served.as_(ann).create_group(ben)
        clients = [served.client(p, msgpack=n % 2 == 1) for n, p in enumerate((ann, ben, *tablets, eve))]
        for client in clients:
            await client.connect()
        ack = await clients[0].send_message(chat, "hello")
        entries = [await client.live_entry(chat, 1) for client in clients[:4]]
        assert all(entry == entries[0] for entry in entries)
        assert entries[0]["message_id"] == ack["message_id"]
        await clients[4].heartbeat()
        assert clients[4].unasked == []
        for client in clients:
            await client.close()


async def test_several_sockets_of_one_device_are_all_live(place: Place) -> None:
    """A device may be connected more than once, and closing one leaves the others."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        async with served.client(ben) as one, served.client(ben) as two:
            await served.said(ann, chat, "1")
            await one.live_entry(chat, 1)
            await two.live_entry(chat, 1)
            await one.close()
            await served.said(ann, chat, "2")
            await two.live_entry(chat, 2)


async def test_nothing_comes_before_the_welcome(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent while a connection is still being made follows its welcome, and is not lost."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        heard = await served.as_(ann).create_group(ben)
        async with served.client(ann) as writer:
            await served.as_(ben).create_group()
            looks_at_heads, may_look = asyncio.Event(), asyncio.Event()
            heads = served.app.store.log.heads

            async def slow_heads(chat_ids: Sequence[str]) -> dict[str, Head]:
                looks_at_heads.set()
                await may_look.wait()
                return await heads(chat_ids)

            monkeypatch.setattr(served.app.store.log, "heads", slow_heads)
            socket = BareSocket(served.port)
            await socket.open()
            greeted = asyncio.ensure_future(socket.hello(ben))
            await looks_at_heads.wait()
            await writer.send_message(heard, "early")
            await writer.live_entry(heard, 1)
            may_look.set()
            assert (await greeted)["type"] == "welcome"
            early = await socket.frame()
            assert [entry["content"] for entry in early["entries"]] == ["early"]
            socket.close()


async def test_live_false_asks_for_no_messages(place: Place) -> None:
    """A bot that wants none gets none, whatever is sent."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        async with served.client(ben, live=False) as bot:
            await bot.send_message(chat, "mine")
            await served.said(ann, chat, "hers")
            assert (await bot.heartbeat())["heads"] == {chat: 2}
            assert bot.unasked == []


async def test_live_order_is_contiguous_under_concurrent_writers(either: Place) -> None:
    """With many writers at once every reader sees the same entries, ascending, without a gap."""
    async with either.serving() as served:
        people = await served.people("ann", "ben", "cem")
        chat = await served.as_(people[0]).create_group(*people[1:])
        clients = [served.client(person) for person in people for _ in range(2)]
        for client in clients:
            await client.connect()

        async def write(client: RawClient) -> None:
            answers = [await client.post_message(chat, f"{n}") for n in range(40)]
            for answer in answers:
                assert (await client.answered(answer))["type"] == "ack"

        await asyncio.gather(*map(write, clients))
        head = (await clients[0].sync(chat))["head"]
        for client in clients:
            await until_position(client, chat, head)
            assert positions(client, chat) == list(range(1, head + 1))
            assert client.live_entries(chat) == clients[0].live_entries(chat)
            await client.close()
        assert len(clients[0].live_entries(chat)) == 240


async def test_nothing_is_lost_between_hello_and_sync(either: Place) -> None:
    """Who connects while others write gets the head by sync and everything after it live."""
    async with either.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        stop = asyncio.Event()

        async def write() -> int:
            sent = 0
            async with served.client(ann, live=False) as client:
                while not stop.is_set():
                    answers = [await client.post_message(chat, "x") for _ in range(5)]
                    for answer in answers:
                        await client.answered(answer)
                    sent += 5
            return sent

        writing = asyncio.create_task(write())
        readers = []
        for number in range(15):
            reader = served.client(ben, msgpack=number % 2 == 1)
            await reader.connect()
            page = await reader.sync(chat)
            while not page["complete"]:
                page = await reader.sync(chat, after=page["to_sequence"])
            readers.append((reader, page["to_sequence"]))
        stop.set()
        sent = await writing
        for reader, synced in readers:
            if synced < sent:
                await until_position(reader, chat, sent)
            live = positions(reader, chat)
            assert live == list(range(live[0], sent + 1) if live else [])
            assert set(range(synced + 1, sent + 1)) <= set(live)
            await reader.close()


async def test_nothing_behind_an_open_number_counts_as_the_head(place: Place, tmp_path: Path) -> None:
    """While a number is taken and not written, neither live readers nor heartbeats nor acks go past it."""
    held = tmp_path / "hold"
    held.touch()
    two_phase = {"PARLEY_STORE_SEQUENCING": "two_phase"}
    async with place.serving(two_phase, VirtualClock(), PARLEY_TEST_PAUSE=f"after_allocate:{held}") as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        async with (
            served.client(ann) as slow,
            served.client(ann) as quick,
            served.client(ben) as live,
            served.client(ben, live=False) as quiet,
        ):
            first = await slow.post_message(chat, "1")
            await eventually(held.with_suffix(".paused").exists)
            assert (await quick.send_message(chat, "2"))["sequence"] == 2
            assert "heads" not in await quiet.heartbeat()
            assert (await quiet.sync(chat))["head"] == 0
            refused = await live.request("ack", chat_id=chat, last_acked_sequence=2)
            assert refused["code"] == "ahead_of_log"
            assert positions(live, chat) == []
            held.unlink()
            assert (await slow.answered(first))["sequence"] == 1
            await until_position(live, chat, 2)
            assert positions(live, chat) == [1, 2]
            assert (await quiet.heartbeat())["heads"] == {chat: 2}


async def test_a_joiner_hears_what_comes_after_joining(either: Place) -> None:
    """A connected person who is added is told so and gets live what follows; before that nothing."""
    async with either.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group()
        async with served.client(ben) as client:
            await served.said(ann, chat, "before")
            await served.as_(ann).post(f"/v1/chats/{chat}/members", {"user_id": ben.user_id})
            await served.said(ann, chat, "after")
            await until_position(client, chat, 3)
            changed = next(frame for frame in client.unasked if frame["type"] == "chat_changed")
            assert (changed["chat_id"], changed["change"], changed["user_id"]) == (
                chat,
                "joined",
                ben.user_id,
            )
            live = positions(client, chat)
            assert live == list(range(live[0], 4))
            assert (await client.sync(chat))["head"] == 3


async def test_a_new_chat_is_live_at_once(place: Place) -> None:
    """Everybody connected hears the first message of a chat that was created meanwhile."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        async with served.client(ben) as client, served.client(ann) as sender:
            chat = await served.as_(ann).create_group(ben)
            await sender.send_message(chat, "first")
            assert (await client.live_entry(chat, 1))["content"] == "first"
            assert client.unasked[0]["type"] == "chat_changed"


async def test_who_was_removed_gets_nothing_more(either: Place) -> None:
    """After the removal no entry reaches the person, who is told that they left."""
    async with either.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        async with served.client(ben) as removed, served.client(ann) as stays:
            await served.said(ann, chat, "before")
            await removed.live_entry(chat, 1)
            await served.as_(ann).request("DELETE", f"/v1/chats/{chat}/members/{ben.user_id}")
            await served.said(ann, chat, "secret")
            await stays.live_entry(chat, 3)
            assert "heads" not in await removed.heartbeat()
            assert "secret" not in str(removed.unasked)
            left = [frame for frame in removed.unasked if frame["type"] == "chat_changed"]
            assert [(frame["change"], frame["user_id"]) for frame in left] == [("left", ben.user_id)]
            refused = await removed.send_message(chat, "back")
            assert refused["code"] == "not_a_member"


async def test_a_change_of_members_ends_its_frame(either: Place) -> None:
    """Messages pipelined around a removal: what comes after it never reaches who was removed."""
    async with either.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        async with served.client(ann) as sender, served.client(ben) as watcher:
            for _ in range(5):
                answers = [await sender.post_message(chat, "before") for _ in range(5)]
                removing = asyncio.create_task(
                    served.as_(ann).request("DELETE", f"/v1/chats/{chat}/members/{ben.user_id}")
                )
                answers += [await sender.post_message(chat, "x") for _ in range(20)]
                removal = (await removing).body["sequence"]
                for answer in answers:
                    await sender.answered(answer)
                added = await served.as_(ann).post(f"/v1/chats/{chat}/members", {"user_id": ben.user_id})
                joined = added.body["sequence"]
                assert not [n for n in positions(watcher, chat) if removal <= n < joined]
                await sender.send_message(chat, "after")
                await until_position(watcher, chat, joined + 1)


async def test_live_is_contiguous_while_people_come_and_go(either: Place) -> None:
    """Those who stay miss nothing while members change and messages flow."""
    async with either.serving() as served:
        ann, ben, cem = await served.people("ann", "ben", "cem")
        chat = await served.as_(ann).create_group(ben)

        async def come_and_go() -> None:
            for _ in range(8):
                await served.as_(ann).post(f"/v1/chats/{chat}/members", {"user_id": cem.user_id})
                await served.as_(cem).post(f"/v1/chats/{chat}/messages", message("cem was here"))
                await served.as_(cem).request("DELETE", f"/v1/chats/{chat}/members/{cem.user_id}")

        async def write(client: RawClient) -> None:
            for _ in range(10):
                answers = [await client.post_message(chat, "x") for _ in range(5)]
                for answer in answers:
                    await client.answered(answer)

        async with served.client(ann) as one, served.client(ben) as two, served.client(cem) as guest:
            await asyncio.gather(come_and_go(), write(one), write(two))
            head = (await one.sync(chat))["head"]
            for client in (one, two):
                await until_position(client, chat, head)
                assert positions(client, chat) == list(range(1, head + 1))
            seen = positions(guest, chat)
            assert seen == sorted(set(seen))
            assert len(await one.sync_all(chat)) == 100 + 24


async def test_renames_and_roles_are_announced(place: Place) -> None:
    """Members are told of a new title and a new role beside the entry."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        async with served.client(ben) as client:
            await served.as_(ann).request("PATCH", f"/v1/chats/{chat}", {"title": "New"})
            role = {"role": "admin"}
            await served.as_(ann).request("PATCH", f"/v1/chats/{chat}/members/{ben.user_id}", role)
            await until_position(client, chat, 2)
            await client.heartbeat()
            changes = [frame for frame in client.unasked if frame["type"] == "chat_changed"]
            assert [(c["change"], c.get("title"), c.get("role")) for c in changes] == [
                ("renamed", "New", None),
                ("role", None, "admin"),
            ]


async def test_a_revoked_sessions_sockets_close_at_once(place: Place) -> None:
    """Every socket of the session closes with 4102; other sessions of the person go on."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        tablet = await served.http.login("ann", "tablet")
        one, two, other = served.client(tablet), served.client(tablet), served.client(ann)
        for client in (one, two, other):
            await client.connect()
        await served.as_(ann).request("DELETE", f"/v1/sessions/{tablet.session_id}")
        assert {(await client.until_ended()).code for client in (one, two)} == {4102}
        assert (await other.heartbeat())["type"] == "heartbeat_ack"
        await other.close()


async def test_a_changed_password_closes_the_other_sockets(place: Place) -> None:
    """The sockets of all other sessions close with 4102; the one that changed it stays."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        tablet = await served.http.login("ann", "tablet")
        async with served.client(ann) as mine:
            other = served.client(tablet)
            await other.connect()
            body = {"old_password": "correct horse battery", "new_password": "new"}
            assert (await served.as_(ann).post("/v1/me/password", body)).status == 204
            assert (await other.until_ended()).code == 4102
            assert (await mine.heartbeat())["type"] == "heartbeat_ack"


async def test_a_revocation_that_was_missed_is_found_by_the_heartbeat(place: Place) -> None:
    """A session that ended without a word ends its socket at the next heartbeat."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        client = served.client(ann)
        await client.connect()
        await served.app.kinds.sessions.end(ann.user_id, [ann.session_id])
        await client.tell("heartbeat")
        assert (await client.until_ended()).code == 4102


async def test_a_revoked_sender_cannot_send(place: Place) -> None:
    """What a revoked socket pipelines after its revocation is not stored."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        client = served.client(ben)
        await client.connect()
        await served.http.of(ben).request("DELETE", f"/v1/sessions/{ben.session_id}")
        await client.until_ended()
        assert (await served.as_(ann).get(f"/v1/chats/{chat}/messages")).body["entries"] == []


async def test_who_has_gone_leaves_nothing_behind(place: Place) -> None:
    """After the last connection has ended, politely or not, the server remembers none of them."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        polite, rude = served.client(ann), served.client(ben, msgpack=True)
        for client in (polite, rude):
            await client.connect()
            await client.send_message(chat, "x")
        await polite.close()
        rude.abort()
        await eventually(lambda: not served.app.gateway.connections)
        hub = served.app.hub
        assert (hub._chats, hub._subscribers.user_ids()) == ({}, [])
        await rude.close()


async def test_an_operators_repair_beside_the_server_reaches_live_readers(place: Place) -> None:
    """Entries that another program has written are found by comparing heads, and sent in order."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        async with served.client(ben) as client:
            await served.said(ann, chat, "1")
            await client.live_entry(chat, 1)
            news = await served.app.store.log.append([draft_of(ann, chat)])
            assert news.persisted, "written past the bus, as another program does"
            with closing(apsw.Connection(str(served.sqlite.database.path))) as other:
                other.execute("UPDATE chats SET updated_at = '2026-01-01T00:00:00.000Z'")
            served.sqlite.writer.check_for_foreign_writes()
            assert (await client.live_entry(chat, 2))["content"] == "past the bus"


def draft_of(person: Person, chat_id: str) -> Draft:
    request = SendMessage(
        chat_id=chat_id,
        client_message_id="eeeeeeee-0000-4000-8000-000000000000",
        content="past the bus",
    )
    draft = check_send(request, person.user_id)
    assert isinstance(draft, Draft)
    return draft
