"""Bodies of what operators see of chats, and do to them."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from parley.model import AccountState, ChatType, ReadReceipts, Role
from parley.wire import limits
from parley.wire.bodies import (
    DeadLetterFilter,
    DeadLetterGroup,
    FanoutInfo,
    JobRun,
    PushDeviceInfo,
    UserSession,
)
from parley.wire.people_bodies import ErasureInfo, ReportInfo, ReportNote, ReportOutcome, UserInfo
from parley.wire.request_body import RequestBody

ActionReason = Annotated[str, Meta(min_length=1, max_length=limits.REPORT_REASON_CHARS_MAX)]


class PersonOfChat(Struct):
    """One of the two people of a direct chat."""

    user_id: str
    username: str
    display_name: str


class ListedChatInfo(Struct):
    """A line of the list of chats. `people`: those of a direct chat; empty in a group."""

    chat_id: str
    type: ChatType
    title: str | None
    people: list[PersonOfChat]
    member_count: int
    head: int
    created_at: str


class ListedChatPage(Struct):
    """A page of chats, the newest first; `next` is the `after` of the next page, null on the last one."""

    chats: list[ListedChatInfo]
    next: str | None


class ChatOverview(FanoutInfo, kw_only=True):
    """A chat with its counters and its rules, as operators see it."""

    people: list[PersonOfChat]
    created_by: str
    created_at: str
    last_at: str | None
    epoch: int
    head: int
    counter: int | None
    open_allocations: int
    voids: int
    counted_through: int
    gap_rate: float
    hash_upto: int
    retention: int | None
    is_held: bool
    open_to_join: bool
    read_receipts: ReadReceipts
    announcement_only: bool
    slow_mode_seconds: int
    edit_window_seconds: int


class DevicePosition(Struct):
    """How far a device is in a chat."""

    device_id: str
    last_acked_sequence: int
    lag: int
    last_used_at: str


class MemberPosition(Struct):
    """A member, and how far they and each of their devices are."""

    user_id: str
    username: str
    display_name: str
    state: AccountState
    is_bot: bool
    role: Role
    joined_at: str
    joined_sequence: int
    delivered_up_to: int
    read_up_to: int
    devices: list[DevicePosition]


class MemberPositionPage(Struct):
    """A page of members by `user_id`; `next` is the `after` of the next page, null on the last one."""

    members: list[MemberPosition]
    head: int
    next: str | None


class LogLine(Struct, kw_only=True):
    """An entry without what it says. `content`: only in an answer to `reveal`."""

    sequence: int
    kind: str
    message_id: str
    sender_id: str
    client_message_id: str | None
    created_at: str
    content_type: str
    size: int
    attachments: int = 0
    reply_to: str | None = None
    target_id: str | None = None
    edited_at: str | None = None
    deleted: bool = False
    content: str | UnsetType = UNSET


class LogLines(Struct):
    """A part of a log: each position from `from_sequence` to `to_sequence` is an entry or a void."""

    chat_id: str
    epoch: int
    head: int
    from_sequence: int
    to_sequence: int
    entries: list[LogLine]
    voids: list[int]


class DeletionReason(RequestBody):
    """Why an operator deletes something, for the audit log."""

    reason: ActionReason


class ChatDeletion(Struct):
    """A chat that a job deletes."""

    chat_id: str
    job_id: str


class RecoveryOrder(RequestBody):
    """Restore a lost counter. `seal_holes`: numbers whose entry is lost become voids, too."""

    dry_run: bool = True
    seal_holes: bool = False


class VoidRange(Struct):
    """Numbers that become void: from the first to the last."""

    first: int
    last: int


class RecoveryReport(Struct):
    """What a recovery found, and what it wrote or would write."""

    chat_id: str
    status: str
    applied: bool
    found: dict[str, int | None]
    counter: int | None
    voids: list[VoidRange]
    problems: list[str]


class PreviewOrder(RequestBody):
    """Which dead letters to look at: by id, or by a filter."""

    ids: list[str] | None = None
    filter: DeadLetterFilter | None = None


class DeadLetterPreview(Struct):
    """What a replay or a discard with this token concerns, and nothing newer."""

    matched: int
    token: str
    as_of: str
    chats: int
    oldest: str | None


class DeadLetterHour(Struct):
    """How many became dead letters in an hour, and when that began."""

    at: str
    count: int


class DeadLetterRecipient(Struct):
    """How many are for the same recipient."""

    recipient: str
    count: int


class DeadLetterSummary(Struct):
    """How many dead letters match, by what an operator looks for: the most first, hours in their order."""

    total: int
    errors: list[DeadLetterGroup]
    recipients: list[DeadLetterRecipient]
    hours: list[DeadLetterHour]


class DeadLetterJobInfo(Struct):
    """A replay or a discard, and what has become of its dead letters."""

    job_id: str
    action: str
    actor: str
    begun_at: str | None
    waiting: int
    replayed: int
    failed: int
    discarded: int


class DeadLetterJobList(Struct):
    """Replays and discards of which dead letters are left, the newest first."""

    jobs: list[DeadLetterJobInfo]


class ReportAction(RequestBody):
    """What to do about a report. Without an `outcome` it stays open."""

    reason: ActionReason
    outcome: ReportOutcome | None = None
    note: ReportNote = ""
    delete_message: bool = False
    remove_sender: bool = False
    disable_sender: bool = False


class ReportActed(Struct):
    """What was done about a report."""

    report: ReportInfo
    done: list[str]


class PushProviderInfo(Struct):
    """Who brings notifications to devices, and what became of them since each node started."""

    provider: str
    ready: bool
    outcomes: dict[str, int]


class PushState(Struct):
    """The providers of notifications. `silent`: nodes that did not say."""

    providers: list[PushProviderInfo]
    silent: list[str]


class BackupInfo(Struct):
    """A backup of this server, as its manifest says. `based_on`: the one whose parts it shares."""

    backup_id: str
    made_at: str
    version: str
    chats: int
    people: int
    entries: int
    files: int
    files_lacking: int
    size_bytes: int
    based_on: str | None


class BackupList(Struct):
    """The backups at `backup.target`, the newest first. `target` is null where none is set."""

    target: str | None
    backups: list[BackupInfo]
    damaged: list[str]


class PersonChat(Struct):
    """A chat of a person, and how far they are in it."""

    chat_id: str
    type: ChatType
    title: str | None
    role: Role | None
    head: int
    delivered_up_to: int
    read_up_to: int


class PersonDevice(Struct):
    """A device of a person that the server knows."""

    device_id: str
    last_used_at: str


class PersonInfo(UserInfo, kw_only=True):
    """A person with their chats, devices and sessions. `chats`: the newest of `chat_count`."""

    about: str
    chats: list[PersonChat]
    chat_count: int
    devices: list[PersonDevice]
    push_devices: list[PushDeviceInfo]
    sessions: list[UserSession]


class WebhookChange(RequestBody):
    """Pause a webhook, or let it go on."""

    paused: bool


class WebhookTest(Struct):
    """Whether a test has arrived; else why not."""

    arrived: bool
    error: str | None
    error_detail: str | None


class ErasureList(Struct):
    """What erasures have removed; `next` is the `before` of the next page, null on the last one."""

    erasures: list[ErasureInfo]
    next: str | None


class ConnectionInfo(Struct):
    """An open WebSocket of a node. `address`: the client's, as known proxies name it."""

    connection_id: str
    user_id: str
    device_id: str
    session_id: str
    codec: str
    live: bool
    chats: int
    heard_from_at: str
    waiting_bytes: int
    since: str
    address: str


