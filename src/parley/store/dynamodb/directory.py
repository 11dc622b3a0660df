"""The `Directory` port on DynamoDB.

A chat exists once its own item does. Up to 45 members are written in the same transaction. The rows of more
are written before, each marked `early`: until the chat's item follows, whoever meets such a row takes it for
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import structlog

from parley.clock import Clock
from parley.errors import BAD_REQUEST, BLOCKED, OutcomeUnknown, Refused, StoreError, StoreUnavailable
from parley.ids import EVENT, Ids
from parley.model import Chat, ChatType, Member, ReadReceipts, Role
from parley.store.dynamodb.actions import Action, Put
from parley.store.dynamodb.blocks import Blocks, blocks_between, still
from parley.store.dynamodb.changes import DELIVERY, USERS, chats_of
from parley.store.dynamodb.client import Dynamo, Item, TransactionCanceled
from parley.store.dynamodb.states import CHATS, COUNTERS, IS_BLOCKED, MEMBERSHIPS, number
from parley.store.dynamodb.together import is_key, repeated, together
from parley.store.ports import Allocator
from parley.store.rules import TOO_MANY_CHATS, direct_key, no_user
from parley.wire.limits import USER_CHATS_MAX

DIRECT_CHATS = "direct_chats"
MEMBERS_AT_ONCE_MAX = 45
COUNTS_AT_ONCE_MAX = 16
ACTIONS_MAX = 100
assert 2 * MEMBERS_AT_ONCE_MAX + 2 < ACTIONS_MAX, "a chat and its counter come with them"

log = structlog.get_logger("parley.store")

NEW = "attribute_not_exists({})"


class Direct(NamedTuple):
    """A direct chat to be: what it is known by, who the other one is, and who of the two blocks whom."""

    key: str
    other_id: str | None = None
    blocks: Blocks = Blocks()


class DynamoDirectory:
    """`allocator`: who gives the numbers, if it is not the counter that every append advances."""

    def __init__(self, dynamo: Dynamo, clock: Clock, make_ids: Ids, allocator: Allocator | None) -> None:
        self._dynamo = dynamo
        self._clock = clock
        self._ids = make_ids
        self._allocator = allocator

    async def create_chat(self, chat: Chat, member_ids: Sequence[str]) -> tuple[Chat, bool]:
        people = sorted({*member_ids, chat.created_by})
        direct = await self._direct(chat, people) if chat.chat_type is ChatType.DIRECT else None
        if direct is not None:
            found = await self._direct_chat(direct.key)
            if found is not None:
                return found, False
        await self._check_people(people)
        if self._allocator is not None:
            await self._allocator.create(chat.chat_id)
        early = [] if len(people) <= MEMBERS_AT_ONCE_MAX else [p for p in people if p != chat.created_by]
        last = [person for person in people if person not in set(early)]
        await self._write_early(chat, early)
        try:
            return await self._commit(chat, self._actions(chat, direct, last, len(people)), direct)
        except (Refused, StoreUnavailable):
            await self._forget_early(chat, early)
            raise

    async def _direct(self, chat: Chat, people: list[str]) -> Direct:
        """Refused when the other one has blocked whoever wants the chat."""
        others = [person for person in people if person != chat.created_by]
        if len(others) != 1 or not is_key(chat.created_by, *others):
            return Direct(direct_key(people))
        blocks = await blocks_between(self._dynamo, chat.created_by, others[0])
        if blocks.by_other:
            raise Refused(BLOCKED)
        return Direct(direct_key(people), others[0], blocks)

    async def _direct_chat(self, key: str) -> Chat | None:
        if not is_key(key):
            return None
        found = await self._dynamo.get(DIRECT_CHATS, {"direct_key": key})
        return await self.chat(cast(str, found["chat_id"])) if found is not None else None

    async def _check_people(self, people: list[str]) -> None:
        """Everybody is known, and none is in too many chats already."""
        if not people:
            raise Refused(BAD_REQUEST)
        keys: list[Item] = [{"user_id": person} for person in people if is_key(person)]
        known = {item["user_id"] for item in await self._dynamo.batch_get(USERS, keys)}
        for person in people:
            if person not in known:
                raise Refused(no_user(person))
        counts = await together(lambda person: chats_of(self._dynamo, person), people, COUNTS_AT_ONCE_MAX)
        if max(counts) >= USER_CHATS_MAX:
            raise Refused(TOO_MANY_CHATS)

    # Writing a chat

    async def _write_early(self, chat: Chat, people: list[str]) -> None:
        early: Item = {"early": True}
        await repeated(
            lambda: self._dynamo.batch_put(MEMBERSHIPS, [_membership(chat, p) | early for p in people])
        )
        await repeated(lambda: self._dynamo.batch_put(DELIVERY, [_delivery(chat, p) | early for p in people]))

    async def _forget_early(self, chat: Chat, people: list[str]) -> None:
        """Rows of a chat that never came to be; if they stay, nobody sees them."""
        try:
            keys: list[Item] = [{"chat_id": chat.chat_id, "user_id": person} for person in people]
            await self._dynamo.batch_delete(MEMBERSHIPS, keys)
            await self._dynamo.batch_delete(DELIVERY, keys)
        except StoreError as error:
            log.info("rows of an unfinished chat stay", chat_id=chat.chat_id, reason=str(error))

    def _actions(
        self, chat: Chat, direct: Direct | None, people: list[str], member_count: int
    ) -> list[Action]:
        """What makes the chat exist. A direct one rests on who has blocked whom: see `relating`."""
        revision = self._ids.next(EVENT, self._clock())
        key = direct.key if direct is not None else None
        blocked = direct.other_id if direct is not None and direct.blocks.by_actor else None
        actions: list[Action] = [
            Put(CHATS, _chat_item(chat, key, member_count, revision), NEW.format("chat_id"))
        ]
        if self._allocator is None:
            actions.append(Put(COUNTERS, _counter(chat, revision), NEW.format("chat_id")))
        actions += [Put(MEMBERSHIPS, _membership(chat, person, person == blocked)) for person in people]
        actions += [Put(DELIVERY, _delivery(chat, person)) for person in people]
        if direct is not None:
            place: Item = {"direct_key": direct.key, "chat_id": chat.chat_id}
            actions.append(Put(DIRECT_CHATS, place, NEW.format("direct_key")))
            if direct.other_id is not None:
                actions += still(chat.created_by, direct.other_id, direct.blocks)
        return actions

    async def _commit(self, chat: Chat, actions: list[Action], direct: Direct | None) -> tuple[Chat, bool]:
        token = self._ids.next(EVENT, self._clock())
        try:
            await repeated(lambda: self._dynamo.transact(actions, token))
        except OutcomeUnknown:
            if await self.chat(chat.chat_id) is None:
                raise
        except TransactionCanceled:
            return await self._winner(chat, direct)
        return chat, True

    async def _winner(self, chat: Chat, direct: Direct | None) -> tuple[Chat, bool]:
        """Nothing was written now: by an earlier attempt of ours, or because the other one was faster."""
        if await self.chat(chat.chat_id) is not None:
            return chat, True
        if direct is not None and direct.other_id is not None:
            now = await self._direct(chat, [chat.created_by, direct.other_id])
            if now.blocks != direct.blocks:
                return await self.create_chat(chat, [direct.other_id])
        found = await self._direct_chat(direct.key) if direct is not None else None
        if found is None:
            raise StoreUnavailable("the chat could not be written")
        return found, False

    # Reading

    async def chat(self, chat_id: str) -> Chat | None:
        item = await self._item(chat_id)
        return _chat(item) if item is not None else None

    async def _item(self, chat_id: str) -> Item | None:
        return await self._dynamo.get(CHATS, {"chat_id": chat_id}) if is_key(chat_id) else None

    async def role(self, chat_id: str, user_id: str) -> Role | None:
        if not is_key(chat_id, user_id):
            return None
        row = await self._dynamo.get(MEMBERSHIPS, {"chat_id": chat_id, "user_id": user_id})
        if row is None or (row.get("early") and await self._item(chat_id) is None):
            return None
        return Role(cast(str, row["role"]))

    async def members(self, chat_id: str, after_user_id: str, limit: int) -> list[Member]:
        if not is_key(chat_id):
            return []
        condition, values = "chat_id = :chat", Item({":chat": chat_id})
        if after_user_id:
            condition, values = f"{condition} AND user_id > :after", values | {":after": after_user_id}
        rows = (await self._dynamo.query(MEMBERSHIPS, condition, values, limit=limit)).items
        if any(row.get("early") for row in rows) and await self._item(chat_id) is None:
            return []
        return [_member(row) for row in rows]

    async def member_count(self, chat_id: str) -> int:
        item = await self._item(chat_id)
        return number(item, "member_count") if item is not None else 0

    async def chat_ids_of(self, user_id: str) -> list[str]:
        if not is_key(user_id):
            return []
        rows = await self._dynamo.query_all(
            DELIVERY,
            "user_id = :user",
            {":user": user_id, ":left": True},
            filter="has_left <> :left",
            projection="chat_id, early",
        )
        early = [cast(str, row["chat_id"]) for row in rows if row.get("early")]
        missing = set(early) - await self._existing(early)
        return [chat_id for row in rows if (chat_id := cast(str, row["chat_id"])) not in missing]

    async def _existing(self, chat_ids: list[str]) -> set[str]:
        found = await self._dynamo.batch_get(CHATS, [{"chat_id": chat_id} for chat_id in chat_ids])
        return {cast(str, item["chat_id"]) for item in found}


def _chat_item(chat: Chat, key: str | None, member_count: int, revision: str) -> Item:
    direct: Item = {"direct_key": key} if key is not None else {}
    return direct | {
        "chat_id": chat.chat_id,
        "chat_type": chat.chat_type.value,
        "name": chat.title,
        "created_by": chat.created_by,
        "created_at": chat.created_at,
        "updated_at": chat.updated_at,
        "epoch": chat.epoch,
        "open_to_join": chat.open_to_join,
        "read_receipts": chat.read_receipts.value,
        "member_count": member_count,
        "owner_count": 1,
        "membership_revision": revision,
        "trimmed_through": 0,
        "published_through": 0,
        "resolved_through": 0,
    }


def _counter(chat: Chat, revision: str) -> Item:
    return {
        "chat_id": chat.chat_id,
        "sequence_counter": 0,
        "written_through": 0,
        "epoch": chat.epoch,
        "membership_revision": revision,
        "published_through": 0,
        "created_at": chat.created_at,
        "updated_at": chat.created_at,
    }


def _membership(chat: Chat, user_id: str, is_blocked: bool = False) -> Item:
    role = Role.OWNER if user_id == chat.created_by else Role.MEMBER
    mark: Item = {IS_BLOCKED: True} if is_blocked else {}
    return mark | {
        "chat_id": chat.chat_id,
        "user_id": user_id,
        "role": role.value,
        "joined_at": chat.created_at,
        "joined_sequence": 0,
    }


def _delivery(chat: Chat, user_id: str) -> Item:
    return {
        "user_id": user_id,
        "chat_id": chat.chat_id,
        "last_acked_sequence": 0,
        "read_up_to": 0,
        "has_left": False,
        "left_sequence": 0,
        "revision": 1,
    }


def _chat(item: Item) -> Chat:
    return Chat(
        chat_id=cast(str, item["chat_id"]),
        chat_type=ChatType(cast(str, item["chat_type"])),
        title=cast(str | None, item.get("name")),
        created_by=cast(str, item["created_by"]),
        created_at=cast(str, item["created_at"]),
        updated_at=cast(str, item["updated_at"]),
        epoch=number(item, "epoch"),
        open_to_join=bool(item.get("open_to_join")),
        read_receipts=ReadReceipts(cast(str, item.get("read_receipts", ReadReceipts.FULL))),
    )


def _member(row: Item) -> Member:
    return Member(
        user_id=cast(str, row["user_id"]),
        role=Role(cast(str, row["role"])),
        joined_at=cast(str, row["joined_at"]),
        joined_sequence=number(row, "joined_sequence"),
    )
