"""The `MemberStates` port on SQLite."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from parley.model import MemberCursor, MemberSettings, Notify
from parley.store.sqlite.reads import Reads
from parley.store.sqlite.writer import Transaction, Writer

MARKS = """
SELECT m.user_id, m.joined_sequence, coalesce(d.last_acked_sequence, 0), d.delivered_at,
    coalesce(d.read_up_to, 0), d.read_at
FROM chat_memberships AS m LEFT JOIN delivery_state AS d ON d.user_id = m.user_id AND d.chat_id = m.chat_id
WHERE m.chat_id = ? ORDER BY m.user_id
"""
MUTE = (
    "UPDATE delivery_state SET muted_until = ?1, change = ?2"
    " WHERE user_id = ?3 AND chat_id = ?4 AND NOT has_left AND muted_until IS NOT ?1"
)
SET_NOTIFY = "UPDATE delivery_state SET notify = ? WHERE user_id = ? AND chat_id = ? AND NOT has_left"
SETTINGS = (
    "SELECT user_id, notify, muted_until, last_acked_sequence, read_up_to FROM delivery_state"
    " WHERE chat_id = ? AND NOT has_left AND user_id IN (SELECT value FROM json_each(?))"
)
NO_SETTINGS = MemberSettings()

encode = msgspec.json.Encoder().encode


class SqliteMemberStates:
    def __init__(self, reads: Reads, writer: Writer) -> None:
        self._reads = reads
        self._writer = writer

    async def cursors(self, chat_id: str) -> list[MemberCursor]:
        return [MemberCursor(*row) for row in self._reads.rows(MARKS, (chat_id,))]

    async def mute(self, user_id: str, chat_id: str, until: str | None) -> None:
        def work(tx: Transaction) -> None:
            tx.execute(MUTE, (until, tx.change, user_id, chat_id))

        await self._writer.run(work)

    async def set_notify(self, user_id: str, chat_id: str, notify: Notify) -> None:
        def work(tx: Transaction) -> None:
            tx.execute(SET_NOTIFY, (notify.value, user_id, chat_id))

        await self._writer.run(work)

    async def settings(self, chat_id: str, user_ids: Sequence[str]) -> dict[str, MemberSettings]:
        rows = self._reads.rows(SETTINGS, (chat_id, encode(list(user_ids)).decode()))
        found = {row[0]: MemberSettings(Notify(row[1]), *row[2:]) for row in rows}
        return {user_id: found.get(user_id, NO_SETTINGS) for user_id in user_ids}

    async def forget_cursors(self, user_id: str, *, dry: bool = False) -> int:
        def work(transaction: Transaction) -> int:
            transaction.execute("DELETE FROM user_device_cursors WHERE user_id = ?", (user_id,))
            return transaction.connection.changes()

        if dry:
            row = self._reads.row("SELECT count(*) FROM user_device_cursors WHERE user_id = ?", (user_id,))
            return int(row[0]) if row else 0
        return await self._writer.run(work)
