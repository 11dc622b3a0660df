"""Connections of one user or from one address: how many there are, and what they share."""

from __future__ import annotations

from typing import Protocol
from weakref import WeakValueDictionary

from parley.gateway.turns import LoopShare
from parley.wire.codes import Close
from parley.wire.limits import OUTBOX_BYTES_MAX, USER_OUTBOX_BYTES_MAX


class OutgoingSocket(Protocol):
    """A connection, as far as the others of its group concern it."""

    @property
    def outbox_bytes(self) -> int:
        """What it has not read yet."""
        ...

    def close(self, close: Close) -> None:
        """End the connection with a code."""
        ...


class SocketGroup:
    """Its connections share one part of the loop, and memory for what they have not read.

    While they are few, each may fill a whole outbox. Of many, each may fill its part of
    `USER_OUTBOX_BYTES_MAX` in any case, and more as long as the others leave theirs. Then nobody takes a
    byte unasked (`outbox_bytes_max` is 0): who has most goes before all of them together have too much.
    """

    __slots__ = ("outbox_bytes_max", "share", "sockets")

    def __init__(self, share: LoopShare) -> None:
        self.sockets: list[OutgoingSocket] = []
        """Nearly always one: a list is smaller than a set."""
        self.share = share
        self.outbox_bytes_max = OUTBOX_BYTES_MAX

    def add(self, socket: OutgoingSocket) -> None:
        self.sockets.append(socket)
        self._divide()

    def discard(self, socket: OutgoingSocket) -> None:
        if socket in self.sockets:
            self.sockets.remove(socket)
        self._divide()

    def _divide(self) -> None:
        if self.outbox_bytes_max:
            self.outbox_bytes_max = self._part_of_each()

    def _part_of_each(self) -> int:
        return min(OUTBOX_BYTES_MAX, USER_OUTBOX_BYTES_MAX // max(1, len(self.sockets)))

    def slowest(self, more_bytes: int) -> OutgoingSocket | None:
        """The one with most unread, if with so many bytes more all of them together have too much."""
        sizes = {socket: socket.outbox_bytes for socket in self.sockets}
        if sum(sizes.values()) + more_bytes <= USER_OUTBOX_BYTES_MAX:
            part = self._part_of_each()
            self.outbox_bytes_max = 0 if max(sizes.values(), default=0) + more_bytes > part else part
            return None
        return max(sizes, key=sizes.__getitem__)


class SocketGroups:
    """The groups of this node that have a connection, by user id or by address."""

    def __init__(self) -> None:
        self._groups: dict[str, SocketGroup] = {}
        self._shares: WeakValueDictionary[str, LoopShare] = WeakValueDictionary()
        """Of keys without a connection: held by requests under way, and by what waits in line."""

    def count(self, key: str) -> int:
        group = self._groups.get(key)
        return 0 if group is None else len(group.sockets)

    def share_of(self, key: str) -> LoopShare:
        """The share of all connections and requests under one key, for as long as there is one."""
        group = self._groups.get(key)
        if group is not None:
            return group.share
        share = self._shares.get(key)
        if share is None:
            share = self._shares[key] = LoopShare()
        return share

    def join(self, key: str, socket: OutgoingSocket) -> SocketGroup:
        group = self._groups.get(key)
        if group is None:
            share = self.share_of(key)
            self._shares.pop(key, share)
            group = self._groups[key] = SocketGroup(share)
        group.add(socket)
        return group

    def leave(self, key: str, socket: OutgoingSocket) -> None:
        group = self._groups.get(key)
        if group is not None:
            group.discard(socket)
            if not group.sockets:
                del self._groups[key]
                self._shares[key] = group.share
