"""Telling those who watch how people are: what has changed, to whoever may see it, and nothing twice.

Seeing is mutual, so one look at how a person stands to others says whom they see and who sees them.
See docs/ephemeral.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

import structlog

from parley.errors import StoreError
from parley.model import Regard
from parley.people.sight import Seen, Sight, sees, view
from parley.people.watching import Person, Shown, Watcher, Watching
from parley.telemetry import Metrics
from parley.wire.frames import PresenceChanged, PresenceView, ServerFrame
from parley.wire.limits import PRESENCE_BATCH_MAX

FLAP_SECONDS = 2.0
"""After a frame about somebody the next one waits for so long, and is not needed if all is as it was."""
BELIEVED_SECONDS = 900.0
"""Tellings that a right has changed may be lost: an older judgement is made anew before it is used."""
RETRY_SECONDS = 1.0
FRAMES_PER_TURN = 1_000
PEOPLE_PER_TURN = 200
JUDGED_AT_ONCE = 8

TellSome = Callable[[Iterable[Watcher], ServerFrame], None]
Key = TypeVar("Key")
Value = TypeVar("Value")

log = structlog.get_logger("parley.presence")


class Publishing:
    """One task judges and publishes, so each who watches is told in order, and in turns."""

    def __init__(self, watching: Watching, sight: Sight, metrics: Metrics, tell_some: TellSome) -> None:
        self._watching = watching
        self._sight = sight
        self._metrics = metrics
        self._tell_some = tell_some
        self._changed: dict[str, None] = {}
        self._doubted: dict[str, bool] = {}
        """Whose rights have to be judged anew, and whether also those of their watchers."""
        self._looks_again = False
        self._rest_timer: asyncio.TimerHandle | None = None
        self._woken = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._worker = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        timers = [person.timer for person in self._watching.people.values()]
        for timer in (self._rest_timer, *timers):
            if timer is not None:
                timer.cancel()
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    def is_now(self, person: Person, seen: Seen) -> None:
        """What is known of somebody from now on, and told if it is news."""
        is_known = person.is_online is seen.is_online
        person.is_online, person.last_seen_ms = seen.is_online, seen.last_seen_ms
        if not is_known:
            self.schedule(person)

    def schedule(self, person: Person) -> None:
        """Published at once, or when a frame about the same person is old enough."""
        if person.timer is not None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < person.quiet_until:
            person.timer = loop.call_at(person.quiet_until, self._end_quiet, person)
        else:
            self._changed[person.user_id] = None
            self._woken.set()

    def _end_quiet(self, person: Person) -> None:
        person.timer = None
        self.schedule(person)

    def doubt(self, user_id: str, also_watchers: bool) -> None:
        """Judge anew whom they see, and if `also_watchers` who sees them, before anything else is told."""
        is_watched = also_watchers and user_id in self._watching.people
        if is_watched or user_id in self._watching.viewers:
            self._doubted[user_id] = also_watchers or self._doubted.get(user_id, False)
            self._woken.set()

    def look_again(self) -> None:
        """At everybody who is watched, and at every right: much may have been missed."""
        self._looks_again = True
        self._woken.set()

    async def _work(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                await self._catch_up()
            except Exception:  # whatever it is, those who were not told are told later
                log.exception("presence not published")
                self._changed = dict.fromkeys(self._watching.people)
                self._rest()

    def _rest(self) -> None:
        """Judge nobody for a while: the store is not asked again for every change that comes."""
        if self._rest_timer is None:
            self._rest_timer = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._end_rest)

    def _end_rest(self) -> None:
        self._rest_timer = None
        self._woken.set()

    async def _catch_up(self) -> None:
        """Rights first: nothing is published to who is in doubt."""
        if self._looks_again:
            self._looks_again = False
            await self._look_again()
        while self._doubted or self._changed:
            is_judged = await self._judge_doubted()
            await self._publish_changed()
            if not is_judged:
                return

    async def _look_again(self) -> None:
        for viewer_id in list(self._watching.viewers):
            self.doubt(viewer_id, False)
        user_ids = list(self._watching.people)
        for start in range(0, len(user_ids), PRESENCE_BATCH_MAX):
            await self._look_at(user_ids[start : start + PRESENCE_BATCH_MAX])
            await asyncio.sleep(0)

    async def _look_at(self, user_ids: list[str]) -> None:
        """Who is not as was known is so from now on."""
        people = self._watching.people
        heard = {user_id: people[user_id].heard for user_id in user_ids if user_id in people}
        presences = await self._sight.presences(list(heard))
        offline = [found.user_id for found in presences if not found.is_online]
        went = [user_id for user_id in offline if user_id in people and people[user_id].is_online]
        users = await self._sight.profiles(went)
        for found in presences:
            person = people.get(found.user_id)
            if person is not None and person.heard == heard[found.user_id]:
                seen = self._sight.seen(found, users.get(found.user_id))
                self.is_now(person, Seen(seen.is_online, max(seen.last_seen_ms, person.last_seen_ms)))

    # Judging

    async def _judge_doubted(self) -> bool:
        """Some of those who are in doubt, so that others are told meanwhile; False if the store is away."""
        if self._rest_timer is not None:
            return not self._doubted
        some = _take(self._doubted, JUDGED_AT_ONCE)
        judging = [self._judge(user_id, also_watchers) for user_id, also_watchers in some.items()]
        results = await asyncio.gather(*judging, return_exceptions=True)
        failed = [error for error in results if isinstance(error, BaseException)]
        if failed:
            for user_id, also_watchers in some.items():
                self._doubted[user_id] = also_watchers or self._doubted.get(user_id, False)
            self._rest()
        for error in failed:
            if not isinstance(error, StoreError):
                raise error
        return not failed

    async def _judge(self, user_id: str, also_watchers: bool) -> None:
        """Whom somebody sees, and who sees them, is what it should be when this returns."""
        judged_at = asyncio.get_running_loop().time()
        others = self._watching.watched_by(user_id)
        if also_watchers:
            others |= self._watching.watchers_of(user_id)
        listed = sorted(others)
        for start in range(0, len(listed), PRESENCE_BATCH_MAX):
            await self._judge_some(user_id, listed[start : start + PRESENCE_BATCH_MAX], also_watchers)
        for watcher in self._watching.connections(user_id):
            self._watching.watches[watcher].judged_at = judged_at

    async def _judge_some(self, user_id: str, others: list[str], also_watchers: bool) -> None:
        regards = await self._sight.regards(user_id, others)
        lost: dict[Person, list[Watcher]] = {}
        unknown: set[str] = set()
        for other_id in others:
            is_seen = sees(regards, user_id, other_id)
            pairs = list(self._watching.pairs(user_id, other_id))
            if also_watchers and other_id != user_id:
                pairs += self._watching.pairs(other_id, user_id)
            for watcher, person in pairs:
                if self._is_lost(watcher, person, is_seen):
                    lost.setdefault(person, []).append(watcher)
                elif is_seen and person.is_online is None:
                    unknown.add(person.user_id)
        for person, watchers in lost.items():
            self._tell(watchers, view(person.user_id, None))
        await self._get_to_know(unknown, regards)

    def _is_lost(self, watcher: Watcher, person: Person, is_seen: bool) -> bool:
        """Whether somebody who was shown must no longer be; who is seen and was not shown right is due."""
        shown = person.watchers[watcher]
        if shown is Shown.PENDING:
            return False
        if not is_seen:
            person.watchers[watcher] = Shown.HIDDEN
            return shown is not Shown.HIDDEN
        if shown is Shown.HIDDEN:
            shown = person.watchers[watcher] = Shown.DUE
        if person.is_news_to(shown):
            self.schedule(person)
        return False

    async def _get_to_know(self, user_ids: set[str], regards: dict[str, Regard]) -> None:
        """Nobody was shown them until now, so nobody asked how they are."""
        if not user_ids:
            return
        people = self._watching.people
        for found in await self._sight.presences(sorted(user_ids)):
            person = people.get(found.user_id)
            if person is not None and person.is_online is None:
                self.is_now(person, self._sight.seen(found, regards[found.user_id].user))

    # Publishing

    async def _publish_changed(self) -> None:
        published = 0
        while self._changed:
            for user_id in _take(self._changed, PEOPLE_PER_TURN):
                person = self._watching.people.get(user_id)
                while person is not None and (watchers := self._due(person, FRAMES_PER_TURN - published)):
                    self._publish(person, watchers)
                    published += len(watchers)
                    if published >= FRAMES_PER_TURN:
                        published = 0
                        await asyncio.sleep(0)
            await asyncio.sleep(0)

    def _due(self, person: Person, limit: int) -> list[Watcher]:
        """Some of those who have to be told how a person is, and may be beyond doubt."""
        if self._doubted.get(person.user_id, False):
            return []
        due: list[Watcher] = []
        oldest = asyncio.get_running_loop().time() - BELIEVED_SECONDS
        for watcher, shown in person.watchers.items():
            if not person.is_news_to(shown) or watcher.user_id in self._doubted:
                continue
            if self._watching.watches[watcher].judged_at < oldest:
                self.doubt(watcher.user_id, False)
                continue
            due.append(watcher)
            if len(due) == limit:
                break
        return due

    def _publish(self, person: Person, watchers: list[Watcher]) -> None:
        person.quiet_until = asyncio.get_running_loop().time() + FLAP_SECONDS
        for watcher in watchers:
            person.watchers[watcher] = person.state
        self._tell(watchers, view(person.user_id, Seen(person.is_online is True, person.last_seen_ms)))

    def _tell(self, watchers: list[Watcher], told: PresenceView) -> None:
        self._metrics.presence_told.inc(len(watchers))
        frame = PresenceChanged(user_id=told.user_id, status=told.status, last_seen=told.last_seen)
        self._tell_some(watchers, frame)


def _take(waiting: dict[Key, Value], limit: int) -> dict[Key, Value]:
    """The first of them, which then wait no longer."""
    return {key: waiting.pop(key) for key in list(islice(waiting, limit))}
