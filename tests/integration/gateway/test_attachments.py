"""Files of messages on a running server: announced, uploaded in ranges, sent, read by members, removed."""

import asyncio
import base64
import hashlib
import io
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import msgspec
import pytest
from PIL import Image

from parley.app.archive import make_archiver, make_entry_writer, make_retention
from parley.archive.tiers import TieredEngine
from parley.bodies.writer import Choice
from parley.clock import MS_PER_DAY
from parley.core.attachments import MARGIN_MS, SETTLE_MS, Attachment
from parley.core.log_hash import body_digest
from parley.files import uploads
from parley.files.removal import FileRemoval
from parley.records.attachments import Attachments
from parley.wire.frames import Entry
from parley.wire.limits import ATTACHMENTS_MAX, PREVIEW_CHARS_MAX
from tests.harness.clock import VirtualClock
from tests.integration.gateway.serving import Place, Served, assert_refused, new_id
from tests.integration.gateway.uploading import (
    PART,
    Sharing,
    image_bytes,
    shrink_parts,
    some_bytes,
    stored_files,
)

DATA = some_bytes(2 * PART + 500)
COLD = {"PARLEY_ARCHIVE_TARGET": "cold", "PARLEY_ARCHIVE_AFTER_DAYS": "0"}
HOUR_MS = 3_600_000
SLOW_SECONDS = 0.1
"""What another announcement needs to come in between."""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_parts(monkeypatch)


async def world(served: Served) -> tuple[Sharing, Sharing, Sharing]:
    """Ann and Ben are in a group, Eve is not."""
    ann, ben, eve = await served.people("ann", "ben", "eve")
    chat = await served.as_(ann).create_group(ben)
    return Sharing(served, ann, chat), Sharing(served, ben, chat), Sharing(served, eve, chat)


def removal_of(served: Served) -> FileRemoval:
    assert served.app.files is not None
    return served.app.files.removal


async def test_a_file_comes_with_its_message(either: Place) -> None:
    """Live, in pages and alone; members read it whole and by ranges, others do not."""
    async with either.serving() as served:
        ann, ben, eve = await world(served)
        file = await ann.upload(DATA, "näme.pdf", content_type="application/PDF; x=y")
        assert file == {
            "attachment_id": file["attachment_id"],
            "name": "näme.pdf",
            "size": len(DATA),
            "content_type": "application/pdf",
            "sha256": hashlib.sha256(DATA).hexdigest(),
        }
        assert_refused(await ben.find(file["attachment_id"]), 404, "not_found")
        assert (await ann.find(file["attachment_id"])).body["status"] == "complete"
        async with served.client(await served.http.login("ben", "tablet")) as live:
            assert (await ann.send(file["attachment_id"])).status == 201
            told = await live.live_entry(ann.chat, 1)
        assert told["attachments"] == [file]
        assert [entry["attachments"] for entry in await ben.entries()] == [[file]]
        assert (await ben.find(file["attachment_id"])).body["attachment"] == file
        assert_refused(await eve.find(file["attachment_id"]), 403, "not_a_member")
        for asked, status, data in [
            ({}, 200, DATA),
            ({"Range": "bytes=990-1010"}, 206, DATA[990:1011]),
            ({"Range": "bytes=2000-"}, 206, DATA[2000:]),
            ({"Range": "bytes=-7"}, 206, DATA[-7:]),
            ({"Range": "bytes=0-99999"}, 206, DATA),
            ({"Range": "bytes=5-2"}, 200, DATA),
            ({"Range": "bytes=0-1,5-6"}, 200, DATA),
            ({"Range": "bytes=0-1", "If-Range": '"other"'}, 200, DATA),
        ]:
            response, read = await ben.read(file["attachment_id"], **asked)
            assert (response.status, read) == (status, data), asked
        response, _ = await ben.read(file["attachment_id"], Range=f"bytes={len(DATA)}-")
        assert response.status == 416


