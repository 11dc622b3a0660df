"""Profiles, settings, contacts, blocks, devices, and finding people."""

import pytest

from parley.wire import codes
from parley.wire.limits import PRESENCE_BATCH_MAX
from tests.harness.clients import Disconnected, Person
from tests.integration.gateway.serving import Place, Served, assert_refused, message


async def test_a_profile_has_settings(place: Place) -> None:
    """Settings have the documented defaults, each is changed alone, and they last."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        http = served.as_(ann)
        me = (await http.get("/v1/me")).body
        assert (me["last_seen_privacy"], me["send_read_receipts"]) == ("everyone", True)
        await http.patch("/v1/me", {"last_seen_privacy": "contacts"})
        await http.patch("/v1/me", {"display_name": "Ann", "about": "hello"})
        changed = await http.patch("/v1/me", {"send_read_receipts": False})
    async with place.serving() as served:
        me = (await served.as_(ann).get("/v1/me")).body
        assert me == changed.body
        assert (me["display_name"], me["about"]) == ("Ann", "hello")
        assert (me["last_seen_privacy"], me["send_read_receipts"]) == ("contacts", False)


@pytest.mark.parametrize(
    "body", [{"last_seen_privacy": "friends"}, {"send_read_receipts": "no"}, {"display_name": ""}, []]
)
async def test_a_setting_that_is_none_is_refused(place: Place, body: object) -> None:
    """Nothing of a wrong change is taken."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        before = (await served.as_(ann).get("/v1/me")).body
        assert_refused(await served.as_(ann).patch("/v1/me", body), 400, "bad_request")
        assert (await served.as_(ann).get("/v1/me")).body == before


async def test_finding_a_person(place: Place) -> None:
    """By the exact username and no other way; settings are nobody else's business."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        found = await served.as_(ann).get("/v1/users", username="ben")
        assert (found.status, found.body["user_id"]) == (200, ben.user_id)
        shown = {"user_id", "username", "display_name", "about", "status", "last_seen", "is_bot"}
        assert set(found.body) == shown
        assert (await served.as_(ann).get(f"/v1/users/{ben.user_id}")).body == found.body
        for username in ("be", "Ben", "ben ", "b%", "x" * 1_000):
            assert_refused(await served.as_(ann).get("/v1/users", username=username), 404, "not_found")
        assert_refused(await served.as_(ann).get("/v1/users"), 400, "bad_request")


@pytest.mark.parametrize("kind", ["contacts", "blocks"])
async def test_contacts_and_blocks_are_lists(place: Place, kind: str) -> None:
    """People are added once however often, listed by pages, removed, and nobody else sees the list."""
    async with place.serving() as served:
        ann, *others = await served.people("ann", "ben", "cleo", "dan")
        http = served.as_(ann)
        ids = sorted(other.user_id for other in others)
        first = await http.put(f"/v1/{kind}/{ids[0]}")
        again = await http.post(f"/v1/{kind}", {"user_id": ids[0]})
        assert (first.status, again.status) == (200, 201)
        assert first.body == again.body
        assert set(first.body) == {"user_id", "username", "display_name", "since"}
        for user_id in ids[1:]:
            await http.put(f"/v1/{kind}/{user_id}")
        page = (await http.get(f"/v1/{kind}", limit=2)).body
        rest = (await http.get(f"/v1/{kind}", limit=2, after=page["next_after"])).body
        assert [one["user_id"] for one in page[kind] + rest[kind]] == ids
        assert rest["next_after"] is None
        assert (await http.delete(f"/v1/{kind}/{ids[1]}")).status == 204
        assert (await http.delete(f"/v1/{kind}/{ids[1]}")).status == 204
        left = (await http.get(f"/v1/{kind}")).body
        assert [one["user_id"] for one in left[kind]] == [ids[0], ids[2]]
        assert (await served.as_(others[0]).get(f"/v1/{kind}")).body == {kind: [], "next_after": None}


@pytest.mark.parametrize("kind", ["contacts", "blocks"])
async def test_unknown_people_and_oneself_are_refused(place: Place, kind: str) -> None:
    """Nobody can be added who does not exist, nor oneself."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        http = served.as_(ann)
        assert_refused(await http.put(f"/v1/{kind}/user_nothing"), 404, "not_found")
        assert_refused(await http.post(f"/v1/{kind}", {"user_id": "user_nothing"}), 404, "not_found")
        assert_refused(await http.put(f"/v1/{kind}/{ann.user_id}"), 400, "bad_request")
        assert_refused(await http.post(f"/v1/{kind}", {}), 400, "bad_request")
        assert (await http.get(f"/v1/{kind}")).body[kind] == []


