"""Reports of messages: by members, for operators."""

import uuid
from typing import Any

from tests.harness.clients import Person
from tests.integration.gateway.serving import Place, Served, assert_refused

LIMITED = {"PARLEY_LIMITS_RATES": "on"}


async def three(served: Served) -> tuple[Person, Person, Person, str]:
    root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
    return root, ann, ben, await served.as_(ann).create_group(ben)


async def reported(served: Served, by: Person, chat: str, message_id: str, reason: str = "rude") -> Any:
    path = f"/v1/chats/{chat}/messages/{message_id}/report"
    return await served.as_(by).post(path, {"reason": reason})


async def listed(served: Served, root: Person, **query: str | int) -> Any:
    answer = await served.as_(root).get("/v1/admin/reports", **query)
    assert answer.status == 200, answer
    return answer.body


async def test_a_report_reaches_the_operators(place: Place) -> None:
    """With the message as it is, who reported it and why; the same person twice is one report."""
    async with place.serving() as served:
        root, ann, ben, chat = await three(served)
        (receipt,) = await served.said(ann, chat, "rude words")
        made = await reported(served, ben, chat, receipt["message_id"])
        assert made.status == 201
        again = await reported(served, ben, chat, receipt["message_id"], "very rude")
        assert (again.status, again.body) == (200, made.body)
        (report,) = (await listed(served, root))["reports"]
        assert (report["reason"], report["reporter_id"], report["sender_id"]) == (
            "rude",
            ben.user_id,
            ann.user_id,
        )
        assert (report["status"], report["message"]["content"]) == ("open", "rude words")


async def test_a_deleted_body_is_in_no_report(place: Place) -> None:
    """It is gone from what operators see as it is gone for everybody; the report stays."""
    async with place.serving() as served:
        root, ann, ben, chat = await three(served)
        (receipt,) = await served.said(ann, chat, "unique rude words")
        await reported(served, ben, chat, receipt["message_id"])
        async with served.client(ann) as client:
            await client.request(
                "delete_message",
                client_message_id=str(uuid.uuid4()),
                chat_id=chat,
                message_id=receipt["message_id"],
            )
        (report,) = (await listed(served, root))["reports"]
        assert (report["message"]["content"], report["message"]["deleted"]) == ("", True)
        assert_refused(await reported(served, ben, chat, receipt["message_id"]), 409, "message_deleted")
    kept = b"".join(path.read_bytes() for path in place.folder.rglob("*") if path.is_file())
    assert b"unique rude words" not in kept


async def test_who_may_report_what(place: Place) -> None:
    """Members report messages of others, and nothing else."""
    async with place.serving() as served:
        root, ann, ben, chat = await three(served)
        (eve,) = await served.people("eve")
        (receipt,) = await served.said(ann, chat, "words")
        assert_refused(await reported(served, eve, chat, receipt["message_id"]), 403, "not_a_member")
        assert_refused(await reported(served, ann, chat, receipt["message_id"]), 400, "bad_request")
        for unknown in ("msg_nothing", "msg_00000000000000000000000000"):
            assert_refused(await reported(served, ben, chat, unknown), 404, "not_found")
        assert_refused(await reported(served, ben, chat, receipt["message_id"], ""), 400, "bad_request")
        assert (await listed(served, root))["reports"] == []
        assert_refused(await served.as_(ben).get("/v1/admin/reports"), 403, "forbidden")


async def test_operators_resolve_it(place: Place) -> None:
    """With an outcome and a note, once; the same again is fine; it is in the audit log."""
    async with place.serving() as served:
        root, ann, ben, chat = await three(served)
        (receipt,) = await served.said(ann, chat, "words")
        report_id = (await reported(served, ben, chat, receipt["message_id"])).body["report_id"]
        path, outcome = f"/v1/admin/reports/{report_id}", {"outcome": "dismissed", "note": "a joke"}
        for _ in range(2):
            done = await served.as_(root).post(f"{path}/resolve", outcome)
            assert (done.status, done.body["status"], done.body["resolved_by"]) == (
                200,
                "resolved",
                root.user_id,
            )
        shown = (await served.as_(root).get(path)).body
        assert (shown["outcome"], shown["note"]) == ("dismissed", "a joke")
        other = await served.as_(root).post(f"{path}/resolve", {"outcome": "deleted"})
        assert_refused(other, 409, "already_resolved")
        assert (await listed(served, root, status="open"))["reports"] == []
        assert len((await listed(served, root, status="resolved"))["reports"]) == 1
        assert_refused(await served.as_(root).get("/v1/admin/reports", status="old"), 400, "bad_request")
        records = (await served.as_(root).get("/v1/admin/audit")).body["records"]
        assert ("report.resolve", report_id, "done") in {
            (one["action"], one["target_id"], one["outcome"]) for one in records
        }


