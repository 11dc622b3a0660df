"""The members of one chat: known people with a role, who find the chat in their overview."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import cast

from msgspec import Struct

from parley.model import ChatType, Role
from parley.store.checks import Breach, Findings
from parley.store.dynamodb.changes import DELIVERY, USERS
from parley.store.dynamodb.check_cursors import CursorCheck
from parley.store.dynamodb.check_relations import is_mismarked
from parley.store.dynamodb.client import Dynamo, Item
from parley.store.dynamodb.cursor_writing import DEVICES
from parley.store.dynamodb.directory import DIRECT_CHATS
from parley.store.dynamodb.looking import stays, told
from parley.store.dynamodb.states import CHATS, MEMBERSHIPS, number
from parley.store.rules import direct_key

FROM_BACKUP = "restore the item from a backup (point-in-time recovery)"
MAKE_OWNER = "make a member its owner: set role = owner in chat_memberships, and owner_count in chats"
COUNT = "set member_count and owner_count of the chat in chats to what chat_memberships holds"
MARK = (
    "set is_blocked in chat_memberships as relations has it (blocked_since), and then a new"
    " membership_revision in chats and chat_counters, the same in both"
)
ROLES = frozenset(role.value for role in Role)


class Members(Struct):
    """What was seen of a chat's members."""

    count: int = 0
    owners: int = 0
    joined_max: int = 0
    first: list[str] = []
    """The first three, which is enough to know whether they are two."""


