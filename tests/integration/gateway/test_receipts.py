"""Ticks: who has received and read what, live and on request, and what is hidden of it."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from parley.clock import iso
from parley.wire.limits import RECEIPT_MEMBERS_MAX
from tests.harness.clients import Frame, Person, RawClient
from tests.harness.clock import VirtualClock
from tests.integration.gateway.serving import Place, Served, assert_refused


async def receipts(served: Served, person: Person, chat: str, sequence: int) -> Any:
    answer = await served.as_(person).get(f"/v1/chats/{chat}/messages/{sequence}/receipts")
    assert answer.status == 200, answer
    return answer.body


def names(seen: list[Frame]) -> list[str]:
    return sorted(one["user_id"] for one in seen)


async def read(client: RawClient, chat: str, up_to: int | str) -> None:
    """Read, and wait until that is durable."""
    await client.tell("read_receipt", conversation_id=chat, read_up_to=up_to)
    await client.heartbeat()


async def test_a_message_gets_its_ticks(either: Place) -> None:
    """Sent, then delivered, then read: the sender is told live, and finds the same on request."""
    async with either.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_direct(ben)
        async with served.client(ann) as sender, served.client(ben) as reader:
            ack = await sender.send_message(chat, "hi")
            before = await receipts(served, ann, chat, 1)
            assert (before["status"], before["member_count"], before["mode"]) == ("sent", 1, "full")
            assert before["delivered"] == before["read"] == []
            await reader.tell(
                "delivery_receipt",
                message_id=ack["message_id"],
                conversation_id=chat,
                delivered_at="2026-01-15T10:00:00Z",
            )
            told = await sender.hear("receipt", kind="delivered")
            assert (told["chat_id"], told["user_id"], told["up_to_sequence"]) == (chat, ben.user_id, 1)
            assert (await receipts(served, ann, chat, 1))["status"] == "delivered"
            await reader.tell("read_receipt", conversation_id=chat, read_up_to=ack["message_id"])
            told = await sender.hear("receipt", kind="read")
            assert (told["user_id"], told["up_to_sequence"]) == (ben.user_id, 1)
            after = await receipts(served, ann, chat, 1)
        assert after["status"] == "read"
        assert after["read"] == [{"user_id": ben.user_id, "at": told["at"]}]
        assert names(after["delivered"]) == [ben.user_id]


CLAIMS = ["1999-12-31T23:59:59Z", "2099-01-01T00:00:00Z", None]


@pytest.mark.parametrize("claim", CLAIMS)
async def test_receipts_tell_the_time_of_the_server(place: Place, claim: str | None) -> None:
    """Whatever a client claims in delivered_at and read_at, others see when the server took it."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_direct(ben)
        (said,) = await served.said(ann, chat, "hi")
        async with served.client(ann) as sender, served.client(ben) as reader:
            delivered_ms = clock.advance(60_000)
            claims = {"message_id": said["message_id"], "delivered_at": claim}
            await reader.tell("delivery_receipt", chat_id=chat, **claims)
            delivered = await sender.hear("receipt", kind="delivered")
            read_ms = clock.advance(60_000)
            await reader.tell("read_receipt", chat_id=chat, read_up_to=1, read_at=claim)
            seen = await sender.hear("receipt", kind="read")
        found = await receipts(served, ann, chat, 1)
        assert [delivered["at"], found["delivered"][0]["at"]] == [iso(delivered_ms)] * 2
        assert [seen["at"], found["read"][0]["at"]] == [iso(read_ms)] * 2


async def test_read_by_n_of_m(place: Place) -> None:
    """In a group the list names who has read; the sender and whoever joined later do not count."""
    async with place.serving() as served:
        ann, ben, cleo, dan = await served.people("ann", "ben", "cleo", "dan")
        chat = await served.as_(ann).create_group(ben, cleo)
        await served.said(ann, chat, "1", "2")
        joined = await served.as_(ann).post(f"/v1/chats/{chat}/members", {"user_id": dan.user_id})
        assert joined.body["sequence"] == 3
        async with served.client(ben) as client, served.client(dan) as late:
            await read(client, chat, 2)
            await read(late, chat, 3)
        found = await receipts(served, ann, chat, 2)
        assert (found["member_count"], names(found["read"]), found["status"]) == (2, [ben.user_id], "sent")
        (await served.said(ben, chat, "4"),)
        found = await receipts(served, cleo, chat, 4)
        assert (found["member_count"], names(found["read"])) == (3, [])


