"""The nouns of the domain, as values. `docs/GLOSSARY.md` says what each word means."""

from __future__ import annotations

from enum import StrEnum

from msgspec import UNSET, Struct, UnsetType

from parley.errors import Refusal


class Role(StrEnum):
    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"


class ChatType(StrEnum):
    DIRECT = "direct"
    GROUP = "group"


class Kind(StrEnum):
    """The kind of an entry. Clients skip kinds that they do not know."""

    MESSAGE = "message"
    MEMBER = "member"
    CHAT = "chat"
    EDIT = "edit"
    DELETE = "delete"
    REACTION = "reaction"


class Action(StrEnum):
    """What a change of a chat does."""

    JOINED = "joined"
    LEFT = "left"
    REMOVED = "removed"
    ROLE = "role"
    RENAMED = "renamed"
    READ_RECEIPTS = "read_receipts"
    POSTING = "posting"


class ReadReceipts(StrEnum):
    """What members of a chat see of its readers: each by name, whether there is one, or nothing."""

    FULL = "full"
    SIMPLE = "simple"
    NONE = "none"


class Privacy(StrEnum):
    """Whom a person means in a setting: who may see them online, who may add them to chats."""

    EVERYONE = "everyone"
    CONTACTS = "contacts"
    NOBODY = "nobody"


class Notify(StrEnum):
    """Which messages of a chat notify a member: all, those that mention them, or none."""

    ALL = "all"
    MENTIONS = "mentions"
    NONE = "none"


class Fanout(StrEnum):
    """How notifications of a chat's messages are fanned out. See docs/push.md."""

    WRITE = "write"
    HYBRID = "hybrid"
    READ = "read"


class AccountState(StrEnum):
    """What an account may do. See docs/accounts.md."""

    ACTIVE = "active"
    DISABLED = "disabled"
    DELETED = "deleted"


class Relation(StrEnum):
    """How one person lists another. One-sided: it says nothing about the other's list."""

    CONTACT = "contact"
    BLOCK = "block"


class ReceiptKind(StrEnum):
    DELIVERED = "delivered"
    READ = "read"


class DeliveryStatus(StrEnum):
    """How far a message has come: stored, received by every member, or read."""

    SENT = "sent"
    DELIVERED = "delivered"
    READ = "read"


class StepName(StrEnum):
    """What may happen to a message, in the order in which it is told if the times are the same."""

    ACCEPTED = "accepted"
    STORED = "stored"
    PUBLISHED = "published"
    ROUTED = "routed"
    SENT = "sent"
    ACKNOWLEDGED = "acknowledged"
    READ = "read"
    PUSHED = "pushed"
    PUSH_REFUSED = "push_refused"
    RETRIED = "retried"
    DEAD_LETTERED = "dead_lettered"
    REPLAYED = "replayed"
    DISCARDED = "discarded"
    SKIPPED = "skipped"


class SeenBy(Struct, frozen=True):
    """A member has received or read a message, at this time or before. `simple` chats leave out who."""

    user_id: str | None
    at: str


class Change(Struct, frozen=True):
    """A change of a chat that takes effect at one position of its log, in the same transaction."""

    action: Action
    user_id: str = ""
    role: Role = Role.MEMBER
    title: str = ""
    read_receipts: ReadReceipts | None = None
    announcement_only: bool | None = None
    slow_mode_seconds: int | None = None


class Target(Struct, frozen=True, kw_only=True):
    """What is known about the message that a draft is about. Most of it never changes.

    `has_room`: for a reaction, whether the message may have it beside those that it has.
    """

    sequence: int
    sender_id: str
    is_group: bool
    is_deleted: bool = False
    is_held: bool = False
    """Its chat is under a legal hold."""
    is_too_old: bool = False
    """The time in which it could be edited is over."""
    has_room: bool = True


