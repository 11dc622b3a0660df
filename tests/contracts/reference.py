"""The engine in memory beside an engine under test: whatever happens to the one happens to the other."""

from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from msgspec import structs

from parley.errors import Refusal, Refused
from parley.ids import Ids
from parley.model import Appended, ChatSummary, CursorMove, Draft, Kind, Outcome, ReceiptKind
from parley.records.kinds import Kinds
from parley.telemetry import Metrics
from parley.wire.frames import Entry
from tests.contracts.acting import decode_entry
from tests.contracts.engines import OpenStore
from tests.contracts.life_world import make_life
from tests.memory.engine import MemoryStore
from tests.memory.tables import MemoryChat, Tables

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
        self.chats: dict[str, MemoryChat] = tables.chats
        self.store = MemoryStore(
            tables, clock=real.clock, ids=Ids(lambda _: 0), metrics=Metrics(real.clock), sequencing="atomic"
        )
        self.accounts = Kinds(self.store, real.clock).accounts
        self.life = make_life(self.store, real.clock)
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
        await self.accounts.add_user(user, "")
        self._stirred[user_id] = set()
        await self.has_listed_all(user_id)

    # Appending

    async def follow(self, draft: Draft, got: Outcome, *, is_dense: bool) -> None:
        """Append what the other engine has appended, and expect the same. `is_dense`: it leaves no voids."""
        self._prepare(draft, got, is_dense=is_dense)
        self._expect(draft, got, (await self.store.log.append([draft])).outcomes[0])

    async def follow_amendment(self, draft: Draft, got: Outcome, *, is_dense: bool) -> None:
        """The same for what is done to a message: it has another id here."""
        self._prepare(draft, got, is_dense=is_dense)
        about = self.own_id(draft.target_id or draft.reply_to or "")
        own = (
            structs.replace(draft, target=None, target_id=about)
            if draft.target_id
            else structs.replace(draft, target=None, reply_to=about)
        )
        self._expect(draft, got, await answer_or_refusal(self.life.send(own)))

    def _prepare(self, draft: Draft, got: Outcome, *, is_dense: bool) -> None:
        row = self.chats.get(draft.chat_id)
        is_new = isinstance(got, Appended) and not got.deduplicated
        if row is not None and row.counter is not None and isinstance(got, Appended) and is_new:
            assert got.sequence > row.last, "a position is written once, in order"
            assert got.sequence == row.counter + 1 or not is_dense
            row.counter = got.sequence - 1
            self._message_ids[draft.chat_id, got.sequence] = got.message_id
        if not is_new:
            self.stir(draft.chat_id)

    def _expect(self, draft: Draft, got: Outcome, expected: Outcome) -> None:
        if isinstance(expected, Appended):
            message_id = self._message_ids[draft.chat_id, expected.sequence]
            expected = structs.replace(expected, message_id=message_id)
        assert got == expected, (draft, got, expected)

    def with_id(self, entry: Entry) -> Entry:
        """An entry of this engine, as the other one has stored it."""
        own = structs.replace(entry, message_id=self._message_ids[entry.chat_id, entry.sequence])
        if entry.target_id:
            own.target_id = self.real_id(entry.target_id)
        if entry.reply_to:
            own.reply_to = self.real_id(entry.reply_to)
        return own

    def _entries(self) -> Iterator[Entry]:
        return (entry for row in self.chats.values() for entry in row.entries.values() if entry is not None)

    def messages(self, chat_id: str) -> list[str]:
        """The ids of a chat's messages in the store under test, in order."""
        row = self.chats.get(chat_id)
        entries = [row.entries[at] for at in sorted(row.wires)] if row is not None else []
        return [
            self._message_ids[chat_id, one.sequence]
            for one in entries
            if one is not None and one.kind == Kind.MESSAGE.value
        ]

    def real_id(self, message_id: str) -> str:
        """The id that a message of this engine has in the store under test."""
        places = {entry.message_id: (entry.chat_id, entry.sequence) for entry in self._entries()}
        return self._message_ids[places[message_id]]

    def own_id(self, message_id: str) -> str:
        """The other way round; an unknown one stays as it is."""
        places = {(entry.chat_id, entry.sequence): entry.message_id for entry in self._entries()}
        found = [places[at] for at, real in self._message_ids.items() if real == message_id and at in places]
        return found[0] if found else message_id

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
