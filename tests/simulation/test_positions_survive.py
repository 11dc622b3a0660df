"""kill -9 under acks and receipts: how far somebody is never falls behind what an answer has promised.

A position counts as promised once anything was answered on its connection after it: a heartbeat, a page, an
overview, a send. Rounds, seed and moments are those of `test_kill_minus_nine`.
"""

import asyncio
from itertools import cycle, islice
from pathlib import Path
from random import Random

import pytest
from aiohttp import ClientSession

from parley.testing import faults
from tests.harness.clients import Frame, HttpClient, Person, RawClient, Unexpected
from tests.harness.server import ServerProcess, run_parley
from tests.seeds import ROUNDS, SEED
from tests.selection import thorough
from tests.simulation.crowd import Crowd, Member
from tests.simulation.test_kill_minus_nine import AT_RANDOM, MOMENTS, ROUND_SECONDS_MAX, die

REPORTS_MAX = 5
KINDS = ("ack", "ack", "delivery_receipt", "read_receipt", "read_receipt", "read_by_id")

Place = tuple[str, ...]
"""A chat and whose position in it: a person's, or with a third name a device's."""


class Known:
    """What was promised and what was said, by everybody together: the truth lies between the two."""

    def __init__(self) -> None:
        self.promised: dict[Place, int] = {}
        self.said: dict[Place, int] = {}
        self.message_ids: dict[str, dict[int, str]] = {}
        """Of each chat what was acknowledged: positions up to the last of them are within the log."""
        self.reports = 0

    def stored(self, ack: Frame) -> None:
        self.message_ids[ack["chat_id"]][ack["sequence"]] = ack["message_id"]

    def last(self, chat_id: str) -> int:
        return max(self.message_ids[chat_id], default=0)

    def promised_delivered(self, chat_id: str, user_id: str) -> int:
        """Everything of a person in a chat, read or acknowledged by whichever device."""
        return max((at for place, at in self.promised.items() if place[:2] == (chat_id, user_id)), default=0)

    def check(self, place: Place, found: int, head: int, promised: dict[Place, int]) -> None:
        assert promised.get(place, 0) <= found, f"{place} fell back to {found}"
        assert found <= min(self.said.get(place, 0), head), f"{place} is at {found}: nobody said so"


class Movers(Crowd):
    """Three people with two devices each, a group and a direct chat."""

    known: Known
    people: list[Person]

    @property
    def url(self) -> str:
        """Whom somebody who connects talks to."""
        return self.server.url

    async def gather(self) -> None:
        http = HttpClient(self.session, self.server.url)
        names = ("ann", "ben", "cat")
        ann, ben, cat = await asyncio.gather(*(http.newcomer(name) for name in names))
        self.people = [ann, ben, cat, *[await http.login(name, "desk") for name in names]]
        self.chat_ids = [await http.of(ann).create_group(ben, cat), await http.of(ann).create_direct(ben)]
        self.known = Known()
        self.known.message_ids = {chat_id: {} for chat_id in self.chat_ids}
        self._members = [Mover(self, person, self.known) for person in self.people]
        self._tasks = [asyncio.create_task(member.live()) for member in self._members]


