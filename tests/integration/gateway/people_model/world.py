"""What people may notice of each other, worked out anew each time from the logs and what was said since.

Slow and obvious: no position, count or mark is kept, every answer goes through all events from the first.
It shares no code with the server, and so it is not the engine in memory: that one decides by the same `core`.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.harness.clients import Frame
from tests.integration.gateway.people_model.events import (
    Acked,
    Came,
    Event,
    Holds,
    LoggedIn,
    Muted,
    Read,
    Revoked,
    SendsReads,
    ShowsTo,
    Went,
)

Rise = tuple[int, str | None]
"""A position, and when it got there."""
NOWHERE: Rise = (0, None)


@dataclass
class Chat:
    """A chat as it was created, and its log as the server tells it."""

    chat_id: str
    type: str
    first_title: str | None
    owner: str
    first_members: tuple[str, ...]
    log: list[Frame] = field(default_factory=list)
    voids: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    """Numbers behind the head that somebody took and nobody will write."""

    @property
    def head(self) -> int:
        return max([*(entry["sequence"] for entry in self.log), *self.voids], default=0)

    def changes(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """What the log says of members and settings, and where."""
        for entry in self.log:
            if entry["kind"] != "message":
                yield entry["sequence"], json.loads(entry["content"])

    def members(self) -> dict[str, int]:
        """Who is in it now, and since which position."""
        found = dict.fromkeys(self.first_members, 0)
        for sequence, change in self.changes():
            if change["action"] == "joined":
                found[change["user_id"]] = sequence
            elif change["action"] in ("left", "removed"):
                del found[change["user_id"]]
        return found

    def mode(self) -> str:
        return str(self._last("read_receipts", "full"))

    def title(self) -> str | None:
        title = self._last("title", self.first_title)
        return None if title is None else str(title)

    def _last(self, name: str, otherwise: object) -> object:
        """What was last chosen under a name."""
        chosen = [change[name] for _, change in self.changes() if name in change]
        return chosen[-1] if chosen else otherwise

    def messages(self) -> list[Frame]:
        return [entry for entry in self.log if entry["kind"] == "message"]

    def at(self, sequence: int) -> Frame | None:
        """What is there; nothing at a void."""
        return next((entry for entry in self.log if entry["sequence"] == sequence), None)


@dataclass
class World:
    """Every chat, and everything that was said and taken, in its order."""

    unread_max: int
    chats: dict[str, Chat] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    # Devices and presence

    def sessions(self, user: str) -> dict[str, str]:
        """Those that hold, and the device of each."""
        found: dict[str, str] = {}
        for event in self.events:
            if isinstance(event, LoggedIn) and event.user == user:
                found[event.session] = event.device
            elif isinstance(event, Revoked) and event.user == user:
                del found[event.session]
        return found

    def devices(self, user: str) -> dict[str, int]:
        """How many sessions each device has."""
        devices = list(self.sessions(user).values())
        return {device: devices.count(device) for device in devices}

    def presence(self, user: str) -> tuple[bool, str | None]:
        """Whether a device of theirs is there, and when the last such one came, else went."""
        here: dict[str, str] = {}
        went: str | None = None
        for event in self.events:
            if isinstance(event, Came) and event.user == user:
                here[event.device] = event.at
            elif isinstance(event, Went) and event.user == user:
                del here[event.device]
                went = event.at
        return bool(here), max(here.values(), default=went)

    # Settings

    def sends_reads(self, user: str) -> bool:
        chosen = [e.sends for e in self.events if isinstance(e, SendsReads) and e.user == user]
        return chosen[-1] if chosen else True

    def muted_until(self, user: str, chat: str) -> str | None:
        said = [e.until for e in self.events if isinstance(e, Muted) and (e.user, e.chat) == (user, chat)]
        return said[-1] if said else None

    def holds(self, user: str, other: str, relation: str) -> bool:
        asked = user, other, relation
        said = [e for e in self.events if isinstance(e, Holds) and (e.user, e.other, e.relation) == asked]
        return bool(said) and said[-1].holds

    def blocks(self, user: str, other: str) -> bool:
        return self.holds(user, other, "blocks")

    def is_silenced(self, user: str, chat: Chat) -> bool:
        """Whether the other one of a direct chat takes nothing from this one."""
        return chat.type == "direct" and any(self.blocks(other, user) for other in chat.members())

    def shows(self, user: str, other: str) -> bool:
        """Whether somebody has chosen to show themself to another one."""
        said = [e.privacy for e in self.events if isinstance(e, ShowsTo) and e.user == user]
        privacy = said[-1] if said else "everyone"
        is_shown = privacy == "everyone" or (privacy == "contacts" and self.holds(user, other, "contacts"))
        return is_shown and not self.blocks(user, other)

    def sees(self, viewer: str, user: str) -> bool:
        """Whether one sees when the other is there."""
        shared = [chat for chat in self.chats.values() if {viewer, user} <= chat.members().keys()]
        is_known = bool(shared) or self.holds(user, viewer, "contacts")
        return viewer == user or (is_known and self.shows(user, viewer) and self.shows(viewer, user))

    def shown_reads(self, viewer: str, reader: str) -> bool:
        return viewer == reader or (self.sends_reads(viewer) and self.sends_reads(reader))

    # Positions

    def device_position(self, user: str, device: str, chat: str) -> int:
        """How far one device is; one that lost its last session starts again."""
        position, sessions = 0, set[str]()
        for event in self.events:
            if isinstance(event, LoggedIn) and (event.user, event.device) == (user, device):
                sessions.add(event.session)
            elif isinstance(event, Revoked) and event.session in sessions:
                sessions.remove(event.session)
                position = position if sessions else 0
            elif isinstance(event, Acked) and (event.user, event.device, event.chat) == (user, device, chat):
                position = max(position, event.sequence)
        return position

    def delivered(self, user: str, chat: str) -> Rise:
        """The furthest of all devices that ever were; what was read was delivered."""
        said = [event for event in self.events if isinstance(event, Acked | Read)]
        return _risen((e.sequence, e.at) for e in said if (e.user, e.chat) == (user, chat))

    def read(self, user: str, chat: str) -> Rise:
        said = [event for event in self.events if isinstance(event, Read)]
        return _risen((e.sequence, e.at) for e in said if (e.user, e.chat) == (user, chat))

    def moves_cursor(self, user: str, device: str, chat: Chat, sequence: int) -> int:
        """The position that a receipt for one message stands for, 0 if it counts for nothing."""
        cursor = self.device_position(user, device, chat.chat_id)
        others = [entry for entry in chat.messages() if entry["sender_id"] != user]
        between = [entry for entry in others if cursor < entry["sequence"] < sequence]
        return sequence if sequence > cursor and not between else 0

    # What the server must say

    def unread(self, user: str, chat: Chat) -> int:
        read_up_to, _ = self.read(user, chat.chat_id)
        others = [entry for entry in chat.messages() if entry["sender_id"] != user]
        return len([entry for entry in others if entry["sequence"] > read_up_to])

    def row(self, user: str, device: str, chat: Chat, now: str) -> Frame:
        """A line of the chat list, as one device gets it; of the peer only who it is."""
        until, unread = self.muted_until(user, chat.chat_id), self.unread(user, chat)
        peers = [other for other in chat.members() if chat.type == "direct" and other != user]
        return {
            "chat_id": chat.chat_id,
            "epoch": 1,
            "head": chat.head,
            "last_acked_sequence": self.device_position(user, device, chat.chat_id),
            "read_up_to": self.read(user, chat.chat_id)[0],
            "unread": min(unread, self.unread_max),
            "unread_more": unread > self.unread_max,
            "unread_mentions": 0,
            "muted": until is not None and until > now,
            "muted_until": until,
            "type": chat.type,
            "title": chat.title(),
            "peer": peers[0] if peers else None,
            "last_entry": chat.log[-1] if chat.log else None,
        }

    def rows(self, user: str, device: str, now: str) -> dict[str, Frame]:
        mine = [chat for chat in self.chats.values() if user in chat.members()]
        return {chat.chat_id: self.row(user, device, chat, now) for chat in mine}

    def receipts(self, viewer: str, chat: Chat, entry: Frame) -> Frame:
        """Who has received and read an entry, as one member may see it."""
        sender, sequence, mode = entry["sender_id"], entry["sequence"], chat.mode()
        counted = sorted(
            user for user, joined in chat.members().items() if user != sender and joined < sequence
        )
        delivered, read = [], []
        for user in [user for user in counted if not self.blocks(user, viewer)]:
            delivered_up_to, delivered_at = self.delivered(user, chat.chat_id)
            read_up_to, read_at = self.read(user, chat.chat_id)
            if delivered_up_to >= sequence:
                delivered.append({"user_id": user, "at": delivered_at})
            if read_up_to >= sequence and self.shown_reads(viewer, user):
                read.append({"user_id": user, "at": read_at})
        everybody = len(counted)
        is_read = {"full": len(read) == everybody, "simple": bool(read), "none": False}[mode]
        is_delivered = len(delivered) == everybody
        told = "read" if is_read else "delivered" if is_delivered else "sent"
        if mode == "simple" and read:
            read = [{"user_id": None, "at": min(str(one["at"]) for one in read)}]
        return {
            "sequence": sequence,
            "member_count": everybody,
            "mode": mode,
            "status": told if counted else "sent",
            "delivered": delivered,
            "read": [] if mode == "none" else read,
        }

    def marks(self, viewer: str, chat: Chat) -> Frame:
        """How far every member is, as one of them may see it."""
        marks, others = [], [0]
        for user, joined in sorted(chat.members().items()):
            is_hidden = self.blocks(user, viewer)
            delivered = NOWHERE if is_hidden else self.delivered(user, chat.chat_id)
            is_unread = is_hidden or not self.shown_reads(viewer, user)
            read = NOWHERE if is_unread else self.read(user, chat.chat_id)
            if user != viewer:
                others.append(read[0])
                read = read if chat.mode() == "full" else NOWHERE
            marks.append(
                {
                    "user_id": user,
                    "joined_sequence": joined,
                    "delivered_up_to": delivered[0],
                    "delivered_at": delivered[1],
                    "read_up_to": read[0],
                    "read_at": read[1],
                }
            )
        anybody = max(others) if chat.mode() == "simple" else 0
        return {"mode": chat.mode(), "marks": marks, "read_by_anybody": anybody}


def _risen(said: Iterable[tuple[int, str]]) -> Rise:
    """Where a position that only rises is after all this, and since when."""
    at: Rise = NOWHERE
    for sequence, moment in said:
        if sequence > at[0]:
            at = sequence, moment
    return at
