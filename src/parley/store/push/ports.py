"""What an engine must keep so that people's devices ring. See docs/push.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from parley.model import Fanout
from parley.store.push.rows import PushDevice, PushOutcome


class PushDevices(Protocol):
    """The devices that rings are sent to. Read strongly."""

    async def put(self, device: PushDevice) -> bool:
        """Add or replace a device of a person, durable before it returns.

        False, and nothing is written, if the person has `DEVICES_PER_PERSON_MAX` others.
        """
        ...

    async def of(self, user_ids: Sequence[str]) -> dict[str, list[PushDevice]]:
        """The devices of those of these people who have any, each one's in the order of their ids."""
        ...

    async def remove(self, user_id: str, device_id: str, address: str | None = None) -> bool:
        """Durable before it returns; False if there is none. `address`: only if the device still has it."""
        ...

    async def are_there(self) -> bool:
        """Whether any person has a device, or had one."""
        ...


class PushOutcomes(Protocol):
    """What became of rings, for `OUTCOME_DAYS`: one for each message and device."""

    async def note(self, outcome: PushOutcome) -> None:
        """Durable before it returns; replaces what was known of this message and device."""
        ...

    async def find(self, chat_id: str, sequence: int, user_id: str, device_id: str) -> PushOutcome | None:
        """What became of one ring, read strongly."""
        ...

    async def rung_through(self, chat_id: str, user_id: str, device_id: str) -> int:
        """The newest position of a chat that was given to the provider of a device (noted as `ringing` or
        `pushed`); 0 if none is known. Read strongly.
        """
        ...

    async def of_message(self, chat_id: str, sequence: int) -> list[PushOutcome]:
        """What became of the rings of one message, in the order of people and devices."""
        ...

    async def expire(self, before_ms: int) -> int:
        """Delete what is older; returns how many. An engine that does so by itself returns 0."""
        ...


class ChatFanouts(Protocol):
    """The strategies that operators chose for chats."""

    async def of(self, chat_id: str) -> Fanout | None:
        """The chosen one; None if the size of the chat decides. Read strongly."""
        ...

    async def choose(self, chat_id: str, fanout: Fanout | None) -> None:
        """Durable before it returns. None: the size decides again."""
        ...


class PushStore(Protocol):
    """The ports of push."""

    @property
    def devices(self) -> PushDevices:
        """See `PushDevices`."""
        ...

    @property
    def outcomes(self) -> PushOutcomes:
        """See `PushOutcomes`."""
        ...

    @property
    def fanouts(self) -> ChatFanouts:
        """See `ChatFanouts`."""
        ...
