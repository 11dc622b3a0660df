"""Erasure, retention and the cold tier of a real gateway."""

import uuid

from parley.app.archive import make_archiver
from parley.archive.archiver import Archiver
from parley.archive.tiers import TieredEngine
from tests.harness.clients import Person
from tests.integration.gateway.serving import Place, Served, assert_refused
from tests.waiting import eventually

ARCHIVE = {"PARLEY_ARCHIVE_TARGET": "cold", "PARLEY_ARCHIVE_AFTER_DAYS": "0"}


async def say(served: Served, person: Person, chat: str, *texts: str) -> None:
    for text in texts:
        body = {"client_message_id": str(uuid.uuid4()), "content": text}
        assert (await served.as_(person).post(f"/v1/chats/{chat}/messages", body)).status == 201


async def contents(served: Served, person: Person, chat: str) -> list[tuple[str, bool]]:
    answer = await served.as_(person).get(f"/v1/chats/{chat}/messages", after=0, limit=100)
    assert answer.status == 200, answer
    return [
        (entry["content"], entry.get("deleted", False))
        for entry in answer.body["entries"]
        if entry["kind"] == "message"
    ]


def archiver_of(served: Served) -> Archiver:
    app = served.app
    assert isinstance(app.store, TieredEngine)
    return make_archiver(app.store, app.config, app.clock, app.metrics, {})


async def test_a_person_and_what_they_wrote(place: Place) -> None:
    """The account is deleted, a job removes the bodies from both tiers, and both are in the audit log."""
    async with place.serving(ARCHIVE) as served:
        root = await served.operator()
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await say(served, ann, chat, "secret one", "secret two")
        await say(served, ben, chat, "mine")
        await archiver_of(served).run()
        await say(served, ann, chat, "secret three")
        answer = await served.as_(root).delete(f"/v1/admin/users/{ann.user_id}?erase=bodies")
        assert (answer.status, answer.body["state"], answer.body["job_id"]) == (202, "deleted", "erasures")

        async def is_erased() -> bool:
            return not await served.app.kinds.erasures.pending()

        await eventually(is_erased)
        assert await contents(served, ben, chat) == [("", True), ("", True), ("mine", False), ("", True)]
        records = (await served.as_(root).get("/v1/admin/audit")).body["records"]
        actions = {record["action"]: record["outcome"] for record in records}
        assert (actions["user.delete"], actions["user.erase"]) == ("done", "done")


async def test_only_bodies_can_be_erased(place: Place) -> None:
    """Another word is refused, and nothing happens to the account."""
    async with place.serving() as served:
        root, ann = await served.operator(), (await served.people("ann"))[0]
        answer = await served.as_(root).delete(f"/v1/admin/users/{ann.user_id}?erase=everything")
        assert_refused(answer, 400, "bad_request")
        assert (await served.as_(ann).get("/v1/me")).status == 200


async def test_operators_decide_about_a_chat(place: Place) -> None:
    """Days and a hold are stored and recorded; a stranger to the office may not."""
    async with place.serving() as served:
        root, ann = await served.operator(), (await served.people("ann"))[0]
        chat = await served.as_(ann).create_group()
        path = f"/v1/admin/chats/{chat}/retention"
        assert (await served.as_(root).get(path)).body == {"days": None, "is_held": False}
        wanted = {"days": 30, "is_held": True}
        assert (await served.as_(root).put(path, wanted)).body == wanted
        assert (await served.as_(root).get(path)).body == wanted
        assert_refused(await served.as_(ann).put(path, wanted), 403, "forbidden")
        assert_refused(await served.as_(root).put(path, {"days": -1}), 400, "bad_request")
        nowhere = "/v1/admin/chats/chat_nowhere/retention"
        assert_refused(await served.as_(root).put(nowhere, wanted), 404, "not_found")


async def test_clients_do_not_see_the_border(place: Place) -> None:
    """Sync, history, receipts and the chat list answer as before, over HTTP and over a socket."""
    async with place.serving(ARCHIVE) as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await say(served, ann, chat, *(f"message {number}" for number in range(12)))

        async def seen() -> list[object]:
            mine = served.as_(ben)
            async with served.client(ben) as client:
                synced = await client.request("sync_request", chat_id=chat, last_acked_sequence=0, limit=100)
                first = synced["entries"][0]["message_id"]
                named = await client.request("sync", last_message_id=first, limit=5)
                overview = await client.request("sync_overview")
            return [
                {**synced, "re": 0},
                {**named, "re": 0},
                overview["chats"],
                (await mine.get(f"/v1/chats/{chat}/messages", before=9, limit=4)).body,
                (await mine.get(f"/v1/chats/{chat}/messages/3/receipts")).body,
                (await mine.get("/v1/chats")).body["chats"],
            ]

        before = await seen()
        assert (await archiver_of(served).run()).trimmed == 11
        assert await seen() == before
