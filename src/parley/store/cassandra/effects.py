"""What a change of a chat writes outside of its log.

A conditional batch reaches one partition. So the batch with the entry of a change also writes, into the
fence, what is still to be written elsewhere (`pending`). Whoever finds it there writes it, and only then
does anybody append to the chat or tell where its log ends: a change is not seen before its effects.

The effects may be written twice, and late. So each is a plain write whose time is the position of its change:
of two writes of one cell, that of the later change stays, whichever comes first.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.concurrency import map_concurrently
from parley.errors import StoreUnavailable
from parley.model import ReadReceipts, Role, StoredChat
from parley.store.cassandra.client import Cassandra
from parley.store.cassandra.connection import Row, Statement
from parley.store.cassandra.schema import CHATS, DELIVERY, JOINING, MEMBERSHIPS
from parley.store.consent import uninvited
from parley.store.ports import Records
from parley.store.tables import CONSENTS, INVITED_PEOPLE, PutRecord, RemoveRecord, alone

ENDED_AT_ONCE_MAX = 32
ATTEMPTS_MAX = 30

PUT_CHAT = f"INSERT INTO {CHATS} (chat_id, record, direct_key, bucket) VALUES (?, ?, ?, 0) USING TIMESTAMP ?"
SET_COUNTS = f"UPDATE {CHATS} USING TIMESTAMP ? SET member_count = ?, owner_count = ? WHERE chat_id = ?"
SET_TITLE = f"UPDATE {CHATS} USING TIMESTAMP ? SET title = ?, updated_at = ? WHERE chat_id = ?"
SET_RECEIPTS = f"UPDATE {CHATS} USING TIMESTAMP ? SET read_receipts = ?, updated_at = ? WHERE chat_id = ?"
SET_ANNOUNCEMENTS = (
    f"UPDATE {CHATS} USING TIMESTAMP ? SET announcement_only = ?, updated_at = ? WHERE chat_id = ?"
)
SET_SLOW_MODE = (
    f"UPDATE {CHATS} USING TIMESTAMP ? SET slow_mode_seconds = ?, updated_at = ? WHERE chat_id = ?"
)
PUT_MEMBER = (
    f"INSERT INTO {MEMBERSHIPS} (chat_id, user_id, role, joined_at, joined_sequence)"
    " VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?"
)
DELETE_MEMBER = f"DELETE FROM {MEMBERSHIPS} USING TIMESTAMP ? WHERE chat_id = ? AND user_id = ?"
SET_ROLE = f"UPDATE {MEMBERSHIPS} USING TIMESTAMP ? SET role = ? WHERE chat_id = ? AND user_id = ?"
PUT_PLACE = (
    f"INSERT INTO {DELIVERY} (user_id, chat_id, has_left, joined_sequence, is_unasked)"
    " VALUES (?, ?, false, ?, ?) USING TIMESTAMP ?"
)
LEAVE_PLACE = (
    f"UPDATE {DELIVERY} USING TIMESTAMP ? SET has_left = true, left_sequence = ?"
    " WHERE user_id = ? AND chat_id = ?"
)
END_JOINING = f"DELETE FROM {JOINING} WHERE user_id = ? AND chat_id = ? IF joining = ?"
READ_JOINING = f"SELECT joining FROM {JOINING} WHERE user_id = ? AND chat_id = ?"

encode_effects = msgspec.json.Encoder().encode
_encode_chat = msgspec.json.Encoder().encode
_decode_chat = msgspec.json.Decoder(StoredChat).decode


class JoinedMember(Struct, array_like=True):
    """`joining`: what stands in the person's partition until this is done; empty if nothing does."""

    user_id: str
    role: Role
    joined_at: str
    is_unasked: bool
    joining: str = ""


class Effects(Struct, omit_defaults=True):
    """Of one change, at its position; of a new chat, at 0."""

    chat_id: str
    sequence: int
    created: StoredChat | None = None
    direct_key: str | None = None
    joined: list[JoinedMember] = []
    left: str = ""
    role: tuple[str, Role] | None = None
    counts: tuple[int, int] | None = None
    """Members, and owners among them."""
    title: str | None = None
    read_receipts: ReadReceipts | None = None
    announcement_only: bool | None = None
    slow_mode_seconds: int | None = None
    updated_at: str = ""


