"""The chat list as a person reads it: titles, last entries, what is unread, and mute."""

from typing import Any

import pytest

from parley.client import connect
from parley.wire.limits import MENTIONS_LOOKED_AT_MAX, UNREAD_MAX
from tests.harness.clients import Person
from tests.harness.clock import VirtualClock
from tests.integration.gateway.serving import Place, Served, assert_refused, message, new_id


async def listed(served: Served, person: Person, **query: str | int) -> list[Any]:
    answer = await served.as_(person).get("/v1/chats", **query)
    assert answer.status == 200, answer
    return list(answer.body["chats"])


async def test_a_row_says_what_a_person_reads(either: Place) -> None:
    """Title, last entry, unread, cursors and who is on the other side; frame and HTTP say the same."""
    async with either.serving() as served:
        ann, ben = await served.people("ann", "ben")
        await served.as_(ben).patch("/v1/me", {"display_name": "Ben the Great"})
        group = await served.as_(ann).create_group(ben, title="Team")
        direct = await served.as_(ann).create_direct(ben)
        await served.said(ben, group, "1", "2")
        rows = {row["chat_id"]: row for row in await listed(served, ann)}
        team = rows[group]
        assert (team["type"], team["title"], team["peer"]) == ("group", "Team", None)
        assert (team["unread"], team["unread_more"], team["head"]) == (2, False, 2)
        assert (team["last_entry"]["content"], team["last_entry"]["sequence"]) == ("2", 2)
        assert (team["muted"], team["muted_until"]) == (False, None)
        pair = rows[direct]
        assert (pair["type"], pair["title"], pair["last_entry"]) == ("direct", None, None)
        assert (pair["peer"]["user_id"], pair["peer"]["username"]) == (ben.user_id, "ben")
        assert pair["peer"]["display_name"] == "Ben the Great"
        async with served.client(ann) as client, served.client(ann, msgpack=True) as binary:
            full = (await client.request("sync_overview"))["chats"]
            assert {row["chat_id"] for row in full} == {group, direct}
            assert next(row for row in full if row["chat_id"] == group) == team
            assert (
                next(
                    row for row in (await binary.request("sync_overview"))["chats"] if row["chat_id"] == group
                )
                == team
            )
            brief = (await client.request("sync_overview", brief=True))["chats"]
            assert all(not {"title", "peer", "last_entry"} & row.keys() for row in brief)


async def test_the_newest_chats_come_first(place: Place) -> None:
    """With `order=newest`, page by page, and as many as the SDK is asked for; another order is refused."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        ann, ben = await served.people("ann", "ben")
        chats = []
        for name in ("a", "b", "c"):
            clock.advance(1_000)
            chats.append(await served.as_(ann).create_group(ben, title=name))
        for chat in (chats[2], chats[0]):
            clock.advance(1_000)
            await served.said(ben, chat, "hi")
        newest = [chats[0], chats[2], chats[1]]
        assert [row["chat_id"] for row in await listed(served, ann, order="newest")] == newest
        page = (await served.as_(ann).get("/v1/chats", order="newest", limit=2)).body
        assert ([row["chat_id"] for row in page["chats"]], page["complete"]) == (newest[:2], False)
        (last,) = await listed(served, ann, limit=2, changed_since=page["token"])
        assert last["chat_id"] == newest[2]
        async with connect(served.url, ann.token) as mine:
            assert [row.chat_id for row in await mine.chats(newest=2)] == newest[:2]
            assert {row.chat_id for row in await mine.chats()} == set(newest)
        assert_refused(await served.as_(ann).get("/v1/chats", order="oldest"), 400, "bad_request")
        odd = await served.as_(ann).get("/v1/chats", changed_since="newest.999999999999999.1:1")
        assert_refused(odd, 400, "bad_request")


async def test_a_chat_that_was_left_tells_nothing_more(place: Place) -> None:
    """Who left sees that they left, and neither title nor last entry."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        group = await served.as_(ann).create_group(ben)
        token = (await served.as_(ben).get("/v1/chats")).body["token"]
        await served.as_(ann).delete(f"/v1/chats/{group}/members/{ben.user_id}")
        await served.as_(ann).patch(f"/v1/chats/{group}", {"title": "secret"})
        await served.said(ann, group, "secret")
        (row,) = await listed(served, ben, changed_since=token)
        assert row["left"] is True
        assert (row["title"], row["last_entry"], row["unread"]) == (None, None, 0)


