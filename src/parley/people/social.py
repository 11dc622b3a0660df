"""What people notice of each other, put together: receipts, typing, presence, and who may see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from parley.clock import Clock
from parley.ephemeral.ports import Ephemeral, Presence
from parley.model import Action, Change, Manners
from parley.people.audience import Audience
from parley.people.facts import ChatFacts
from parley.people.listing import Listing
from parley.people.muting import Muting
from parley.people.presence import Presences
from parley.people.receipts import Receipts
from parley.people.relating import Relating
from parley.people.remembering import Remembered
from parley.people.signals import Muted, PersonChanged, Signalling
from parley.people.typing import Typings
from parley.store.ports import Accounts, Cursors, Directory, Log, Relations, Standings
from parley.telemetry import Metrics
from parley.wire.frames import ChatChanged, ServerFrame

TellSome = Callable[[Iterable[Any], ServerFrame], None]
"""A frame to some connections, which are what this node has as such."""


class Social:
    """One per node. `audience` are those who are connected to it."""

    def __init__(
        self,
        *,
        log: Log,
        directory: Directory,
        accounts: Accounts,
        cursors: Cursors,
        relations: Relations,
        standings: Standings,
        ephemeral: Ephemeral,
        audience: Audience,
        tell_some: TellSome,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._cursors = cursors
        self._clock = clock
        self._audience = audience
        self._is_shared = ephemeral.is_shared
        self._facts = facts = ChatFacts(directory, clock)
        self._manners = manners = Remembered[Manners](relations.manners, clock)
        self.signals = signals = Signalling(ephemeral.signals)
        self.presences = Presences(ephemeral.registry, relations, metrics, tell_some)
        self.typings = Typings(facts, manners, directory, signals, audience, clock, metrics)
        self.receipts = Receipts(
            log=log,
            directory=directory,
            standings=standings,
            relations=relations,
            facts=facts,
            manners=manners,
            signals=signals,
            audience=audience,
            metrics=metrics,
        )
        self.relating = Relating(relations, accounts, signals, clock)
        self.muting = Muting(directory, standings, signals)
        self.listing = Listing(cursors, self.presences, clock)
        cursors.moved = self.receipts.moved
        signals.on(PersonChanged, self._person_changed)
        signals.on(Muted, self._muted)
        self._end_watch = ephemeral.registry.on_return(self._forget_all)

    def start(self) -> None:
        self.presences.start()

    async def close(self) -> None:
        self._end_watch()
        self.signals.close()
        await self.receipts.close()
        await self.presences.close()

    # What the rooms around tell

    def chat_changed(self, chat_id: str, change: Change) -> None:
        """An entry of a chat changed its members or settings."""
        self._facts.forget(chat_id)
        if change.action in (Action.JOINED, Action.LEFT, Action.REMOVED):
            self.presences.person_changed(change.user_id)  # strangers may be acquainted by it, or no more

    def person_changed(self, user_id: str) -> None:
        """Somebody's settings changed here: every node forgets what it knew."""
        self.signals.tell(PersonChanged(user_id))

    def note_arrival(self, user_id: str) -> None:
        """A process that dies takes its registry with it: what is stored is then at least this."""
        if not self._is_shared:
            self._cursors.note_seen(user_id, self._clock())

    def note_gone(self, gone: list[Presence]) -> None:
        """The last device of each has gone."""
        for presence in gone:
            self._cursors.note_seen(presence.user_id, presence.last_active_ms)

    # What other nodes, or this one, tell

    def _person_changed(self, signal: PersonChanged) -> None:
        self._manners.forget(signal.user_id)
        self.presences.person_changed(signal.user_id)

    def _muted(self, signal: Muted) -> None:
        frame = ChatChanged(chat_id=signal.chat_id, change="muted", muted_until=signal.until)
        self._audience.tell_people([signal.user_id], frame)

    def _forget_all(self) -> None:
        """Signals were lost while the engine was away."""
        self._facts.forget_all()
        self._manners.forget_all()