async def test_who_is_blocked_cannot_write(either: Place) -> None:
    """From the answer to the block on, the blocked person's messages are refused, also on an open socket."""
    async with either.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_direct(ben)
        async with served.client(ben) as client:
            kept = "00000000-0000-4000-8000-00000000000b"
            first = await client.send_message(chat, "before", kept)
            assert first["sequence"] == 1
            await served.as_(ann).put(f"/v1/blocks/{ben.user_id}")
            refused = await client.send_message(chat, "after")
            assert (refused["code"], refused["temporary"]) == ("blocked", False)
            again = await client.send_message(chat, "before", kept)
            assert (again["sequence"], again["deduplicated"]) == (1, True)
            answer = await served.as_(ben).post(f"/v1/chats/{chat}/messages", message())
            assert_refused(answer, 403, "blocked")
            assert (await client.sync(chat))["head"] == 1
            opened = await served.as_(ben).post("/v1/chats", {"type": "direct", "member_ids": [ann.user_id]})
            assert_refused(opened, 403, "blocked")
            (own,) = await served.said(ann, chat, "mine")
            assert own["sequence"] == 2
            await served.as_(ann).delete(f"/v1/blocks/{ben.user_id}")
            assert (await client.send_message(chat, "again"))["sequence"] == 3


async def test_who_is_blocked_cannot_open_a_chat(place: Place) -> None:
    """There is no direct chat with a blocker, unless the blocker opens it; groups go on."""
    async with place.serving() as served:
        ann, ben, cleo = await served.people("ann", "ben", "cleo")
        group = await served.as_(cleo).create_group(ann, ben)
        await served.as_(ann).put(f"/v1/blocks/{ben.user_id}")
        body = {"type": "direct", "member_ids": [ann.user_id]}
        assert_refused(await served.as_(ben).post("/v1/chats", body), 403, "blocked")
        chat = await served.as_(ann).create_direct(ben)
        answer = await served.as_(ben).post(f"/v1/chats/{chat}/messages", message())
        assert_refused(answer, 403, "blocked")
        (said,) = await served.said(ben, group, "to all")
        async with served.client(ann) as client:
            assert [entry["content"] for entry in await client.sync_all(group)] == ["to all"]
        assert said["sequence"] == 1


async def test_a_block_survives_a_restart(either: Place) -> None:
    """A block holds until it is taken back."""
    async with either.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_direct(ben)
        await served.as_(ann).put(f"/v1/blocks/{ben.user_id}")
    async with either.serving() as served:
        answer = await served.as_(ben).post(f"/v1/chats/{chat}/messages", message())
        assert_refused(answer, 403, "blocked")


async def positions(served: Served, person: Person) -> dict[str, int]:
    async with served.client(person, live=False) as client:
        rows = (await client.request("sync_overview"))["chats"]
    return {row["chat_id"]: row["last_acked_sequence"] for row in rows}


