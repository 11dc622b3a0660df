"""A large file through a server that is killed meanwhile: at most a part is sent again, in bounded memory.

    PARLEY_TEST_FILE_BYTES=2147483648 pytest tests/acceptance/test_large_files.py

sends 2 GiB; without it a file of a few parts.
"""

import asyncio
import os
from hashlib import file_digest
from pathlib import Path

import aiohttp
import pytest

from parley.client import connect
from parley.wire.limits import ATTACHMENT_PART_BYTES, MIB
from tests.harness.clients import HttpClient
from tests.harness.server import ServerProcess

FILE_BYTES = int(os.environ.get("PARLEY_TEST_FILE_BYTES", 40 * MIB + 7))
GROWTH_BYTES_MAX = 96 * MIB
"""Of the memory of a server while it receives and verifies a file, whatever its size."""
MARK_EVERY_BYTES = 16 * MIB


def make_file(path: Path, size: int) -> str:
    """A file with a mark here and there and holes between; its digest."""
    with path.open("wb") as file:
        file.truncate(size)
        for place in range(0, size - 8, MARK_EVERY_BYTES):
            file.seek(place)
            file.write(place.to_bytes(8))
    return digest_of(path)


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@pytest.mark.timeout(60 + FILE_BYTES // MIB)
async def test_a_large_file_survives_a_killed_server(tmp_path: Path) -> None:
    """Upload and download go on by themselves, the file is the same, and memory does not grow with it."""
    source, target = tmp_path / "large", tmp_path / "got"
    digest = await asyncio.to_thread(make_file, source, FILE_BYTES)
    limits = {
        "PARLEY_ATTACHMENTS_MAX_BYTES": str(FILE_BYTES),
        "PARLEY_ATTACHMENTS_BYTES_PER_USER": str(FILE_BYTES),
    }
    with ServerProcess(tmp_path / "data", environment=limits) as server:
        async with aiohttp.ClientSession() as session:
            ann = await HttpClient(session, server.url).newcomer("ann")
            chat = await HttpClient(session, server.url).of(ann).create_group()
        async with connect(server.url, ann.token) as client:
            before = peak_bytes(server.pid)
            killed = asyncio.Event()
            seen: list[int] = []

            def progress(received: int, _: int) -> None:
                seen.append(received)
                if received > FILE_BYTES // 2:
                    killed.set()

            async def kill() -> int:
                await killed.wait()
                peak = peak_bytes(server.pid)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start, limits)
                return peak

            killing = asyncio.ensure_future(kill())
            file = await client.chat(chat).files.upload(source, progress=progress)
            peaks = [await killing, peak_bytes(server.pid)]
            assert (file.sha256, file.size) == (digest, FILE_BYTES)
            assert seen == sorted(seen), "no byte that was stored was sent again"
            await client.chat(chat).send("", attachments=[file.attachment_id])
            await client.chat(chat).files.download(file.attachment_id, target)
            peaks.append(peak_bytes(server.pid))
            assert max(peaks) - before < GROWTH_BYTES_MAX, [peak // MIB for peak in peaks]
        parts = [*(tmp_path / "data" / "attachments").rglob("0*")]
        assert len(parts) == -(-FILE_BYTES // ATTACHMENT_PART_BYTES)
        print(f"{FILE_BYTES:,} bytes; MiB before {before // MIB}, at most {[p // MIB for p in peaks]}")
    assert await asyncio.to_thread(digest_of, target) == digest
