"""A crowd on several nodes: whoever loses one goes on with another, and each node has somebody who follows.

A writer that gets no answer in time asks another node, with the same ids, while the first may still have
them. A follower stays with its node, and may never be given a position without the one before it. One member
is never there: everything rings for him, and goes to a webhook as well.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from random import Random

from aiohttp import ClientSession

from tests.ack_first import AckFirst, AckOrder
from tests.harness.clients import Frame, HttpClient, Person, RawClient, Unexpected
from tests.harness.cluster import ClusterProcess
from tests.harness.server import ServerProcess
from tests.simulation.crowd import Crowd, Reader, Writer
from tests.simulation.receiving_end import ReceivingEnd, receiving_end
from tests.waiting import eventually

PATIENCE_SECONDS = 3.0
"""After so long without an answer a writer goes to another node; no node may notice that at once."""
TRY_AGAIN_SECONDS = 0.1
LOOK_SECONDS = 0.2
READ_SHARE = 0.3
"""How often a follower reads the log as well: it must reach what was acknowledged by then."""
GO_ON_SECONDS_MAX = 45.0
CREATE_TRIES_MAX = 4
WRITERS = ("ann", "ben", "dan")


class ClusterCrowd(Crowd):
    """`is_settled`: nothing more will be said, and the followers have only to hear the rest."""

    def __init__(
        self, cluster: ClusterProcess, session: ClientSession, random: Random, end: ReceivingEnd
    ) -> None:
        self.nodes = list(cluster)
        self.end = end
        super().__init__(self.nodes[0], session, random)
        self.is_settled = False
        self.order = AckOrder()
        self._followers: list[Follower] = []

    async def gather(self) -> None:
        """Accounts, chats that all are in, and connections to every node."""
        http = HttpClient(self.session, self.server.url)
        writers = await asyncio.gather(*(http.newcomer(name) for name in WRITERS))
        names = [f"reader{number}" for number in range(len(self.nodes))]
        readers = await asyncio.gather(*(http.newcomer(name) for name in names))
        everybody = [*writers, *readers, self.end.person]
        self.chat_ids = [await _new_group(http.of(owner), _but(everybody, owner)) for owner in writers]
        self.acknowledged = dict.fromkeys(self.chat_ids, 0)
        desk = await http.login(WRITERS[0], "desk")
        self._members = [Roamer(self, person) for person in (*writers, desk)]
        self._followers = [Follower(self, *pair) for pair in zip(readers, self.nodes, strict=True)]
        self._tasks = [asyncio.create_task(member.live()) for member in (*self._members, *self._followers)]

    async def until_worth_a_try(self, next_start: asyncio.Event) -> None:
        """There is another node at any time."""
        await asyncio.sleep(TRY_AGAIN_SECONDS)

    async def until_said(self, messages: int) -> None:
        """Wait until so many more are acknowledged."""
        enough = sum(self.acknowledged.values()) + messages
        await self._until(lambda: sum(self.acknowledged.values()) >= enough)

    async def finish(self) -> None:
        """Everybody sends what is left; then the followers of every node have all of it."""
        self.over = True
        await self._until(lambda: all(member.is_done() for member in self._members))
        self.is_settled = True
        await self._until(lambda: all(follower.is_done() for follower in self._followers))
        await asyncio.gather(*self._tasks)

    async def _until(self, holds: Callable[[], bool]) -> None:
        """What is waited for must come soon, and nobody may be disappointed meanwhile."""

        def holds_or_failed() -> bool:
            return holds() or self.failed_member() is not None

        try:
            await eventually(holds_or_failed, GO_ON_SECONDS_MAX)
        except TimeoutError:
            positions = [follower.positions for follower in self._followers]
            raise AssertionError(f"acknowledged {self.acknowledged}, followers at {positions}") from None
        error = self.failed_member()
        if error is not None:
            raise error


@asynccontextmanager
async def gathered(
    cluster: ClusterProcess, session: ClientSession, random: Random, *, rings: bool = False
) -> AsyncIterator[ClusterCrowd]:
    """A crowd that talks, and those outside to whom everything is delivered."""
    async with receiving_end(cluster, session, rings=rings) as end:
        crowd = ClusterCrowd(cluster, session, random, end)
        await crowd.gather()
        yield crowd


async def _new_group(http: HttpClient, members: list[Person]) -> str:
    """A store that has just started may be too slow at first; a chat that nobody was told of stays unused."""
    for _ in range(CREATE_TRIES_MAX - 1):
        with suppress(Unexpected):
            return await http.create_group(*members)
    return await http.create_group(*members)


def _but(everybody: list[Person], owner: Person) -> list[Person]:
    return [person for person in everybody if person is not owner]


class Roamer(Writer):
    """A writer that is at home on no node."""

    crowd: ClusterCrowd

    def client(self) -> RawClient:
        node = self.random.choice(self.crowd.nodes)
        return RawClient(
            self.crowd.session,
            node.url,
            self.person,
            observer=AckFirst(
                self.crowd.history, self.person, self.crowd.new_name(self.person), self.crowd.order
            ),
            deadline_seconds=PATIENCE_SECONDS,
        )


class Follower(Reader):
    """Has every position of every chat in order, from the log and then live, on one node."""

    crowd: ClusterCrowd

    def __init__(self, crowd: ClusterCrowd, person: Person, node: ServerProcess) -> None:
        super().__init__(crowd, person)
        self._node = node
        self.positions = dict.fromkeys(crowd.chat_ids, 0)

    def client(self) -> RawClient:
        return RawClient(
            self.crowd.session, self._node.url, self.person, observer=self.crowd.recording(self.person)
        )

    def is_done(self) -> bool:
        return self.crowd.is_settled and all(
            self.positions[chat_id] >= head for chat_id, head in self.crowd.acknowledged.items()
        )

    async def converse(self, client: RawClient) -> None:
        await self._look_around(client)
        for chat_id in self.crowd.chat_ids:
            await self._catch_up(client, chat_id)
        while not self.is_done():
            if client.ended is not None:
                raise client.ended
            await self._move_cursors(client)
            if self.random.random() < READ_SHARE:
                await self._catch_up(client, self.random.choice(self.crowd.chat_ids))
            await asyncio.sleep(LOOK_SECONDS)

    async def _catch_up(self, client: RawClient, chat_id: str) -> None:
        is_complete = False
        while not is_complete:
            limit = self.random.choice([7, 100, 1000])
            page = await client.sync(chat_id, self.positions[chat_id], limit)
            if page["type"] != "message_batch":
                raise Unexpected(str(page))
            self.positions[chat_id] = page["to_sequence"]
            is_complete = page["complete"]

    async def _move_cursors(self, client: RawClient) -> None:
        """Follow what came live, and acknowledge it; the answered heartbeat makes that a promise."""
        came, client.unasked = client.unasked, []
        moved: dict[str, int] = {}
        for frame in came:
            if frame["type"] == "messages":
                moved[frame["chat_id"]] = self._follow(frame)
        for chat_id, sequence in moved.items():
            await client.tell("ack", chat_id=chat_id, last_acked_sequence=sequence)
        if (await client.heartbeat())["type"] == "heartbeat_ack":
            self._kept.update(moved)

    def _follow(self, frame: Frame) -> int:
        """Step over the positions of a frame; whatever committed after the welcome must be among them."""
        chat_id = frame["chat_id"]
        sequences = sorted([*(entry["sequence"] for entry in frame["entries"]), *(frame.get("voids") or [])])
        for sequence in sequences:
            assert sequence <= self.positions[chat_id] + 1, f"{sequence} came after {self.positions[chat_id]}"
            self.positions[chat_id] = max(sequence, self.positions[chat_id])
        return int(sequences[-1])
