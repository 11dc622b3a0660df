"""The engine in memory beside an engine under test: whatever happens to the one happens to the other."""

from collections.abc import Coroutine
from typing import Any, TypeVar

from msgspec import structs

from parley.errors import Refusal, Refused
from parley.ids import Ids
from parley.model import Appended, ChatSummary, CursorMove, Draft, Outcome, ReceiptKind
from parley.telemetry import Metrics
from parley.wire.frames import Entry
from tests.contracts.acting import decode_entry
from tests.contracts.engines import OpenStore
from tests.memory.engine import MemoryStore
from tests.memory.tables import ChatRecord, Tables

T = TypeVar("T")


class Told:
    """What a store tells of positions that rose: of each one every rise once, in order."""

    def __init__(self) -> None:
        self.rises: dict[tuple[str, str, ReceiptKind], tuple[int, str]] = {}
        self.in_vain: list[CursorMove] = []

    def hear(self, moves: list[CursorMove]) -> None:
        for move in moves:
            place = move.user_id, move.chat_id, move.kind
            if move.up_to <= self.rises.get(place, (0, ""))[0]:
                self.in_vain.append(move)
            self.rises[place] = move.up_to, move.at


class Reference:
    """The same people, chats and time as in the store under test. It is atomic and takes drafts one by one.

    Where the other engine may choose, it follows: message ids, and numbers that became void.
    """

    def __init__(self, real: OpenStore) -> None:
        tables = Tables()
        self._real = real
        self._tables = tables
        self.chats: dict[str, ChatRecord] = tables.chats
        self.store = MemoryStore(
            tables, clock=real.clock, ids=Ids(lambda _: 0), metrics=Metrics(real.clock), sequencing="atomic"
        )
        self.told = Told()
        self.store.cursors.subscribe(self.told.hear)
        self.abandoned: set[str] = set()
        """Chats with numbers that were taken and not written: they are sealed at any time."""
        self._message_ids: dict[tuple[str, int], str] = {}
        """Those of the store under test, by chat and position."""
        self._stirred: dict[str, set[str]] = {}
        """Chats that a person's next pages may list, although nothing of them is different."""
        self._tokens: dict[str, str] = {}

    async def add_user(self, user_id: str) -> None:
        user = await self._real.accounts.user(user_id)
        assert user is not None
        await self.store.accounts.add_user(user, "")
        self._stirred[user_id] = set()
        await self.has_listed_all(user_id)

    # Appending

    async def follow(self, draft: Draft, got: Outcome, *, is_dense: bool) -> None:
        """Append what the other engine has appended, and expect the same. `is_dense`: it leaves no voids."""
        row = self.chats.get(draft.chat_id)
        is_new = isinstance(got, Appended) and not got.deduplicated
        if row is not None and row.counter is not None and isinstance(got, Appended) and is_new:
            assert got.sequence > row.last, "a position is written once, in order"
            assert got.sequence == row.counter + 1 or not is_dense
            row.counter = got.sequence - 1
            self._message_ids[draft.chat_id, got.sequence] = got.message_id
        if not is_new:
            self.stir(draft.chat_id)
        expected = (await self.store.log.append([draft])).outcomes[0]
        if isinstance(expected, Appended):
            message_id = self._message_ids[draft.chat_id, expected.sequence]
            expected = structs.replace(expected, message_id=message_id)
        assert got == expected, (draft, got, expected)

    def with_id(self, entry: Entry) -> Entry:
        """An entry of this engine, as the other one has stored it."""
        return structs.replace(entry, message_id=self._message_ids[entry.chat_id, entry.sequence])

    # Overviews

    def stir(self, chat_id: str) -> None:
        """A draft that is not stored may move a number; a device that catches up may be listed."""
        row = self.chats.get(chat_id)
        for user_id in row.members if row is not None else ():
            self._stirred[user_id].add(chat_id)

    async def overview(self, user_id: str) -> list[ChatSummary]:
        return (await self.store.overviews.changed(user_id, "phone", None, 1000)).positions

    async def row_of_left(self, user_id: str, chat_id: str) -> ChatSummary:
        """What is told of a chat that a person is no longer in."""
        changed = await self.store.overviews.changed(user_id, "phone", self._tokens[user_id], 1000)
        return next(at for at in changed.positions if at.chat_id == chat_id)

    async def may_list(self, user_id: str) -> set[str]:
        """The chats that a page may list, since the person's list was whole."""
        await self.store.cursors.flush()
        changed = await self.store.overviews.changed(user_id, "phone", self._tokens[user_id], 1000)
        moving = {
            chat_id
            for chat_id, row in self.chats.items()
            if user_id in row.members and (row.counter is None or chat_id in self.abandoned)
        }
        return {at.chat_id for at in changed.positions} | self._stirred[user_id] | moving

    async def has_listed_all(self, user_id: str) -> None:
        await self.store.cursors.flush()
        self._tokens[user_id] = (await self.store.overviews.changed(user_id, "phone", None, 1000)).token
        self._stirred[user_id].clear()


def comparable_row(at: ChatSummary) -> ChatSummary:
    """Without what engines may choose: where voids are, and message ids."""
    last = None if at.last_entry is None else b"%d" % decode_entry(at.last_entry).sequence
    return structs.replace(at, head=0, last_entry=last)


async def answer_or_refusal(asking: Coroutine[Any, Any, T]) -> T | Refusal:
    try:
        return await asking
    except Refused as refused:
        return refused.refusal
