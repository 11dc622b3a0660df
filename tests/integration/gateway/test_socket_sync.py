"""Catching up over a WebSocket: pages, resets, the overview, heartbeats, acks and receipts."""

from collections.abc import AsyncIterator

import pytest

from parley.errors import StoreUnavailable
from tests.harness.clients import Frame, Person, RawClient
from tests.harness.log_replay import replayed
from tests.integration.gateway.serving import Place, Served


async def chat_of_two(served: Served, *contents: str) -> tuple[Person, Person, str]:
    """Ann and Ben, and their group, in which Ann has said something."""
    ann, ben = await served.people("ann", "ben")
    chat = await served.as_(ann).create_group(ben)
    await served.said(ann, chat, *contents)
    return ann, ben, chat


async def test_pages_follow_each_other(either: Place) -> None:
    """Starting where the last page ended, a client sees every entry once and knows when it has all."""
    async with either.serving() as served:
        _, ben, chat = await chat_of_two(served, *(f"{n}" for n in range(7)))
        async with served.client(ben) as client:
            entries = await client.sync_all(chat, limit=3)
            assert [entry["content"] for entry in entries] == [f"{n}" for n in range(7)]
            page = await client.sync(chat, after=3, limit=3)
        assert (page["from_sequence"], page["to_sequence"], page["head"]) == (4, 6, 7)
        assert (page["complete"], page["reset"], page["voids"]) == (False, False, [])


async def test_pages_have_the_hash_of_the_log(either: Place) -> None:
    """Over the socket in both codecs, by message id, and over HTTP: that of a replay up to `to_sequence`."""
    async with either.serving() as served:
        _, ben, chat = await chat_of_two(served, *(f"{n}" for n in range(30)))
        entries = [entry async for entry in all_entries(served, ben, chat)]
        expected = [f"1:{value.hex()}" for value in replayed(chat, entries)]
        for msgpack in (False, True):
            async with served.client(ben, msgpack=msgpack) as client:
                for after, limit in ((0, 3), (0, 25), (7, 20), (29, 100), (30, 100)):
                    page = await client.sync(chat, after=after, limit=limit)
                    assert page["log_hash"] == expected[page["to_sequence"]]
                last = await client.request("sync", last_message_id=entries[3]["message_id"], limit=5)
                assert last["log_hash"] == expected[9]
        page = (await served.as_(ben).get(f"/v1/chats/{chat}/messages?after=4&limit=7")).body
        assert page["log_hash"] == expected[11]
        history = (await served.as_(ben).get(f"/v1/chats/{chat}/messages?before=4")).body
        assert "log_hash" not in history


async def all_entries(served: Served, person: Person, chat: str) -> AsyncIterator[Frame]:
    async with served.client(person) as client:
        for entry in await client.sync_all(chat, limit=100):
            yield entry


async def test_a_limit_too_high_is_lowered(place: Place) -> None:
    """A page has at most a thousand entries, whatever is asked."""
    async with place.serving() as served:
        ann, _, chat = await chat_of_two(served)
        async with served.client(ann, live=False) as client:
            answers = [await client.post_message(chat, f"{n}") for n in range(1010)]
            for answer in answers:
                assert (await client.answered(answer))["type"] == "ack"
            page = await client.sync(chat, limit=10**9)
            default = await client.request("sync_request", chat_id=chat, last_acked_sequence=0)
        assert (len(page["entries"]), page["complete"]) == (1000, False)
        assert len(default["entries"]) == 100


async def test_a_position_that_is_none_of_this_log_starts_over(either: Place) -> None:
    """An old epoch, another message at the position and one above the head are answered from 0."""
    async with either.serving() as served:
        _, ben, chat = await chat_of_two(served, "1", "2", "3")
        async with served.client(ben) as client:
            first, second, _ = (await client.sync(chat))["entries"]
            fine = await client.sync(chat, after=2, epoch=1, last_message_id=second["message_id"])
            assert (fine["reset"], fine["from_sequence"]) == (False, 3)
            for fields in (
                {"after": 2, "epoch": 2},
                {"after": 2, "last_message_id": first["message_id"]},
                {"after": 2, "last_message_id": "nonsense"},
                {"after": 4},
                {"after": 2**53 - 1},
            ):
                page = await client.sync(chat, **fields)
                assert (page["reset"], page["from_sequence"], len(page["entries"])) == (True, 1, 3), fields
            again = await client.sync(chat, after=3, last_message_id=first["message_id"])
            assert (again["reset"], len(again["entries"])) == (True, 3)


