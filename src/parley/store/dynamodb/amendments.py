"""The `Amendments` port on DynamoDB."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

from parley.dynamodb import ConditionFailed, Dynamo, Item, is_valid_key, number, retry_unknown
from parley.store.amendments import AmendmentNote, MessageMark
from parley.store.dynamodb.bundles import BUNDLE, bundle_across, redacted, unbundled
from parley.store.dynamodb.entries import sequence_of, stored_in
from parley.store.dynamodb.scans import table_pages
from parley.store.dynamodb.schema import AMENDMENTS, MESSAGE_MARKS, MESSAGES, mark_place
from parley.wire.codec import decode_entry

MARK = "SET #sequence = :sequence, is_on = :on"
IS_NEWER = "attribute_not_exists(place) OR #sequence < :sequence"
IS_SAME_BUNDLE = "#body = :body"
IS_SAME_ENTRY = "#body = :body AND attribute_not_exists(deleted)"


class DynamoAmendments:
    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo

    async def begin(self, note: AmendmentNote) -> None:
        await retry_unknown(partial(self._dynamo.put, AMENDMENTS, note_item(note)))

    async def under_way(self, chat_id: str | None = None) -> list[AmendmentNote]:
        if chat_id is None:
            items = [item async for page in table_pages(self._dynamo, AMENDMENTS) for item in page]
        elif is_valid_key(chat_id):
            items = await self._dynamo.query_all(AMENDMENTS, "chat_id = :chat", {":chat": chat_id})
        else:
            items = []
        return [note_in(item) for item in items]

    async def mark(self, chat_id: str, marks: Sequence[MessageMark]) -> None:
        for mark in marks:
            key: Item = {"place": mark_place(chat_id, mark.target), "name": mark.name}
            values: Item = {":sequence": mark.sequence, ":on": mark.is_on}
            update = partial(
                self._dynamo.update,
                MESSAGE_MARKS,
                key,
                MARK,
                values,
                condition=IS_NEWER,
                names={"#sequence": "sequence"},
            )
            try:
                await retry_unknown(update)
            except ConditionFailed:
                continue  # a newer one is there, or this one, whose answer was lost

    async def finish(self, note: AmendmentNote) -> None:
        key: Item = {"chat_id": note.chat_id, "client_key": note.client_key}
        await retry_unknown(partial(self._dynamo.delete, AMENDMENTS, key))

    async def marks(self, chat_id: str, target: int) -> list[MessageMark]:
        items = await self._dynamo.query_all(
            MESSAGE_MARKS, "place = :place", {":place": mark_place(chat_id, target)}
        )
        return [mark_in(item, target) for item in items]

    async def replace(self, chat_id: str, sequence: int, before: bytes, after: bytes) -> bool:
        """One item is written, under the condition that it is still what was read."""
        item = await self._dynamo.get(MESSAGES, {"chat_id": chat_id, "sequence": sequence})
        item = item or await bundle_across(self._dynamo, chat_id, sequence)
        plain = unbundled(item) if item is not None else []
        stored = next((stored_in(one) for one in plain if sequence_of(one) == sequence), None)
        if item is None or stored is None or stored.wire != before:
            return stored is not None and stored.wire == after
        new = redacted(item, sequence, decode_entry(after))
        assert new is not None
        is_bundle = item.get("kind") == BUNDLE
        name, condition = ("entries", IS_SAME_BUNDLE) if is_bundle else ("content", IS_SAME_ENTRY)
        names, values = {"#body": name}, cast(Item, {":body": item[name]})
        if not is_bundle and "edit_sequence" in item:
            condition += " AND edit_sequence = :edit"
            values[":edit"] = item["edit_sequence"]
        elif not is_bundle:
            condition += " AND attribute_not_exists(edit_sequence)"
        try:
            put = partial(self._dynamo.put, MESSAGES, new, condition=condition, values=values, names=names)
            await retry_unknown(put)
        except ConditionFailed:
            return False
        return True

    async def scrub(self, traces: Sequence[bytes]) -> None:
        """Items that were replaced are gone. Point-in-time recovery keeps what they were, for its days."""


def note_item(note: AmendmentNote) -> Item:
    return {
        "chat_id": note.chat_id,
        "client_key": note.client_key,
        "target": note.target,
        "since_ms": note.since_ms,
    }


def note_in(item: Item) -> AmendmentNote:
    return AmendmentNote(
        cast(str, item["chat_id"]),
        cast(bytes, item["client_key"]),
        number(item, "target"),
        number(item, "since_ms"),
    )


def mark_in(item: Item, target: int) -> MessageMark:
    return MessageMark(target, cast(str, item["name"]), number(item, "sequence"), bool(item["is_on"]))
