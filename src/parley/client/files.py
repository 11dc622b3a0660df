"""Files of messages: uploads that go on where they were, and downloads that do."""

from __future__ import annotations

import asyncio
import contextlib
import mimetypes
from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from msgspec import UNSET

from parley.client.api import Api, chat_path
from parley.client.errors import CannotConnect, RequestRefused
from parley.core.backoff import backoff
from parley.errors import CHECKSUM_MISMATCH, NOT_FOUND, NOT_UPLOADED
from parley.model import AttachedFile
from parley.wire.attachment_bodies import AttachmentInfo, AttachmentProgress, AttachmentUpload
from parley.wire.limits import MIB

CHUNK_BYTES = MIB
RANGE_PARTS = 8
"""So many parts are sent with one request."""
TRIES_MAX = 8
"""So often in a row a transfer may fail without getting further."""
RETRY_SECONDS = 0.5
RETRY_SECONDS_MAX = 10.0
UNFINISHED_SUFFIX = ".part"
PARTIAL = 206
OCTETS = "application/octet-stream"

OnProgress = Callable[[int, int], None]
"""Called with how many bytes are there, and how many there will be."""


def nothing_shown(_: int, __: int) -> None:
    """For a transfer without a display."""


class Files:
    """The files of one chat. RequestRefused or CannotConnect when a transfer cannot go on."""

    def __init__(self, api: Api, chat_id: str) -> None:
        self._api = api
        self._path = f"{chat_path(chat_id)}/attachments"

    # Up

    async def upload(
        self,
        path: Path | str,
        *,
        name: str | None = None,
        content_type: str | None = None,
        progress: OnProgress = nothing_shown,
        attachment_id: str | None = None,
    ) -> AttachedFile:
        """Upload a file; its id goes with a message. Broken connections are mended.

        `attachment_id`: go on with an upload that another process has begun.
        """
        path = Path(path)
        if attachment_id is None:
            upload = await self._announce(path, name or path.name, content_type or _type_of(path))
        else:
            info = await self.info(attachment_id)
            if info.attachment is not UNSET:
                return info.attachment
            assert info.upload is not UNSET, "a file is complete, or its upload goes on"
            upload = info.upload
        size = (await asyncio.to_thread(path.stat)).st_size
        return await self._send(path, size, upload, progress)

    async def _announce(self, path: Path, name: str, content_type: str) -> AttachmentUpload:
        size, digest = await asyncio.to_thread(_size_and_digest, path)
        body: dict[str, object] = {"name": name, "size": size, "content_type": content_type, "sha256": digest}
        return await self._api.call("POST", self._path, AttachmentUpload, body)

    async def _send(
        self, path: Path, size: int, upload: AttachmentUpload, progress: OnProgress
    ) -> AttachedFile:
        tries, received = 0, upload.received
        while True:
            progress(received, size)
            try:
                told = await self._send_range(path, size, upload, received)
            except (CannotConnect, RequestRefused) as error:
                tries += 1
                if tries > TRIES_MAX or not (_may_retry(error) or _is_over(error)):
                    raise
                await _wait(tries)
                with contextlib.suppress(CannotConnect):
                    info = await self.info(upload.attachment_id)
                    if info.attachment is not UNSET:
                        progress(size, size)
                        return info.attachment
                    if info.upload is UNSET:
                        raise
                    upload, tries = info.upload, 0 if info.upload.received > received else tries
                    received = upload.received
                continue
            tries, received = 0, told.received
            if told.attachment is not UNSET:
                progress(size, size)
                return told.attachment

    async def _send_range(
        self, path: Path, size: int, upload: AttachmentUpload, start: int
    ) -> AttachmentProgress:
        end = min(start + RANGE_PARTS * upload.part_bytes, size)
        content_range = f"bytes {start}-{end - 1}/{size}" if start < size else f"bytes */{size}"
        headers = {"Content-Range": content_range, "Content-Length": str(max(end - start, 0))}
        with await asyncio.to_thread(path.open, "rb") as file:
            data = _chunks(file, start, end) if start < size else None
            async with self._api.transfer("PUT", upload.upload_url, data, headers) as response:
                return self._api.decoded(await response.read(), AttachmentProgress)

    # Down

    async def info(self, attachment_id: str) -> AttachmentInfo:
        """A file, and an address to read it from."""
        return await self._api.call("GET", f"{self._path}/{quote(attachment_id, safe='')}", AttachmentInfo)

    async def discard(self, attachment_id: str) -> None:
        """Remove a file of your own that no message refers to."""
        await self._api.call("DELETE", f"{self._path}/{quote(attachment_id, safe='')}", object)

    async def download(
        self, attachment_id: str, path: Path | str, *, progress: OnProgress = nothing_shown
    ) -> AttachedFile:
        """Write a file's bytes to `path`, verified. What an earlier call got before it broke is kept beside
        it, and not fetched again.
        """
        path = Path(path)
        unfinished = path.with_name(path.name + UNFINISHED_SUFFIX)
        file = await self._fetch_all(attachment_id, unfinished, progress)
        _, digest = await asyncio.to_thread(_size_and_digest, unfinished)
        if digest != file.sha256:
            await asyncio.to_thread(unfinished.unlink)
            raise RequestRefused(CHECKSUM_MISMATCH.because("what was downloaded is not the file; try again"))
        await asyncio.to_thread(unfinished.replace, path)
        return file

    async def _fetch_all(self, attachment_id: str, unfinished: Path, progress: OnProgress) -> AttachedFile:
        tries, there = 0, await asyncio.to_thread(_size_of, unfinished)
        while True:
            try:
                return await self._fetch(attachment_id, unfinished, there, progress)
            except (CannotConnect, RequestRefused) as error:
                got = await asyncio.to_thread(_size_of, unfinished)
                tries, there = (1 if got > there else tries + 1), got
                if tries > TRIES_MAX or not _may_retry(error):
                    raise
                await _wait(tries)

    async def _fetch(self, attachment_id: str, path: Path, start: int, progress: OnProgress) -> AttachedFile:
        """Get what is missing of a file, from an address that is new."""
        info = await self.info(attachment_id)
        if info.attachment is UNSET or info.url is UNSET:
            raise RequestRefused(NOT_UPLOADED)
        size = info.attachment.size
        if start >= size:
            return info.attachment
        headers = {"Range": f"bytes={start}-"} if start else {}
        async with self._api.transfer("GET", info.url, None, headers) as response:
            is_rest = response.status == PARTIAL
            with await asyncio.to_thread(path.open, "ab" if is_rest else "wb") as file:
                there = start if is_rest else 0
                async for data in response.content.iter_chunked(CHUNK_BYTES):
                    await asyncio.to_thread(file.write, data)
                    there += len(data)
                    progress(there, size)
        return info.attachment


async def _wait(tries: int) -> None:
    await asyncio.sleep(backoff(tries, RETRY_SECONDS, RETRY_SECONDS_MAX))


async def _chunks(file: BinaryIO, start: int, end: int) -> AsyncIterator[bytes]:
    file.seek(start)
    while start < end:
        data = await asyncio.to_thread(file.read, min(CHUNK_BYTES, end - start))
        if not data:
            return  # it has become shorter: the server refuses it
        yield data
        start += len(data)


def _may_retry(error: CannotConnect | RequestRefused) -> bool:
    return isinstance(error, CannotConnect) or error.temporary or error.code == "wrong_range"


def _is_over(error: CannotConnect | RequestRefused) -> bool:
    """An address ends with the token that asked for it: with the present one there may be another."""
    return isinstance(error, RequestRefused) and error.code == NOT_FOUND.code


def _size_and_digest(path: Path) -> tuple[int, str]:
    digest, size = sha256(), 0
    with path.open("rb") as file:
        while data := file.read(CHUNK_BYTES):
            digest.update(data)
            size += len(data)
    return size, digest.hexdigest()


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _type_of(path: Path) -> str:
    return mimetypes.guess_type(path.name)[0] or OCTETS