async def test_pages_list_no_chat_that_was_left_before(either: Place) -> None:
    """The list is the same in small pages as in one; what is left while it is read is told."""
    async with either.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chats = [await served.as_(ann).create_group(ben) for _ in range(4)]
        await served.as_(ann).delete(f"/v1/chats/{chats[3]}/members/{ben.user_id}")
        page = (await served.as_(ben).get("/v1/chats", limit=1)).body
        (first,) = page["chats"]
        await served.as_(ann).delete(f"/v1/chats/{first['chat_id']}/members/{ben.user_id}")
        rest = []
        while not page["complete"]:
            page = (await served.as_(ben).get("/v1/chats", limit=1, changed_since=page["token"])).body
            rest += [(row["chat_id"], "left" in row) for row in page["chats"]]
        assert sorted(rest) == sorted((chat, chat == first["chat_id"]) for chat in chats[:3])


async def test_mute_is_a_setting_of_ones_own(place: Place) -> None:
    """Muted until a time, for oneself alone, told to one's devices, listed as changed, and taken back."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        group = await served.as_(ann).create_group(ben)
        token = (await served.as_(ben).get("/v1/chats")).body["token"]
        async with served.client(ben) as device, served.client(ann) as other:
            muted = await served.as_(ben).patch(f"/v1/chats/{group}", {"muted_until": "2999-01-01T00:00:00Z"})
            assert (muted.body["muted"], muted.body["muted_until"]) == (True, "2999-01-01T00:00:00.000Z")
            told = await device.hear("chat_changed", change="muted")
            assert told["muted_until"] == "2999-01-01T00:00:00.000Z"
            (row,) = await listed(served, ben, changed_since=token)
            assert (row["muted"], row["head"]) == (True, 0)
            (row,) = await listed(served, ann)
            assert row["muted"] is False
            await served.as_(ben).patch(f"/v1/chats/{group}", {"muted_until": "2020-01-01T00:00:00Z"})
            (row,) = await listed(served, ben)
            assert (row["muted"], row["muted_until"]) == (False, "2020-01-01T00:00:00.000Z")
            await served.as_(ben).patch(f"/v1/chats/{group}", {"muted_until": None})
            (row,) = await listed(served, ben)
            assert (row["muted"], row["muted_until"]) == (False, None)
            await other.heartbeat()
            assert not other.heard("chat_changed", change="muted")


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"muted_until": "2999-01-01T00:00:00Z", "title": "mine"}, 403),
        ({"muted_until": "2999-01-01T00:00:00Z", "read_receipts": "none"}, 403),
        ({"muted_until": "tomorrow", "title": "mine"}, 400),
    ],
)
async def test_of_a_refused_change_nothing_is_done(place: Place, change: dict[str, str], status: int) -> None:
    """A change of several things is refused as a whole."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        group = await served.as_(ann).create_group(ben)
        person = ben if status == 403 else ann
        before = (await served.as_(person).get(f"/v1/chats/{group}")).body
        assert (await served.as_(person).patch(f"/v1/chats/{group}", change)).status == status
        assert (await served.as_(person).get(f"/v1/chats/{group}")).body == before


@pytest.mark.parametrize("until", ["tomorrow", "", "99999-01-01T00:00:00Z", 5])
async def test_a_time_that_is_none_is_refused(place: Place, until: object) -> None:
    """Mute takes a time or null; a foreign chat cannot be muted."""
    async with place.serving() as served:
        ann, eve = await served.people("ann", "eve")
        group = await served.as_(ann).create_group()
        answer = await served.as_(ann).patch(f"/v1/chats/{group}", {"muted_until": until})
        assert_refused(answer, 400, "bad_request")
        foreign = await served.as_(eve).patch(f"/v1/chats/{group}", {"muted_until": None})
        assert_refused(foreign, 403, "not_a_member")