async def test_devices_resume_from_their_own_positions(place: Place) -> None:
    """Each device has its own cursor, whatever the others have acknowledged."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        laptop = await served.http.login("ben", "laptop")
        chat = await served.as_(ann).create_direct(ben)
        await served.said(ann, chat, "1", "2", "3")
        async with served.client(ben) as phone, served.client(laptop) as other:
            await phone.tell("ack", chat_id=chat, last_acked_sequence=3)
            await other.tell("ack", chat_id=chat, last_acked_sequence=1)
            await phone.heartbeat()
            await other.heartbeat()
        assert await positions(served, ben) == {chat: 3}
        assert await positions(served, laptop) == {chat: 1}


@pytest.mark.parametrize("by", ["device", "session"])
async def test_removing_a_device(place: Place, by: str) -> None:
    """Its sockets end at once, its token is worth nothing, and its positions are forgotten; others stay."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        laptop = await served.http.login("ben", "laptop")
        chat = await served.as_(ann).create_direct(ben)
        await served.said(ann, chat, "1", "2")
        devices = (await served.as_(ben).get("/v1/devices")).body["devices"]
        assert {device["device_id"]: device["current"] for device in devices} == {
            "phone": True,
            "laptop": False,
        }
        assert all(device["last_used_at"] and device["sessions"] == 1 for device in devices)
        async with served.client(ben) as phone, served.client(laptop) as lost:
            await phone.tell("ack", chat_id=chat, last_acked_sequence=1)
            await lost.tell("ack", chat_id=chat, last_acked_sequence=2)
            await phone.heartbeat()
            await lost.heartbeat()
            path = "/v1/devices/laptop" if by == "device" else f"/v1/sessions/{laptop.session_id}"
            assert (await served.as_(ben).delete(path)).status == 204
            ended: Disconnected = await lost.until_ended()
            assert ended.code == codes.REVOKED.code
            assert (await phone.heartbeat())["type"] == "heartbeat_ack"
        assert_refused(await served.as_(laptop).get("/v1/me"), 401, "unauthenticated")
        again = await served.http.login("ben", "laptop")
        assert await positions(served, again) == {chat: 0}
        assert await positions(served, ben) == {chat: 1}
        receipts = (await served.as_(ann).get(f"/v1/chats/{chat}/messages/2/receipts")).body
        assert receipts["status"] == "delivered"


async def test_a_session_of_several_takes_no_device_along(place: Place) -> None:
    """While a device has another session, revoking one forgets no position."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        second = await served.http.login("ben", "phone")
        chat = await served.as_(ann).create_direct(ben)
        await served.said(ann, chat, "1")
        async with served.client(ben) as client:
            await client.tell("ack", chat_id=chat, last_acked_sequence=1)
            await client.heartbeat()
        (device,) = (await served.as_(ben).get("/v1/devices")).body["devices"]
        assert device["sessions"] == 2
        await served.as_(ben).delete(f"/v1/sessions/{second.session_id}")
        assert await positions(served, ben) == {chat: 1}
        assert_refused(await served.as_(ben).delete("/v1/devices/nothing"), 404, "not_found")


async def test_presence_of_too_many_is_refused(place: Place) -> None:
    """A batch has a limit, which is named; nothing is answered beyond it."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        too_many = [f"user_{number}" for number in range(PRESENCE_BATCH_MAX + 1)]
        async with served.client(ann) as client:
            for kind in ("presence_query", "presence_subscribe"):
                refused = await client.request(kind, user_ids=too_many)
                assert refused["code"] == "bad_request"
                assert str(PRESENCE_BATCH_MAX) in refused["reason"]
                fine = await client.request(kind, user_ids=too_many[:PRESENCE_BATCH_MAX])
                assert len(fine["presences"]) == PRESENCE_BATCH_MAX
        answer = await served.as_(ann).get("/v1/presence", user_ids=",".join(too_many))
        assert_refused(answer, 400, "bad_request")


async def test_people_are_asked_for_in_either_form(place: Place) -> None:
    """One list with commas, or the parameter repeated, as most clients write a list."""
    async with place.serving() as served:
        ann, ben, cleo = await served.people("ann", "ben", "cleo")
        for between in (",", "&user_ids="):
            query = f"user_ids={ben.user_id}{between}{cleo.user_id}"
            answer = await served.as_(ann).get(f"/v1/presence?{query}")
            assert [one["user_id"] for one in answer.body["presences"]] == [ben.user_id, cleo.user_id]
