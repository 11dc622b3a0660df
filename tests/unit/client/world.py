"""People with the pure engine, a model server, and a network that a test can hurt. No real time."""

import itertools
import uuid
from collections import deque
from random import Random

import msgspec

from parley.client.engine import Acked, Engine, MustLoad, SendRefused
from parley.client.keeping import Changes, Cursor, Kept, MessageKey, Outgoing
from parley.client.opened import Picture
from parley.client.timing import Timing
from parley.wire.client_codec import CLIENT_CODECS
from parley.wire.frames import Entry, Request, SendMessage, ServerFrames
from tests.unit.client.model_server import ModelServer

CHAT_IDS = ["chat_1", "chat_2"]
GUEST = "user_guest"
WALL_MS = 1_800_000_000_000
SETTLE_STEPS_MAX = 20_000
CUTS_BEFORE_PEACE = 3
STEPS_BEFORE_CUT_MAX = 6


class Person:
    """A client: what it sent, what it saw, and the file that survives its crashes."""

    def __init__(self, world: "World", user_id: str) -> None:
        self.world = world
        self.user_id = user_id
        self.file: dict[MessageKey, Outgoing] = {}
        self.cursors: dict[str, Cursor] = {}
        self.unsaved: Changes | None = None
        self.up: deque[Request] = deque()
        self.down: deque[ServerFrames] = deque()
        self.sent: dict[str, list[str]] = {chat_id: [] for chat_id in CHAT_IDS}
        self.seen: dict[str, list[Entry]] = {chat_id: [] for chat_id in CHAT_IDS}
        self.acked: dict[str, int] = {}
        self.refused: set[str] = set()
        self.pictures: deque[tuple[str, Picture | None]] = deque()
        self.start()

    def start(self) -> None:
        kept = Kept(list(self.file.values()), dict(self.cursors))
        self.engine = Engine(CLIENT_CODECS["json"], Timing(), self.world.random.random, kept, durable=True)
        self.pictures.clear()
        for chat_id in CHAT_IDS:
            self.engine.reading.read(chat_id)
            self.engine.live.open(chat_id)

    def crash(self) -> None:
        """What was not saved is gone, and what was seen but not processed comes again."""
        self.cut()
        self.unsaved = None
        for chat_id in CHAT_IDS:
            saved = self.cursors.get(chat_id, Cursor()).sequence
            server_side = self.world.server.cursors.get((self.user_id, chat_id), 0)
            resumed = saved if chat_id in self.cursors else server_side
            self.seen[chat_id] = [entry for entry in self.seen[chat_id] if entry.sequence <= resumed]
            self.sent[chat_id] = [cid for cid in self.sent[chat_id] if self._survives(chat_id, cid)]
        self.start()

    def _survives(self, chat_id: str, client_message_id: str) -> bool:
        return client_message_id in self.acked or (chat_id, client_message_id) in self.file

    def connect(self) -> None:
        if not self.engine.online:
            self.engine.connected(self.world.server.welcome(self.user_id), self.world.now_ms)

    def cut(self) -> None:
        if self.engine.online:
            self.engine.disconnected()
        self.up.clear()
        self.down.clear()

    def send(self, chat_id: str, content: str) -> None:
        client_message_id = str(uuid.UUID(int=next(self.world.numbers), version=4))
        self.sent[chat_id].append(client_message_id)
        self.engine.send(
            Outgoing(
                chat_id=chat_id,
                client_message_id=client_message_id,
                content=content,
                created_at_ms=WALL_MS,
            )
        )

    def turn(self, *, disk_works: bool) -> None:
        """The shell's turn: reconnect if need be, save what can be saved, write what may go out."""
        self.connect()
        self.pump()
        if disk_works:
            self.save()
            self.pump()

    def pump(self) -> None:
        """One turn of the shell, without finishing a write to disk that is under way."""
        now_ms = self.world.now_ms
        self.engine.tick(now_ms)
        if self.unsaved is None:
            self.unsaved = self.engine.to_save()
        self.up.extend(self.engine.frames_to_send(now_ms, WALL_MS))
        self.note_events()
        if self.engine.silent:
            self.cut()

    def save(self) -> None:
        if self.unsaved is not None:
            for message in self.unsaved.added:
                self.file[message.key] = message
            for key in self.unsaved.removed:
                self.file.pop(key, None)
            self.cursors |= self.unsaved.cursors
            self.engine.saved(self.unsaved)
            self.unsaved = None

    def note_events(self) -> None:
        for event in self.engine.events():
            if isinstance(event, Acked):
                self.acked[event.key[1]] = event.ack.sequence
            elif isinstance(event, SendRefused):
                self.refused.add(event.key[1])
            elif isinstance(event, MustLoad):
                self.pictures.append((event.chat_id, None))

    @property
    def settled(self) -> set[str]:
        return {*self.acked, *self.refused}

    def _still_valid(self, chat_id: str, entry: Entry) -> list[Entry]:
        """What an application keeps: nothing, once the epoch is another or a sequence does not ascend."""
        seen = self.seen[chat_id]
        if not seen or (entry.epoch == seen[-1].epoch and entry.sequence > seen[-1].sequence):
            return seen
        return []

    def read(self, chat_id: str) -> None:
        """The person reads some of what is shown."""
        if self.seen[chat_id]:
            self.engine.mark_read(chat_id, self.world.random.choice(self.seen[chat_id]).sequence)

    def take(self, chat_id: str) -> bool:
        entry = self.engine.reading.take(chat_id, self.world.now_ms)
        if entry is not None:
            self.seen[chat_id] = [*self._still_valid(chat_id, entry), entry]
        return entry is not None