async def test_a_bot_counts_in_no_tick(place: Place) -> None:
    """A program that reads nothing keeps no message at `sent`, and one that reads is no reader."""
    async with place.serving() as served:
        ann, ben, bot = await served.people("ann", "ben", "helper")
        user = await served.app.accounts.user(bot.user_id)
        await served.app.kinds.accounts.update_user(replace(user, is_bot=True))
        chat = await served.as_(ann).create_group(ben, bot)
        await served.said(ann, chat, "1", "2")
        async with served.client(ann) as sender, served.client(ben) as reader, served.client(bot) as program:
            await read(program, chat, 1)
            await read(reader, chat, 2)
            told = await sender.hear("receipt", kind="read")
            assert told["user_id"] == ben.user_id
        for sequence in (1, 2):  # the bot has read the first and not the second
            found = await receipts(served, ann, chat, sequence)
            assert (found["member_count"], found["status"]) == (1, "read")
            assert names(found["delivered"]) == names(found["read"]) == [ben.user_id]
        marks = (await served.as_(ann).get(f"/v1/chats/{chat}/receipts")).body["marks"]
        assert names(marks) == sorted([ann.user_id, ben.user_id])


async def test_reading_on_one_device_clears_the_others(either: Place) -> None:
    """What is read on the phone is told to the laptop once it is durable, and unread is 0 there too."""
    async with either.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        laptop = await served.http.login("ben", "laptop")
        await served.said(ann, chat, "1", "2", "3")
        async with served.client(ben) as phone, served.client(laptop) as other:
            (row,) = (await other.request("sync_overview"))["chats"]
            assert row["unread"] == 3
            await phone.tell("read_receipt", conversation_id=chat, read_up_to=2)
            told = await other.hear("receipt", user_id=ben.user_id)
            assert (told["kind"], told["up_to_sequence"]) == ("read", 2)
            (row,) = (await other.request("sync_overview"))["chats"]
            assert (row["unread"], row["read_up_to"], row["last_acked_sequence"]) == (1, 2, 0)


async def test_positions_never_go_back(place: Place) -> None:
    """Older receipts change nothing and are told to nobody."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_direct(ben)
        await served.said(ann, chat, "1", "2", "3")
        async with served.client(ann) as sender, served.client(ben) as reader:
            await read(reader, chat, 3)
            await sender.hear("receipt", kind="read", up_to_sequence=3)
            for position in (1, 2, 3, 0):
                await read(reader, chat, position)
                await reader.tell("ack", chat_id=chat, last_acked_sequence=position)
            ack = await reader.send_message(chat, "4")
            await read(reader, chat, ack["sequence"])
            await sender.hear("receipt", kind="read", up_to_sequence=4)
            told = [(frame["kind"], frame["up_to_sequence"]) for frame in sender.heard("receipt")]
        assert sorted(told) == [("delivered", 3), ("delivered", 4), ("read", 3), ("read", 4)]


WRONG = [
    ("ack", {"last_acked_sequence": 4}, "ahead_of_log"),
    ("read_receipt", {"read_up_to": 4}, "ahead_of_log"),
    ("read_receipt", {"read_up_to": "msg_nothing"}, "not_found"),
    ("delivery_receipt", {"message_id": "msg_nothing"}, "not_found"),
    ("read_receipt", {"read_up_to": 1, "read_at": "just now"}, "bad_request"),
    ("delivery_receipt", {"message_id": "msg_nothing", "delivered_at": ""}, "bad_request"),
]


@pytest.mark.parametrize(("kind", "fields", "code"), WRONG)
async def test_a_receipt_beyond_the_log_is_refused(
    place: Place, kind: str, fields: dict[str, Any], code: str
) -> None:
    """Positions ahead of the log, unknown messages and odd times are refused, and nothing changes."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_direct(ben)
        await served.said(ann, chat, "1", "2", "3")
        async with served.client(ben) as client:
            refused = await client.request(kind, chat_id=chat, **fields)
            assert (refused["type"], refused["code"]) == ("refused", code)
            (row,) = (await client.request("sync_overview"))["chats"]
        assert (row["last_acked_sequence"], row["read_up_to"], row["unread"]) == (0, 0, 3)
        assert (await receipts(served, ann, chat, 1))["status"] == "sent"


