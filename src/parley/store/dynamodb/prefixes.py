"""How far each log is resolved when numbers are taken before they are written (`two_phase`).

A position that is missing below one that exists is a hole: its taker is slow, or gone. Readers stop before
it. It is remembered when it was first seen, and sealed with a void when it is still there after a delay,
whoever took it: a position is written once, so a taker that comes too late takes another number.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import structlog

from parley.clock import Clock
from parley.model import Persisted, Stored
from parley.store.dynamodb.actions import Action, Check
from parley.store.dynamodb.client import Dynamo, TransactionCanceled
from parley.store.dynamodb.entries import MESSAGES, put_void, sequence_of
from parley.store.dynamodb.states import CHATS, ChatState, ChatStates
from parley.store.dynamodb.values import Item

VOIDS_PER_TRANSACTION_MAX = 99
POSITIONS_PER_LOOK_MAX = 1_000
FAILED = "ConditionalCheckFailed"
NOT_TRIMMED = "attribute_not_exists(trimmed_through) OR trimmed_through < :first"

log = structlog.get_logger("parley.store")


class Prefixes:
    """The resolved prefixes of logs, and the holes that end them."""

    def __init__(self, dynamo: Dynamo, states: ChatStates, clock: Clock, seal_after_ms: int) -> None:
        self._dynamo = dynamo
        self._states = states
        self._clock = clock
        self._seal_after_ms = seal_after_ms
        self._holes: dict[str, dict[int, int]] = {}
        self.under_way: dict[str, set[int]] = {}
        """Numbers that this node has taken and is still writing: it never seals them itself."""

    async def advance(self, state: ChatState) -> int:
        """Look how far a log is resolved by now."""
        while True:
            start = state.resolved
            found = await self._after(state, start)
            end = start
            for sequence in found:
                if sequence != end + 1:
                    break
                end = sequence
            state.resolved = max(state.resolved, end)
            state.head = max(state.head, found[-1] if found else 0)
            is_whole = end == start + len(found)
            self._note(state.chat_id, end, None if is_whole else found[end - start])
            if not is_whole or len(found) < POSITIONS_PER_LOOK_MAX:
                return state.resolved

    async def _after(self, state: ChatState, start: int) -> list[int]:
        values: Item = {":chat": state.chat_id, ":start": start}
        page = await self._dynamo.query(
            MESSAGES,
            "chat_id = :chat AND #s > :start",
            values,
            names={"#s": "sequence"},
            projection="#s",
            limit=POSITIONS_PER_LOOK_MAX,
        )
        return [sequence_of(item) for item in page.items]

    def _note(self, chat_id: str, resolved: int, next_found: int | None) -> None:
        """Remember since when the positions before `next_found` are missing."""
        if next_found is None:
            self._holes.pop(chat_id, None)
            return
        before = self._holes.get(chat_id, {})
        now_ms = self._clock()
        self._holes[chat_id] = {
            position: before.get(position, now_ms) for position in range(resolved + 1, next_found)
        }

    async def seal_due(self) -> list[Persisted]:
        """Seal every hole that has been there for long enough, in all chats."""
        sealed = []
        for chat_id in list(self._holes):
            state = self._states.known(chat_id)
            if state is None:
                del self._holes[chat_id]
                continue
            await self.advance(state)
            positions = await self.seal_old(state)
            if positions:
                sealed.append(Persisted(chat_id, state.epoch, positions))
        return sealed

    async def seal_old(self, state: ChatState) -> list[Stored]:
        """Seal the holes of one chat that are old enough and not this node's own."""
        oldest_ms = self._clock() - self._seal_after_ms
        own = self.under_way.get(state.chat_id, set())
        holes = self._holes.get(state.chat_id, {})
        due = [at for at, seen_ms in holes.items() if seen_ms <= oldest_ms and at not in own]
        if not due:
            return []
        voids = await self.seal(state, due)
        log.warning("Abandoned positions sealed", positions=len(voids), chats=[state.chat_id])
        await self.advance(state)
        return voids

    async def seal(self, state: ChatState, positions: list[int]) -> list[Stored]:
        """Voids at these positions, except where somebody was faster or the log has been trimmed."""
        sealed: list[Stored] = []
        for start in range(0, len(positions), VOIDS_PER_TRANSACTION_MAX):
            sealed += await self._seal_some(state, positions[start : start + VOIDS_PER_TRANSACTION_MAX])
        return sealed

    async def _seal_some(self, state: ChatState, positions: list[int]) -> list[Stored]:
        left = list(positions)
        while left:
            check = Check(CHATS, {"chat_id": state.chat_id}, NOT_TRIMMED, {":first": left[0]})
            voids: list[Action] = [put_void(state.chat_id, at, state.epoch) for at in left]
            try:
                await self._dynamo.transact([check, *voids], _token(state.chat_id, left))
            except TransactionCanceled as error:
                codes = [reason.code for reason in error.reasons]
                if codes[0] == FAILED:
                    left = left[1:]  # it has been trimmed: whoever could read it has passed it
                else:
                    left = [at for at, code in zip(left, codes[1:], strict=True) if code != FAILED]
            else:
                return [Stored(at, None) for at in left]
        return []

    def take(self, chat_id: str, numbers: Iterable[int]) -> None:
        self.under_way.setdefault(chat_id, set()).update(numbers)

    def give_back(self, chat_id: str, numbers: Iterable[int]) -> None:
        """These are written, sealed or abandoned: nobody here writes them any more."""
        own = self.under_way.get(chat_id)
        if own is not None:
            own.difference_update(numbers)
            if not own:
                del self.under_way[chat_id]


def _token(chat_id: str, positions: list[int]) -> str:
    """The same seal is the same request, whoever asks for it."""
    return blake2b(f"{chat_id} {positions}".encode(), digest_size=16).hexdigest()
