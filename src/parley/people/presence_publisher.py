"""Sends changes of presence to the connections that watch them and may see them, each change once.

One read of a user's relationships says whom they see and who sees them.
See docs/ephemeral.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

import structlog

from parley.errors import StoreError
from parley.model import Relationship
from parley.people.presence_lookup import (
    PresenceLookup,
    VisiblePresence,
    may_be_seen_by,
    may_see,
    presence_view,
)
from parley.people.presence_watches import PresenceWatcher, ShownState, WatchedUser, WatchTable
from parley.telemetry import Metrics
from parley.wire.frames import PresenceChanged, PresenceView, ServerFrame
from parley.wire.limits import PRESENCE_BATCH_MAX

FLAP_SECONDS = 2.0
"""The next frame about the same user waits this long. It is not sent if the state is the same again."""
RIGHTS_VALID_SECONDS = 900.0
"""The signal that a right changed may be lost, so an older right is checked again before it is used."""
RETRY_SECONDS = 1.0
FRAMES_PER_TURN = 1_000
USERS_PER_TURN = 200
CHECKS_AT_ONCE = 8

TellSome = Callable[[Iterable[Any], ServerFrame], None]
"""Sends a frame to some watchers, which are the connections of this node."""
Key = TypeVar("Key")
Value = TypeVar("Value")

log = structlog.get_logger("parley.presence")


class PresencePublisher:
    """One task checks rights and sends, so each watcher gets its frames in order."""

    def __init__(
        self, table: WatchTable, lookup: PresenceLookup, metrics: Metrics, tell_some: TellSome
    ) -> None:
        self._table = table
        self._lookup = lookup
        self._metrics = metrics
        self._tell_some = tell_some
        self._changed: dict[str, None] = {}
        self._rights_due: dict[str, bool] = {}
        """Users whose rights must be checked again, and whether their watchers' rights must be, too."""
        self._refresh_due = False
        self._pause_timer: asyncio.TimerHandle | None = None
        self._woken = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._worker = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        timers = [user.timer for user in self._table.users.values()]
        for timer in (self._pause_timer, *timers):
            if timer is not None:
                timer.cancel()
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    def update(self, user: WatchedUser, seen: VisiblePresence) -> None:
        """Set a user's state, and publish it if it changed."""
        is_known = user.is_online is seen.is_online
        user.is_online, user.last_seen_ms = seen.is_online, seen.last_seen_ms
        if not is_known:
            self.schedule(user)

    def schedule(self, user: WatchedUser) -> None:
        """Publish at once, or `FLAP_SECONDS` after the last frame about this user."""
        if user.timer is not None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < user.quiet_until:
            user.timer = loop.call_at(user.quiet_until, self._end_quiet, user)
        else:
            self._changed[user.user_id] = None
            self._woken.set()

    def _end_quiet(self, user: WatchedUser) -> None:
        user.timer = None
        self.schedule(user)

    def recheck(self, user_id: str, also_watchers: bool) -> None:
        """Before the next frame, check whom a user may see and, if `also_watchers`, who may see them."""
        is_watched = also_watchers and user_id in self._table.users
        if is_watched or user_id in self._table.viewers:
            self._rights_due[user_id] = also_watchers or self._rights_due.get(user_id, False)
            self._woken.set()

    def refresh(self) -> None:
        """Read every watched user and every right again: changes may have been missed."""
        self._refresh_due = True
        self._woken.set()

    async def _work(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                await self._catch_up()
            except Exception:  # of any kind: the watchers stay due and get their frames later
                log.exception("presence not published")
                self._changed = dict.fromkeys(self._table.users)
                self._pause()

    def _pause(self) -> None:
        """Check no rights for a while, so that an unavailable store is not read at every change."""
        if self._pause_timer is None:
            self._pause_timer = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._end_pause)

    def _end_pause(self) -> None:
        self._pause_timer = None
        self._woken.set()

    async def _catch_up(self) -> None:
        """Check rights first: a watcher whose rights are due gets no frame."""
        if self._refresh_due:
            self._refresh_due = False
            await self._refresh()
        while self._rights_due or self._changed:
            is_checked = await self._check_rights_due()
            await self._publish_changed()
            if not is_checked:
                return

    async def _refresh(self) -> None:
        for viewer_id in list(self._table.viewers):
            self.recheck(viewer_id, False)
        user_ids = list(self._table.users)
        for start in range(0, len(user_ids), PRESENCE_BATCH_MAX):
            await self._refresh_some(user_ids[start : start + PRESENCE_BATCH_MAX])
            await asyncio.sleep(0)

    async def _refresh_some(self, user_ids: list[str]) -> None:
        """Read these users again and publish changes."""
        users = self._table.users
        before = {user_id: users[user_id].changes for user_id in user_ids if user_id in users}
        presences = await self._lookup.presences(list(before))
        offline = [found.user_id for found in presences if not found.is_online]
        went = [user_id for user_id in offline if user_id in users and users[user_id].is_online]
        profiles = await self._lookup.profiles(went)
        for found in presences:
            user = users.get(found.user_id)
            if user is not None and user.changes == before[found.user_id]:
                seen = self._lookup.seen(found, profiles.get(found.user_id))
                self.update(user, VisiblePresence(seen.is_online, max(seen.last_seen_ms, user.last_seen_ms)))

    # Rights

    async def _check_rights_due(self) -> bool:
        """Check a few users, so that frames go out in between; False if the store is unavailable."""
        if self._pause_timer is not None:
            return not self._rights_due
        some = _take(self._rights_due, CHECKS_AT_ONCE)
        checks = [self._check_rights(user_id, also_watchers) for user_id, also_watchers in some.items()]
        results = await asyncio.gather(*checks, return_exceptions=True)
        failed = [error for error in results if isinstance(error, BaseException)]
        if failed:
            for user_id, also_watchers in some.items():
                self._rights_due[user_id] = also_watchers or self._rights_due.get(user_id, False)
            self._pause()
        for error in failed:
            if not isinstance(error, StoreError):
                raise error
        return not failed

    async def _check_rights(self, user_id: str, also_watchers: bool) -> None:
        """When this returns, watchers see exactly those whom they may see, by rights as of this call."""
        checked_at = asyncio.get_running_loop().time()
        others = self._table.watched_by(user_id)
        if also_watchers:
            others |= self._table.watchers_of(user_id)
        listed = sorted(others)
        for start in range(0, len(listed), PRESENCE_BATCH_MAX):
            await self._check_rights_to(user_id, listed[start : start + PRESENCE_BATCH_MAX], also_watchers)
        for watcher in self._table.connections(user_id):
            self._table.watches[watcher].checked_at = checked_at

    async def _check_rights_to(self, user_id: str, others: list[str], also_watchers: bool) -> None:
        relationships = await self._lookup.relationships(user_id, others)
        lost: dict[WatchedUser, list[PresenceWatcher]] = {}
        unknown: set[str] = set()
        for other_id in others:
            sees = may_see(relationships, user_id, other_id)
            pairs = [(*pair, sees) for pair in self._table.pairs(user_id, other_id)]
            if also_watchers and other_id != user_id:
                is_seen_by = may_be_seen_by(relationships, user_id, other_id)
                pairs += [(*pair, is_seen_by) for pair in self._table.pairs(other_id, user_id)]
            for watcher, user, is_seen in pairs:
                if self._is_lost(watcher, user, is_seen):
                    lost.setdefault(user, []).append(watcher)
                elif is_seen and user.is_online is None:
                    unknown.add(user.user_id)
        for user, watchers in lost.items():
            self._send(watchers, presence_view(user.user_id, None))
        await self._read_unknown(unknown, relationships)

    def _is_lost(self, watcher: PresenceWatcher, user: WatchedUser, is_seen: bool) -> bool:
        """Whether a watcher lost its right to see a user. A watcher that gained it becomes due."""
        shown = user.watchers[watcher]
        if shown is ShownState.PENDING:
            return False
        if not is_seen:
            user.watchers[watcher] = ShownState.HIDDEN
            return shown is not ShownState.HIDDEN
        if shown is ShownState.HIDDEN:
            shown = user.watchers[watcher] = ShownState.DUE
        if user.is_news_to(shown):
            self.schedule(user)
        return False

    async def _read_unknown(self, user_ids: set[str], relationships: dict[str, Relationship]) -> None:
        """Read the presence of users whom no watcher could see until now."""
        if not user_ids:
            return
        users = self._table.users
        for found in await self._lookup.presences(sorted(user_ids)):
            user = users.get(found.user_id)
            if user is not None and user.is_online is None:
                self.update(user, self._lookup.seen(found, relationships[found.user_id].user))

    # Publishing

    async def _publish_changed(self) -> None:
        published = 0
        while self._changed:
            for user_id in _take(self._changed, USERS_PER_TURN):
                user = self._table.users.get(user_id)
                while user is not None and (watchers := self._due(user, FRAMES_PER_TURN - published)):
                    self._publish(user, watchers)
                    published += len(watchers)
                    if published >= FRAMES_PER_TURN:
                        published = 0
                        await asyncio.sleep(0)
            await asyncio.sleep(0)

    def _due(self, user: WatchedUser, limit: int) -> list[PresenceWatcher]:
        """Some of the watchers that must get a user's state and whose rights are fresh."""
        if self._rights_due.get(user.user_id, False):
            return []
        due: list[PresenceWatcher] = []
        oldest = asyncio.get_running_loop().time() - RIGHTS_VALID_SECONDS
        for watcher, shown in user.watchers.items():
            if not user.is_news_to(shown) or watcher.user_id in self._rights_due:
                continue
            if self._table.watches[watcher].checked_at < oldest:
                self.recheck(watcher.user_id, False)
                continue
            due.append(watcher)
            if len(due) == limit:
                break
        return due

    def _publish(self, user: WatchedUser, watchers: list[PresenceWatcher]) -> None:
        user.quiet_until = asyncio.get_running_loop().time() + FLAP_SECONDS
        for watcher in watchers:
            user.watchers[watcher] = user.state
        self._send(
            watchers, presence_view(user.user_id, VisiblePresence(user.is_online is True, user.last_seen_ms))
        )

    def _send(self, watchers: list[PresenceWatcher], view: PresenceView) -> None:
        self._metrics.presence_told.inc(len(watchers))
        frame = PresenceChanged(user_id=view.user_id, status=view.status, last_seen=view.last_seen)
        self._tell_some(watchers, frame)


def _take(waiting: dict[Key, Value], limit: int) -> dict[Key, Value]:
    """Remove and return the first `limit` items."""
    return {key: waiting.pop(key) for key in list(islice(waiting, limit))}