async def test_a_void_is_a_position_like_any_other(place: Place) -> None:
    """A client whose cursor rests on a void goes on from there, without naming a message."""
    async with place.serving({"PARLEY_STORE_SEQUENCING": "two_phase"}) as served:
        ann, ben, chat = await chat_of_two(served, "1")
        early = "ffffffff-0000-4000-8000-000000000000"
        async with served.client(ann) as client:
            refused = await client.send_message(chat, "2", after_client_message_id=early)
            assert refused["code"] == "out_of_turn"
            assert (await client.send_message(chat, "3"))["sequence"] == 3
        async with served.client(ben) as client:
            page = await client.sync(chat)
            assert (page["voids"], [entry["sequence"] for entry in page["entries"]]) == ([2], [1, 3])
            rest = await client.sync(chat, after=2, epoch=1)
            assert (rest["reset"], [entry["sequence"] for entry in rest["entries"]]) == (False, [3])
            await client.tell("ack", chat_id=chat, last_acked_sequence=2)
            (listed,) = (await client.request("sync_overview"))["chats"]
            assert listed["last_acked_sequence"] == 2


async def test_sync_by_message_id_goes_on_after_it(either: Place) -> None:
    """The chat and the position are that message's."""
    async with either.serving() as served:
        _, ben, chat = await chat_of_two(served, "1", "2", "3")
        async with served.client(ben) as client:
            entries = (await client.sync(chat))["entries"]
            batch = await client.request("sync", last_message_id=entries[0]["message_id"], limit=1)
            assert (batch["type"], batch["chat_id"]) == ("message_batch", chat)
            assert (batch["entries"], batch["head"], batch["complete"]) == ([entries[1]], 3, False)
            last = await client.request("sync", last_message_id=entries[2]["message_id"])
            assert (last["entries"], last["complete"]) == ([], True)


async def test_a_foreign_message_is_as_unknown_as_any(place: Place) -> None:
    """Whether a message exists in a chat of others cannot be found out."""
    async with place.serving() as served:
        ann, _, chat = await chat_of_two(served, "secret")
        (eve,) = await served.people("eve")
        async with served.client(ann) as client:
            known = (await client.sync(chat))["entries"][0]["message_id"]
        unknown = known[:-1] + ("0" if known[-1] != "0" else "1")
        async with served.client(eve) as client:
            answers = [
                await client.request("sync", last_message_id=message_id)
                for message_id in (known, unknown, "", "msg_", "\0")
            ]
        bare = [{name: value for name, value in answer.items() if name != "re"} for answer in answers]
        assert bare[0]["code"] == "not_found"
        assert bare == [bare[0]] * 5


async def test_the_overview_pages_by_any_token(place: Place) -> None:
    """The token of every page goes on where it ended, and the last one lists only what comes later."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chats = [await served.as_(ann).create_group(ben) for _ in range(5)]
        async with served.client(ben) as client:
            seen, token = list[str](), None
            while True:
                page = await client.request("sync_overview", limit=2, changed_since=token)
                seen, token = seen + [chat["chat_id"] for chat in page["chats"]], page["token"]
                if page["complete"]:
                    break
            assert seen == chats
            await served.said(ann, chats[2], "news")
            later = await client.request("sync_overview", changed_since=token, brief=True)
        (listed,) = later["chats"]
        assert (listed["chat_id"], listed["head"], listed["unread"]) == (chats[2], 1, 1)
        assert listed == {
            "chat_id": chats[2],
            "epoch": 1,
            "head": 1,
            "last_acked_sequence": 0,
            "read_up_to": 0,
            "unread": 1,
            "unread_more": False,
            "muted": False,
            "muted_until": None,
        }


async def test_the_overview_says_left_after_removal(place: Place) -> None:
    """A chat one was removed from is listed once more, as left."""
    async with place.serving() as served:
        ann, ben, chat = await chat_of_two(served, "1")
        async with served.client(ben) as client:
            token = (await client.request("sync_overview"))["token"]
            await served.as_(ann).request("DELETE", f"/v1/chats/{chat}/members/{ben.user_id}")
            overview = await client.request("sync_overview", changed_since=token)
        assert [(at["chat_id"], at["left"]) for at in overview["chats"]] == [(chat, True)]


async def test_an_ack_never_moves_back(either: Place) -> None:
    """A lower position is accepted and changes nothing; each device has its own."""
    async with either.serving() as served:
        _, ben, chat = await chat_of_two(served, "1", "2", "3")
        tablet = await served.http.login("ben", "tablet")
        async with served.client(ben) as phone, served.client(tablet) as other:
            for sequence in (2, 1, 0):
                await phone.tell("ack", chat_id=chat, last_acked_sequence=sequence)
            assert (await overview_of(phone, chat))["last_acked_sequence"] == 2
            assert (await overview_of(other, chat))["last_acked_sequence"] == 0
        async with served.client(ben) as phone:
            assert (await overview_of(phone, chat))["last_acked_sequence"] == 2


async def test_a_position_counts_after_a_flush_that_failed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An overview that could not store the positions before it is refused, and the next one shows them."""
    async with place.serving() as served:
        _, ben, chat = await chat_of_two(served, "1", "2")
        flush, failures = served.app.reader.flush, iter([StoreUnavailable("on purpose")])

        async def failing_once(user_id: str) -> None:
            for failure in failures:
                raise failure
            await flush(user_id)

        monkeypatch.setattr(served.app.reader, "flush", failing_once)
        async with served.client(ben) as client:
            await client.tell("ack", chat_id=chat, last_acked_sequence=2)
            assert (await client.request("sync_overview"))["code"] == "store_unavailable"
            assert (await overview_of(client, chat))["last_acked_sequence"] == 2


