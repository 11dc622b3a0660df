"""Positions of devices and people against the logs that they speak of."""

from __future__ import annotations

from functools import partial
from typing import cast

from msgspec import Struct

from parley.store.checks import Breach, Findings
from parley.store.dynamodb.changes import DELIVERY
from parley.store.dynamodb.client import Dynamo, Item
from parley.store.dynamodb.entries import MESSAGES, sequence_of
from parley.store.dynamodb.looking import stays, told
from parley.store.dynamodb.states import CHATS, number

LOST_TAIL = (
    "entries were lost, or older tables were put back: restore newer ones; if there are none, delete the item"
    " from {table}, and the device starts over"
)


class Claim(Struct):
    """Somebody says that they have come so far."""

    table: str
    chat_id: str
    whose: str
    sequence: int
    is_ack: bool


class CursorCheck:
    def __init__(self, dynamo: Dynamo, findings: Findings) -> None:
        self._dynamo = dynamo
        self._findings = findings

    async def check(self, table: str, rows: list[Item]) -> None:
        """A page of either table. Rows of chats that do not exist are somebody else's to tell."""
        claims = [claim for row in rows for claim in _claims(table, row)]
        places = {(claim.chat_id, claim.sequence) for claim in claims}
        keys: list[Item] = [{"chat_id": chat_id, "sequence": at} for chat_id, at in sorted(places)]
        found = {(item["chat_id"], item["sequence"]) for item in await self._dynamo.batch_get(MESSAGES, keys)}
        for claim in claims:
            if (claim.chat_id, claim.sequence) not in found and await stays(partial(self._is_wrong, claim)):
                await self._tell(claim)
        for row in rows if table == DELIVERY else ():
            self._check_read(row)

    def _check_read(self, row: Item) -> None:
        """One item is read whole: nothing has to be looked at again."""
        acked, read = number(row, "last_acked_sequence"), number(row, "read_up_to")
        if read > acked:
            says = f"{DELIVERY}: {told(row, 'user_id')} has read up to {read}, and only {acked} was delivered"
            remedy = f"set last_acked_sequence of the item in {DELIVERY} to its read_up_to"
            breach = Breach("delivery_state_consistency", says, remedy, cast(str, row.get("chat_id")), read)
            self._findings.add(breach)

    async def _is_wrong(self, claim: Claim) -> bool:
        """Whether the position is in no log that exists, nor trimmed from it."""
        place: Item = {"chat_id": claim.chat_id, "sequence": claim.sequence}
        if await self._dynamo.get(MESSAGES, place) is not None:
            return False
        chat = await self._dynamo.get(CHATS, {"chat_id": claim.chat_id})
        return chat is not None and claim.sequence > number(chat, "trimmed_through")

    async def _tell(self, claim: Claim) -> None:
        last, remedy = await self._last(claim.chat_id), LOST_TAIL.format(table=claim.table)
        who = f"{claim.table}: {claim.whose}"
        if claim.sequence > last:
            says = f"{who} is at {claim.sequence}, the log ends at {last}"
            self._add("delivery_state_consistency", claim, says, remedy)
        if claim.is_ack:
            says = f"{who} acknowledged {claim.sequence}, which is not in the log"
            self._add("ack_implies_persistence", claim, says, remedy)

    def _add(self, invariant: str, claim: Claim, says: str, remedy: str) -> None:
        self._findings.add(Breach(invariant, says, remedy, claim.chat_id, claim.sequence))

    async def _last(self, chat_id: str) -> int:
        page = await self._dynamo.query(
            MESSAGES, "chat_id = :chat", {":chat": chat_id}, forward=False, limit=1
        )
        return sequence_of(page.items[0]) if page.items else 0


def _claims(table: str, row: Item) -> list[Claim]:
    device = f" on {told(row, 'device_id')}" if "device_id" in row else ""
    whose, chat_id = f"{told(row, 'user_id')}{device}", cast(str, row.get("chat_id", ""))
    acked, read = number(row, "last_acked_sequence"), number(row, "read_up_to")
    claims = [Claim(table, chat_id, whose, acked, True)] if acked > 0 else []
    if read > 0 and read != acked:
        claims.append(Claim(table, chat_id, whose, read, False))
    return claims