async def test_the_frame_sends_files_too(place: Place) -> None:
    """As the request does; a retry is answered with the original, and a reply may have files."""
    async with place.serving() as served:
        ann, _, _ = await world(served)
        file = await ann.upload(DATA)
        client_id = new_id()
        async with served.client(await served.http.login("ann", "tablet")) as client:
            fields: dict[str, Any] = {
                "chat_id": ann.chat,
                "content": "",
                "attachments": [file["attachment_id"]],
            }
            first = await client.request("send_message", client_message_id=client_id, **fields)
            again = await client.request("send_message", client_message_id=client_id, **fields)
            assert (first["type"], first["deduplicated"]) == ("ack", False)
            assert (again["sequence"], again["deduplicated"], again["conflict"]) == (1, True, False)
            other = await ann.upload(b"more")
            fields |= {"attachments": [other["attachment_id"]], "reply_to": first["message_id"]}
            assert (await client.request("send_message", client_message_id=new_id(), **fields))[
                "type"
            ] == "ack"
        entries = await ann.entries()
        assert [entry["attachments"][0]["sha256"] for entry in entries] == [file["sha256"], other["sha256"]]
        assert entries[1]["reply_to"] == first["message_id"]


async def test_only_ones_own_complete_files_of_the_chat_are_sent(place: Place) -> None:
    """And each with one message; a refused message leaves its files as they were."""
    async with place.serving() as served:
        ann, ben, _ = await world(served)
        mine, theirs = await ann.upload(DATA), await ben.upload(DATA)
        begun = (await ann.announce(DATA)).body["attachment_id"]
        elsewhere = Sharing(served, await served.http.login("ann"), await ann.http.create_group())
        for sharing, attachment_id in [
            (ann, theirs["attachment_id"]),
            (ann, begun),
            (ann, "att_" + "0" * 26),
            (elsewhere, mine["attachment_id"]),
        ]:
            assert_refused(await sharing.send(attachment_id), 404, "not_found")
            if attachment_id != mine["attachment_id"]:
                both = await sharing.send(mine["attachment_id"], attachment_id)
                assert_refused(both, 404, "not_found")
        for wrong in (["nonsense"], [mine["attachment_id"]] * 2, ["att_" + "0" * 26] * (ATTACHMENTS_MAX + 1)):
            assert_refused(await ann.send(*wrong), 400, "bad_request")
        assert (await ann.send(mine["attachment_id"])).status == 201
        assert_refused(await ann.send(mine["attachment_id"]), 404, "not_found")
        assert_refused(await ann.http.delete(f"{ann.path}/{mine['attachment_id']}"), 409, "attachment_used")


# Uploads


async def test_an_upload_goes_on_where_it_was(place: Place) -> None:
    """In ranges of whole parts, after a broken connection and after a restart, at the same address."""
    async with place.serving() as served:
        ann, _, _ = await world(served)
        digest = hashlib.sha256(DATA).hexdigest()
        url = (await ann.announce(DATA, sha256=digest)).body["upload_url"]
        size = len(DATA)
        first = await ann.put(url, DATA[:PART], **{"Content-Range": f"bytes 0-{PART - 1}/{size}"})
        assert (first.status, first.body["received"]) == (200, PART)
        await _cut_short(served, url, DATA[PART : PART + 700], f"bytes {PART}-{size - 1}/{size}", size - PART)
        progress = await served.http.get(url)
        assert (progress.status, progress.body["received"]) == (200, PART)
        for wrong in (
            f"bytes 0-{PART - 1}/{size}",  # it is there
            f"bytes {2 * PART}-{size - 1}/{size}",  # the part before is missing
            f"bytes {PART}-{PART + 99}/{size}",  # no whole part
        ):
            start, end = map(int, wrong[6:].partition("/")[0].split("-"))
            assert_refused(
                await ann.put(url, DATA[start : end + 1], **{"Content-Range": wrong}), 409, "wrong_range"
            )
        assert_refused(await ann.put(url, b"", **{"Content-Range": f"bytes */{size}"}), 409, "not_uploaded")
    async with place.serving() as served:
        ann = Sharing(served, await served.http.login("ann"), ann.chat)
        last = await ann.put(url, DATA[PART:], **{"Content-Range": f"bytes {PART}-{size - 1}/{size}"})
        assert (last.status, last.body["received"], last.body["attachment"]["sha256"]) == (201, size, digest)
        again = await ann.put(url, b"", **{"Content-Range": f"bytes */{size}"})
        assert (again.status, again.body["attachment"]) == (201, last.body["attachment"])
        assert [path.stat().st_size for path in stored_files(place.folder) if path.is_file()] == [
            PART,
            PART,
            500,
        ]