async def test_receipts_of_other_chats_are_refused_alike(place: Place) -> None:
    """A foreign chat is refused like one that does not exist, and a foreign message like none."""
    async with place.serving() as served:
        ann, ben, eve = await served.people("ann", "ben", "eve")
        chat = await served.as_(ann).create_direct(ben)
        own = await served.as_(eve).create_group(title="own")
        (said,) = await served.said(ann, chat, "1")
        async with served.client(eve) as client:
            for kind, fields in (
                ("ack", {"last_acked_sequence": 1}),
                ("read_receipt", {"read_up_to": 1}),
                ("delivery_receipt", {"message_id": said["message_id"]}),
                ("typing_start", {}),
                ("typing_stop", {}),
            ):
                foreign, unknown = [
                    await client.request(kind, chat_id=where, **fields) for where in (chat, "chat_nothing")
                ]
                assert foreign["code"] == "not_a_member"
                assert {**foreign, "re": 0} == {**unknown, "re": 0}
            elsewhere = await client.request("read_receipt", chat_id=own, read_up_to=said["message_id"])
            assert elsewhere["code"] == "not_found"
        for where in (chat, "chat_nothing"):
            answer = await served.as_(eve).get(f"/v1/chats/{where}/messages/1/receipts")
            assert_refused(answer, 403, "not_a_member")
            assert_refused(await served.as_(eve).get(f"/v1/chats/{where}/receipts"), 403, "not_a_member")
        assert (await receipts(served, ann, chat, 1))["status"] == "sent"


async def test_receipts_need_a_message(place: Place) -> None:
    """Beyond the head, at 0 and at a void there is nothing to tell of."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_direct(ben)
        await served.said(ann, chat, "1")
        http = served.as_(ann)
        assert_refused(await http.get(f"/v1/chats/{chat}/messages/2/receipts"), 409, "ahead_of_log")
        assert_refused(await http.get(f"/v1/chats/{chat}/messages/0/receipts"), 404, "not_found")
        assert_refused(await http.get(f"/v1/chats/{chat}/messages/one/receipts"), 400, "bad_request")


async def test_modes_of_a_chat(place: Place) -> None:
    """Full names readers, simple tells that there is one, none tells nothing; each change is an entry."""
    async with place.serving() as served:
        ann, ben, cleo = await served.people("ann", "ben", "cleo")
        chat = await served.as_(ann).create_group(ben, cleo)
        await served.said(ann, chat, "1")
        async with served.client(ann) as sender, served.client(ben) as reader:
            await read(reader, chat, 1)
            assert names((await receipts(served, ann, chat, 1))["read"]) == [ben.user_id]
            for mode, expected in (("simple", [None]), ("none", []), ("full", [ben.user_id])):
                changed = await served.as_(ann).patch(f"/v1/chats/{chat}", {"read_receipts": mode})
                assert (changed.status, changed.body["read_receipts"]) == (200, mode)
                assert (await sender.hear("chat_changed", read_receipts=mode))["change"] == "read_receipts"
                found = await receipts(served, ann, chat, 1)
                assert (found["mode"], [one["user_id"] for one in found["read"]]) == (mode, expected)
                assert found["status"] == ("read" if mode == "simple" else "sent")
            head = (await served.as_(ann).get(f"/v1/chats/{chat}")).body["head"]
            assert head == 4
            assert_refused(
                await served.as_(ben).patch(f"/v1/chats/{chat}", {"read_receipts": "none"}), 403, "forbidden"
            )
            assert_refused(
                await served.as_(ann).patch(f"/v1/chats/{chat}", {"read_receipts": "some"}),
                400,
                "bad_request",
            )


async def test_live_receipts_follow_the_mode(place: Place) -> None:
    """In simple mode a live receipt has no name, in none there is none; delivery is told in each."""
    async with place.serving() as served:
        ann, ben, cleo = await served.people("ann", "ben", "cleo")
        chat = await served.as_(ann).create_group(ben, cleo)
        async with served.client(ann) as sender, served.client(ben) as reader:
            for mode, expected in (("simple", [None]), ("none", []), ("full", [ben.user_id])):
                await served.as_(ann).patch(f"/v1/chats/{chat}", {"read_receipts": mode})
                await reader.hear("chat_changed", read_receipts=mode)
                sequence = (await sender.send_message(chat, mode))["sequence"]
                await read(reader, chat, sequence)
                await sender.hear("receipt", kind="delivered", up_to_sequence=sequence)
                ack = await sender.send_message(chat, "after")
                await reader.tell("ack", chat_id=chat, last_acked_sequence=ack["sequence"])
                await sender.hear("receipt", kind="delivered", up_to_sequence=ack["sequence"])
                told = sender.heard("receipt", kind="read", up_to_sequence=sequence)
                assert [frame["user_id"] for frame in told] == expected, mode


async def test_who_sends_no_read_receipts_sees_none(place: Place) -> None:
    """Switched off, reading is hidden from others and others' reading from oneself; delivery is not."""
    async with place.serving() as served:
        ann, ben, cleo = await served.people("ann", "ben", "cleo")
        chat = await served.as_(ann).create_group(ben, cleo)
        await served.said(ann, chat, "1")
        off = await served.as_(ben).patch("/v1/me", {"send_read_receipts": False})
        assert off.body["send_read_receipts"] is False
        async with (
            served.client(ann) as sender,
            served.client(ben) as private,
            served.client(cleo) as open_one,
        ):
            await read(private, chat, 1)
            await read(open_one, chat, 1)
            await sender.hear("receipt", kind="read", user_id=cleo.user_id)
            await private.hear("receipt", kind="delivered", user_id=cleo.user_id)
            assert not sender.heard("receipt", kind="read", user_id=ben.user_id)
            assert sender.heard("receipt", kind="delivered", user_id=ben.user_id)
            assert not private.heard("receipt", kind="read", user_id=cleo.user_id)
        seen = await receipts(served, ann, chat, 1)
        assert (names(seen["read"]), names(seen["delivered"])) == (
            [cleo.user_id],
            sorted([ben.user_id, cleo.user_id]),
        )
        assert names((await receipts(served, ben, chat, 1))["read"]) == [ben.user_id]
        marks = (await served.as_(ann).get(f"/v1/chats/{chat}/receipts")).body["marks"]
        assert {mark["user_id"]: mark["read_up_to"] for mark in marks}[ben.user_id] == 0


