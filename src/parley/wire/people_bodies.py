"""Bodies about people: links of operators, reports of messages, deletions and erasures."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from parley.model import AccountState, ErasedChat, ReportStatus
from parley.wire import limits
from parley.wire.frames import Entry
from parley.wire.request_body import RequestBody

LinkNote = Annotated[str, Meta(max_length=limits.LINK_NOTE_CHARS_MAX)]
Reason = Annotated[str, Meta(min_length=1, max_length=limits.REPORT_REASON_CHARS_MAX)]
ReportOutcome = Annotated[str, Meta(min_length=1, max_length=limits.REPORT_OUTCOME_CHARS_MAX)]
ReportNote = Annotated[str, Meta(max_length=limits.REPORT_NOTE_CHARS_MAX)]


class UserInfo(Struct):
    """A person, as operators see them."""

    user_id: str
    username: str
    display_name: str
    state: AccountState
    is_operator: bool
    created_at: str
    last_seen: str | None
    is_bot: bool = False
    external_id: str | None = None


class DeletedUser(UserInfo):
    """A person whose account is deleted. `job_id`: the job that removes what they wrote; null without one."""

    job_id: str | None = None


class RetentionChange(RequestBody):
    """How long the bodies of a chat are kept. `days`: null for the server's own, 0 for ever.

    `is_held`: under a legal hold nothing of the chat is removed.
    """

    days: Annotated[int, Meta(ge=0)] | None = None
    is_held: bool = False


class UserInfoPage(Struct):
    """A page of people; `next_after` is the `after` of the next page, null on the last one; so is `next`."""

    users: list[UserInfo]
    next_after: str | None
    next: str | None = None


class OwnDeletion(RequestBody):
    """Your password, if you have one here."""

    password: str = ""


class OwnDeleted(Struct):
    """Your account is deleted. `job_id`: the job that removes what you wrote; null without one."""

    user_id: str
    job_id: str | None = None


class ErasureInfo(Struct):
    """What the erasure of a person has removed, so far or at last. `finished_at`: null until it is done.

    `hot` and `cold`: bodies in the engine and in the cold tier, `chats` the same by chat.
    """

    user_id: str
    begun_at: str
    finished_at: str | None
    hot: int
    cold: int
    chats: list[ErasedChat]
    chats_left_out: int
    cursors: int
    devices: int
    reports: int


# Links


class NewInvite(RequestBody):
    """A link to make: how many people may register by it, and for how long it works (7 days)."""

    uses: int = 1
    expires_in_seconds: int | None = None
    note: LinkNote = ""


class NewPasswordLink(RequestBody):
    """A link to make: for how long it works (a day)."""

    expires_in_seconds: int | None = None


class LinkInfo(Struct):
    """A link as operators see it, without its token. `state`: open, used, expired or revoked."""

    link_id: str
    state: str
    created_by: str
    created_at: str
    expires_at: str
    uses: int
    used_by: list[str]
    note: str = ""
    user_id: str | UnsetType = UNSET


class LinkMade(LinkInfo, kw_only=True):
    """A new link, shown this once. `path` is the same without the address of the server."""

    token: str
    url: str
    path: str


class LinkList(Struct):
    """Links, the newest first. `next` is the `before` of the next page, null on the last one."""

    invites: list[LinkInfo]
    next: str | None


class PasswordByLink(RequestBody):
    """The token of a link, and the password to set by it."""

    token: str
    new_password: str


# Reports


class NewReport(RequestBody):
    """What is wrong with a message, for the operators."""

    reason: Reason


class ReportMade(Struct):
    """A report of yours."""

    report_id: str
    chat_id: str
    message_id: str
    reason: str
    created_at: str


class ReportInfo(Struct):
    """A report as operators see it. `message`: as it is now; null if it is gone."""

    report_id: str
    status: ReportStatus
    chat_id: str
    message_id: str
    sequence: int
    sender_id: str
    reporter_id: str
    reason: str
    created_at: str
    message: Entry | None
    outcome: str | None = None
    note: str | None = None
    resolved_by: str | None = None
    resolved_at: str | None = None


class ReportList(Struct):
    """Reports about the newest messages first. `next` is the `before` of the next page, null on the last."""

    reports: list[ReportInfo]
    next: str | None


class ReportResolution(RequestBody):
    """What came of a report, in a word or two such as `dismissed`, and what other operators should know."""

    outcome: ReportOutcome
    note: ReportNote = ""
