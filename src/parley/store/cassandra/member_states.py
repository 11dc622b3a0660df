"""The `MemberStates` port on Cassandra: how far the members of a chat are, and who has muted it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from parley.model import MemberCursor, MemberSettings, Notify
from parley.store.cassandra.client import Cassandra, is_key
from parley.store.cassandra.connection import Row
from parley.store.cassandra.cursors import FORGET_DEVICE
from parley.store.cassandra.directory import READ_MEMBERS
from parley.store.cassandra.schema import DELIVERY, DEVICES

READ_STATE = f"SELECT * FROM {DELIVERY} WHERE user_id = ? AND chat_id = ?"
SET = (
    f"UPDATE {DELIVERY} SET muted_until = ?, notify = ?, setting_changes = ?"
    " WHERE user_id = ? AND chat_id = ? IF setting_changes = ?"
)
READ_CURSORS = f"SELECT device_id, chat_id FROM {DEVICES} WHERE user_id = ?"


class CassandraMemberStates:
    def __init__(self, cassandra: Cassandra) -> None:
        self._cassandra = cassandra

    async def cursors(self, chat_id: str) -> list[MemberCursor]:
        members = await self._cassandra.rows(READ_MEMBERS, chat_id, "") if is_key(chat_id) else []
        states = await self._states(chat_id, [row["user_id"] for row in members])
        return [_member_cursor(row, states.get(row["user_id"], {})) for row in members]

    async def _states(self, chat_id: str, user_ids: Sequence[str]) -> dict[str, Row]:
        keys = [(user_id, chat_id) for user_id in dict.fromkeys(user_ids) if is_key(user_id, chat_id)]
        rows = await self._cassandra.rows_of(READ_STATE, keys)
        return {row["user_id"]: row for row in rows if row["has_left"] is not None}

    async def mute(self, user_id: str, chat_id: str, until: str | None) -> None:
        await self._set(user_id, chat_id, lambda row: (until, row["notify"]))

    async def set_notify(self, user_id: str, chat_id: str, notify: Notify) -> None:
        await self._set(user_id, chat_id, lambda row: (row["muted_until"], notify.value))

    async def _set(self, user_id: str, chat_id: str, settings: Settings) -> None:
        """Nothing happens if the person is not in the chat."""
        while True:
            row = (await self._states(chat_id, [user_id])).get(user_id)
            if row is None or row["has_left"]:
                return
            after, changes = settings(row), row["setting_changes"]
            if after == (row["muted_until"], row["notify"]):
                return
            update = (SET, (*after, (changes or 0) + 1, user_id, chat_id, changes))

            async def is_done() -> bool:
                found = await self._cassandra.row(READ_STATE, user_id, chat_id, is_serial=True)
                return found is not None and (found["muted_until"], found["notify"]) == after  # noqa: B023

            if (await self._cassandra.resolve(lambda: self._cassandra.cas(update), is_done)).is_applied:  # noqa: B023
                return

    async def settings(self, chat_id: str, user_ids: Sequence[str]) -> dict[str, MemberSettings]:
        rows = await self._states(chat_id, user_ids)
        found = {user_id: _settings(row) for user_id, row in rows.items() if not row["has_left"]}
        return {user_id: found.get(user_id, MemberSettings()) for user_id in user_ids}

    async def forget_cursors(self, user_id: str, *, dry: bool = False) -> int:
        rows = await self._cassandra.rows(READ_CURSORS, user_id)
        for row in () if dry else rows:
            await self._cassandra.repeat((FORGET_DEVICE, (user_id, row["device_id"], row["chat_id"])))
        return len(rows)


Settings = Callable[[Row], tuple[str | None, str | None]]
"""From a row, until when it is muted and which messages notify."""


def _settings(row: Row) -> MemberSettings:
    return MemberSettings(
        notify=Notify(row["notify"] or Notify.ALL),
        muted_until=row["muted_until"],
        delivered_up_to=row["last_acked_sequence"] or 0,
        read_up_to=row["read_up_to"] or 0,
    )


def _member_cursor(member: Row, state: Row) -> MemberCursor:
    return MemberCursor(
        user_id=member["user_id"],
        joined_sequence=member["joined_sequence"] or 0,
        delivered_up_to=state.get("last_acked_sequence") or 0,
        delivered_at=state.get("delivered_at"),
        read_up_to=state.get("read_up_to") or 0,
        read_at=state.get("read_at"),
    )
