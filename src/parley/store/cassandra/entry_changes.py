"""The `Entries` port on Cassandra. Its marks are in the rows of `chats`, in columns that conditions write.

A trim sets the mark of the chat, and then takes the positions out of one bucket after the other: one batch
deletes them and says so in the bucket's fence (`trimmed_through`). Every batch of an append and every void
has the condition that the fence says less than its position. The fence itself stays, however little is left
of its bucket: without it a node that was slow could open the bucket a second time.

The keys of clients go with a bucket that is closed, because they were copied when it was. Those in the open
bucket stay.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from parley.errors import StoreUnavailable
from parley.store.cassandra.chat_state import (
    ATTEMPTS_MAX,
    KEYS_AT,
    NO_KEY,
    READ_CHAT,
    READ_FENCE,
    CassandraChatStates,
)
from parley.store.cassandra.client import is_key
from parley.store.cassandra.connection import Row, Statement
from parley.store.cassandra.deliveries import CassandraDeliveryQueues
from parley.store.cassandra.schema import CHATS, LOG
from parley.store.ports import Replaced
from parley.store.rows import EVERYTHING, ArchiveMark
from parley.wire.codec import decode_entry

MARK_COLUMNS = (
    "chat_id, record, archived_through, trimmed_through, archive_version, archive_manifest, is_trimming"
)
READ_MARK = f"SELECT {MARK_COLUMNS} FROM {CHATS} WHERE chat_id = ?"
RECORD = (
    f"UPDATE {CHATS} SET archived_through = ?, archive_version = ?, archive_manifest = ?"
    " WHERE chat_id = ? IF record != null AND archive_version = ?"
)
SET_TRIMMED = (
    f"UPDATE {CHATS} SET trimmed_through = ?, is_trimming = true WHERE chat_id = ? IF trimmed_through = ?"
)
END_TRIM = f"UPDATE {CHATS} SET is_trimming = false WHERE chat_id = ? IF trimmed_through = ?"
SET_FENCE = f"UPDATE {LOG} SET trimmed_through = ? WHERE chat_id = ? AND bucket = ? IF trimmed_through = ?"
DELETE_POSITIONS = f"DELETE FROM {LOG} WHERE chat_id = ? AND bucket = ? AND sequence > ? AND sequence <= ?"
BEFORE_KEYS = KEYS_AT - 1
REPLACE = (
    f"UPDATE {LOG} SET wire = ?, is_deleted = ?"
    " WHERE chat_id = ? AND bucket = ? AND sequence = ? AND client_key = ? IF wire"
)
READ_WIRE = f"SELECT wire FROM {LOG} WHERE chat_id = ? AND bucket = ? AND sequence = ? AND client_key = ?"
IsDone = Callable[[], Awaitable[bool]]


class CassandraEntries:
    def __init__(self, states: CassandraChatStates, queues: CassandraDeliveryQueues) -> None:
        self._states = states
        self._cassandra = states.cassandra
        self._queues = queues

    async def marks(self, chat_ids: Sequence[str]) -> dict[str, ArchiveMark]:
        return {row["chat_id"]: mark_in(row) for row in await self._chats(READ_MARK, chat_ids)}

    async def _chats(self, cql: str, chat_ids: Sequence[str]) -> list[Row]:
        asked = [(chat_id,) for chat_id in dict.fromkeys(chat_ids) if is_key(chat_id)]
        return [row for row in await self._cassandra.rows_of(cql, asked) if row["record"] is not None]

    async def record(self, chat_id: str, mark: ArchiveMark) -> bool:
        before = mark.version - 1 or None
        values = (mark.archived_through, mark.version, mark.manifest, chat_id, before)

        async def is_done() -> bool:
            row = await self._cassandra.row(READ_MARK, chat_id, is_serial=True) or {}
            return (row.get("archive_version"), row.get("archive_manifest")) == (mark.version, mark.manifest)

        return await self._write(RECORD, values, is_done)

    async def _write(self, cql: str, values: Sequence[object], is_done: IsDone) -> bool:
        return (await self._cassandra.resolve(lambda: self._cassandra.cas((cql, values)), is_done)).is_applied

    async def needed_from(self, chat_id: str) -> int:
        chat = await self._cassandra.row(READ_CHAT, chat_id)
        if chat is None or chat["record"] is None:
            return EVERYTHING
        _, fence = await self._states.find_open(chat_id, chat["bucket"] or 0)
        published = (fence["published_through"] or 0) + 1 if fence["listing"] is not None else EVERYTHING
        queues = await self._queues.of_chat(chat_id)
        return min([published, *(queue.next_sequence for queue in queues)])

    # Trimming

    async def trim(self, chat_id: str, through: int) -> None:
        for _ in range(ATTEMPTS_MAX):
            mark = (await self.marks([chat_id])).get(chat_id, ArchiveMark())
            is_due = mark.trimmed_through < through or (mark.trimmed_through == through and mark.is_trimming)
            if mark.archived_through < through or not is_due:
                return
            if mark.trimmed_through == through or await self._set_mark(chat_id, mark, through):
                await self._take_out(chat_id, through)
                await self._cassandra.repeat((END_TRIM, (chat_id, through)))
                return
        raise StoreUnavailable("the chat is being trimmed by too many at once")

    async def _set_mark(self, chat_id: str, mark: ArchiveMark, through: int) -> bool:
        async def is_done() -> bool:
            row = await self._cassandra.row(READ_MARK, chat_id, is_serial=True) or {}
            return row.get("trimmed_through") == through

        return await self._write(SET_TRIMMED, (through, chat_id, mark.trimmed_through or None), is_done)

    async def _take_out(self, chat_id: str, through: int) -> None:
        """From the first bucket that an earlier trim has not emptied, so that one that died is followed."""
        last = first = self._states.bucket_of(through)
        while first > 0 and await self._trimmed_in(chat_id, first - 1) < self._states.end_of(first - 1):
            first -= 1
        for bucket in range(first, last + 1):
            await self._take_out_of(chat_id, bucket, min(through, self._states.end_of(bucket)))

    async def _trimmed_in(self, chat_id: str, bucket: int) -> int:
        fence = await self._cassandra.row(READ_FENCE, chat_id, bucket) or {}
        return fence.get("trimmed_through") or 0

    async def _take_out_of(self, chat_id: str, bucket: int, through: int) -> None:
        for _ in range(ATTEMPTS_MAX):
            fence = await self._cassandra.row(READ_FENCE, chat_id, bucket) or {}
            if (fence.get("trimmed_through") or 0) >= through:
                return
            is_emptied = through == self._states.end_of(bucket) and await self._is_followed(chat_id, bucket)
            after = BEFORE_KEYS if is_emptied else KEYS_AT
            batch: list[Statement] = [
                (SET_FENCE, (through, chat_id, bucket, fence.get("trimmed_through"))),
                (DELETE_POSITIONS, (chat_id, bucket, after, through)),
            ]
            await self._cassandra.repeat(*batch)
        raise StoreUnavailable("the chat is being trimmed by too many at once")

    async def _is_followed(self, chat_id: str, bucket: int) -> bool:
        """Whether the next bucket is there: before it was, the keys of this one were copied."""
        following = await self._cassandra.row(READ_FENCE, chat_id, bucket + 1)
        return following is not None and following["is_closed"] is not None

    # Bodies

    async def replace(self, chat_id: str, entries: Mapping[int, Replaced]) -> list[int]:
        """Each under a condition, also in a closed bucket."""
        return [
            sequence
            for sequence in sorted(entries)
            if await self._replace_one(chat_id, sequence, entries[sequence])
        ]

    async def _replace_one(self, chat_id: str, sequence: int, to: Replaced) -> bool:
        place = (chat_id, self._states.bucket_of(sequence), sequence, NO_KEY)
        is_deleted = decode_entry(to.after).deleted is True

        async def is_done() -> bool:
            row = await self._cassandra.row(READ_WIRE, *place, is_serial=True) or {}
            return bool(row.get("wire") == to.after)

        condition = "!= null" if to.before is None else "= ?"
        values = (to.after, is_deleted, *place, *(() if to.before is None else (to.before,)))
        return await self._write(f"{REPLACE} {condition}", values, is_done)

    async def scrub(self, leftovers: Sequence[bytes] | None = None) -> None:
        """No read finds it any more. The disks of the cluster have it until they compact it away."""


def mark_in(row: Row) -> ArchiveMark:
    """The mark in the row of a chat."""
    return ArchiveMark(
        archived_through=row["archived_through"] or 0,
        trimmed_through=row["trimmed_through"] or 0,
        version=row["archive_version"] or 0,
        manifest=row["archive_manifest"] or "",
        is_trimming=bool(row["is_trimming"]),
    )
