"""The bodies of HTTP requests and responses, for the server, the SDK and the OpenAPI document.

The response to a send is `frames.Receipt`, and a page of a log is `frames.Batch`: they have the fields of
the frames `ack` and `message_batch`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from parley.model import (
    AuditRecord,
    ChatType,
    DeliveryStatus,
    Fanout,
    JobOutcome,
    JobScope,
    MemberCursor,
    Notify,
    Privacy,
    QuietHours,
    ReadReceipts,
    Role,
    SeenBy,
    StepName,
)
from parley.wire import limits
from parley.wire.frames import Entry, OverviewChat, PresenceView
from parley.wire.request_body import RequestBody
from parley.wire.webhook_events import EventName

Title = Annotated[str, Meta(min_length=1, max_length=limits.TITLE_CHARS_MAX)]
Seconds = Annotated[int, Meta(ge=0, le=limits.WINDOW_SECONDS_MAX)]
OnlineStatus = Literal["online", "offline"]


class Problem(Struct):
    """Every refusal: a stable code, a reason for people, and whether a retry helps."""

    code: str
    reason: str
    temporary: bool
    retry_after_ms: int | UnsetType = UNSET


class Health(Struct):
    """The state of the server, in words."""

    status: str


# Accounts, sessions and devices


class NewAccount(RequestBody):
    """An account to create. `invite`: the token of an invitation link, where one is needed."""

    username: str
    password: str
    invite: str = ""


class Account(Struct):
    """An account that was created."""

    user_id: str
    username: str


class NewSession(RequestBody):
    """A login on one device."""

    username: str
    password: str
    device_id: str
    device_name: str = ""


class SessionGranted(Struct):
    """A new session of a device. The token is shown this once."""

    token: str
    user_id: str
    session_id: str
    device_id: str
    expires_at: str


class SessionInfo(Struct):
    """A session of yours; `current` marks the one that this token belongs to."""

    session_id: str
    device_id: str
    device_name: str
    last_used_at: str
    expires_at: str
    current: bool


class SessionList(Struct):
    """Your sessions."""

    sessions: list[SessionInfo]


class Device(Struct):
    """A device that may act for you, with the number of its sessions."""

    device_id: str
    device_name: str
    last_used_at: str
    sessions: int
    current: bool


class DeviceList(Struct):
    """Your devices, last used first."""

    devices: list[Device]


class NewPassword(RequestBody):
    """A change of your password."""

    old_password: str
    new_password: str


# Operators


class JobRun(Struct):
    """One run of a job that has ended."""

    started_at: str | None
    finished_at: str
    outcome: JobOutcome
    error: str | None


class JobInfo(Struct):
    """A background job: on one node, or, of the cluster, on the node that runs it.

    `runs` and `failures` count since that node started.
    """

    name: str
    scope: JobScope
    node: str
    interval_seconds: float | None
    last_started_at: str | None
    last_finished_at: str | None
    last_outcome: JobOutcome | None
    last_error: str | None
    next_run_at: str | None
    runs: int
    failures: int
    is_overdue: bool
    last_runs: list[JobRun] = []


class JobList(Struct):
    """Every job of every node."""

    jobs: list[JobInfo]


class GroupLag(Struct):
    """How far a group of consumers is behind."""

    group: str
    lag: int


class TopicInfo(Struct):
    """A topic, and the groups that consume it."""

    name: str
    partitions: int
    groups: list[GroupLag]


class TopicList(Struct):
    """The topics in use."""

    topics: list[TopicInfo]


class ServerOverview(Struct):
    """What a console shows first."""

    node_id: str
    version: str
    people: int
    chats: int
    connections: int
    nodes: int
    messages_per_second: float
    lag: int
    jobs_failing: int
    jobs_overdue: int
    store_available: bool
    ephemeral_available: bool
    bus_available: bool
    open_reports: int | None = None
    dead_letters: int | None = None


class PasswordReset(RequestBody):
    """A new password that an operator sets."""

    password: str


class UserSession(Struct):
    """A session of a person."""

    session_id: str
    device_id: str
    device_name: str
    created_at: str
    last_used_at: str
    expires_at: str


class UserSessionList(Struct):
    """The sessions of a person, last used first."""

    sessions: list[UserSession]


class AuditList(Struct):
    """A page of what operators did, newest first; `next` is the `before` of the next page."""

    records: list[AuditRecord]
    next: str | None


# Deliveries


class OriginalMessage(Struct):
    """The message that could not be delivered. `content` is null if it is not in the log any more."""

    msg_id: str
    sender: str
    recipient: str
    content: str | None
    timestamp: str


class DeadLetterInfo(Struct, kw_only=True):
    """A message that could not be delivered to one recipient."""

    dlq_id: str
    status: Literal["pending", "replayed", "permanently_failed"]
    original_message: OriginalMessage
    error: str
    error_detail: str
    retry_count: int
    first_attempt: str
    last_attempt: str
    dlq_timestamp: str
    source_topic: str
    source_partition: int
    source_offset: int
    chat_id: str
    sequence: int
    queued: bool
    job_id: str


class DeadLetterEvent(Struct):
    """Something that happened to it."""

    at: str
    action: str
    error: str
    detail: str
    actor: str


class DeadLetterStory(DeadLetterInfo, kw_only=True):
    """A dead letter with all that happened to it."""

    history: list[DeadLetterEvent]


class DeadLetterGroup(Struct):
    """How many have the same error."""

    error: str
    count: int


class DeadLetterPage(Struct):
    """A page of dead letters, newest message first, and how many match in all."""

    total: int
    groups: list[DeadLetterGroup]
    records: list[DeadLetterInfo]
    next: str | None


class DeadLetterFilter(RequestBody):
    """All that are given must hold."""

    status: Literal["pending", "replayed", "permanently_failed"] | None = None
    error: str | None = None
    topic: str | None = None
    chat_id: str | None = None
    recipient: str | None = None
    after: str | None = None
    before: str | None = None


class DeadLetterJob(Struct):
    """What was begun; without a job in a dry run."""

    matched: int
    job_id: str | None


class DeadLetterProgress(Struct):
    """How far a job is."""

    job_id: str
    waiting: int
    replayed: int
    failed: int


class NewWebhook(RequestBody):
    """An address for events, of every chat or of one."""

    url: str
    events: Annotated[list[EventName], Meta(min_length=1)]
    chat_id: str | None = None


class WebhookAdded(Struct):
    """The secret is shown only now."""

    webhook_id: str
    secret: str


class WebhookInfo(Struct):
    """A webhook, without its secret, and how it is: the last four are about one that does not answer."""

    webhook_id: str
    url: str
    events: list[str]
    chat_id: str | None
    created_at: str
    state: Literal["working", "failing", "paused"] = "working"
    failing_since: str | None = None
    paused_until: str | None = None
    last_error: str | None = None
    last_error_detail: str | None = None
    paused: bool = False
    waiting: int = 0
    waiting_chats: int = 0
    last_success_at: str | None = None


class WebhookList(Struct):
    """Every webhook."""

    webhooks: list[WebhookInfo]


# People


class Me(Struct):
    """Your profile and settings. Within `do_not_disturb` nothing notifies."""

    user_id: str
    username: str
    display_name: str
    about: str
    last_seen_privacy: Privacy
    send_read_receipts: bool
    who_may_add: Privacy = Privacy.EVERYONE
    do_not_disturb: QuietHours | None = None
    is_bot: bool = False
    is_operator: bool = False


class QuietHoursChange(RequestBody, rename={"starts": "from", "ends": "to"}):
    """When you want no notification: from one time of day (HH:MM) to another, in a time zone by its name."""

    starts: str
    ends: str
    timezone: str


class ProfileChange(RequestBody):
    """What to change in your profile and settings; a field that is null or left out stays as it is.

    `do_not_disturb` alone: null ends it.
    """

    display_name: Annotated[str, Meta(min_length=1, max_length=limits.DISPLAY_NAME_CHARS_MAX)] | None = None
    about: Annotated[str, Meta(max_length=limits.ABOUT_CHARS_MAX)] | None = None
    last_seen_privacy: Privacy | None = None
    send_read_receipts: bool | None = None
    who_may_add: Privacy | None = None
    do_not_disturb: QuietHoursChange | UnsetType | None = UNSET


class PushKeys(RequestBody):
    """Of a browser's subscription, in base64url."""

    p256dh: str
    auth: str