class AttachedFile(Struct, kw_only=True, frozen=True, gc=False):
    """A file that a message refers to. `sha256`: of its bytes, in hexadecimal digits. Images that the server
    could read have `width`, `height` and a small `preview` as a `data:` URL.
    """

    attachment_id: str
    name: str
    size: int
    content_type: str
    sha256: str
    width: int | UnsetType = UNSET
    height: int | UnsetType = UNSET
    preview: str | UnsetType = UNSET

    @property
    def chars(self) -> int:
        """How much it may take of an entry."""
        return FILE_CHARS + len(self.name) + len(self.content_type) + len(self.preview or "")


FILE_CHARS = 256
"""What a file takes of an entry beside its texts: names of fields, id, digest, numbers."""


class Draft(Struct, kw_only=True, gc=False):
    """A message, or a change, that is not yet in the log."""

    chat_id: str
    sender_id: str
    content: str
    content_type: str = "text/plain"
    client_message_id: str | None = None
    client_key: bytes | None = None
    display_time: str | None = None
    after_key: bytes | None = None
    request_id: str = ""
    mentions: tuple[str, ...] = ()
    reply_to: str | None = None
    attachments: tuple[str, ...] = ()
    """The ids of the files that a message refers to."""
    kind: str = Kind.MESSAGE.value
    change: Change | None = None
    target_id: str | None = None
    """The message that an edit, a delete or a reaction is about."""
    on: bool | None = None
    """Of a reaction: False takes it back."""
    target: Target | None = None
    """What is known about the message in `target_id` or `reply_to`; None: there is none in this chat."""
    files: tuple[AttachedFile, ...] = ()
    """What is known about each of them; fewer than `attachments`: not all may be used."""
    by_operator: bool = False
    """An operator does it in the sender's name: what the sender may do does not matter."""

    @property
    def is_about_another(self) -> bool:
        """Whether it is about a message that was sent before, or about how those of its chat may change."""
        return self.reply_to is not None or (self.kind != Kind.MESSAGE and self.change is None)

    @property
    def is_plain(self) -> bool:
        """Whether its entry is all there is to do: it is about no other message, and has no files."""
        return not self.attachments and not self.is_about_another

    @property
    def chars(self) -> int:
        """How long its texts are that have no other small bound."""
        chars = len(self.content)
        if self.mentions:
            chars += sum(map(len, self.mentions))
        if self.files:
            chars += sum(file.chars for file in self.files)
        return chars


class Appended(Struct, kw_only=True, gc=False):
    """Where a draft is in the log. `deduplicated`: it was stored before, and nothing changed."""

    message_id: str
    sequence: int
    epoch: int
    created_at: str
    deduplicated: bool = False
    conflict: bool = False


Outcome = Appended | Refusal


class StoredEntry(Struct, gc=False):
    """One resolved position: `wire` is the entry's JSON as it travels, None for a void.

    `request_id`: the request that sent it, for log lines. The log does not store it.
    """

    sequence: int
    wire: bytes | None
    change: Change | None = None
    request_id: str = ""


class Persisted(Struct):
    """What became durable together in one chat, ascending: the event `MessagePersisted`, in bulk.

    `positions` need not follow each other when sequencing is two_phase; a reader that needs the next
    one reads the log. `published_through`: the position up to which the chat is on a shared bus, if the store
    knows it. The bus may already have more. `waited_ms`: how long the first draft waited for it, on the node
    that appended it. `told_by`: the node that has told its own clients, if one has.
    """

    chat_id: str
    epoch: int
    positions: list[StoredEntry]
    published_through: int | None = None
    waited_ms: int = 0
    told_by: str = ""


class AppendResult(Struct):
    """The outcome of every draft, in their order, and what the commit added to each chat."""

    outcomes: list[Outcome]
    persisted: list[Persisted]


class Head(Struct, frozen=True):
    """Where the resolved prefix of a log ends."""

    epoch: int
    sequence: int


