"""People and their connections to nodes: writers and readers."""

from __future__ import annotations

from collections.abc import Sequence

from bench import frames
from bench.connection import Role, connect_all
from bench.dynamodb.nodes import Nodes
from bench.measuring import until
from bench.roles import Load, Reader, Talker, Writer
from bench.world import Person, World

WRITERS = 100
READERS = 10
PAIRS = 100
WARM_SECONDS_MAX = 120

Pair = tuple[Person, Person, str]


class HotChat:
    """One chat with a hundred writers and ten readers."""

    def __init__(self, people: Sequence[Person], chat_id: str) -> None:
        self.writers = people[:WRITERS]
        self.readers = people[WRITERS:]
        self.chat_id = chat_id

    async def connect(self, load: Load, nodes: Nodes, writing: Sequence[int], reading: Sequence[int]) -> None:
        """Writers and readers in turn to the nodes with these numbers; then all writers write."""
        readers = [Reader(load) for _ in self.readers]
        writers = [Writer(load, self.chat_id) for _ in self.writers]
        await _connect(nodes, reading, self.readers, readers, live=True)
        await _connect(nodes, writing, self.writers, writers, live=False)
        await _start(load, writers)


async def hot_chat(world: World) -> HotChat:
    people = await world.people(WRITERS + READERS)
    return HotChat(people, await world.group(people))


async def pairs(world: World) -> list[Pair]:
    people = await world.people(2 * PAIRS)
    couples = zip(people[::2], people[1::2], strict=True)
    return [(one, other, await world.direct(one, other)) for one, other in couples]


async def talk(load: Load, nodes: Nodes, talking: list[Pair]) -> None:
    """Both of each pair write with one message in flight; of two nodes, partners are on different ones."""
    people = [person for one, other, _ in talking for person in (one, other)]
    talkers = [
        Talker(load, chat_id, partner.user_id) for one, other, chat_id in talking for partner in (other, one)
    ]
    await _connect(nodes, range(len(nodes)), people, talkers, live=True)
    await _start(load, talkers)


async def write_apart(load: Load, nodes: Nodes, talking: list[Pair], writing: int, reading: int) -> None:
    """One of each pair writes on one node, and the other reads on another."""
    writers = [Writer(load, chat_id) for _, _, chat_id in talking]
    readers = [Reader(load) for _ in talking]
    await _connect(nodes, [reading], [other for _, other, _ in talking], readers, live=True)
    await _connect(nodes, [writing], [one for one, _, _ in talking], writers, live=False)
    await _start(load, writers)


async def _start(load: Load, writers: Sequence[Writer]) -> None:
    """Start all writers, and wait until each has an answer: the first message of a chat fills the caches."""
    for writer in writers:
        writer.start()
    if not await until(lambda: load.acks >= 2 * len(writers), WARM_SECONDS_MAX):
        load.note_problem("the first messages were not answered in time")


async def _connect(
    nodes: Nodes, chosen: Sequence[int], people: Sequence[Person], roles: Sequence[Role], live: bool
) -> None:
    hellos = [frames.hello(person.token, person.device_id, live) for person in people]
    for turn, number in enumerate(chosen):
        mine = list(zip(hellos, roles, strict=True))[turn :: len(chosen)]
        await connect_all(nodes[number].address, mine, at_once=10)