class PushSubscription(RequestBody):
    """What `PushManager.subscribe` gives in a browser, as JSON."""

    endpoint: str
    keys: PushKeys
    expires_ms: float | UnsetType | None = field(default=UNSET, name="expirationTime")


class NewPushDevice(RequestBody):
    """How a device is notified: by its `token`, or in browsers by its `subscription`.

    The `token` of a webhook is its URL. Without `preview` a notification says only that there is a message.
    """

    provider: Literal["apns", "fcm", "webpush", "webhook"]
    token: str | None = None
    subscription: PushSubscription | None = None
    preview: bool = True


class PushDeviceInfo(Struct):
    """A device that is notified. `secret`: what requests to a new webhook are signed with, shown once."""

    device_id: str
    provider: str
    preview: bool
    created_at: str
    secret: str | UnsetType = UNSET


class PushDeviceList(Struct):
    """Your devices that are notified."""

    devices: list[PushDeviceInfo]


class VapidPublicKey(Struct):
    """The `applicationServerKey` for `PushManager.subscribe`, in base64url."""

    public_key: str


class Profile(Struct):
    """A person, as far as you may see them. `last_seen` is "unavailable" if you may not."""

    user_id: str
    username: str
    display_name: str
    about: str
    status: OnlineStatus
    last_seen: str | None
    is_bot: bool = False