async def _cut_short(served: Served, url: str, data: bytes, content_range: str, length: int) -> None:
    """A client that dies in the middle of a body."""
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    head = f"PUT {url} HTTP/1.1", "Host: 127.0.0.1", f"Content-Range: {content_range}"
    writer.write("\r\n".join([*head, f"Content-Length: {length}", "", ""]).encode() + data)
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def test_what_was_signed_is_what_is_taken(place: Place) -> None:
    """Another size, type, address or time is refused, and nothing of it is stored."""
    clock = VirtualClock()
    async with place.serving({"PARLEY_ATTACHMENTS_UPLOAD_HOURS": "1"}, clock=clock) as served:
        ann, _, _ = await world(served)
        announced = (await ann.announce(DATA, content_type="image/png")).body
        url = announced["upload_url"]
        size = len(DATA)
        for data, headers in [
            (DATA + b"x", {}),
            (DATA[:-1], {}),
            (DATA, {"Content-Range": f"bytes 0-{size - 1}/{size + 1}"}),
            (DATA + b"x", {"Content-Range": f"bytes 0-{size}/{size}"}),
            (DATA[:-1], {"Content-Range": f"bytes 0-{size - 1}/{size}"}),
            (DATA, {"Content-Range": "lines 1-2/3"}),
            (DATA, {"Content-Type": "text/html"}),
        ]:
            assert_refused(await ann.put(url, data, **headers), 400, "bad_request")
        for wrong in (
            url[:-1] + ("A" if url[-1] != "A" else "B"),
            "/v1/uploads/x",
            "/v1/uploads/%00",
            url + "AAAA",
        ):
            assert_refused(await ann.put(wrong, DATA), 404, "not_found")
        done = await ann.upload(DATA)
        read_url = (await ann.find(done["attachment_id"])).body["url"]
        assert_refused(await ann.put("/v1/uploads/" + read_url.rpartition("/")[2], DATA), 404, "not_found")
        answer = await served.http.get("/v1/files/" + url.rpartition("/")[2])
        assert_refused(answer, 404, "not_found")
        clock.advance(HOUR_MS)
        assert_refused(await ann.put(url, DATA), 404, "not_found")
        assert_refused(await served.http.get(read_url), 404, "not_found")
        assert not any(announced["attachment_id"] in str(path) for path in stored_files(place.folder))


async def test_an_upload_without_a_length_is_bounded(place: Place) -> None:
    """A body in chunks may not be longer than its range, nor shorter."""

    async def chunks(data: bytes) -> Any:
        for start in range(0, len(data), 300):
            yield data[start : start + 300]

    async with place.serving() as served:
        ann, _, _ = await world(served)
        for data in (DATA + b"x", DATA[:-1], b""):
            url = (await ann.announce(DATA)).body["upload_url"]
            async with served.session.put(served.url + url, data=chunks(data)) as response:
                assert (response.status, (await response.json())["code"]) == (400, "bad_request")


async def test_other_bytes_than_announced_are_removed(place: Place) -> None:
    """By their checksum: the file is refused, and nothing of it stays."""
    async with place.serving() as served:
        ann, _, _ = await world(served)
        announced = (await ann.announce(DATA, sha256="0" * 64)).body
        assert_refused(await ann.put(announced["upload_url"], DATA), 422, "checksum_mismatch")
        assert_refused(await ann.find(announced["attachment_id"]), 404, "not_found")
        assert stored_files(place.folder) == []


