"""People with the pure core, a model server, and a network that a test can hurt. No real time."""

import itertools
import uuid
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from parley.client.core import ClientCore
from parley.client.events import (
    ChatOpened,
    EntriesReady,
    LoadChat,
    MessageRefused,
    MessageStored,
    ReadMarkDone,
)
from parley.client.members import ChatSnapshot
from parley.client.storage import Cursor, MessageKey, OutgoingMessage, SavedState, StateChanges
from parley.client.timing import Timing
from parley.errors import NOT_A_MEMBER, Refusal
from parley.model import Kind
from parley.wire.codec import CLIENT_CODECS
from parley.wire.frames import (
    ChatChanged,
    Entry,
    MessageBatch,
    Overview,
    PresenceChanged,
    Request,
    ServerFrames,
)
from tests.model_server.server import APPENDING, ModelServer

CHAT_IDS = ["chat_1", "chat_2"]
DEVICES = ["user_0", "user_1", "user_0/follows all"]
GUEST = "user_guest"
PEOPLE = ["user_0", "user_1", GUEST]
FOREVER = "2099-01-01T00:00:00.000Z"
WALL_MS = 1_800_000_000_000
SETTLE_STEPS_MAX = 20_000
CUTS_BEFORE_PEACE = 3
STEPS_BEFORE_CUT_MAX = 6
PATIENCE_MS = 70_000
"""Two heartbeats: whatever nobody told by itself is known by then."""


def durable_core(_device: str, chance: Callable[[], float]) -> ClientCore:
    """The core as an application has it that names an outbox file."""
    return ClientCore(CLIENT_CODECS["json"], Timing(), chance, durable=True)


MakeCore = Callable[[str, Callable[[], float]], ClientCore]


