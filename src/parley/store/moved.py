"""What versions without records kept in tables of their own, as records: the same on every engine.

An engine yields the rows of an old table as columns by the names of the fields (`OldTables`); what they mean
is here. Whoever moves them may be interrupted: what was moved is moved again. Never change what is released.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from parley.clock import from_iso
from parley.core.attachments import line_of
from parley.core.deliveries import DeadLetterStatus, pending_line, queue_line
from parley.core.marks import THE_CHAT, MessageMark
from parley.core.push_devices import GIVEN, NotifiedThrough
from parley.model import (
    AccountState,
    ChatSettings,
    Contact,
    Invitation,
    InvitedPerson,
    PersonConsent,
    Session,
    User,
)
from parley.store.records import line_of_session, record_of
from parley.store.tables import (
    AMENDMENTS,
    ANSWERS,
    API_TOKENS,
    ATTACHMENT_LINES,
    ATTACHMENTS,
    AUDIT,
    CHAT_SETTINGS,
    CONSENTS,
    CONTACTS,
    DEAD_LETTERS,
    DELETIONS,
    DEVICE_LISTS,
    ERASURE_REPORTS,
    ERASURES,
    EXTERNAL_IDS,
    FAILING_RECIPIENTS,
    INVITED_PEOPLE,
    LINKS,
    LOG_HASHES,
    MESSAGE_MARKS,
    OPERATORS,
    PENDING_DEAD_LETTERS,
    PEOPLE,
    PUSH_DEVICES,
    PUSH_NOTIFIED,
    PUSH_OUTCOMES,
    QUEUED_DEAD_LETTERS,
    REPORTS,
    SERVER_KEYS,
    SESSIONS,
    USER_SESSIONS,
    USERNAMES,
    WEBHOOKS,
    Operator,
    PersonRecord,
    RecordTable,
    SessionRecord,
    TakenName,
)

Columns = Mapping[str, Any]
Found = Iterable[tuple[RecordTable[Any], Any]]
"""Records, each with its table."""

BOOKS: dict[str, RecordTable[Any]] = {
    "links": LINKS,
    "reports": REPORTS,
    "erasure_reports": ERASURE_REPORTS,
    "failing_recipients": FAILING_RECIPIENTS,
    "devices": DEVICE_LISTS,
    "answers": ANSWERS,
}
"""Their names in the table `books`."""
PLAIN: dict[str, RecordTable[Any]] = {
    "account_deletions": DELETIONS,
    "api_tokens": API_TOKENS,
    "external_ids": EXTERNAL_IDS,
    "webhooks": WEBHOOKS,
    "audit": AUDIT,
    "erasures": ERASURES,
    "push_devices": PUSH_DEVICES,
    "push_rung": PUSH_NOTIFIED,
    "amendments": AMENDMENTS,
}
"""Tables of which a row is a record."""
KEY_PREFIX = "key:"
"""Before the name of a server's key, where it was beside the version."""
WINDOW = "window"
"""What the name of a mark began with that said how long messages of a chat may be edited."""
OLD_TABLES = (
    "usernames",
    "users",
    "sessions",
    "books",
    *PLAIN,
    "log_hashes",
    "server_keys",
    "attachments",
    "dead_letters",
    "push_outcomes",
    "message_marks",
    "relations",
    "chats",
)
"""In this order: marks say what a chat has as settings. `relations`: a row has all that a person said."""


DERIVED = ("attachment_lists", "chat_invitations", "invitations", "operators", "user_sessions")
"""What was in these follows from the others."""


class OldTables(Protocol):
    """Where the tables are. `prefix`: before their names.

    `notes_notified`: what was noted of the newest notification of a device is `push_rung`.
    """

    prefix: str
    notes_notified: bool

    async def there(self) -> set[str]:
        """Which of `OLD_TABLES` and `DERIVED` there are, under whatever name."""
        ...

    def pages(self, name: str) -> AsyncIterator[list[Columns]]:
        """The rows of one of them, as far as they are more than what is left of a deleted one."""
        ...

    async def put(self, table: RecordTable[Any], records: list[Any]) -> None:
        """Over whatever is there."""
        ...


async def move_all(old: OldTables, report: Callable[[str], None]) -> None:
    """All that is in the old tables, which stay: nothing reads them any more."""
    rows, there = OldRows(notes_notified=old.notes_notified), await old.there()
    for name in (name for name in OLD_TABLES if name in there):
        moved = 0
        async for page in old.pages(name):
            by_table: dict[RecordTable[Any], list[Any]] = {}
            for row in page:
                for table, record in rows.read(name, row):
                    by_table.setdefault(table, []).append(record)
            for table, found in by_table.items():
                await old.put(table, found)
                moved += len(found)
        report(f"{old.prefix}{name}: {moved} records moved")
    gone = ", ".join(f"{old.prefix}{name}" for name in sorted(there - {"chats", "server_keys"}))
    report(f"no longer read, to be deleted when all is well: {gone}")


