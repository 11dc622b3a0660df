"""Who is there and who types, as people on sockets notice it."""

from unittest import mock

from parley.clock import from_iso, wall_clock
from parley.wire.limits import TYPING_MEMBERS_MAX
from tests.harness.clients import Person, RawClient
from tests.integration.gateway.serving import Place, Served
from tests.waiting import eventually


async def seen(client: RawClient, person: Person) -> tuple[str, str | None]:
    (presence,) = (await client.request("presence_query", user_ids=[person.user_id]))["presences"]
    return presence["status"], presence["last_seen"]


async def is_seen(client: RawClient, person: Person, status: str) -> bool:
    return (await seen(client, person))[0] == status


async def two(served: Served) -> tuple[Person, Person, str]:
    ann, ben = await served.people("ann", "ben")
    return ann, ben, await served.as_(ann).create_direct(ben)


async def test_a_person_is_there_while_any_device_is(place: Place) -> None:
    """Online with the first device, offline at once when the last one closes properly, and told each time."""
    async with place.serving() as served:
        ann, ben, _ = await two(served)
        laptop = await served.http.login("ben", "laptop")
        async with served.client(ann) as viewer:
            assert await seen(viewer, ben) == ("offline", None)
            state = await viewer.request("presence_subscribe", user_ids=[ben.user_id])
            assert state["presences"][0]["status"] == "offline"
            async with served.client(ben):
                await viewer.hear("presence", user_id=ben.user_id, status="online")
                async with served.client(laptop):
                    assert await is_seen(viewer, ben, "online")
                assert await is_seen(viewer, ben, "online")
            await eventually(lambda: is_seen(viewer, ben, "offline"))
            told = await viewer.hear("presence", user_id=ben.user_id, status="offline")
            assert abs(from_iso(told["last_seen"]) - wall_clock()) < 60_000
            assert await seen(viewer, ben) == ("offline", told["last_seen"])
            assert [frame["status"] for frame in viewer.heard("presence")] == ["online", "offline"]


async def test_a_lost_connection_is_no_departure(place: Place) -> None:
    """Whoever loses the network stays online until the lease ends, and nobody is told of a short break."""
    async with place.serving() as served:
        ann, ben, _ = await two(served)
        async with served.client(ann) as viewer:
            lost = served.client(ben)
            await lost.connect()
            await viewer.request("presence_subscribe", user_ids=[ben.user_id])
            lost.abort()
            await lost.until_ended()
            await eventually(lambda: len(served.app.gateway.connections) == 1)
            assert await is_seen(viewer, ben, "online")
            async with served.client(ben):
                assert await is_seen(viewer, ben, "online")
                await viewer.heartbeat()
            assert not [frame for frame in viewer.heard("presence") if frame["status"] == "online"]


async def test_last_seen_is_stored(place: Place) -> None:
    """When somebody was last there is known after a restart."""
    async with place.serving() as served:
        ann, ben, _ = await two(served)
        async with served.client(ann) as viewer:
            async with served.client(ben):
                assert await is_seen(viewer, ben, "online")
            await eventually(lambda: is_seen(viewer, ben, "offline"))
            _, before = await seen(viewer, ben)
    async with place.serving() as served, served.client(ann) as viewer:
        assert await seen(viewer, ben) == ("offline", before)
        assert before is not None


async def test_a_revoked_device_is_gone_at_once(place: Place) -> None:
    """Removing the only device takes its person offline without waiting for a lease."""
    async with place.serving() as served:
        ann, ben, _ = await two(served)
        async with served.client(ann) as viewer, served.client(ben) as gone:
            assert await is_seen(viewer, ben, "online")
            await served.as_(ben).delete("/v1/devices/phone")
            await gone.until_ended()
            await eventually(lambda: is_seen(viewer, ben, "offline"))


async def test_a_subscription_replaces_the_one_before(place: Place) -> None:
    """Only those named last are told of, and an empty list ends it."""
    async with place.serving() as served:
        ann, ben, cleo = await served.people("ann", "ben", "cleo")
        await served.as_(ann).create_group(ben, cleo)
        async with served.client(ann) as viewer:
            await viewer.request("presence_subscribe", user_ids=[ben.user_id])
            await viewer.request("presence_subscribe", user_ids=[cleo.user_id])
            async with served.client(ben):
                await eventually(lambda: is_seen(viewer, ben, "online"))
                async with served.client(cleo):
                    await viewer.hear("presence", user_id=cleo.user_id)
                    state = await viewer.request("presence_subscribe", user_ids=[])
                    assert state["presences"] == []
            await eventually(lambda: is_seen(viewer, cleo, "offline"))
            await viewer.heartbeat()
            assert [frame["user_id"] for frame in viewer.heard("presence")] == [cleo.user_id]