class Mover(Member):
    """A device that writes, and says all the time how far it and its person are."""

    crowd: Movers

    def __init__(self, crowd: Movers, person: Person, known: Known) -> None:
        super().__init__(crowd, person)
        self.known = known
        self.chat_ids = crowd.chat_ids if person.username != "cat" else crowd.chat_ids[:1]
        self._cursors: dict[str, int] = {}
        """Where the server has this device, by what it said when the connection began and what followed."""
        self._unanswered: dict[Place, int] = {}

    def client(self) -> RawClient:
        return RawClient(self.crowd.session, self.crowd.url, self.person)

    async def converse(self, client: RawClient) -> None:
        self._unanswered.clear()
        await self._look_around(client)
        while not self.crowd.over:
            chat_id = self.random.choice(self.chat_ids)
            for _ in range(self.random.randint(0, REPORTS_MAX)):
                await self._report(client, chat_id)
            await self._be_answered(client, chat_id)
            await self.pause()

    async def _look_around(self, client: RawClient) -> None:
        """The overview has every position that was promised before it was asked for."""
        promised = dict(self.known.promised)
        overview = await client.request("sync_overview")
        if overview["type"] == "refused":
            raise Unexpected(str(overview))
        for row in overview["chats"]:
            chat_id, head, cursor = row["chat_id"], row["head"], row["last_acked_sequence"]
            self.known.check(self._own(chat_id), cursor, head, promised)
            self.known.check(self._shared(chat_id), row["read_up_to"], head, promised)
            self._cursors[chat_id] = cursor

    def _own(self, chat_id: str) -> Place:
        return chat_id, self.person.user_id, self.person.device_id

    def _shared(self, chat_id: str) -> Place:
        return chat_id, self.person.user_id

    async def _report(self, client: RawClient, chat_id: str) -> None:
        known, kind = self.known, self.random.choice(KINDS)
        ids, sequence = known.message_ids[chat_id], self.random.randint(0, known.last(chat_id))
        if kind == "delivery_receipt":
            sequence = self._cursors[chat_id] + 1
        if kind in ("delivery_receipt", "read_by_id") and sequence not in ids:
            return
        is_read = kind.startswith("read")
        self._say(self._shared(chat_id) if is_read else self._own(chat_id), sequence)
        if is_read:
            up_to = sequence if kind == "read_receipt" else ids[sequence]
            await client.tell("read_receipt", conversation_id=chat_id, read_up_to=up_to)
            return
        self._cursors[chat_id] = max(self._cursors[chat_id], sequence)
        if kind == "ack":
            await client.tell("ack", chat_id=chat_id, last_acked_sequence=sequence)
        else:
            await client.tell("delivery_receipt", conversation_id=chat_id, message_id=ids[sequence])

    def _say(self, place: Place, sequence: int) -> None:
        said, unanswered = self.known.said, self._unanswered
        said[place] = max(sequence, said.get(place, 0))
        unanswered[place] = max(sequence, unanswered.get(place, 0))
        self.known.reports += 1

    async def _be_answered(self, client: RawClient, chat_id: str) -> None:
        """Any answer will do: from then on everything before it is a promise."""
        kind = self.random.choice(["heartbeat", "sync_overview", "sync", "send", "send", "send"])
        if kind == "send":
            answer = await client.send_message(chat_id, "hi")
        elif kind == "sync":
            answer = await client.sync(chat_id, self.known.last(chat_id))
        else:
            answer = await client.request(kind)
        if answer["type"] == "refused":
            assert answer["temporary"], answer
            raise Unexpected(str(answer))  # it may have lost what it was told, and asks again
        if kind == "send":
            self.known.stored(answer)
        refused = client.heard("refused")
        assert not refused, refused
        client.unasked.clear()
        self._keep_promises()

    def _keep_promises(self) -> None:
        promised = self.known.promised
        for place, sequence in self._unanswered.items():
            promised[place] = max(sequence, promised.get(place, 0))
        self._unanswered.clear()


@pytest.mark.timeout(60 + ROUNDS * ROUND_SECONDS_MAX)
@pytest.mark.parametrize("mode", ["atomic", thorough("two_phase", "the same in the other mode")])
async def test_answered_positions_survive(mode: str, tmp_path: Path) -> None:
    """However often and wherever the server is killed, no position goes back, nor beyond its log."""
    random = Random(f"{SEED} {mode} positions")
    server = ServerProcess(tmp_path / "data", {"PARLEY_STORE_SEQUENCING": mode})
    moments = [label for label in MOMENTS[mode] if label in faults.LABELS] + [AT_RANDOM] * 3
    async with ClientSession() as session:
        crowd = Movers(server, session, random)
        try:
            await asyncio.to_thread(server.start)
            await crowd.gather()
            for moment in islice(cycle(moments), ROUNDS // 2):
                await die(crowd, moment)
            await asyncio.to_thread(server.restart)
            await crowd.finish()
            await asyncio.to_thread(server.restart)
            for person in crowd.people:
                await assert_promises_kept(crowd, HttpClient(session, server.url).of(person), person)
        finally:
            await asyncio.to_thread(server.kill)
    assert crowd.known.reports > ROUNDS, "the crowd hardly got a word in"
    checked = run_parley("check", "--data", str(server.data))
    assert checked.returncode == 0, checked.stdout + checked.stderr


async def assert_promises_kept(crowd: Movers, http: HttpClient, person: Person) -> None:
    """Cursor, read and delivered positions of a device and its person, after the last kill of all."""
    known, seed = crowd.known, f"seed {SEED}"
    for row in (await http.get("/v1/chats")).body["chats"]:
        chat_id, head = row["chat_id"], row["head"]
        assert head >= known.last(chat_id), seed
        own, shared = (chat_id, person.user_id, person.device_id), (chat_id, person.user_id)
        known.check(own, row["last_acked_sequence"], head, known.promised)
        known.check(shared, row["read_up_to"], head, known.promised)
        marks = (await http.get(f"/v1/chats/{chat_id}/receipts")).body["marks"]
        for mark in marks:
            promised = known.promised_delivered(chat_id, mark["user_id"])
            assert promised <= mark["delivered_up_to"] <= head, seed
            assert mark["read_up_to"] <= mark["delivered_up_to"], seed
