"""What one person may see of others' presence, looked up where it is kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Struct

from parley.clock import from_iso, iso
from parley.core.privacy import may_see_presence
from parley.ephemeral.ports import Presence, Registry
from parley.errors import StoreError
from parley.model import Regard, User
from parley.store.ports import Relations
from parley.wire.frames import PresenceView

RECENT_MAX = 20_000
TIMES_MAX = 20_000
ID_LETTERS_MAX = 64
"""No id is longer, so what is longer names nobody."""
UNAVAILABLE = "unavailable"

_iso = lru_cache(TIMES_MAX)(iso)
"""Many who look at the same people are told the same times."""


class Seen(Struct, frozen=True):
    """How somebody is, for one who may see it. `last_seen_ms`: 0 if they never were."""

    is_online: bool
    last_seen_ms: int


class Sight:
    """Rights are read strongly each time, presence only of those who may be seen."""

    def __init__(self, registry: Registry, relations: Relations) -> None:
        self._registry = registry
        self._relations = relations
        self._recent: dict[str, int] = {}
        """When people went offline lately: the store is told of it a little later."""

    def went(self, presence: Presence) -> None:
        """Somebody is offline from now on."""
        self._recent.pop(presence.user_id, None)
        self._recent[presence.user_id] = presence.last_active_ms
        if len(self._recent) > RECENT_MAX:
            del self._recent[next(iter(self._recent))]

    async def look(
        self, viewer_id: str, user_ids: Sequence[str], acquainted: bool = False
    ) -> dict[str, Seen]:
        """Those of them whom the viewer may see."""
        possible = [user_id for user_id in user_ids if 0 < len(user_id) <= ID_LETTERS_MAX]
        return await self.look_by(await self.regards(viewer_id, possible, acquainted), viewer_id, possible)

    async def look_by(
        self, regards: dict[str, Regard], viewer_id: str, user_ids: Sequence[str]
    ) -> dict[str, Seen]:
        """The same by regards that were read already."""
        visible = [user_id for user_id in user_ids if sees(regards, viewer_id, user_id)]
        presences = await self.presences(visible)
        return {found.user_id: self.seen(found, regards[found.user_id].user) for found in presences}

    async def regards(
        self, viewer_id: str, user_ids: Iterable[str], acquainted: bool = False
    ) -> dict[str, Regard]:
        """The viewer's own regard is among them: it holds their settings."""
        asked = list(dict.fromkeys([viewer_id, *user_ids]))
        return await self._relations.regards(viewer_id, asked, acquainted)

    async def presences(self, user_ids: Sequence[str]) -> list[Presence]:
        """One for each, in order."""
        return await self._registry.presences(user_ids) if user_ids else []

    async def profiles(self, user_ids: Sequence[str]) -> dict[str, User]:
        """Those of these who exist; nobody if the store is away."""
        try:
            return await self._relations.profiles(user_ids) if user_ids else {}
        except StoreError:
            return {}

    def seen(self, presence: Presence, user: User | None) -> Seen:
        """How somebody is, with what the store knows of them."""
        if presence.is_online:
            return Seen(True, presence.last_active_ms)
        stored = user.last_seen if user is not None else None
        stored_ms = from_iso(stored) if stored is not None else 0
        return Seen(False, max(stored_ms, self._recent.get(presence.user_id, 0)))


def sees(regards: dict[str, Regard], viewer_id: str, user_id: str) -> bool:
    """Whether one sees the other, by regards of the first, their own among them."""
    viewer, regard = regards.get(viewer_id), regards.get(user_id)
    return viewer is not None and regard is not None and may_see_presence(viewer.user, regard)


def view(user_id: str, seen: Seen | None) -> PresenceView:
    """As it is told; None for who may not be seen, which looks like who does not exist."""
    if seen is None:
        return PresenceView(user_id, "offline", UNAVAILABLE)
    last_seen = _iso(seen.last_seen_ms) if seen.last_seen_ms else None
    return PresenceView(user_id, "online" if seen.is_online else "offline", last_seen)