async def test_a_new_chat_makes_strangers_acquainted(place: Place) -> None:
    """Who watches a stranger is told how they are once both are in a chat, and no more after the last."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        async with served.client(ann) as viewer, served.client(ben):
            state = await viewer.request("presence_subscribe", user_ids=[ben.user_id])
            assert state["presences"][0]["last_seen"] == "unavailable"
            group = await served.as_(ben).create_group(ann)
            await viewer.hear("presence", user_id=ben.user_id, status="online")
            await served.as_(ben).delete(f"/v1/chats/{group}/members/{ann.user_id}")
            await viewer.hear("presence", user_id=ben.user_id, last_seen="unavailable")


async def test_a_chat_that_another_program_makes_acquaints_too(place: Place) -> None:
    """A chat that nobody told of is found by looking, and so is who may be seen."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        async with served.client(ann) as viewer, served.client(ben):
            await viewer.request("presence_subscribe", user_ids=[ben.user_id])
            with mock.patch.object(served.app.bus, "publish_joined"):
                await served.as_(ben).create_group(ann)
            await served.app.hub.catch_up()
            await viewer.hear("presence", user_id=ben.user_id, status="online")


async def test_typing_is_told_to_others_who_are_there(place: Place) -> None:
    """Others see it, one's own devices do not, and at most one start in three seconds is passed on."""
    async with place.serving() as served:
        ann, ben, chat = await two(served)
        tablet = await served.http.login("ann", "tablet")
        async with (
            served.client(ann) as typist,
            served.client(tablet) as own,
            served.client(ben) as other,
        ):
            for _ in range(5):
                await typist.tell("typing_start", conv_id=chat)
            shown = await other.hear("typing", user_id=ann.user_id)
            assert shown == {
                "type": "typing",
                "chat_id": chat,
                "user_id": ann.user_id,
                "expires_in_ms": 5_000,
            }
            await typist.tell("typing_stop", conv_id=chat)
            await typist.tell("typing_stop", conv_id=chat)
            await other.hear("typing", expires_in_ms=0)
            await typist.heartbeat()
            await other.heartbeat()
            await own.heartbeat()
            assert [frame["expires_in_ms"] for frame in other.heard("typing")] == [5_000, 0]
            assert not own.heard("typing")
            assert not typist.heard("typing")
            assert (await other.sync(chat))["head"] == 0


async def test_typing_is_silent_in_large_chats(place: Place) -> None:
    """Above the limit nobody is told and nobody is refused."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        others = [
            (await served.app.accounts.register(f"member{number}", "password")).user_id
            for number in range(TYPING_MEMBERS_MAX - 1)
        ]
        body = {"type": "group", "title": "big", "member_ids": [ben.user_id, *others]}
        chat = (await served.as_(ann).post("/v1/chats", body)).body["chat_id"]
        async with served.client(ann) as typist, served.client(ben) as other:
            await typist.tell("typing_start", conv_id=chat)
            await typist.heartbeat()
            await other.heartbeat()
            assert not other.heard("typing")
            assert not typist.heard("refused")


async def test_a_block_hides_typing_in_groups(place: Place) -> None:
    """Who is blocked does not see the blocker type; everybody else does."""
    async with place.serving() as served:
        ann, ben, cleo = await served.people("ann", "ben", "cleo")
        chat = await served.as_(ann).create_group(ben, cleo)
        await served.as_(ann).put(f"/v1/blocks/{ben.user_id}")
        async with (
            served.client(ann) as blocker,
            served.client(ben) as blocked,
            served.client(cleo) as friend,
        ):
            await blocker.tell("typing_start", conv_id=chat)
            await friend.hear("typing", user_id=ann.user_id)
            await blocked.tell("typing_start", conv_id=chat)
            await friend.hear("typing", user_id=ben.user_id)
            await blocked.heartbeat()
            assert not blocked.heard("typing", user_id=ann.user_id)


async def test_who_is_blocked_does_not_appear_typing(place: Place) -> None:
    """In a direct chat a block ends typing both ways."""
    async with place.serving() as served:
        ann, ben, chat = await two(served)
        await served.as_(ann).put(f"/v1/blocks/{ben.user_id}")
        async with served.client(ann) as blocker, served.client(ben) as blocked:
            await blocked.tell("typing_start", conv_id=chat)
            await blocker.tell("typing_start", conv_id=chat)
            for client in (blocked, blocker, blocked, blocker):
                await client.heartbeat()
            assert not blocker.heard("typing")
            assert not blocked.heard("typing")
