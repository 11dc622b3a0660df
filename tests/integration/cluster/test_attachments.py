"""Files through processes that are killed, over real DynamoDB, Redis, Kafka and an S3 server."""

import asyncio
import hashlib
import io
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession

from parley.wire.limits import ATTACHMENT_PART_BYTES
from tests.clusters import ATOMIC, nodes_on_shared_services, running, until_acquainted
from tests.files_in_s3 import files_in_s3
from tests.harness.clients import Answer, HttpClient
from tests.harness.server import ServerProcess
from tests.integration.gateway.serving import message

pytestmark = pytest.mark.timeout(240)  # Kafka and DynamoDB may have to be started first

DATA = hashlib.shake_256(b"a file").digest(2 * ATTACHMENT_PART_BYTES + 700)
DIGEST = hashlib.sha256(DATA).hexdigest()
CRASHES = {"file_after_part:2": 2 * ATTACHMENT_PART_BYTES, "file_before_complete": len(DATA)}
"""Where the first node kills itself, and how much of the file is stored then."""


@pytest.mark.parametrize("crash", CRASHES)
async def test_an_upload_goes_on_at_another_node(tmp_path: Path, crash: str) -> None:
    """The node that received it is killed: the other one has every part that was stored, takes the rest at
    the same address, and gives the file to members."""
    dying = {"n1": {"PARLEY_TEST_CRASH": crash}}
    cluster = nodes_on_shared_services(tmp_path, ["n1", "n2"], {**ATOMIC, **files_in_s3()}, dying)
    async with running(cluster), ClientSession() as session:
        await until_acquainted(session, list(cluster))
        first, second = (HttpClient(session, node.url) for node in cluster)
        person = await first.newcomer("ann")
        chat = await first.of(person).create_group()
        announcement: dict[str, Any] = {"name": "a.bin", "size": len(DATA), "sha256": DIGEST}
        path = f"/v1/chats/{chat}/attachments"
        url = (await first.of(person).post(path, announcement)).body["upload_url"]
        with pytest.raises(ClientError):
            await put(session, cluster["n1"], url, 0)
        await asyncio.to_thread(cluster["n1"].wait)
        received = (await second.get(url)).body["received"]
        assert received == CRASHES[crash]
        done = await put(session, cluster["n2"], url, received)
        assert (done.status, done.body["attachment"]["sha256"]) == (201, DIGEST)
        attachment_id = done.body["attachment"]["attachment_id"]
        ann = second.of(person)
        sent = await ann.post(f"/v1/chats/{chat}/messages", message(attachments=[attachment_id]))
        assert sent.status == 201
        found = (await ann.get(f"{path}/{attachment_id}")).body["url"]
        async with session.get(cluster["n2"].url + found) as response:
            assert hashlib.sha256(await response.read()).hexdigest() == DIGEST


async def put(session: ClientSession, node: ServerProcess, url: str, start: int) -> Answer:
    """The rest of the file from `start`; of a whole one, the question whether it is complete."""
    size = len(DATA)
    what = f"{start}-{size - 1}" if start < size else "*"
    headers = {"Content-Range": f"bytes {what}/{size}"}
    async with session.put(node.url + url, data=io.BytesIO(DATA[start:]), headers=headers) as response:
        return Answer(response.status, await response.json(), dict(response.headers))
