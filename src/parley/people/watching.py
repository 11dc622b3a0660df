"""Who watches whose presence on this node, and what each was last shown: a table that never waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Protocol


class Watcher(Protocol):
    """A connection that asked to be told of some people's presence."""

    @property
    def user_id(self) -> str:
        """Whose connection it is."""
        ...


class Shown(IntEnum):
    """What a watcher takes somebody to be."""

    PENDING = 0
    """It waits for the answer to its subscription."""
    HIDDEN = 1
    DUE = 2
    """It may see them by now, and was not told yet."""
    OFFLINE = 3
    ONLINE = 4


class Person:
    """Somebody who is watched: how they are, as far as is known here, and what each watcher was shown.

    `heard` counts changes, so that what was asked before one came is not taken for newer.
    """

    __slots__ = ("heard", "is_online", "last_seen_ms", "quiet_until", "timer", "user_id", "watchers")

    def __init__(self, user_id: str) -> None:
        self.user_id = user_id
        self.watchers: dict[Watcher, Shown] = {}
        self.is_online: bool | None = None
        self.last_seen_ms = 0
        self.heard = 0
        self.quiet_until = float("-inf")
        self.timer: asyncio.TimerHandle | None = None

    @property
    def state(self) -> Shown:
        return Shown.ONLINE if self.is_online else Shown.OFFLINE

    def is_news_to(self, shown: Shown) -> bool:
        """Whether who was shown this has to be told how the person is."""
        return self.is_online is not None and shown >= Shown.DUE and shown is not self.state


class Watch:
    """What one connection watches. `judged_at`: when it was last decided whom of them it may see."""

    __slots__ = ("judged_at", "people", "turn")

    def __init__(self) -> None:
        self.people: list[Person] = []
        self.judged_at = float("-inf")
        self.turn = asyncio.Lock()


class Watching:
    """Bounded by what connections may watch: somebody whom nobody watches is forgotten."""

    def __init__(self) -> None:
        self.people: dict[str, Person] = {}
        self.watches: dict[Watcher, Watch] = {}
        self.viewers: dict[str, set[Watcher]] = {}
        """Those who watch anybody, and their connections that do."""

    def open(self, watcher: Watcher) -> Watch:
        """The watch of a connection, which may have none yet."""
        watch = self.watches.get(watcher)
        if watch is None:
            watch = self.watches[watcher] = Watch()
            self.viewers.setdefault(watcher.user_id, set()).add(watcher)
        return watch

    def close(self, watcher: Watcher) -> None:
        watch = self.watches.pop(watcher, None)
        if watch is None:
            return
        connections = self.viewers[watcher.user_id]
        connections.discard(watcher)
        if not connections:
            del self.viewers[watcher.user_id]
        self.leave(watcher, watch.people)

    def enter(self, watcher: Watcher, user_ids: Iterable[str]) -> list[Person]:
        """These people, who are watched from now on; whoever was already is shown what they were."""
        people = [self._person(user_id) for user_id in user_ids]
        for person in people:
            person.watchers.setdefault(watcher, Shown.PENDING)
        return people

    def _person(self, user_id: str) -> Person:
        person = self.people.get(user_id)
        if person is None:
            person = self.people[user_id] = Person(user_id)
        return person

    def leave(self, watcher: Watcher, people: Iterable[Person]) -> None:
        for person in people:
            person.watchers.pop(watcher, None)
            if not person.watchers:
                self.people.pop(person.user_id, None)
                if person.timer is not None:
                    person.timer.cancel()

    def connections(self, user_id: str) -> Iterable[Watcher]:
        """Those of somebody that watch anybody."""
        return self.viewers.get(user_id, ())

    def watched_by(self, user_id: str) -> set[str]:
        return {person.user_id for one in self.connections(user_id) for person in self.watches[one].people}

    def watchers_of(self, user_id: str) -> set[str]:
        person = self.people.get(user_id)
        return set() if person is None else {one.user_id for one in person.watchers}

    def pairs(self, viewer_id: str, user_id: str) -> Iterator[tuple[Watcher, Person]]:
        """Every connection of one person that watches another."""
        person = self.people.get(user_id)
        if person is not None:
            for watcher in self.connections(viewer_id):
                if watcher in person.watchers:
                    yield watcher, person
