"""The SDK's uploads and downloads: whole files, broken connections, another process that goes on."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from aiohttp import web

from parley.client import CannotConnect, RequestRefused, connect
from parley.client import files as client_files
from parley.core.attachments import Attachment
from parley.errors import Refused
from parley.files.rights import WRONG_ADDRESS
from parley.gateway.file_transfers import FileTransfers
from tests.integration.cli.running import parley
from tests.integration.gateway.serving import Place, Served
from tests.integration.gateway.uploading import PART, shrink_parts, some_bytes

DATA = some_bytes(20 * PART + 7)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_parts(monkeypatch)
    monkeypatch.setattr(client_files, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(client_files, "CHUNK_BYTES", 300)


class Cuts:
    """Breaks the body of some requests after some bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *cuts: int) -> None:
        self.left = list(cuts)
        self._plain = client_files._chunks
        monkeypatch.setattr(client_files, "_chunks", self.chunks)

    async def chunks(self, file: BinaryIO, start: int, end: int) -> AsyncIterator[bytes]:
        cut = self.left.pop(0) if self.left else end
        sent = 0
        async for data in self._plain(file, start, end):
            yield data
            sent += len(data)
            if sent >= cut:
                raise ConnectionResetError("cut")


async def two_people(served: Served) -> tuple[Any, Any, str]:
    ann, ben = await served.people("ann", "ben")
    return ann, ben, await served.as_(ann).create_group(ben)


async def test_a_file_goes_from_one_person_to_another(place: Place, tmp_path: Path) -> None:
    """With its name and type, and with progress on both sides."""
    source, target = tmp_path / "päper.pdf", tmp_path / "got"
    source.write_bytes(DATA)
    seen: list[tuple[int, int]] = []
    async with place.serving() as served:
        ann, ben, chat = await two_people(served)
        async with connect(served.url, ann.token) as mine, connect(served.url, ben.token) as others:
            await (await mine.chat(chat).send_file(source, "see", progress=lambda *now: seen.append(now)))
            entry = await anext(aiter(others.chat(chat)))
            assert isinstance(entry.attachments, list)
            (file,) = entry.attachments
            assert (file.name, file.content_type, file.size) == ("päper.pdf", "application/pdf", len(DATA))
            assert (seen[0], seen[-1]) == ((0, len(DATA)), (len(DATA), len(DATA)))
            assert seen == sorted(seen)
            seen.clear()
            downloads = others.chat(chat).files
            assert (
                await downloads.download(file.attachment_id, target, progress=lambda *now: seen.append(now))
                == file
            )
            assert target.read_bytes() == DATA
            assert seen[-1] == (len(DATA), len(DATA))


async def test_broken_connections_are_mended(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload goes on after the last whole part that the server has; no part is stored twice."""
    source = tmp_path / "a"
    source.write_bytes(DATA)
    cuts = Cuts(monkeypatch, 2_500, 100, 3_300)
    async with place.serving() as served:
        ann, _, chat = await two_people(served)
        async with connect(served.url, ann.token) as mine:
            file = await mine.chat(chat).files.upload(source)
            assert (cuts.left, file.size) == ([], len(DATA))
            received = served.metric("parley_attachment_bytes_total", direction="in")
            assert received == len(DATA)


async def test_a_proxy_that_takes_no_such_body_is_named_at_once(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nginx answers 413 with a page of its own: no retry helps, and the person reads who must change what."""
    source, asked = tmp_path / "a", []
    source.write_bytes(DATA)

    async def too_large(_: object, request: web.Request) -> web.Response:
        asked.append(request.method)
        return web.Response(
            status=413, text="<html>413 Request Entity Too Large</html>", content_type="text/html"
        )

    monkeypatch.setattr(FileTransfers, "upload", too_large)
    async with place.serving() as served:
        ann, _, chat = await two_people(served)
        async with connect(served.url, ann.token) as mine:
            with pytest.raises(RequestRefused, match="proxy") as refused:
                await mine.chat(chat).files.upload(source)
        assert (refused.value.code, refused.value.temporary, asked) == ("too_large", False, ["PUT"])
        run = await asyncio.to_thread(
            parley, "send", chat, "--file", str(source), "--url", served.url, "--token", ann.token
        )
        assert (run.status, run.stdout) == (1, "")
        assert "proxy" in run.stderr
        assert "Traceback" not in run.stderr


async def test_another_process_goes_on(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an upload by its id, with a download by what lies beside its target."""
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(DATA)
    async with place.serving() as served:
        ann, _, chat = await two_people(served)
        async with connect(served.url, ann.token) as mine:
            files = mine.chat(chat).files
            begun = await files._announce(source, "a", "text/plain")
            with monkeypatch.context() as once:
                once.setattr(client_files, "TRIES_MAX", 0)
                Cuts(once, 4_000)
                with pytest.raises(CannotConnect):
                    await files.upload(source, attachment_id=begun.attachment_id)
            seen: list[int] = []
            file = await files.upload(
                source, attachment_id=begun.attachment_id, progress=lambda now, _: seen.append(now)
            )
            assert seen[-1] == len(DATA)
            assert served.metric("parley_attachment_bytes_total", direction="in") == len(DATA)
            assert await files.upload(source, attachment_id=begun.attachment_id) == file
            target.with_name("b.part").write_bytes(DATA[:5_000])
            await files.download(file.attachment_id, target)
            assert served.metric("parley_attachment_bytes_total", direction="out") == len(DATA) - 5_000
            assert target.read_bytes() == DATA
            target.with_name("c.part").write_bytes(b"x" * 5_000)
            with pytest.raises(RequestRefused, match="checksum_mismatch"):
                await files.download(file.attachment_id, target.with_name("c"))
            assert not target.with_name("c").exists()


async def test_a_file_is_sent_after_a_restart_of_the_server(place: Place, tmp_path: Path) -> None:
    """By its id, through the outbox, like any other message."""
    source, outbox = tmp_path / "a", str(tmp_path / "outbox.db")
    source.write_bytes(b"some")
    async with place.serving() as served:
        ann, _, chat = await two_people(served)
        async with connect(served.url, ann.token) as mine:
            file = await mine.chat(chat).files.upload(source)
    async with place.serving() as served, connect(served.url, ann.token, outbox=outbox) as mine:
        ack = await mine.chat(chat).send("late", attachments=[file.attachment_id])
        page = await mine.chat(chat).message(ack.message_id)
        assert page.entry.attachments == [file]


async def test_an_address_that_is_over_is_asked_for_again(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the token that asked for it has run out, and the client has another."""
    source = tmp_path / "source"
    source.write_bytes(DATA)
    async with place.serving() as served:
        ann, _, chat = await two_people(served)
        assert served.app.files is not None
        rights = served.app.files.uploads._rights
        asked: list[str] = []
        check = rights.check

        async def over_at_the_third_part(file: Attachment, session_id: str) -> None:
            asked.append(session_id)
            if len(asked) == 4:  # the first is asked when the request comes
                raise Refused(WRONG_ADDRESS)
            await check(file, session_id)

        monkeypatch.setattr(rights, "check", over_at_the_third_part)
        async with connect(served.url, ann.token) as client:
            file = await client.chat(chat).files.upload(source)
            assert file.size == len(DATA)
            assert len(asked) > 4
