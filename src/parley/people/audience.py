"""Those who are connected here, as use cases see them: the hub is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from parley.wire.frames import ServerFrame


class Audience(Protocol):
    """Frames to whoever is connected to this node. Encoded once for all of them."""

    def people_in(self, chat_id: str) -> set[str]:
        """Members of a chat who are connected here and hear it live."""
        ...

    def tell_chat(self, chat_id: str, frame: ServerFrame, receives: Callable[[str], bool]) -> None:
        """To the live connections of those members of a chat for whom `receives` is true."""
        ...

    def tell_people(self, user_ids: Iterable[str], frame: ServerFrame) -> None:
        """To every live connection of these people."""
        ...
