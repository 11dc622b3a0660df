"""The tables of records: one list, from which engines, copies, exports, checks and the docs know them.

A record is one struct under a key, compared as a whole. An engine keeps every table alike and knows nothing
of what is in it: a new kind of record is a line here, and code in `parley.records`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.clock import MS_PER_DAY, iso
from parley.core.attachments import Attachment, AttachmentLine
from parley.core.deliveries import DeadLetter, PendingDeadLetter, QueuedDeadLetter, Webhook, shard_of
from parley.core.log_hash import StoredHash
from parley.core.marks import AmendmentNote, MessageMark
from parley.core.push_devices import OUTCOME_DAYS, NotifiedThrough, PersonPushDevices, PushOutcome
from parley.core.recipient_health import RecipientHealth
from parley.model import (
    AccountDeletion,
    AccountState,
    AnsweredRequest,
    ApiToken,
    AuditRecord,
    ChatSettings,
    Contact,
    ErasureReport,
    ExternalId,
    InvitedPerson,
    Link,
    MessageReport,
    PageSession,
    PersonConsent,
    PersonDevices,
    Session,
    User,
)
from parley.wire.limits import IDEMPOTENCY_DAYS, INVITATION_DAYS

R = TypeVar("R", bound=Struct)

Key = tuple[str, str]
"""A partition, and a place in it. Both are printable, and not empty."""
ONE_LIST = "all"
"""The partition of a table that has one: of few records, which are read in order."""
ALONE = "-"
"""The place of a record that has a partition to itself."""
PART_SEPARATOR = "\x1f"
"""Between the parts of a key. No id has it."""
ORDERED_DIGITS = 20
KEY_BYTES_MAX = 1_024
"""Of a part of a key."""
CHANGES_MAX = 25
"""Changes in one commit."""


def listed(name: str) -> Key:
    return ONE_LIST, name


def alone(name: str) -> Key:
    return name, ALONE


def ordered(number: int) -> str:
    """A number as a part of a key: texts are in the order of the numbers."""
    return f"{number:0{ORDERED_DIGITS}}"


def askable(*parts: str) -> bool:
    """Whether a key may have these parts: they are not empty, not too long, and text of Unicode."""
    try:
        return all(0 < len(part.encode()) <= KEY_BYTES_MAX for part in parts)
    except UnicodeEncodeError:
        return False


def message_place(chat_id: str, sequence: int) -> str:
    """The partition of what is kept about one message."""
    return f"{chat_id}{PART_SEPARATOR}{sequence}"


def hash_place(epoch: int, sequence: int) -> str:
    """Places are in the order of epochs, then of positions."""
    return f"{ordered(epoch)}.{ordered(sequence)}"


def outcome_place(user_id: str, device_id: str) -> str:
    return f"{user_id}{PART_SEPARATOR}{device_id}"


class RecordTable(Generic[R]):
    """One table. `expires_ms`: when a record may go, by what it says; without it they stay.

    `raised`: a field that is a number and only rises (`Records.raise_to`), which no comparison looks at.
    `is_compared`: False where no change depends on what is there: an engine may write plainly, and each of
    several changes by itself. With a number the highest stays, in whatever order they come: a record with a
    lower one is not written, and one with a higher one is not removed.
    `is_brief`: records come and go, and one that comes back does no harm. `is_fresh`: False where a page may
    be a moment old. A field of a record that is added later has a default: records without it are still read.
    """

    def __init__(
        self,
        name: str,
        kind: type[R],
        key: Callable[[R], Key],
        *,
        says: str,
        raised: str = "",
        expires_ms: Callable[[R], int] | None = None,
        is_compared: bool = True,
        is_brief: bool = False,
        is_fresh: bool = True,
    ) -> None:
        assert not raised or raised in kind.__struct_fields__
        self.name = name
        self.kind = kind
        self.key = key
        self.says = says
        self.raised = raised
        self.expires_ms = expires_ms
        self.is_compared = is_compared
        self.is_brief = is_brief
        self.is_fresh = is_fresh
        self._encode = msgspec.json.Encoder(order="deterministic").encode
        self._decode = msgspec.json.Decoder(kind).decode

    def __repr__(self) -> str:
        return f"<records of {self.name}>"

    @property
    def keeps_highest(self) -> bool:
        return bool(self.raised) and not self.is_compared

    def number(self, record: R) -> int:
        """The number that only rises; 0 in a table that has none."""
        return int(getattr(record, self.raised)) if self.raised else 0

    def encode(self, record: R) -> bytes:
        """Its JSON, without the number that rises."""
        return self._encode(replace(record, **{self.raised: 0}) if self.raised else record)

    def decode(self, stored: bytes | str, number: int = 0) -> R:
        record = self._decode(stored)
        return replace(record, **{self.raised: number}) if self.raised else record

    def is_same(self, stored: bytes | str | None, record: R | None) -> bool:
        """Whether this JSON is that record, however it was written: an older Parley knew fewer fields."""
        if stored is None or record is None:
            return stored is None and record is None
        return self.encode(self._decode(stored)) == self.encode(record)


class ServerKey(Struct, frozen=True, kw_only=True):
    """A key of the server, or the mark of a copy."""

    name: str
    value: str


class PendingErasure(Struct, frozen=True, kw_only=True):
    """A person whose bodies are still to be removed."""

    user_id: str
    since_ms: int


class PersonRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person, and what nobody sees of them. `last_seen_ms`: in place of what `user` says; 0 for never."""

    user: User
    password_hash: str
    last_seen_ms: int = 0


