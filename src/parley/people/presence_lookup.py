"""What a viewer may see of other users' presence, read from the registry and the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Struct

from parley.clock import from_iso, iso
from parley.core.privacy import may_be_seen, may_see_presence
from parley.ephemeral.ports import Presence, Registry
from parley.errors import StoreError
from parley.model import Relationship, User
from parley.records.relations import Relations
from parley.wire.frames import PresenceView

RECENT_MAX = 20_000
TIMES_MAX = 20_000
ID_CHARS_MAX = 64
"""No user id is longer."""
UNAVAILABLE = "unavailable"

_iso = lru_cache(TIMES_MAX)(iso)
"""Cached: many viewers of the same users get the same times."""


class VisiblePresence(Struct, frozen=True):
    """A user's presence for a viewer who may see it. `last_seen_ms`: 0 if they were never online."""

    is_online: bool
    last_seen_ms: int


class PresenceLookup:
    """Reads rights from the store each time, and presence only of users whom the viewer may see."""

    def __init__(self, registry: Registry, relations: Relations) -> None:
        self._registry = registry
        self._relations = relations
        self._recent: dict[str, int] = {}
        """When users went offline lately. The store has it a little later."""

    def note_offline(self, presence: Presence) -> None:
        """A user is offline from now on."""
        self._recent.pop(presence.user_id, None)
        self._recent[presence.user_id] = presence.last_active_ms
        if len(self._recent) > RECENT_MAX:
            del self._recent[next(iter(self._recent))]

    async def visible(self, viewer_id: str, user_ids: Sequence[str]) -> dict[str, VisiblePresence]:
        """Those of these users whom the viewer may see, by id."""
        possible = [user_id for user_id in user_ids if 0 < len(user_id) <= ID_CHARS_MAX]
        return await self.visible_by(await self.relationships(viewer_id, possible), viewer_id, possible)

    async def visible_by(
        self, relationships: dict[str, Relationship], viewer_id: str, user_ids: Sequence[str]
    ) -> dict[str, VisiblePresence]:
        """The same, with relationships that the caller has read."""
        visible = [user_id for user_id in user_ids if may_see(relationships, viewer_id, user_id)]
        presences = await self.presences(visible)
        return {found.user_id: self.seen(found, relationships[found.user_id].user) for found in presences}

    async def relationships(
        self, viewer_id: str, user_ids: Iterable[str], acquainted: bool = False
    ) -> dict[str, Relationship]:
        """The relationships to these users and, for the viewer's settings, to the viewer."""
        asked = list(dict.fromkeys([viewer_id, *user_ids]))
        return await self._relations.relationships(viewer_id, asked, acquainted)

    async def presences(self, user_ids: Sequence[str]) -> list[Presence]:
        """One for each, in order."""
        return await self._registry.presences(user_ids) if user_ids else []

    async def profiles(self, user_ids: Sequence[str]) -> dict[str, User]:
        """Those of these users who exist; none if the store is unavailable."""
        try:
            return await self._relations.profiles(user_ids) if user_ids else {}
        except StoreError:
            return {}

    def seen(self, presence: Presence, user: User | None) -> VisiblePresence:
        """A user's presence, with the last seen that the store has."""
        if presence.is_online:
            return VisiblePresence(True, presence.last_active_ms)
        stored = user.last_seen if user is not None else None
        stored_ms = from_iso(stored) if stored is not None else 0
        return VisiblePresence(False, max(stored_ms, self._recent.get(presence.user_id, 0)))


def may_see(relationships: dict[str, Relationship], viewer_id: str, user_id: str) -> bool:
    """Whether the viewer may see the user, by what `relationships` returned for the viewer."""
    viewer, relationship = relationships.get(viewer_id), relationships.get(user_id)
    return viewer is not None and relationship is not None and may_see_presence(viewer.user, relationship)


def may_be_seen_by(relationships: dict[str, Relationship], viewer_id: str, user_id: str) -> bool:
    """Whether the user sees the viewer, by the same relationships of the viewer."""
    viewer, relationship = relationships.get(viewer_id), relationships.get(user_id)
    return viewer is not None and relationship is not None and may_be_seen(viewer.user, relationship)


def presence_view(user_id: str, seen: VisiblePresence | None) -> PresenceView:
    """The form for clients. None: the viewer may not see the user, who then looks like an unknown one."""
    if seen is None:
        return PresenceView(user_id, "offline", UNAVAILABLE)
    last_seen = _iso(seen.last_seen_ms) if seen.last_seen_ms else None
    return PresenceView(user_id, "online" if seen.is_online else "offline", last_seen)
