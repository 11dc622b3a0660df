"""Good histories made from choices, and one way to break each rule in them."""

from collections.abc import Callable
from itertools import count, pairwise
from random import Random

from msgspec.structs import replace

from tests.harness.events import (
    Acknowledged,
    AnyEvent,
    CursorMoved,
    EntrySeen,
    Paged,
    Requested,
    Resumed,
    SendRejected,
    Sent,
    Stored,
    StoredVoid,
    StoreRead,
    VoidSeen,
)
from tests.harness.history import Rule

Events = list[AnyEvent]


class World:
    """A made-up server that keeps its promise; what happens in it is drawn from `random`."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.events: Events = []
        self.logs: dict[str, list[Stored | StoredVoid]] = {"chat_a": [], "chat_b": []}
        self.seen: dict[tuple[str, str], int] = {}
        self.number = count(1)

    def send(self) -> None:
        """A device sends once or twice, and perhaps hears of it, perhaps is refused for good."""
        number, chat_id = next(self.number), self.random.choice(sorted(self.logs))
        sender_id = self.random.choice(["ann", "ben"])
        sent = Sent(
            chat_id=chat_id,
            sender_id=sender_id,
            device_id=self.random.choice(["phone", "desk"]),
            client_message_id=f"ID-{number}",
            content=f"text {number}",
        )
        self.events += [sent] * self.random.choice([1, 1, 2])
        if self.random.random() < 0.1:
            self.events.append(
                SendRejected(
                    chat_id=chat_id,
                    sender_id=sender_id,
                    client_message_id=sent.client_message_id,
                    code="too_large",
                    temporary=False,
                )
            )
            return
        self._store(sent, f"msg_{number}")

    def _store(self, sent: Sent, message_id: str) -> None:
        log = self.logs[sent.chat_id]
        entry = Stored(
            chat_id=sent.chat_id,
            sequence=len(log) + 1,
            message_id=message_id,
            sender_id=sent.sender_id,
            client_message_id=sent.client_message_id.lower(),
            content=sent.content,
        )
        log.append(entry)
        ack = Acknowledged(
            chat_id=sent.chat_id,
            sender_id=sent.sender_id,
            client_message_id=sent.client_message_id,
            message_id=message_id,
            sequence=entry.sequence,
        )
        heard = self.random.choice([0, 1, 1, 2])
        self.events += [ack, replace(ack, deduplicated=True)][:heard]

    def abandon(self) -> None:
        """A position was allocated and never used."""
        chat_id = self.random.choice(sorted(self.logs))
        self.logs[chat_id].append(StoredVoid(chat_id=chat_id, sequence=len(self.logs[chat_id]) + 1))

    def read(self) -> None:
        """A reader asks for a page, gets some of what is there, and moves its cursor."""
        reader, chat_id = (
            self.random.choice(["ann/1", "ben/1", "ben/2"]),
            self.random.choice(sorted(self.logs)),
        )
        log, after = self.logs[chat_id], self.seen.get((reader, chat_id), 0)
        reached = self.random.randint(after, len(log))
        self.events.append(Requested(chat_id=chat_id, reader=reader, after=after))
        self.events += [self._shown(reader, thing) for thing in log[after:reached]]
        self.events.append(Paged(chat_id=chat_id, reader=reader, to_sequence=reached, head=len(log)))
        self.events.append(CursorMoved(chat_id=chat_id, reader=reader, sequence=reached))
        self.seen[reader, chat_id] = reached

    @staticmethod
    def _shown(reader: str, thing: Stored | StoredVoid) -> EntrySeen | VoidSeen:
        if isinstance(thing, StoredVoid):
            return VoidSeen(chat_id=thing.chat_id, reader=reader, sequence=thing.sequence)
        return EntrySeen(
            chat_id=thing.chat_id,
            reader=reader,
            sequence=thing.sequence,
            message_id=thing.message_id,
            client_message_id=thing.client_message_id,
            content=thing.content,
        )

    def finish(self) -> Events:
        """One reader reads everything, then the store itself is read."""
        for chat_id, log in self.logs.items():
            self.events.append(Resumed(chat_id=chat_id, reader="late", after=0))
            self.events += [self._shown("late", thing) for thing in log]
            self.events += log
            self.events.append(StoreRead(chat_id=chat_id, head=len(log)))
        return self.events


def good_history(random: Random, steps: int = 60) -> Events:
    world = World(random)
    for _ in range(8):
        world.send()
    for _ in range(steps):
        world.random.choice([world.send, world.send, world.read, world.abandon])()
    return world.finish()


def lose_an_acknowledged_message(events: Events, random: Random) -> Events:
    """It became a void for everybody, although its sender was told that it is stored."""
    lost = random.choice([event for event in events if isinstance(event, Acknowledged)])
    return [_voided(event) if _is_at(event, lost.chat_id, lost.sequence) else event for event in events]


def _voided(event: AnyEvent) -> AnyEvent:
    match event:
        case EntrySeen():
            return VoidSeen(chat_id=event.chat_id, reader=event.reader, sequence=event.sequence)
        case Stored():
            return StoredVoid(chat_id=event.chat_id, sequence=event.sequence)
    return event


def _is_at(event: AnyEvent, chat_id: str, sequence: int) -> bool:
    return event.chat_id == chat_id and getattr(event, "sequence", None) == sequence


def answer_from_a_stale_head(events: Events, random: Random) -> Events:
    """A page asked for at the end does not reach to what was acknowledged."""
    ack = random.choice([event for event in events if isinstance(event, Acknowledged)])
    asked = Requested(chat_id=ack.chat_id, reader="stale", after=0)
    return [*events, asked, Paged(chat_id=ack.chat_id, reader="stale", to_sequence=0, head=ack.sequence - 1)]


def store_a_message_twice(events: Events, random: Random) -> Events:
    """A retry was given a position of its own."""
    entry = random.choice([event for event in events if isinstance(event, Stored)])
    place, end = next(
        (place, event)
        for place, event in enumerate(events)
        if isinstance(event, StoreRead) and event.chat_id == entry.chat_id
    )
    again = replace(entry, sequence=end.head + 1, message_id="msg_again")
    return [*events[:place], again, replace(end, head=end.head + 1), *events[place + 1 :]]


def repeat_a_message_id(events: Events, random: Random) -> Events:
    """Two entries bear one message id, for everybody."""
    first, second = random.sample([event.message_id for event in events if isinstance(event, Stored)], 2)
    return [
        replace(event, message_id=first)
        if isinstance(event, Acknowledged | EntrySeen | Stored) and event.message_id == second
        else event
        for event in events
    ]


def show_one_reader_another_order(events: Events, random: Random) -> Events:
    """The late reader got two entries in each other's place."""
    places = [
        place for place, event in enumerate(events) if isinstance(event, EntrySeen) and event.reader == "late"
    ]
    pairs = [(a, b) for a, b in pairwise(places) if events[a].chat_id == events[b].chat_id]
    first, second = random.choice(pairs)
    changed, a, b = events.copy(), events[first], events[second]
    assert isinstance(a, EntrySeen)
    assert isinstance(b, EntrySeen)
    changed[first], changed[second] = replace(b, sequence=a.sequence), replace(a, sequence=b.sequence)
    return changed


