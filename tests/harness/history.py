"""The history checker: compares what clients saw and what the store holds with the promises of the log.

    history = History()
    history.add(Sent(...)); history.add(Acknowledged(...)); ...
    assert not check(history)

Every rule is one function over the events, linear in their number, and reports each subject's breach once.
Rules that need the store check only chats whose whole log was read at the end (`StoreRead`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct

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


class Rule(StrEnum):
    """The rules that a history must keep."""

    ACKNOWLEDGED_IS_STORED = "an acknowledged message is stored at the position of its ack"
    ACKNOWLEDGED_IS_VISIBLE = "a page requested after an ack reaches at least to it"
    ONE_POSITION_PER_ID = "a client id has one position and one message id, in every ack and in the store"
    MESSAGE_ID_UNIQUE = "a message id names one position"
    SAME_ORDER = "every reader and the store have the same entry at the same position"
    SEEN_IS_STORED = "an entry that a reader has seen is stored"
    NO_CURSOR_PAST_UNRESOLVED = "no cursor passes a position that is neither an entry nor a void"
    SENDER_ORDER = "messages of one device to a chat keep their order"
    REFUSED_IS_NOT_STORED = "a message that was refused for good is not stored"
    CONTENT_AS_SENT = "the stored content is the sent content"


class HistoryBreach(Struct, frozen=True):
    """One breach of one rule, in a sentence."""

    rule: Rule
    says: str

    def __str__(self) -> str:
        return f"{self.rule.name}: {self.says} ({self.rule.value})"


Position = tuple[str, int, int]
"""Chat, epoch, sequence."""
ClientKey = tuple[str, str]
"""Chat and client id, in lower case."""
Identity = tuple[str, str | None, str]
"""Message id, client id in lower case, content."""


class History:
    """Events in the order of their observation. Many clients may share one history."""

    def __init__(self, events: list[AnyEvent] | None = None) -> None:
        self.events: list[AnyEvent] = [] if events is None else events

    def add(self, event: AnyEvent) -> None:
        self.events.append(event)

    def write(self, path: Path) -> None:
        """One JSON object per line, so that a failed run can be inspected and checked again."""
        encoder = msgspec.json.Encoder()
        path.write_bytes(encoder.encode_lines(self.events))

    @classmethod
    def read(cls, path: Path) -> History:
        return cls(msgspec.json.Decoder(AnyEvent).decode_lines(path.read_bytes()))


def check(history: History) -> list[HistoryBreach]:
    """Every breach of every rule; empty if all rules were kept."""
    index = Index(history.events)
    return [breach for rule in RULES for breach in rule(history.events, index)]


class Index:
    """Lookups for several rules, gathered in one pass."""

    def __init__(self, events: list[AnyEvent]) -> None:
        self.stored: dict[Position, Stored] = {}
        self.voids: set[Position] = set()
        self.stored_keys: dict[ClientKey, list[Stored]] = {}
        self.heads: dict[str, int] = {}
        self.seen: dict[Position, EntrySeen] = {}
        for event in events:
            match event:
                case EntrySeen():
                    self.seen.setdefault(position(event), event)
                case Stored():
                    self._add_stored(event)
                case StoredVoid():
                    self.voids.add(position(event))
                case StoreRead():
                    self.heads[event.chat_id] = event.head
                case _:
                    pass

    def _add_stored(self, entry: Stored) -> None:
        self.stored[position(entry)] = entry
        if entry.client_message_id is not None:
            self.stored_keys.setdefault(client_key(entry), []).append(entry)


def acknowledged_is_stored(events: list[AnyEvent], index: Index) -> Iterator[HistoryBreach]:
    rule, reported = Rule.ACKNOWLEDGED_IS_STORED, set[ClientKey]()
    for ack in events:
        if not isinstance(ack, Acknowledged) or client_key(ack) in reported:
            continue
        entry = index.stored.get(position(ack)) or index.seen.get(position(ack))
        if entry is None and ack.chat_id not in index.heads:
            continue
        if entry is None or (entry.message_id, client_key(entry)) != (ack.message_id, client_key(ack)):
            reported.add(client_key(ack))
            instead = "nothing" if entry is None else entry.message_id
            yield HistoryBreach(
                rule, f"{shown(ack)} was acknowledged as {ack.message_id}, {instead} is stored"
            )


def acknowledged_is_visible(events: list[AnyEvent], index: Index) -> Iterator[HistoryBreach]:
    acknowledged: dict[tuple[str, int], int] = {}
    floors: dict[tuple[str, str], int] = {}
    for event in events:
        match event:
            case Acknowledged():
                log = (event.chat_id, event.epoch)
                acknowledged[log] = max(event.sequence, acknowledged.get(log, 0))
            case Requested():
                floors[event.reader, event.chat_id] = acknowledged.get((event.chat_id, event.epoch), 0)
            case Paged():
                floor = floors.get((event.reader, event.chat_id), 0)
                if event.head < floor:
                    says = f"{event.reader} got {event.head} as the head of {event.chat_id}, not {floor}"
                    yield HistoryBreach(Rule.ACKNOWLEDGED_IS_VISIBLE, says)
            case _:
                pass


def one_position_per_id(events: list[AnyEvent], index: Index) -> Iterator[HistoryBreach]:
    rule, reported, named = (
        Rule.ONE_POSITION_PER_ID,
        set[ClientKey](),
        dict[ClientKey, tuple[Position, str]](),
    )
    for key, entries in index.stored_keys.items():
        if len(entries) > 1:
            reported.add(key)
            places = ", ".join(str(entry.sequence) for entry in entries)
            yield HistoryBreach(rule, f"{key[1]} is stored {len(entries)} times in {key[0]}: at {places}")
    for event in events:
        if not isinstance(event, Acknowledged):
            continue
        key, place = client_key(event), (position(event), event.message_id)
        first = named.setdefault(key, place)
        if first != place and key not in reported:
            reported.add(key)
            yield HistoryBreach(
                rule, f"{shown(event)} was {first[1]} at {first[0][2]}, now is {event.message_id}"
            )


def message_id_unique(events: list[AnyEvent], index: Index) -> Iterator[HistoryBreach]:
    places, reported = dict[str, Position](), set[str]()
    for event in events:
        if not isinstance(event, Acknowledged | Stored) or event.message_id in reported:
            continue
        first = places.setdefault(event.message_id, position(event))
        if first != position(event):
            reported.add(event.message_id)
            yield HistoryBreach(
                Rule.MESSAGE_ID_UNIQUE, f"{event.message_id} is at {first} and {position(event)}"
            )


def same_order(events: list[AnyEvent], index: Index) -> Iterator[HistoryBreach]:
    known, reported = dict[Position, Identity | None](), set[Position]()
    for event in events:
        if not isinstance(event, EntrySeen | VoidSeen | Stored | StoredVoid) or position(event) in reported:
            continue
        thing = identity(event) if isinstance(event, EntrySeen | Stored) else None
        first = known.setdefault(position(event), thing)
        if first != thing:
            reported.add(position(event))
            who = getattr(event, "reader", "the store")
            yield HistoryBreach(
                Rule.SAME_ORDER, f"{who} has {thing} at {position(event)}, others have {first}"
            )


def seen_is_stored(events: list[AnyEvent], index: Index) -> Iterator[HistoryBreach]:
    reported = set[Position]()
    for event in events:
        if not isinstance(event, EntrySeen | VoidSeen) or event.chat_id not in index.heads:
            continue
        place = position(event)
        if place not in index.stored and place not in index.voids and place not in reported:
            reported.add(place)
            yield HistoryBreach(
                Rule.SEEN_IS_STORED, f"{event.reader} has seen {place}, where nothing is stored"
            )


def no_cursor_past_unresolved(events: list[AnyEvent], index: Index) -> Iterator[HistoryBreach]:
    rule, runs = Rule.NO_CURSOR_PAST_UNRESOLVED, dict[tuple[str, str, int], int]()
    for event in events:
        match event:
            case Resumed() | Requested():
                runs[event.reader, event.chat_id, event.epoch] = event.after
            case EntrySeen() | VoidSeen():
                run = (event.reader, event.chat_id, event.epoch)
                last = runs.setdefault(run, event.sequence)
                if event.sequence > last + 1:
                    says = f"{event.reader} got {event.sequence} after {last} of {event.chat_id}"
                    yield HistoryBreach(rule, says)
                runs[run] = max(last, event.sequence)
            case Paged(to_sequence=reached) | CursorMoved(sequence=reached):
                last = runs.get((event.reader, event.chat_id, event.epoch), 0)
                if reached > last:
                    says = f"{event.reader} moved to {reached} of {event.chat_id}, but has only up to {last}"
                    yield HistoryBreach(rule, says)
            case _:
                pass
    yield from _holes(index)


def _holes(index: Index) -> Iterator[HistoryBreach]:
    """A log is dense: each number up to its head is an entry or a void, and there is nothing beyond."""
    resolved: dict[str, set[int]] = {chat_id: set() for chat_id in index.heads}
    for chat_id, _, sequence in (*index.stored, *index.voids):
        resolved.setdefault(chat_id, set()).add(sequence)
    for chat_id, head in index.heads.items():
        if resolved[chat_id] != set(range(1, head + 1)):
            hole = next((n for n in range(1, head + 1) if n not in resolved[chat_id]), None)
            says = f"has nothing at {hole}" if hole else f"has positions outside 1 to {head}"
            yield HistoryBreach(Rule.NO_CURSOR_PAST_UNRESOLVED, f"the log of {chat_id} {says}")


def sender_order(events: list[AnyEvent], index: Index) -> Iterator[HistoryBreach]:
    first_sent, last = set[tuple[str, ClientKey]](), dict[tuple[str, str, str], int]()
    for event in events:
        if not isinstance(event, Sent) or (event.sender_id, client_key(event)) in first_sent:
            continue
        first_sent.add((event.sender_id, client_key(event)))
        entry = _stored_of(event, index)
        if entry is None:
            continue
        stream = (event.sender_id, event.device_id, event.chat_id)
        if entry.sequence < last.get(stream, 0):
            says = f"{shown(event)} is at {entry.sequence}, an earlier one of its device at {last[stream]}"
            yield HistoryBreach(Rule.SENDER_ORDER, says)
        last[stream] = max(entry.sequence, last.get(stream, 0))


def refused_is_not_stored(events: list[AnyEvent], index: Index) -> Iterator[HistoryBreach]:
    refused: dict[tuple[str, ClientKey], SendRejected] = {}
    for event in events:
        if isinstance(event, SendRejected) and not event.temporary:
            refused[event.sender_id, client_key(event)] = event
        elif isinstance(event, Sent):
            refused.pop((event.sender_id, client_key(event)), None)
    for refusal in refused.values():
        entry = _stored_of(refusal, index)
        if entry is not None:
            says = f"{shown(refusal)} was refused as {refusal.code}, yet is at {entry.sequence}"
            yield HistoryBreach(Rule.REFUSED_IS_NOT_STORED, says)


def content_as_sent(events: list[AnyEvent], index: Index) -> Iterator[HistoryBreach]:
    sent: dict[tuple[str, ClientKey], set[str]] = {}
    for event in events:
        if isinstance(event, Sent):
            sent.setdefault((event.sender_id, client_key(event)), set()).add(event.content)
    for entry in index.stored.values():
        if entry.client_message_id is None:
            continue
        contents = sent.get((entry.sender_id, client_key(entry)))
        if contents is None or entry.content not in contents:
            why = "it was never sent" if contents is None else "its content was never sent"
            yield HistoryBreach(Rule.CONTENT_AS_SENT, f"{shown(entry)} is stored at {entry.sequence}: {why}")


RuleCheck = Callable[[list[AnyEvent], Index], Iterator[HistoryBreach]]
RULES: tuple[RuleCheck, ...] = (
    acknowledged_is_stored,
    acknowledged_is_visible,
    one_position_per_id,
    message_id_unique,
    same_order,
    seen_is_stored,
    no_cursor_past_unresolved,
    sender_order,
    refused_is_not_stored,
    content_as_sent,
)


def position(event: Acknowledged | EntrySeen | VoidSeen | Stored | StoredVoid) -> Position:
    return event.chat_id, event.epoch, event.sequence


def client_key(event: Sent | Acknowledged | SendRejected | EntrySeen | Stored) -> ClientKey:
    return event.chat_id, (event.client_message_id or "").lower()


def identity(event: EntrySeen | Stored) -> Identity:
    return event.message_id, (event.client_message_id or "").lower() or None, event.content


def shown(event: Sent | Acknowledged | SendRejected | EntrySeen | Stored) -> str:
    return f"{event.client_message_id} in {event.chat_id}"


def _stored_of(event: Sent | SendRejected, index: Index) -> Stored | None:
    """This sender's entry with this id: another member's message may have the same id."""
    entries = index.stored_keys.get(client_key(event), [])
    return next((entry for entry in entries if entry.sender_id == event.sender_id), None)
