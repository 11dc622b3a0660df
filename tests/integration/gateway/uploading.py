"""Files, and short words for sending them. Parts are small here: `small_parts`."""

import hashlib
import io
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse
from PIL import Image

from parley.core import attachments as core
from parley.files import parts, uploads
from parley.gateway.api import attachments as api
from tests.harness.clients import Answer, Person
from tests.integration.gateway.serving import Served, message

PART = 1_000


def shrink_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (core, parts, uploads, api):
        monkeypatch.setattr(module, "ATTACHMENT_PART_BYTES", PART)


def some_bytes(size: int) -> bytes:
    return hashlib.shake_256(b"a file").digest(size)


def image_bytes(image_format: str = "PNG", size: tuple[int, int] = (300, 200), **options: Any) -> bytes:
    written = io.BytesIO()
    Image.radial_gradient("L").resize(size).convert("RGB").save(written, image_format, **options)
    return written.getvalue()


class Sharing:
    """One person with files in one chat."""

    def __init__(self, served: Served, person: Person, chat: str) -> None:
        self.served = served
        self.http = served.as_(person)
        self.chat = chat
        self.path = f"/v1/chats/{chat}/attachments"

    async def announce(self, data: bytes, name: str = "a.bin", **fields: Any) -> Answer:
        return await self.http.post(self.path, {"name": name, "size": len(data), **fields})

    async def put(self, url: str, data: bytes, **headers: str) -> Answer:
        async with self.served.session.put(
            self.served.url + url, data=io.BytesIO(data), headers=headers, skip_auto_headers=["Content-Type"]
        ) as response:
            return Answer(response.status, await response.json(), dict(response.headers))

    async def upload(self, data: bytes, name: str = "a.bin", **fields: Any) -> dict[str, Any]:
        """The file, complete."""
        announced = await self.announce(data, name, **fields)
        assert announced.status == 201, announced
        answer = await self.put(announced.body["upload_url"], data)
        assert answer.status == 201, answer
        found: dict[str, Any] = answer.body["attachment"]
        return found

    async def send(self, *attachment_ids: str, content: str = "see", **fields: Any) -> Answer:
        body = message(content, attachments=list(attachment_ids), **fields)
        return await self.http.post(f"/v1/chats/{self.chat}/messages", body)

    async def share(self, data: bytes, name: str = "a.bin", **fields: Any) -> tuple[dict[str, Any], Answer]:
        """The file, and the receipt of the message that has it."""
        file = await self.upload(data, name, **fields)
        sent = await self.send(file["attachment_id"])
        assert sent.status == 201, sent
        return file, sent

    async def find(self, attachment_id: str) -> Answer:
        return await self.http.get(f"{self.path}/{attachment_id}")

    async def url(self, attachment_id: str) -> str:
        answer = await self.find(attachment_id)
        assert answer.status == 200, answer
        return str(self.served.url + answer.body["url"])

    async def read(self, attachment_id: str, **headers: str) -> tuple[ClientResponse, bytes]:
        async with self.served.session.get(await self.url(attachment_id), headers=headers) as response:
            return response, await response.read()

    async def entries(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.http.get(f"/v1/chats/{self.chat}/messages")).body["entries"]
        return found


def stored_files(folder: Path) -> list[Path]:
    """What is left of files in the data folder of a server."""
    return sorted(path for path in (folder / "attachments").rglob("*"))
