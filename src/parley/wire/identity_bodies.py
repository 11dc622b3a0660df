"""Bodies of what programs and backends ask for over HTTP: tokens, people of other systems, hooks."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from parley.model import ChatType, Role, Scope
from parley.wire import limits
from parley.wire.request_body import RequestBody

DisplayName = Annotated[str, Meta(min_length=1, max_length=limits.DISPLAY_NAME_CHARS_MAX)]
About = Annotated[str, Meta(max_length=limits.ABOUT_CHARS_MAX)]
Title = Annotated[str, Meta(min_length=1, max_length=limits.TITLE_CHARS_MAX)]
TokenName = Annotated[str, Meta(min_length=1, max_length=limits.API_TOKEN_NAME_CHARS_MAX)]


class NewApiToken(RequestBody):
    """A token for a program. It acts for `user_id`, or for you. With `chat_id` it is for that chat alone."""

    name: TokenName
    scopes: list[Scope] = field(default_factory=lambda: [Scope.SEND, Scope.READ])
    user_id: str = ""
    chat_id: str = ""
    expires_in_days: int | None = None


class ApiTokenInfo(Struct):
    """What is known of a token; the token itself is not."""

    token_id: str
    name: str
    user_id: str
    scopes: list[Scope]
    created_at: str
    last_used_at: str | None
    expires_at: str | None
    chat_id: str | UnsetType = UNSET
    created_by: str | None = None


class ApiTokenMade(ApiTokenInfo, kw_only=True):
    """A new token, shown this once."""

    token: str


class ApiTokenList(Struct):
    """Every API token, the oldest first."""

    tokens: list[ApiTokenInfo]


class ExternalUser(RequestBody):
    """What your system says of a person; what is left out stays as it is. A username cannot be changed."""

    username: str | None = None
    display_name: DisplayName | None = None
    about: About | None = None
    is_bot: bool | None = None


class ExternalUserPut(Struct):
    """The account of a person of your system, and whether it is new."""

    user_id: str
    created: bool
    username: str


class NewUserToken(RequestBody):
    """A token for a device of a person. It ends after so many seconds, or 30 days after its last use."""

    device_id: str
    device_name: str = ""
    expires_in_seconds: int | None = None


class NewChatOfOthers(RequestBody):
    """A chat to create for others. `owner_id`: who owns it; the first of `member_ids` if it is left out."""

    type: ChatType
    member_ids: Annotated[list[str], Meta(min_length=1, max_length=limits.CHAT_MEMBERS_MAX)]
    title: Title | None = None
    owner_id: str = ""
    open_to_join: bool = False


class ChatOfOthers(Struct):
    """A chat that was created for others; `invited` are those who may not simply be added."""

    chat_id: str
    type: ChatType
    title: str | None
    created_by: str
    created_at: str
    created: bool
    invited: list[str]


class MemberPut(RequestBody):
    """What a person should be in a chat."""

    role: Role = Role.MEMBER


class MemberState(Struct):
    """What a person is in a chat now. `sequence`: where that was written; null if it was so before, or if the
    person was invited instead."""

    chat_id: str
    user_id: str
    role: Role
    sequence: int | None
    invited: bool


class MessageOnBehalf(RequestBody):
    """A message to send for a member of the chat."""

    sender_id: str
    content: str
    client_message_id: str = ""
    content_type: str = "text/plain"
    display_time: str | None = None
    mentions: list[str] = field(default_factory=list)


class HookMessage(RequestBody):
    """What to post to the chat of an incoming webhook."""

    text: Annotated[str, Meta(min_length=1)]
