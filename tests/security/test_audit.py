"""What operators do is recorded: before it happens, with who, what, whom, when and how it ended."""

import getpass
from pathlib import Path
from typing import Any

import pytest
from multidict import CIMultiDict
from structlog.testing import capture_logs

from parley.errors import StoreUnavailable
from parley.model import AuditRecord
from tests.harness.clients import HttpClient, Person
from tests.integration.cli.running import parley, succeed
from tests.integration.gateway.serving import Place, Served, assert_refused

SECRET = "a secret that nobody may find"


async def records(served: Served, root: Person, **query: str | int) -> list[dict[str, Any]]:
    answer = await served.as_(root).get("/v1/admin/audit", **query)
    assert answer.status == 200, answer
    found: list[dict[str, Any]] = answer.body["records"]
    return found


async def test_every_action_by_http_is_recorded(place: Place) -> None:
    """Newest first: who did it, what, to whom, by which request, and that it was done."""
    async with place.serving() as served:
        root, ann = await served.operator(), (await served.people("ann"))[0]
        user, as_root = f"/v1/admin/users/{ann.user_id}", served.as_(root)
        answers = [
            await as_root.post(f"{user}/password", {"password": "brand new"}),
            await as_root.delete(f"{user}/sessions"),
            await as_root.post(f"{user}/disable", None),
            await as_root.post(f"{user}/enable", None),
            await as_root.delete(user),
        ]
        found = await records(served, root)
        actions = [record["action"] for record in found]
        assert actions == ["user.delete", "user.enable", "user.disable", "user.revoke", "user.password"]
        assert {record["outcome"] for record in found} == {"done"}
        assert {(record["actor"], record["target_id"]) for record in found} == {(root.user_id, ann.user_id)}
        ids = [CIMultiDict(answer.headers)["X-Request-Id"] for answer in reversed(answers)]
        assert [record["request_id"] for record in found] == ids


async def test_a_record_names_the_token(place: Place) -> None:
    """That of a program, or the session of whoever acts: one account may have many."""
    async with place.serving() as served:
        root, ann = await served.operator(), (await served.people("ann"))[0]
        wanted = {"name": "backend", "scopes": ["admin"]}
        token = (await served.as_(root).post("/v1/admin/tokens", wanted)).body
        path = f"/v1/admin/users/{ann.user_id}/sessions"
        await HttpClient(served.session, served.url, token["token"]).delete(path)
        by_token, by_session = await records(served, root)
        assert (by_token["actor"], by_session["actor"]) == (root.user_id, root.user_id)
        assert (by_token["token_id"], by_token["token_name"]) == (token["token_id"], "backend")
        assert by_session["token_id"] == root.session_id


async def test_reading_what_people_wrote_is_recorded(place: Place) -> None:
    """Who looked at reports and dead letters with their messages, and when; a brief list shows none."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        (said,) = await served.said(ann, chat, "hm")
        path = f"/v1/chats/{chat}/messages/{said['message_id']}/report"
        report_id = (await served.as_(ben).post(path, {"reason": "no"})).body["report_id"]
        timeline = f"messages/{said['message_id']}/timeline?user_id={ben.user_id}"
        for read in ("reports?status=open", f"reports/{report_id}", "dlq?error=gone", "dlq/dlq_0", timeline):
            await served.as_(root).get(f"/v1/admin/{read}")
        for brief in ("reports?brief=true", "dlq?brief=true"):
            assert (await served.as_(root).get(f"/v1/admin/{brief}")).status == 200
        found = [
            (one["action"], one["target_id"], one["detail"], one["outcome"])
            for one in reversed(await records(served, root))
        ]
        assert found == [
            ("report.read", "", "status=open before= limit=50", "done"),
            ("report.read", report_id, "", "done"),
            ("dlq.read", "", '{"error":"gone"}', "done"),
            ("dlq.read", "dlq_0", "", "not_found"),
            ("message.explain", said["message_id"], ben.user_id, "done"),
        ]


def test_exports_are_recorded(data: Path) -> None:
    """A chat, a person, and the reports that a command lists."""
    succeed("user", "add", "zoe", "--password-stdin", data=data, given="x\n")
    chat = succeed("chat", "create", "--as", "zoe", "--title", "Tea", data=data).lines[0]
    succeed("export", "chat", chat, data=data)
    succeed("export", "person", "zoe", data=data)
    succeed("report", "list", data=data)
    found = succeed("user", "audit", "--json", data=data).json["records"]
    told = [(record["action"], record["outcome"]) for record in found[:3]]
    assert told == [("report.read", "done"), ("person.export", "done"), ("chat.export", "done")]
    assert found[2]["target_id"] == chat


async def test_an_action_that_was_refused_is_recorded(place: Place) -> None:
    """With the code of the refusal."""
    async with place.serving() as served:
        root = await served.operator()
        own = f"/v1/admin/users/{root.user_id}/disable"
        assert_refused(await served.as_(root).post(own, None), 409, "last_operator")
        (record,) = await records(served, root)
        assert record["outcome"] == "last_operator"


async def test_nothing_is_done_without_a_record(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the record cannot be written, the account stays as it is."""
    async with place.serving() as served:
        root, ann = await served.operator(), (await served.people("ann"))[0]

        async def fail(record: AuditRecord) -> None:
            raise StoreUnavailable("on purpose")

        monkeypatch.setattr(served.app.kinds.audit, "record", fail)
        path = f"/v1/admin/users/{ann.user_id}/disable"
        assert_refused(await served.as_(root).post(path, None), 503, "store_unavailable")
        assert (await served.as_(ann).get("/v1/me")).status == 200