async def test_large_chats_tell_on_request_only(place: Place) -> None:
    """Above the limit nobody else is told live, one's own devices are, and asking still works."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        many = [
            await served.app.accounts.register(f"member{number}", "password")
            for number in range(RECEIPT_MEMBERS_MAX - 1)
        ]
        ids = [ben.user_id, *(user.user_id for user in many)]
        made = await served.as_(ann).post("/v1/chats", {"type": "group", "title": "big", "member_ids": ids})
        chat = made.body["chat_id"]
        tablet = await served.http.login("ben", "tablet")
        async with (
            served.client(ann) as sender,
            served.client(ben) as reader,
            served.client(tablet) as other,
        ):
            await sender.send_message(chat, "hi")
            await read(reader, chat, 1)
            await other.hear("receipt", kind="read", user_id=ben.user_id)
            await sender.heartbeat()
            assert not sender.heard("receipt")
        found = await receipts(served, ann, chat, 1)
        assert (found["member_count"], names(found["read"])) == (RECEIPT_MEMBERS_MAX, [ben.user_id])
        assert_refused(await served.as_(ann).get(f"/v1/chats/{chat}/receipts"), 400, "bad_request")


async def test_a_block_hides_receipts(place: Place) -> None:
    """Who is blocked sees none of the blocker's receipts, live or on request; everybody else does."""
    async with place.serving() as served:
        ann, ben, cleo = await served.people("ann", "ben", "cleo")
        chat = await served.as_(ann).create_group(ben, cleo)
        await served.said(ann, chat, "1")
        assert (await served.as_(ben).put(f"/v1/blocks/{ann.user_id}")).status == 200
        async with (
            served.client(ann) as blocked,
            served.client(ben) as blocker,
            served.client(cleo) as friend,
        ):
            await read(blocker, chat, 1)
            await friend.hear("receipt", kind="read", user_id=ben.user_id)
            await read(friend, chat, 1)
            await blocked.hear("receipt", kind="read", user_id=cleo.user_id)
            assert not blocked.heard("receipt", user_id=ben.user_id)
        found = await receipts(served, ann, chat, 1)
        assert names(found["delivered"]) == names(found["read"]) == [cleo.user_id]
        found = await receipts(served, cleo, chat, 1)
        assert names(found["read"]) == sorted([ben.user_id, cleo.user_id])


async def test_what_was_answered_survives_a_restart(either: Place) -> None:
    """Positions that were followed by an answer are there after the server comes back."""
    async with either.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_direct(ben)
        await served.said(ann, chat, "1", "2")
        async with served.client(ben) as client:
            await client.tell("ack", chat_id=chat, last_acked_sequence=2)
            await read(client, chat, 1)
    async with either.serving() as served:
        found = [(await receipts(served, ann, chat, sequence))["status"] for sequence in (1, 2)]
        assert found == ["read", "delivered"]


async def test_what_is_read_right_before_the_end_is_told_to_nobody(place: Place) -> None:
    """Positions that are stored while a server stops start no work that outlives its store."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await served.said(ann, chat, "hi")
        async with served.client(ben) as client:
            await client.tell("read_receipt", chat_id=chat, read_up_to=1)
    assert not [task for task in asyncio.all_tasks() if "Receipts" in repr(task.get_coro())]