class Page(Struct):
    """A contiguous, resolved part of one log: every position from `from_sequence` to `to_sequence`.

    `log_hash`: the hash of the log up to `to_sequence` (`core.log_hash`). An engine leaves it out.
    """

    chat_id: str
    epoch: int
    entries: list[bytes]
    voids: list[int]
    from_sequence: int
    to_sequence: int
    head: int
    reset: bool = False
    log_hash: bytes | None = None

    @property
    def complete(self) -> bool:
        return self.to_sequence >= self.head


class QuietHours(Struct, frozen=True, rename={"starts": "from", "ends": "to"}):
    """When a person wants no notification: between two times of day (HH:MM), in a time zone by its name."""

    starts: str
    ends: str
    timezone: str


class User(Struct, frozen=True):
    user_id: str
    username: str
    display_name: str
    about: str
    is_operator: bool
    created_at: str
    last_seen_privacy: Privacy = Privacy.EVERYONE
    send_read_receipts: bool = True
    last_seen: str | None = None
    """When the person's last device disconnected; None if that never happened."""
    state: AccountState = AccountState.ACTIVE
    who_may_add: Privacy = Privacy.EVERYONE
    do_not_disturb: QuietHours | None = None
    is_bot: bool = False
    """A program, not a person: it has no unread count and gets no notifications."""
    external_id: str = ""
    """Who this is for the operator's own login: the claim of a JWT, without its issuer. Empty for nobody."""


class UserPage(Struct, frozen=True):
    """Some people, and where the next page begins: None after the last one."""

    users: list[User]
    next_after: str | None


class AccountDeletion(Struct, frozen=True, omit_defaults=True):
    """A deleted account that may still be in chats and lists. `username`: what it was called, until the name
    is free.
    """

    user_id: str
    since_ms: int
    username: str = ""


class JobScope(StrEnum):
    """`node`: every node runs it. `cluster`: one node at a time, by a lease."""

    NODE = "node"
    CLUSTER = "cluster"


class JobOutcome(StrEnum):
    """`lease_lost`: another node may have it now, so the run was stopped; that is no failure."""

    OK = "ok"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    LEASE_LOST = "lease_lost"


class AuditRecord(Struct, frozen=True, kw_only=True):
    """One action of an operator. It is written before the action begins, and again with the outcome.

    `actor`: the operator's user id, or `cli:` and the name of the user of the operating system. `outcome`:
    `begun`, `done`, or the code of the refusal. `begun` stays where the server died or lost the store.
    `token_id`: the API token that it was done with, or the session; `token_name`: its name, or the device's.
    """

    audit_id: str
    at: str
    actor: str
    action: str
    target_id: str
    request_id: str = ""
    detail: str = ""
    outcome: str = "begun"
    token_id: str = ""
    token_name: str = ""


class RelatedUser(Struct, frozen=True):
    """A contact or a blocked person, and since when."""

    user_id: str
    since: str


class Relationship(Struct, frozen=True):
    """A person, and how they and the viewer are related."""

    user: User
    is_contact: bool
    """The viewer has them as a contact."""
    has_contact: bool
    """They have the viewer as a contact."""
    is_blocked: bool
    """The viewer has blocked them."""
    has_blocked: bool
    """They have blocked the viewer."""
    is_acquainted: bool
    """They share a chat, or each has the other as a contact."""


class Visibility(Struct, frozen=True):
    """What others may see of what a person does."""

    send_read_receipts: bool
    blocked: frozenset[str]
    """These people see nothing."""
    is_bot: bool = False
    """Then there is nothing to see: a program is in no receipt."""


class Session(Struct, frozen=True):
    """A device that may act for a person until it is revoked or not used for 30 days."""

    session_id: str
    user_id: str
    device_id: str
    device_name: str
    created_at_ms: int
    last_used_at_ms: int
    expires_at_ms: int
    origin: str = ""
    """A hash of the address that logged in; empty if none is known."""


class PageKind(StrEnum):
    """Which page in a browser a session belongs to."""

    CHAT = "chat"
    CONSOLE = "console"


class PageToken(Struct, frozen=True):
    """A token of a page, by its hash."""

    hash: str
    ends_at_ms: int


