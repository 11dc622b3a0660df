"""The log in memory for tests of its callers: a test chooses delays and failures of appends."""

from collections.abc import Sequence

from parley.model import AppendResult, ChatType, Draft, StoredChat, User
from tests.harness.clock import VirtualClock
from tests.harness.scripted_log import TIME
from tests.memory.log import MemoryLog
from tests.memory.tables import Tables


class FaultyLog(MemoryLog):
    """Every chat exists, owned by the first sender. Records its batches."""

    def __init__(self, tables: Tables | None = None) -> None:
        self.tables = tables or Tables()
        self.batches: list[list[str]] = []
        self.failure: Exception | None = None
        super().__init__(self.tables, VirtualClock())

    async def append(self, drafts: Sequence[Draft]) -> AppendResult:
        self.batches.append([draft.content for draft in drafts])
        if self.failure is not None:
            raise self.failure
        for draft in drafts:
            self._create(draft.chat_id, draft.sender_id)
        return await super().append(drafts)

    def _create(self, chat_id: str, owner: str) -> None:
        if chat_id not in self.tables.chats:
            self.tables.put_user(User(owner, owner, owner, "", False, TIME))
            self.tables.add_chat(StoredChat(chat_id, ChatType.GROUP, None, owner, TIME, TIME, 1), [owner])

    @property
    def contents(self) -> dict[str, list[str]]:
        """The contents of each chat, in the order of its log."""
        return {
            chat_id: [row.entries[at].content for at in sorted(row.wires)]  # type: ignore[union-attr]
            for chat_id, row in self.tables.chats.items()
            if row.wires
        }
