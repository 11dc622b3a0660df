"""What operators see of a server over HTTP: its jobs, its nodes, its topic, and the overview."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from parley import __version__
from parley.app.backups import backups_at, make_backup
from parley.core.node_questions import NodeQuestion, NodeReply
from parley.errors import NODE_SILENT, Refused, StoreUnavailable
from parley.gateway.operated_nodes import NO_SUCH_NODE, OperatedNodes
from parley.model import JobOutcome, Persisted
from parley.objects.folder import FolderObjects
from parley.wire import codes
from tests.contracts.test_dead_letters import dead_letter
from tests.harness.clients import HttpClient
from tests.integration.gateway.serving import Place, Served
from tests.waiting import deadline, eventually

JOBS = {
    "account_deletions",
    "amendments",
    "answered_requests",
    "attachments",
    "catch_up",
    "dead_letters",
    "deliveries",
    "erasures",
    "expired_sessions",
    "file_watch",
    "idle_sweep",
    "log_hashes",
    "message_rate",
    "push",
    "push_outcomes",
    "push_replays",
    "sealing",
    "search_index",
}
OF_THE_CLUSTER = {
    "amendments",
    "answered_requests",
    "attachments",
    "dead_letters",
    "erasures",
    "expired_sessions",
    "push_outcomes",
    "push_replays",
}
FOR_EVER = {"catch_up", "dead_letters", "deliveries", "push", "push_replays"}


async def job(http: HttpClient, name: str) -> dict[str, object]:
    listed = (await http.get("/v1/admin/jobs")).body["jobs"]
    found: dict[str, object] = next(one for one in listed if one["name"] == name)
    return found


async def root_of(served: Served) -> HttpClient:
    return served.as_(await served.operator())


async def test_every_job_of_a_server_is_listed(place: Place) -> None:
    """By name, each with the node that runs it and when it runs next."""
    async with place.serving() as served:
        jobs = (await (await root_of(served)).get("/v1/admin/jobs")).body["jobs"]
        assert {one["name"] for one in jobs} == JOBS
        assert [one["name"] for one in jobs] == sorted(one["name"] for one in jobs)
        assert {one["node"] for one in jobs} == {served.app.node_id}
        assert {one["name"] for one in jobs if one["scope"] == "cluster"} == OF_THE_CLUSTER
        assert {one["name"] for one in jobs if one["interval_seconds"] is None} == FOR_EVER
        assert not any(one["is_overdue"] for one in jobs)


async def test_a_job_that_fails_is_told_and_goes_on(place: Place) -> None:
    """Its error and its failures are in the list and in the overview, and it runs again when it can."""
    async with place.serving() as served:
        http = await root_of(served)
        real, is_broken = served.app.store.log.seal, True

        async def seal() -> list[Persisted]:
            if is_broken:
                raise StoreUnavailable("the disk is full")
            return await real()

        served.app.store.log.seal = seal  # type: ignore[method-assign]

        async def has_failed_twice() -> bool:
            told = await job(http, "sealing")
            return told["last_outcome"] == "failed" and int(str(told["failures"])) >= 2

        await eventually(has_failed_twice)
        assert (await job(http, "sealing"))["last_error"] == "the disk is full"
        assert (await http.get("/v1/admin/overview")).body["jobs_failing"] == 1
        is_broken = False

        async def works_again() -> bool:
            return (await job(http, "sealing"))["last_outcome"] == "ok"

        await eventually(works_again)
        assert served.metric("parley_job_runs_total", job="sealing", outcome="failed") >= 2


async def test_a_single_server_is_its_only_node(place: Place) -> None:
    """With its roles and its version."""
    async with place.serving() as served:
        (node,) = (await (await root_of(served)).get("/v1/admin/nodes")).body["nodes"]
        assert (node["node_id"], node["is_self"], node["version"]) == (served.app.node_id, True, __version__)
        assert node["roles"] == ["gateway", "ingest", "delivery", "push", "archiver", "search"]


async def test_the_topic_of_a_single_server_shows_who_is_behind(place: Place) -> None:
    """A group that consumes the feed is listed with what it has not handled yet."""
    async with place.serving() as served:
        http = await root_of(served)
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await served.said(ann, chat, "one")
        feed, handled = served.app.store.feed, asyncio.Event()
        assert feed is not None

        async def handle(news: Persisted) -> None:
            handled.set()

        worker = asyncio.create_task(feed.consume("archive", handle))
        async with deadline():
            await handled.wait()

        async def lag() -> object:
            (topic,) = (await http.get("/v1/admin/topics")).body["topics"]
            assert (topic["name"], topic["partitions"]) == ("messages.persisted", 1)
            return topic["groups"]

        async def is_up_to_date() -> bool:
            return await lag() == [{"group": "archive", "lag": 0}]

        await eventually(is_up_to_date)
        worker.cancel()
        await asyncio.wait([worker])
        await served.said(ann, chat, "two", "three")
        assert await lag() == [{"group": "archive", "lag": 2}]


async def test_the_overview_counts_what_is_there(place: Place) -> None:
    """People, chats, connections, messages per second, and what can be used."""
    async with place.serving() as served:
        http = await root_of(served)
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        async with served.client(ann):
            view = served.app._view
            view.rate.note()
            await served.said(ann, chat, *"abcdefgh")
            view.rate.note()
            told = (await http.get("/v1/admin/overview")).body
        assert (told["people"], told["chats"], told["connections"], told["nodes"]) == (3, 1, 1, 1)
        assert told["messages_per_second"] > 0
        assert [told[f"{part}_available"] for part in ("store", "ephemeral", "bus")] == [True, True, True]
        assert (told["jobs_failing"], told["jobs_overdue"], told["lag"]) == (0, 0, 0)


async def test_the_overview_counts_what_waits_for_an_operator(place: Place) -> None:
    """Reports that are open, and dead letters that are pending."""
    async with place.serving() as served:
        http = await root_of(served)
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        receipts = await served.said(ann, chat, "one", "two")
        made = [
            await served.as_(ben).post(
                f"/v1/chats/{chat}/messages/{one['message_id']}/report", {"reason": "rude"}
            )
            for one in receipts
        ]
        path = f"/v1/admin/reports/{made[0].body['report_id']}/resolve"
        await http.post(path, {"outcome": "dismissed"})
        await served.app.kinds.deliveries.dead_letters.add(dead_letter(1))
        told = (await http.get("/v1/admin/overview")).body
        assert (told["open_reports"], told["dead_letters"]) == (1, 1)


async def test_a_node_remembers_the_last_runs_of_its_jobs(place: Place) -> None:
    """The newest first, twenty at most."""
    async with place.serving() as served:
        http = await root_of(served)
        kept = served.app.supervisor._jobs["sealing"]
        for number in range(30):
            kept.began(1_000 * number)
            failed = number == 29
            kept.ended(
                JobOutcome.FAILED if failed else JobOutcome.OK, "full" if failed else None, 1_000 * number, 0
            )
        runs = [one for one in (await job(http, "sealing"))["last_runs"] if one["finished_at"] < "1971"]  # type: ignore[attr-defined]
        assert 15 <= len(runs) <= 20
        assert (runs[0]["outcome"], runs[0]["error"]) == ("failed", "full")
        assert [one["finished_at"] for one in runs] == sorted(
            (one["finished_at"] for one in runs), reverse=True
        )


async def test_the_last_hour_of_a_node(place: Place) -> None:
    """Each number since the start, the newest last; names that there are not are refused."""
    async with place.serving() as served:
        http = await root_of(served)
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        series = served.app._view.series
        async with served.client(ann):
            series.sample()
            await served.said(ann, chat, *"abc")
            series.sample()
            told = (await http.get("/v1/admin/series", names="connections,messages_per_second")).body
        assert (told["node_id"], told["step_seconds"]) == (served.app.node_id, 5.0)
        assert set(told["series"]) == {"connections", "messages_per_second"}
        assert told["series"]["connections"][-2:] == [1.0, 1.0]
        assert told["series"]["messages_per_second"][-1] > 0
        fanout = (await http.get("/v1/admin/series", names="fanout_seconds")).body["series"]["fanout_seconds"]
        assert 0 < fanout[-1] < 60
        short = (await http.get("/v1/admin/series", seconds=5)).body["series"]
        assert {len(values) for values in short.values()} == {1}
        for wrong in ({"names": "secrets"}, {"seconds": "x"}):
            assert (await http.get("/v1/admin/series", **wrong)).status == 400


async def test_connections_are_listed_and_closed(place: Place) -> None:
    """With their person and device, page by page; one that is closed comes back and goes on."""
    async with place.serving() as served:
        http = await root_of(served)
        ann, ben = await served.people("ann", "ben")
        async with served.client(ann) as client, served.client(ben):
            page = (await http.get("/v1/admin/connections")).body
            people = {one["user_id"]: one for one in page["connections"]}
            assert set(people) == {ann.user_id, ben.user_id}
            mine = people[ann.user_id]
            assert (mine["device_id"], mine["codec"], mine["live"]) == ("phone", "json", True)
            assert (mine["session_id"], mine["waiting_bytes"]) == (ann.session_id, 0)
            assert ann.token not in str(page)
            (only,) = (await http.get("/v1/admin/connections", user_id=ann.user_id)).body["connections"]
            assert only["connection_id"] == mine["connection_id"]
            first = (await http.get("/v1/admin/connections", limit=1)).body
            second = (await http.get("/v1/admin/connections", limit=1, after=first["next"])).body
            assert first["connections"] + second["connections"] == page["connections"]
            path = f"/v1/admin/connections/{mine['connection_id']}"
            assert (await http.delete(path)).status == 204
            assert (await client.until_ended()).code == codes.GOING_AWAY.code
            assert (await http.delete(path)).status == 404
            left = (await http.get("/v1/admin/connections")).body["connections"]
            assert [one["user_id"] for one in left] == [ben.user_id]


async def test_erasures_are_listed(place: Place) -> None:
    """Those of people and of chats, done and under way, page by page."""
    async with place.serving() as served:
        http = await root_of(served)
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        await http.delete(f"/v1/admin/users/{ann.user_id}?erase=bodies")
        await http.delete(f"/v1/admin/chats/{chat}", {"reason": "gone"})
        first = (await http.get("/v1/admin/erasures", limit=1)).body
        second = (await http.get("/v1/admin/erasures", limit=1, before=first["next"])).body
        listed = [one["user_id"] for page in (first, second) for one in page["erasures"]]
        assert listed == [ann.user_id, chat]


async def test_a_node_says_how_it_is(place: Place) -> None:
    """Connections, memory, how long its loop lets others wait, whether it drains."""
    async with place.serving() as served:
        http = await root_of(served)
        (ann,) = await served.people("ann")
        async with served.client(ann):
            (node,) = (await http.get("/v1/admin/nodes")).body["nodes"]
        assert (node["connections"], node["silent"], node["clock_offset_ms"]) == (1, None, 0)
        assert node["memory_bytes"] > 10_000_000
        assert (node["draining"], node["store_available"], node["lag"]) == (False, True, 0)


class AnotherNode:
    """A second node, asked as over a real call; `other` answers as it would."""

    def __init__(self, other: OperatedNodes) -> None:
        self.other = other

    async def ask(self, node_id: str, question: NodeQuestion) -> NodeReply:
        if node_id != "other":
            raise Refused(NO_SUCH_NODE)
        return self.other.answer(question)

    async def ask_all(self, question: NodeQuestion) -> dict[str, NodeReply]:
        return {"other": self.other.answer(question), "silent": NodeReply(refusal=NODE_SILENT)}


@asynccontextmanager
async def two_servers(place: Place) -> AsyncIterator[tuple[Served, HttpClient, Served]]:
    """The first knows the second as the node `other`."""
    async with place.serving() as served, Place(place.folder / "other", {}).serving() as other:
        nodes = served.app.gateway._api.nodes
        nodes._others = AnotherNode(other.app.gateway._api.nodes)
        yield served, await root_of(served), other


async def test_connections_of_another_node(place: Place) -> None:
    """They are listed and closed by the node that has them, and recorded by the one that was asked."""
    async with two_servers(place) as (_, http, other):
        (ben,) = await other.people("ben")
        async with other.client(ben) as client:
            assert (await http.get("/v1/admin/connections")).body["connections"] == []
            page = (await http.get("/v1/admin/connections", node="other")).body
            assert [one["user_id"] for one in page["connections"]] == [ben.user_id]
            (mine,) = page["connections"]
            assert (mine["user_id"], mine["address"]) == (ben.user_id, "127.0.0.1")
            assert mine["since"] <= mine["heard_from_at"]
            path = f"/v1/admin/connections/{mine['connection_id']}"
            assert (await http.delete(path)).status == 404
            assert (await http.delete(f"{path}?node=other")).status == 204
            assert (await client.until_ended()).code == codes.GOING_AWAY.code
        assert (await http.get("/v1/admin/connections", node="nobody")).status == 404
        records = (await http.get("/v1/admin/audit", action="connection.close")).body["records"]
        assert [(one["detail"], one["outcome"]) for one in records] == [("other", "done"), ("", "not_found")]


async def test_series_and_draining_of_another_node(place: Place) -> None:
    """Its own numbers; it ends, and the one that was asked stays."""
    async with two_servers(place) as (served, http, other):
        other.app._view.series.sample()
        series = (await http.get("/v1/admin/series", names="connections", node="other")).body
        assert series["node_id"] == other.app.node_id
        ended = list[str]()
        served.app.on_drain = lambda: ended.append("this")
        other.app.on_drain = lambda: ended.append("other")
        assert (await http.post("/v1/admin/nodes/other/drain", None)).status == 202
        await eventually(lambda: ended == ["other"])
        assert other.app._view.is_draining
        assert (await http.post("/v1/admin/nodes/nobody/drain", None)).status == 404
        assert ended == ["other"]


async def test_jobs_of_another_node_run_when_they_are_wanted(place: Place) -> None:
    """Here, or there; one that runs for ever is refused."""
    async with two_servers(place) as (served, http, other):

        def runs(of: Served) -> int:
            return of.app.supervisor._jobs["expired_sessions"].runs

        here, there = runs(served), runs(other)
        assert (await http.post("/v1/admin/jobs/expired_sessions/run", None)).body[
            "node"
        ] == served.app.node_id
        await eventually(lambda: runs(served) == here + 1)
        assert runs(other) == there
        assert (await http.post("/v1/admin/jobs/expired_sessions/run?node=other", None)).status == 202
        await eventually(lambda: runs(other) == there + 1)
        assert (await http.post("/v1/admin/jobs/deliveries/run", None)).status == 400
        assert (await http.post("/v1/admin/jobs/nothing/run", None)).status == 404


async def test_backups_are_listed(place: Place) -> None:
    """The newest first, with what cannot be read; none where no target is set."""
    async with place.serving() as served:
        root = await served.operator()
        empty = (await served.as_(root).get("/v1/admin/backups")).body
        assert empty == {"target": None, "backups": [], "damaged": []}
    target = place.folder / "backups"
    environment = {"PARLEY_BACKUP_TARGET": "backups"}
    async with place.serving(environment) as served:
        http = served.as_(root)
        assert (await http.get("/v1/admin/backups")).body["backups"] == []
        backups = backups_at(FolderObjects(target), served.app.config, {}, print)
        made = [
            await make_backup(backups, served.app.config, served.app.clock, served.app.ids, is_full=False)
            for _ in range(2)
        ]
        (target / "backups" / "backup_0.json").write_text("{}")
        told = (await http.get("/v1/admin/backups")).body
        assert [one["backup_id"] for one in told["backups"]] == [one.backup_id for one in reversed(made)]
        assert (told["target"], told["backups"][0]["people"]) == ("backups", 1)
        assert len(told["damaged"]) == 1
