"""Stores as version 0.1 of November 2026 wrote them, with every kind of record, and what it read back.

They were made by its own code. Never change them: they stand for the stores that are out there.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import apsw
import msgspec
from msgspec import Struct

from parley.clock import from_iso
from parley.core.attachments import AttachmentLine
from parley.core.deliveries import PendingDeadLetter, QueuedDeadLetter
from parley.core.log_hash import StoredHash
from parley.core.push_devices import NotifiedThrough
from parley.migration.copies import StoreCopy
from parley.model import Appended, InvitedPerson
from parley.store.cassandra.connection import CassandraConnection
from parley.store.dynamodb.driver import Dynamo
from parley.store.records import RECORDS
from tests.contracts.acting import contents, message, read_all, stored
from tests.contracts.engines import MemoryEngine, OpenStore
from tests.contracts.test_transfer import all_records, transfer_of

SQLITE, DYNAMODB, CASSANDRA = 16, 13, 3
"""The versions of their tables."""
HASHES = 2
"""In each of them."""
WINDOWS = ((60, 2), (3_600, 3))
"""How long messages of a chat may be edited, and by which entry: marks at position 0, which the stores in the
files do not have."""
UNUSED_ID = "11111111-1111-4111-8111-111111111111"
FOLDER = Path(__file__).parent
DERIVED = {InvitedPerson, AttachmentLine, PendingDeadLetter, QueuedDeadLetter, NotifiedThrough, StoredHash}
"""Kinds that no copy had: what follows from others, and finds them."""
RENAMED = {
    "KeptChat": "ChatRecord",
    "KeptMember": "MemberRecord",
    "KeptState": "MemberStateRecord",
    "KeptCursor": "CursorRecord",
    "KeptPerson": "PersonRecord",
    "KeptSession": "SessionRecord",
    "KeptMark": "MessageMark",
    "KeptErasure": "PendingErasure",
    "KeptKey": "ServerKey",
    "Lane": "DeliveryQueue",
}
"""What kinds are called now."""
KIND_OF_BOOK = {
    "links": "Link",
    "reports": "MessageReport",
    "erasure_reports": "ErasureReport",
    "failing_recipients": "RecipientHealth",
    "devices": "PersonDevices",
    "answers": "AnsweredRequest",
}
"""What a record of a book is now, by the book."""


class OldStore(Struct):
    """`records`: of each kind, as fields; `people` and `chats` by what the test world calls them."""

    people: dict[str, str]
    chats: dict[str, str]
    records: dict[str, list[dict[str, Any]]]


def what_it_held(name: str, *, has_marks: bool = True) -> OldStore:
    """`has_marks`: its version knew edits, and for how long they are allowed."""
    found: dict[str, Any] = msgspec.json.decode((FOLDER / f"{name}.json").read_bytes())
    people, chats = found.pop("people"), found.pop("chats")
    for kept in found.pop("KeptRecord"):
        found.setdefault(KIND_OF_BOOK[kept["book"]], []).append(msgspec.json.decode(kept["record"]))
    for before, after in RENAMED.items():
        found[after] = found.pop(before)
    for user_id, devices in groupby(found.pop("PushDevice"), key=itemgetter("user_id")):
        found.setdefault("PersonPushDevices", []).append({"user_id": user_id, "devices": list(devices)})
    _as_records(found)
    if name.startswith("cassandra"):
        found["AccountDeletion"][0]["username"] = "eve"  # it knew which name to free
    for chat in found["ChatRecord"]:
        decided = {name: chat.pop(name) for name in ("fanout", "retention_days", "is_held")}
        if any(value not in (None, False) for value in decided.values()):
            settings = {"chat_id": chat["chat"]["chat_id"]} | {k: v for k, v in decided.items() if v}
            found.setdefault("ChatSettings", []).append(settings)
    for person in found["PersonRecord"]:
        del person["contact_count"], person["block_count"]
    for member in found["MemberRecord"]:
        del member["is_blocked"]
    of_person: dict[str, dict[str, Any]] = {}
    for relation in found.pop("KeptRelation"):
        said = of_person.setdefault(relation["user_id"], {"user_id": relation["user_id"]})
        if relation["blocked_since"]:
            said.setdefault("blocks", {})[relation["other_id"]] = relation["blocked_since"]
        if relation["contact_since"]:
            said["contacts"] = said.get("contacts", 0) + 1
            contact = {"user_id": relation["user_id"], "other_id": relation["other_id"]}
            found.setdefault("Contact", []).append(contact | {"since": relation["contact_since"]})
    for invitation in found.pop("Invitation"):
        said = of_person.setdefault(invitation["user_id"], {"user_id": invitation["user_id"]})
        said.setdefault("invitations", []).append(invitation)
    found["PersonConsent"] = list(of_person.values())
    if has_marks:
        decided = found.setdefault("ChatSettings", [])
        group = next((one for one in decided if one["chat_id"] == chats["group"]), None)
        if group is None:
            decided.append(group := {"chat_id": chats["group"]})
        group |= dict(zip(("edit_window_seconds", "edit_window_at"), WINDOWS[-1], strict=True))
    return OldStore(people, chats, found)


def _as_records(found: dict[str, list[dict[str, Any]]]) -> None:
    """When a person was last seen has a place of its own, and so have their name and their sessions."""
    for person in found["PersonRecord"]:
        user_id, username = person["user"]["user_id"], person["user"]["username"]
        if person["user"]["last_seen"] is not None:
            person["last_seen_ms"] = from_iso(person["user"]["last_seen"])
            person["user"]["last_seen"] = None
        found.setdefault("TakenName", []).append({"user_id": user_id, "username": username})
        if person["user"]["is_operator"]:
            found.setdefault("Operator", []).append({"user_id": user_id})
    for kept in found["SessionRecord"]:
        session = kept["session"]
        line = {name: session[name] for name in ("user_id", "session_id")}
        line |= {"token_hash": kept["token_hash"], "since_ms": session["created_at_ms"]}
        found.setdefault("SessionLine", []).append(line)


def _lines(name: str) -> Iterator[dict[str, Any]]:
    for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        yield msgspec.json.decode(line)


def write_sqlite(file: Path) -> None:
    connection = apsw.Connection(str(file))
    connection.execute((FOLDER / "sqlite-16.sql").read_text(encoding="utf-8"))
    chat_id = what_it_held("sqlite-16").chats["group"]
    marks = [(chat_id, 0, f"window\x1f{seconds}", at, True) for seconds, at in WINDOWS]
    connection.executemany("INSERT INTO message_marks VALUES (?, ?, ?, ?, ?)", marks)
    connection.close()


async def write_dynamodb(dynamo: Dynamo) -> None:
    lines = list(_lines("dynamodb-13"))
    tables = [line for line in lines if "request" in line]
    for line in tables:
        await dynamo.call("CreateTable", line["request"] | {"TableName": dynamo.table(line["table"])})
    items = [line for line in lines if "item" in line]
    place = {"S": f"{what_it_held('dynamodb-13').chats['group']}\x1f0"}
    for seconds, at in WINDOWS:
        mark = {"place": place, "name": {"S": f"window\x1f{seconds}"}, "sequence": {"N": str(at)}}
        items.append({"table": "message_marks", "item": mark | {"is_on": {"BOOL": True}}})

    async def put(line: dict[str, Any]) -> None:
        await dynamo.call("PutItem", {"TableName": dynamo.table(line["table"]), "Item": line["item"]})

    await asyncio.gather(*map(put, items))


def write_cassandra(
    connection: CassandraConnection, replication: str, version: int, lacked: set[str], columns: set[str]
) -> None:
    """Each cell with the time that it had: some are numbers, and a later one must win.

    `lacked` and `columns`: tables and columns that the version did not have.
    """
    keyspace = connection.address.keyspace
    connection.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {replication}")
    connection.use_keyspace()
    for line in _lines("cassandra-3"):
        if line["table"] in lacked:
            continue
        if "columns" in line:
            made = ",".join(part for part in line["columns"].split(",") if part.split()[0] not in columns)
            connection.execute(f"CREATE TABLE {line['table']} ({made})")
            continue
        for name, (value, time) in line["cells"].items():
            if name in columns:
                continue
            if name == "version":
                value = version
            keys = line["partition"] if name in line["static"] else list(line["key"])
            where = " AND ".join(f"{key} = {_cql(line['key'][key])}" for key in keys)
            connection.execute(
                f"UPDATE {line['table']} USING TIMESTAMP {time} SET {name} = {_cql(value)} WHERE {where}"
            )
    chat_id = what_it_held("cassandra-3").chats["group"]
    for seconds, at in WINDOWS if "message_marks" not in lacked else ():
        connection.execute(
            "INSERT INTO message_marks (chat_id, target, name, sequence, is_on) VALUES"
            f" ({_cql(chat_id)}, 0, {_cql(f'window{chr(31)}{seconds}')}, {at}, true) USING TIMESTAMP {at}"
        )


def _cql(value: Any) -> str:
    if isinstance(value, dict):
        return f"0x{value['b']}"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_fields(record: Any) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(msgspec.json.encode(record))
    return fields


def completed(kind: type[Any], fields: dict[str, Any]) -> dict[str, Any]:
    """With what fields have that were added since."""
    return as_fields(msgspec.json.decode(json.dumps(fields), type=kind))


async def records_in(store: OpenStore) -> dict[str, list[dict[str, Any]]]:
    async with transfer_of(store) as transfer:
        found = await all_records(transfer)
    return {kind: in_order(map(as_fields, records)) for kind, records in found.items()}


def in_order(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(records, key=lambda fields: json.dumps(fields, sort_keys=True))


async def assert_held(store: OpenStore, old: OldStore, besides: frozenset[str] = frozenset()) -> None:
    """Every record as the old version read it, and no other. `besides`: kinds that are not looked at."""
    found = await records_in(store)
    for kind in (kind for kind in RECORDS if kind not in DERIVED and kind.__name__ not in besides):
        held = [completed(kind, fields) for fields in old.records.get(kind.__name__, [])]
        assert found[kind.__name__] == in_order(held), kind
    assert len(found["StoredHash"]) == HASHES


async def assert_whole(store: OpenStore, old: OldStore) -> None:
    """It has what it held; the check finds nothing; it can be copied."""
    await assert_held(store, old)
    assert store.breaches() == []
    async with (
        MemoryEngine("atomic").opened() as target,
        transfer_of(store) as one,
        transfer_of(target) as other,
    ):
        await StoreCopy(one, other, "there", [], target.clock).run()


async def assert_served(store: OpenStore, old: OldStore) -> None:
    """Logs go on where they were; what changes next is found."""
    ann, chat = old.people["ann"], old.chats["group"]
    before = contents(await read_all(store, chat))
    told = await stored(store, message(chat, ann, "after the upgrade", UNUSED_ID))
    assert isinstance(told, Appended)
    assert told.sequence == len(before) + 1
    assert contents(await read_all(store, chat)) == [*before, "after the upgrade"]
    assert (await store.kinds.links.get("lnk_1") is not None) is ("Link" in old.records)
    assert await store.kinds.api_tokens.remove("tok_1")
    assert await store.kinds.api_tokens.all() == []
    assert await store.kinds.server_keys.key("vapid", "another") == "secret key"
