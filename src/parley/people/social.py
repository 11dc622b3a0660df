"""The services for people, wired together: receipts, typing, presence, contacts and the chat list."""

from __future__ import annotations

from collections.abc import Callable

from parley.clock import Clock
from parley.ephemeral.ports import Ephemeral, Presence
from parley.ephemeral.signals import ReceiptSignal, UserChangedSignal
from parley.model import Action, Change, Visibility
from parley.people.audience import Audience
from parley.people.caches import ChatFactsCache, ReadCache
from parley.people.chat_list import ChatListService
from parley.people.contacts import ContactService
from parley.people.invitations import InvitationNotifier
from parley.people.mentions import UnreadMentions
from parley.people.presence import PresenceService
from parley.people.presence_publisher import TellSome
from parley.people.receipts import ReceiptService
from parley.people.typing import TypingService
from parley.records.accounts import Accounts
from parley.records.relations import Relations
from parley.store.ports import Cursors, Directory, Log, MemberStates, Overviews
from parley.telemetry import Metrics


class Social:
    """One per node. `audience`: the connections of this node. `receipt_told`: see `ReceiptService`."""

    def __init__(
        self,
        *,
        log: Log,
        directory: Directory,
        accounts: Accounts,
        cursors: Cursors,
        overviews: Overviews,
        relations: Relations,
        member_states: MemberStates,
        ephemeral: Ephemeral,
        audience: Audience,
        tell_some: TellSome,
        clock: Clock,
        metrics: Metrics,
        receipt_told: Callable[[ReceiptSignal], None] = lambda _: None,
    ) -> None:
        self._accounts = accounts
        self._clock = clock
        self._is_shared = ephemeral.is_shared
        self._signals = signals = ephemeral.signals
        self._facts = ChatFactsCache(directory, clock)
        self._visibility = ReadCache[Visibility](relations.visibility, clock)
        self.presence = PresenceService(ephemeral.registry, relations, metrics, tell_some)
        self.typing = TypingService(
            facts=self._facts,
            visibility=self._visibility,
            directory=directory,
            signals=signals,
            audience=audience,
            clock=clock,
            metrics=metrics,
        )
        self.receipts = ReceiptService(
            log=log,
            directory=directory,
            member_states=member_states,
            relations=relations,
            facts=self._facts,
            visibility=self._visibility,
            signals=signals,
            audience=audience,
            metrics=metrics,
            told=receipt_told,
        )
        self.contacts = ContactService(relations, accounts, signals, clock)
        self.chat_list = ChatListService(
            accounts=accounts,
            mentions=UnreadMentions(log),
            overviews=overviews,
            directory=directory,
            member_states=member_states,
            presence=self.presence,
            signals=signals,
            audience=audience,
            clock=clock,
        )
        self._invitations = InvitationNotifier(signals, audience)
        cursors.subscribe(self.receipts.moved)
        self._ends = [
            signals.subscribe(UserChangedSignal, self._forget_user),
            ephemeral.registry.on_return(self._forget_all),
        ]

    def start(self) -> None:
        self.presence.start()

    async def close(self) -> None:
        for end in self._ends:
            end()
        self.typing.close()
        self.chat_list.close()
        self._invitations.close()
        await self.receipts.close()
        await self.presence.close()

    # Calls from other parts of this node

    def chat_changed(self, chat_id: str, change: Change) -> None:
        """An entry of a chat changed its members or settings."""
        self._facts.forget(chat_id)
        if change.action in (Action.JOINED, Action.LEFT, Action.REMOVED):
            self.presence.user_changed(change.user_id)  # users who share a chat may see each other

    def person_changed(self, user_id: str) -> None:
        """A user's settings changed on this node: every node drops them from its caches."""
        self._signals.publish(UserChangedSignal(user_id))

    def note_arrival(self, user_id: str) -> None:
        """Store that a user is online: if this process dies, its own registry is lost with it."""
        if not self._is_shared:
            self._accounts.note_seen(user_id, self._clock())

    def note_gone(self, gone: list[Presence]) -> None:
        """The last device of each of these people disconnected."""
        for presence in gone:
            self._accounts.note_seen(presence.user_id, presence.last_active_ms)

    # Signals of any node

    def _forget_user(self, signal: UserChangedSignal) -> None:
        self._visibility.forget(signal.user_id)
        self.presence.user_changed(signal.user_id)

    def _forget_all(self) -> None:
        """Signals may have been lost during the outage."""
        self._facts.forget_all()
        self._visibility.forget_all()