async def test_a_hash_that_nobody_remembers_is_computed_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the same."""
    monkeypatch.setattr(uploads, "HASHES_KEPT_MAX", 0)
    async with place.serving() as served:
        ann, _, _ = await world(served)
        assert (await ann.upload(DATA))["sha256"] == hashlib.sha256(DATA).hexdigest()


async def test_what_a_server_does_not_take(place: Place) -> None:
    """Files that are too large, of a type that is not allowed, beyond a person's room; from members alone."""
    settings = {
        "PARLEY_ATTACHMENTS_MAX_BYTES": "200000",
        "PARLEY_ATTACHMENTS_BYTES_PER_USER": "200000",
        "PARLEY_ATTACHMENTS_TYPES_ALLOWED": "image/*,text/plain",
        "PARLEY_ATTACHMENTS_TYPES_DENIED": "image/svg+xml",
    }
    async with place.serving(settings) as served:
        ann, ben, eve = await world(served)

        async def announced(sharing: Sharing, size: int, **fields: Any) -> Any:
            return await sharing.http.post(
                sharing.path, {"name": "a", "size": size, "content_type": "text/plain", **fields}
            )

        for size, fields, status, code in [
            (200_001, {}, 413, "too_large"),
            (0, {}, 400, "bad_request"),
            (-1, {}, 400, "bad_request"),
            (1, {"content_type": "image/svg+xml"}, 415, "unsupported_media_type"),
            (1, {"content_type": "Image/SVG+xml; a=b"}, 415, "unsupported_media_type"),
            (1, {"content_type": "application/pdf"}, 415, "unsupported_media_type"),
            (1, {"content_type": "plain"}, 400, "bad_request"),
            (1, {"content_type": "text/plain\r\nX: y"}, 400, "bad_request"),
            (1, {"name": ""}, 400, "bad_request"),
            (1, {"name": "x" * 256}, 400, "bad_request"),
            (1, {"sha256": "xyz"}, 400, "bad_request"),
        ]:
            assert_refused(await announced(ann, size, **fields), status, code)
        assert_refused(await announced(eve, 1), 403, "not_a_member")
        kept = await announced(ann, 150_000)
        assert_refused(await announced(ann, 1), 413, "quota_exceeded")
        assert (await announced(ben, 150_000)).status == 201
        assert (await ann.http.delete(f"{ann.path}/{kept.body['attachment_id']}")).status == 204
        assert (await announced(ann, 1)).status == 201


