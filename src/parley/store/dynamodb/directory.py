"""The `Directory` port on DynamoDB.

A chat exists once its own item does. One transaction writes it with up to 32 members, and checks that each of
them still consents (see `consents`). The rows of more members are written before, in such transactions of
their own, and marked `early`: readers ignore such a row until the chat's item exists.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import cast

import structlog

from parley.clock import Clock
from parley.core.permissions import NO_USER, decide_creation
from parley.errors import (
    BLOCKED,
    OutcomeUnknown,
    Refused,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
)
from parley.ids import EVENT, Ids
from parley.model import ChatMember, ChatType, ReadReceipts, Role, StoredChat
from parley.store.dynamodb.chat_state import DynamoChatStates, fence
from parley.store.dynamodb.consents import (
    IS_UNASKED,
    MOVE_CONSENT,
    DynamoConsents,
    DynamoNewcomer,
    still_says,
)
from parley.store.dynamodb.driver import (
    Action,
    ConditionFailed,
    Dynamo,
    Item,
    Put,
    TransactionCanceled,
    is_valid_key,
    map_concurrently,
    number,
    retry_unknown,
)
from parley.store.dynamodb.people import EXISTS, NAMES, USERS, person_key
from parley.store.dynamodb.schema import CHATS, COUNTERS, DELIVERY, DIRECT_CHATS, MEMBERSHIPS
from parley.store.ports import Allocator
from parley.store.rules import direct_key

MEMBERS_AT_ONCE_MAX = 32
TRANSACTIONS_AT_ONCE_MAX = 8
ACTIONS_MAX = 100
ACTIONS_PER_MEMBER = 3
assert ACTIONS_PER_MEMBER * MEMBERS_AT_ONCE_MAX + 2 < ACTIONS_MAX, "a chat and its counter come with them"
ATTEMPTS_MAX = 10
FENCES_AT_ONCE_MAX = 16
READS_AT_ONCE_MAX = 16

log = structlog.get_logger("parley.store")

NEW = "attribute_not_exists({})"


class DynamoDirectory:
    """`allocator`: allocates in two_phase; None in atomic, where an append advances the counter.

    `states`: what this node remembers of chats.
    """

    def __init__(
        self,
        dynamo: Dynamo,
        states: DynamoChatStates,
        consents: DynamoConsents,
        clock: Clock,
        make_ids: Ids,
        allocator: Allocator | None,
    ) -> None:
        self._dynamo = dynamo
        self._states = states
        self._consents = consents
        self._clock = clock
        self._ids = make_ids
        self._allocator = allocator

    async def create_chat(self, chat: StoredChat, member_ids: Sequence[str]) -> tuple[StoredChat, bool]:
        people = sorted({*member_ids, chat.created_by})
        for _ in range(ATTEMPTS_MAX):
            key = direct_key(people) if chat.chat_type is ChatType.DIRECT else None
            if key is not None:
                if await self._states.is_blocked(chat.created_by, people):
                    raise Refused(BLOCKED)
                found = await self._direct_chat(key)
                if found is not None:
                    return found, False
            made = await self._create(chat, await self._check_people(chat, people), key)
            if made is not None:
                return made
        raise StoreUnavailable("the chat could not be written")

    async def _create(
        self, chat: StoredChat, people: list[DynamoNewcomer], key: str | None
    ) -> tuple[StoredChat, bool] | None:
        """None if something has changed since it was read, so that all is to be decided again."""
        if self._allocator is not None:
            await self._allocator.create(chat.chat_id)
        is_large = len(people) > MEMBERS_AT_ONCE_MAX
        early = [one for one in people if is_large and one.user_id != chat.created_by]
        last = [one for one in people if not is_large or one.user_id == chat.created_by]
        made: tuple[StoredChat, bool] | None = None
        try:
            if await self._write_early(chat, early):
                made = await self._commit(chat, self._actions(chat, key, last, len(people)), key)
        except (Refused, StoreDamaged, StoreUnavailable):
            await self._delete_early(chat, early)
            raise
        if made is None:
            await self._delete_early(chat, early)
        return made

    async def _direct_chat(self, key: str) -> StoredChat | None:
        if not is_valid_key(key):
            return None
        found = await self._dynamo.get(DIRECT_CHATS, {"direct_key": key})
        return await self.chat(cast(str, found["chat_id"])) if found is not None else None

    async def _check_people(self, chat: StoredChat, people: list[str]) -> list[DynamoNewcomer]:
        found = await self._consents.newcomers(chat.created_by, people)
        facts = {user_id: found[user_id].facts if user_id in found else NO_USER for user_id in people}
        refusal = decide_creation(chat.created_by, facts)
        if refusal is not None:
            raise Refused(refusal)
        return list(found.values())

    # Writing a chat

    async def _write_early(self, chat: StoredChat, people: list[DynamoNewcomer]) -> bool:
        """False if one of them may no longer be added, or all must be counted again."""
        early: Item = {"early": True}

        async def write(some: Sequence[DynamoNewcomer]) -> None:
            actions: list[Action] = []
            for one in some:
                actions += [
                    Put(MEMBERSHIPS, _membership(chat, one.user_id) | early),
                    Put(DELIVERY, _delivery(chat, one) | early),
                    still_says(one),
                ]
            token = self._ids.next(EVENT, self._clock())
            await retry_unknown(lambda: self._dynamo.transact(actions, token))

        parts = [people[at : at + MEMBERS_AT_ONCE_MAX] for at in range(0, len(people), MEMBERS_AT_ONCE_MAX)]
        try:
            await map_concurrently(write, parts, TRANSACTIONS_AT_ONCE_MAX)
        except TransactionCanceled:
            return False
        return True

    async def _delete_early(self, chat: StoredChat, people: list[DynamoNewcomer]) -> None:
        """Delete the rows of a chat that was not created. Even if that fails, readers ignore them."""
        try:
            keys: list[Item] = [{"chat_id": chat.chat_id, "user_id": one.user_id} for one in people]
            await self._dynamo.batch_delete(MEMBERSHIPS, keys)
            await self._dynamo.batch_delete(DELIVERY, keys)
        except StoreError as error:
            log.info("rows of an unfinished chat not deleted", chat_id=chat.chat_id, reason=str(error))

    def _actions(
        self, chat: StoredChat, key: str | None, people: list[DynamoNewcomer], member_count: int
    ) -> list[Action]:
        """The transaction that creates the chat."""
        revision = self._ids.next(EVENT, self._clock())
        actions: list[Action] = [
            Put(CHATS, chat_item(chat, key, member_count, revision), NEW.format("chat_id"))
        ]
        if self._allocator is None:
            actions.append(Put(COUNTERS, counter_item(chat, revision), NEW.format("chat_id")))
        actions += [Put(MEMBERSHIPS, _membership(chat, person.user_id)) for person in people]
        actions += [Put(DELIVERY, _delivery(chat, person)) for person in people]
        actions += [still_says(person) for person in people if person.user_id != chat.created_by]
        if key is not None:
            item: Item = {"direct_key": key, "chat_id": chat.chat_id}
            actions.append(Put(DIRECT_CHATS, item, NEW.format("direct_key")))
        return actions

    async def _commit(
        self, chat: StoredChat, actions: list[Action], key: str | None
    ) -> tuple[StoredChat, bool] | None:
        token = self._ids.next(EVENT, self._clock())
        try:
            await retry_unknown(lambda: self._dynamo.transact(actions, token))
        except OutcomeUnknown:
            if await self.chat(chat.chat_id) is None:
                raise
        except TransactionCanceled:
            return await self._existing_chat(chat, key)
        return chat, True

    async def _existing_chat(self, chat: StoredChat, key: str | None) -> tuple[StoredChat, bool] | None:
        """The transaction was cancelled: an earlier attempt created the chat, or another node was faster.

        None: neither. Somebody no longer consents.
        """
        if await self.chat(chat.chat_id) is not None:
            return chat, True
        found = await self._direct_chat(key) if key is not None else None
        return (found, False) if found is not None else None

    # Reading

    async def chat(self, chat_id: str) -> StoredChat | None:
        item = await self._item(chat_id)
        return chat_in(item) if item is not None else None

    async def _item(self, chat_id: str) -> Item | None:
        return await self._dynamo.get(CHATS, {"chat_id": chat_id}) if is_valid_key(chat_id) else None

    async def role(self, chat_id: str, user_id: str) -> Role | None:
        if not is_valid_key(chat_id, user_id):
            return None
        row = await self._dynamo.get(MEMBERSHIPS, {"chat_id": chat_id, "user_id": user_id})
        if row is None or (row.get("early") and await self._item(chat_id) is None):
            return None
        return Role(cast(str, row["role"]))

    async def members(self, chat_id: str, after_user_id: str, limit: int) -> list[ChatMember]:
        if not is_valid_key(chat_id):
            return []
        condition, values = "chat_id = :chat", Item({":chat": chat_id})
        if after_user_id:
            condition, values = f"{condition} AND user_id > :after", values | {":after": after_user_id}
        rows = (await self._dynamo.query(MEMBERSHIPS, condition, values, limit=limit)).items
        if any(row.get("early") for row in rows) and await self._item(chat_id) is None:
            return []
        return [member_in(row) for row in rows]

    async def member_count(self, chat_id: str) -> int:
        item = await self._item(chat_id)
        return number(item, "member_count") if item is not None else 0

    async def chat_ids_of(self, user_id: str, *, unasked: bool = False) -> list[str]:
        if not is_valid_key(user_id):
            return []
        only = f" AND {IS_UNASKED} = :left" if unasked else ""
        rows = await self._dynamo.query_all(
            DELIVERY,
            "user_id = :user",
            {":user": user_id, ":left": True},
            filter=f"has_left <> :left{only}",
            projection="chat_id, early",
        )
        early = [row["chat_id"] for row in rows if row.get("early")]
        found = await self._dynamo.batch_get(CHATS, [{"chat_id": chat_id} for chat_id in early])
        missing = set(early) - {item["chat_id"] for item in found}
        return [chat_id for row in rows if (chat_id := cast(str, row["chat_id"])) not in missing]

    async def sharing_chats(self, user_id: str, others: Sequence[str]) -> set[str]:
        chats = set(await self.chat_ids_of(user_id)) if others else set[str]()
        if not chats:
            return set()
        keys = {direct_key([user_id, other]): other for other in others if is_valid_key(other)}
        places: list[Item] = [{"direct_key": key} for key in keys if is_valid_key(key)]
        direct = {
            keys[cast(str, item["direct_key"])]
            for item in await self._dynamo.batch_get(DIRECT_CHATS, places)
            if item["chat_id"] in chats
        }
        rest = [other for other in keys.values() if other not in direct]
        shared = await map_concurrently(
            lambda other: self._is_in_one_of(other, chats), rest, READS_AT_ONCE_MAX
        )
        return direct | {other for other, is_shared in zip(rest, shared, strict=True) if is_shared}

    async def _is_in_one_of(self, user_id: str, chats: set[str]) -> bool:
        start: Item | None = None
        while True:
            page = await self._dynamo.query(
                DELIVERY,
                "user_id = :user",
                {":user": user_id, ":left": True},
                filter="has_left <> :left",
                projection="chat_id",
                start=start,
            )
            if any(row["chat_id"] in chats for row in page.items):
                return True
            start = page.next_key
            if start is None:
                return False

    async def fence(self, user_id: str, chat_ids: Sequence[str] | None = None) -> None:
        """A new revision of the person's consent, then one of the membership of each chat.

        An append checks the head of its chat and the revision of the chat's membership, but not the account
        of its sender: that would cost every message another item.
        """
        if is_valid_key(user_id):
            with contextlib.suppress(ConditionFailed):  # there is no such person
                await retry_unknown(
                    lambda: self._dynamo.update(
                        USERS,
                        person_key(user_id),
                        MOVE_CONSENT,
                        {":one": 1},
                        condition=EXISTS,
                        names=NAMES,
                    )
                )
        if chat_ids is None:
            chat_ids = await self.chat_ids_of(user_id)
        await map_concurrently(self._fence_chat, chat_ids, FENCES_AT_ONCE_MAX)

    async def _fence_chat(self, chat_id: str) -> None:
        key: Item = {"chat_id": chat_id}
        for _ in range(ATTEMPTS_MAX):
            counter = await self._dynamo.get(COUNTERS, key)
            actions = fence(chat_id, self._ids.next(EVENT, self._clock()), counter)
            token = self._ids.next(EVENT, self._clock())
            try:
                await retry_unknown(partial(self._dynamo.transact, actions, token))
            except TransactionCanceled:
                if await self._dynamo.get(CHATS, key) is None:
                    return
                continue
            self._states.doubt(chat_id)
            return
        raise StoreUnavailable("a chat of this person is being written to by too many at once")


def chat_item(chat: StoredChat, key: str | None, member_count: int, revision: str) -> Item:
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
        "announcement_only": chat.announcement_only,
        "slow_mode_seconds": chat.slow_mode_seconds,
        "member_count": member_count,
        "owner_count": 1,
        "membership_revision": revision,
        "trimmed_through": 0,
        "published_through": 0,
        "resolved_through": 0,
    }


def counter_item(chat: StoredChat, revision: str) -> Item:
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


def _membership(chat: StoredChat, user_id: str) -> Item:
    role = Role.OWNER if user_id == chat.created_by else Role.MEMBER
    return {
        "chat_id": chat.chat_id,
        "user_id": user_id,
        "role": role.value,
        "joined_at": chat.created_at,
        "joined_sequence": 0,
    }


def _delivery(chat: StoredChat, person: DynamoNewcomer) -> Item:
    return {
        "user_id": person.user_id,
        IS_UNASKED: person.is_unasked and person.user_id != chat.created_by,
        "chat_id": chat.chat_id,
        "last_acked_sequence": 0,
        "read_up_to": 0,
        "has_left": False,
        "left_sequence": 0,
        "revision": 1,
    }


def chat_in(item: Item) -> StoredChat:
    return StoredChat(
        chat_id=cast(str, item["chat_id"]),
        chat_type=ChatType(cast(str, item["chat_type"])),
        title=cast(str | None, item.get("name")),
        created_by=cast(str, item["created_by"]),
        created_at=cast(str, item["created_at"]),
        updated_at=cast(str, item["updated_at"]),
        epoch=number(item, "epoch"),
        open_to_join=bool(item.get("open_to_join")),
        read_receipts=ReadReceipts(cast(str, item.get("read_receipts", ReadReceipts.FULL))),
        announcement_only=bool(item.get("announcement_only")),
        slow_mode_seconds=number(item, "slow_mode_seconds"),
    )


def member_in(row: Item) -> ChatMember:
    return ChatMember(
        user_id=cast(str, row["user_id"]),
        role=Role(cast(str, row["role"])),
        joined_at=cast(str, row["joined_at"]),
        joined_sequence=number(row, "joined_sequence"),
    )
