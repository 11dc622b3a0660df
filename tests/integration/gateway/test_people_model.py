"""Whatever people and their devices do, in whatever order: ticks, unread counts and chat lists never drift.

A whole server, and beside it everything worked out anew from its logs and what was said to it. Each seed is
one course of events; a failure names its steps.
"""

import asyncio
import itertools
import json
from contextlib import AsyncExitStack
from random import Random
from typing import NamedTuple

import pytest

from parley.clock import iso
from parley.testing.clients import Frame, HttpClient, Person, RawClient
from parley.testing.clock import VirtualClock
from tests.integration.gateway.naive import Acked, Chat, DeviceRemoved, Muted, Read, SendsReads, World
from tests.integration.gateway.serving import Place, Served

SEEDS = range(4)
STEPS = 50
STEP_MS = 7
SAMPLED = 3
DEVICES = (
    ("ann", "phone"),
    ("ann", "laptop"),
    ("ben", "phone"),
    ("ben", "tablet"),
    ("ben", "watch"),
    ("cem", "phone"),
    ("dan", "phone"),
)
PEOPLE = ("ann", "ben", "cem", "dan")
KINDS = ("ack", "ack", "delivery_receipt", "delivery_receipt", "read_receipt", "read_receipt")
SHARES = (0, 0.2, 0.4, 0.5, 0.7, 0.9, 1, 1, 1, 1.1)
MODES = ("full", "simple", "none")
TIMES = (None, "2999-01-01T00:00:00.000Z", "2020-01-01T00:00:00.000Z")

Device = tuple[str, str]


class Wish(NamedTuple):
    """What a device wants to say of how far it, or its person, is.

    `share` of the log, beyond its end above 1; `by_id`: by the id of what is there.
    """

    kind: str
    device: Device
    chat: Chat
    share: float
    by_id: bool


