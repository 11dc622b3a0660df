"""The bytes of files: uploads in ranges, downloads in ranges, by signed addresses.

What people upload is never served as something that a browser runs: the type is one of a short list, or just
bytes to be saved; the browser is told not to guess another, and to run nothing of it in any case.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Literal, get_args
from urllib.parse import quote

import msgspec
from aiohttp import web

from parley.core.attachments import INERT_TYPES, OCTETS, Attachment, AttachmentState, served_type
from parley.errors import (
    BAD_REQUEST,
    BUSY,
    CHECKSUM_MISMATCH,
    NOT_FOUND,
    NOT_UPLOADED,
    REQUEST_TIMEOUT,
    TOO_LARGE,
    WRONG_RANGE,
    Refusal,
    Refused,
)
from parley.files.renditions import CONTENT_TYPE
from parley.files.signing import Right
from parley.files.uploads import UploadProgress
from parley.gateway import cors
from parley.gateway.api.attachments import FILES, UPLOADS, files_of
from parley.gateway.calls import REQUEST_ID, REQUEST_SECONDS_MAX, Call
from parley.gateway.routes import JSON, Operation, Parameter
from parley.gateway.services import ApiServices
from parley.wire.attachment_bodies import AttachmentProgress

CONTENT_RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})")
FINISH_RANGE = re.compile(r"bytes \*/(\d{1,15})")
RANGE = re.compile(r"bytes=(\d{0,15})-(\d{0,15})")
PictureSize = Literal["320", "960"]
KEPT_BY_BROWSERS = "private, max-age=31536000, immutable"
NO_SIZE = BAD_REQUEST.because("size must be 320 or 960")
TOKEN = Parameter("token", str, "What the server has signed.", "prl_up_0a1b2c", is_required=True)

HARMLESS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cross-Origin-Resource-Policy": "cross-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, no-store",
}
"""Of every answer with the bytes of a file. Pages of other origins may show an image by its address."""

NO_RANGE = BAD_REQUEST.because("Content-Range must be `bytes FIRST-LAST/SIZE`, with the announced size")
NO_LENGTH = BAD_REQUEST.because("Content-Length must be the size of the range")
OTHER_TYPE = BAD_REQUEST.because("Content-Type is not the announced one; leave it out")
NOT_SATISFIABLE = Refusal("wrong_range", "the file has no such range", status=416)

UPLOAD = Operation(
    method="PUT",
    path=f"{UPLOADS}/{{token}}",
    tag="Attachments",
    name="upload",
    summary="Send the bytes of a file, or a range of them",
    description="Without `Content-Range` the whole file. A range starts at `received` and ends at a multiple"
    " of `part_bytes`, or with the file. What was stored before a connection broke stays, in whole parts. The"
    " last range is answered once the file is verified. `Content-Range: bytes */SIZE` without a body verifies"
    " what is there.",
    answers={200: AttachmentProgress, 201: AttachmentProgress},
    path_parameters=(TOKEN,),
    headers=(Parameter("Content-Range", str, "`bytes FIRST-LAST/SIZE`"),),
    refusals=(NOT_FOUND, WRONG_RANGE, NOT_UPLOADED, CHECKSUM_MISMATCH, TOO_LARGE, BUSY, REQUEST_TIMEOUT),
    needs="nothing",
    cost=1,
)
PROGRESS = Operation(
    method="GET",
    path=UPLOAD.path,
    tag="Attachments",
    name="upload_progress",
    summary="How much of a file is stored",
    description="Go on from `received`.",
    answers={200: AttachmentProgress},
    path_parameters=(TOKEN,),
    refusals=(NOT_FOUND,),
    needs="nothing",
    cost=1,
)
DOWNLOAD = Operation(
    method="GET",
    path=f"{FILES}/{{token}}",
    tag="Attachments",
    name="download",
    summary="The bytes of a file, or a range of them",
    description="One `Range` of bytes is understood. Images, sound and video of a few types come as what they"
    " are, everything else as bytes to be saved; never as something that a browser runs.",
    answers={200: str, 206: str},
    path_parameters=(TOKEN,),
    query=(Parameter("size", PictureSize, "Of an address in `pictures`: which of them."),),
    headers=(Parameter("Range", str, "`bytes=FIRST-LAST`, `bytes=FIRST-` or `bytes=-LENGTH`"),),
    refusals=(NOT_FOUND, NOT_UPLOADED, NOT_SATISFIABLE),
    needs="nothing",
    media=OCTETS,
    cost=1,
)

TRANSFERS = (UPLOAD, PROGRESS, DOWNLOAD)

Serve = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FileTransfers:
    def __init__(self, services: ApiServices) -> None:
        self._services = services
        self.operations: list[tuple[Operation, Serve]] = [
            (UPLOAD, self.upload),
            (PROGRESS, self.progress),
            (DOWNLOAD, self.download),
        ]

    def _charge(self, request: web.Request, operation: Operation) -> None:
        Call(request, self._services, REQUEST_SECONDS_MAX).charge(operation.cost)

    async def upload(self, request: web.Request) -> web.StreamResponse:
        self._charge(request, UPLOAD)
        files = files_of(self._services)
        file, grant = await files.downloads.granted(request.match_info["token"], Right.UPLOAD)
        _check_type(request, file)
        wanted = wanted_range(request.headers.get("Content-Range"), request.content_length, file.size)
        if wanted is None:
            progress = await self._finish(file)
        else:
            chunks = request.content.iter_any()
            progress = await files.uploads.receive(file, *wanted, chunks, session_id=grant.session_id)
        return _answer(200 if progress.received < file.size else 201, progress)

    async def _finish(self, file: Attachment) -> UploadProgress:
        uploads = files_of(self._services).uploads
        if file.state is not AttachmentState.UPLOADING:
            return await uploads.progress(file)
        return await uploads.finish(file)

    async def progress(self, request: web.Request) -> web.StreamResponse:
        self._charge(request, PROGRESS)
        files = files_of(self._services)
        file, _ = await files.downloads.granted(request.match_info["token"], Right.UPLOAD)
        return _answer(200, await files.uploads.progress(file))

    async def download(self, request: web.Request) -> web.StreamResponse:
        if "size" in request.query:
            return await self._picture(request)
        self._charge(request, DOWNLOAD)
        files = files_of(self._services)
        file, _ = await files.downloads.granted(request.match_info["token"], Right.DOWNLOAD)
        part = asked_range(request.headers.get("Range"), request.headers.get("If-Range"), file)
        start, end = part or (0, file.size)
        response = web.StreamResponse(status=200 if part is None else 206, headers=headers_of(file))
        if part is not None:
            response.headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.size}"
        response.content_length = end - start
        self._tell_origin(request, response)
        chunks = files.downloads.read(file, start, end)
        first = await anext(chunks)  # what cannot be read is refused, not begun
        await response.prepare(request)
        if request.method != "HEAD":
            await response.write(first)
            async for data in chunks:
                await response.write(data)
        await response.write_eof()
        return response

    async def _picture(self, request: web.Request) -> web.StreamResponse:
        """A smaller picture: what its address leads to never changes."""
        self._charge(request, DOWNLOAD)
        files = files_of(self._services)
        file, _ = await files.downloads.granted(request.match_info["token"], Right.PICTURE)
        side = request.query["size"]
        if side not in get_args(PictureSize):
            raise Refused(NO_SIZE)
        picture = await files.renditions.picture(file, int(side))
        headers = {**HARMLESS, "Content-Type": CONTENT_TYPE, "Cache-Control": KEPT_BY_BROWSERS}
        return web.Response(body=picture, headers=headers)

    def _tell_origin(self, request: web.Request, response: web.StreamResponse) -> None:
        """What other answers get after their handler: this one is under way by then."""
        origins = self._services.config.server.origins
        origin = cors.allowed_origin(request.headers.get("Origin"), origins)
        response.headers["X-Request-Id"] = request[REQUEST_ID]
        response.headers.update(cors.headers_for(origin, origins))


def _answer(status: int, progress: UploadProgress) -> web.Response:
    file = progress.attachment
    told = AttachmentProgress(file.attachment_id, file.size, progress.received)
    if file.state is not AttachmentState.UPLOADING:
        told.attachment = file.file
    return web.Response(status=status, body=msgspec.json.encode(told), content_type=JSON)


def _check_type(request: web.Request, file: Attachment) -> None:
    """Browsers send a type by themselves; one that is not the announced one is refused."""
    given = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if given not in ("", OCTETS, file.content_type) and file.state is AttachmentState.UPLOADING:
        raise Refused(OTHER_TYPE)


def wanted_range(given: str | None, length: int | None, size: int) -> tuple[int, int] | None:
    """From where to before where the body of an upload is; None if it only asks to finish. Refused if it
    does not say so, or says something else than its length and the announced size.
    """
    if given is None:
        start, end, total = 0, size, size
    elif (finishing := FINISH_RANGE.fullmatch(given)) is not None:
        if int(finishing[1]) != size or length not in (None, 0):
            raise Refused(NO_RANGE)
        return None
    else:
        found = CONTENT_RANGE.fullmatch(given)
        if found is None:
            raise Refused(NO_RANGE)
        start, end, total = int(found[1]), int(found[2]) + 1, int(found[3])
    if total != size or not 0 <= start < end <= size:
        raise Refused(NO_RANGE)
    if length is not None and length != end - start:
        raise Refused(NO_LENGTH)
    return start, end


def asked_range(given: str | None, if_range: str | None, file: Attachment) -> tuple[int, int] | None:
    """From where to before where is asked for; None for all of it. Refused if the file ends before that.

    What is no single range of bytes counts as none, as RFC 9110 says.
    """
    found = RANGE.fullmatch(given) if given is not None else None
    if found is None or (if_range is not None and if_range != _etag(file)):
        return None
    first, last = found[1], found[2]
    if not first and not last:
        return None
    if not first:
        length = min(int(last), file.size)
        start, end = file.size - length, file.size
    else:
        start = int(first)
        end = min(int(last) + 1, file.size) if last else file.size
        if last and int(last) < start:
            return None
    if start >= end:
        raise Refused(NOT_SATISFIABLE)
    return start, end


def headers_of(file: Attachment) -> dict[str, str]:
    """What a browser is told about a file, whatever it is."""
    is_shown = file.content_type in INERT_TYPES
    name = quote(file.name, safe="")
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", file.name)
    disposition = "inline" if is_shown else "attachment"
    return {
        **HARMLESS,
        "Content-Type": served_type(file.content_type),
        "Content-Disposition": f"{disposition}; filename=\"{plain}\"; filename*=UTF-8''{name}",
        "Accept-Ranges": "bytes",
        "ETag": _etag(file),
    }


def _etag(file: Attachment) -> str:
    return f'"{file.sha256}"'
