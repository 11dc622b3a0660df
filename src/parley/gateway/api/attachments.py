"""Files that messages refer to: announcing, finding and discarding them. Their bytes: `file_transfers`."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from parley.clock import iso
from parley.core.attachments import Attachment, AttachmentState
from parley.errors import (
    ATTACHMENT_USED,
    NO_SUCH_ATTACHMENT,
    NOT_A_MEMBER,
    QUOTA_EXCEEDED,
    TOO_LARGE,
    UNSUPPORTED_MEDIA,
    Refused,
)
from parley.files.renditions import SIDES, has_pictures
from parley.files.service import FileService
from parley.gateway.api.chats import CHAT
from parley.gateway.calls import Call
from parley.gateway.routes import Answer, Routes
from parley.gateway.services import ApiServices
from parley.model import Scope
from parley.sending.service import NO_FILES
from parley.wire.attachment_bodies import AttachmentInfo, AttachmentUpload, NewAttachment
from parley.wire.limits import ATTACHMENT_PART_BYTES

ATTACHMENTS = f"{CHAT}/attachments"
ATTACHMENT = f"{ATTACHMENTS}/{{attachment_id}}"
UPLOADS = "/v1/uploads"
FILES = "/v1/files"

routes = Routes("Attachments")


def files_of(services: ApiServices) -> FileService:
    """Refused where this server takes no files."""
    if services.files is None:
        raise Refused(NO_FILES)
    return services.files


@routes.route(
    "POST",
    ATTACHMENTS,
    "Announce a file",
    {201: AttachmentUpload},
    body=NewAttachment,
    refusals=(NOT_A_MEMBER, TOO_LARGE, QUOTA_EXCEEDED, UNSUPPORTED_MEDIA),
    scope=Scope.SEND,
    cost=2,
)
async def announce_attachment(call: Call) -> Answer:
    """Then send its bytes to `upload_url` by PUT, all of them or in ranges, and its id with a message. A file
    that no message refers to is removed after some time.
    """
    wanted = await call.body(NewAttachment)
    files = files_of(call.services)
    file = await files.uploads.announce(
        call.user_id, call.path("chat_id"), wanted.name, wanted.size, wanted.content_type, wanted.sha256
    )
    return 201, await _upload(call, files, file, 0)


async def _upload(call: Call, files: FileService, file: Attachment, received: int) -> AttachmentUpload:
    ends_at_ms = call.access.ends_at_ms if call.access is not None else None
    token, until_ms = await files.downloads.upload_token(file, call.me.session_id, ends_at_ms)
    return AttachmentUpload(
        attachment_id=file.attachment_id,
        upload_url=f"{UPLOADS}/{token}",
        expires_at=iso(until_ms),
        part_bytes=ATTACHMENT_PART_BYTES,
        received=received,
    )


@routes.route(
    "GET",
    ATTACHMENT,
    "A file, and an address to read it from",
    {200: AttachmentInfo},
    refusals=(NOT_A_MEMBER, NO_SUCH_ATTACHMENT),
    cost=2,
    scope=Scope.READ,
)
async def get_attachment(call: Call) -> Answer:
    """For members, once a message refers to it; for its owner also before, and with a token that may send an
    address to go on with the upload. `url` needs no token, and is valid
    until `expires_at`; it takes the header `Range`. `pictures` of an image are the same for a day, so
    browsers keep what they lead to.
    """
    files = files_of(call.services)
    file = await files.downloads.find(call.user_id, call.path("chat_id"), call.path("attachment_id"))
    if file.state is AttachmentState.UPLOADING:
        info = AttachmentInfo(file.attachment_id, "uploading")
        if call.access is not None and call.access.refusal(Scope.SEND, file.chat_id) is None:
            received = (await files.uploads.progress(file)).received
            info.upload = await _upload(call, files, file, received)
        return 200, info
    token, until_ms = await files.downloads.read_token(file)
    pictures: dict[str, str] | UnsetType = UNSET
    if has_pictures(file):
        picture = await files.downloads.picture_token(file)
        pictures = {str(side): f"{FILES}/{picture}?size={side}" for side in SIDES}
    return 200, AttachmentInfo(
        file.attachment_id,
        "complete" if file.state is AttachmentState.COMPLETE else "attached",
        attachment=file.file,
        url=f"{FILES}/{token}",
        expires_at=iso(until_ms),
        pictures=pictures,
    )


@routes.route(
    "DELETE",
    ATTACHMENT,
    "Discard a file of yours that no message refers to",
    {204: None},
    refusals=(NOT_A_MEMBER, NO_SUCH_ATTACHMENT, ATTACHMENT_USED),
    scope=Scope.SEND,
)
async def discard_attachment(call: Call) -> Answer:
    """Its bytes are gone, and the room that they took is free. A file of a message goes with the message."""
    files = files_of(call.services)
    file = await files.downloads.find(call.user_id, call.path("chat_id"), call.path("attachment_id"))
    await files.discard(call.user_id, file)
    return 204, None
