"""The `Entries` port on DynamoDB. Its marks are in the items of `chats`, never in those of the counters.

A trim has four steps, and may be ended after each: it sets the mark, so that no late writer or sealer of
`two_phase` writes below it; it gives the chat a new revision, so that no append goes on from a memory that
does not know the mark; it deletes items; it says that it is done. A bundle is deleted when all of it is
archived, so the mark may lie within one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

from parley.clock import Clock
from parley.errors import StoreUnavailable
from parley.ids import EVENT, Ids
from parley.store.dynamodb.bundles import (
    BUNDLE,
    SPAN,
    SPAN_NAMES,
    bundle_across,
    end_of,
    redacted,
    unbundled,
)
from parley.store.dynamodb.chat_state import DynamoChatStates, fence
from parley.store.dynamodb.delivery_queues import queues_of_chat
from parley.store.dynamodb.driver import (
    ConditionFailed,
    Dynamo,
    Item,
    TransactionCanceled,
    is_valid_key,
    number,
    retry_unknown,
)
from parley.store.dynamodb.entries import sequence_of, stored_in
from parley.store.dynamodb.schema import CHATS, COUNTERS, MESSAGES
from parley.store.ports import Replaced
from parley.store.rows import EVERYTHING, ArchiveMark
from parley.wire.codec import decode_entry

FENCE_TRIES_MAX = 5
REPLACE_TRIES_MAX = 5

IS_SAME = "#body = :body"
RECORD = "SET archived_through = :through, archive_version = :version, archive_manifest = :manifest"
IS_FIRST = "attribute_exists(chat_id) AND attribute_not_exists(archive_version)"
IS_NEXT = "archive_version = :before"
SET_TRIMMED = "SET trimmed_through = :through, is_trimming = :yes"
MAY_TRIM = (
    "archived_through >= :through AND (attribute_not_exists(trimmed_through) OR trimmed_through <= :through)"
)


class DynamoEntries:
    """`marks_table`: where the outbox has its marks."""

    def __init__(
        self, dynamo: Dynamo, states: DynamoChatStates, clock: Clock, make_ids: Ids, marks_table: str
    ) -> None:
        self._dynamo = dynamo
        self._states = states
        self._clock = clock
        self._ids = make_ids
        self._marks_table = marks_table

    async def marks(self, chat_ids: Sequence[str]) -> dict[str, ArchiveMark]:
        return {cast(str, chat["chat_id"]): mark_in(chat) for chat in await self._chats(chat_ids)}

    async def _chats(self, chat_ids: Sequence[str]) -> list[Item]:
        keys: list[Item] = [
            {"chat_id": chat_id} for chat_id in sorted(set(chat_ids)) if is_valid_key(chat_id)
        ]
        return await self._dynamo.batch_get(CHATS, keys)

    async def record(self, chat_id: str, mark: ArchiveMark) -> bool:
        """A condition that fails may have been met by this very write, whose answer was lost."""
        values: Item = {
            ":through": mark.archived_through,
            ":version": mark.version,
            ":manifest": mark.manifest,
        }
        condition = IS_FIRST
        if mark.version > 1:
            condition, values[":before"] = IS_NEXT, mark.version - 1
        if await self._update(chat_id, RECORD, values, condition):
            return True
        stored = (await self.marks([chat_id])).get(chat_id, ArchiveMark())
        return (stored.version, stored.manifest) == (mark.version, mark.manifest)

    async def _update(self, chat_id: str, expression: str, values: Item, condition: str) -> bool:
        key: Item = {"chat_id": chat_id}
        try:
            await retry_unknown(
                lambda: self._dynamo.update(CHATS, key, expression, values, condition=condition)
            )
        except ConditionFailed:
            return False
        return True

    async def needed_from(self, chat_id: str) -> int:
        item = await self._dynamo.get(self._marks_table, {"chat_id": chat_id}) or {}
        published = number(item, "published_through") + 1 if "unpublished" in item else EVERYTHING
        queues = await queues_of_chat(self._dynamo, chat_id)
        return min([published, *(number(queue, "next_sequence") for queue in queues)])

    async def trim(self, chat_id: str, through: int) -> None:
        values: Item = {":through": through, ":yes": True}
        if not await self._update(chat_id, SET_TRIMMED, values, MAY_TRIM):
            return
        await self._fence(chat_id)
        await self._delete(chat_id, through)
        values = {":through": through}
        await self._update(chat_id, "REMOVE is_trimming", values, "trimmed_through = :through")

    async def _fence(self, chat_id: str) -> None:
        key: Item = {"chat_id": chat_id}
        for _ in range(FENCE_TRIES_MAX):
            counter = await self._dynamo.get(COUNTERS, key)
            revision, token = (self._ids.next(EVENT, self._clock()) for _ in range(2))
            actions = fence(chat_id, revision, counter)
            try:
                await retry_unknown(partial(self._dynamo.transact, actions, token))
            except TransactionCanceled:
                continue
            self._states.doubt(chat_id)
            return
        raise StoreUnavailable("the chat is being written to by too many at once")

    async def _delete(self, chat_id: str, through: int) -> None:
        start: Item | None = None
        while True:
            page = await self._dynamo.query(
                MESSAGES,
                "chat_id = :chat AND #s <= :last",
                {":chat": chat_id, ":last": through},
                names=SPAN_NAMES,
                projection=SPAN,
                start=start,
            )
            keys: list[Item] = [
                {"chat_id": chat_id, "sequence": item["sequence"]}
                for item in page.items
                if end_of(item) <= through
            ]
            await retry_unknown(partial(self._dynamo.batch_delete, MESSAGES, keys))
            start = page.next_key
            if start is None:
                return

    async def replace(self, chat_id: str, entries: Mapping[int, Replaced]) -> list[int]:
        """Items are rewritten one by one, each under the condition that it is still what was read."""
        return [
            sequence
            for sequence in sorted(entries)
            if await self._replace_one(chat_id, sequence, entries[sequence])
        ]

    async def _replace_one(self, chat_id: str, sequence: int, to: Replaced) -> bool:
        for _ in range(REPLACE_TRIES_MAX):
            item = await self._dynamo.get(MESSAGES, {"chat_id": chat_id, "sequence": sequence})
            item = item or await bundle_across(self._dynamo, chat_id, sequence)
            plain = unbundled(item) if item is not None else []
            stored = next((stored_in(one) for one in plain if sequence_of(one) == sequence), None)
            if item is None or stored is None or stored.wire is None or stored.wire == to.after:
                return stored is not None and stored.wire == to.after
            if to.before is not None and stored.wire != to.before:
                return False
            if await self._rewrite(item, sequence, to.after):
                return True
        raise StoreUnavailable(f"the entry at {sequence} is being written to by too many at once")

    async def _rewrite(self, item: Item, sequence: int, after: bytes) -> bool:
        """False: it is not what was read any more, or is this very write, whose answer was lost."""
        new = redacted(item, sequence, decode_entry(after))
        if new is None:
            return False
        is_bundle = item.get("kind") == BUNDLE
        name = "entries" if is_bundle else "content"
        condition, names, values = IS_SAME, {"#body": name}, cast(Item, {":body": item[name]})
        for attribute in () if is_bundle else ("deleted", "edit_sequence"):
            if attribute in item:
                condition += f" AND {attribute} = :{attribute}"
                values[f":{attribute}"] = item[attribute]
            else:
                condition += f" AND attribute_not_exists({attribute})"
        try:
            put = partial(self._dynamo.put, MESSAGES, new, condition=condition, values=values, names=names)
            await retry_unknown(put)
        except ConditionFailed:
            return False
        return True

    async def scrub(self, leftovers: Sequence[bytes] | None = None) -> None:
        """Items that were replaced are gone. Point-in-time recovery keeps what they were, for its days."""


def mark_in(chat: Item) -> ArchiveMark:
    """The mark in the item of a chat."""
    return ArchiveMark(
        archived_through=number(chat, "archived_through"),
        trimmed_through=number(chat, "trimmed_through"),
        version=number(chat, "archive_version"),
        manifest=str(chat.get("archive_manifest", "")),
        is_trimming=bool(chat.get("is_trimming")),
    )