async def test_acks_and_receipts_beyond_the_head_are_ahead_of_log(either: Place) -> None:
    """Neither a position nor a reading mark may lie beyond the end."""
    async with either.serving() as served:
        _, ben, chat = await chat_of_two(served, "1", "2")
        async with served.client(ben) as client:
            for kind, field in (("ack", "last_acked_sequence"), ("read_receipt", "read_up_to")):
                for sequence in (3, 2**53 - 1):
                    refused = await client.request(kind, chat_id=chat, **{field: sequence})
                    assert refused["code"] == "ahead_of_log"
            at = await overview_of(client, chat)
            assert (at["last_acked_sequence"], at["read_up_to"]) == (0, 0)


async def test_a_read_receipt_names_a_message_or_a_sequence(place: Place) -> None:
    """Both mark the same position, and unread counts follow; neither moves the device's cursor."""
    async with place.serving() as served:
        ann, ben, chat = await chat_of_two(served, "1", "2", "3")
        other = await served.as_(ann).create_group(ben)
        (foreign,) = await served.said(ann, other, "elsewhere")
        async with served.client(ben) as client:
            entries = (await client.sync(chat))["entries"]
            await client.tell("read_receipt", conversation_id=chat, read_up_to=entries[1]["message_id"])
            at = await overview_of(client, chat)
            assert (at["read_up_to"], at["unread"], at["last_acked_sequence"]) == (2, 1, 0)
            await client.tell(
                "read_receipt", conversation_id=chat, read_up_to=3, read_at="2026-01-01T00:00:00Z"
            )
            assert (await overview_of(client, chat))["unread"] == 0
            for unknown in (foreign["message_id"], "msg_x", ""):
                refused = await client.request("read_receipt", conversation_id=chat, read_up_to=unknown)
                assert refused["code"] == "not_found"


async def test_a_delivery_receipt_counts_only_in_order(place: Place) -> None:
    """It moves the cursor only if no unacknowledged message lies before; otherwise it is ignored."""
    async with place.serving() as served:
        ann, ben, chat = await chat_of_two(served, "1", "2", "3")
        (cem,) = await served.people("cem")
        await served.as_(ann).post(f"/v1/chats/{chat}/members", {"user_id": cem.user_id})
        await served.said(ann, chat, "5")
        async with served.client(ben) as client:
            entries = (await client.sync(chat))["entries"]

            async def received(sequence: int) -> int:
                await client.tell(
                    "delivery_receipt",
                    message_id=entries[sequence - 1]["message_id"],
                    conversation_id=chat,
                    delivered_at="2026-01-01T00:00:00Z",
                )
                at: int = (await overview_of(client, chat))["last_acked_sequence"]
                return at

            assert await received(2) == 0, "1 lies before it"
            assert await received(1) == 1
            assert await received(3) == 1, "2 lies before it"
            assert await received(2) == 2
            assert await received(1) == 2, "it never moves back"
            assert await received(3) == 3
            assert await received(5) == 5, "4 is no message"


