"""The tables: their definitions, their creation, and their version.

`parley store init` creates the keyspace and missing tables, and changes no other. A server only checks them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from parley.errors import ConfigError
from parley.store.cassandra.client import Cassandra
from parley.store.tables import TABLES as RECORD_TABLES
from parley.store.tables import R, RecordTable

VERSION = 4
"""2: copies, archives, removed bodies. Tables of version 1 were for trying, and are not changed. 3: links and
reports, who may post in a group, what became of messages, files. 4: tables of records."""
UPGRADED_FROM = 2
"""The oldest version that `parley store init` brings up to date."""
BUCKET_POSITIONS = 4_096
"""Positions of a log in one partition: with keys, and messages of some hundred bytes, a few megabytes."""
INIT = "run parley store init"
KEYSPACE_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
GC_GRACE_SECONDS = 864_000

Report = Callable[[str], None]
Upgrade = Callable[[int, Report], Awaitable[None]]

TABLES: dict[str, str] = {}
"""The columns and the key of each table."""


def _define(name: str, columns: str) -> str:
    """Add a table to `TABLES` and return its name."""
    TABLES[name] = columns
    return name


LOG = _define(
    "log",
    """chat_id text, bucket int, sequence bigint, client_key blob,
    is_closed boolean static, epoch bigint static, revision text static, pending blob static,
    sequence_counter bigint static, written_through bigint static, last_sequence bigint static,
    resolved_through bigint static, listing text static, published_through bigint static,
    recovered_at text static, recovered_from_sequence bigint static, trimmed_through bigint static,
    kind text, sender_id text, message_id text, wire blob, is_deleted boolean, stored_at bigint,
    PRIMARY KEY ((chat_id, bucket), sequence, client_key)""",
)
"""Entries and voids by position, the keys of their clients at sequence 0, and the fence in static columns."""
KEYS = _define(
    "idempotency_keys",
    """chat_id text, client_key blob, stored_at bigint, sender_id text, message_id text,
    PRIMARY KEY ((chat_id, client_key))""",
)
"""The keys of closed buckets, for as long as a retry may arrive."""
CHATS = _define(
    "chats",
    """chat_id text PRIMARY KEY, record blob, direct_key text, title text, read_receipts text,
    updated_at text, member_count int, owner_count int, bucket int, fanout text, epoch bigint,
    archived_through bigint, trimmed_through bigint, archive_version bigint, archive_manifest text,
    is_trimming boolean, retention_days int, is_held boolean,
    announcement_only boolean, slow_mode_seconds int""",
)
"""Chats: what never changes (`record`), and what changes write. `bucket`: one that was open once. `epoch`: of
a later life of the store. From `archived_through` on, conditions write."""
MEMBERSHIPS = _define(
    "chat_memberships",
    """chat_id text, user_id text, role text, joined_at text, joined_sequence bigint,
    PRIMARY KEY ((chat_id), user_id)""",
)
DELIVERY = _define(
    "delivery_state",
    """user_id text, chat_id text, has_left boolean, left_sequence bigint, joined_sequence bigint,
    is_unasked boolean, last_acked_sequence bigint, delivered_at text, read_up_to bigint, read_at text,
    muted_until text, notify text, setting_changes int, copied_at bigint,
    PRIMARY KEY ((user_id), chat_id)""",
)
"""A person's own row of a chat: whether they left, how far they are, whether it is muted. `copied_at`: in
seconds, if a copy has put it here."""
DEVICES = _define(
    "user_device_cursors",
    """user_id text, device_id text, chat_id text, last_acked_sequence bigint,
    PRIMARY KEY ((user_id), device_id, chat_id)""",
)
JOINING = _define(
    "joining",
    """user_id text, chat_id text, revision text static, joining text,
    PRIMARY KEY ((user_id), chat_id)""",
)
"""The chats that a person is just being put into. All that decides about their consent moves `revision`."""
DIRECT_CHATS = _define("direct_chats", "direct_key text PRIMARY KEY, chat_id text")
"""Which chat is the direct chat of two people."""
IMPORTED_IDS = _define("imported_ids", "message_id text PRIMARY KEY, chat_id text, sequence bigint")
"""Where messages are whose ids do not lead to their places: they were copied here."""
UNPUBLISHED = _define(
    "unpublished",
    "shard_no int, chat_id text, listing text, since_ms bigint, PRIMARY KEY ((shard_no), chat_id, listing)",
)
"""Chats with entries that may not be on the bus."""
QUEUES = _define(
    "lanes",
    "shard_no int, recipient text, chat_id text, record blob, PRIMARY KEY ((shard_no), recipient, chat_id)",
)
SCHEMA = _define("parley_schema", "name text PRIMARY KEY, version int, bucket_positions int, value text")
"""The version of these tables, the size of a bucket, and keys of the server."""


def records_of(table: RecordTable[R]) -> str:
    """The name of a table of records."""
    return f"records_{table.name}"


for kept in RECORD_TABLES:
    _define(
        records_of(kept),
        "partition text, place text, record blob, number bigint, PRIMARY KEY ((partition), place)",
    )

ADDED_COLUMNS = {CHATS: {"announcement_only": "boolean", "slow_mode_seconds": "int"}}
"""Columns that tables of an older version lack."""
OPTIONS = {records_of(kept): " WITH gc_grace_seconds = 3600" for kept in RECORD_TABLES if kept.is_brief}
ONE_LIST = "all"
"""The partition of a table that has one."""
MARK = "parley"
"""The row in `SCHEMA` that holds the version."""
DESCRIBE = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?"
DESCRIBE_COLUMNS = "SELECT column_name FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?"
READ_MARK = f"SELECT version, bucket_positions FROM {SCHEMA} WHERE name = ?"


async def create_tables(
    cassandra: Cassandra,
    replication: str,
    report: Report = lambda _: None,
    bucket_positions: int = BUCKET_POSITIONS,
    upgrade: Upgrade | None = None,
) -> list[str]:
    """Create the keyspace and all missing tables. Safe to repeat. Returns the names of those it created.

    The version is written last: before that, no server starts on them. `upgrade` moves what is in
    the tables of that version.
    """
    keyspace = cassandra.keyspace
    if not KEYSPACE_NAME.fullmatch(keyspace):
        raise ConfigError(f"cassandra.keyspace: {keyspace!r} must be small letters, digits and _")
    existing = await table_names(cassandra)
    if not existing:
        await cassandra.define(f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {replication}")
    await cassandra.use_keyspace()
    if SCHEMA in existing:
        await _check_not_newer(cassandra)
    made = [name for name in TABLES if name not in existing]
    for name in made:
        await cassandra.define(f"CREATE TABLE IF NOT EXISTS {name} ({TABLES[name]}){OPTIONS.get(name, '')}")
        report(f"{keyspace}.{name}: created")
    for name in existing & TABLES.keys():
        await _add_columns(cassandra, name)
        report(f"{keyspace}.{name}: already exists")
    mark = f"INSERT INTO {SCHEMA} (name, version, bucket_positions) VALUES (?, ?, ?) IF NOT EXISTS"
    await cassandra.cas((mark, (MARK, VERSION, bucket_positions)))
    found = await cassandra.row(READ_MARK, MARK)
    if upgrade is not None and found is not None:
        await upgrade(found["version"], report)
    await _raise_version(cassandra, report)
    return [f"{keyspace}.{name}" for name in made]


async def _add_columns(cassandra: Cassandra, table: str) -> None:
    """Those that an older version lacks."""
    there = {row["column_name"] for row in await cassandra.rows(DESCRIBE_COLUMNS, cassandra.keyspace, table)}
    for name, kind in ADDED_COLUMNS.get(table, {}).items():
        if name not in there:
            await cassandra.define(f"ALTER TABLE {table} ADD {name} {kind}")


async def _raise_version(cassandra: Cassandra, report: Report) -> None:
    """Last of all, as with new tables: before that, no server of this version starts on them."""
    mark = await cassandra.row(READ_MARK, MARK)
    if mark is not None and UPGRADED_FROM <= mark["version"] < VERSION:
        raising = f"UPDATE {SCHEMA} SET version = ? WHERE name = ? IF version = ?"
        await cassandra.cas((raising, (VERSION, MARK, mark["version"])))
        report(f"upgraded from version {mark['version']} to {VERSION}")


async def table_names(cassandra: Cassandra) -> set[str]:
    """The tables of the keyspace; none if it does not exist."""
    return {row["table_name"] for row in await cassandra.rows(DESCRIBE, cassandra.keyspace)}


async def check_tables(cassandra: Cassandra) -> int:
    """The size of a bucket. ConfigError, in one sentence, if a server cannot start on these tables."""
    there = await table_names(cassandra)
    where = f"the keyspace {cassandra.keyspace} at {cassandra.where}"
    if not there:
        raise ConfigError(f"{where} is missing or empty: {INIT}, or check contact points and keyspace")
    missing = [name for name in TABLES if name not in there]
    if missing:
        raise ConfigError(f"{where} has no table {missing[0]}: {INIT}")
    await cassandra.use_keyspace()
    mark = await cassandra.row(READ_MARK, MARK)
    if mark is None:
        raise ConfigError(f"{where} is incomplete: {INIT}")
    await _check_not_newer(cassandra)
    if UPGRADED_FROM <= mark["version"] < VERSION:
        raise ConfigError(f"{where} has the old version {mark['version']}: {INIT}")
    if mark["version"] < VERSION:
        raise ConfigError(
            f"{where} has version {mark['version']}, which was for trying only:"
            f" name a new keyspace, and {INIT}"
        )
    return int(mark["bucket_positions"])


async def _check_not_newer(cassandra: Cassandra) -> None:
    mark = await cassandra.row(READ_MARK, MARK)
    if mark is not None and mark["version"] > VERSION:
        raise ConfigError(
            f"the keyspace {cassandra.keyspace} has version {mark['version']}, of a newer Parley:"
            " install a newer Parley"
        )
