"""One chat, or what is kept about one person, as lines of JSON or a page to read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from html import escape
from typing import Any

import msgspec
from msgspec import Struct

from parley.core.deliveries import DeadLetter, DeliveryQueue
from parley.core.marks import SEPARATOR, MessageMark
from parley.core.push_devices import NotifiedThrough, PersonPushDevices, PushDevice, PushOutcome
from parley.migration.rows import StoreRows
from parley.model import AccountDeletion, AuditRecord, Contact, Invitation, Kind, PersonConsent
from parley.store.ports import Log
from parley.store.records import RECORDS, ChatRecord, CursorRecord, MemberRecord, MemberStateRecord, Record
from parley.store.tables import PendingErasure, PersonRecord, SessionRecord
from parley.wire.codec import decode_entry
from parley.wire.frames import Entry
from parley.wire.limits import PAGE_ENTRIES_MAX

SECRET_FIELDS = frozenset({"password_hash", "token_hash", "secret", "auth"})
"""What would let somebody act for the person. An export may be read by others."""
PAGE_START = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 sans-serif; max-width: 45em; margin: 2em auto; padding: 0 1em }}
article {{ margin: 0 0 1em }}
article header {{ color: #555; font-size: 85% }}
article.reply {{ margin-left: 2em }}
article.change {{ color: #777; font-size: 85% }}
p {{ margin: 0; white-space: pre-wrap; overflow-wrap: anywhere }}
</style>
</head>
<body>
<h1>{title}</h1>
"""
PAGE_END = "</body>\n</html>\n"

NameOf = Callable[[str], Awaitable[str]]


async def entries_of(log: Log, chat_id: str) -> AsyncIterator[bytes]:
    """The JSON of each entry, in order. It ends where the log ended when its last page was read."""
    after = 0
    while True:
        page = await log.read(chat_id, after, PAGE_ENTRIES_MAX)
        for entry in page.entries:
            yield entry
        if page.complete:
            return
        after = page.to_sequence


async def page_of_chat(log: Log, chat_id: str, title: str, name_of: NameOf) -> AsyncIterator[str]:
    """A page that loads nothing from anywhere. What people wrote is text in it, whatever it says."""
    yield PAGE_START.format(title=escape(title))
    async for wire in entries_of(log, chat_id):
        entry = decode_entry(wire)
        yield _article(entry, escape(await name_of(entry.sender_id)))
    yield PAGE_END


def _article(entry: Entry, name: str) -> str:
    at = escape(entry.display_time or entry.created_at)
    kind = "message" if entry.kind == Kind.MESSAGE.value else "change"
    is_reply = bool(entry.reply_to) or "; thread=" in entry.content_type  # imports once told it so
    return (
        f'<article class="{kind}{" reply" * is_reply}" id="n{entry.sequence}">'
        f"<header>#{entry.sequence} <b>{name}</b> <time>{at}</time></header>"
        f"<p>{escape(_told(entry))}</p></article>\n"
    )


def _told(entry: Entry) -> str:
    """Its content, and what it does to an earlier message."""
    if entry.kind == Kind.DELETE.value:
        return "deleted a message"
    if entry.deleted is True:
        return "(deleted)"
    if entry.kind == Kind.EDIT.value:
        return f"edited a message: {entry.content}"
    if entry.kind == Kind.REACTION.value and entry.on is False:
        return f"took {entry.content} back"
    return entry.content


async def about_person(rows: StoreRows, user_id: str) -> AsyncIterator[dict[str, Any]]:
    """Every record that concerns a person, then every entry that they wrote or that mentions them.

    It reads the whole store once: no engine can find all of this by the person.
    """
    chats: list[str] = []
    for kind in RECORDS:
        async for records in rows.records(kind):
            for record in _apart(records):
                if _concerns(record, user_id):
                    yield {"record": name_in_export(record), **_without_secrets(msgspec.to_builtins(record))}
                    if isinstance(record, MemberStateRecord):
                        chats.append(record.chat_id)
    for chat_id in chats:
        async for positions in rows.positions(chat_id, 0):
            for position in positions:
                entry = decode_entry(position.wire) if position.wire is not None else None
                if entry is not None and (entry.sender_id == user_id or user_id in (entry.mentions or ())):
                    yield {"record": "Entry", **msgspec.to_builtins(entry)}


class ListedPerson(Struct, frozen=True, kw_only=True):
    """Another person whom a person has as a contact, or has blocked, and since when."""

    user_id: str
    other_id: str
    contact_since: str | None = None
    blocked_since: str | None = None


EXPORTED_AS = {
    PersonRecord: "KeptPerson",
    SessionRecord: "KeptSession",
    ChatRecord: "KeptChat",
    MemberRecord: "KeptMember",
    MemberStateRecord: "KeptState",
    CursorRecord: "KeptCursor",
    MessageMark: "KeptMark",
    PendingErasure: "KeptErasure",
    ListedPerson: "KeptRelation",
    DeliveryQueue: "Lane",
    NotifiedThrough: "NotifiedThrough",
}
"""What lines of an export call records whose types have another name now."""


def name_in_export(record: Record) -> str:
    return EXPORTED_AS.get(type(record), type(record).__name__)


def _apart(records: Iterable[Record]) -> Iterator[Record]:
    """The devices of a person share a record, and what they say to others is one: each is told by itself."""
    for record in records:
        if isinstance(record, PersonPushDevices):
            yield from record.devices
        elif isinstance(record, PersonConsent):
            yield from record.invitations
            for other_id, since in record.blocks.items():
                yield ListedPerson(user_id=record.user_id, other_id=other_id, blocked_since=since)
        elif isinstance(record, Contact):
            yield ListedPerson(user_id=record.user_id, other_id=record.other_id, contact_since=record.since)
        else:
            yield record


def _concerns(record: Record, user_id: str) -> bool:
    match record:
        case PersonRecord(user=who) | SessionRecord(session=who) | MemberRecord(member=who):
            return who.user_id == user_id
        case (
            MemberStateRecord()
            | CursorRecord()
            | PushDevice()
            | PushOutcome()
            | NotifiedThrough()
            | AccountDeletion()
        ):
            return record.user_id == user_id
        case ListedPerson():
            return record.user_id == user_id  # who else lists them is the others' secret
        case Invitation():
            return user_id in (record.user_id, record.invited_by)
        case PendingErasure():
            return record.user_id == user_id
        case MessageMark():
            return user_id in record.name.split(SEPARATOR)
        case DeliveryQueue():
            return record.recipient == user_id
        case DeadLetter():
            return user_id in (record.recipient, record.sender_id)
        case AuditRecord():
            return user_id in (record.target_id, record.actor)
        case _:
            return False


def _without_secrets(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in SECRET_FIELDS}
