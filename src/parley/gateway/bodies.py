"""What HTTP requests and answers carry. The OpenAPI document is made from these very types."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from parley.core.receipts import Seen
from parley.model import Mark
from parley.wire import limits
from parley.wire.frames import OverviewChat, PresenceView

Title = Annotated[str, Meta(min_length=1, max_length=limits.TITLE_LETTERS_MAX)]
RoleName = Literal["owner", "admin", "member"]
PrivacyName = Literal["everyone", "contacts", "nobody"]
ReadReceiptsName = Literal["full", "simple", "none"]
StatusName = Literal["online", "offline"]


class Problem(Struct):
    """Every refusal: a stable code, a reason for people, and whether a retry helps."""

    code: str
    reason: str
    temporary: bool
    retry_after_ms: int | UnsetType = UNSET


class NewAccount(Struct):
    username: str
    password: str


class Account(Struct):
    user_id: str
    username: str


class NewSession(Struct):
    username: str
    password: str
    device_id: str
    device_name: str = ""


class SessionGranted(Struct):
    token: str
    user_id: str
    session_id: str
    device_id: str
    expires_at: str


class SessionView(Struct):
    session_id: str
    device_id: str
    device_name: str
    last_used_at: str
    expires_at: str
    current: bool


class SessionList(Struct):
    sessions: list[SessionView]


class NewPassword(Struct):
    old_password: str
    new_password: str


class DeviceView(Struct):
    device_id: str
    device_name: str
    last_used_at: str
    sessions: int
    current: bool


class DeviceList(Struct):
    devices: list[DeviceView]


class Me(Struct):
    """Your profile and settings."""

    user_id: str
    username: str
    display_name: str
    about: str
    last_seen_privacy: PrivacyName
    send_read_receipts: bool


class Profile(Struct):
    """Somebody, as far as you may see them."""

    user_id: str
    username: str
    display_name: str
    about: str
    status: StatusName
    last_seen: str | None


class PersonView(Struct):
    """A contact, or somebody you have blocked."""

    user_id: str
    username: str
    display_name: str
    since: str


class ContactList(Struct):
    contacts: list[PersonView]
    next_after: str | None


class BlockList(Struct):
    blocks: list[PersonView]
    next_after: str | None


class Named(Struct):
    user_id: str


class Presences(Struct):
    presences: list[PresenceView]


class ProfileChange(Struct):
    display_name: Annotated[str, Meta(min_length=1, max_length=limits.DISPLAY_NAME_LETTERS_MAX)] | None = None
    about: Annotated[str, Meta(max_length=limits.ABOUT_LETTERS_MAX)] | None = None
    last_seen_privacy: PrivacyName | None = None
    send_read_receipts: bool | None = None


class NewChat(Struct):
    type: Literal["direct", "group"]
    member_ids: Annotated[list[str], Meta(max_length=limits.CHAT_MEMBERS_MAX)]
    title: Title | None = None
    open_to_join: bool = False


class ChatView(Struct):
    chat_id: str
    type: Literal["direct", "group"]
    title: str | None
    created_by: str
    created_at: str
    updated_at: str
    epoch: int
    head: int
    role: RoleName
    member_count: int
    open_to_join: bool
    read_receipts: ReadReceiptsName
    muted: bool
    muted_until: str | None


class ChatChange(Struct):
    """`muted_until` is yours alone: a time, or null to hear of the chat again."""

    title: Title | None = None
    read_receipts: ReadReceiptsName | None = None
    muted_until: str | UnsetType | None = UNSET


class ChatList(Struct):
    chats: list[OverviewChat]
    token: str
    complete: bool


class NewMember(Struct):
    user_id: str = ""
    user_ids: list[str] = []
    role: RoleName = "member"


class MemberView(Struct):
    user_id: str
    role: RoleName
    joined_at: str
    joined_sequence: int
    username: str
    display_name: str
    status: StatusName
    last_seen: str | None


class MemberList(Struct):
    members: list[MemberView]
    next_after: str | None


class MemberChange(Struct):
    role: RoleName


class Changed(Struct):
    """A change of a chat and the position of its entry."""

    chat_id: str
    sequence: int
    message_id: str
    user_id: str | UnsetType = UNSET


class NewMessage(Struct):
    client_message_id: str
    content: str
    content_type: str = "text/plain"
    display_time: str | None = None
    after_client_message_id: str | None = None


class Receipt(Struct):
    """The answer to a send: where the message is in the log."""

    chat_id: str
    client_message_id: str
    message_id: str
    sequence: int
    epoch: int
    created_at: str
    deduplicated: bool
    conflict: bool


class Batch(Struct):
    """A page of a chat's log: every number in from_sequence..to_sequence is an entry or in `voids`."""

    chat_id: str
    epoch: int
    entries: list[Raw]
    voids: list[int]
    from_sequence: int
    to_sequence: int
    head: int
    complete: bool
    reset: bool


class ReceiptList(Struct):
    """Who has received and read one message; `member_count` are those it was for."""

    sequence: int
    member_count: int
    mode: ReadReceiptsName
    status: Literal["sent", "delivered", "read"]
    delivered: list[Seen]
    read: list[Seen]


class MarkList(Struct):
    """What you may not see is 0. `read_by_anybody`: how far others are, in a chat that does not say who."""

    mode: ReadReceiptsName
    marks: list[Mark]
    read_by_anybody: int


class SendFound(Struct):
    """What became of a message."""

    status: Literal["stored"]
    chat_id: str
    client_message_id: str
    message_id: str
    sequence: int
    epoch: int
    created_at: str


class Health(Struct):
    status: str