class NewRelation(RequestBody):
    """The person to add to your contacts or blocks."""

    user_id: str


class Related(Struct):
    """A contact of yours, or a person you have blocked."""

    user_id: str
    username: str
    display_name: str
    since: str


class ContactList(Struct):
    """A page of your contacts; `next_after` is the `after` of the next page, null on the last one."""

    contacts: list[Related]
    next_after: str | None


class BlockList(Struct):
    """A page of the people you have blocked; `next_after` as for contacts."""

    blocks: list[Related]
    next_after: str | None


class PresenceList(Struct):
    """Who is online, of the people you asked about."""

    presences: list[PresenceView]


# Chats and members


class NewChat(RequestBody):
    """A chat to create. You are its owner, whether `member_ids` names you or not."""

    type: ChatType
    member_ids: Annotated[list[str], Meta(max_length=limits.CHAT_MEMBERS_MAX)]
    title: Title | None = None
    open_to_join: bool = False


class ChatInfo(Struct):
    """A chat as you see it: `role`, `muted`, `muted_until` and `notify` are yours."""

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
    open_to_join: bool
    read_receipts: ReadReceipts
    muted: bool
    muted_until: str | None
    notify: Notify = Notify.ALL
    announcement_only: bool = False
    slow_mode_seconds: int = 0
    edit_window_seconds: int = 0
    added: list[str] | UnsetType = UNSET
    invited: list[str] | UnsetType = UNSET


class ChatChange(RequestBody):
    """What to change in a chat. `muted_until` and `notify` are settings of yours alone."""

    title: Title | None = None
    read_receipts: ReadReceipts | None = None
    muted_until: str | UnsetType | None = UNSET
    notify: Notify | None = None
    announcement_only: bool | None = None
    slow_mode_seconds: int | None = None
    edit_window_seconds: Seconds | UnsetType | None = UNSET


class FanoutChange(RequestBody):
    """What operators change of a chat. `fanout`: how its notifications are fanned out; null: by its size."""

    fanout: Fanout | UnsetType | None = UNSET
    title: Title | UnsetType = UNSET


class FanoutInfo(Struct):
    """A chat as operators see it. `fanout`: the strategy in use; `chosen`: null if the size decides."""

    chat_id: str
    type: ChatType
    title: str | None
    member_count: int
    fanout: Fanout
    chosen: Fanout | None


class ChatList(Struct):
    """A page of your chats; `token` is the next `changed_since`."""

    chats: list[OverviewChat]
    token: str
    complete: bool


