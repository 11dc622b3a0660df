"""The `Entries` port in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import structs

from parley.store.ports import Replaced
from parley.store.rows import EVERYTHING, ArchiveMark
from parley.wire.frames import Entry
from tests.memory.tables import Tables


class MemoryEntries:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def marks(self, chat_ids: Sequence[str]) -> dict[str, ArchiveMark]:
        chats = self._tables.chats
        return {chat_id: chats[chat_id].mark for chat_id in chat_ids if chat_id in chats}

    async def record(self, chat_id: str, mark: ArchiveMark) -> bool:
        chat = self._tables.chats[chat_id]
        if chat.mark.version != mark.version - 1:
            return False
        chat.mark = structs.replace(mark, trimmed_through=chat.trimmed)
        return True

    async def needed_from(self, chat_id: str) -> int:
        queues = [queue.next_sequence for (at, _), queue in self._tables.queues.items() if at == chat_id]
        published = self._tables.published.get(chat_id)
        return min([*queues, EVERYTHING if published is None else published + 1])

    async def trim(self, chat_id: str, through: int) -> None:
        chat = self._tables.chats[chat_id]
        if chat.mark.archived_through < through:
            return
        for sequence in [at for at in chat.entries if at <= through]:
            entry = chat.entries.pop(sequence)
            chat.wires.pop(sequence, None)
            if entry is not None:
                chat.archived[sequence] = structs.replace(entry, content="")
        chat.mark = structs.replace(chat.mark, trimmed_through=max(chat.trimmed, through))

    async def replace(self, chat_id: str, entries: Mapping[int, Replaced]) -> list[int]:
        chat = self._tables.chats[chat_id]
        stored = {sequence: chat.wires.get(sequence) for sequence in entries}
        done = [at for at, to in entries.items() if stored[at] and to.before in (None, stored[at])]
        for at in done:
            chat.wires[at] = entries[at].after
            chat.entries[at] = msgspec.json.decode(entries[at].after, type=Entry)
        if done:
            chat.change = self._tables.next_change()
        return done

    async def scrub(self, leftovers: Sequence[bytes] | None = None) -> None:
        """Nothing is in a file."""
