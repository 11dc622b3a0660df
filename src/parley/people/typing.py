"""Typing indicators: sent to connected members, at most every few seconds, and never stored."""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from msgspec import Struct

from parley.clock import MS_PER_SECOND, Clock
from parley.core.rates import Rate, RateLimiter
from parley.ephemeral.ports import Signals
from parley.ephemeral.signals import TypingSignal
from parley.errors import StoreError
from parley.model import ChatType, Visibility
from parley.people.audience import Audience
from parley.people.caches import ChatFactsCache, ReadCache
from parley.store.ports import Directory
from parley.telemetry import Metrics
from parley.wire.frames import Typing
from parley.wire.limits import TYPING_EVERY_SECONDS, TYPING_MEMBERS_MAX, TYPING_SHOWN_SECONDS

SHOWN_MS = TYPING_SHOWN_SECONDS * MS_PER_SECOND
STARTS = Rate(1 / TYPING_EVERY_SECONDS, 1)
HIDDEN_MAX = TYPING_MEMBERS_MAX
"""If a user has blocked more people, a signal lists only those who are members of the chat."""

log = structlog.get_logger("parley.typing")


class ShownTyping(Struct, frozen=True):
    """Until when a member is shown as typing."""

    until_ms: int
    hidden_from: list[str]


class TypingService:
    """Sends at most one start every `TYPING_EVERY_SECONDS` per member and chat, and the stop after it."""

    def __init__(
        self,
        *,
        facts: ChatFactsCache,
        visibility: ReadCache[Visibility],
        directory: Directory,
        signals: Signals,
        audience: Audience,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._facts = facts
        self._visibility = visibility
        self._directory = directory
        self._signals = signals
        self._audience = audience
        self._clock = clock
        self._metrics = metrics
        self._starts = RateLimiter(STARTS)
        self._shown: dict[tuple[str, str], ShownTyping] = {}
        """By member and chat, oldest first."""
        self._pairs = ReadCache[frozenset[str]](self._read_pairs, clock)
        self.close = signals.subscribe(TypingSignal, self._deliver)

    async def start(self, user_id: str, chat_id: str) -> None:
        """A member types. The caller does not learn whether others see it."""
        if self._starts.take((user_id, chat_id), self._clock()):
            return
        try:
            hidden_from = await self._hidden_from(user_id, chat_id)
        except StoreError as error:
            log.debug("typing not sent", chat_id=chat_id, reason=str(error))
            return
        if hidden_from is None:
            return
        self._forget_old()
        self._shown.pop((user_id, chat_id), None)
        self._shown[user_id, chat_id] = ShownTyping(self._clock() + SHOWN_MS, hidden_from)
        self._publish(TypingSignal(chat_id, user_id, SHOWN_MS, hidden_from))

    async def stop(self, user_id: str, chat_id: str) -> None:
        """A member stopped typing. Sends nothing if the member is not shown as typing."""
        shown = self._shown.pop((user_id, chat_id), None)
        if shown is not None and shown.until_ms > self._clock():
            self._publish(TypingSignal(chat_id, user_id, 0, shown.hidden_from))

    def _publish(self, signal: TypingSignal) -> None:
        self._metrics.typing_told.inc()
        self._signals.publish(signal)

    def _forget_old(self) -> None:
        now_ms = self._clock()
        while self._shown:
            first = next(iter(self._shown))
            if self._shown[first].until_ms > now_ms:
                return
            del self._shown[first]

    async def _hidden_from(self, user_id: str, chat_id: str) -> list[str] | None:
        """Users who must not get the signal; None if it is not sent at all."""
        chat = await self._facts.one(chat_id)
        if chat is None or chat.member_count > TYPING_MEMBERS_MAX:
            return None
        typist = await self._visibility.one(user_id)
        if typist is None:
            return None
        if chat.chat_type is ChatType.DIRECT:
            return [] if await self._is_open(user_id, typist, chat_id) else None
        if len(typist.blocked) <= HIDDEN_MAX:
            return sorted(typist.blocked)
        members = await self._directory.members(chat_id, "", TYPING_MEMBERS_MAX)
        return [member.user_id for member in members if member.user_id in typist.blocked]

    async def _is_open(self, user_id: str, typist: Visibility, chat_id: str) -> bool:
        """Whether neither person of a direct chat has blocked the other."""
        others = (await self._pairs.one(chat_id) or frozenset()) - {user_id}
        visibility = await self._visibility.get(others)
        return not others & typist.blocked and not any(
            user_id in other.blocked for other in visibility.values()
        )

    async def _read_pairs(self, chat_ids: Sequence[str]) -> dict[str, frozenset[str]]:
        """The members of direct chats. They never change, so they may be cached."""
        return {
            chat_id: frozenset(member.user_id for member in await self._directory.members(chat_id, "", 2))
            for chat_id in chat_ids
        }

    def _deliver(self, signal: TypingSignal) -> None:
        """Send it to the other members who are connected to this node."""
        excluded = {signal.user_id, *signal.hidden_from}
        frame = Typing(chat_id=signal.chat_id, user_id=signal.user_id, expires_in_ms=signal.shown_ms)
        self._audience.tell_chat(signal.chat_id, frame, lambda user_id: user_id not in excluded)
