"""Who is there, for those who may see it: asked for, or told when it changes. See docs/ephemeral.md."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence

from parley.ephemeral.ports import Presence, Registry
from parley.errors import BAD_REQUEST, Refused
from parley.model import User
from parley.people.publishing import Publishing, TellSome
from parley.people.sight import Seen, Sight, view
from parley.people.watching import Person, Shown, Watcher, Watching
from parley.store.ports import Relations
from parley.telemetry import Metrics
from parley.wire.frames import PresenceView
from parley.wire.limits import PRESENCE_BATCH_MAX

__all__ = ["Presences", "Watcher", "check_batch"]

RETURN_SECONDS = 10.0
"""After the registry was away: by then every node has registered its people again."""
TOO_MANY = BAD_REQUEST.because(f"at most {PRESENCE_BATCH_MAX} people can be asked for at once")


def check_batch(user_ids: Sequence[str]) -> list[str]:
    """Each of these once, in their order; refused if they are too many."""
    if len(user_ids) > PRESENCE_BATCH_MAX:
        raise Refused(TOO_MANY)
    return list(dict.fromkeys(user_ids))


class Presences:
    """`tell_some` gives a frame to some of those who watch, encoded once for all of them."""

    def __init__(
        self, registry: Registry, relations: Relations, metrics: Metrics, tell_some: TellSome
    ) -> None:
        self._sight = Sight(registry, relations)
        self._watching = Watching()
        self._publishing = Publishing(self._watching, self._sight, metrics, tell_some)
        self._doubts = 0
        """Counts, so that a right that was read before one changed is judged anew."""
        self._return_timer: asyncio.TimerHandle | None = None
        self._ends = [registry.watch(self._heard), registry.on_return(self._returned)]

    def start(self) -> None:
        self._publishing.start()

    async def close(self) -> None:
        for end in self._ends:
            end()
        if self._return_timer is not None:
            self._return_timer.cancel()
        await self._publishing.close()

    # On request

    async def query(
        self, viewer_id: str, user_ids: Sequence[str], acquainted: bool = False
    ) -> list[PresenceView]:
        """One for each who is asked for, in order, as of now. `acquainted`: all share a chat with the viewer.

        Who may not be seen looks like who does not exist.
        """
        asked = check_batch(user_ids)
        seen = await self._sight.look(viewer_id, asked, acquainted)
        return [view(user_id, seen.get(user_id)) for user_id in asked]

    async def people(self, viewer_id: str, user_ids: Sequence[str]) -> list[tuple[User, PresenceView]]:
        """Those who exist of people who share a chat with the viewer, with what may be seen of them."""
        asked = check_batch(user_ids)
        regards = await self._sight.regards(viewer_id, asked, acquainted=True)
        seen = await self._sight.look_by(regards, viewer_id, asked)
        known = [user_id for user_id in asked if user_id in regards]
        return [(regards[user_id].user, view(user_id, seen.get(user_id))) for user_id in known]

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
                seen = await self._sight.look(watcher.user_id, asked)
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
            self._publishing.doubt(watcher.user_id, False)
        return [view(user_id, seen.get(user_id)) for user_id in asked]

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
                self._publishing.is_now(person, found)
            elif person.is_news_to(person.watchers[watcher]):
                self._publishing.schedule(person)

    def person_changed(self, user_id: str) -> None:
        """Their settings, contacts, blocks or chats changed: whom they see, and who them, is judged anew."""
        self._doubts += 1
        self._publishing.doubt(user_id, True)

    # What the registry tells

    def _heard(self, presence: Presence) -> None:
        if not presence.is_online:
            self._sight.went(presence)
        person = self._watching.people.get(presence.user_id)
        if person is not None:
            person.heard += 1
            self._publishing.is_now(person, Seen(presence.is_online, presence.last_active_ms))

    def _returned(self) -> None:
        """The registry was away, and changes with it; so were the signals that rights have changed."""
        if self._return_timer is None:
            self._return_timer = asyncio.get_running_loop().call_later(RETURN_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._return_timer = None
        self._doubts += 1
        self._publishing.look_again()


def _without(people: list[Person], others: Iterable[Person]) -> list[Person]:
    left_out = set(others)
    return [person for person in people if person not in left_out]