class PageSession(Struct, frozen=True, kw_only=True):
    """What a session of a page has beside its row; all secrets by their hashes.

    `family`: of the part that all cookies of the session share. `current`, `before`: of the last two cookies;
    the last was made of the one before and `salt`. `key`: of what the page of a console keeps.
    """

    session_id: str
    user_id: str
    kind: PageKind
    family: str
    current: str
    before: str = ""
    salt: str = ""
    key: str = ""
    tokens: tuple[PageToken, ...] = ()
    password_at_ms: int
    active_at_ms: int
    expires_at_ms: int
    is_read_only: bool = False


class Scope(StrEnum):
    """What an API token may be used for."""

    SEND = "send"
    READ = "read"
    ADMIN = "admin"


class ApiToken(Struct, frozen=True, kw_only=True):
    """A token for programs. `expires_at_ms`: 0 for never. `chat_id`: the only chat that it is for, or empty.

    Its id follows from the hash, which is all that is kept of the token itself. `makers`: who made it, then
    who made the token that it was made with, and so on, as in records of the audit log; empty if not known.
    """

    token_id: str
    token_hash: bytes
    user_id: str
    name: str
    scopes: tuple[Scope, ...]
    created_at_ms: int
    chat_id: str = ""
    last_used_at_ms: int = 0
    expires_at_ms: int = 0
    makers: tuple[str, ...] = ()


class ExternalId(Struct, frozen=True):
    """Whose account belongs to somebody of another system. `key` is a hash of the issuer and the claim."""

    key: str
    user_id: str


class LinkPurpose(StrEnum):
    """What a link is for."""

    INVITE = "invite"
    PASSWORD_RESET = "password_reset"