async def test_two_who_talk_in_turns_acknowledge_by_receipts_alone(either: Place) -> None:
    """A client that sends receipts for what it receives, and nothing else, never stalls at its own words."""
    async with either.serving() as served:
        ann, ben, chat = await chat_of_two(served)
        laptop = await served.http.login("ben", "laptop")
        async with served.client(ann) as speaker, served.client(ben) as client:
            for turn in range(5):
                await client.send_message(chat, f"ben {turn}")
                await served.said(laptop, chat, f"ben's laptop {turn}")
                said = await speaker.send_message(chat, f"ann {turn}")
                await client.tell("delivery_receipt", chat_id=chat, message_id=said["message_id"])
            row = await overview_of(client, chat)
            assert (row["last_acked_sequence"], row["head"]) == (15, 15)
            await speaker.send_message(chat, "missed")
            said = await speaker.send_message(chat, "received")
            await client.tell("delivery_receipt", chat_id=chat, message_id=said["message_id"])
            assert (await overview_of(client, chat))["last_acked_sequence"] == 15


async def test_a_delivery_receipt_for_nothing_is_refused(place: Place) -> None:
    """A message of another chat, or none at all, is not found."""
    async with place.serving() as served:
        ann, ben, chat = await chat_of_two(served, "1")
        other = await served.as_(ann).create_group(ben)
        (foreign,) = await served.said(ann, other, "elsewhere")
        async with served.client(ben) as client:
            for message_id in (foreign["message_id"], "msg_x", ""):
                refused = await client.request("delivery_receipt", chat_id=chat, message_id=message_id)
                assert refused["code"] == "not_found"


async def test_a_pipelined_run_of_delivery_receipts_all_count(place: Place) -> None:
    """Receipts in order, sent without waiting, leave the cursor at the last one."""
    async with place.serving() as served:
        _, ben, chat = await chat_of_two(served, *(f"{n}" for n in range(20)))
        async with served.client(ben) as client:
            entries = (await client.sync(chat))["entries"]
            for entry in entries:
                await client.tell("delivery_receipt", chat_id=chat, message_id=entry["message_id"])
            assert (await overview_of(client, chat))["last_acked_sequence"] == 20


async def test_a_heartbeat_tells_the_heads_to_who_hears_nothing(place: Place) -> None:
    """A connection that is not live learns which chats moved, each time once."""
    async with place.serving() as served:
        ann, ben, chat = await chat_of_two(served, "1")
        quiet = await served.as_(ann).create_group(ben)
        async with served.client(ben, live=False) as client:
            assert "heads" not in await client.heartbeat()
            await served.said(ann, chat, "2", "3")
            assert (await client.heartbeat())["heads"] == {chat: 3}
            assert "heads" not in await client.heartbeat()
            assert client.unasked == []
            await served.said(ann, quiet, "1")
            assert (await client.heartbeat())["heads"] == {quiet: 1}


async def test_a_heartbeat_tells_a_live_connection_only_what_it_was_not_sent(place: Place) -> None:
    """What came live is no news."""
    async with place.serving() as served:
        ann, ben, chat = await chat_of_two(served)
        async with served.client(ben) as client:
            await served.said(ann, chat, "1", "2")
            await client.live_entry(chat, 2)
            beat = await client.heartbeat()
        assert "heads" not in beat
        assert beat["server_time"].endswith("Z")


@pytest.mark.parametrize("frame_type", ["sync_request", "sync_overview", "heartbeat"])
async def test_catching_up_needs_membership_at_that_moment(place: Place, frame_type: str) -> None:
    """Who was removed is told so, and the other requests go on."""
    async with place.serving() as served:
        ann, ben, chat = await chat_of_two(served, "1")
        async with served.client(ben) as client:
            await served.as_(ann).request("DELETE", f"/v1/chats/{chat}/members/{ben.user_id}")
            answer = await client.request(frame_type, chat_id=chat, last_acked_sequence=0)
            assert answer.get("code") == ("not_a_member" if frame_type == "sync_request" else None)


async def overview_of(client: RawClient, chat_id: str) -> Frame:
    """A chat as the overview shows it."""
    chats: list[Frame] = (await client.request("sync_overview"))["chats"]
    return next(chat for chat in chats if chat["chat_id"] == chat_id)