decode_effects = msgspec.json.Decoder(Effects).decode


async def apply_effects(cassandra: Cassandra, records: Records, effects: Effects) -> None:
    await cassandra.write_all(statements(effects))
    joining = [one for one in effects.joined if one.joining]
    await map_concurrently(
        lambda one: _end_joining(cassandra, records, effects.chat_id, one), joining, ENDED_AT_ONCE_MAX
    )


def statements(effects: Effects) -> list[Statement]:
    chat_id, time = effects.chat_id, effects.sequence + 1
    found: list[Statement] = []
    for one in effects.joined:
        row = (chat_id, one.user_id, one.role.value, one.joined_at, effects.sequence, time)
        found += [
            (PUT_MEMBER, row),
            (PUT_PLACE, (one.user_id, chat_id, effects.sequence, one.is_unasked, time)),
        ]
    if effects.left:
        found += [
            (DELETE_MEMBER, (time, chat_id, effects.left)),
            (LEAVE_PLACE, (time, effects.sequence, effects.left, chat_id)),
        ]
    if effects.role is not None:
        found.append((SET_ROLE, (time, effects.role[1].value, chat_id, effects.role[0])))
    if effects.counts is not None:
        found.append((SET_COUNTS, (time, *effects.counts, chat_id)))
    if effects.title is not None:
        found.append((SET_TITLE, (time, effects.title, effects.updated_at, chat_id)))
    if effects.read_receipts is not None:
        found.append((SET_RECEIPTS, (time, effects.read_receipts.value, effects.updated_at, chat_id)))
    if effects.announcement_only is not None:
        found.append((SET_ANNOUNCEMENTS, (time, effects.announcement_only, effects.updated_at, chat_id)))
    if effects.slow_mode_seconds is not None:
        found.append((SET_SLOW_MODE, (time, effects.slow_mode_seconds, effects.updated_at, chat_id)))
    if effects.created is not None:
        found.append((PUT_CHAT, (chat_id, _encode_chat(effects.created), effects.direct_key, time)))
    return found


async def _end_joining(cassandra: Cassandra, records: Records, chat_id: str, one: JoinedMember) -> None:
    """The person is in: no invitation waits for them, and nothing has to be kept from putting them there."""
    for _ in range(ATTEMPTS_MAX):
        (said,) = await records.get(CONSENTS, [alone(one.user_id)])
        without = uninvited(said, chat_id)
        row = await cassandra.row(READ_JOINING, one.user_id, chat_id, is_serial=True)
        if row is None or row["joining"] != one.joining:
            return  # somebody else has done it, and they may have been invited again
        if without is None:
            break
        if await records.commit(CONSENTS, [PutRecord(without, before=said)]):
            await records.commit(INVITED_PEOPLE, [RemoveRecord((chat_id, one.user_id))])
            break
    else:
        raise StoreUnavailable("this person is being written to by too many at once")
    ended = (END_JOINING, (one.user_id, chat_id, one.joining))

    async def is_done() -> bool:
        found = await cassandra.row(READ_JOINING, one.user_id, chat_id, is_serial=True)
        return found is None or found["joining"] != one.joining

    await cassandra.resolve(lambda: cassandra.cas(ended), is_done)


def chat_in(row: Row) -> StoredChat:
    chat = _decode_chat(row["record"])
    if row["epoch"] is not None:
        chat = replace(chat, epoch=max(chat.epoch, row["epoch"]))
    if row["updated_at"] is None:
        return chat
    receipts, announces, slow = row["read_receipts"], row["announcement_only"], row["slow_mode_seconds"]
    return replace(
        chat,
        title=chat.title if row["title"] is None else row["title"],
        read_receipts=chat.read_receipts if receipts is None else ReadReceipts(receipts),
        announcement_only=chat.announcement_only if announces is None else announces,
        slow_mode_seconds=chat.slow_mode_seconds if slow is None else slow,
        updated_at=row["updated_at"],
    )