class NewMember(RequestBody):
    """The person to add, or several in `user_ids`."""

    user_id: str = ""
    user_ids: list[str] = field(default_factory=list)
    role: Role = Role.MEMBER


class MemberInfo(Struct):
    """A member of a chat."""

    user_id: str
    role: Role
    joined_at: str
    joined_sequence: int
    username: str
    display_name: str
    status: OnlineStatus
    last_seen: str | None
    is_bot: bool = False


class MemberList(Struct):
    """A page of a chat's members; `next_after` is the `after` of the next page, null on the last one."""

    members: list[MemberInfo]
    next_after: str | None


class MemberChange(RequestBody):
    """The new role of a member."""

    role: Role


class AppendedChange(Struct):
    """Where a change of a chat is in its log."""

    chat_id: str
    sequence: int
    message_id: str
    user_id: str | UnsetType = UNSET


class MembersAdded(Struct):
    """Who was added, who was invited instead, and where the last addition is in the log.

    `sequence` and `message_id` are null if no person was added.
    """

    chat_id: str
    sequence: int | None
    message_id: str | None
    user_id: str
    added: list[str]
    invited: list[str]


class InvitationInfo(Struct):
    """An invitation to a chat. A name is null if the account is gone."""

    chat_id: str
    title: str | None
    role: Role
    user_id: str
    username: str | None
    by: str
    by_username: str | None
    by_display_name: str | None
    invited_at: str
    expires_at: str


class InvitationList(Struct):
    """A page of invitations; `next_after` is the `after` of the next page, null on the last one."""

    invitations: list[InvitationInfo]
    next_after: str | None


# Messages and receipts


class NewMessage(RequestBody, kw_only=True):
    """A message to send. Sent again with the same `client_message_id`, it is stored once."""

    client_message_id: str = ""
    content: str
    content_type: str = "text/plain"
    display_time: str | None = None
    after_client_message_id: str | None = None
    mentions: list[str] = field(default_factory=list)
    reply_to: str | UnsetType | None = UNSET
    attachments: list[str] | UnsetType = UNSET


class Reaction(Struct):
    """A reaction to a message, and who has it."""

    reaction: str
    count: int
    user_ids: list[str]


class OneMessage(Struct):
    """A message as it is now. `reply_count`: messages that answer it and were not deleted."""

    entry: Entry
    edited_at: str | None
    deleted: bool
    reactions: list[Reaction]
    reply_count: int


class SendFound(Struct):
    """Where a message of yours is stored."""

    status: Literal["stored"]
    chat_id: str
    client_message_id: str
    message_id: str
    sequence: int
    epoch: int
    created_at: str


class Receipts(Struct):
    """Who has received and read one message; `member_count` is the number of members it was for."""

    sequence: int
    member_count: int
    mode: ReadReceipts
    status: DeliveryStatus
    delivered: list[SeenBy]
    read: list[SeenBy]


class ChatMarks(Struct):
    """How far each member has received and read; 0 where you may not see it.

    `read_by_anybody` is how far others have read, in a chat that does not say who.
    """

    mode: ReadReceipts
    marks: list[MemberCursor]
    read_by_anybody: int


class TimelineStep(Struct):
    """One thing that happened to a message, or did not: then `step` is `skipped`, and `detail` says why."""

    at: str
    step: StepName
    node: str | UnsetType = UNSET
    user_id: str | UnsetType = UNSET
    device_id: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET


class MessageTimeline(Struct):
    """A message, and what became of it."""

    message_id: str
    chat_id: str
    sequence: int
    sender_id: str
    steps: list[TimelineStep]


class InvariantBreach(Struct):
    """An invariant that a chat breaks: what is wrong, where, and what to do about it."""

    invariant: str
    says: str
    remedy: str
    sequence: int | None


class ChatCheck(Struct):
    """What a check of a chat has read and found; `invariants` counts the breaches of each."""

    chat_id: str
    ok: bool
    entries: int
    voids: int
    open_allocations: int
    invariants: dict[str, int]
    breaches: list[InvariantBreach]
    breaches_not_listed: int
