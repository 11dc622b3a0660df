"""The hash of a log as docs/PROTOCOL.md defines it, written again with the standard library alone."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from parley.store.ports import Log
from parley.wire.frames import Entry

FILE_FIELDS = (
    *("attachment_id", "name", "size", "content_type", "sha256"),
    *("width", "height", "preview"),
)

Fields = dict[str, Any]


def replayed(chat_id: str, positions: Sequence[Fields | None]) -> list[bytes]:
    """The hash at 0 and at each position; an entry as the fields that travel, None for a void."""
    hashes = [_sha256(_text(["parley log", 1, chat_id])).digest()]
    for sequence, entry in enumerate(positions, 1):
        fixed = [sequence] if entry is None else _fixed(entry)
        hashes.append(_sha256(hashes[-1] + _text(fixed)).digest())
    return hashes


def _fixed(entry: Fields) -> list[object]:
    names = ("sequence", "kind", "message_id", "sender_id", "client_message_id", "created_at", "display_time")
    body = [entry["content_type"], entry.get("mentions", []), entry["content"]]
    if entry.get("attachments"):
        body.append([[file.get(name) for name in FILE_FIELDS] for file in entry["attachments"]])
    digest = entry.get("body_digest") or _sha256(_text(body)).hexdigest()
    about = [entry.get("reply_to"), entry.get("target_id"), entry.get("on")]
    return [*(entry[name] for name in names), digest, *(about if about != [None] * 3 else [])]


def _text(fields: Sequence[object]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def _sha256(data: bytes) -> Any:
    return hashlib.sha256(data)


def as_fields(entry: Entry | None) -> Fields | None:
    """An entry as it travels."""
    return None if entry is None else json.loads(msgspec.json.encode(entry))


async def replayed_log(log: Log, chat_id: str) -> list[bytes]:
    """The hash at 0 and at each position of a stored log."""
    positions: list[Fields | None] = []
    while True:
        page = await log.read(chat_id, len(positions), 1_000)
        entries = {fields["sequence"]: fields for fields in map(json.loads, page.entries)}
        positions += [entries.get(at) for at in range(page.from_sequence, page.to_sequence + 1)]
        if page.complete:
            return replayed(chat_id, positions)
