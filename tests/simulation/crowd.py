"""A crowd that goes on talking whatever happens to the server, and remembers what it was promised.

Writers pipeline, name their predecessors, and resend in order what was not acknowledged. A reader follows
live and moves its cursor. Everything they say and hear is one history.
"""

import asyncio
import uuid
from itertools import count
from random import Random

from aiohttp import ClientError, ClientSession

from tests.harness.clients import Disconnected, Frame, HttpClient, Person, RawClient, Unexpected
from tests.harness.history import History
from tests.harness.recording import Recording
from tests.harness.server import ServerProcess

WINDOW_MAX = 16
PAUSE_SECONDS_MAX = 0.004
RETRY_PAUSE_SECONDS = 0.05
AGAIN_SHARE = 0.1
CONTENTS = ("plain", "NUL \x00 inside", "emoji 👋🏽", 'quotes " and \\', "x" * 2_000, "line\u2028end")
LOST = (Disconnected, Unexpected, ClientError, OSError, TimeoutError)

Message = tuple[str, str]
"""Client message id and content."""


class Crowd:
    """Everybody, and what they share: the server's address, whether it is up, when it is over."""

    def __init__(self, server: ServerProcess, session: ClientSession, random: Random) -> None:
        self.server = server
        self.session = session
        self.random = random
        self.history = History()
        self.chat_ids: list[str] = []
        self.acknowledged: dict[str, int] = {}
        self.over = False
        self._members: list[Member] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._start = asyncio.Event()
        self._connections = count(1)

    async def gather(self) -> None:
        """Accounts, devices and two chats, while the server is well."""
        http = HttpClient(self.session, self.server.url)
        names = ("ann", "ben", "cat")
        ann, ben, cat = await asyncio.gather(*(http.newcomer(name) for name in names))
        desk = await http.login("ann", "desk")
        self.chat_ids = [await http.of(ann).create_group(ben, cat), await http.of(ben).create_group(ann, cat)]
        self.acknowledged = dict.fromkeys(self.chat_ids, 0)
        self._members = [Writer(self, person) for person in (ann, desk, ben)] + [Reader(self, cat)]
        self._tasks = [asyncio.create_task(member.live()) for member in self._members]

    def server_is_up(self) -> None:
        """Whoever lost the server tries again now."""
        self._start.set()
        self._start = asyncio.Event()

    @property
    def next_start(self) -> asyncio.Event:
        """Is set when the server comes up after now."""
        return self._start

    async def finish(self) -> None:
        """Everybody sends what is left and hears what became of it."""
        self.over = True
        self.server_is_up()
        await asyncio.gather(*self._tasks)

    async def until_worth_a_try(self, next_start: asyncio.Event) -> None:
        """Whoever lost the server waits until there is a reason to try again."""
        await next_start.wait()

    def client(self, person: Person) -> RawClient:
        return RawClient(self.session, self.server.url, person, observer=self.recording(person))

    def recording(self, person: Person) -> Recording:
        """What a new connection of this person says and hears."""
        return Recording(self.history, person, self.new_name(person))

    def new_name(self, person: Person) -> str:
        return f"{person.username}/{person.device_id}#{next(self._connections)}"

    def failed_member(self) -> BaseException | None:
        """What broke somebody's own expectations, if anything did."""
        done = [task for task in self._tasks if task.done() and not task.cancelled()]
        return next((error for task in done if (error := task.exception()) is not None), None)


class Member:
    """Somebody with one device who comes back whenever the server does."""

    def __init__(self, crowd: Crowd, person: Person) -> None:
        self.crowd = crowd
        self.person = person
        self.random = Random(crowd.random.random())

    async def live(self) -> None:
        while not self.is_done():
            next_start = self.crowd.next_start
            try:
                async with self.client() as client:
                    await self.converse(client)
            except LOST:
                await self.crowd.until_worth_a_try(next_start)

    def client(self) -> RawClient:
        return self.crowd.client(self.person)

    def is_done(self) -> bool:
        return self.crowd.over

    async def converse(self, client: RawClient) -> None:
        raise AssertionError("every kind of member does this its own way")

    async def pause(self) -> None:
        await asyncio.sleep(self.random.uniform(0, PAUSE_SECONDS_MAX))


