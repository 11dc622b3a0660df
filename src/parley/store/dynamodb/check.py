"""Whether the tables keep the store's promises, shown from their items alone, while nodes are at work.

Everything is read page by page, and memory stays small. Nothing on DynamoDB is a snapshot: a page may show
one half of a transaction and not yet the other. So what must hold is read in an order in which it can only
have become truer, and whatever looks broken is looked at again before it is told.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from parley.clock import Clock, wall_clock
from parley.errors import ConfigError
from parley.store.checks import Breach, Findings, Progress, Tell, silently
from parley.store.dynamodb.check_log import LogCheck
from parley.store.dynamodb.check_people import PeopleCheck
from parley.store.dynamodb.check_references import ReferenceCheck
from parley.store.dynamodb.client import Dynamo, Item
from parley.store.dynamodb.counters import Counters
from parley.store.dynamodb.schema import check_tables
from parley.store.dynamodb.states import CHATS
from parley.store.dynamodb.together import is_key, together
from parley.store.ports import Allocator

CHATS_AT_ONCE_MAX = 8

NOT_SHOWN = frozenset(
    {
        "sequence_uniqueness",  # kept by the key of the table `messages`
        "allocation_monotonicity",  # a number that was taken leaves no trace until it is written
        "add_operation_atomicity",
        "change_order",  # changes of different chats are not numbered
        "file_integrity",  # there is no file
    }
)


async def check_tables_of(
    dynamo: Dynamo,
    chat_ids: Sequence[str] | None = None,
    tell: Tell = silently,
    *,
    allocator: Allocator | None = None,
    is_atomic: bool = False,
    whole: bool = True,
    clock: Clock = wall_clock,
) -> Findings:
    """Check every chat, or only these.

    `allocator`: who gives the numbers, if the counters are not in `chat_counters`. `is_atomic`: nobody but
    appends moves a counter. `whole`: also look for entries and keys of chats that do not exist, which reads
    all of them once more.
    """
    findings = Findings(not_shown=NOT_SHOWN)
    try:
        await check_tables(dynamo)
    except ConfigError as error:
        findings.add(Breach("schema", str(error), "run: parley store init"))
        return findings
    counters = Counters(dynamo, allocator, is_atomic)
    check = ChatsCheck(dynamo, counters, findings, clock, tell, one_by_one=chat_ids is not None)
    await check.check(chat_ids)
    if chat_ids is None:
        await ReferenceCheck(dynamo, findings).check(whole=whole)
    check.tell()
    return findings


class ChatsCheck:
    def __init__(
        self,
        dynamo: Dynamo,
        counters: Counters,
        findings: Findings,
        clock: Clock,
        tell: Tell,
        *,
        one_by_one: bool,
    ) -> None:
        self._dynamo = dynamo
        self._findings = findings
        self._log = LogCheck(dynamo, counters, findings, clock)
        self._people = PeopleCheck(dynamo, findings, with_cursors=one_by_one)
        self._tell = tell
        self._total = 0

    async def check(self, chat_ids: Sequence[str] | None) -> None:
        pages = self._all() if chat_ids is None else self._named(chat_ids)
        async for page in pages:
            self._total += len(page)
            await together(self._check_one, page, CHATS_AT_ONCE_MAX)

    async def _all(self) -> AsyncIterator[list[Item]]:
        start: Item | None = None
        while True:
            page = await self._dynamo.scan(CHATS, start=start)
            yield page.items
            start = page.next_key
            if start is None:
                return

    async def _named(self, chat_ids: Sequence[str]) -> AsyncIterator[list[Item]]:
        keys: list[Item] = [{"chat_id": chat_id} for chat_id in dict.fromkeys(chat_ids) if is_key(chat_id)]
        yield await self._dynamo.batch_get(CHATS, keys)

    async def _check_one(self, chat: Item) -> None:
        """Members before the log: whoever joined later did so further down."""
        joined = await self._people.check(chat)
        last = await self._log.check(chat, self.tell)
        self._people.check_joined(chat, joined, last)
        self._findings.chats += 1
        self.tell()

    def tell(self) -> None:
        self._tell(Progress(self._findings.chats, self._total, self._findings.entries))
