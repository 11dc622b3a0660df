"""What HTTP requests and answers carry. The OpenAPI document is made from these very types."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from parley.wire import limits
from parley.wire.frames import OverviewChat

Title = Annotated[str, Meta(min_length=1, max_length=limits.TITLE_LETTERS_MAX)]
RoleName = Literal["owner", "admin", "member"]


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


class Profile(Struct):
    user_id: str
    username: str
    display_name: str
    about: str


class ProfileChange(Struct):
    display_name: Annotated[str, Meta(min_length=1, max_length=limits.DISPLAY_NAME_LETTERS_MAX)] | None = None
    about: Annotated[str, Meta(max_length=limits.ABOUT_LETTERS_MAX)] | None = None


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


class ChatChange(Struct):
    title: Title | None = None


class ListedChat(OverviewChat, kw_only=True):
    """One row of the chat list: the overview's numbers, and what a person reads."""

    type: Literal["direct", "group"]
    title: str | None
    last_entry: Raw | None


class ChatList(Struct):
    chats: list[ListedChat]
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
