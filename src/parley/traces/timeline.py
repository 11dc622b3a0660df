"""Explain a message: find it, gather what is known of it, and let `core.timeline` tell it in order.

Nothing of this is on the way of a message. What the store knows is read when an operator asks, and each node
is asked what it remembers. See docs/timeline.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from parley.clock import Clock, from_iso
from parley.core.changes import change_in
from parley.core.timeline import (
    Departure,
    ExplainedMessage,
    NodeTrace,
    RecipientFacts,
    Step,
    TimelineFacts,
    TraceQuestion,
    timeline_of,
)
from parley.errors import NOT_FOUND, Refused
from parley.model import AccountState, Action, MemberCursor
from parley.records.relations import Relations
from parley.records.sessions import Sessions
from parley.store.ports import Outbox, Store
from parley.wire.codec import decode_entry

RECIPIENTS_EXPLAINED_MAX = 100
"""Of a larger chat the others are counted. Each costs a few reads."""
RECIPIENTS_AT_ONCE_MAX = 8
CHANGES_LOOKED_AT_MAX = 500
"""Positions before the message, and after it, in which departures are looked for."""
NO_SUCH_MESSAGE = NOT_FOUND.because("there is no message with this id")


class StepSource(Protocol):
    """Another part of the server that knows what happened to messages: deliveries, pushes."""

    async def steps(self, message: ExplainedMessage, user_ids: Sequence[str]) -> list[Step]:
        """What it knows of this message and these people; the people may be more than the chat's members."""
        ...


class TraceAnswers(Struct):
    """What the nodes remember, and which of them did not say it, and why."""

    traces: list[NodeTrace]
    silent: dict[str, str]


class TraceSource(Protocol):
    """The flight recorders of the nodes."""

    async def ask(self, question: TraceQuestion) -> TraceAnswers:
        """In a few seconds at most, and without an error: a node that fails is named in the answer."""
        ...


class LocalTraces:
    """This node's own recorder, without asking any other node."""

    def __init__(self, trace: Callable[[TraceQuestion], NodeTrace]) -> None:
        self._trace = trace

    async def ask(self, question: TraceQuestion) -> TraceAnswers:
        return TraceAnswers([self._trace(question)], {})


class Timeline(Struct, frozen=True):
    """A message, and what happened to it, in the order of the times."""

    message: ExplainedMessage
    steps: list[Step]