class PeopleCheck:
    """`with_cursors`: look at the members' positions here too, because nobody looks at all of them."""

    def __init__(self, dynamo: Dynamo, findings: Findings, *, with_cursors: bool) -> None:
        self._dynamo = dynamo
        self._findings = findings
        self._cursors = CursorCheck(dynamo, findings) if with_cursors else None

    def _breach(self, invariant: str, chat: Item, says: str, remedy: str) -> None:
        self._findings.add(Breach(invariant, says, remedy, cast(str, chat["chat_id"])))

    async def check(self, chat: Item) -> int:
        """The highest position at which a member has joined."""
        if await stays(partial(self._is_miscounted, chat)):
            self._breach("membership", chat, "the chat counts other members than it has", COUNT)
        members = Members()
        async for rows in self._pages(chat):
            _count(members, rows)
            await self._check_rows(chat, rows)
            if self._cursors is not None:
                await self._check_cursors(self._cursors, chat, rows)
        if chat.get("chat_type") == ChatType.GROUP.value and members.count and not members.owners:
            self._breach("membership", chat, "the group has no owner", MAKE_OWNER)
        await self._check_direct(chat, members)
        return members.joined_max

    def check_joined(self, chat: Item, joined: int, last: int) -> None:
        if joined > last:
            says = f"a member joined at {joined}, the log ends at {last}"
            self._breach("membership", chat, says, FROM_BACKUP)

    async def _pages(self, chat: Item) -> AsyncIterator[list[Item]]:
        start: Item | None = None
        while True:
            page = await self._dynamo.query(
                MEMBERSHIPS, "chat_id = :chat", {":chat": chat["chat_id"]}, start=start
            )
            yield page.items
            start = page.next_key
            if start is None:
                return

    async def _is_miscounted(self, chat: Item) -> bool:
        """Whether rows and counts differ although nothing changed while they were read."""
        key: Item = {"chat_id": chat["chat_id"]}
        before, members = await self._dynamo.get(CHATS, key), Members()
        async for rows in self._pages(chat):
            _count(members, rows)
        after = await self._dynamo.get(CHATS, key)
        if before is None or after is None:
            return False
        counts = (number(after, "member_count"), number(after, "owner_count"))
        is_still = before.get("membership_revision") == after.get("membership_revision")
        return is_still and counts != (members.count, members.owners)

    # Each member

    async def _check_rows(self, chat: Item, rows: list[Item]) -> None:
        odd = [row for row in rows if row.get("role") not in ROLES]
        unknown = await self._without(USERS, rows, lambda row: {"user_id": row["user_id"]})
        unseen = await self._without(DELIVERY, rows, _place)
        problems: dict[str, list[Item]] = {
            "members have a role that does not exist": odd,
            "members have no account": [row for row in unknown if await stays(self._is_member(row))],
            "members do not find the chat in their overview (no row in delivery_state)": [
                row for row in unseen if await stays(partial(self._is_unseen, row))
            ],
        }
        for says, found in problems.items():
            if found:
                self._breach("membership", chat, f"{len(found)} {says}", FROM_BACKUP)

    async def _without(self, table: str, rows: list[Item], key_of: Callable[[Item], Item]) -> list[Item]:
        """The members of whom another table has nothing that counts."""
        items = await self._dynamo.batch_get(table, [key_of(row) for row in rows])
        there = {item["user_id"] for item in items if not item.get("has_left")}
        return [row for row in rows if row["user_id"] not in there]

    def _is_member(self, row: Item) -> Callable[[], Awaitable[bool]]:
        async def look() -> bool:
            return await self._dynamo.get(MEMBERSHIPS, _key(row)) is not None

        return look

    async def _is_unseen(self, row: Item) -> bool:
        """Somebody may be leaving or joining just now: both rows are read again."""
        place = await self._dynamo.get(DELIVERY, _place(row))
        is_there = place is not None and not place.get("has_left")
        return not is_there and await self._dynamo.get(MEMBERSHIPS, _key(row)) is not None

    async def _check_cursors(self, cursors: CursorCheck, chat: Item, rows: list[Item]) -> None:
        await cursors.check(DELIVERY, await self._dynamo.batch_get(DELIVERY, [_place(row) for row in rows]))
        for row in rows:
            found = await self._dynamo.query_all(
                DEVICES,
                "user_id = :user",
                {":user": row["user_id"], ":chat": chat["chat_id"]},
                filter="chat_id = :chat",
            )
            await cursors.check(DEVICES, found)

    # Direct chats

    async def _check_direct(self, chat: Item, members: Members) -> None:
        key, is_direct = chat.get("direct_key"), chat.get("chat_type") == ChatType.DIRECT.value
        if not is_direct and key is None:
            return
        own = direct_key(members.first)
        if not is_direct:
            says = "this chat is a group and yet is keyed as the direct chat of two people"
        elif key != own:
            says = f"the key of this direct chat is {told(chat, 'direct_key')}, its members are {own}"
        elif not await stays(partial(self._is_not_the_one, chat)):
            await self._check_marks(chat, members.first)
            return
        else:
            says = f"another direct chat is of the same two people, {own}"
        self._breach("direct_uniqueness", chat, says, FROM_BACKUP)

    async def _check_marks(self, chat: Item, people: list[str]) -> None:
        """A chat with oneself has nobody to block."""
        if len(people) == 2 and await stays(partial(is_mismarked, self._dynamo, chat, people)):
            self._breach("membership", chat, "who is blocked here is not who is blocked in relations", MARK)

    async def _is_not_the_one(self, chat: Item) -> bool:
        found = await self._dynamo.get(DIRECT_CHATS, {"direct_key": chat["direct_key"]})
        return found is None or found.get("chat_id") != chat["chat_id"]


def _count(members: Members, rows: list[Item]) -> None:
    members.count += len(rows)
    members.owners += sum(1 for row in rows if row.get("role") == Role.OWNER.value)
    members.joined_max = max([members.joined_max, *(number(row, "joined_sequence") for row in rows)])
    members.first = (members.first + [cast(str, row["user_id"]) for row in rows])[:3]


def _key(row: Item) -> Item:
    return {"chat_id": row["chat_id"], "user_id": row["user_id"]}


def _place(row: Item) -> Item:
    return {"user_id": row["user_id"], "chat_id": row["chat_id"]}