async def test_unread_stops_counting(place: Place) -> None:
    """Up to 999 are counted, then there are more; own messages never count."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        group = await served.as_(ann).create_group(ben)
        async with served.client(ann, live=False) as client:
            answers = [await client.post_message(group, "x") for _ in range(UNREAD_MAX + 1)]
            for answer in answers:
                assert (await client.answered(answer))["type"] == "ack"
        (row,) = await listed(served, ben)
        assert (row["unread"], row["unread_more"]) == (UNREAD_MAX, True)
        async with served.client(ben) as client:
            await client.tell("read_receipt", chat_id=group, read_up_to=1)
            (row,) = (await client.request("sync_overview"))["chats"]
        assert (row["unread"], row["unread_more"]) == (UNREAD_MAX, False)
        (row,) = await listed(served, ann)
        assert (row["unread"], row["unread_more"]) == (0, False)


async def test_long_last_entries_end_a_page(place: Place) -> None:
    """However long the last messages are, pages stay small and together list every chat once."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chats = [await served.as_(ann).create_group(title=f"chat {number}") for number in range(40)]
        for chat in chats:
            await served.said(ann, chat, "x" * 60_000)
        found, token, pages = list[str](), "", 0
        while True:
            query = {"changed_since": token} if token else {}
            page = (await served.as_(ann).get("/v1/chats", limit=1_000, **query)).body
            found += [row["chat_id"] for row in page["chats"]]
            token, pages = page["token"], pages + 1
            if page["complete"]:
                break
        assert (sorted(found), pages > 1) == (sorted(chats), True)
        async with served.client(ann) as client:
            overview = await client.request("sync_overview", limit=1_000)
        assert 0 < len(overview["chats"]) < len(chats)


async def test_a_row_says_how_many_unread_messages_mention_the_person(place: Place) -> None:
    """Of others, not deleted, not read: by frames and over HTTP; a brief overview leaves it out."""
    async with place.serving() as served:
        ann, ben, cem = await served.people("ann", "ben", "cem")
        chat = await served.as_(ann).create_group(ben, cem)
        path = f"/v1/chats/{chat}/messages"
        sent = []
        for content, mentions in (
            ("first", [ben]),
            ("for cem", [cem]),
            (f"names {ben.user_id} in its text", []),
            ("for both", [cem, ben]),
            ("deleted", [ben]),
            ("last", [ben]),
        ):
            body = message(content, mentions=[person.user_id for person in mentions])
            sent.append((await served.as_(ann).post(path, body)).body)
        await served.as_(ben).post(path, message("myself", mentions=[ben.user_id]))
        async with served.client(ann) as author, served.client(ben) as client:
            deletion = {"chat_id": chat, "client_message_id": new_id(), "message_id": sent[4]["message_id"]}
            assert (await author.request("delete_message", **deletion))["type"] == "ack"
            (row,) = (await client.request("sync_overview"))["chats"]
            assert row["unread_mentions"] == 3
            await client.tell("read_receipt", conversation_id=chat, read_up_to=1)
            (row,) = (await client.request("sync_overview"))["chats"]
            assert (row["unread_mentions"], row["unread"]) == (2, 4)
            (brief,) = (await client.request("sync_overview", brief=True))["chats"]
            assert "unread_mentions" not in brief
        (listed,) = (await served.as_(cem).get("/v1/chats")).body["chats"]
        assert listed["unread_mentions"] == 2
        (own,) = (await served.as_(ann).get("/v1/chats")).body["chats"]
        assert own["unread_mentions"] == 0


async def test_mentions_are_counted_among_the_newest(place: Place) -> None:
    """A person who was long away costs no reading of the whole log."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        body = message("early", mentions=[ben.user_id])
        await served.as_(ann).post(f"/v1/chats/{chat}/messages", body)
        await served.said(ann, chat, *map(str, range(MENTIONS_LOOKED_AT_MAX - 1)))
        (row,) = (await served.as_(ben).get("/v1/chats")).body["chats"]
        assert row["unread_mentions"] == 1
        await served.said(ann, chat, "one more")
        (row,) = (await served.as_(ben).get("/v1/chats")).body["chats"]
        assert row["unread_mentions"] == 0