def show_what_was_never_committed(events: Events, random: Random) -> Events:
    """A reader saw an entry beyond the end of the log that the store holds."""
    end = random.choice([event for event in events if isinstance(event, StoreRead)])
    phantom = EntrySeen(
        chat_id=end.chat_id,
        reader="hasty",
        sequence=end.head + 1,
        message_id="msg_phantom",
        client_message_id="id-phantom",
        content="never committed",
    )
    return [*events, phantom]


def skip_a_position(events: Events, random: Random) -> Events:
    """A page left out a position that it claims to hold."""
    place = random.choice(
        [
            place
            for place, event in enumerate(events)
            if isinstance(event, EntrySeen | VoidSeen) and event.reader != "late"
        ]
    )
    return events[:place] + events[place + 1 :]


def swap_what_a_device_sent(events: Events, random: Random) -> Events:
    """A device sent two messages in the other order than they are stored in."""
    stored = {event.message_id: event for event in events if isinstance(event, Stored)}
    ids = {entry.client_message_id for entry in stored.values()}
    sends: dict[tuple[str, str, str], dict[str, Sent]] = {}
    for event in events:
        if isinstance(event, Sent) and event.client_message_id.lower() in ids:
            stream = sends.setdefault((event.sender_id, event.device_id, event.chat_id), {})
            stream.setdefault(event.client_message_id, event)
    first, second = random.choice(
        [pair for stream in sends.values() for pair in pairwise(stream.values())],
    )
    exchanged = {first: second, second: first}
    return [exchanged.get(event, event) if isinstance(event, Sent) else event for event in events]


def refuse_what_is_stored(events: Events, random: Random) -> Events:
    """A sender was told for good that a message is not stored, and it is."""
    entry = random.choice([event for event in events if isinstance(event, Stored)])
    refusal = SendRejected(
        chat_id=entry.chat_id,
        sender_id=entry.sender_id,
        client_message_id=entry.client_message_id or "",
        code="not_a_member",
        temporary=False,
    )
    return [*events, refusal]


def change_a_content(events: Events, random: Random) -> Events:
    """What everybody reads is not what was sent."""
    entry = random.choice([event for event in events if isinstance(event, Stored)])
    return [
        replace(event, content="other")
        if isinstance(event, EntrySeen | Stored) and event.message_id == entry.message_id
        else event
        for event in events
    ]


BREAKERS: dict[Rule, Callable[[Events, Random], Events]] = {
    Rule.ACKNOWLEDGED_IS_STORED: lose_an_acknowledged_message,
    Rule.ACKNOWLEDGED_IS_VISIBLE: answer_from_a_stale_head,
    Rule.ONE_POSITION_PER_ID: store_a_message_twice,
    Rule.MESSAGE_ID_UNIQUE: repeat_a_message_id,
    Rule.SAME_ORDER: show_one_reader_another_order,
    Rule.SEEN_IS_STORED: show_what_was_never_committed,
    Rule.NO_CURSOR_PAST_UNRESOLVED: skip_a_position,
    Rule.SENDER_ORDER: swap_what_a_device_sent,
    Rule.REFUSED_IS_NOT_STORED: refuse_what_is_stored,
    Rule.CONTENT_AS_SENT: change_a_content,
}
