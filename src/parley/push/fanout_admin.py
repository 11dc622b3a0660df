"""What operators see and choose of a chat's fan-out."""

from __future__ import annotations

from msgspec import Struct

from parley.audit import OperatorCall
from parley.core.fanout import FanoutSizes, strategy_of
from parley.delivery.admin import Audited
from parley.errors import NOT_FOUND, Refused
from parley.model import Fanout, StoredChat
from parley.records.chat_settings import ChatFanouts
from parley.store.ports import Directory

NO_SUCH_CHAT = NOT_FOUND.because("there is no such chat")


class FanoutView(Struct, frozen=True):
    """`strategy`: the one in use. `chosen`: None if the size of the chat decides."""

    chat: StoredChat
    member_count: int
    strategy: Fanout
    chosen: Fanout | None


class FanoutAdmin:
    def __init__(
        self, directory: Directory, fanouts: ChatFanouts, sizes: FanoutSizes, audited: Audited
    ) -> None:
        self._directory = directory
        self._fanouts = fanouts
        self._sizes = sizes
        self._audited = audited

    async def show(self, chat_id: str) -> FanoutView:
        chat = await self._directory.chat(chat_id)
        if chat is None:
            raise Refused(NO_SUCH_CHAT)
        count, chosen = await self._directory.member_count(chat_id), await self._fanouts.of(chat_id)
        return FanoutView(chat, count, strategy_of(count, chosen, self._sizes), chosen)

    async def choose(self, call: OperatorCall, chat_id: str, fanout: Fanout | None) -> FanoutView:
        """Holds for messages from then on, on every node within half a minute. What was owed stays owed."""
        await self.show(chat_id)
        async with self._audited(call, "chat.fanout", chat_id, fanout.value if fanout else "by size"):
            await self._fanouts.choose(chat_id, fanout)
        return await self.show(chat_id)
