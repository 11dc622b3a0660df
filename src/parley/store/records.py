"""The rows of a store in a form that every engine has: what `parley copy` carries over.

A record holds what was stored, and what some engines keep beside it because they cannot count or join
(how many members a chat has): the source counts, the target need not. Entries are no records: see `Transfer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar, cast, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from parley.clock import from_iso
from parley.core.deliveries import DeadLetter, Lane, LetterStatus, pending_line, queue_line
from parley.core.marks import THE_CHAT, MessageMark
from parley.core.push_devices import PushOutcome, RungThrough
from parley.model import (
    AccountState,
    ChatMember,
    ChatSettings,
    Contact,
    Invitation,
    InvitedPerson,
    Notify,
    PersonConsent,
    QuietHours,
    Session,
    StoredChat,
    User,
)
from parley.store.tables import (
    ANSWERS,
    CONSENTS,
    CONTACTS,
    DEVICE_LISTS,
    ERASURE_REPORTS,
    FAILING_RECIPIENTS,
    INVITED_PEOPLE,
    LINKS,
    OPERATORS,
    PENDING_LETTERS,
    PEOPLE,
    QUEUED_LETTERS,
    REPORTS,
    TABLE_OF,
    USERNAMES,
    KeptPerson,
    KeptSession,
    Operator,
    RecordTable,
    SessionLine,
    TakenName,
)


class KeptChat(Struct, frozen=True, kw_only=True):
    """A chat and its counter, without members and log. `counter`: None if it is lost."""

    chat: StoredChat
    direct_key: str | None
    counter: int | None
    member_count: int
    owner_count: int
    recovered_at: str | None = None
    recovered_from_sequence: int | None = None


class KeptMember(Struct, frozen=True, kw_only=True):
    chat_id: str
    member: ChatMember


class KeptState(Struct, frozen=True, kw_only=True):
    """A person's own row of a chat, which stays when they leave.

    `is_unasked`: they are a member, and somebody who was not their contact added them.
    """

    user_id: str
    chat_id: str
    last_acked_sequence: int
    delivered_at: str | None
    read_up_to: int
    read_at: str | None
    has_left: bool
    left_sequence: int
    muted_until: str | None
    notify: Notify
    is_unasked: bool


class KeptCursor(Struct, frozen=True, kw_only=True):
    """How far a device is in a chat."""

    user_id: str
    device_id: str
    chat_id: str
    last_acked_sequence: int


Record = Struct
"""What a copy carries over: one of `RECORDS`."""
RECORDS: tuple[type[Any], ...] = (
    KeptPerson,
    KeptChat,
    KeptMember,
    KeptState,
    KeptCursor,
    Lane,
    *(kind for kind in TABLE_OF if kind is not KeptPerson),
)
"""In the order in which they are copied: nothing refers to what comes after it."""
BOOKS: dict[str, RecordTable[Any]] = {
    "links": LINKS,
    "reports": REPORTS,
    "erasure_reports": ERASURE_REPORTS,
    "failing_recipients": FAILING_RECIPIENTS,
    "devices": DEVICE_LISTS,
    "answers": ANSWERS,
}
"""Their names in the table `books`, in which earlier versions kept them as JSON."""


def rung_by(outcome: PushOutcome) -> RungThrough:
    """What an outcome that says so tells of the newest ring."""
    return RungThrough(
        chat_id=outcome.chat_id,
        user_id=outcome.user_id,
        device_id=outcome.device_id,
        since_ms=outcome.at_ms,
        sequence=outcome.sequence,
    )


def lines_of(letter: DeadLetter) -> list[tuple[RecordTable[Any], Any]]:
    """The lists that a dead letter is on."""
    since_ms, lines = letter.changed_ms, list[tuple[RecordTable[Any], Any]]()
    if letter.status is LetterStatus.PENDING:
        lines.append((PENDING_LETTERS, pending_line(letter, since_ms)))
    if letter.is_queued:
        lines.append((QUEUED_LETTERS, queue_line(letter, since_ms)))
    return lines


def records_of_person(person: KeptPerson) -> list[tuple[RecordTable[Any], Any]]:
    """The person, their name, and their place among the operators."""
    user = person.user
    found: list[tuple[RecordTable[Any], Any]] = [
        (PEOPLE, person),
        (USERNAMES, TakenName(username=user.username, user_id=user.user_id)),
    ]
    if user.is_operator and user.state is AccountState.ACTIVE:
        found.append((OPERATORS, Operator(user_id=user.user_id)))
    return found


def line_of_session(kept: KeptSession) -> SessionLine:
    """The line of a session on its person's list."""
    session = kept.session
    return SessionLine(
        user_id=session.user_id,
        session_id=session.session_id,
        token_hash=kept.token_hash,
        since_ms=session.created_at_ms,
    )


