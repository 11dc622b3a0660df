"""People delete their own accounts, and an erasure says what it removed."""

from typing import Any

from tests.harness.clients import PASSWORD, Person
from tests.integration.gateway.serving import Place, Served, assert_refused
from tests.integration.gateway.test_erasure import ARCHIVE, archiver_of, contents, say
from tests.waiting import eventually


async def erased(served: Served, root: Person, user_id: str) -> Any:
    async def is_done() -> bool:
        answer = await served.as_(root).get(f"/v1/admin/erasures/{user_id}")
        return answer.status == 200 and answer.body["finished_at"] is not None

    await eventually(is_done)
    return (await served.as_(root).get(f"/v1/admin/erasures/{user_id}")).body


async def test_a_person_deletes_their_account(place: Place) -> None:
    """With the password; then nothing of it works, the name is free, and what they wrote stays."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await say(served, ann, chat, "words")
        assert_refused(await served.as_(ann).delete("/v1/me", {"password": "wrong"}), 401, "unauthenticated")
        assert_refused(await served.as_(ann).delete("/v1/me"), 401, "unauthenticated")
        assert (await served.as_(ann).get("/v1/me")).status == 200
        done = await served.as_(ann).delete("/v1/me", {"password": PASSWORD})
        assert (done.status, done.body) == (202, {"user_id": ann.user_id, "job_id": None})
        assert_refused(await served.as_(ann).get("/v1/me"), 401, "unauthenticated")
        assert await contents(served, ben, chat) == [("words", False)]

        async def is_owner() -> bool:
            return bool((await served.as_(ben).get(f"/v1/chats/{chat}")).body["role"] == "owner")

        await eventually(is_owner)
        await served.people("ann")


async def test_the_last_operator_stays(place: Place) -> None:
    """Somebody must be able to act."""
    async with place.serving() as served:
        root = await served.operator()
        assert_refused(await served.as_(root).delete("/v1/me", {"password": PASSWORD}), 409, "last_operator")
        assert (await served.as_(root).get("/v1/me")).status == 200


async def test_who_has_no_password_needs_none(place: Place) -> None:
    """People of another system proved who they are there."""
    async with place.serving() as served:
        root = await served.operator()
        made = await served.as_(root).put("/v1/admin/users/4711", {"username": "ann"})
        user_id = made.body["user_id"]
        token = (
            await served.as_(root).post(f"/v1/admin/users/{user_id}/tokens", {"device_id": "phone"})
        ).body
        ann = Person("ann", user_id, "phone", "", token["token"])
        assert (await served.as_(ann).delete("/v1/me")).status == 202
        assert_refused(await served.as_(ann).get("/v1/me"), 401, "unauthenticated")


async def test_an_erasure_reports_what_it_removed(place: Place) -> None:
    """Bodies in both tiers and by chat, positions of devices, what was written in reports."""
    async with place.serving(ARCHIVE) as served:
        root = await served.operator()
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await say(served, ann, chat, "secret one", "secret two")
        await archiver_of(served).run()
        await say(served, ann, chat, "secret three")
        await say(served, ben, chat, "mine")
        head = (await served.as_(ann).get(f"/v1/chats/{chat}/messages", after=0)).body["entries"][-1]
        path = f"/v1/chats/{chat}/messages/{head['message_id']}/report"
        assert (await served.as_(ann).post(path, {"reason": "secret reason"})).status == 201
        cursors = served.app.store.cursors
        cursors.note_acked(ann.user_id, ann.device_id, chat, head["sequence"], served.app.clock())
        await cursors.flush(ann.user_id)
        done = await served.as_(ann).delete("/v1/me?erase=bodies", {"password": PASSWORD})
        assert (done.status, done.body["job_id"]) == (202, "erasures")
        report = await erased(served, root, ann.user_id)
        (line,) = report["chats"]
        assert (report["hot"] + report["cold"], line["chat_id"]) == (3, chat)
        assert (line.get("hot", 0) + line.get("cold", 0), report["cold"] > 0) == (3, True)
        assert (report["cursors"], report["reports"]) == (1, 1)
        (shown,) = (await served.as_(root).get("/v1/admin/reports")).body["reports"]
        assert shown["reason"] == ""


async def test_what_is_erased_is_in_no_file(place: Place) -> None:
    """Neither bodies nor the texts of the profile, nor what was written in reports."""
    async with place.serving() as served:
        root = await served.operator()
        ann, ben, cat = await served.people("unique-ann", "ben", "unique-cat")
        chat = await served.as_(ben).create_group(ann)
        profile = {"display_name": "Unique Display Name", "about": "a unique text about ann"}
        assert (await served.as_(ann).patch("/v1/me", profile)).status == 200
        assert (await served.as_(cat).patch("/v1/me", {"about": "a unique text about cat"})).status == 200
        await say(served, ann, chat, "unique secret words")
        (receipt,) = await served.said(ben, chat, "mine")
        path = f"/v1/chats/{chat}/messages/{receipt['message_id']}/report"
        await served.as_(ann).post(path, {"reason": "unique reason"})
        for person in (ann, cat):
            answer = await served.as_(root).delete(f"/v1/admin/users/{person.user_id}?erase=bodies")
            assert answer.status == 202
            await erased(served, root, person.user_id)
        kept = b"".join(path.read_bytes() for path in place.folder.rglob("*") if path.is_file())
        for text in (
            "secret words",
            "Display Name",
            "text about ann",
            "text about cat",
            "reason",
            "-ann",
            "-cat",
        ):
            assert (text, f"unique {text}".encode() in kept) == (text, False)
            assert (text, f"unique{text}".encode() in kept) == (text, False)


async def test_an_erasure_of_nobody(place: Place) -> None:
    """There is no report of what never was."""
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        assert_refused(await served.as_(root).get(f"/v1/admin/erasures/{ann.user_id}"), 404, "not_found")
        assert_refused(await served.as_(ann).get(f"/v1/admin/erasures/{ann.user_id}"), 403, "forbidden")
