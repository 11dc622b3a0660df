"""Which connections of this node watch whose presence, and what each was last shown. No IO."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Protocol


class PresenceWatcher(Protocol):
    """A connection that subscribed to some users' presence."""

    @property
    def user_id(self) -> str:
        """Whose connection it is."""
        ...


class ShownState(IntEnum):
    """What a watcher was last shown of a user."""

    PENDING = 0
    """Its subscription is not answered yet."""
    HIDDEN = 1
    DUE = 2
    """It may see the user now, but has not been shown the state yet."""
    OFFLINE = 3
    ONLINE = 4


class WatchedUser:
    """A user with watchers: the user's state, and what each watcher was last shown.

    `changes` counts changes of presence, so that an older answer does not overwrite a newer one.
    """

    __slots__ = ("changes", "is_online", "last_seen_ms", "quiet_until", "timer", "user_id", "watchers")

    def __init__(self, user_id: str) -> None:
        self.user_id = user_id
        self.watchers: dict[PresenceWatcher, ShownState] = {}
        self.is_online: bool | None = None
        self.last_seen_ms = 0
        self.changes = 0
        self.quiet_until = float("-inf")
        self.timer: asyncio.TimerHandle | None = None

    @property
    def state(self) -> ShownState:
        return ShownState.ONLINE if self.is_online else ShownState.OFFLINE

    def is_news_to(self, shown: ShownState) -> bool:
        """Whether a watcher that was last shown this must get the current state."""
        return self.is_online is not None and shown >= ShownState.DUE and shown is not self.state


class PresenceSubscription:
    """The users that one connection watches. `checked_at`: when its rights were last checked."""

    __slots__ = ("checked_at", "turn", "users")

    def __init__(self) -> None:
        self.users: list[WatchedUser] = []
        self.checked_at = float("-inf")
        self.turn = asyncio.Lock()


class WatchTable:
    """Bounded by the limits of connections: a user without watchers is removed."""

    def __init__(self) -> None:
        self.users: dict[str, WatchedUser] = {}
        self.watches: dict[PresenceWatcher, PresenceSubscription] = {}
        self.viewers: dict[str, set[PresenceWatcher]] = {}
        """The watching connections of each user."""

    def open(self, watcher: PresenceWatcher) -> PresenceSubscription:
        """The subscription of a connection, new if it has none."""
        watch = self.watches.get(watcher)
        if watch is None:
            watch = self.watches[watcher] = PresenceSubscription()
            self.viewers.setdefault(watcher.user_id, set()).add(watcher)
        return watch

    def close(self, watcher: PresenceWatcher) -> None:
        watch = self.watches.pop(watcher, None)
        if watch is None:
            return
        connections = self.viewers[watcher.user_id]
        connections.discard(watcher)
        if not connections:
            del self.viewers[watcher.user_id]
        self.leave(watcher, watch.users)

    def enter(self, watcher: PresenceWatcher, user_ids: Iterable[str]) -> list[WatchedUser]:
        """Watch these users from now on. Keeps what the watcher was last shown."""
        users = [self._user(user_id) for user_id in user_ids]
        for user in users:
            user.watchers.setdefault(watcher, ShownState.PENDING)
        return users

    def _user(self, user_id: str) -> WatchedUser:
        user = self.users.get(user_id)
        if user is None:
            user = self.users[user_id] = WatchedUser(user_id)
        return user

    def leave(self, watcher: PresenceWatcher, users: Iterable[WatchedUser]) -> None:
        for user in users:
            user.watchers.pop(watcher, None)
            if not user.watchers:
                self.users.pop(user.user_id, None)
                if user.timer is not None:
                    user.timer.cancel()

    def connections(self, user_id: str) -> Iterable[PresenceWatcher]:
        """The connections of a user that watch others."""
        return self.viewers.get(user_id, ())

    def watched_by(self, user_id: str) -> set[str]:
        return {user.user_id for one in self.connections(user_id) for user in self.watches[one].users}

    def watchers_of(self, user_id: str) -> set[str]:
        user = self.users.get(user_id)
        return set() if user is None else {one.user_id for one in user.watchers}

    def pairs(self, viewer_id: str, user_id: str) -> Iterator[tuple[PresenceWatcher, WatchedUser]]:
        """Every connection of the viewer that watches the user."""
        user = self.users.get(user_id)
        if user is not None:
            for watcher in self.connections(viewer_id):
                if watcher in user.watchers:
                    yield watcher, user
