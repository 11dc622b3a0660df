"""The connections of this node, as the services for people see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from parley.wire.frames import ServerFrame


class Audience(Protocol):
    """Sends frames to connections of this node, encoded once for all of them."""

    def people_in(self, chat_id: str) -> set[str]:
        """Members of a chat who are connected to this node and get its entries live."""
        ...

    def tell_chat(self, chat_id: str, frame: ServerFrame, receives: Callable[[str], bool]) -> None:
        """Send to the live connections of those members of a chat for whom `receives` is true."""
        ...

    def tell_people(self, user_ids: Iterable[str], frame: ServerFrame) -> None:
        """Send to every live connection of these people."""
        ...