class Writer(Member):
    """Keeps its messages in order until each is acknowledged."""

    def __init__(self, crowd: Crowd, person: Person) -> None:
        super().__init__(crowd, person)
        self._pending: dict[str, list[Message]] = {chat_id: [] for chat_id in crowd.chat_ids}
        self._stored: list[tuple[str, Message]] = []
        self._number = count(1)

    def is_done(self) -> bool:
        return self.crowd.over and not any(self._pending.values())

    async def converse(self, client: RawClient) -> None:
        while not self.is_done():
            chat_id = self.random.choice(self.crowd.chat_ids)
            self._think_of(chat_id)
            if not await self._send(client, chat_id):
                await asyncio.sleep(RETRY_PAUSE_SECONDS)
            if self._stored and self.random.random() < AGAIN_SHARE:
                await self._send_again(client)
            await self.pause()

    def _think_of(self, chat_id: str) -> None:
        """New messages behind those that are still to be acknowledged."""
        pending = self._pending[chat_id]
        if not self.crowd.over and not pending:
            for _ in range(self.random.randint(1, WINDOW_MAX)):
                text = f"{self.person.device_id} {next(self._number)} {self.random.choice(CONTENTS)}"
                pending.append((str(uuid.UUID(int=self.random.getrandbits(128), version=4)), text))

    async def _send(self, client: RawClient, chat_id: str) -> bool:
        """Pipeline what is pending in its order; whether all of it was acknowledged."""
        sent, previous = [], None
        for message in self._pending[chat_id]:
            answer = await client.post_message(
                chat_id, message[1], message[0], after_client_message_id=previous
            )
            sent.append((message, answer))
            previous = message[0]
        for message, answer in sent:
            self._hear(chat_id, message, await client.answered(answer))
        return not self._pending[chat_id]

    def _hear(self, chat_id: str, message: Message, frame: Frame) -> None:
        if frame["type"] == "ack":
            self._pending[chat_id].remove(message)
            self._stored.append((chat_id, message))
            self.crowd.acknowledged[chat_id] = max(frame["sequence"], self.crowd.acknowledged[chat_id])
        else:
            assert frame["temporary"], f"refused for good: {frame}"

    async def _send_again(self, client: RawClient) -> None:
        """A retry of what was acknowledged long ago is answered as it was."""
        chat_id, (client_message_id, content) = self.random.choice(self._stored)
        frame = await client.send_message(chat_id, content, client_message_id)
        assert frame["type"] == "refused" or frame["deduplicated"], f"stored again: {frame}"


class Reader(Member):
    """Reads what it missed, follows live, and moves its cursor."""

    def __init__(self, crowd: Crowd, person: Person) -> None:
        super().__init__(crowd, person)
        self._read = dict.fromkeys(crowd.chat_ids, 0)
        self._kept = dict.fromkeys(crowd.chat_ids, 0)

    async def converse(self, client: RawClient) -> None:
        await self._look_around(client)
        for chat_id in self.crowd.chat_ids:
            entries = await client.sync_all(
                chat_id, self._read[chat_id], limit=self.random.choice([7, 100, 1000])
            )
            self._read[chat_id] = max([self._read[chat_id], *(entry["sequence"] for entry in entries)])
        while not self.crowd.over:
            await self._move_cursors(client)
            await self.pause()

    async def _look_around(self, client: RawClient) -> None:
        """The overview has every head that was acknowledged, and every cursor that was promised."""
        acknowledged = dict(self.crowd.acknowledged)
        overview = await client.request("sync_overview")
        if overview["type"] == "refused":
            raise Unexpected(str(overview))
        chats = {chat["chat_id"]: chat for chat in overview["chats"]}
        for chat_id in self.crowd.chat_ids:
            visible = chats[chat_id]["head"] >= acknowledged[chat_id]
            assert visible, "an acknowledged message is not in the overview"
            cursor = chats[chat_id]["last_acked_sequence"]
            assert self._kept[chat_id] <= cursor <= chats[chat_id]["head"], "a cursor moved back or ahead"

    async def _move_cursors(self, client: RawClient) -> None:
        """Acknowledge what came live; the answered heartbeat after it makes that a promise."""
        moved: dict[str, int] = {}
        for chat_id in self.crowd.chat_ids:
            live = client.live_entries(chat_id)
            if live:
                moved[chat_id] = live[-1]["sequence"]
                await client.tell("ack", chat_id=chat_id, last_acked_sequence=moved[chat_id])
        client.unasked.clear()
        if (await client.heartbeat())["type"] == "heartbeat_ack":
            self._kept.update(moved)