class Link(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A link that an operator made, kept without its token: only a digest of it.

    `used_by`: who came by it. `user_id`: whose password it sets.
    """

    link_id: str
    digest: str
    purpose: LinkPurpose
    created_by: str
    created_at_ms: int
    expires_at_ms: int
    uses_max: int = 1
    used_by: tuple[str, ...] = ()
    revoked_at_ms: int = 0
    user_id: str = ""
    note: str = ""


class ReportStatus(StrEnum):
    """Whether operators have dealt with a report."""

    OPEN = "open"
    RESOLVED = "resolved"


class PersonDevices(Struct, frozen=True):
    """The devices of a person, and when each was last used, right to a day."""

    user_id: str
    devices: dict[str, int]


class AnsweredRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request with an `Idempotency-Key`, and its answer.

    `request_id` and `digest`: digests of who asked for what by which key, and of the body. `claim`: a random
    name of who is at it, until `claimed_until_ms`. `status`: of the answer, 0 before there is one; `answer`:
    its JSON. `user_id`: whose it is, empty without an account.
    """

    request_id: str
    digest: str
    claim: str
    made_at_ms: int
    claimed_until_ms: int
    user_id: str = ""
    status: int = 0
    answer: str = ""


class MessageReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A member found that operators should look at a message. The message itself is in the log alone."""

    report_id: str
    chat_id: str
    message_id: str
    sequence: int
    sender_id: str
    reporter_id: str
    reason: str
    created_at: str
    status: ReportStatus = ReportStatus.OPEN
    outcome: str = ""
    note: str = ""
    resolved_by: str = ""
    resolved_at: str = ""


class ErasedChat(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was removed from one chat. `is_held`: nothing, because it is under a legal hold."""

    chat_id: str
    hot: int = 0
    cold: int = 0
    is_held: bool = False


class ErasureStep(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an erasure removes next, counted before: from one chat, or without a `chat_id` what is in none."""

    chat_id: str = ""
    hot: int = 0
    cold: int = 0
    devices: int = 0
    cursors: int = 0
    reports: int = 0


class ErasureReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the erasure of a person has removed. Its id is theirs.

    `hot` and `cold`: bodies in the engine and in the cold tier. `finished_at` is empty until it is done.
    `under_way`: not counted yet; written before anything of it is removed, so that a crash loses no count.
    """

    user_id: str
    begun_at: str
    finished_at: str = ""
    hot: int = 0
    cold: int = 0
    chats: tuple[ErasedChat, ...] = ()
    chats_left_out: int = 0
    """Chats with removed bodies that are counted above and not listed."""
    devices: int = 0
    cursors: int = 0
    reports: int = 0
    """Reports that lost what the person wrote in them."""
    under_way: ErasureStep | None = None


class StoredChat(Struct, frozen=True):
    chat_id: str
    chat_type: ChatType
    title: str | None
    created_by: str
    created_at: str
    updated_at: str
    epoch: int
    open_to_join: bool = False
    read_receipts: ReadReceipts = ReadReceipts.FULL
    announcement_only: bool = False
    """Only owners and admins post."""
    slow_mode_seconds: int = 0
    """How long a member waits between two messages; 0: not at all."""


class ChatSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was decided for a chat, and no send looks at. `fanout`: None if its size decides.

    `retention_days` overrides the server's, 0 keeps for ever. `is_held`: under a legal hold.
    `edit_window_seconds`: how long messages may be edited; None if the server says it. The entry at
    `edit_window_at` said so last.
    """

    chat_id: str
    fanout: Fanout | None = None
    retention_days: int | None = None
    is_held: bool = False
    edit_window_seconds: int | None = None
    edit_window_at: int = 0


class ChatMember(Struct, frozen=True):
    user_id: str
    role: Role
    joined_at: str
    joined_sequence: int


class Invitation(Struct, frozen=True):
    """A person was asked to join a chat by a member who may not add them."""

    user_id: str
    chat_id: str
    invited_by: str
    role: Role
    invited_at: str


class PersonConsent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whom a person has blocked, and who has invited them: what they say to being put into a chat.

    `blocks`: since when, by the other's id. `invitations`: in the order of the chats' ids; those that have
    expired may be among them. `contacts`: how many they have, which last changed at `contacts_at_ms`.
    """

    user_id: str
    blocks: dict[str, str] = {}
    invitations: tuple[Invitation, ...] = ()
    contacts: int = 0
    contacts_at_ms: int = 0


class Contact(Struct, frozen=True, kw_only=True):
    """A person has another one as a contact."""

    user_id: str
    other_id: str
    since: str


class InvitedPerson(Struct, frozen=True, kw_only=True):
    """A person may have an invitation to a chat: `PersonConsent` says whether they have."""

    chat_id: str
    user_id: str
    at_ms: int


class MemberCursor(Struct, frozen=True):
    """How far one member is in a chat. Times say when the position last rose: None at position 0."""

    user_id: str
    joined_sequence: int
    delivered_up_to: int
    delivered_at: str | None
    read_up_to: int
    read_at: str | None


class MemberSettings(Struct, frozen=True):
    """What decides whether a message notifies a member of a chat, and how far they are in it."""

    notify: Notify = Notify.ALL
    muted_until: str | None = None
    delivered_up_to: int = 0
    read_up_to: int = 0


class CursorMove(Struct, frozen=True):
    """A person's position in a chat rose, and that is durable."""

    user_id: str
    chat_id: str
    kind: ReceiptKind
    up_to: int
    at: str


class ChatSummary(Struct, frozen=True):
    """One chat in a person's overview: how far the device and the person are, and what a list shows of it.

    `unread_more`: there may be more unread than `unread`, which is exact otherwise.
    `peer_id`: the other person of a direct chat. `title` and `last_entry` are empty after the person left.
    """

    chat_id: str
    epoch: int
    head: int
    last_acked_sequence: int
    read_up_to: int
    unread: int
    unread_more: bool
    left: bool
    chat_type: ChatType
    title: str | None = None
    peer_id: str | None = None
    last_entry: bytes | None = None
    muted_until: str | None = None


class OverviewPage(Struct):
    """The chats of one person that changed after a token. The pages end even while chats keep changing."""

    positions: list[ChatSummary]
    token: str
    complete: bool