def user_of(person: PersonRecord) -> User:
    """Nobody sees when a deleted person was there last."""
    if not person.last_seen_ms or person.user.state is AccountState.DELETED:
        return person.user
    return replace(person.user, last_seen=iso(person.last_seen_ms))


class TakenName(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who has a username. `person`: the account, while it is just being added."""

    username: str
    user_id: str
    person: PersonRecord | None = None


class Operator(Struct, frozen=True, kw_only=True):
    """An operator whose account is active."""

    user_id: str


class SessionRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session. `last_used_at_ms`: if it is later than what `session` says, a use has lengthened it."""

    session: Session
    token_hash: bytes
    last_used_at_ms: int = 0


class SessionLine(Struct, frozen=True, kw_only=True):
    """That a person has a session. `since_ms`: when it was made."""

    user_id: str
    session_id: str
    token_hash: bytes
    since_ms: int


class Whatever(Enum):
    """In place of a record: no condition."""

    IS_THERE = "whatever is there"


WHATEVER: Final = Whatever.IS_THERE


class PutRecord(Struct, Generic[R], frozen=True):
    """Write a record: over this one, or where there is none, or over whatever is there."""

    record: R
    before: R | Whatever | None = WHATEVER


class RemoveRecord(Struct, Generic[R], frozen=True):
    """Remove what is under a key, if it is this record."""

    key: Key
    before: R | Whatever = WHATEVER


class CheckRecord(Struct, Generic[R], frozen=True):
    """Change nothing: the others are done only if this is there, or nothing."""

    key: Key
    before: R | None


RecordChange = PutRecord[R] | RemoveRecord[R] | CheckRecord[R]


def key_of(table: RecordTable[R], change: RecordChange[R]) -> Key:
    return table.key(change.record) if isinstance(change, PutRecord) else change.key


def is_met(table: RecordTable[R], change: RecordChange[R], stored: bytes | str | None) -> bool:
    """Whether a change may be done where this is stored."""
    return isinstance(change.before, Whatever) or table.is_same(stored, change.before)


def wanted_by(table: RecordTable[R], change: RecordChange[R]) -> bytes | None:
    """What is stored where the change was done."""
    if isinstance(change, PutRecord):
        return table.encode(change.record)
    if isinstance(change, CheckRecord) and change.before is not None:
        return table.encode(change.before)
    return None


def partition_of(table: RecordTable[R], changes: list[RecordChange[R]]) -> str:
    """The one partition that they are about; each has a place of its own in it."""
    keys = [key_of(table, change) for change in changes]
    partitions = {partition for partition, _ in keys}
    assert 0 < len(changes) <= CHANGES_MAX, f"1 to {CHANGES_MAX} changes in a commit"
    assert len(partitions) == 1, "a commit is about one partition"
    assert len(set(keys)) == len(keys), "two changes are about one record"
    assert all(askable(*key) for key in keys), "a key is a part of text, and another"
    if not table.is_compared:
        for change in changes:
            is_put = isinstance(change, PutRecord) and isinstance(change.before, Whatever)
            is_removal = isinstance(change, RemoveRecord) and not isinstance(change.before, Whatever)
            assert is_put or (is_removal and table.keeps_highest), "nothing is compared here"
    return partitions.pop()


# The tables


def _answer_expires_ms(answered: AnsweredRequest) -> int:
    return answered.made_at_ms + IDEMPOTENCY_DAYS * MS_PER_DAY


PEOPLE = RecordTable(
    "people", PersonRecord, lambda one: alone(one.user.user_id), says="people", raised="last_seen_ms"
)
USERNAMES = RecordTable(
    "usernames", TakenName, lambda one: alone(one.username), says="who has which username"
)
OPERATORS = RecordTable(
    "operators", Operator, lambda one: listed(one.user_id), says="the operators whose accounts are active"
)
SESSIONS = RecordTable(
    "sessions",
    SessionRecord,
    lambda one: alone(one.token_hash.hex()),
    says="the sessions of devices, by the hash of the token",
    raised="last_used_at_ms",
)
USER_SESSIONS = RecordTable(
    "user_sessions",
    SessionLine,
    lambda one: (one.user_id, one.session_id),
    says="which sessions a person has",
)
DELETIONS = RecordTable(
    "account_deletions",
    AccountDeletion,
    lambda one: listed(one.user_id),
    says="deleted accounts that may still be in chats and lists",
)
LINKS = RecordTable(
    "links", Link, lambda one: listed(one.link_id), says="links to register, and to set a password"
)
REPORTS = RecordTable(
    "reports",
    MessageReport,
    lambda one: listed(one.report_id),
    says="messages that members have reported",
)
ERASURE_REPORTS = RecordTable(
    "erasure_reports", ErasureReport, lambda one: listed(one.user_id), says="what erasures have removed"
)
FAILING_RECIPIENTS = RecordTable(
    "failing_recipients",
    RecipientHealth,
    lambda one: listed(one.recipient),
    says="recipients of deliveries that do not answer",
)
DEVICE_LISTS = RecordTable(
    "device_lists", PersonDevices, lambda one: alone(one.user_id), says="which devices each person has"
)
ANSWERS = RecordTable(
    "answers",
    AnsweredRequest,
    lambda one: alone(one.request_id),
    says="what requests with an `Idempotency-Key` were answered",
    expires_ms=_answer_expires_ms,
)
API_TOKENS = RecordTable(
    "api_tokens",
    ApiToken,
    lambda one: listed(one.token_id),
    says="the tokens of programs",
    raised="last_used_at_ms",
)
EXTERNAL_IDS = RecordTable(
    "external_ids",
    ExternalId,
    lambda one: alone(one.key),
    says="whose account belongs to a person of another system",
)
WEBHOOKS = RecordTable(
    "webhooks", Webhook, lambda one: listed(one.webhook_id), says="the webhooks of integrators"
)
AUDIT = RecordTable(
    "audit", AuditRecord, lambda one: listed(one.audit_id), says="what operators did", is_compared=False
)
ERASURES = RecordTable(
    "erasures",
    PendingErasure,
    lambda one: listed(one.user_id),
    says="people whose bodies are to be removed from every log",
)
ATTACHMENTS = RecordTable(
    "attachments",
    Attachment,
    lambda one: (one.chat_id, one.attachment_id),
    says="the files that messages refer to",
)
ATTACHMENT_LINES = RecordTable(
    "attachment_lines",
    AttachmentLine,
    lambda one: (one.list, one.attachment_id),
    says="which files a person has, and which the sweep must look at",
)
DEAD_LETTERS = RecordTable(
    "dead_letters",
    DeadLetter,
    lambda one: (shard_of(one.dlq_id), one.dlq_id),
    says="what could not be delivered, in shards by a hash of the id",
)
PENDING_DEAD_LETTERS = RecordTable(
    "pending_letters",
    PendingDeadLetter,
    lambda one: (shard_of(one.dlq_id), one.dlq_id),
    says="which dead letters are pending",
)
QUEUED_DEAD_LETTERS = RecordTable(
    "queued_letters",
    QueuedDeadLetter,
    lambda one: (
        shard_of(f"{one.recipient}{PART_SEPARATOR}{one.chat_id}"),
        PART_SEPARATOR.join((one.recipient, one.chat_id, ordered(one.sequence), one.dlq_id)),
    ),
    says="dead letters that wait for their replay, by recipient, chat and sequence",
)
PUSH_DEVICES = RecordTable(
    "push_devices",
    PersonPushDevices,
    lambda one: alone(one.user_id),
    says="the devices of a person that notifications are sent to",
)
PUSH_OUTCOMES = RecordTable(
    "push_outcomes",
    PushOutcome,
    lambda one: (message_place(one.chat_id, one.sequence), outcome_place(one.user_id, one.device_id)),
    says="what became of the notifications of a message",
    expires_ms=lambda one: one.at_ms + OUTCOME_DAYS * MS_PER_DAY,
    is_compared=False,
)
PUSH_NOTIFIED = RecordTable(
    "push_rung",
    NotifiedThrough,
    lambda one: (one.chat_id, outcome_place(one.user_id, one.device_id)),
    says="the newest position of a chat that was shown on a device",
    raised="sequence",
    expires_ms=lambda one: one.since_ms + OUTCOME_DAYS * MS_PER_DAY,
)
MESSAGE_MARKS = RecordTable(
    "message_marks",
    MessageMark,
    lambda one: (message_place(one.chat_id, one.target), one.name),
    says="replies, edits and reactions, by the message that they are about",
    raised="sequence",
    is_compared=False,
)
AMENDMENTS = RecordTable(
    "amendments",
    AmendmentNote,
    lambda one: (one.chat_id, one.client_key.hex()),
    says="what is being done to messages, and is not finished",
    raised="since_ms",
    is_compared=False,
    is_brief=True,
)
LOG_HASHES = RecordTable(
    "log_hashes",
    StoredHash,
    lambda one: (one.chat_id, hash_place(one.epoch, one.sequence)),
    says="hashes of logs, by epoch and position",
    is_compared=False,
    is_fresh=False,
)
CHAT_SETTINGS = RecordTable(
    "chat_settings",
    ChatSettings,
    lambda one: alone(one.chat_id),
    says="what was decided for a chat, and no send looks at",
)
CONSENTS = RecordTable(
    "consents",
    PersonConsent,
    lambda one: alone(one.user_id),
    says="whom each person has blocked, and who has invited them",
)
CONTACTS = RecordTable(
    "contacts", Contact, lambda one: (one.user_id, one.other_id), says="whom each person has as a contact"
)
INVITED_PEOPLE = RecordTable(
    "invited_people",
    InvitedPerson,
    lambda one: (one.chat_id, one.user_id),
    says="who may have an invitation to a chat",
    expires_ms=lambda one: one.at_ms + INVITATION_DAYS * MS_PER_DAY,
)
PAGE_SESSIONS = RecordTable(
    "page_sessions",
    PageSession,
    lambda one: alone(one.session_id),
    says="what sessions of pages in a browser have beside their rows",
    expires_ms=lambda one: one.expires_at_ms,
)
SERVER_KEYS = RecordTable(
    "server_keys", ServerKey, lambda one: listed(one.name), says="secrets of the server"
)
TABLES: tuple[RecordTable[Any], ...] = (
    PEOPLE,
    USERNAMES,
    OPERATORS,
    SESSIONS,
    USER_SESSIONS,
    DELETIONS,
    LINKS,
    REPORTS,
    ERASURE_REPORTS,
    FAILING_RECIPIENTS,
    DEVICE_LISTS,
    ANSWERS,
    API_TOKENS,
    EXTERNAL_IDS,
    WEBHOOKS,
    AUDIT,
    ERASURES,
    ATTACHMENTS,
    ATTACHMENT_LINES,
    DEAD_LETTERS,
    PENDING_DEAD_LETTERS,
    QUEUED_DEAD_LETTERS,
    PUSH_DEVICES,
    PUSH_OUTCOMES,
    PUSH_NOTIFIED,
    MESSAGE_MARKS,
    AMENDMENTS,
    LOG_HASHES,
    CHAT_SETTINGS,
    CONSENTS,
    CONTACTS,
    INVITED_PEOPLE,
    PAGE_SESSIONS,
    SERVER_KEYS,
)
"""In the order in which they are copied."""
TABLE_OF: dict[type[Struct], RecordTable[Any]] = {table.kind: table for table in TABLES}
assert len({table.name for table in TABLES}) == len(TABLE_OF) == len(TABLES)