class World:
    def __init__(self, people: int = 2, seed: int = 0) -> None:
        self.random = Random(seed)
        self.numbers = itertools.count(1)
        self.now_ms = 0
        self.server = ModelServer(CHAT_IDS)
        self.people = [Person(self, f"user_{number}") for number in range(people)]

    def up(self, person: Person) -> bool:
        """The oldest frame of a person reaches the server."""
        if not person.up:
            return False
        request = _copied(person.up.popleft())
        if isinstance(request, SendMessage):
            key = (request.chat, request.client_message_id)
            assert key in person.file or key[1] in person.settled, "only what is kept goes out"
        answers, news = self.server.answer(request, person.user_id)
        person.down.extend(answers)
        for member in self.people:
            if member.engine.online:
                member.down.extend(news)
        return True

    def down(self, person: Person) -> bool:
        """The oldest frame for a person arrives."""
        if not person.down:
            return False
        person.engine.receive(person.down.popleft(), self.now_ms)
        return True

    def picture(self, person: Person) -> bool:
        """What was asked for over HTTP is looked at, and the next time handed over."""
        asked, person.pictures = person.pictures, deque()
        for chat_id, found in asked:
            if found is None:
                found = self.server.picture(chat_id, [member.user_id for member in self.people])
                person.pictures.append((chat_id, found))
            else:
                person.engine.live.loaded(chat_id, found)
        return bool(asked)

    def come_or_go(self, chat_id: str) -> None:
        """A guest who is there leaves, one who is not comes."""
        is_there = GUEST in self.server.guests[chat_id]
        self.broadcast(self.server.change(chat_id, GUEST, joins=not is_there))

    def broadcast_void(self, chat_id: str) -> None:
        self.broadcast(self.server.add_void(chat_id))

    def broadcast(self, news: ServerFrames) -> None:
        for person in self.people:
            if person.engine.online:
                person.down.append(news)

    def read_elsewhere(self, person: Person, chat_id: str) -> None:
        """The person reads on, on another device."""
        log = self.server.logs[chat_id]
        for news in self.server.read_up_to(chat_id, person.user_id, self.random.randint(0, len(log))):
            self.broadcast(news)

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    def settle(self, *, cut: bool = True) -> None:
        """A healthy network and patience, until nothing is left to do; on new connections, unless told so."""
        self.server.refuse_next.clear()
        if cut:
            for _ in range(CUTS_BEFORE_PEACE):
                for person in self.people:
                    person.cut()
                    self._begin(person)
            for person in self.people:
                person.cut()
        for _ in range(SETTLE_STEPS_MAX):
            busy = [self._turn(person) for person in self.people]
            if not any(busy) and not self._jump():
                return
        raise AssertionError("it never came to rest")

    def _begin(self, person: Person) -> None:
        """Some of what a new connection brings: the next one must not count on the rest."""
        for _ in range(self.random.randint(0, STEPS_BEFORE_CUT_MAX)):
            person.turn(disk_works=True)
            if self.up(person):
                self.down(person)

    def _turn(self, person: Person) -> bool:
        person.connect()
        person.pump()
        busy = person.unsaved is not None and bool(person.unsaved)
        person.save()
        while self.up(person) or self.down(person) or self.picture(person):
            busy = True
        for chat_id in CHAT_IDS:
            while person.take(chat_id):
                busy = True
        return busy

    def _jump(self) -> bool:
        """To the next deadline that is not a mere heartbeat; False when there is none."""
        restless = [person for person in self.people if not person_rests(person)]
        wakes = [wake for person in restless if (wake := person.engine.next_wake_ms()) is not None]
        if wakes:
            self.now_ms = max(self.now_ms, min(wakes))
        return bool(wakes)


def person_rests(person: Person) -> bool:
    """Nothing unsent, nothing wanted, nothing unsaved."""
    inboxes = [person.engine.reading.inbox(chat_id) for chat_id in CHAT_IDS]
    reads_on = any(inbox is None or inbox.wants_sync for inbox in inboxes)
    return not len(person.engine.outbox) and not reads_on and person.cursors == _processed(person)


def _processed(person: Person) -> dict[str, Cursor]:
    inboxes = {chat_id: person.engine.reading.inbox(chat_id) for chat_id in CHAT_IDS}
    moved = {chat_id: inbox.processed for chat_id, inbox in inboxes.items() if inbox is not None}
    return {
        chat_id: cursor for chat_id, cursor in moved.items() if chat_id in person.cursors or cursor.sequence
    }


def _copied(request: Request) -> Request:
    """As it would arrive: decoded from bytes, so that nobody shares a value with the other side."""
    copied: Request = msgspec.json.decode(msgspec.json.encode(request), type=Request)
    return copied