class Person:
    """A client on a device: what it sent, what it saw, and the file that survives its crashes."""

    def __init__(self, world: "World", device: str) -> None:
        self.world = world
        self.device = device
        self.user_id, _, self.follows_all = device.partition("/")
        self.file: dict[MessageKey, OutgoingMessage] = {}
        self.cursors: dict[str, Cursor] = {}
        self.unsaved: StateChanges | None = None
        self.up: deque[Request] = deque()
        self.made: deque[ServerFrames] = deque()
        """Answers that the server has made and not yet sent: news may overtake them."""
        self.down: deque[ServerFrames] = deque()
        self.sent: dict[str, list[str]] = {chat_id: [] for chat_id in CHAT_IDS}
        self.seen: dict[str, list[Entry]] = {chat_id: [] for chat_id in CHAT_IDS}
        self.acked: dict[str, int] = {}
        self.refused: set[str] = set()
        self.calls: set[int] = set()
        self.has_left: set[str] = set()
        self.is_away = False
        self.snapshots: deque[tuple[str, ChatSnapshot | Refusal | None]] = deque()
        self.start()

    def start(self) -> None:
        self.core = self.world.make_core(self.device, self.world.random.random)
        self.core.restore(SavedState(list(self.file.values()), dict(self.cursors)))
        self.snapshots.clear()
        self.calls.clear()
        if self.follows_all:
            self.core.read_all()
        for chat_id in CHAT_IDS:
            self.look_at(chat_id)

    def is_in(self, chat_id: str) -> bool:
        return self.world.server.is_member(chat_id, self.user_id)

    def look_at(self, chat_id: str) -> None:
        """Read a chat and have it open, unless it is so."""
        chat = self.core.chat(chat_id)
        if not self.follows_all and chat.inbox is None:
            self.core.read(chat)
        if chat.roster is None:
            self.core.open(self.core.chat(chat_id))

    def crash(self) -> None:
        """What was not saved is gone, and what was seen but not processed comes again."""
        self.cut()
        self.unsaved = None
        for chat_id in CHAT_IDS:
            saved = self.cursors.get(chat_id, Cursor()).sequence
            server_side = self.world.server.cursor(self.device, chat_id)
            resumed = saved if chat_id in self.cursors else server_side
            self.seen[chat_id] = [entry for entry in self.seen[chat_id] if entry.sequence <= resumed]
            self.sent[chat_id] = [cid for cid in self.sent[chat_id] if self._survives(chat_id, cid)]
        self.start()

    def _survives(self, chat_id: str, client_message_id: str) -> bool:
        return client_message_id in self.acked or (chat_id, client_message_id) in self.file

    def connect(self) -> None:
        if not self.core.online and not self.is_away:
            self.world.server.connected(self.device)
            self.core.connected(self.world.server.welcome(self.user_id), self.world.now_ms)

    def cut(self) -> None:
        if self.core.online:
            self.core.disconnected()
        self.up.clear()
        self.made.clear()
        self.down.clear()

    def go_away_or_come_back(self) -> None:
        self.is_away = not self.is_away
        self.cut()

    def send(self, chat_id: str, content: str, **about: Any) -> None:
        client_message_id = str(uuid.UUID(int=next(self.world.numbers), version=4))
        self.sent[chat_id].append(client_message_id)
        self.core.send(
            OutgoingMessage(
                chat_id=chat_id,
                client_message_id=client_message_id,
                content=content,
                created_at_ms=WALL_MS,
                **about,
            )
        )

    def amend(self, chat_id: str, what: str) -> None:
        """Something is done to one of the last messages that this device shows; mostly to one's own."""
        chance = self.world.random
        shown = [entry for entry in self.seen[chat_id] if entry.kind == Kind.MESSAGE.value]
        own = [entry for entry in shown if entry.sender_id == self.user_id]
        chosen = own if own and chance.random() < 0.8 else shown
        if not chosen:
            return
        target = chance.choice(chosen[-2:]).message_id
        text = f"{what} {next(self.world.numbers)}"
        match what:
            case "reply":
                self.send(chat_id, text, reply_to=target)
            case "react":
                reaction, is_on = chance.choice("xy"), chance.random() < 0.7
                self.send(chat_id, reaction, kind=Kind.REACTION.value, target_id=target, is_on=is_on)
            case "edit":
                self.send(chat_id, text, kind=Kind.EDIT.value, target_id=target)
            case "delete":
                self.send(chat_id, "", kind=Kind.DELETE.value, target_id=target)

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
        self.core.tick(now_ms)
        if self.unsaved is None:
            self.unsaved = self.core.to_save()
        self.up.extend(self.core.frames_to_send(now_ms, WALL_MS))
        self.note_events()
        if self.core.silent:
            self.cut()

    def save(self) -> None:
        if self.unsaved is not None:
            for message in self.unsaved.added:
                self.file[message.key] = message
            for key in self.unsaved.removed:
                self.file.pop(key, None)
            self.cursors |= self.unsaved.cursors
            self.core.saved(self.unsaved)
            self.unsaved = None

    def note_events(self) -> None:
        for event in self.core.events():
            match event:
                case MessageStored():
                    self.acked[event.key[1]] = event.ack.sequence
                case MessageRefused():
                    self.refused.add(event.key[1])
                case ReadMarkDone():
                    self.calls.discard(event.number)
                case LoadChat():
                    self.snapshots.append((event.chat_id, None))
                case EntriesReady():
                    self._stop_if_failed(event.chat_id)
                case ChatOpened() if event.refusal == NOT_A_MEMBER:
                    assert event.chat_id in self.has_left, "only what was left is closed"

    def _stop_if_failed(self, chat_id: str) -> None:
        """What a loop does that ends: its last entry is processed."""
        inbox = self.core.chat(chat_id).inbox
        if inbox is not None and inbox.failure is not None:
            assert chat_id in self.has_left, "only what was left cannot be read"
            self.core.mark_processed(self.core.chat(chat_id), self.world.now_ms)
            self.core.stop(self.core.chat(chat_id))

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
            entry = self.world.random.choice(self.seen[chat_id])
            up_to = self.world.random.choice((entry.sequence, entry.message_id))
            self.calls.add(self.core.mark_read(chat_id, up_to))

    def take(self, chat_id: str) -> bool:
        entry = self.core.take(self.core.chat(chat_id), self.world.now_ms)
        if entry is not None:
            self.seen[chat_id] = [*self._still_valid(chat_id, entry), entry]
        return entry is not None

    def reopen(self, chat_id: str) -> None:
        """The person looks at something else for a moment."""
        self.core.close(self.core.chat(chat_id))
        self.core.open(self.core.chat(chat_id))


