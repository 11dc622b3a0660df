"""What an engine's jobs call when other processes wrote."""

from __future__ import annotations

from typing import Protocol


class Subscriptions(Protocol):
    """The clients of this node and their chats. An engine's jobs call it when other processes wrote."""

    async def catch_up(self) -> None:
        """Anything may have changed: read memberships and logs again, and deliver new entries."""
        ...

    async def check_heads(self) -> None:
        """Logs may have grown: compare their heads, and deliver new entries."""
        ...

    async def check_sessions(self) -> None:
        """Sessions may have ended: read each again, and close the connections of those that have."""
        ...
