"""The engine in memory for tests of a bus or a hub: a test decides what is stored and which reads fail."""

import asyncio
import zlib
from collections.abc import Sequence

import msgspec

from parley import ids
from parley.errors import StoreUnavailable
from parley.model import ChatType, Head, Page, Persisted, StoredChat, StoredEntry
from parley.wire.frames import Entry
from tests.harness.clock import VirtualClock
from tests.memory.engine import MemoryOutbox
from tests.memory.log import MemoryLog
from tests.memory.tables import MemoryChat, Tables

READ_SECONDS = 0.001
TIME = "2026-01-01T00:00:00.000Z"


def entry_at(chat_id: str, sequence: int, content: str = "hi", kind: str = "message") -> Entry:
    return Entry(
        chat_id=chat_id,
        sequence=sequence,
        epoch=1,
        kind=kind,
        message_id="msg_" + ids.ulid(1, zlib.crc32(chat_id.encode()) << 40 | sequence),
        sender_id="user_1",
        client_message_id=None,
        content=content,
        content_type="text/plain",
        created_at=TIME,
        server_timestamp=TIME,
    )


def wire_at(chat_id: str, sequence: int, content: str = "hi") -> bytes:
    return msgspec.json.encode(entry_at(chat_id, sequence, content))


class ScriptedLog(MemoryLog):
    """Every chat exists, with one member. A position that the test has not stored is not resolved."""

    def __init__(self, *member_ids: str) -> None:
        self.tables = Tables()
        self.is_down = False
        self.reads = 0
        self.is_read = asyncio.Event()
        self._member_ids = member_ids or ("user_1",)
        super().__init__(self.tables, VirtualClock())

    def store(self, chat_id: str, *sequences: int, content: str = "hi", void: bool = False) -> Persisted:
        """Make positions durable, and return the news."""
        entries = {at: None if void else entry_at(chat_id, at, content) for at in sequences}
        chat = self.chat(chat_id)
        positions = [StoredEntry(at, chat.resolve(at, entry)) for at, entry in entries.items()]
        return Persisted(chat_id, 1, positions)

    def chat(self, chat_id: str) -> MemoryChat:
        chat = StoredChat(chat_id, ChatType.GROUP, None, self._member_ids[0], TIME, TIME, 1)
        return self.tables.chats.get(chat_id) or self.tables.add_chat(chat, self._member_ids)

    def head(self, chat_id: str) -> int:
        return self.chat(chat_id).head

    async def read(self, chat_id: str, after: int, limit: int) -> Page:
        self.is_read.set()
        await asyncio.sleep(READ_SECONDS)
        if self.is_down:
            raise StoreUnavailable("on purpose")
        self.reads += 1
        return await super().read(chat_id, after, limit)

    async def heads(self, chat_ids: Sequence[str]) -> dict[str, Head]:
        heads = await super().heads(chat_ids)
        await asyncio.sleep(0)
        return heads


class ScriptedOutbox(MemoryOutbox):
    """Counts its calls. `stale`: the next lists are outdated ones."""

    def __init__(self, log: ScriptedLog) -> None:
        super().__init__(log.tables)
        self.stale: list[dict[str, int]] = []
        self.is_down = False
        self.lists = 0
        self.flushes = 0

    async def unpublished(self) -> dict[str, int]:
        await asyncio.sleep(READ_SECONDS)
        if self.is_down:
            raise StoreUnavailable("on purpose")
        self.lists += 1
        return self.stale.pop(0) if self.stale else await super().unpublished()

    async def flush(self) -> None:
        self.flushes += 1
