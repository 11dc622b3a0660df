"""Records that many ask for within a moment and that may be a moment old: few requests, at half the price.

So are the sessions of heartbeats, which only cover the loss of a notice. What such a read does not find is
looked for again, strongly, by the caller: nothing that exists is taken for gone.
"""

from __future__ import annotations

import asyncio

from parley.errors import StoreError
from parley.store.dynamodb.driver import Dynamo, Item
from parley.store.dynamodb.schema import PARTITION, PLACE

GATHER_SECONDS = 0.02
ITEMS_PER_READ_MAX = 100
"""As many as DynamoDB returns in one answer."""


Place = tuple[str, str, str]
"""A table, a partition and a place in it."""


class RecentReads:
    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo
        self._waiting: dict[Place, asyncio.Future[Item | None]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def read(self, *place: str) -> Item | None:
        """The item, perhaps a moment old. Callers of the same moment share a request."""
        table, partition, at = place
        answer = self._waiting.get((table, partition, at))
        if answer is None:
            answer = asyncio.get_running_loop().create_future()
            self._waiting[table, partition, at] = answer
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read_all())
        return await asyncio.shield(answer)

    async def _read_all(self) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        while self._waiting:
            table = next(iter(self._waiting))[0]
            some = [place for place in self._waiting if place[0] == table][:ITEMS_PER_READ_MAX]
            await self._read_some(table, {place: self._waiting.pop(place) for place in some})

    async def _read_some(self, table: str, some: dict[Place, asyncio.Future[Item | None]]) -> None:
        try:
            keys: list[Item] = [{PARTITION: partition, PLACE: at} for _, partition, at in some]
            items = await self._dynamo.batch_get(table, keys, consistent=False)
        except StoreError as error:
            for answer in some.values():
                answer.set_exception(error)
                answer.exception()  # whoever asked may be gone
            return
        except BaseException:
            for answer in some.values():
                answer.cancel()
            raise
        found = {(table, item[PARTITION], item[PLACE]): item for item in items}
        for place, answer in some.items():
            answer.set_result(found.get(place))

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
