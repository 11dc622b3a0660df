"""Writing noted positions: only upwards, and telling which people's really rose."""

from __future__ import annotations

from typing import Any

from parley.clock import MS_PER_DAY, iso
from parley.model import Moved, ReceiptKind
from parley.store.notes import Mark, Notes
from parley.store.sqlite.writer import Transaction
from parley.wire.limits import SESSION_DAYS

RAISE_DEVICE = (
    "INSERT INTO user_device_cursors (user_id, device_id, chat_id, last_acked_sequence) VALUES (?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET last_acked_sequence = excluded.last_acked_sequence"
    " WHERE excluded.last_acked_sequence > last_acked_sequence RETURNING user_id, chat_id"
)
TOUCH = "UPDATE delivery_state SET change = ? WHERE user_id = ? AND chat_id = ? AND NOT has_left"
# Who has left was told so: what was still under way from their devices is no news to them.
CHANGE = "change = CASE WHEN has_left THEN change ELSE ?1 END"
RAISE_DELIVERED = (
    f"UPDATE delivery_state SET {CHANGE}, last_acked_sequence = ?2, delivered_at = ?3"
    " WHERE user_id = ?4 AND chat_id = ?5 AND last_acked_sequence < ?2"
    " RETURNING user_id, chat_id, last_acked_sequence, delivered_at"
)
RAISE_READ = (
    f"UPDATE delivery_state SET {CHANGE}, read_up_to = ?2, read_at = ?3"
    " WHERE user_id = ?4 AND chat_id = ?5 AND read_up_to < ?2"
    " RETURNING user_id, chat_id, read_up_to, read_at"
)
USED = (
    "UPDATE sessions SET last_used_at_ms = ?, expires_at_ms = ? WHERE token_hash = ? AND last_used_at_ms < ?"
)
SEEN = "UPDATE users SET last_seen = ?1 WHERE user_id = ?2 AND coalesce(last_seen, '') < ?1"
"""Times in ISO 8601 sort as they follow each other."""

Person = tuple[str, str]
"""Somebody in a chat, by both ids."""


def write(transaction: Transaction, notes: Notes) -> list[Moved]:
    """Everything noted, in the open transaction; the rises of people, delivered before read."""
    moved: list[Moved] = []
    devices = _raise_devices(transaction, notes) if notes.acked else set()
    if notes.acked or notes.read:
        moved = _raise_people(transaction, notes.delivered(), RAISE_DELIVERED, ReceiptKind.DELIVERED)
    if notes.read:
        moved += _raise_people(transaction, notes.read, RAISE_READ, ReceiptKind.READ)
    behind = devices.difference((one.user_id, one.chat_id) for one in moved)
    if behind:
        transaction.executemany(TOUCH, [(transaction.change, *person) for person in behind])
    if notes.used:
        days_ms = SESSION_DAYS * MS_PER_DAY
        transaction.executemany(USED, [(ms, ms + days_ms, token, ms) for token, ms in notes.used.items()])
    if notes.seen:
        transaction.executemany(SEEN, [(iso(ms), user_id) for user_id, ms in notes.seen.items()])
    return moved


def _raise_devices(transaction: Transaction, notes: Notes) -> set[Person]:
    """Whose devices moved, and where."""
    rows = [(*device, sequence) for device, (sequence, _) in notes.acked.items() if sequence > 0]
    moved: list[Any] = transaction.executemany(RAISE_DEVICE, rows).fetchall()
    return set(moved)


def _raise_people(
    transaction: Transaction, marks: dict[Person, Mark], statement: str, kind: ReceiptKind
) -> list[Moved]:
    change = transaction.change
    rows = [(change, sequence, iso(ms), *person) for person, (sequence, ms) in marks.items()]
    raised: list[Any] = transaction.executemany(statement, rows).fetchall()
    return [Moved(user_id, chat_id, kind, up_to, at) for user_id, chat_id, up_to, at in raised]