class Town:
    """One server that is stopped and started, everybody's sockets, and what they said and heard."""

    def __init__(self, place: Place, random: Random) -> None:
        self._place = place
        self._stack = AsyncExitStack()
        self._numbers = itertools.count(1)
        self.random = random
        self.clock = VirtualClock()
        self.world = World()
        self.served: Served
        self.persons: dict[Device, Person] = {}
        self.clients: dict[Device, RawClient] = {}
        self.lists: dict[Device, tuple[str, dict[str, Frame]]] = {}
        """Of each device the last token and the chat list as its answers left it."""
        self.chats: list[Chat] = []

    async def begin(self) -> None:
        """Four people with one to three devices each, two groups and a direct chat."""
        await self._serve()
        for username in PEOPLE:
            await self.served.http.register(username)
        for device in DEVICES:
            self.persons[device] = await self.served.http.login(*device)
            self.lists[device] = "", {}
        await self._create("group", "ann", "ben", "cem")
        await self._create("direct", "ann", "ben")
        await self._create("group", "ben", "ann", "dan")
        for device in DEVICES:
            await self._connect(device)

    async def _create(self, kind: str, owner: str, *others: str) -> None:
        ids = [self.user_id(name) for name in others]
        group = {"title": f"of {owner}", "open_to_join": True} if kind == "group" else {}
        answer = await self.http(owner).post("/v1/chats", {"type": kind, "member_ids": ids, **group})
        assert answer.status == 201, answer
        chat_id, owner_id = answer.body["chat_id"], self.user_id(owner)
        chat = Chat(chat_id, kind, answer.body["title"], owner_id, (owner_id, *ids))
        self.world.chats[chat_id] = chat
        self.chats.append(chat)

    async def _serve(self) -> None:
        self.served = await self._stack.enter_async_context(self._place.serving(clock=self.clock))

    async def leave(self) -> None:
        """Everybody closes their sockets properly, then the server stops."""
        for client in self.clients.values():
            await client.close()
        self.clients.clear()
        await self._stack.aclose()

    async def _connect(self, device: Device) -> None:
        client = self.served.client(self.persons[device])
        await client.connect()
        self.clients[device] = client

    # Whom and what a step is about

    def user_id(self, username: str) -> str:
        return self.persons[username, "phone"].user_id

    def http(self, username: str) -> HttpClient:
        return self.served.as_(self.persons[username, "phone"])

    def is_member(self, username: str, chat: Chat) -> bool:
        return self.user_id(username) in chat.members()

    def owner(self, chat: Chat) -> str:
        return next(name for name in PEOPLE if self.user_id(name) == chat.owner)

    def pass_time(self) -> str:
        return iso(self.clock.advance(STEP_MS))

    def wishes(self, count: int) -> list[Wish]:
        return [self._wish(self.random.choice(DEVICES)) for _ in range(count)]

    def _wish(self, device: Device) -> Wish:
        pick = self.random.choice
        return Wish(pick(KINDS), device, pick(self.chats), pick(SHARES), pick((True, False)))

    # Messages

    async def send(self) -> None:
        """Messages, all at once, from several devices into several chats."""
        self.pass_time()
        sent: list[tuple[Device, Chat, str, asyncio.Future[Frame]]] = []
        for _ in range(self.random.randint(1, 8)):
            device, chat = self.random.choice(DEVICES), self.random.choice(self.chats)
            content = f"message {next(self._numbers)}"
            posted = await self.clients[device].post_message(chat.chat_id, content)
            sent.append((device, chat, content, posted))
        expected: dict[str, dict[int, tuple[str, object]]] = {}
        for device, chat, content, posted in sent:
            answer = await self.clients[device].answered(posted)
            if self.is_member(device[0], chat):
                said = self.user_id(device[0]), content
                expected.setdefault(chat.chat_id, {})[answer["sequence"]] = said
            else:
                assert answer["code"] == "not_a_member", answer
        for chat_id, entries in expected.items():
            await self._grow(self.world.chats[chat_id], entries)

    async def _grow(self, chat: Chat, expected: dict[int, tuple[str, object]]) -> None:
        """Take over what is new in the log, once it is exactly what the server had promised."""
        entries = await self.clients[self.owner(chat), "phone"].sync_all(chat.chat_id, chat.head)
        assert {entry["sequence"]: (entry["sender_id"], _body(entry)) for entry in entries} == expected
        chat.log += entries

    # Positions

    async def report(self) -> None:
        """Acks and receipts of many devices at once: forwards, backwards and too far."""
        await self._report(self.wishes(self.random.randint(1, 12)))

    async def follow(self) -> None:
        """One device takes note of everything there is, step by step."""
        wish = self.wishes(1)[0]
        await self._report([wish._replace(share=share) for share in (0.25, 0.5, 0.75, 1)])

    async def restart(self) -> None:
        """Stop and start; what was said right before the end counts like everything else."""
        await self._say(self.wishes(self.random.randint(0, 6)))
        await self.leave()
        await self._serve()
        for device in DEVICES:
            await self._connect(device)

    async def _report(self, wishes: list[Wish]) -> None:
        said = await self._say(wishes)
        for device in {wish.device: None for wish in wishes}:
            assert (await self.clients[device].heartbeat())["type"] == "heartbeat_ack"
        for wish, code, answer in said:
            assert (answer.result()["code"] if answer.done() else None) == code, wish

    async def _say(self, wishes: list[Wish]) -> list[tuple[Wish, str | None, asyncio.Future[Frame]]]:
        """Say it without waiting, and note what must come of it: a refusal, or an event."""
        now, said = self.pass_time(), []
        for wish in wishes:
            chat = wish.chat
            sequence = int(chat.head * wish.share) + (wish.share > 1)
            fields, code = _frame(wish, sequence)
            if not self.is_member(wish.device[0], chat):
                code = "not_a_member"
            posted = await self.clients[wish.device].post(wish.kind, chat_id=chat.chat_id, **fields)
            said.append((wish, code, posted))
            if code is None:
                self._note(wish, sequence, now)
        return said

    def _note(self, wish: Wish, sequence: int, now: str) -> None:
        world, chat, user, device = self.world, wish.chat, self.user_id(wish.device[0]), wish.device[1]
        if wish.kind == "read_receipt":
            world.events.append(Read(user, chat.chat_id, sequence, now))
            return
        if wish.kind == "delivery_receipt":
            sequence = world.moves_cursor(user, device, chat, chat.at(sequence)["message_id"])
        world.events.append(Acked(user, device, chat.chat_id, sequence, now))

    # Members, settings and devices

    async def come_or_go(self) -> None:
        """Who is in a group leaves it or is removed; who is not joins or is added. Others go on talking."""
        chat = self.random.choice([chat for chat in self.chats if chat.type == "group"])
        username = self.random.choice([name for name in PEOPLE if name != self.owner(chat)])
        by_owner, user = self.random.random() < 0.5, self.user_id(username)
        actor, comes = self.owner(chat) if by_owner else username, not self.is_member(username, chat)
        path, http = f"/v1/chats/{chat.chat_id}/members", self.http(actor)
        self.pass_time()
        answer = await (http.post(path, {"user_id": user}) if comes else http.delete(f"{path}/{user}"))
        assert answer.status in (200, 201), answer
        action = "joined" if comes else "removed" if by_owner else "left"
        body = {"action": action, "user_id": user, "role": "member"}
        await self._grow(chat, {answer.body["sequence"]: (self.user_id(actor), body)})
        for device, client in self.clients.items():
            if device[0] == username:
                change = "joined" if comes else "left"
                await client.hear("chat_changed", chat_id=chat.chat_id, change=change)
        await self._report([wish._replace(chat=chat) for wish in self.wishes(3)])

    async def choose_mode(self) -> None:
        """What a chat tells of readers is chosen by its owner, in a direct chat by both."""
        chat, mode = self.random.choice(self.chats), self.random.choice(MODES)
        username = self.random.choice([self.owner(chat), *PEOPLE])
        self.pass_time()
        answer = await self.http(username).patch(f"/v1/chats/{chat.chat_id}", {"read_receipts": mode})
        user = self.user_id(username)
        if user == chat.owner or (chat.type == "direct" and self.is_member(username, chat)):
            assert (answer.status, answer.body["read_receipts"]) == (200, mode), answer
            body = {"action": "read_receipts", "read_receipts": mode}
            await self._grow(chat, {chat.head + 1: (user, body)})
        else:
            code = "forbidden" if self.is_member(username, chat) else "not_a_member"
            assert (answer.status, answer.body["code"]) == (403, code)

    async def choose_to_send_reads(self) -> None:
        """Somebody lets others know what they read, or no longer."""
        username, sends = self.random.choice(PEOPLE), self.random.random() < 0.7
        answer = await self.http(username).patch("/v1/me", {"send_read_receipts": sends})
        assert answer.status == 200, answer
        self.world.events.append(SendsReads(self.user_id(username), sends))

    async def mute(self) -> None:
        """Somebody mutes a chat for themself, if it is theirs."""
        chat, username = self.random.choice(self.chats), self.random.choice(PEOPLE)
        until = self.random.choice(TIMES)
        answer = await self.http(username).patch(f"/v1/chats/{chat.chat_id}", {"muted_until": until})
        assert answer.status == (200 if self.is_member(username, chat) else 403), answer
        if answer.status == 200:
            self.world.events.append(Muted(self.user_id(username), chat.chat_id, until))

    async def replace_device(self) -> None:
        """A device is removed, whatever it just said, and one of the same name starts from nothing."""
        device = self.random.choice(DEVICES)
        await self._report([self._wish(device) for _ in range(3)])
        removed = await self.http(device[0]).delete(f"/v1/devices/{device[1]}")
        assert removed.status == 204, removed
        await self.clients[device].until_ended()
        await self.clients[device].close()
        self.world.events.append(DeviceRemoved(self.user_id(device[0]), device[1]))
        self.persons[device] = await self.served.http.login(*device)
        self.lists[device] = "", {}
        await self._connect(device)

    # What must always hold

    async def _ask_what_changed(self, device: Device) -> None:
        """What changed since the last answer, put on top of it, is the whole list once it is complete."""
        to_the_end, limit = self.random.random() < 0.6, self.random.randint(1, 4)
        token, known = self.lists[device]
        while True:
            page = await self._overview(device, limit, token)
            for row in page["chats"]:
                known[row["chat_id"]] = row
                if row.get("left"):
                    assert (row["unread"], row["title"], row["last_entry"]) == (0, None, None)
                    del known[row["chat_id"]]
            token = page["token"]
            if page["complete"]:
                assert known == self._expected_rows(device)
            if page["complete"] or not to_the_end:
                break
        self.lists[device] = token, known

    async def _overview(self, device: Device, limit: int, token: str = "") -> Frame:
        since = {"changed_since": token} if token else {}
        page = await self.clients[device].request("sync_overview", limit=limit, **since)
        return {**page, "chats": list(map(_without_presence, page["chats"]))}

    def _expected_rows(self, device: Device) -> dict[str, Frame]:
        return self.world.rows(self.user_id(device[0]), device[1], iso(self.clock()))

    async def compare(self) -> None:
        """Every chat list and position, the receipts of some messages, and what was told live."""
        for device in DEVICES:
            await self._compare_list(device)
        for device in self.random.sample(DEVICES, 2):
            await self._ask_what_changed(device)
        for chat in self.chats:
            await self._compare_marks(chat)
        chat = self.random.choice(self.chats)
        await self.compare_receipts(chat, self.random.sample(chat.log, min(SAMPLED, len(chat.log))))
        for client in self.clients.values():
            self._check_told(client)

    async def _compare_list(self, device: Device) -> None:
        expected = self._expected_rows(device)
        page = await self._overview(device, 100)
        assert {row["chat_id"]: row for row in page["chats"]} == expected, device
        for row in expected.values():
            assert max(row["last_acked_sequence"], row["read_up_to"]) <= row["head"]
        listed = await self.served.as_(self.persons[device]).get("/v1/chats")
        assert {row["chat_id"]: _without_presence(row) for row in listed.body["chats"]} == expected

    async def _compare_marks(self, chat: Chat) -> None:
        """Every position of everybody, as each member sees it."""
        for username in PEOPLE:
            answer = await self.http(username).get(f"/v1/chats/{chat.chat_id}/receipts")
            if self.is_member(username, chat):
                assert answer.body == self.world.marks(self.user_id(username), chat)
            else:
                assert (answer.status, answer.body["code"]) == (403, "not_a_member")

    async def compare_receipts(self, chat: Chat, entries: list[Frame]) -> None:
        """The receipts of these, as each member sees them."""
        for username, entry in itertools.product(PEOPLE, entries):
            if self.is_member(username, chat):
                path = f"/v1/chats/{chat.chat_id}/messages/{entry['sequence']}/receipts"
                answer = await self.http(username).get(path)
                expected = self.world.receipts(self.user_id(username), chat, entry["sequence"])
                assert answer.body == expected, username

    def _check_told(self, client: RawClient) -> None:
        """What a socket is told of somebody only rises, and is no further than they are."""
        told: dict[tuple[str, str, str], int] = {}
        for frame in client.heard("receipt"):
            chat_id, user, kind, up_to = (
                frame[name] for name in ("chat_id", "user_id", "kind", "up_to_sequence")
            )
            if user is not None:
                position = self.world.read if kind == "read" else self.world.delivered
                assert told.get((chat_id, user, kind), 0) < up_to <= position(user, chat_id)[0]
                told[chat_id, user, kind] = up_to
        client.unasked.clear()


