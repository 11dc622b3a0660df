"""Files that messages refer to: what is known about one, and what may be done with it when. Pure.

    uploading → complete → claimed → attached
        ╰──────────┴──────────┴─────────┴──→ removing → gone

`claimed`: a message that refers to it is being sent. `attached`: it is in the log; the sweep looks at all
others. `removing` is written before the message loses its reference, and the bytes are deleted after that: a
crash leaves no message that refers to missing bytes, and the sweep finds what is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any
from zlib import crc32

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from parley.core.images import IMAGE_TYPES
from parley.core.shown_text import shown_text
from parley.errors import BAD_REQUEST, TOO_LARGE, UNSUPPORTED_MEDIA, Refusal
from parley.model import AttachedFile
from parley.wire.frames import Entry
from parley.wire.limits import (
    ATTACHMENT_NAME_CHARS_MAX,
    ATTACHMENT_PART_BYTES,
    CONTENT_TYPE_CHARS_MAX,
    KIB,
)

CHARGED_BYTES_MIN = 64 * KIB
"""A smaller file counts as much: so the room that a person has also bounds how many files they have."""
MARGIN_MS = 10 * 60_000
"""So long after its end an upload may still be writing: a request under way, clocks that differ."""
SETTLE_MS = 60_000
"""A message whose send takes longer than this was stored, or its sender is gone."""
SHA256_DIGITS = 64
PART_DIGITS = 6

SHA256 = re.compile(rf"[0-9a-f]{{{SHA256_DIGITS}}}")
MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")
OCTETS = "application/octet-stream"
MAGIC: dict[str, tuple[tuple[int, bytes], ...]] = {
    "audio/mpeg": ((0, b"ID3"), (0, b"\xff\xfb"), (0, b"\xff\xf3"), (0, b"\xff\xf2")),
    "audio/ogg": ((0, b"OggS"),),
    "audio/wav": ((8, b"WAVE"),),
    "video/mp4": ((4, b"ftyp"),),
    "video/webm": ((0, b"\x1a\x45\xdf\xa3"),),
}
"""How the other types begin that a browser may show: place and bytes."""
HEAD_BYTES = 64
"""So much of a file is enough to compare with `MAGIC`."""
INERT_TYPES = frozenset({*IMAGE_TYPES.values(), *MAGIC})
"""Types that a browser shows or plays and never runs. Everything else is only downloaded."""
NAMELESS = "file"
UNSAFE_IN_NAMES = frozenset('/\\<>:"|?*')

NO_NAME = BAD_REQUEST.because(f"name must be 1 to {ATTACHMENT_NAME_CHARS_MAX} characters")
NO_SIZE = BAD_REQUEST.because("size must be at least 1")
NO_TYPE = BAD_REQUEST.because("content_type must be a media type such as image/png")
NO_SHA256 = BAD_REQUEST.because(f"sha256 must be {SHA256_DIGITS} hexadecimal digits")
TYPE_REFUSED = UNSUPPORTED_MEDIA.because("files of this type are not taken here")


class AttachmentState(StrEnum):
    UPLOADING = "uploading"
    COMPLETE = "complete"
    CLAIMED = "claimed"
    ATTACHED = "attached"
    REMOVING = "removing"


UNSETTLED_SHARDS = 8
"""Files that the sweep must look at are listed under so many names, so that no one of them gets hot."""


class AttachmentLine(Struct, frozen=True, kw_only=True):
    """A line of a list of files. `since_ms`: when it was written."""

    list: str
    attachment_id: str
    chat_id: str
    user_id: str
    since_ms: int
    charge: int = 0


def user_list(user_id: str) -> str:
    """The list of a person's files."""
    return f"user {user_id}"


def unsettled_list(attachment_id: str) -> str:
    """The list on which a file is while the sweep must look at it."""
    return unsettled_shard(crc32(attachment_id.encode()) % UNSETTLED_SHARDS)


def unsettled_shard(shard: int) -> str:
    return f"unsettled {shard}"


