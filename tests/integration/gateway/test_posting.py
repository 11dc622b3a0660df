"""Announcement-only groups and slow mode, as members and admins see them."""

from tests.integration.gateway.serving import Place, assert_refused, message


async def test_only_admins_post_announcements(place: Place) -> None:
    """The chat says so, members hear of it and are refused, over HTTP and sockets; they may still react."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        (receipt,) = await served.said(ben, chat, "before")
        path = f"/v1/chats/{chat}"
        async with served.client(ben) as client:
            changed = await served.as_(ann).patch(path, {"announcement_only": True})
            assert (changed.status, changed.body["announcement_only"]) == (200, True)
            await client.hear("chat_changed", change="posting", announcement_only=True)
            body = message("no")
            refused = await client.request("send_message", chat_id=chat, **body)
            assert (refused["type"], refused["code"]) == ("refused", "announcement_only")
            reaction = {"reaction": "+1", "message_id": receipt["message_id"]}
            done = await client.request(
                "react", chat_id=chat, client_message_id=body["client_message_id"], **reaction
            )
            assert done["type"] == "ack"
        assert_refused(
            await served.as_(ben).post(f"{path}/messages", message("no")), 403, "announcement_only"
        )
        await served.said(ann, chat, "news")
        assert (await served.as_(ben).get(path)).body["announcement_only"] is True


async def test_slow_mode(place: Place) -> None:
    """A member waits as long as the refusal says, an admin does not."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        path = f"/v1/chats/{chat}"
        changed = await served.as_(ann).patch(path, {"slow_mode_seconds": 3600})
        assert (changed.status, changed.body["slow_mode_seconds"]) == (200, 3600)
        await served.said(ben, chat, "one")
        refused = await served.as_(ben).post(f"{path}/messages", message("two"))
        assert_refused(refused, 429, "slow_mode")
        assert refused.body["temporary"] is True
        assert 3_590_000 < refused.body["retry_after_ms"] <= 3_600_000
        await served.said(ann, chat, "three", "four")
        for wrong in (-1, 21_601):
            assert_refused(
                await served.as_(ann).patch(path, {"slow_mode_seconds": wrong}), 400, "bad_request"
            )
        assert_refused(await served.as_(ben).patch(path, {"slow_mode_seconds": 0}), 403, "forbidden")
        await served.as_(ann).patch(path, {"slow_mode_seconds": 0})
        await served.said(ben, chat, "five", "six")


async def test_a_direct_chat_has_neither(place: Place) -> None:
    """There is nobody to announce to."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        made = await served.as_(ann).post("/v1/chats", {"type": "direct", "member_ids": [ben.user_id]})
        for wanted in ({"announcement_only": True}, {"slow_mode_seconds": 5}):
            refused = await served.as_(ann).patch(f"/v1/chats/{made.body['chat_id']}", wanted)
            assert_refused(refused, 400, "bad_request")


async def test_admins_moderate(place: Place) -> None:
    """They remove what members wrote, and the members themselves; other members may not."""
    async with place.serving() as served:
        ann, ben, cat = await served.people("ann", "ben", "cat")
        chat = await served.as_(ann).create_group(ben, cat)
        await served.as_(ann).patch(f"/v1/chats/{chat}/members/{ben.user_id}", {"role": "admin"})
        (receipt,) = await served.said(cat, chat, "rude")
        gone = {"chat_id": chat, "message_id": receipt["message_id"]}
        async with served.client(ben) as admin:
            done = await admin.request(
                "delete_message", client_message_id=message("")["client_message_id"], **gone
            )
            assert done["type"] == "ack"
        kick = f"/v1/chats/{chat}/members/{cat.user_id}"
        assert_refused(
            await served.as_(cat).delete(f"/v1/chats/{chat}/members/{ben.user_id}"), 403, "forbidden"
        )
        assert (await served.as_(ben).delete(kick)).status == 200
        assert_refused(
            await served.as_(cat).post(f"/v1/chats/{chat}/messages", message("x")), 403, "not_a_member"
        )
