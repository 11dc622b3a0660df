"""The hash of a log: one value that follows from every position up to a number. Pure.

The hash at 0 names the chat. The hash at n is the SHA-256 of the hash at n - 1 and of what never changes
about the position n. A body counts by its digest, so an entry whose body was removed still counts. Two logs
with the same hash at n hold the same up to n. docs/PROTOCOL.md defines it for other SDKs, docs/proof.md says
who uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

import msgspec
from msgspec import UNSET, Struct

from parley.model import AttachedFile, Draft
from parley.wire.codec import decode_entry
from parley.wire.frames import Entry

VERSION = 1
"""Another way to compute it gets another number. Who does not know a version does not compare."""
PREFIX = f"{VERSION}:"
HASH_BYTES = 32

_encode = msgspec.json.Encoder().encode


class LogHash(Struct, frozen=True):
    """The hash of a chat's log, in one epoch, up to and with a position."""

    epoch: int
    sequence: int
    value: bytes


class StoredHash(Struct, frozen=True, kw_only=True):
    """A `LogHash` with its chat, as it is stored."""

    chat_id: str
    epoch: int
    sequence: int
    value: bytes


def empty_log(chat_id: str) -> bytes:
    """The hash at 0."""
    return sha256(_encode(("parley log", VERSION, chat_id))).digest()


def body_digest(entry: Entry) -> str:
    """What stands for an entry's body: its digest, or the one that was kept when the body was replaced."""
    if entry.body_digest is not UNSET:
        return entry.body_digest
    return digest_of(entry.content_type, entry.mentions or [], entry.content, entry.attachments or [])


def draft_digest(draft: Draft) -> str:
    """The digest of the body that a draft will have in the log."""
    return digest_of(draft.content_type, draft.mentions, draft.content, draft.files)


def digest_of(
    content_type: str, mentions: Sequence[str], content: str, files: Sequence[AttachedFile] = ()
) -> str:
    """The digest of a body. Files count by their own digests, and with all that an entry says of them."""
    body: tuple[object, ...] = (content_type, mentions, content)
    if files:
        body += ([_fixed_of(file) for file in files],)
    return sha256(_encode(body)).hexdigest()


def _fixed_of(file: AttachedFile) -> tuple[object, ...]:
    return (
        file.attachment_id,
        file.name,
        file.size,
        file.content_type,
        file.sha256,
        file.width or None,
        file.height or None,
        file.preview or None,
    )


def after_entry(previous: bytes, entry: Entry) -> bytes:
    """The hash with this entry, which is at the next position."""
    fixed: tuple[object, ...] = (
        entry.sequence,
        entry.kind,
        entry.message_id,
        entry.sender_id,
        entry.client_message_id,
        entry.created_at,
        entry.display_time,
        body_digest(entry),
    )
    if entry.target_id or entry.reply_to or entry.on is not UNSET:
        fixed += (entry.reply_to or None, entry.target_id or None, None if entry.on is UNSET else entry.on)
    return sha256(previous + _encode(fixed)).digest()


def after_void(previous: bytes, sequence: int) -> bytes:
    """The hash with a void, which is at the next position."""
    return sha256(previous + _encode((sequence,))).digest()


def without_body(entry: Entry) -> Entry:
    """The entry as it stays when its body is removed for good: the hash of the log does not change."""
    return msgspec.structs.replace(
        entry, content="", mentions=UNSET, attachments=UNSET, body_digest=body_digest(entry)
    )


def following(previous: bytes, after: int, stored: Sequence[bytes], voids: Iterable[int]) -> list[bytes]:
    """The hashes at the positions after `after`: entries as they are stored, and voids, both ascending.

    Together they must be contiguous, as a page of the log is. `msgspec.DecodeError` if one cannot be read.
    """
    empty = frozenset(voids)
    entries = iter(stored)
    hashes = []
    for sequence in range(after + 1, after + 1 + len(stored) + len(empty)):
        if sequence in empty:
            previous = after_void(previous, sequence)
        else:
            previous = after_entry(previous, decode_entry(next(entries)))
        hashes.append(previous)
    return hashes


def shown(value: bytes) -> str:
    """As it travels: the version, a colon, 64 hexadecimal digits."""
    return PREFIX + value.hex()


def read_shown(text: str) -> bytes | None:
    """The hash in a frame; None if it is of a version that this program does not know."""
    return bytes.fromhex(text[len(PREFIX) :]) if text.startswith(PREFIX) else None
