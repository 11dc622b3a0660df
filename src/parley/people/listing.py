"""The chat list, as a person reads it: titles, last entries, what is unread, and who is on the other side."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, Struct, structs

from parley.clock import Clock
from parley.core.changes import decode_entry
from parley.model import Member, Position, User
from parley.people.muting import is_muted
from parley.people.presence import Presences
from parley.store.ports import Cursors
from parley.wire.frames import OverviewChat, Peer, PresenceView
from parley.wire.limits import OVERVIEW_CHATS_MAX, PRESENCE_BATCH_MAX


class ChatList(Struct, frozen=True):
    """One page of it, and the token that the next one, or the next change, is asked with."""

    chats: list[OverviewChat]
    token: str
    complete: bool


class Person(Struct, frozen=True):
    """Somebody's names, and what of their presence may be seen."""

    user: User
    presence: PresenceView


class Listing:
    def __init__(self, cursors: Cursors, presences: Presences, clock: Clock) -> None:
        self._cursors = cursors
        self._presences = presences
        self._clock = clock

    async def chats(
        self, user_id: str, device_id: str, changed_since: str | None, limit: int, brief: bool = False
    ) -> ChatList:
        """What changed after a token, or everything. `brief`: positions alone."""
        limit = min(limit, OVERVIEW_CHATS_MAX)
        changed = await self._cursors.changed(user_id, device_id, changed_since, limit, brief)
        rows = [self._row(at) for at in changed.positions]
        if not brief:
            people = await self.people(user_id, [at.peer_id for at in changed.positions if at.peer_id])
            rows = [_readable(row, at, people) for row, at in zip(rows, changed.positions, strict=True)]
        return ChatList(rows, changed.token, changed.complete)

    async def people(self, viewer_id: str, user_ids: Sequence[str]) -> dict[str, Person]:
        """Those who exist of people who share a chat with the viewer."""
        found: dict[str, Person] = {}
        for first in range(0, len(user_ids), PRESENCE_BATCH_MAX):
            some = user_ids[first : first + PRESENCE_BATCH_MAX]
            for user, presence in await self._presences.people(viewer_id, some):
                found[user.user_id] = Person(user, presence)
        return found

    async def members(self, viewer_id: str, members: Sequence[Member]) -> list[tuple[Member, Person | None]]:
        people = await self.people(viewer_id, [member.user_id for member in members])
        return [(member, people.get(member.user_id)) for member in members]

    def _row(self, at: Position) -> OverviewChat:
        return OverviewChat(
            chat_id=at.chat_id,
            epoch=at.epoch,
            head=at.head,
            last_acked_sequence=at.last_acked_sequence,
            read_up_to=at.read_up_to,
            unread=at.unread,
            unread_more=at.unread_more,
            left=True if at.left else UNSET,
            muted=is_muted(at.muted_until, self._clock()),
            muted_until=at.muted_until,
        )


def _readable(row: OverviewChat, at: Position, people: dict[str, Person]) -> OverviewChat:
    person = people.get(at.peer_id or "")
    return structs.replace(
        row,
        type=at.chat_type.value,
        title=at.title,
        peer=None if person is None else _peer(person),
        last_entry=None if at.last_entry is None else decode_entry(at.last_entry),
    )


def _peer(person: Person) -> Peer:
    user, presence = person.user, person.presence
    return Peer(user.user_id, user.username, user.display_name, presence.status, presence.last_seen)
