"""One server that is stopped and started, everybody's sockets, and what they said and heard."""

import itertools
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from random import Random
from typing import NamedTuple

from parley.clock import iso
from parley.store.sqlite.command_connection import command_connection, writing
from tests.harness.clients import Frame, HttpClient, Person, RawClient
from tests.harness.clock import VirtualClock
from tests.integration.gateway.people_model.events import Came, LoggedIn, Revoked, Went
from tests.integration.gateway.people_model.world import Chat, World
from tests.integration.gateway.serving import Place, Served
from tests.integration.gateway.two_nodes import Pick, ServedByTwo, TwoNodes
from tests.waiting import eventually

STEP_MS = 7
SHARED_START_MS = 4_102_444_800_000
"""2100-01-01: DynamoDB Local forgets what has run out by its own clock."""
DEVICES = (
    ("ann", "phone"),
    ("ann", "laptop"),
    ("ben", "phone"),
    ("ben", "tablet"),
    ("ben", "watch"),
    ("cem", "phone"),
    ("dan", "phone"),
    ("eve", "phone"),
)
PEOPLE = ("ann", "ben", "cem", "dan", "eve")

Device = tuple[str, str]
Entries = dict[int, tuple[str, object]]
"""By position: who said it, and what."""


class Listed(NamedTuple):
    """A chat list as a device knew it, and the token of it. `brief`: of each chat the positions alone."""

    token: str
    rows: dict[str, Frame]
    brief: bool


NOTHING_LISTED = Listed("", {}, False)