async def test_of_announcements_at_once_those_that_fit_are_taken(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person who sends several files is not refused all of them for what they are together."""
    add = Attachments.add

    async def add_slowly(files: Attachments, file: Attachment) -> None:
        await add(files, file)
        await asyncio.sleep(SLOW_SECONDS)

    monkeypatch.setattr(Attachments, "add", add_slowly)
    async with place.serving({"PARLEY_ATTACHMENTS_BYTES_PER_USER": "400000"}) as served:
        ann, _, _ = await world(served)
        body = {"name": "a", "size": 150_000}
        answers = await asyncio.gather(*(ann.http.post(ann.path, body) for _ in range(6)))
        assert sorted(answer.status for answer in answers) == [201, 201, 413, 413, 413, 413]


def no_turn(_: str) -> AbstractAsyncContextManager[None]:
    """Nodes do not wait for each other."""
    return nullcontext()


async def test_announcements_at_once_take_no_more_than_there_is(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By several nodes, each of which would fit alone; what is refused takes nothing of a person's room."""
    async with place.serving({"PARLEY_ATTACHMENTS_BYTES_PER_USER": "200000"}) as served:
        ann, _, _ = await world(served)
        assert served.app.files is not None
        monkeypatch.setattr(served.app.files.uploads.announcing, "turn", no_turn)
        add, have_asked, body = Attachments.add, asyncio.Barrier(3), {"name": "a", "size": 150_000}

        async def add_once_all_have_asked(files: Attachments, file: Attachment) -> None:
            await have_asked.wait()
            await add(files, file)

        monkeypatch.setattr(Attachments, "add", add_once_all_have_asked)
        answers = await asyncio.gather(*(ann.http.post(ann.path, body) for _ in range(3)))
        monkeypatch.setattr(Attachments, "add", add)
        taken = [answer for answer in answers if answer.status == 201]
        assert len(taken) <= 1
        for answer in answers:
            if answer.status != 201:
                assert_refused(answer, 413, "quota_exceeded")
        assert len(await Attachments(served.app.store.records, served.app.clock).unsettled()) == len(taken)
        assert (await ann.http.post(ann.path, body)).status == (413 if taken else 201)


# Images


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "GIF", "WEBP"])
async def test_images_have_a_size_and_a_preview(place: Place, image_format: str) -> None:
    """A small one, that fits into an entry."""
    async with place.serving() as served:
        ann, ben, _ = await world(served)
        content_type = f"image/{image_format.lower()}"
        file, _ = await ann.share(image_bytes(image_format), content_type=content_type)
        assert (file["content_type"], file["width"], file["height"]) == (content_type, 300, 200)
        assert len(file["preview"]) <= PREVIEW_CHARS_MAX
        preview = Image.open(io.BytesIO(base64.b64decode(file["preview"].partition(",")[2])))
        assert (preview.format, preview.size) == ("WEBP", (64, 43))
        assert (await ben.entries())[0]["attachments"] == [file]


# The end of a file


async def test_a_deleted_message_takes_its_files_along(either: Place) -> None:
    """Their bytes, what is known about them and their addresses, before the delete is answered."""
    async with either.serving() as served:
        ann, ben, _ = await world(served)
        gone, sent = await ann.share(DATA)
        kept, _ = await ann.share(b"kept")
        url = await ben.url(gone["attachment_id"])
        async with served.client(await served.http.login("ann", "tablet")) as client:
            fields = {
                "chat_id": ann.chat,
                "message_id": sent.body["message_id"],
                "client_message_id": new_id(),
            }
            assert (await client.request("delete_message", **fields))["type"] == "ack"
        assert_refused(await served.http.get(url.removeprefix(served.url)), 404, "not_found")
        assert_refused(await ben.find(gone["attachment_id"]), 404, "not_found")
        files = stored_files(either.folder)
        assert [path.name for path in files] == [kept["attachment_id"], "000000"]
        assert "attachments" not in (await ben.entries())[0]
        assert (await ben.read(kept["attachment_id"]))[1] == b"kept"


async def test_an_edited_message_keeps_its_files(place: Place) -> None:
    """And the digest of what was sent, for the hash of the log."""
    async with place.serving() as served:
        ann, ben, _ = await world(served)
        file, sent = await ann.share(DATA)
        (before,) = await ben.entries()
        async with served.client(await served.http.login("ann", "tablet")) as client:
            fields = {
                "chat_id": ann.chat,
                "message_id": sent.body["message_id"],
                "client_message_id": new_id(),
            }
            assert (await client.request("edit_message", content="other", **fields))["type"] == "ack"
        edited = (await ben.entries())[0]
        assert (edited["content"], edited["attachments"]) == ("other", [file])
        assert edited["body_digest"] == body_digest(_entry(before))
        assert (await ben.read(file["attachment_id"]))[1] == DATA


def _entry(told: dict[str, Any]) -> Entry:
    return msgspec.convert(told, Entry)