class Attachment(Struct, frozen=True, kw_only=True):
    """What a store keeps about one file. `since_ms`: since when it is in its state.

    `sha256`: as announced, or empty; computed once it is complete. `content_type`: as announced; what is not
    what it says becomes `application/octet-stream`. `client_key` and `sequence`: the message that has it.
    """

    chat_id: str
    attachment_id: str
    user_id: str
    name: str
    size: int
    content_type: str
    sha256: str
    state: AttachmentState
    created_at_ms: int
    since_ms: int
    upload_until_ms: int
    width: int = 0
    height: int = 0
    preview: str = ""
    client_key: bytes = b""
    sequence: int = 0

    @property
    def is_settled(self) -> bool:
        """Whether the sweep has nothing to look for."""
        return self.state is AttachmentState.ATTACHED

    @property
    def charge(self) -> int:
        """How much of its owner's room it takes."""
        return max(self.size, CHARGED_BYTES_MIN)

    @property
    def lists(self) -> list[str]:
        """Those on which it must be."""
        names = [user_list(self.user_id)]
        return names if self.is_settled else [*names, unsettled_list(self.attachment_id)]

    @property
    def part_count(self) -> int:
        return len(part_sizes(self.size))

    def part_bytes(self, number: int) -> int:
        """The size of a part; all but the last one have the same."""
        return min(ATTACHMENT_PART_BYTES, self.size - number * ATTACHMENT_PART_BYTES)

    @property
    def file(self) -> AttachedFile:
        """As it stands in an entry."""
        return AttachedFile(
            attachment_id=self.attachment_id,
            name=self.name,
            size=self.size,
            content_type=self.content_type,
            sha256=self.sha256,
            width=self.width or UNSET,
            height=self.height or UNSET,
            preview=self.preview or UNSET,
        )

    def moved(self, state: AttachmentState, now_ms: int, **changed: Any) -> Attachment:
        return replace(self, state=state, since_ms=now_ms, **changed)


# Announcing


class AttachmentRules(Struct, frozen=True, kw_only=True):
    """What a server takes. A type is named whole, or as `image/*`; `*/*` is every type."""

    bytes_max: int
    types_allowed: tuple[str, ...]
    types_denied: tuple[str, ...]

    def refusal(self, name: str, size: int, content_type: str, sha256: str) -> Refusal | None:
        """Why a file with a clean name and type is not taken; None if it is."""
        if not name:
            return NO_NAME
        if size < 1:
            return NO_SIZE
        if size > self.bytes_max:
            return TOO_LARGE.because(f"a file has at most {self.bytes_max} bytes")
        if not MEDIA_TYPE.fullmatch(content_type):
            return NO_TYPE
        if sha256 and not SHA256.fullmatch(sha256):
            return NO_SHA256
        if _is_among(content_type, self.types_denied) or not _is_among(content_type, self.types_allowed):
            return TYPE_REFUSED
        return None


def _is_among(content_type: str, patterns: Iterable[str]) -> bool:
    family = content_type.partition("/")[0]
    return any(pattern in (content_type, f"{family}/*", "*/*") for pattern in patterns)


def clean_name(name: str) -> str:
    """A name that is one part of a path on every system, and shows as what it is; empty if it is too long.

    What turns the direction of text goes: by it a program looks like a picture.
    """
    if len(name) > ATTACHMENT_NAME_CHARS_MAX:
        return ""
    shown = shown_text(name)
    cleaned = "".join("_" if char in UNSAFE_IN_NAMES else char for char in shown).strip(" .")
    return cleaned or (NAMELESS if name else "")


def clean_type(content_type: str) -> str:
    """A media type without parameters, in small letters."""
    return content_type[:CONTENT_TYPE_CHARS_MAX].partition(";")[0].strip().lower()


# What it is


def seen_type(declared: str, image_format: str | None, head: bytes) -> str:
    """The type of an uploaded file. One that browsers show must be what it says, else it is just bytes."""
    if declared in IMAGE_TYPES.values():
        return declared if IMAGE_TYPES.get(image_format or "") == declared else OCTETS
    if declared in MAGIC:
        fits = any(head[place : place + len(begin)] == begin for place, begin in MAGIC[declared])
        return declared if fits else OCTETS
    return declared


