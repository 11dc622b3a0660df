"""What was decided for a chat and no send looks at, in one record: it has none where all is as usual."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from parley.errors import StoreUnavailable
from parley.model import ChatSettings, Fanout
from parley.store.ports import Records
from parley.store.rows import ChatRetention
from parley.store.tables import CHAT_SETTINGS, PutRecord, RemoveRecord, alone

ATTEMPTS_MAX = 10


class SettingsOfChats:
    def __init__(self, records: Records) -> None:
        self._records = records

    async def of(self, chat_ids: Sequence[str]) -> list[ChatSettings]:
        """Of each of these chats, whether it exists or not."""
        found = await self._records.get(CHAT_SETTINGS, [alone(chat_id) for chat_id in chat_ids])
        return [
            settings or ChatSettings(chat_id=chat_id)
            for chat_id, settings in zip(chat_ids, found, strict=True)
        ]

    async def change(self, chat_id: str, change: Callable[[ChatSettings], ChatSettings]) -> None:
        """Durable before it returns. The caller knows that there is such a chat."""
        for _ in range(ATTEMPTS_MAX):
            (before,) = await self._records.get(CHAT_SETTINGS, [alone(chat_id)])
            usual = ChatSettings(chat_id=chat_id)
            after = change(before or usual)
            if after == (before or usual):
                return
            if after == usual and before is not None:
                gone = RemoveRecord(alone(chat_id), before=before)
                if await self._records.commit(CHAT_SETTINGS, [gone]):
                    return
            elif await self._records.commit(CHAT_SETTINGS, [PutRecord(after, before=before)]):
                return
        raise StoreUnavailable(f"the settings of {chat_id} are being written to by too many at once")

    async def note_edit_window(self, chat_id: str, seconds: int | None, at: int) -> None:
        """What the entry at this position says, durably. What an earlier one says changes nothing."""

        def noted(settings: ChatSettings) -> ChatSettings:
            if settings.edit_window_at >= at:
                return settings
            return replace(settings, edit_window_seconds=seconds, edit_window_at=at)

        await self.change(chat_id, noted)


class ChatFanouts:
    """The strategies that operators chose for chats."""

    def __init__(self, records: Records) -> None:
        self._settings = SettingsOfChats(records)

    async def of(self, chat_id: str) -> Fanout | None:
        """The chosen one; None if the size of the chat decides."""
        (settings,) = await self._settings.of([chat_id])
        return settings.fanout

    async def choose(self, chat_id: str, fanout: Fanout | None) -> None:
        """Durable before it returns. None: the size decides again."""
        await self._settings.change(chat_id, lambda settings: replace(settings, fanout=fanout))


class Retentions:
    """How long chats are kept, and which are held."""

    def __init__(self, records: Records) -> None:
        self._settings = SettingsOfChats(records)

    async def of(self, chat_ids: Sequence[str]) -> dict[str, ChatRetention]:
        """Of each of these chats."""
        return {
            one.chat_id: ChatRetention(days=one.retention_days, is_held=one.is_held)
            for one in await self._settings.of(chat_ids)
        }

    async def decide(self, chat_id: str, retention: ChatRetention) -> None:
        """Durable before it returns. The caller knows that there is such a chat."""

        def decided(settings: ChatSettings) -> ChatSettings:
            return replace(settings, retention_days=retention.days, is_held=retention.is_held)

        await self._settings.change(chat_id, decided)
