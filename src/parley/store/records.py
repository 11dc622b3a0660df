"""The rows of a store in a form that every engine has: what `parley copy` carries over beside its tables.

A record holds what was stored, and what some engines keep beside it because they cannot count or join
(how many members a chat has): the source counts, the target need not. Entries are no records: see `Transfer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar, cast, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from parley.core.deliveries import DeliveryQueue
from parley.model import (
    ChatMember,
    Notify,
    QuietHours,
    Session,
    StoredChat,
    User,
)
from parley.store.tables import (
    TABLE_OF,
    PersonRecord,
    SessionLine,
    SessionRecord,
)


class ChatRecord(Struct, frozen=True, kw_only=True):
    """A chat and its counter, without members and log. `counter`: None if it is lost."""

    chat: StoredChat
    direct_key: str | None
    counter: int | None
    member_count: int
    owner_count: int
    recovered_at: str | None = None
    recovered_from_sequence: int | None = None


class MemberRecord(Struct, frozen=True, kw_only=True):
    chat_id: str
    member: ChatMember


class MemberStateRecord(Struct, frozen=True, kw_only=True):
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


class CursorRecord(Struct, frozen=True, kw_only=True):
    """How far a device is in a chat."""

    user_id: str
    device_id: str
    chat_id: str
    last_acked_sequence: int


Record = Struct
"""What a copy carries over: one of `RECORDS`."""
RECORDS: tuple[type[Any], ...] = (
    PersonRecord,
    ChatRecord,
    MemberRecord,
    MemberStateRecord,
    CursorRecord,
    DeliveryQueue,
    *(kind for kind in TABLE_OF if kind is not PersonRecord),
)
"""In the order in which they are copied: nothing refers to what comes after it."""


def line_of_session(kept: SessionRecord) -> SessionLine:
    """The line of a session on its person's list."""
    session = kept.session
    return SessionLine(
        user_id=session.user_id,
        session_id=session.session_id,
        token_hash=kept.token_hash,
        since_ms=session.created_at_ms,
    )


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
