"""A person's own settings of a chat: until when they do not want to be told of it."""

from __future__ import annotations

from parley.clock import from_iso, iso
from parley.errors import BAD_REQUEST, NOT_A_MEMBER, Refused
from parley.people.signals import Muted, Signalling
from parley.store.ports import Directory, Standings

NO_TIME = BAD_REQUEST.because("muted_until is an ISO 8601 time before the year 10000, or null")


class Muting:
    def __init__(self, directory: Directory, standings: Standings, signals: Signalling) -> None:
        self._directory = directory
        self._standings = standings
        self._signals = signals

    async def mute(self, chat_id: str, user_id: str, until: str | None) -> None:
        """For this person alone; their devices are told. `until` is as `muted_time` gives it."""
        if await self._directory.role(chat_id, user_id) is None:
            raise Refused(NOT_A_MEMBER)
        await self._standings.mute(user_id, chat_id, until)
        self._signals.tell(Muted(chat_id, user_id, until))

    async def muted_until(self, chat_id: str, user_id: str) -> str | None:
        return await self._standings.muted_until(user_id, chat_id)


def is_muted(until: str | None, now_ms: int) -> bool:
    return until is not None and from_iso(until) > now_ms


def muted_time(text: str | None) -> str | None:
    """A time as it travels, or none."""
    try:
        return None if text is None else iso(from_iso(text))
    except (ValueError, OverflowError, OSError) as error:
        raise Refused(NO_TIME) from error
