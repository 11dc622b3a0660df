"""The `Attachments` port on DynamoDB.

Beside the files there are lists of them: those of each person, and those that the sweep must look at. A file
is on its lists before it is stored, and stays there until it is gone: what a crash leaves is a line too many,
never one too few. `unsettled` clears such lines.
"""

from __future__ import annotations

from functools import partial
from typing import cast
from zlib import crc32

import msgspec

from parley.clock import Clock
from parley.core.attachments import Attachment
from parley.dynamodb import ConditionFailed, Dynamo, Item, is_valid_key, number, retry_unknown
from parley.store.attachments import NOTE_MS
from parley.store.dynamodb.schema import ATTACHMENT_LISTS, ATTACHMENTS

UNSETTLED_SHARDS = 8
"""Files that the sweep must look at are listed under so many names, so that no one of them gets hot."""
IS_SAME = "#record = :before"
RECORD = {"#record": "record"}

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Attachment).decode


class DynamoAttachments:
    def __init__(self, dynamo: Dynamo, clock: Clock) -> None:
        self._dynamo = dynamo
        self._clock = clock

    async def add(self, attachment: Attachment) -> None:
        await self._note(attachment)
        await self._list(user_list(attachment.user_id), attachment, charge=attachment.charge)
        await retry_unknown(partial(self._dynamo.put, ATTACHMENTS, attachment_item(attachment)))

    async def get(self, chat_id: str, attachment_id: str) -> Attachment | None:
        if not is_valid_key(chat_id) or not is_valid_key(attachment_id):
            return None
        item = await self._dynamo.get(ATTACHMENTS, {"chat_id": chat_id, "attachment_id": attachment_id})
        return attachment_in(item) if item is not None else None

    async def swap(self, before: Attachment, after: Attachment) -> bool:
        if before.is_settled and not after.is_settled:
            await self._note(after)
        put = partial(
            self._dynamo.put,
            ATTACHMENTS,
            attachment_item(after),
            condition=IS_SAME,
            values={":before": encode(before)},
            names=RECORD,
        )
        try:
            await retry_unknown(put)
        except ConditionFailed:  # by somebody else, or by this attempt, whose answer was lost
            return await self.get(after.chat_id, after.attachment_id) == after
        if after.is_settled:
            await self._unlist(_unsettled_list(after), after.attachment_id)
        return True

    async def remove(self, attachment: Attachment) -> None:
        key: Item = {"chat_id": attachment.chat_id, "attachment_id": attachment.attachment_id}
        await retry_unknown(partial(self._dynamo.delete, ATTACHMENTS, key))
        await self._unlist(user_list(attachment.user_id), attachment.attachment_id)
        await self._unlist(_unsettled_list(attachment), attachment.attachment_id)

    async def unsettled(self) -> list[Attachment]:
        found: list[Attachment] = []
        for shard in range(UNSETTLED_SHARDS):
            for line in await self._lines(_shard_list(shard)):
                attachment = await self.get(cast(str, line["chat_id"]), cast(str, line["attachment_id"]))
                if attachment is not None and not attachment.is_settled:
                    found.append(attachment)
                elif number(line, "since_ms") < self._clock() - NOTE_MS:
                    await self._forget(line, attachment)
        return found

    async def charged_bytes(self, user_id: str) -> int:
        return sum(number(line, "charge") for line in await self._lines(user_list(user_id)))

    # Lists

    async def _note(self, attachment: Attachment) -> None:
        await self._list(_unsettled_list(attachment), attachment)

    async def _list(self, name: str, attachment: Attachment, *, charge: int = 0) -> None:
        line = _line(name, attachment, self._clock(), charge)
        await retry_unknown(partial(self._dynamo.put, ATTACHMENT_LISTS, line))

    async def _lines(self, name: str) -> list[Item]:
        return await self._dynamo.query_all(
            ATTACHMENT_LISTS, "#list = :list", {":list": name}, names={"#list": "list"}
        )

    async def _unlist(self, name: str, attachment_id: str) -> None:
        key: Item = {"list": name, "attachment_id": attachment_id}
        await retry_unknown(partial(self._dynamo.delete, ATTACHMENT_LISTS, key))

    async def _forget(self, line: Item, attachment: Attachment | None) -> None:
        """A line that is out of date goes, unless it was written again; with it, that of its owner."""
        if attachment is None:
            await self._unlist(user_list(cast(str, line["user_id"])), cast(str, line["attachment_id"]))
        key: Item = {"list": line["list"], "attachment_id": line["attachment_id"]}
        values: Item = {":since": line["since_ms"]}
        delete = partial(
            self._dynamo.delete, ATTACHMENT_LISTS, key, condition="since_ms = :since", values=values
        )
        try:
            await retry_unknown(delete)
        except ConditionFailed:
            return


def attachment_item(attachment: Attachment) -> Item:
    return {
        "chat_id": attachment.chat_id,
        "attachment_id": attachment.attachment_id,
        "record": encode(attachment),
    }


def attachment_in(item: Item) -> Attachment:
    return decode(cast(bytes, item["record"]))


def attachment_items(attachment: Attachment, now_ms: int) -> list[tuple[str, Item]]:
    """The file and its lines, as a copy puts them."""
    lists = [(user_list(attachment.user_id), attachment.charge)]
    if not attachment.is_settled:
        lists.append((_unsettled_list(attachment), 0))
    lines = [(ATTACHMENT_LISTS, _line(name, attachment, now_ms, charge)) for name, charge in lists]
    return [*lines, (ATTACHMENTS, attachment_item(attachment))]


def _line(name: str, attachment: Attachment, now_ms: int, charge: int) -> Item:
    return {
        "list": name,
        "attachment_id": attachment.attachment_id,
        "chat_id": attachment.chat_id,
        "user_id": attachment.user_id,
        "since_ms": now_ms,
        "charge": charge,
    }


def user_list(user_id: str) -> str:
    return f"user {user_id}"


def _unsettled_list(attachment: Attachment) -> str:
    return _shard_list(crc32(attachment.attachment_id.encode()) % UNSETTLED_SHARDS)


def _shard_list(shard: int) -> str:
    return f"unsettled {shard}"
