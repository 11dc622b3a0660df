"""Who is there, for those who may see it: asked for, or told when it changes. See docs/ephemeral.md.

Seeing is mutual, so one look at how a person stands to others says whom they see and who sees them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import TypeVar

import structlog
from msgspec import Struct

from parley.chats.watching import Person, Shown, Watcher, Watching
from parley.clock import Clock, from_iso, iso
from parley.core.privacy import may_see_presence
from parley.ephemeral.ports import Presence, Registry
from parley.errors import BAD_REQUEST, Refused, StoreError
from parley.model import Regard, User
from parley.store.ports import Relations
from parley.telemetry import Metrics
from parley.wire.frames import PresenceChanged, PresenceView, ServerFrame
from parley.wire.limits import PRESENCE_BATCH_MAX

__all__ = ["Presences", "Watcher", "check_batch"]

FLAP_SECONDS = 2.0
"""After a frame about somebody the next one waits for so long, and is not needed if all is as it was."""
BELIEVED_SECONDS = 300.0
"""Tellings that a right has changed may be lost: an older judgement is made anew before it is used."""
RETURN_SECONDS = 10.0
"""After the registry was away: by then every node has registered its people again."""
RETRY_SECONDS = 1.0
FRAMES_PER_TURN = 1_000
PEOPLE_PER_TURN = 200
JUDGED_AT_ONCE = 8
RECENT_MAX = 20_000
TIMES_MAX = 20_000
ID_LETTERS_MAX = 64
"""No id is longer, so what is longer names nobody."""

TOO_MANY = BAD_REQUEST.because(f"at most {PRESENCE_BATCH_MAX} people can be asked for at once")
UNAVAILABLE = "unavailable"

TellSome = Callable[[Iterable[Watcher], ServerFrame], None]
_iso = lru_cache(TIMES_MAX)(iso)
"""Many who watch the same people are told the same times."""
Key = TypeVar("Key")
Value = TypeVar("Value")

log = structlog.get_logger("parley.presence")


class Seen(Struct, frozen=True):
    """How somebody is, for one who may see it. `last_seen_ms`: 0 if they never were."""

    is_online: bool
    last_seen_ms: int


def check_batch(user_ids: Sequence[str]) -> list[str]:
    """Each of these once, in their order; refused if they are too many."""
    if len(user_ids) > PRESENCE_BATCH_MAX:
        raise Refused(TOO_MANY)
    return list(dict.fromkeys(user_ids))


class Presences:
    """`tell_some` gives a frame to some of those who watch, encoded once for all of them."""

    def __init__(
        self, registry: Registry, relations: Relations, clock: Clock, metrics: Metrics, tell_some: TellSome
    ) -> None:
        self._registry = registry
        self._relations = relations
        self._clock = clock
        self._metrics = metrics
        self._tell_some = tell_some
        self._watching = Watching()
        self._recent: dict[str, int] = {}
        """When people went offline lately: the store is told of it a little later."""
        self._changed: dict[str, None] = {}
        self._doubted: dict[str, bool] = {}
        """Whose rights have to be judged anew, and whether also those of their watchers."""
        self._doubts = 0
        self._looks_again = False
        self._return_timer: asyncio.TimerHandle | None = None
        self._retry_timer: asyncio.TimerHandle | None = None
        self._woken = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._ends = [registry.watch(self._heard), registry.on_return(self._returned)]

    def start(self) -> None:
        self._worker = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        for end in self._ends:
            end()
        timers = [person.timer for person in self._watching.people.values()]
        for timer in (self._return_timer, self._retry_timer, *timers):
            if timer is not None:
                timer.cancel()
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    # On request

    async def query(
        self, viewer_id: str, user_ids: Sequence[str], acquainted: bool = False
    ) -> list[PresenceView]:
        """One for each who is asked for, in order, as of now. `acquainted`: all share a chat with the viewer.

        Who may not be seen looks like who does not exist.
        """
        asked = check_batch(user_ids)
        seen = await self._look(viewer_id, asked, acquainted)
        return [_view(user_id, seen.get(user_id)) for user_id in asked]

    async def _look(self, viewer_id: str, user_ids: list[str], acquainted: bool = False) -> dict[str, Seen]:
        """Those of them whom the viewer may see."""
        possible = [user_id for user_id in user_ids if 0 < len(user_id) <= ID_LETTERS_MAX]
        regards = await self._regards(viewer_id, possible, acquainted)
        visible = [user_id for user_id in possible if _sees(regards, viewer_id, user_id)]
        presences = await self._registry.presences(visible) if visible else []
        return {found.user_id: self._seen(found, regards[found.user_id].user) for found in presences}

    async def _regards(
        self, viewer_id: str, user_ids: Iterable[str], acquainted: bool = False
    ) -> dict[str, Regard]:
        """The viewer's own regard is among them: it holds their settings."""
        asked = list(dict.fromkeys([viewer_id, *user_ids]))
        return await self._relations.regards(viewer_id, asked, acquainted)

    def _seen(self, presence: Presence, user: User | None) -> Seen:
        if presence.is_online:
            return Seen(True, presence.last_active_ms)
        stored = user.last_seen if user is not None else None
        stored_ms = from_iso(stored) if stored is not None else 0
        return Seen(False, max(stored_ms, self._recent.get(presence.user_id, 0)))

    # Subscriptions

    async def subscribe(self, watcher: Watcher, user_ids: Sequence[str]) -> list[PresenceView]:
        """From now on this connection is told of these people and nobody else; if refused, all is as before.

        Frames about them come after the answer, if it is sent as soon as this returns.
        """
        asked = check_batch(user_ids)
        watch = self._watching.open(watcher)
        async with watch.turn:
            people = self._watching.enter(watcher, asked)
            doubts, heard = self._doubts, [person.heard for person in people]
            kept: Collection[Person] = watch.people
            try:
                seen = await self._look(watcher.user_id, asked)
                if self._watching.watches.get(watcher) is watch:
                    self._watching.leave(watcher, _without(watch.people, people))
                    kept = watch.people = people
                    watch.judged_at = asyncio.get_running_loop().time()
                    self._show(watcher, zip(people, heard, strict=True), seen)
                else:
                    kept = ()  # the connection has ended meanwhile
            finally:
                self._watching.leave(watcher, _without(people, kept))
        if doubts != self._doubts:
            self._doubt(watcher.user_id, False)
        return [_view(user_id, seen.get(user_id)) for user_id in asked]

    def unsubscribe(self, watcher: Watcher) -> None:
        self._watching.close(watcher)

    def _show(self, watcher: Watcher, people: Iterable[tuple[Person, int]], seen: dict[str, Seen]) -> None:
        """What the answer shows; what has changed while it was looked up follows it."""
        for person, heard in people:
            found = seen.get(person.user_id)
            if found is None:
                person.watchers[watcher] = Shown.HIDDEN
                continue
            person.watchers[watcher] = Shown.ONLINE if found.is_online else Shown.OFFLINE
            if person.heard == heard:
                self._is_now(person, found)
            elif person.is_news_to(person.watchers[watcher]):
                self._schedule(person)

    def person_changed(self, user_id: str) -> None:
        """Their settings, contacts or blocks changed: whom they see, and who sees them, is judged anew."""
        self._doubts += 1
        self._doubt(user_id, True)

    def parted(self, user_id: str) -> None:
        """They left a chat, and perhaps the last that they shared with somebody."""
        self.person_changed(user_id)

    def _doubt(self, user_id: str, also_watchers: bool) -> None:
        is_watched = also_watchers and user_id in self._watching.people
        if is_watched or user_id in self._watching.viewers:
            self._doubted[user_id] = also_watchers or self._doubted.get(user_id, False)
            self._woken.set()

    # What the registry tells

    def _heard(self, presence: Presence) -> None:
        if not presence.is_online:
            self._recent.pop(presence.user_id, None)
            self._recent[presence.user_id] = presence.last_active_ms
            if len(self._recent) > RECENT_MAX:
                del self._recent[next(iter(self._recent))]
        person = self._watching.people.get(presence.user_id)
        if person is not None:
            person.heard += 1
            self._is_now(person, Seen(presence.is_online, presence.last_active_ms))

    def _is_now(self, person: Person, seen: Seen) -> None:
        is_known = person.is_online is seen.is_online
        person.is_online, person.last_seen_ms = seen.is_online, seen.last_seen_ms
        if not is_known:
            self._schedule(person)

    def _schedule(self, person: Person) -> None:
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
        self._schedule(person)

    def _returned(self) -> None:
        """The registry was away, and changes with it; so were the signals that rights have changed."""
        if self._return_timer is None:
            loop = asyncio.get_running_loop()
            self._return_timer = loop.call_later(RETURN_SECONDS, self._look_again_soon)

    def _look_again_soon(self) -> None:
        self._return_timer = None
        self._looks_again = True
        self._woken.set()

    # The one who judges and publishes

    async def _work(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                await self._catch_up()
            except Exception:  # whatever it is, those who were not told are told later
                log.exception("presence not published")
                self._changed = dict.fromkeys(self._watching.people)
                self._retry()

    def _retry(self) -> None:
        loop = asyncio.get_running_loop()
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        self._retry_timer = loop.call_later(RETRY_SECONDS, self._woken.set)

    async def _catch_up(self) -> None:
        """Rights first: nothing is published to who is in doubt."""
        if self._looks_again:
            self._looks_again = False
            await self._look_again()
        while self._doubted or self._changed:
            is_judged = await self._judge_doubted()
            await self._publish_changed()
            if not is_judged:
                self._retry()
                return

    async def _look_again(self) -> None:
        """At everybody who is watched, and at every right."""
        self._doubts += 1
        for viewer_id in list(self._watching.viewers):
            self._doubt(viewer_id, False)
        user_ids = list(self._watching.people)
        for start in range(0, len(user_ids), PRESENCE_BATCH_MAX):
            await self._look_at(user_ids[start : start + PRESENCE_BATCH_MAX])
            await asyncio.sleep(0)

    async def _look_at(self, user_ids: list[str]) -> None:
        """Who is not as was known is so from now on."""
        people = self._watching.people
        heard = {user_id: people[user_id].heard for user_id in user_ids if user_id in people}
        presences = await self._registry.presences(list(heard))
        offline = [found.user_id for found in presences if not found.is_online]
        users = await self._profiles([one for one in offline if one in people and people[one].is_online])
        for found in presences:
            person = people.get(found.user_id)
            if person is not None and person.heard == heard[found.user_id]:
                seen = self._seen(found, users.get(found.user_id))
                self._is_now(person, Seen(seen.is_online, max(seen.last_seen_ms, person.last_seen_ms)))

    async def _profiles(self, user_ids: list[str]) -> dict[str, User]:
        try:
            return await self._relations.profiles(user_ids) if user_ids else {}
        except StoreError:
            return {}  # then they were last seen when they were last known to be there

    # Judging

    async def _judge_doubted(self) -> bool:
        """Whether there is no doubt left."""
        while self._doubted:
            some = _take(self._doubted, JUDGED_AT_ONCE)
            results = await asyncio.gather(
                *(self._judge(*one) for one in some.items()), return_exceptions=True
            )
            failed = [error for error in results if isinstance(error, BaseException)]
            if failed:
                for user_id, also_watchers in some.items():
                    self._doubted[user_id] = also_watchers or self._doubted.get(user_id, False)
                if not all(isinstance(error, StoreError) for error in failed):
                    raise failed[0]
                return False
        return True

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
        regards = await self._regards(user_id, others)
        lost: dict[Person, list[Watcher]] = {}
        unknown: set[str] = set()
        for other_id in others:
            sees = _sees(regards, user_id, other_id)
            pairs = list(self._watching.pairs(user_id, other_id))
            if also_watchers and other_id != user_id:
                pairs += self._watching.pairs(other_id, user_id)
            for watcher, person in pairs:
                if self._is_lost(watcher, person, sees):
                    lost.setdefault(person, []).append(watcher)
                elif sees and person.is_online is None:
                    unknown.add(person.user_id)
        for person, watchers in lost.items():
            self._tell(watchers, _view(person.user_id, None))
        await self._get_to_know(unknown, regards)

    def _is_lost(self, watcher: Watcher, person: Person, sees: bool) -> bool:
        """Whether somebody who was shown must no longer be; who is seen and was not shown right is due."""
        shown = person.watchers[watcher]
        if shown is Shown.PENDING:
            return False
        if not sees:
            person.watchers[watcher] = Shown.HIDDEN
            return shown is not Shown.HIDDEN
        if shown is Shown.HIDDEN:
            shown = person.watchers[watcher] = Shown.DUE
        if person.is_news_to(shown):
            self._schedule(person)
        return False

    async def _get_to_know(self, user_ids: set[str], regards: dict[str, Regard]) -> None:
        """Nobody was shown them until now, so nobody asked how they are."""
        if not user_ids:
            return
        people = self._watching.people
        for found in await self._registry.presences(sorted(user_ids)):
            person = people.get(found.user_id)
            if person is not None and person.is_online is None:
                self._is_now(person, self._seen(found, regards[found.user_id].user))

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
                self._doubt(watcher.user_id, False)
                continue
            due.append(watcher)
            if len(due) == limit:
                break
        return due

    def _publish(self, person: Person, watchers: list[Watcher]) -> None:
        person.quiet_until = asyncio.get_running_loop().time() + FLAP_SECONDS
        for watcher in watchers:
            person.watchers[watcher] = person.state
        self._tell(watchers, _view(person.user_id, Seen(person.is_online is True, person.last_seen_ms)))

    def _tell(self, watchers: list[Watcher], view: PresenceView) -> None:
        self._metrics.presence_told.inc(len(watchers))
        frame = PresenceChanged(user_id=view.user_id, status=view.status, last_seen=view.last_seen)
        self._tell_some(watchers, frame)


def _sees(regards: dict[str, Regard], viewer_id: str, user_id: str) -> bool:
    viewer, regard = regards.get(viewer_id), regards.get(user_id)
    return viewer is not None and regard is not None and may_see_presence(viewer.user, regard)


def _view(user_id: str, seen: Seen | None) -> PresenceView:
    """None: who may not be seen."""
    if seen is None:
        return PresenceView(user_id, "offline", UNAVAILABLE)
    last_seen = _iso(seen.last_seen_ms) if seen.last_seen_ms else None
    return PresenceView(user_id, "online" if seen.is_online else "offline", last_seen)


def _without(people: list[Person], others: Iterable[Person]) -> list[Person]:
    left_out = set(others)
    return [person for person in people if person not in left_out]


def _take(waiting: dict[Key, Value], limit: int) -> dict[Key, Value]:
    """The first of them, which then wait no longer."""
    return {key: waiting.pop(key) for key in list(islice(waiting, limit))}