class ConnectionList(Struct):
    """The connections of one node; `next` is the `after` of the next page, null on the last one."""

    node_id: str
    connections: list[ConnectionInfo]
    next: str | None


class Series(Struct):
    """Numbers of one node, each with the same times: the last one is `until`, the others before it."""

    node_id: str
    until: str
    step_seconds: float
    series: dict[str, list[float]]


class ReplayOrder(RequestBody):
    """Which dead letters to replay: by id, by a filter, or by the token of a preview."""

    ids: list[str] | None = None
    filter: DeadLetterFilter | None = None
    dry_run: bool = False
    token: str | None = None


class DiscardOrder(RequestBody):
    """Which dead letters to give up, and why."""

    reason: Annotated[str, Meta(min_length=1, max_length=limits.TITLE_CHARS_MAX)]
    ids: list[str] | None = None
    filter: DeadLetterFilter | None = None
    dry_run: bool = False
    token: str | None = None


class NodeState(Struct):
    """How a node is. `loop_delay_ms`: how long its event loop let others wait, when it was last measured."""

    node_id: str
    now_ms: int
    connections: int
    memory_bytes: int
    loop_delay_ms: float
    draining: bool
    store_available: bool
    lag: int
    webhooks_reached: dict[str, int] = {}
    rings: dict[str, dict[str, int]] = {}


class NodeInfo(Struct):
    """A node that is alive, and how it is. `silent`: why it does not say; then all after it is null.

    `clock_offset_ms`: its clock against that of the node that answers, half the time of the call taken off.
    """

    node_id: str
    url: str | None
    roles: list[str]
    since: str | None
    is_self: bool
    version: str | None
    silent: str | None = None
    connections: int | None = None
    memory_bytes: int | None = None
    loop_delay_ms: float | None = None
    draining: bool | None = None
    store_available: bool | None = None
    lag: int | None = None
    clock_offset_ms: int | None = None


class NodeList(Struct):
    """The nodes of the cluster; one on one machine."""

    nodes: list[NodeInfo]


class JobRuns(Struct):
    """The last runs of the jobs of a node, the newest first, by the job's name."""

    runs: dict[str, list[JobRun]]


class JobWanted(Struct):
    """A job that runs now."""

    name: str
    node: str


class NodeDrained(Struct):
    """A node that ends as soon as it has finished what it took."""

    node_id: str
