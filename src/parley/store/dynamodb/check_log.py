"""One chat's log against its counter, its keys and its own words."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from msgspec import Struct

from parley import ids
from parley.clock import MS_PER_DAY, Clock, from_iso
from parley.errors import InconsistentCounterError
from parley.store.checks import Breach, Findings
from parley.store.dynamodb.client import Dynamo, Item
from parley.store.dynamodb.counters import Counters
from parley.store.dynamodb.entries import KEY_DAYS, KEYS, MESSAGES, VOID, key_of, sequence_of
from parley.store.dynamodb.looking import stays, told
from parley.store.dynamodb.message_ids import place_in, tag_of
from parley.store.dynamodb.states import CHATS, number
from parley.store.rules import STRAY_POSITIONS_MAX

LATE_WRITE_MS_MAX = 60_000
"""How much later than a higher number a lower one may be written: far more than sealing allows."""

FROM_BACKUP = "restore the item from a backup (point-in-time recovery)"
GIVE_UP = "restore the entries from a backup, or give them up: parley recover {chat} --seal-holes --apply"
SEAL_TAIL = "the next message makes them voids; to do it now: parley recover {chat} --seal-holes --apply"
RECOVER = "run: parley recover {chat}"
CLOCKS = "if a node's clock was wrong, set it (NTP); otherwise somebody wrote below the end of the log"

FIELDS = ("message_id", "sender_id", "content_type", "created_at", "server_timestamp")
"""What every entry has beside its content."""


class Walk(Struct):
    """How far one log was walked, in constant memory."""

    chat_id: str
    epoch: int
    tag: int
    certain_through: int
    """Up to here nothing can be missing; beyond it, a number may be taken and not written yet."""
    expected: int
    count: int = 0
    newest_ms: int = 0
    newest_at: str = ""

    @property
    def last(self) -> int:
        return self.expected - 1


class LogCheck:
    def __init__(self, dynamo: Dynamo, counters: Counters, findings: Findings, clock: Clock) -> None:
        self._dynamo = dynamo
        self._counters = counters
        self._findings = findings
        self._clock = clock

    async def check(self, chat: Item, tell: Callable[[], None]) -> int:
        """The end of the log. The counter is read before it and after it."""
        chat_id = cast(str, chat["chat_id"])
        before = await self._counters.read(chat_id)
        certain = max(before.written, number(chat, "resolved_through"))
        expected = number(chat, "trimmed_through") + 1
        walk = Walk(chat_id, number(chat, "epoch"), tag_of(chat_id), certain, expected)
        start: Item | None = None
        while True:
            page = await self._dynamo.query(MESSAGES, "chat_id = :chat", {":chat": chat_id}, start=start)
            for item in page.items:
                await self._check_item(walk, item)
            await self._check_recent_keys(walk, page.items)
            tell()
            start = page.next_key
            if start is None:
                break
        await self._check_end(walk)
        await self._check_keys(walk, number(chat, "trimmed_through"))
        return walk.last

    def _breach(self, walk: Walk, invariant: str, sequence: int | None, says: str, remedy: str) -> None:
        remedy = remedy.format(chat=walk.chat_id)
        self._findings.add(Breach(invariant, says, remedy, walk.chat_id, sequence))

    # Places

    async def _check_item(self, walk: Walk, item: Item) -> None:
        sequence = item.get("sequence")
        if not isinstance(sequence, int) or sequence < 1:
            says = f"an entry has sequence {told(item, 'sequence')}, which is no whole number from 1"
            at = sequence if isinstance(sequence, int) else None
            self._breach(walk, "no_zero_sequence", at, says, FROM_BACKUP)
            return
        if sequence > walk.expected:
            await self._check_missing(walk, walk.expected, sequence - 1, is_below_entry=True)
        walk.expected = max(walk.expected, sequence + 1)
        if item.get("kind") == VOID:
            self._check_void(walk, sequence, item)
        else:
            self._check_entry(walk, sequence, item)

    async def _check_missing(self, walk: Walk, first: int, last: int, *, is_below_entry: bool) -> bool:
        """Numbers without an item: up to the certain end a hole, beyond it open. Whether there is a hole."""
        certain = min(last, walk.certain_through)
        self._findings.open_allocations += max(0, last - max(certain, first - 1))
        if first > certain or not await stays(partial(self._is_missing, walk.chat_id, first, certain)):
            return False
        self._tell_hole(walk, first, certain, is_below_entry)
        return True

    async def _is_missing(self, chat_id: str, first: int, last: int) -> bool:
        """A page may be torn, and the log may have been trimmed meanwhile."""
        chat = await self._dynamo.get(CHATS, {"chat_id": chat_id})
        first = max(first, number(chat or {}, "trimmed_through") + 1)
        found = await self._dynamo.count(
            MESSAGES,
            "chat_id = :chat AND #s BETWEEN :first AND :last",
            {":chat": chat_id, ":first": first, ":last": max(first, last)},
            names={"#s": "sequence"},
            maximum=last - first + 2,
        )
        return chat is not None and first <= last and found < last - first + 1

    def _tell_hole(self, walk: Walk, first: int, last: int, is_below_entry: bool) -> None:
        numbers = f"number {first} is" if first == last else f"numbers {first} to {last} are"
        says = f"{numbers} neither an entry nor a void nor open"
        remedy = GIVE_UP if is_below_entry else SEAL_TAIL
        self._breach(walk, "log_density", first, says, remedy)
        self._breach(walk, "gap_is_allocation_without_persistence", first, says, remedy)
        if is_below_entry:
            says = f"readers stop at the hole before {last + 1} and never see what follows"
            self._breach(walk, "sync_completeness", first, says, GIVE_UP)

    # Words

    def _check_void(self, walk: Walk, sequence: int, item: Item) -> None:
        self._findings.voids += 1
        if any(item.get(name) is not None for name in ("content", "client_message_id", *FIELDS)):
            says = f"the void at {sequence} carries a message"
            self._breach(walk, "wire_agreement", sequence, says, FROM_BACKUP)

    def _check_entry(self, walk: Walk, sequence: int, item: Item) -> None:
        self._findings.entries += 1
        walk.count += 1
        if not isinstance(item.get("content"), str):
            says = f"the entry at {sequence} has no body, so nobody can read past it"
            self._breach(walk, "sync_completeness", sequence, says, FROM_BACKUP)
        missing = [name for name in ("kind", *FIELDS) if not isinstance(item.get(name), str)]
        if missing:
            says = f"the entry at {sequence} has no {' and no '.join(missing)}"
            self._breach(walk, "wire_agreement", sequence, says, FROM_BACKUP)
            return
        agrees = {
            "epoch": 1 <= number(item, "epoch") <= walk.epoch,
            "server_timestamp": item["server_timestamp"] == item["created_at"],
            "message_id": place_in(cast(str, item["message_id"])) == (walk.tag, sequence),
        }
        for name, is_right in agrees.items():
            if not is_right:
                says = f"the entry at {sequence} says {name} {told(item, name)}, its place says otherwise"
                self._breach(walk, "wire_agreement", sequence, says, FROM_BACKUP)
        self._check_order(walk, sequence, cast(str, item["created_at"]))

    def _check_order(self, walk: Walk, sequence: int, created_at: str) -> None:
        """Two writers may overtake each other by moments; nobody may write below what is long stored."""
        created_ms = _ms(created_at)
        if created_ms >= walk.newest_ms:
            walk.newest_ms, walk.newest_at = created_ms, created_at
        elif walk.newest_ms - created_ms > LATE_WRITE_MS_MAX:
            says = f"an entry below {sequence} was stored at {walk.newest_at}, long after it ({created_at})"
            self._breach(walk, "sequence_monotonic", sequence, says, CLOCKS)

    # The end of a log

    async def _check_end(self, walk: Walk) -> None:
        """An entry's number was given before it was written: no counter read now can be below."""
        after = await self._counters.read(walk.chat_id)
        if after.last is None:
            self._breach(walk, "counter_must_exist", None, "this chat has no counter", f"{RECOVER} --apply")
            return
        self._check_bounds(walk, after.last)
        is_short = after.last >= walk.expected and await self._check_missing(
            walk, walk.expected, after.last, is_below_entry=False
        )
        is_moved = self._counters.is_atomic and after.last != after.written
        if is_short or is_moved or after.last - walk.last > STRAY_POSITIONS_MAX:
            says = f"the counter is {after.last}, the last number given is {walk.last}"
            self._breach(walk, "counter_is_last_allocated", None, says, SEAL_TAIL)

    def _check_bounds(self, walk: Walk, counter: int) -> None:
        if counter < walk.last:
            says = str(InconsistentCounterError(counter, walk.last))
            self._breach(walk, "counter_is_last_allocated", None, says, RECOVER)
            self._breach(walk, "sequence_monotonicity", walk.last, says, RECOVER)
        if walk.count > counter:
            says = f"the chat has {walk.count} messages, its counter is {counter}"
            self._breach(walk, "counter_lower_bound", None, says, RECOVER)

    # Keys

    async def _check_recent_keys(self, walk: Walk, items: list[Item]) -> None:
        """A message whose key has not expired is the only one of its id: the key leads to it."""
        since = self._clock() - KEY_DAYS * MS_PER_DAY
        recent: dict[str, Item] = {}
        for item in items:
            key = ids.client_key(str(item.get("client_message_id", "")))
            if key is not None and _ms(str(item.get("created_at"))) > since:
                recent[cast(str, key_of(walk.chat_id, key)["client_message_id"])] = item
        places: list[Item] = [{"chat_id": walk.chat_id, "client_message_id": text} for text in recent]
        for key_item in await self._dynamo.batch_get(KEYS, places):
            item = recent[cast(str, key_item["client_message_id"])]
            if key_item.get("sequence") != item.get("sequence"):
                says = (
                    f"the messages at {told(item, 'sequence')} and {told(key_item, 'sequence')} have the same"
                    f" client_message_id {told(item, 'client_message_id')}"
                )
                self._breach(walk, "idempotency_guarantee", sequence_of(item), says, FROM_BACKUP)

    async def _check_keys(self, walk: Walk, trimmed: int) -> None:
        start: Item | None = None
        while True:
            page = await self._dynamo.query(KEYS, "chat_id = :chat", {":chat": walk.chat_id}, start=start)
            for key in await self._doubtful(walk.chat_id, page.items):
                if number(key, "sequence") > trimmed and await stays(partial(self._differs, key)):
                    at = number(key, "sequence")
                    says = f"the key {told(key, 'client_message_id')} names {told(key, 'message_id')} at {at}"
                    says += ", where it is not"
                    self._breach(walk, "idempotency_sequence_consistency", at, says, FROM_BACKUP)
            start = page.next_key
            if start is None:
                return

    async def _doubtful(self, chat_id: str, keys: list[Item]) -> list[Item]:
        """The keys that do not agree with the message that they name."""
        sequences = {number(key, "sequence") for key in keys}
        places: list[Item] = [{"chat_id": chat_id, "sequence": sequence} for sequence in sorted(sequences)]
        found = {item["sequence"]: item for item in await self._dynamo.batch_get(MESSAGES, places)}
        return [key for key in keys if not _agree(key, found.get(key.get("sequence")))]

    async def _differs(self, key: Item) -> bool:
        place: Item = {"chat_id": key["chat_id"], "sequence": number(key, "sequence")}
        again = await self._dynamo.get(KEYS, {n: key[n] for n in ("chat_id", "client_message_id")})
        return again is not None and not _agree(again, await self._dynamo.get(MESSAGES, place))


def _agree(key: Item, item: Item | None) -> bool:
    """Whether a key and the item at its position are of one message."""
    if item is None:
        return False
    own: Any = ids.client_key(str(item.get("client_message_id", "")))
    return (
        key.get("message_id") == item.get("message_id")
        and key.get("sender_id") == item.get("sender_id")
        and own is not None
        and key_of("", own)["client_message_id"] == key.get("client_message_id")
    )


def _ms(text: str) -> int:
    try:
        return from_iso(text)
    except ValueError:
        return 0