class World:
    def __init__(self, seed: int = 0, make_core: MakeCore = durable_core) -> None:
        self.random = Random(seed)
        self.make_core = make_core
        self.numbers = itertools.count(1)
        self.now_ms = 0
        self.server = ModelServer(CHAT_IDS)
        for user_id in PEOPLE[:2]:
            self.server.admit(user_id)
        self.server.overview_chats_max = self.random.choice((1, len(CHAT_IDS)))
        self.people = [Person(self, device) for device in DEVICES]

    def up(self, person: Person) -> bool:
        """The oldest frame of a person reaches the server."""
        if not person.up:
            return False
        request = _copied(person.up.popleft())
        if isinstance(request, APPENDING):
            key = (request.chat, request.client_message_id)
            assert key in person.file or key[1] in person.settled, "only what is saved goes out"
        answers, news = self.server.answer(request, person.device)
        self._send_made(person)
        for answer in answers:
            waits = isinstance(answer, Overview | MessageBatch) and self.random.random() < 0.5
            (person.made if waits else person.down).append(answer)
        self.broadcast(news)
        return True

    def _send_made(self, person: Person) -> None:
        person.down.extend(person.made)
        person.made.clear()

    def down(self, person: Person) -> bool:
        """The oldest frame for a person arrives."""
        if not person.down:
            self._send_made(person)
        if not person.down:
            return False
        person.core.receive(person.down.popleft(), self.now_ms)
        return True

    def broadcast(self, news: list[ServerFrames]) -> None:
        for frame in news:
            for person in self.people:
                if person.core.online and self.server.hears(person.user_id, frame):
                    person.down.append(frame)

    def tell(self, user_id: str, frame: ChatChanged) -> None:
        """Every device of a person."""
        for person in self.people:
            if person.core.online and person.user_id == user_id:
                person.down.append(frame)

    def snapshot(self, person: Person) -> bool:
        """What was asked for over HTTP is looked at, and the next time handed over."""
        asked, person.snapshots = person.snapshots, deque()
        for chat_id, found in asked:
            if found is None:
                person.snapshots.append((chat_id, self._look(person, chat_id)))
            elif isinstance(found, ChatSnapshot):
                person.core.chat_loaded(person.core.chat(chat_id), found)
            else:
                person.core.load_failed(person.core.chat(chat_id), found, self.now_ms)
        return bool(asked)

    def _look(self, person: Person, chat_id: str) -> ChatSnapshot | Refusal:
        if not person.is_in(chat_id):
            return NOT_A_MEMBER
        if self.server.refuse_any:
            return self.server.refuse_any.pop()
        return self.server.snapshot(chat_id, PEOPLE[:2])

    # What happens at the server

    def come_or_go(self, chat_id: str, user_id: str) -> None:
        """Whoever is in a chat leaves it, whoever is not comes."""
        joins = not self.server.is_member(chat_id, user_id)
        self.broadcast(self.server.unsent(chat_id))
        news = self.server.change(chat_id, user_id, joins=joins)
        change, head = "joined" if joins else "left", self.server.head(chat_id)
        frame = ChatChanged(chat_id=chat_id, change=change, user_id=user_id)
        if joins:
            frame.head = head
        self.tell(user_id, frame)
        self.broadcast(news)
        for person in self.people:
            if person.user_id == user_id and joins:
                person.look_at(chat_id)
            elif person.user_id == user_id:
                person.has_left.add(chat_id)

    def mute(self, chat_id: str, user_id: str) -> None:
        """Or unmute it."""
        if not self.server.is_member(chat_id, user_id):
            return
        until = None if self.server.is_muted(chat_id, user_id) else FOREVER
        self.tell(user_id, self.server.mute(chat_id, user_id, until))

    def appear_or_vanish(self) -> None:
        """Somebody is online who was not, or the other way round."""
        user_id = self.random.choice(PEOPLE)
        frame: PresenceChanged = self.server.come_or_go(user_id)
        for person in self.people:
            if person.core.online and user_id in self.server.watched[person.device]:
                person.down.append(frame)

    def read_elsewhere(self, person: Person, chat_id: str) -> None:
        """The person reads on, on another device."""
        if person.is_in(chat_id):
            up_to = self.random.randint(0, self.server.head(chat_id))
            self.broadcast(self.server.read_up_to(chat_id, person.user_id, up_to))

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    # Peace

    def settle(self, *, cut: bool = True) -> None:
        """A healthy network and patience, until nothing is left to do; on new connections, unless told so."""
        self.server.refuse_next.clear()
        self.server.refuse_any.clear()
        for person in self.people:
            person.is_away = False
        if cut:
            for _ in range(CUTS_BEFORE_PEACE):
                for person in self.people:
                    person.cut()
                    self._begin(person)
            for person in self.people:
                person.cut()
        until_ms = self.now_ms + PATIENCE_MS
        for _ in range(SETTLE_STEPS_MAX):
            busy = [self._turn(person) for person in self.people]
            if not any(busy) and not self._jump(until_ms):
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
        while self.up(person) or self.down(person) or self.snapshot(person):
            busy = True
        for chat_id in CHAT_IDS:
            if person.is_in(chat_id):
                person.look_at(chat_id)
            while person.take(chat_id):
                busy = True
        return busy

    def _jump(self, until_ms: int) -> bool:
        """To the next deadline; False when nobody has one before the patience is over, and all are done."""
        wakes = [wake for person in self.people if (wake := person.core.next_wake_ms()) is not None]
        next_ms = max(self.now_ms, min(wakes))
        if next_ms > until_ms and all(person_rests(person) for person in self.people):
            return False
        self.now_ms = next_ms
        return True


def person_rests(person: Person) -> bool:
    """Nothing unsent, nothing wanted, nothing unsaved."""
    inboxes = [person.core.chat(chat_id).inbox for chat_id in CHAT_IDS if person.is_in(chat_id)]
    reads_on = any(inbox is None or inbox.wants_sync for inbox in inboxes)
    return not len(person.core.outbox) and not reads_on and person.cursors == _processed(person)


def _processed(person: Person) -> dict[str, Cursor]:
    inboxes = {chat_id: person.core.chat(chat_id).inbox for chat_id in CHAT_IDS}
    moved = {chat_id: inbox.processed for chat_id, inbox in inboxes.items() if inbox is not None}
    known = {
        chat_id: cursor for chat_id, cursor in moved.items() if chat_id in person.cursors or cursor.sequence
    }
    return person.cursors | known


def _copied(request: Request) -> Request:
    """As it would arrive: decoded from bytes, so that nobody shares a value with the other side."""
    copied: Request = msgspec.json.decode(msgspec.json.encode(request), type=Request)
    return copied
