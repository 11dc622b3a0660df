"""Presence of users, for viewers who may see it: on request and by subscription. See docs/ephemeral.md."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence

from parley.ephemeral.attention import is_person
from parley.ephemeral.ports import Presence, Registry
from parley.errors import BAD_REQUEST, Refused
from parley.model import User
from parley.people.presence_lookup import PresenceLookup, VisiblePresence, presence_view
from parley.people.presence_publisher import PresencePublisher, TellSome
from parley.people.presence_watches import PresenceWatcher, ShownState, WatchedUser, WatchTable
from parley.records.relations import Relations
from parley.telemetry import Metrics
from parley.wire.frames import PresenceView
from parley.wire.limits import PRESENCE_BATCH_MAX

__all__ = ["PresenceService", "PresenceWatcher", "check_batch"]

RETURN_SECONDS = 10.0
"""After an outage of the registry: by then every node has registered its devices again."""
TOO_MANY = BAD_REQUEST.because(f"a request can name at most {PRESENCE_BATCH_MAX} people")


def check_batch(user_ids: Sequence[str]) -> list[str]:
    """The ids without duplicates, in their order. Refused if there are too many."""
    if len(user_ids) > PRESENCE_BATCH_MAX:
        raise Refused(TOO_MANY)
    return list(dict.fromkeys(user_ids))


class PresenceService:
    """`tell_some` sends a frame to some of the watching connections, encoded once for all of them."""

    def __init__(
        self, registry: Registry, relations: Relations, metrics: Metrics, tell_some: TellSome
    ) -> None:
        self._lookup = PresenceLookup(registry, relations)
        self._table = WatchTable()
        self._publisher = PresencePublisher(self._table, self._lookup, metrics, tell_some)
        self._rights_changes = 0
        """Counts changes of rights, so that a right that was read before one is checked again."""
        self._return_timer: asyncio.TimerHandle | None = None
        self._ends = [registry.watch(self._presence_changed), registry.on_return(self._registry_returned)]

    def start(self) -> None:
        self._publisher.start()

    async def close(self) -> None:
        for end in self._ends:
            end()
        if self._return_timer is not None:
            self._return_timer.cancel()
        await self._publisher.close()

    # On request

    async def query(self, viewer_id: str, user_ids: Sequence[str]) -> list[PresenceView]:
        """One for each user, in order, as of now.

        A user whom the viewer may not see looks like one who does not exist.
        """
        asked = check_batch(user_ids)
        seen = await self._lookup.visible(viewer_id, asked)
        return [presence_view(user_id, seen.get(user_id)) for user_id in asked]

    async def users(self, viewer_id: str, user_ids: Sequence[str]) -> list[tuple[User, PresenceView]]:
        """Those of these users who exist, with what the viewer may see. They share a chat with the viewer."""
        asked = check_batch(user_ids)
        relationships = await self._lookup.relationships(viewer_id, asked, acquainted=True)
        seen = await self._lookup.visible_by(relationships, viewer_id, asked)
        known = [user_id for user_id in asked if user_id in relationships]
        return [(relationships[user_id].user, presence_view(user_id, seen.get(user_id))) for user_id in known]

    # Subscriptions

    async def subscribe(self, watcher: PresenceWatcher, user_ids: Sequence[str]) -> list[PresenceView]:
        """Watch these users and no others from now on. A refusal leaves the last subscription as it is.

        Frames about them follow the answer, if the caller sends it as soon as this returns.
        """
        asked = check_batch(user_ids)
        watch = self._table.open(watcher)
        async with watch.turn:
            users = self._table.enter(watcher, asked)
            rights_before, before = self._rights_changes, [user.changes for user in users]
            kept: Collection[WatchedUser] = watch.users
            try:
                seen = await self._lookup.visible(watcher.user_id, asked)
                if self._table.watches.get(watcher) is watch:
                    self._table.leave(watcher, _without(watch.users, users))
                    kept = watch.users = users
                    watch.checked_at = asyncio.get_running_loop().time()
                    self._show(watcher, zip(users, before, strict=True), seen)
                else:
                    kept = ()  # the connection has ended meanwhile
            finally:
                self._table.leave(watcher, _without(users, kept))
        if rights_before != self._rights_changes:
            self._publisher.recheck(watcher.user_id, False)
        return [presence_view(user_id, seen.get(user_id)) for user_id in asked]

    def unsubscribe(self, watcher: PresenceWatcher) -> None:
        self._table.close(watcher)

    def _show(
        self,
        watcher: PresenceWatcher,
        users: Iterable[tuple[WatchedUser, int]],
        seen: dict[str, VisiblePresence],
    ) -> None:
        """Record what the answer shows. Changes since it was read are sent after the answer."""
        for user, before in users:
            found = seen.get(user.user_id)
            if found is None:
                user.watchers[watcher] = ShownState.HIDDEN
                continue
            user.watchers[watcher] = ShownState.ONLINE if found.is_online else ShownState.OFFLINE
            if user.changes == before:
                self._publisher.update(user, found)
            elif user.is_news_to(user.watchers[watcher]):
                self._publisher.schedule(user)

    def user_changed(self, user_id: str) -> None:
        """A user's settings, contacts, blocks or chats changed: check whom they see, and who sees them."""
        self._rights_changes += 1
        self._publisher.recheck(user_id, True)

    # Calls from the registry

    def _presence_changed(self, presence: Presence) -> None:
        if not is_person(presence.user_id):
            return
        if not presence.is_online:
            self._lookup.note_offline(presence)
        user = self._table.users.get(presence.user_id)
        if user is not None:
            user.changes += 1
            self._publisher.update(user, VisiblePresence(presence.is_online, presence.last_active_ms))

    def _registry_returned(self) -> None:
        """Changes of presence and of rights were missed during the outage."""
        if self._return_timer is None:
            self._return_timer = asyncio.get_running_loop().call_later(RETURN_SECONDS, self._refresh)

    def _refresh(self) -> None:
        self._return_timer = None
        self._rights_changes += 1
        self._publisher.refresh()


def _without(users: list[WatchedUser], others: Iterable[WatchedUser]) -> list[WatchedUser]:
    left_out = set(others)
    return [user for user in users if user not in left_out]
