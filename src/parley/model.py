"""The nouns of the domain, as values. `docs/GLOSSARY.md` says what each word means."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from parley.errors import Refusal


class Role(StrEnum):
    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"


class ChatType(StrEnum):
    DIRECT = "direct"
    GROUP = "group"


class Kind(StrEnum):
    """What an entry of the log is. Clients pass over kinds that they do not know."""

    MESSAGE = "message"
    MEMBER = "member"
    CHAT = "chat"


class Action(StrEnum):
    """What a change of a chat does."""

    JOINED = "joined"
    LEFT = "left"
    REMOVED = "removed"
    ROLE = "role"
    RENAMED = "renamed"
    READ_RECEIPTS = "read_receipts"


class ReadReceipts(StrEnum):
    """What a chat tells of who has read: everybody by name, whether anybody, or nothing."""

    FULL = "full"
    SIMPLE = "simple"
    NONE = "none"


class Privacy(StrEnum):
    """Whom a person lets see when they were last there."""

    EVERYONE = "everyone"
    CONTACTS = "contacts"
    NOBODY = "nobody"


class Relation(StrEnum):
    """How one person holds another. Each is one-sided: it says nothing of the other's view."""

    CONTACT = "contact"
    BLOCK = "block"


class ReceiptKind(StrEnum):
    DELIVERED = "delivered"
    READ = "read"


class Change(Struct, frozen=True):
    """A change of a chat that takes effect at one position of its log, in the same transaction."""

    action: Action
    user_id: str = ""
    role: Role = Role.MEMBER
    title: str = ""
    read_receipts: ReadReceipts | None = None


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
    kind: str = Kind.MESSAGE.value
    change: Change | None = None
    request_id: str = ""


class Appended(Struct, kw_only=True, gc=False):
    """Where a draft is in the log. `deduplicated`: it had been there already, and nothing changed."""

    message_id: str
    sequence: int
    epoch: int
    created_at: str
    deduplicated: bool = False
    conflict: bool = False


Outcome = Appended | Refusal


class Stored(Struct, gc=False):
    """One resolved position: `wire` is the entry's JSON as it travels, None for a void.

    `request_id`: the request that it came with, for log lines; the log itself does not keep it.
    """

    sequence: int
    wire: bytes | None
    change: Change | None = None
    request_id: str = ""


class Persisted(Struct):
    """What became durable together in one chat, ascending: the event `MessagePersisted`, in bulk.

    `positions` need not follow each other when sequencing is two_phase; a reader that needs the next
    one reads the log. `published_through`: up to where the chat was on a shared bus already, if the store
    happened to know; the truth may be beyond it.
    """

    chat_id: str
    epoch: int
    positions: list[Stored]
    published_through: int | None = None


class AppendResult(Struct):
    """The outcome of every draft, in their order, and what the commit added to each chat."""

    outcomes: list[Outcome]
    persisted: list[Persisted]
    conflicts: int = 0
    """How often a condition of the write failed, so that it had to be decided again."""


class Head(Struct, frozen=True):
    """Where the resolved prefix of a log ends."""

    epoch: int
    sequence: int


class Page(Struct):
    """A contiguous, resolved stretch of one log: `from_sequence`..`to_sequence`, without exception."""

    chat_id: str
    epoch: int
    entries: list[bytes]
    voids: list[int]
    from_sequence: int
    to_sequence: int
    head: int
    reset: bool = False

    @property
    def complete(self) -> bool:
        return self.to_sequence >= self.head


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
    """When the person's last device went; None if that never happened."""


class Related(Struct, frozen=True):
    """A contact, or somebody who is blocked, and since when."""

    user_id: str
    since: str


class Regard(Struct, frozen=True):
    """How a person and whoever looks at them stand to each other."""

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
    """They share a chat, or one of them has the other as a contact."""


class Manners(Struct, frozen=True):
    """What others may notice of what a person does."""

    send_read_receipts: bool
    blocked: frozenset[str]
    """These notice nothing."""


class Session(Struct, frozen=True):
    """A device that may speak for a person until it is revoked or 30 days pass without use."""

    session_id: str
    user_id: str
    device_id: str
    device_name: str
    created_at_ms: int
    last_used_at_ms: int
    expires_at_ms: int


class Chat(Struct, frozen=True):
    chat_id: str
    chat_type: ChatType
    title: str | None
    created_by: str
    created_at: str
    updated_at: str
    epoch: int
    open_to_join: bool = False
    read_receipts: ReadReceipts = ReadReceipts.FULL


class Member(Struct, frozen=True):
    user_id: str
    role: Role
    joined_at: str
    joined_sequence: int


class Mark(Struct, frozen=True):
    """How far one member is in a chat. Times say when the position last rose; None at position 0."""

    user_id: str
    joined_sequence: int
    delivered_up_to: int
    delivered_at: str | None
    read_up_to: int
    read_at: str | None


class Moved(Struct, frozen=True):
    """A person's position in a chat rose, and that is durable."""

    user_id: str
    chat_id: str
    kind: ReceiptKind
    up_to: int
    at: str


class Position(Struct, frozen=True):
    """How far one device, and the person behind it, is in one chat; and what a person reads of it.

    `unread_more`: there may be more than `unread`, which is exact otherwise.
    `peer_id`: of a direct chat, the other one. `title` and `last_entry` are empty once the chat was left.
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


class Changed(Struct):
    """The chats of one person that changed after a token; pages end however much changes meanwhile."""

    positions: list[Position]
    token: str
    complete: bool
