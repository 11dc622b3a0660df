"""The change that an entry records, read back from its content."""

from __future__ import annotations

import msgspec

from parley.core.message_actions import edit_window_in
from parley.model import Action, Change, Kind, Page, ReadReceipts, Role, StoredEntry
from parley.wire.codec import decode_entry
from parley.wire.frames import Entry


class Recorded(msgspec.Struct):
    action: Action
    user_id: str = ""
    role: Role = Role.MEMBER
    title: str = ""
    read_receipts: ReadReceipts | None = None
    announcement_only: bool | None = None
    slow_mode_seconds: int | None = None


def change_in(entry: Entry) -> Change | None:
    """What an entry of kind `member` or `chat` changed; None for every other entry.

    Nor is there one in an entry about the edit window: it is kept with the marks of messages.
    """
    if entry.kind not in (Kind.MEMBER.value, Kind.CHAT.value):
        return None
    if entry.kind == Kind.CHAT.value and edit_window_in(entry.content) is not None:
        return None
    recorded = msgspec.json.decode(entry.content, type=Recorded)
    return Change(**msgspec.structs.asdict(recorded))


def positions_of(page: Page) -> list[StoredEntry]:
    """The positions of a page of the log, with the changes that its entries record."""
    found = [StoredEntry(void, None) for void in page.voids]
    for wire in page.entries:
        entry = decode_entry(wire)
        found.append(StoredEntry(entry.sequence, wire, change_in(entry)))
    return sorted(found, key=lambda stored: stored.sequence)
