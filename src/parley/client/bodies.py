"""What the server answers over HTTP, typed."""

from __future__ import annotations

from msgspec import Struct

from parley.core.receipts import Seen, Status
from parley.model import ChatType, Mark, Privacy, ReadReceipts, Role
from parley.wire.frames import Entry, OverviewChat, PresenceView


class Account(Struct):
    user_id: str


class Login(Struct):
    """A session of a device; the token is shown this once."""

    token: str
    user_id: str
    session_id: str
    expires_at: str


class SessionInfo(Struct):
    session_id: str
    device_id: str
    current: bool = False


class Sessions(Struct):
    sessions: list[SessionInfo]


class Device(Struct):
    """A device that may speak for the person."""

    device_id: str
    device_name: str
    last_used_at: str
    current: bool
    sessions: int


class Devices(Struct):
    devices: list[Device]


class Me(Struct):
    """One's own profile and settings."""

    user_id: str
    username: str
    display_name: str
    about: str
    last_seen_privacy: Privacy
    send_read_receipts: bool


class Profile(Struct):
    """Somebody, as far as one may see them. `last_seen`: "unavailable" if one may not."""

    user_id: str
    username: str
    display_name: str
    about: str
    status: str
    last_seen: str | None


class Related(Struct):
    """A contact, or somebody who is blocked."""

    user_id: str
    username: str
    display_name: str
    since: str


class RelatedPage(Struct):
    """Contacts or blocks, whichever was asked for."""

    next_after: str | None
    contacts: list[Related] = []
    blocks: list[Related] = []


class PresenceList(Struct):
    presences: list[PresenceView]


class ChatInfo(Struct):
    chat_id: str
    type: ChatType
    title: str | None
    created_by: str
    created_at: str
    updated_at: str
    epoch: int
    head: int
    role: Role
    member_count: int
    read_receipts: ReadReceipts = ReadReceipts.FULL
    muted: bool = False
    muted_until: str | None = None


class ChatList(Struct):
    chats: list[OverviewChat]
    token: str
    complete: bool


class MemberInfo(Struct):
    user_id: str
    role: Role
    joined_at: str
    joined_sequence: int
    username: str = ""
    display_name: str = ""
    status: str = "offline"
    last_seen: str | None = None


class MemberList(Struct):
    members: list[MemberInfo]
    next_after: str | None


class Receipts(Struct):
    """Who has received and read one message; `member_count` are those it was for."""

    sequence: int
    member_count: int
    mode: ReadReceipts
    status: Status
    delivered: list[Seen]
    read: list[Seen]


class ChatMarks(Struct):
    """How far every member is. `read_by_anybody`: how far others are, in a chat that does not say who."""

    mode: ReadReceipts
    marks: list[Mark]
    read_by_anybody: int = 0


class SendFound(Struct):
    """Where a message of one's own is stored."""

    message_id: str
    sequence: int
    epoch: int
    created_at: str


class History(Struct):
    """A stretch of a log, ascending, as a page read over HTTP."""

    entries: list[Entry]
    voids: list[int]
    from_sequence: int
    to_sequence: int
    head: int


class Problem(Struct):
    code: str
    reason: str
    temporary: bool
    retry_after_ms: int | None = None
