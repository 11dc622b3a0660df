"""Sessions that many heartbeats ask for within a moment, read with few requests and at half the price.

A heartbeat's read only covers the loss of a notice, so it may be a moment old. What such a read does not find
is looked for again, strongly: no session that exists is taken for one that has ended.
"""

from __future__ import annotations

import asyncio

from parley.errors import StoreError
from parley.store.dynamodb.driver import Dynamo, Item
from parley.store.dynamodb.schema import SESSIONS

GATHER_SECONDS = 0.02
SESSIONS_PER_READ_MAX = 100
"""As many as DynamoDB returns in one answer."""


class SessionReads:
    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo
        self._waiting: dict[bytes, asyncio.Future[Item | None]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def read(self, token_hash: bytes) -> Item | None:
        """The session's item, perhaps a moment old. Callers of the same moment share a request."""
        answer = self._waiting.get(token_hash)
        if answer is None:
            answer = self._waiting[token_hash] = asyncio.get_running_loop().create_future()
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read_all())
        found = await asyncio.shield(answer)
        return found if found is not None else await self._dynamo.get(SESSIONS, {"token_hash": token_hash})

    async def _read_all(self) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        while self._waiting:
            some = dict(list(self._waiting.items())[:SESSIONS_PER_READ_MAX])
            for token_hash in some:
                del self._waiting[token_hash]
            await self._read_some(some)

    async def _read_some(self, some: dict[bytes, asyncio.Future[Item | None]]) -> None:
        try:
            keys: list[Item] = [{"token_hash": token_hash} for token_hash in some]
            items = await self._dynamo.batch_get(SESSIONS, keys, consistent=False)
        except StoreError as error:
            for answer in some.values():
                answer.set_exception(error)
                answer.exception()  # whoever asked may be gone
            return
        except BaseException:
            for answer in some.values():
                answer.cancel()
            raise
        found = {item["token_hash"]: item for item in items}
        for token_hash, answer in some.items():
            answer.set_result(found.get(token_hash))

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