async def test_an_action_that_never_ended_stays_visible(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that dies in the middle leaves a record that says `begun`."""
    async with place.serving() as served:
        root, ann = await served.operator(), (await served.people("ann"))[0]
        record, written = served.app.kinds.audit.record, iter([True])

        async def first_only(one: AuditRecord) -> None:
            if not next(written, False):
                raise StoreUnavailable("on purpose")
            await record(one)

        monkeypatch.setattr(served.app.kinds.audit, "record", first_only)
        assert (await served.as_(root).post(f"/v1/admin/users/{ann.user_id}/disable", None)).status == 200
        (found,) = await records(served, root)
        assert found["outcome"] == "begun"


async def test_the_audit_log_comes_in_pages(place: Place) -> None:
    """Each record once, from the newest to the first."""
    async with place.serving() as served:
        root, ann = await served.operator(), (await served.people("ann"))[0]
        for action in ("disable", "enable", "disable"):
            await served.as_(root).post(f"/v1/admin/users/{ann.user_id}/{action}", None)
        page = (await served.as_(root).get("/v1/admin/audit", limit=2)).body
        rest = await records(served, root, before=page["next"])
        actions = [record["action"] for record in [*page["records"], *rest]]
        assert actions == ["user.disable", "user.enable", "user.disable"]


async def test_no_secret_is_recorded_or_logged(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a password nor a token is in the records or in what the server prints, at whatever level."""
    with capture_logs() as lines:
        async with place.serving() as served:
            root, ann = await served.operator(), (await served.people("ann"))[0]
            path = f"/v1/admin/users/{ann.user_id}/password"
            assert (await served.as_(root).post(path, {"password": SECRET})).status == 204
            recorded = str(await records(served, root))
    printed = "".join([*map(str, lines), *capsys.readouterr()])
    for secret in (SECRET, ann.token, root.token):
        assert secret not in recorded
        assert secret not in printed


def test_every_command_is_recorded(data: Path) -> None:
    """With the user of the operating system, also when it failed."""
    succeed("user", "add", "zoe", "--operator", "--password-stdin", data=data, given="x\n")
    succeed("token", "zoe", data=data)
    succeed("user", "passwd", "zoe", "--password-stdin", data=data, given=f"{SECRET}\n")
    succeed("user", "revoke", "zoe", data=data)
    refused = parley("user", "disable", "zoe", data=data)
    assert refused.status == 1
    assert "last operator" in refused.stderr
    succeed("user", "audit", data=data)
    found = succeed("user", "audit", "--json", data=data).json["records"]
    told = [(record["action"], record["outcome"]) for record in reversed(found)]
    assert told == [
        ("operator.add", "done"),
        ("user.token", "done"),
        ("user.password", "done"),
        ("user.revoke", "done"),
        ("user.disable", "last_operator"),
    ]
    assert {record["actor"] for record in found} == {f"cli:{getpass.getuser()}"}
    assert SECRET not in str(found)
