"""Who is typing: passed on to those who are there, now and then, and never kept."""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from msgspec import Struct

from parley.clock import MS_PER_SECOND, Clock
from parley.core.rates import Rate, RateLimiter
from parley.errors import StoreError
from parley.model import ChatType, Manners
from parley.people.audience import Audience
from parley.people.facts import ChatFacts
from parley.people.remembering import Remembered
from parley.people.signals import Signalling, Typed
from parley.store.ports import Directory
from parley.telemetry import Metrics
from parley.wire.frames import Typing
from parley.wire.limits import TYPING_EVERY_SECONDS, TYPING_MEMBERS_MAX, TYPING_SHOWN_SECONDS

SHOWN_MS = TYPING_SHOWN_SECONDS * MS_PER_SECOND
STARTS = Rate(1 / TYPING_EVERY_SECONDS, 1)
HIDDEN_MAX = TYPING_MEMBERS_MAX
"""Of more who are blocked only the members of the chat are named in a signal."""

log = structlog.get_logger("parley.typing")


class Shown(Struct, frozen=True):
    """Somebody is shown to type, until then at most."""

    until_ms: int
    hidden_from: list[str]


class Typings:
    """Of each person and chat one start every `TYPING_EVERY_SECONDS` is passed on, and the stop after it."""

    def __init__(
        self,
        facts: ChatFacts,
        manners: Remembered[Manners],
        directory: Directory,
        signals: Signalling,
        audience: Audience,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._facts = facts
        self._manners = manners
        self._directory = directory
        self._signals = signals
        self._audience = audience
        self._clock = clock
        self._metrics = metrics
        self._starts = RateLimiter(STARTS)
        self._shown: dict[tuple[str, str], Shown] = {}
        """By person and chat; who was shown first stands in front."""
        self._pairs = Remembered[frozenset[str]](self._read_pairs, clock)
        signals.on(Typed, self.heard)

    async def start(self, user_id: str, chat_id: str) -> None:
        """A member types. Whether anybody is told depends on many things, and is not said."""
        if self._starts.take((user_id, chat_id), self._clock()):
            return
        try:
            hidden_from = await self._hidden_from(user_id, chat_id)
        except StoreError as error:
            log.debug("typing not told", chat_id=chat_id, reason=str(error))
            return
        if hidden_from is None:
            return
        self._forget_old()
        self._shown.pop((user_id, chat_id), None)
        self._shown[user_id, chat_id] = Shown(self._clock() + SHOWN_MS, hidden_from)
        self._tell(Typed(chat_id, user_id, SHOWN_MS, hidden_from))

    async def stop(self, user_id: str, chat_id: str) -> None:
        """A member does not type any more. Who is not shown to type need not be hidden."""
        shown = self._shown.pop((user_id, chat_id), None)
        if shown is not None and shown.until_ms > self._clock():
            self._tell(Typed(chat_id, user_id, 0, shown.hidden_from))

    def _tell(self, signal: Typed) -> None:
        self._metrics.typing_told.inc()
        self._signals.tell(signal)

    def _forget_old(self) -> None:
        now_ms = self._clock()
        while self._shown:
            first = next(iter(self._shown))
            if self._shown[first].until_ms > now_ms:
                return
            del self._shown[first]

    async def _hidden_from(self, user_id: str, chat_id: str) -> list[str] | None:
        """Whom not to tell; None if nobody is to be told."""
        chat = await self._facts.one(chat_id)
        if chat is None or chat.member_count > TYPING_MEMBERS_MAX:
            return None
        typist = await self._manners.one(user_id)
        if typist is None:
            return None
        if chat.chat_type is ChatType.DIRECT:
            return [] if await self._is_open(user_id, typist, chat_id) else None
        if len(typist.blocked) <= HIDDEN_MAX:
            return sorted(typist.blocked)
        members = await self._directory.members(chat_id, "", TYPING_MEMBERS_MAX)
        return [member.user_id for member in members if member.user_id in typist.blocked]

    async def _is_open(self, user_id: str, typist: Manners, chat_id: str) -> bool:
        """Whether neither of the two in a direct chat has blocked the other."""
        others = (await self._pairs.one(chat_id) or frozenset()) - {user_id}
        manners = await self._manners.get(others)
        return not others & typist.blocked and not any(user_id in other.blocked for other in manners.values())

    async def _read_pairs(self, chat_ids: Sequence[str]) -> dict[str, frozenset[str]]:
        """Who is in a direct chat stays in it, so it may be remembered."""
        return {
            chat_id: frozenset(member.user_id for member in await self._directory.members(chat_id, "", 2))
            for chat_id in chat_ids
        }

    def heard(self, signal: Typed) -> None:
        """On whichever node it was told: to the other members who are connected to this one."""
        not_told = {signal.user_id, *signal.hidden_from}
        frame = Typing(chat_id=signal.chat_id, user_id=signal.user_id, expires_in_ms=signal.shown_ms)
        self._audience.tell_chat(signal.chat_id, frame, lambda user_id: user_id not in not_told)