class OldRows:
    """`notes_notified`: the newest notification of a device has a row of its own; no outcome need say it."""

    def __init__(self, *, notes_notified: bool) -> None:
        self._notes_notified = notes_notified
        self._windows: dict[str, MessageMark] = {}
        """How long messages of a chat may be edited: its newest mark."""

    def read(self, name: str, row: Columns) -> Found:
        """What a row of an old table becomes."""
        match name:
            case "books":
                table = BOOKS[row["book"]]
                yield table, table.decode(row["record"])
            case "users":
                yield from _person(row)
            case "usernames":  # who has taken their name, and whose node died before it wrote their account
                user = record_of(User, row)
                person = PersonRecord(user=user, password_hash=row.get("password_hash", ""))
                yield USERNAMES, TakenName(username=user.username, user_id=user.user_id, person=person)
            case "sessions":
                used_ms = row.get("lengthened_at_ms", 0)
                session = record_of(Session, row)
                kept = SessionRecord(session=session, token_hash=row["token_hash"], last_used_at_ms=used_ms)
                yield SESSIONS, kept
                yield USER_SESSIONS, line_of_session(kept)
            case "log_hashes":
                yield LOG_HASHES, record_of(LOG_HASHES.kind, {**row, "value": row["log_hash"]})
            case "server_keys":
                named = {**row, "name": row["name"].removeprefix(KEY_PREFIX)}
                yield SERVER_KEYS, record_of(SERVER_KEYS.kind, named)
            case "attachments":
                file = record_of(ATTACHMENTS.kind, row)
                yield ATTACHMENTS, file
                yield from ((ATTACHMENT_LINES, line_of(at, file, file.since_ms)) for at in file.lists)
            case "dead_letters":
                yield from _dead_letter(row)
            case "push_outcomes":
                yield from self._outcome(row)
            case "message_marks":
                yield from self._mark(record_of(MessageMark, row))
            case "relations":
                yield from _said_by(row["user_id"], row["said"])
            case "chats":
                yield from self._settings(row)
            case _:
                yield PLAIN[name], record_of(PLAIN[name].kind, row)

    def _outcome(self, row: Columns) -> Found:
        outcome = record_of(PUSH_OUTCOMES.kind, row)
        yield PUSH_OUTCOMES, outcome
        if outcome.outcome in GIVEN and not self._notes_notified:
            yield (
                PUSH_NOTIFIED,
                NotifiedThrough(
                    chat_id=outcome.chat_id,
                    user_id=outcome.user_id,
                    device_id=outcome.device_id,
                    since_ms=outcome.at_ms,
                    sequence=outcome.sequence,
                ),
            )

    def _mark(self, mark: MessageMark) -> Found:
        if mark.target != THE_CHAT or mark.parts[0] != WINDOW:
            yield MESSAGE_MARKS, mark
        elif (known := self._windows.get(mark.chat_id)) is None or known.sequence < mark.sequence:
            self._windows[mark.chat_id] = mark

    def _settings(self, row: Columns) -> Found:
        names = ("chat_id", "fanout", "retention_days", "is_held")
        decided = {name: row[name] for name in names if row.get(name) is not None}
        if (window := self._windows.get(row["chat_id"])) is not None:
            seconds = int(window.parts[1]) if window.parts[1] else None
            decided |= {"edit_window_seconds": seconds, "edit_window_at": window.sequence}
        settings = record_of(ChatSettings, decided)
        if settings != ChatSettings(chat_id=row["chat_id"]):
            yield CHAT_SETTINGS, settings


def _person(row: Columns) -> Found:
    """The person, their name, and their place among the operators."""
    seen = row.get("last_seen")
    state = row.get("account_state", AccountState.ACTIVE.value)
    person = PersonRecord(
        user=record_of(User, {"state": state, **row, "last_seen": None}),
        password_hash=row.get("password_hash", ""),
        last_seen_ms=from_iso(seen) if seen is not None else 0,
    )
    user = person.user
    yield PEOPLE, person
    yield USERNAMES, TakenName(username=user.username, user_id=user.user_id)
    if user.is_operator and user.state is AccountState.ACTIVE:
        yield OPERATORS, Operator(user_id=user.user_id)


def _dead_letter(row: Columns) -> Found:
    """The dead letter, and the lists that it is on."""
    dead_letter = record_of(DEAD_LETTERS.kind, row)
    yield DEAD_LETTERS, dead_letter
    if dead_letter.status is DeadLetterStatus.PENDING:
        yield PENDING_DEAD_LETTERS, pending_line(dead_letter, dead_letter.changed_ms)
    if dead_letter.is_queued:
        yield QUEUED_DEAD_LETTERS, queue_line(dead_letter, dead_letter.changed_ms)


def _said_by(user_id: str, said: Iterable[Columns] | str) -> Found:
    """Relations and invitations of a person, each a row of its own."""
    rows: list[Columns] = msgspec.json.decode(said) if isinstance(said, str) else list(said)
    invitations = [record_of(Invitation, row) for row in rows if "chat_id" in row]
    contacts = [
        Contact(user_id=user_id, other_id=row["other_id"], since=row["contact_since"])
        for row in rows
        if row.get("contact_since")
    ]
    yield from ((CONTACTS, one) for one in contacts)
    for one in invitations:
        at_ms = from_iso(one.invited_at)
        yield INVITED_PEOPLE, InvitedPerson(chat_id=one.chat_id, user_id=user_id, at_ms=at_ms)
    consent = PersonConsent(
        user_id=user_id,
        blocks={row["other_id"]: row["blocked_since"] for row in rows if row.get("blocked_since")},
        invitations=tuple(sorted(invitations, key=lambda one: one.chat_id)),
        contacts=len(contacts),
    )
    yield CONSENTS, consent
