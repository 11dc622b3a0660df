"""Files of messages where two nodes share DynamoDB, Redis, Kafka and a bucket: each does its half."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from parley.app.files import make_removal
from parley.clock import wall_clock
from parley.core.attachments import SETTLE_MS, AttachmentState
from parley.files.removal import FileRemoval
from parley.objects.ports import StoredObject
from parley.objects.targets import objects_at
from parley.records.attachments import Attachments
from tests.files_in_s3 import files_in_s3
from tests.harness.clients import Answer, Person
from tests.integration.gateway.serving import Served, assert_refused, new_id
from tests.integration.gateway.two_nodes import ServedByTwo, TwoNodes
from tests.integration.gateway.uploading import PART, Sharing, shrink_parts, some_bytes
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(240)  # Kafka and DynamoDB may have to be started first

DATA = some_bytes(3 * PART + 500)
DIGEST = hashlib.sha256(DATA).hexdigest()
ROOM_BYTES = 200_000
HOUR_MS = 3_600_000
SWEEP_SECONDS_MAX = 60.0


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_parts(monkeypatch)


@pytest.fixture
def settings() -> dict[str, str]:
    room = {"PARLEY_ATTACHMENTS_BYTES_PER_USER": str(ROOM_BYTES)}
    return {**files_in_s3(), **room, "PARLEY_STORE_SEQUENCING": "atomic"}


@pytest.fixture
def nodes(tmp_path: Path, settings: dict[str, str]) -> TwoNodes:
    return TwoNodes(tmp_path, settings)


async def world(served: ServedByTwo) -> tuple[Sharing, Sharing, Sharing]:
    """Ann on either node, and Ben, who is in the same group, on the second."""
    one, two = served.nodes
    ann, ben = await served.people("ann", "ben")
    chat = await one.as_(ann).create_group(ben)
    return Sharing(one, ann, chat), Sharing(two, ann, chat), Sharing(two, ben, chat)


async def put_range(sharing: Sharing, url: str, start: int, end: int) -> Answer:
    content_range = f"bytes {start}-{end - 1}/{len(DATA)}"
    return await sharing.put(url, DATA[start:end], **{"Content-Range": content_range})


async def fetch(served: Served, path: str, **headers: str) -> tuple[int, bytes]:
    async with served.session.get(served.url + path, headers=headers) as response:
        return response.status, await response.read()


async def stored(settings: dict[str, str]) -> list[StoredObject]:
    """What is in the bucket."""
    return await objects_at(settings["PARLEY_ATTACHMENTS_TARGET"], os.environ).find("")


async def test_halves_of_a_file_come_through_two_nodes(nodes: TwoNodes, settings: dict[str, str]) -> None:
    """Part by part in turns: each node goes on where the other was, and the file is what was announced."""
    async with nodes.serving() as served:
        one, two, ben = await world(served)
        url = (await one.announce(DATA, sha256=DIGEST)).body["upload_url"]
        for number, sharing in enumerate([one, two, one]):
            answer = await put_range(sharing, url, number * PART, (number + 1) * PART)
            assert (answer.status, answer.body["received"]) == (200, (number + 1) * PART)
            told = [(await node.http.get(url)).body["received"] for node in served.nodes]
            assert told == [(number + 1) * PART] * 2
        last = await put_range(two, url, 3 * PART, len(DATA))
        assert (last.status, last.body["attachment"]["sha256"]) == (201, DIGEST)
        again = await put_range(one, url, 3 * PART, len(DATA))
        assert (again.status, again.body["attachment"]) == (201, last.body["attachment"])
        assert [one.size_bytes for one in await stored(settings)] == [PART, PART, PART, 500]
        attachment_id = last.body["attachment"]["attachment_id"]
        assert (await one.send(attachment_id)).status == 201
        assert [entry["attachments"] for entry in await ben.entries()] == [[last.body["attachment"]]]


async def test_one_range_through_both_nodes_is_stored_once(nodes: TwoNodes) -> None:
    """One of them is refused and told to ask; what is stored is one part, and the upload goes on."""
    async with nodes.serving() as served:
        one, two, _ = await world(served)
        url = (await one.announce(DATA, sha256=DIGEST)).body["upload_url"]
        both = await asyncio.gather(*(put_range(sharing, url, 0, PART) for sharing in (one, two)))
        assert 200 in {answer.status for answer in both}
        for answer in both:
            if answer.status != 200:
                assert_refused(answer, 409, "wrong_range")
        assert (await one.served.http.get(url)).body["received"] == PART
        last = await put_range(two, url, PART, len(DATA))
        assert (last.status, last.body["attachment"]["sha256"]) == (201, DIGEST)


@pytest.mark.parametrize("mode", ["atomic", "two_phase"])
async def test_a_file_of_one_node_is_read_at_the_other(
    tmp_path: Path, settings: dict[str, str], mode: str
) -> None:
    """Its message is told live there; whole and by ranges, at an address that either node has signed."""
    nodes = TwoNodes(tmp_path, {**settings, "PARLEY_STORE_SEQUENCING": mode})
    async with nodes.serving() as served:
        one, two, ben = await world(served)
        file = await one.upload(DATA, "plan.pdf")
        async with ben.served.client(await served.http.login("ben", "tablet")) as live:
            assert (await one.send(file["attachment_id"])).status == 201
            assert (await live.live_entry(ben.chat, 1))["attachments"] == [file]
        signed = [(await sharing.find(file["attachment_id"])).body["url"] for sharing in (one, two, ben)]
        for path in signed:
            for node in served.nodes:
                assert await fetch(node, path) == (200, DATA)
                assert await fetch(node, path, Range="bytes=990-2010") == (206, DATA[990:2011])


async def test_a_message_deleted_on_one_node_takes_the_bytes_from_the_other(
    nodes: TwoNodes, settings: dict[str, str]
) -> None:
    """An address that the other node made before gives nothing, at either, and the bucket is empty."""
    async with nodes.serving() as served:
        one, _, ben = await world(served)
        file, sent = await one.share(DATA)
        path = (await ben.find(file["attachment_id"])).body["url"]
        assert await fetch(ben.served, path) == (200, DATA)
        await delete_message(one, sent.body["message_id"])
        for node in served.nodes:
            assert_refused(await node.http.get(path), 404, "not_found")
        assert_refused(await ben.find(file["attachment_id"]), 404, "not_found")
        assert await stored(settings) == []
        assert "attachments" not in (await ben.entries())[0]


async def delete_message(sharing: Sharing, message_id: str) -> None:
    fields = {"chat_id": sharing.chat, "message_id": message_id, "client_message_id": new_id()}
    person = await sharing.served.http.login("ann", "tablet")
    async with sharing.served.client(person) as client:
        assert (await client.request("delete_message", **fields))["type"] == "ack"


async def test_a_file_discarded_while_the_other_node_receives_it(
    nodes: TwoNodes, settings: dict[str, str]
) -> None:
    """The upload under way is refused with its next part, and leaves nothing that no sweep would find."""
    async with nodes.serving() as served:
        one, two, _ = await world(served)
        announced = (await one.announce(DATA)).body
        is_discarded = asyncio.Event()

        async def slowly() -> AsyncIterator[bytes]:
            yield DATA[:PART]
            await is_discarded.wait()
            yield DATA[PART:]

        url = one.served.url + announced["upload_url"]
        under_way = asyncio.ensure_future(one.served.session.put(url, data=slowly()))

        async def a_part_is_there() -> bool:
            return len(await stored(settings)) == 1

        await eventually(a_part_is_there)
        assert (await two.http.delete(f"{two.path}/{announced['attachment_id']}")).status == 204
        is_discarded.set()
        async with await under_way as response:
            assert (response.status, (await response.json())["code"]) == (404, "not_found")
        assert await stored(settings) == []


async def test_the_room_of_a_person_is_one_on_all_nodes(nodes: TwoNodes) -> None:
    """What was announced on one node counts on the other, and so does what was discarded there."""
    async with nodes.serving() as served:
        one, two, _ = await world(served)
        large: dict[str, Any] = {"name": "a", "size": ROOM_BYTES - 1, "content_type": "text/plain"}
        announced = await one.http.post(one.path, large)
        assert_refused(await two.http.post(two.path, large), 413, "quota_exceeded")
        path = f"{two.path}/{announced.body['attachment_id']}"
        assert (await two.http.delete(path)).status == 204
        assert (await one.http.post(one.path, large)).status == 201


async def test_sweeps_of_two_nodes_do_no_harm(nodes: TwoNodes, settings: dict[str, str]) -> None:
    """At once, again and again: what no message refers to goes, what one refers to stays readable."""
    async with nodes.serving() as served:
        one, two, ben = await world(served)
        kept, _ = await one.share(DATA)
        marked, _ = await two.share(b"marked")
        unused = await two.upload(b"unused")
        await removal_at(one.served, 0).mark(one.chat, [marked["attachment_id"]])
        for later_ms in (SETTLE_MS + 1, 25 * HOUR_MS, 25 * HOUR_MS + 2 * SETTLE_MS):
            sweepers = [removal_at(node, later_ms) for node in served.nodes]
            await asyncio.gather(*(sweeper.sweep() for sweeper in sweepers * 2))
        assert (await ben.read(kept["attachment_id"]))[1] == DATA
        assert (await ben.read(marked["attachment_id"]))[1] == b"marked"
        assert_refused(await two.find(unused["attachment_id"]), 404, "not_found")
        left = {one.key.partition("/")[0] for one in await stored(settings)}
        assert left == {kept["attachment_id"], marked["attachment_id"]}
        app = one.served.app
        file = await Attachments(app.store.records, app.clock).get(one.chat, marked["attachment_id"])
        assert file is not None
        assert file.state is AttachmentState.ATTACHED


def removal_at(node: Served, later_ms: int) -> FileRemoval:
    """The sweep of a node, at a later time."""
    app = node.app
    removal = make_removal(app.store, app.config, lambda: wall_clock() + later_ms, app.metrics, {})
    assert removal is not None
    return removal


async def test_one_node_sweeps(nodes: TwoNodes) -> None:
    """The job is one of the cluster: both nodes name the same one that runs it."""
    async with nodes.serving() as served:
        root = await served.operator()

        async def one_has_it() -> bool:
            told = [await sweeping_nodes(node, root) for node in served.nodes]
            return told[0] == told[1] and len(told[0]) == 1

        await eventually(one_has_it, SWEEP_SECONDS_MAX)


async def sweeping_nodes(node: Served, root: Person) -> list[str]:
    """The nodes that have swept well, as this one says."""
    listed = (await node.as_(root).get("/v1/admin/jobs")).body["jobs"]
    return [job["node"] for job in listed if job["name"] == "attachments" and job["last_outcome"] == "ok"]