@pytest.mark.parametrize(
    "settings", [{}, {"PARLEY_ARCHIVE_TARGET": "cold", "PARLEY_ARCHIVE_AFTER_DAYS": "0"}]
)
async def test_removed_bodies_take_their_files_along(place: Place, settings: dict[str, str]) -> None:
    """By retention and by the erasure of a person, from both tiers; the log stays the same by its hash."""
    clock = VirtualClock()
    async with place.serving({**settings, "PARLEY_RETENTION_DAYS": "30"}, clock=clock) as served:
        app = served.app
        ann, ben, _ = await world(served)
        old, _ = await ann.share(DATA)
        before = (await ben.entries())[0]
        clock.advance(31 * MS_PER_DAY)
        sessions = [await served.http.login(name) for name in ("ann", "ben")]
        ann, ben = (Sharing(served, person, ann.chat) for person in sessions)
        mine, _ = await ann.share(b"mine")
        theirs, _ = await ben.share(b"theirs")
        if isinstance(app.store, TieredEngine):
            await make_archiver(app.store, app.config, clock, app.metrics, {}).run()
        retention = make_retention(app.store, app.config, clock, app.metrics, {})
        assert (await retention.apply()).bodies == 1
        assert _ids(place) == sorted([mine["attachment_id"], theirs["attachment_id"]])
        assert_refused(await ben.find(old["attachment_id"]), 404, "not_found")
        assert (await ben.entries())[0]["body_digest"] == body_digest(_entry(before))
        person = sessions[0].user_id
        assert (await retention.erase(person)).bodies == 1
        assert _ids(place) == [theirs["attachment_id"]]
        eraser = make_entry_writer(app.store, app.config, clock, app.metrics, {})
        assert (await eraser.erase(ann.chat, Choice(), dry=True)).bodies == 1
        assert _ids(place) == [theirs["attachment_id"]]


def _ids(place: Place) -> list[str]:
    return [path.name for path in stored_files(place.folder) if path.is_dir()]


async def test_what_nobody_refers_to_is_swept(place: Place) -> None:
    """Uploads that never ended, and files that were never sent; never those of a message."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        ann, ben, _ = await world(served)
        sweep = removal_of(served).sweep
        sent, _ = await ann.share(b"sent")
        unsent = await ann.upload(DATA)
        url = (await ann.announce(DATA)).body["upload_url"]
        await ann.put(url, DATA[:PART], **{"Content-Range": f"bytes 0-{PART - 1}/{len(DATA)}"})
        assert len(_ids(place)) == 3
        await sweep()
        clock.advance(24 * HOUR_MS - 1)
        await sweep()
        assert len(_ids(place)) == 3
        clock.advance(MARGIN_MS + 2)
        await sweep()
        clock.advance(SETTLE_MS + 1)
        await sweep()
        assert _ids(place) == [sent["attachment_id"]]
        assert await Attachments(served.app.store.records, served.app.clock).unsettled() == []
        clock.advance(365 * MS_PER_DAY)
        await sweep()
        ben = Sharing(served, await served.http.login("ben"), ann.chat)
        assert (await ben.read(sent["attachment_id"]))[1] == b"sent"
        assert_refused(await ben.find(unsent["attachment_id"]), 404, "not_found")


async def test_lost_bytes_are_refused_and_not_begun(place: Place) -> None:
    """As after a restore without the files: the message is there, and says which file it had."""
    async with place.serving() as served:
        ann, ben, _ = await world(served)
        file, _ = await ann.share(DATA)
        for path in stored_files(place.folder):
            if path.is_file():
                path.unlink()
        url = await ben.url(file["attachment_id"])
        assert_refused(await served.http.get(url.removeprefix(served.url)), 404, "not_found")
        assert (await ben.entries())[0]["attachments"] == [file]


async def test_a_server_without_a_place_for_files(place: Place) -> None:
    """Says so, and sends messages as ever."""
    async with place.serving() as served:
        ann, _, _ = await world(served)
        object.__setattr__(served.app, "files", None)
        served.app.sending._attaching = None
        assert_refused(await ann.send("att_" + "0" * 26), 400, "bad_request")
        assert (await ann.send()).status == 201