def served_type(content_type: str) -> str:
    """What a browser is told: a type that it never runs."""
    return content_type if content_type in INERT_TYPES else OCTETS


# Parts


def part_key(attachment_id: str, number: int) -> str:
    """The name of a part in an object store."""
    return f"{attachment_id}/{number:0{PART_DIGITS}}"


def part_sizes(size: int) -> list[int]:
    """Those of the parts of a file; all but the last one have the same."""
    whole, rest = divmod(size, ATTACHMENT_PART_BYTES)
    return [ATTACHMENT_PART_BYTES] * whole + ([rest] if rest else [])


# Uploading


def next_part(attachment: Attachment, stored: Sequence[tuple[int, int]]) -> int:
    """How many parts are there without a hole, of those that are stored: number and size of each."""
    sizes, number = dict(stored), 0
    while number < attachment.part_count and sizes.get(number) == attachment.part_bytes(number):
        number += 1
    return number


def is_whole_range(attachment: Attachment, start: int, end: int) -> bool:
    """Whether the bytes from `start` to before `end` are whole parts."""
    return (
        0 <= start < end <= attachment.size
        and start % ATTACHMENT_PART_BYTES == 0
        and (end % ATTACHMENT_PART_BYTES == 0 or end == attachment.size)
    )


# Sending


def may_claim(attachment: Attachment | None, chat_id: str, user_id: str, client_key: bytes) -> bool:
    """Whether a message of this person may refer to it: it is theirs, complete, and of no other message."""
    if attachment is None or (attachment.chat_id, attachment.user_id) != (chat_id, user_id):
        return False
    if attachment.state is AttachmentState.COMPLETE:
        return True
    is_same = attachment.client_key == client_key
    return is_same and attachment.state in (AttachmentState.CLAIMED, AttachmentState.ATTACHED)


def files_of(entry: Entry | None) -> list[str]:
    """The ids of the files that an entry refers to."""
    return [file.attachment_id for file in entry.attachments or ()] if entry is not None else []


# Sweeping


class Found(StrEnum):
    """What became of the message that refers to a file."""

    UNKNOWN = "unknown"
    """There is none, or nobody looked."""
    HERE = "here"
    WITHOUT = "without"
    """It is there, and refers to it no more."""


def needs_message(attachment: Attachment, now_ms: int) -> bool:
    """Whether the sweep must look for the message first."""
    is_due = now_ms - attachment.since_ms > SETTLE_MS
    return is_due and attachment.state in (AttachmentState.CLAIMED, AttachmentState.REMOVING)


def decide_sweep(
    attachment: Attachment, found: Found, now_ms: int, unused_ms: int
) -> AttachmentState | UnsetType | None:
    """The next state of a file; UNSET if its bytes and it go now; None if it stays as it is."""
    state, age_ms = attachment.state, now_ms - attachment.since_ms
    if state is AttachmentState.UPLOADING:
        return AttachmentState.REMOVING if now_ms > attachment.upload_until_ms + MARGIN_MS else None
    if state is AttachmentState.COMPLETE:
        return AttachmentState.REMOVING if age_ms > unused_ms else None
    if age_ms <= SETTLE_MS or state is AttachmentState.ATTACHED:
        return None
    if state is AttachmentState.REMOVING:
        return AttachmentState.ATTACHED if found is Found.HERE else UNSET
    if found is Found.HERE:
        return AttachmentState.ATTACHED
    is_over = found is Found.WITHOUT or age_ms > unused_ms
    return AttachmentState.REMOVING if is_over else None


def line_of(name: str, attachment: Attachment, now_ms: int) -> AttachmentLine:
    return AttachmentLine(
        list=name,
        attachment_id=attachment.attachment_id,
        chat_id=attachment.chat_id,
        user_id=attachment.user_id,
        since_ms=now_ms,
        charge=attachment.charge,
    )