class Town:
    """`is_shared`: on two nodes, where everybody uses either of them for whatever they do next."""

    def __init__(self, place: Place | TwoNodes, random: Random, unread_max: int) -> None:
        self._place = place
        self.is_shared = isinstance(place, TwoNodes)
        self._chance_of_nodes = Random(random.random())
        self._stack = AsyncExitStack()
        self.is_atomic = place.settings["PARLEY_STORE_SEQUENCING"] == "atomic"
        self.numbers = itertools.count(1)
        self.random = random
        self.clock = VirtualClock(SHARED_START_MS) if self.is_shared else VirtualClock()
        self.world = World(unread_max)
        self.served: Served
        self.logins: dict[Device, list[Person]] = {device: [] for device in DEVICES}
        """Of each device the sessions that hold, the one in use first."""
        self.clients: dict[Device, RawClient] = {}
        self.lists: dict[Device, list[Listed]] = {device: [NOTHING_LISTED] for device in DEVICES}

    async def begin(self) -> None:
        """People with one to three devices each, two groups and a direct chat; of them eve is in none."""
        await self._serve()
        for username in PEOPLE:
            await self.served.http.register(username)
        for device in DEVICES:
            await self.log_in(device)
        await self.create("group", "ann", "ben", "cem")
        await self.create("direct", "ann", "ben")
        await self.create("group", "ben", "ann", "dan")
        for device in DEVICES:
            await self.connect(device)

    async def create(self, kind: str, owner: str, *others: str) -> None:
        ids = [self.user_id(name) for name in others]
        group = {"title": f"of {owner}", "open_to_join": True} if kind == "group" else {}
        answer = await self.http(owner).post("/v1/chats", {"type": kind, "member_ids": ids, **group})
        assert answer.status == 201, answer
        chat_id, owner_id = answer.body["chat_id"], self.user_id(owner)
        chat = Chat(chat_id, kind, answer.body["title"], owner_id, (owner_id, *ids))
        self.world.chats[chat_id] = chat

    # Coming and going

    async def _serve(self) -> None:
        if isinstance(self._place, TwoNodes):
            serving = self._place.serving(clock=self.clock, pick=self._either)
            self.served = await self._stack.enter_async_context(serving)
        else:
            self.served = await self._stack.enter_async_context(self._place.serving(clock=self.clock))

    def _either(self, nodes: Sequence[Served]) -> Pick:
        return lambda person: self._chance_of_nodes.choice(nodes)

    async def leave(self) -> list[Device]:
        """Everybody closes their sockets properly, then the server stops; the devices that were there."""
        here = list(self.clients)
        for device in here:
            await self._close(device)
        await self._stack.aclose()
        return here

    async def restart(self) -> None:
        here = await self.leave()
        await self._serve()
        for device in here:
            await self.connect(device)

    async def connect(self, device: Device) -> None:
        client = self.served.client(self.logins[device][0])
        await client.connect()
        self.clients[device] = client
        self.world.events.append(Came(client.person.user_id, device[1], self.now()))

    async def disconnect(self, device: Device) -> None:
        """Close it properly; gone once the registry knows."""
        user, registry = self.user_id(device[0]), self.served.app.ephemeral.registry
        await self._close(device)

        async def is_gone() -> bool:
            return device[1] not in (await registry.whereabouts([user])).get(user, {})

        await eventually(is_gone)

    async def _close(self, device: Device) -> None:
        client = self.clients.pop(device)
        await client.close()
        self.world.events.append(Went(client.person.user_id, device[1], self.now()))

    async def log_in(self, device: Device) -> Person:
        """One more session of a device."""
        person = await self.served.http.login(*device)
        self.logins[device].append(person)
        self.world.events.append(LoggedIn(person.user_id, device[1], person.session_id))
        return person

    async def logged_out(self, device: Device, sessions: list[Person]) -> None:
        """These have been ended: the socket of one of them closes, and with the last all is forgotten."""
        was_used, was_here = self.logins[device][0] in sessions, device in self.clients
        for person in sessions:
            self.logins[device].remove(person)
            self.world.events.append(Revoked(person.user_id, person.session_id))
        if not self.logins[device]:
            self.lists[device] = [NOTHING_LISTED]
            await self.log_in(device)
        if was_used and was_here:
            await self.clients[device].until_ended()
            await self.disconnect(device)
            await self.connect(device)

    # Whom and what a step is about

    @property
    def chats(self) -> list[Chat]:
        return list(self.world.chats.values())

    def groups(self) -> list[Chat]:
        return [chat for chat in self.chats if chat.type == "group"]

    def user_id(self, username: str) -> str:
        return self.logins[username, "phone"][0].user_id

    def http(self, username: str, device: str = "phone") -> HttpClient:
        return self.served.as_(self.logins[username, device][0])

    def is_member(self, username: str, chat: Chat) -> bool:
        return self.user_id(username) in chat.members()

    def owner(self, chat: Chat) -> str:
        return next(name for name in PEOPLE if self.user_id(name) == chat.owner)

    def here(self) -> list[Device]:
        """The devices that have a socket."""
        return list(self.clients)

    def now(self) -> str:
        return iso(self.clock())

    def pass_time(self) -> str:
        return iso(self.clock.advance(STEP_MS))

    def why_refused(self, username: str, chat: Chat) -> str | None:
        """Why somebody may not write into a chat."""
        if not self.is_member(username, chat):
            return "not_a_member"
        return "blocked" if self.world.is_silenced(self.user_id(username), chat) else None

    # Logs

    async def grow(self, chat: Chat, expected: Entries, *, sealed: bool = False, raced: bool = False) -> None:
        """Take over what is new in the log, once it is exactly what the server had promised.

        What was taken and abandoned is void once anything comes behind it, or it was sealed. Who raced with a
        change may leave voids of their own where numbers are taken first.
        """
        entries, voids = await self._news(chat)
        assert {entry["sequence"]: (entry["sender_id"], _body(entry)) for entry in entries} == expected
        certain = chat.taken if expected or sealed else []
        assert set(certain) <= set(voids)
        assert voids == certain or (raced and not self.is_atomic), (voids, certain)
        chat.log += entries
        chat.voids += voids
        chat.taken = [] if voids else chat.taken

    async def _news(self, chat: Chat) -> tuple[list[Frame], list[int]]:
        entries, voids, after = list[Frame](), list[int](), chat.head
        while True:
            path = f"/v1/chats/{chat.chat_id}/messages"
            page = (await self.http(self.owner(chat)).get(path, after=after)).body
            entries += page["entries"]
            voids += page["voids"]
            after = page["to_sequence"]
            if page["complete"]:
                assert after == page["head"]
                return entries, voids

    def abandon(self, chat: Chat) -> None:
        """A process takes the next number of a chat and dies before it writes anything there."""
        assert isinstance(self._place, Place)
        number = chat.head + len(chat.taken) + 1
        with command_connection(self._place.folder, read_only=False) as connection, writing(connection):
            connection.execute(
                "UPDATE chat_counters SET sequence_counter = ? WHERE chat_id = ?", (number, chat.chat_id)
            )
            connection.execute(
                "INSERT INTO open_allocations (chat_no, sequence, allocated_at_ms)"
                " SELECT chat_no, ?, ? FROM chats WHERE chat_id = ?",
                (number, self.clock(), chat.chat_id),
            )
        chat.taken.append(number)

    # Sockets

    async def settle(self) -> None:
        """What one node knows by now, the other knows too."""
        if isinstance(self.served, ServedByTwo):
            await self.served.settle({chat.chat_id: chat.head for chat in self.chats})

    async def drain(self) -> None:
        """What was on its way to any socket has come, and is forgotten: from now on other rules hold."""
        await self.settle()
        for client in self.clients.values():
            assert (await client.heartbeat())["type"] == "heartbeat_ack"
            client.unasked.clear()


def _body(entry: Frame) -> object:
    return entry["content"] if entry["kind"] == "message" else json.loads(entry["content"])
