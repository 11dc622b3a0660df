"""The change that an entry records, read back from its content."""

from __future__ import annotations

import msgspec

from parley.model import Action, Change, Kind, Role
from parley.wire.frames import Entry


class Recorded(msgspec.Struct):
    action: Action
    user_id: str = ""
    role: Role = Role.MEMBER
    title: str = ""


def change_in(entry: Entry) -> Change | None:
    """What an entry of kind `member` or `chat` changed; None for every other entry."""
    if entry.kind not in (Kind.MEMBER.value, Kind.CHAT.value):
        return None
    recorded = msgspec.json.decode(entry.content, type=Recorded)
    return Change(recorded.action, recorded.user_id, recorded.role, recorded.title)