def _frame(wish: Wish, sequence: int) -> tuple[dict[str, object], str | None]:
    """The frame's own fields, and why a member would be refused."""
    is_there = 1 <= sequence <= wish.chat.head
    message_id = wish.chat.at(sequence)["message_id"] if is_there else "msg_nothing"
    if wish.kind == "delivery_receipt":
        return {"message_id": message_id}, None if is_there else "not_found"
    if wish.kind == "read_receipt" and wish.by_id:
        return {"read_up_to": message_id}, None if is_there else "not_found"
    code = "ahead_of_log" if sequence > wish.chat.head else None
    name = "read_up_to" if wish.kind == "read_receipt" else "last_acked_sequence"
    return {name: sequence}, code


def _body(entry: Frame) -> object:
    return entry["content"] if entry["kind"] == "message" else json.loads(entry["content"])


def _without_presence(row: Frame) -> Frame:
    """Who is there right now is told elsewhere; here only who it is."""
    peer = row["peer"]
    return {**row, "peer": peer["user_id"] if peer is not None else None}


STEPS_BY_WEIGHT = {
    Town.send: 6,
    Town.report: 6,
    Town.follow: 3,
    Town.come_or_go: 4,
    Town.choose_mode: 2,
    Town.choose_to_send_reads: 2,
    Town.mute: 1,
    Town.replace_device: 2,
    Town.restart: 1,
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_ever_drifts(either: Place, seed: int) -> None:
    """After any course of events positions, ticks, unread counts and chat lists equal the naive ones."""
    random = Random(seed)
    town, played = Town(either, random), list[str]()
    try:
        await town.begin()
        for step in random.choices(list(STEPS_BY_WEIGHT), list(STEPS_BY_WEIGHT.values()), k=STEPS):
            played.append(step.__name__)
            await step(town)
            await town.compare()
        for chat in town.chats:
            await town.compare_receipts(chat, chat.log)
    except AssertionError as error:
        error.add_note(f"seed {seed}: {' → '.join(played)}")
        raise
    finally:
        await town.leave()