def said_by(
    user_id: str, relations: Iterable[Mapping[str, Any]], invitations: Iterable[Mapping[str, Any]]
) -> list[tuple[RecordTable[Any], Any]]:
    """What earlier versions kept of a person as relations and invitations, each a row of its own."""
    rows, found = list(relations), [record_of(Invitation, row) for row in invitations]
    contacts = [
        Contact(user_id=user_id, other_id=row["other_id"], since=row["contact_since"])
        for row in rows
        if row.get("contact_since")
    ]
    said = PersonConsent(
        user_id=user_id,
        blocks={row["other_id"]: row["blocked_since"] for row in rows if row.get("blocked_since")},
        invitations=tuple(sorted(found, key=lambda one: one.chat_id)),
        contacts=len(contacts),
    )
    lines = [
        InvitedPerson(chat_id=one.chat_id, user_id=user_id, at_ms=from_iso(one.invited_at)) for one in found
    ]
    return [
        *((CONTACTS, one) for one in contacts),
        *((INVITED_PEOPLE, line) for line in lines),
        (CONSENTS, said),
    ]


WINDOW = "window"
"""What the name of a mark began with that said how long messages of a chat may be edited."""


class WindowsOfChats:
    """Edit windows, which earlier versions kept as marks of the chat itself: its settings have them now."""

    def __init__(self) -> None:
        self._newest: dict[str, MessageMark] = {}

    def takes(self, mark: MessageMark) -> bool:
        """Whether it is such a mark. It is remembered, if it is the newest of its chat."""
        if mark.target != THE_CHAT or mark.parts[0] != WINDOW:
            return False
        known = self._newest.get(mark.chat_id)
        if known is None or known.sequence < mark.sequence:
            self._newest[mark.chat_id] = mark
        return True

    def settings(self, settings: ChatSettings) -> ChatSettings | None:
        """With the window of the chat; None if all is as usual."""
        mark = self._newest.get(settings.chat_id)
        if mark is not None:
            seconds = int(mark.parts[1]) if mark.parts[1] else None
            changed = {"edit_window_seconds": seconds, "edit_window_at": mark.sequence}
            settings = msgspec.structs.replace(settings, **changed)
        return None if settings == ChatSettings(chat_id=settings.chat_id) else settings


COPY_MARK = "copy"
"""The name of the server's key in a target that says which copy is under way, or was done."""
UNFINISHED = "unfinished"
"""What the mark begins with until the copy is done. No server opens such a store."""


def is_unfinished(mark: str | None) -> bool:
    return mark is not None and mark.startswith(UNFINISHED)


NOT_FINISHED = "a copy into this store is not finished: run the same parley copy again"


# Records as columns

R = TypeVar("R", bound=Struct)

Column = str | int | bool | bytes | None
"""What a table can hold."""
WITHIN = (User, Session, StoredChat, ChatMember)
"""Parts of a record whose fields are columns of their own."""


def columns_of(record: Struct) -> dict[str, Column]:
    """The fields of a record by name; lists and hours as JSON."""
    found: dict[str, Column] = {}
    for name, value in msgspec.structs.asdict(record).items():
        if isinstance(value, WITHIN):
            found |= columns_of(value)
        else:
            found[name] = _column(value)
    return found


def _column(value: Any) -> Column:
    if isinstance(value, tuple | Struct):
        return msgspec.json.encode(value).decode()
    return cast(Column, value.value if isinstance(value, Enum) else value)


def column_names(kind: type[Struct]) -> list[str]:
    """The names of a record's columns, in their order."""
    found: list[str] = []
    for name, of in get_type_hints(kind).items():
        found += column_names(of) if of in WITHIN else [name]
    return found


def record_of(kind: type[R], columns: Mapping[str, Any]) -> R:
    """The record with these columns. One that is missing has its default, and None if it has none."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.type in WITHIN:
            values[field.name] = record_of(field.type, columns)
        elif field.name in columns or field.required:
            value = columns.get(field.name)
            is_nested = get_origin(field.type) is tuple or field.type == QuietHours | None
            is_json = is_nested and isinstance(value, str)
            values[field.name] = msgspec.json.decode(cast(str, value)) if is_json else value
    return msgspec.convert(values, kind, strict=False)