async def test_pages_of_reports(place: Place) -> None:
    """Each report is on one page, those of newer messages first, whatever is resolved meanwhile."""
    async with place.serving() as served:
        root, ann, ben, chat = await three(served)
        receipts = await served.said(ann, chat, *(f"message {number}" for number in range(5)))
        made = [(await reported(served, ben, chat, one["message_id"])).body["report_id"] for one in receipts]
        found: list[str] = []
        page = await listed(served, root, status="open", limit=2)
        while True:
            found += [report["report_id"] for report in page["reports"]]
            if page["next"] is None:
                break
            last = page["reports"][-1]["report_id"] if page["reports"] else ""
            if last:
                await served.as_(root).post(f"/v1/admin/reports/{last}/resolve", {"outcome": "dismissed"})
            page = await listed(served, root, status="open", limit=2, before=page["next"])
        assert found == made[::-1]


async def test_reports_are_limited(place: Place) -> None:
    """Who reports everything is told to wait."""
    async with place.serving(LIMITED) as served:
        root, ann, ben, chat = await three(served)
        (receipt,) = await served.said(ann, chat, "words")
        answers = [await reported(served, ben, chat, receipt["message_id"]) for _ in range(25)]
        assert {answer.status for answer in answers} == {201, 200, 429}
        assert len((await listed(served, root))["reports"]) == 1


async def test_one_request_acts_on_a_report(place: Place) -> None:
    """The message goes, its sender leaves and is disabled, the report is resolved; each is recorded."""
    async with place.serving() as served:
        root, ann, ben, chat = await three(served)
        (receipt,) = await served.said(ben, chat, "rude words")
        made = await reported(served, ann, chat, receipt["message_id"])
        path = f"/v1/admin/reports/{made.body['report_id']}/act"
        order: dict[str, Any] = {"reason": "it threatens", "outcome": "removed", "note": "twice"}
        order |= {"delete_message": True, "remove_sender": True, "disable_sender": True}
        for _ in range(2):
            acted = await served.as_(root).post(path, order)
            assert acted.status == 200, acted
            assert acted.body["done"] == ["delete_message", "remove_sender", "disable_sender"]
            report = acted.body["report"]
            assert (report["status"], report["outcome"], report["note"]) == ("resolved", "removed", "twice")
            assert (report["message"]["content"], report["message"]["deleted"]) == ("", True)
        members = (await served.as_(ann).get(f"/v1/chats/{chat}/members")).body["members"]
        assert [one["user_id"] for one in members] == [ann.user_id]
        assert_refused(await served.as_(ben).get("/v1/chats"), 401, "unauthenticated")
        audit = (await served.as_(root).get("/v1/admin/audit")).body["records"]
        actions = [one["action"] for one in audit if one["action"] != "report.read"][:5]
        assert actions == ["report.resolve", "user.disable", "member.remove", "message.delete", "report.act"]
        assert audit[0]["outcome"] == "done"
        assert_refused(
            await served.as_(root).post(path, order | {"outcome": "dismissed"}), 409, "already_resolved"
        )


async def test_without_an_outcome_a_report_stays_open(place: Place) -> None:
    """What is asked for is done, with its reason in the audit log."""
    async with place.serving() as served:
        root, ann, ben, chat = await three(served)
        (receipt,) = await served.said(ben, chat, "rude words")
        made = await reported(served, ann, chat, receipt["message_id"])
        path = f"/v1/admin/reports/{made.body['report_id']}/act"
        acted = await served.as_(root).post(path, {"reason": "it threatens", "disable_sender": True})
        assert (acted.body["done"], acted.body["report"]["status"]) == (["disable_sender"], "open")
        (record,) = (await served.as_(root).get("/v1/admin/audit", action="report.act")).body["records"]
        assert record["detail"] == "reason=it threatens"


async def test_a_report_stays_open_if_an_action_is_refused(place: Place) -> None:
    """What was done before it stays done; nothing is done for a report that there is not."""
    async with place.serving() as served:
        root, ann, _, chat = await three(served)
        (receipt,) = await served.said(ann, chat, "words of an operator")
        other, _ = await served.people("other", "another")
        await served.as_(ann).post(f"/v1/chats/{chat}/members", {"user_id": root.user_id})
        (receipt,) = await served.said(root, chat, "words of the only operator")
        made = await reported(served, ann, chat, receipt["message_id"])
        path = f"/v1/admin/reports/{made.body['report_id']}/act"
        order = {"reason": "x", "outcome": "removed", "delete_message": True, "disable_sender": True}
        assert_refused(await served.as_(root).post(path, order), 409, "last_operator")
        (report,) = (await listed(served, root))["reports"]
        assert (report["status"], report["message"]["deleted"]) == ("open", True)
        assert_refused(await served.as_(root).post("/v1/admin/reports/rep_0/act", order), 404, "not_found")
        assert_refused(await served.as_(other).post(path, order), 403, "forbidden")