class TimelineService:
    """`outbox`: None where the bus is that of one process. `sources`: what else is known of messages."""

    def __init__(
        self,
        store: Store,
        relations: Relations,
        sessions: Sessions,
        *,
        outbox: Outbox | None,
        traces: Iterable[TraceSource],
        sources: Iterable[StepSource],
        clock: Clock,
    ) -> None:
        self._store = store
        self._relations = relations
        self._sessions = sessions
        self._outbox = outbox
        self._traces = list(traces)
        self._sources = list(sources)
        self._clock = clock

    async def explain(self, message_id: str, user_id: str = "", chat_id: str = "") -> Timeline:
        """The timeline of a message, to this person only if one is given. Refused if there is no message.

        `chat_id`: where it is, if that is known: a shared store then need not look at all its chats.
        """
        message = await self._find(message_id, [chat_id] if chat_id else None)
        cursors = await self._store.member_states.cursors(message.chat_id)
        departures = await self._departures(message)
        if user_id:
            cursors = [cursor for cursor in cursors if cursor.user_id == user_id]
            departures = [one for one in departures if one.user_id == user_id]
        shown = cursors[:RECIPIENTS_EXPLAINED_MAX]
        user_ids = list(
            dict.fromkeys([*(one.user_id for one in shown), *(one.user_id for one in departures)])
        )
        answers = await self._ask(TraceQuestion(message.chat_id, message.sequence, user_ids))
        others = await asyncio.gather(*(source.steps(message, user_ids) for source in self._sources))
        facts = TimelineFacts(
            message=message,
            recipients=await self._recipients(message, shown),
            departures=departures,
            traces=answers.traces,
            silent=answers.silent,
            is_published=await self._is_published(message),
            others=[step for steps in others for step in steps],
            more_members=len(cursors) - len(shown),
            asked_ms=self._clock(),
        )
        return Timeline(message, timeline_of(facts))

    async def _find(self, message_id: str, chat_ids: Sequence[str] | None) -> ExplainedMessage:
        log = self._store.log
        found = await log.find_message(message_id, chat_ids)
        page = await log.read(found[0], found[1] - 1, 1) if found is not None else None
        if found is None or page is None or not page.entries:
            raise Refused(NO_SUCH_MESSAGE)
        entry = decode_entry(page.entries[0])
        return ExplainedMessage(message_id, *found, entry.sender_id, from_iso(entry.created_at))

    async def _ask(self, question: TraceQuestion) -> TraceAnswers:
        gathered = TraceAnswers([], {})
        for answers in await asyncio.gather(*(source.ask(question) for source in self._traces)):
            gathered.traces += answers.traces
            gathered.silent |= answers.silent
        return gathered

    async def _departures(self, message: ExplainedMessage) -> list[Departure]:
        """Who left shortly before the message, or after it; the last departure of each."""
        log, at = self._store.log, message.sequence
        before = await log.read_before(message.chat_id, at, CHANGES_LOOKED_AT_MAX)
        after = await log.read(message.chat_id, at, CHANGES_LOOKED_AT_MAX)
        found: dict[str, Departure] = {}
        for entry in map(decode_entry, [*before.entries, *after.entries]):
            change = change_in(entry)
            if change is not None and change.action in (Action.LEFT, Action.REMOVED):
                found[change.user_id] = Departure(
                    change.user_id, change.action, entry.sequence, from_iso(entry.created_at)
                )
        return list(found.values())

    async def _is_published(self, message: ExplainedMessage) -> bool | None:
        if self._outbox is None:
            return None
        mark = (await self._outbox.unpublished()).get(message.chat_id)
        return mark is None or mark >= message.sequence

    async def _recipients(
        self, message: ExplainedMessage, cursors: Sequence[MemberCursor]
    ) -> list[RecipientFacts]:
        user_ids = [cursor.user_id for cursor in cursors]
        related = await self._relations.relationships(message.sender_id, user_ids, acquainted=True)
        settings = await self._store.member_states.settings(message.chat_id, user_ids)
        room = asyncio.Semaphore(RECIPIENTS_AT_ONCE_MAX)

        async def facts_of(cursor: MemberCursor) -> RecipientFacts:
            relationship = related.get(cursor.user_id)
            async with room:
                return RecipientFacts(
                    user_id=cursor.user_id,
                    joined_sequence=cursor.joined_sequence,
                    delivered_up_to=cursor.delivered_up_to,
                    delivered_ms=_ms(cursor.delivered_at),
                    read_up_to=cursor.read_up_to,
                    read_ms=_ms(cursor.read_at),
                    devices=await self._devices(cursor.user_id, message.chat_id),
                    muted_until_ms=_ms(settings[cursor.user_id].muted_until),
                    has_blocked=relationship is not None and relationship.has_blocked,
                    state=relationship.user.state if relationship is not None else AccountState.DELETED,
                )

        return await asyncio.gather(*map(facts_of, cursors))

    async def _devices(self, user_id: str, chat_id: str) -> dict[str, int]:
        """The devices that a person is logged in with, and how far each is in the chat."""
        now_ms = self._clock()
        found: dict[str, int] = {}
        for session in await self._sessions.of(user_id):
            if session.expires_at_ms > now_ms and session.device_id not in found:
                position = await self._store.cursors.position(user_id, session.device_id, chat_id)
                found[session.device_id] = position
        return found


def _ms(at: str | None) -> int | None:
    return None if at is None else from_iso(at)
