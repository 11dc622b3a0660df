"""Bodies of what is asked for about files that messages refer to."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from parley.model import AttachedFile
from parley.wire import limits
from parley.wire.request_body import RequestBody

FileName = Annotated[str, Meta(min_length=1, max_length=limits.ATTACHMENT_NAME_CHARS_MAX)]
FileSize = Annotated[int, Meta(ge=1, le=limits.SEQUENCE_MAX)]
FileType = Annotated[str, Meta(min_length=3, max_length=limits.CONTENT_TYPE_CHARS_MAX)]


class NewAttachment(RequestBody):
    """A file that is going to be uploaded. `sha256`: of its bytes, in hexadecimal digits, to be compared."""

    name: FileName
    size: FileSize
    content_type: FileType = "application/octet-stream"
    sha256: str = ""


class AttachmentUpload(Struct):
    """How far an upload is, and where it goes on: send the bytes from `received` on to `upload_url`."""

    attachment_id: str
    upload_url: str
    expires_at: str
    part_bytes: int
    received: int


class AttachmentProgress(Struct):
    """How much of an upload is stored. `attachment`: once all of it is."""

    attachment_id: str
    size: int
    received: int
    attachment: AttachedFile | UnsetType = UNSET


class AttachmentInfo(Struct):
    """A file. With all its bytes it has `attachment` and `url`; before that, for its owner, `upload`."""

    attachment_id: str
    status: Literal["uploading", "complete", "attached"]
    attachment: AttachedFile | UnsetType = UNSET
    url: str | UnsetType = UNSET
    expires_at: str | UnsetType = UNSET
    upload: AttachmentUpload | UnsetType = UNSET
    pictures: dict[str, str] | UnsetType = UNSET
