"""The ports `ApiTokens` and `ExternalIds` on SQLite."""

from __future__ import annotations

from parley.model import ApiToken
from parley.store.records import column_names, record_of
from parley.store.sqlite.reads import Reads, Row
from parley.store.sqlite.record_tables import TABLES
from parley.store.sqlite.writer import Transaction, Writer

TABLE = TABLES[ApiToken]
COLUMNS = column_names(ApiToken)
TOKEN = f"SELECT {', '.join(COLUMNS)} FROM {TABLE.name}"
USED = "UPDATE api_tokens SET last_used_at_ms = max(last_used_at_ms, ?) WHERE token_id = ?"


class SqliteApiTokens:
    def __init__(self, reads: Reads, writer: Writer) -> None:
        self._reads = reads
        self._writer = writer

    async def add(self, token: ApiToken) -> None:
        sql, row = TABLE.insert(ApiToken), TABLE.values(token)
        await self._writer.run(lambda tx: tx.execute(sql, row))

    async def get(self, token_id: str) -> ApiToken | None:
        row = self._reads.row(f"{TOKEN} WHERE token_id = ?", (token_id,))
        return _token_of(row) if row else None

    async def all(self) -> list[ApiToken]:
        return [_token_of(row) for row in self._reads.rows(f"{TOKEN} ORDER BY token_id")]

    async def note_used(self, token_id: str, now_ms: int) -> None:
        await self._writer.run(lambda tx: tx.execute(USED, (now_ms, token_id)))

    async def remove(self, token_id: str) -> bool:
        def work(tx: Transaction) -> bool:
            tx.execute("DELETE FROM api_tokens WHERE token_id = ?", (token_id,))
            return tx.connection.changes() == 1

        return await self._writer.run(work)


def _token_of(row: Row) -> ApiToken:
    return record_of(ApiToken, dict(zip(COLUMNS, row, strict=True)))


class SqliteExternalIds:
    def __init__(self, reads: Reads, writer: Writer) -> None:
        self._reads = reads
        self._writer = writer

    async def claim(self, key: str, user_id: str) -> str:
        def work(tx: Transaction) -> str:
            tx.execute("INSERT OR IGNORE INTO external_ids VALUES (?, ?)", (key, user_id))
            ((owner,),) = tx.execute("SELECT user_id FROM external_ids WHERE key = ?", (key,)).fetchall()
            return str(owner)

        return await self._writer.run(work)

    async def find(self, key: str) -> str | None:
        row = self._reads.row("SELECT user_id FROM external_ids WHERE key = ?", (key,))
        return row[0] if row else None
