"""Lives on record: what goes into each core, and what it answers, for a core in another language to relive.

A life is one JSON line: `calls` in their order, of every core that lived, each with what Python's core gave
back; the `cores`, with the chances that each drew; and what was `shown` in the end. A core in another
language that is given the same calls must draw as often, and give back the same frames, events, entries, and
things to save. Time is in the calls, so nobody waits.
"""

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from parley.client.chat_model import ChatModel
from parley.client.core import ClientCore
from parley.client.events import ClientEvent
from parley.client.storage import MessageKey, StateChanges
from parley.core.message_actions import replay
from parley.wire.codec import CLIENT_CODECS
from parley.wire.frames import Request
from tests.model_server.lives import Life
from tests.model_server.world import CHAT_IDS, Person, durable_core

CALLS = frozenset(
    {
        "restore",
        "send",
        "mark_read",
        "ask_overview",
        "read",
        "read_all",
        "take",
        "mark_processed",
        "stop",
        "open",
        "close",
        "seek",
        "reload_open_chats",
        "start_typing",
        "stop_typing",
        "watch_presence",
        "message_stored",
        "message_not_stored",
        "check_failed",
        "chat_loaded",
        "load_failed",
        "connected",
        "disconnected",
        "receive",
        "tick",
        "next_wake_ms",
        "frames_to_send",
        "events",
        "to_save",
        "saved",
    }
)
"""The calls that are written down; what is read beside them shows in `views`."""


class Call(Struct, omit_defaults=True):
    """One call of one core. `was`: what Python's core gave back."""

    core: int
    name: str
    args: list[Any] = []
    was: Any = None


class TracedLife(Struct):
    """A core, from a start of its device to a crash. `chances`: what it drew, in order."""

    device: str
    chances: list[float]


class Trace:
    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.cores: list[TracedLife] = []

    def make_core(self, device: str, chance: Callable[[], float]) -> ClientCore:
        """A core whose every call is written down."""
        number, drawn = len(self.cores), list[float]()
        self.cores.append(TracedLife(device, drawn))

        def draw() -> float:
            drawn.append(chance())
            return drawn[-1]

        return cast(ClientCore, TracedCore(durable_core(device, draw), number, self.calls))


class TracedCore:
    """Passes everything on to a core."""

    def __init__(self, core: ClientCore, number: int, calls: list[Call]) -> None:
        self._core = core
        self.number = number
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._core, name)
        if name not in CALLS:
            return found

        def call(*args: Any) -> Any:
            written = [_told(one) for one in args]
            was = found(*args)
            self._calls.append(Call(self.number, name, written, _given(was)))
            return was

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


def _told(value: Any) -> Any:
    """An argument as JSON: a chat by its id; of what was saved, that it was."""
    if isinstance(value, ChatModel):
        return value.chat_id
    return None if isinstance(value, StateChanges) else _fixed(value)


def _given(value: Any) -> Any:
    """What a call returned."""
    match value:
        case list():
            return [_frame_or_event(one) for one in value]
        case StateChanges():
            removed = [_key(key) for key in value.removed]
            return {
                "added": [_key(one.key) for one in value.added],
                "removed": removed,
                "cursors": value.cursors,
            }
        case Struct():
            return _fixed(value)
    return value


def _fixed(value: Any) -> Any:
    """As it is now: the core changes some of what it was given."""
    return Raw(msgspec.json.encode(value)) if isinstance(value, Struct) else value


def _frame_or_event(value: Any) -> Any:
    if isinstance(value, ClientEvent):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        if "key" in fields:
            fields["key"] = _key(fields["key"])
        if "keys" in fields:
            fields["keys"] = _keys(fields["keys"])
        return [type(value).__name__, Raw(msgspec.json.encode(fields))]
    assert isinstance(value, Request)
    return CLIENT_CODECS["json"].encode(value).decode()


def _key(key: MessageKey) -> str:
    return " ".join(key)


def _keys(keys: list[MessageKey]) -> list[str]:
    return [_key(key) for key in keys]


def relive(seed: int) -> bytes:
    """The life of a seed, as one line of JSON without its end."""
    trace = Trace()
    life = Life(seed, trace.make_core)
    life.live()
    shown = [_shown(person) for person in life.world.people]
    line = {
        "seed": seed,
        "wall_ms": life.world.wall_ms,
        "cores": trace.cores,
        "calls": trace.calls,
        "shown": shown,
    }
    return msgspec.json.encode(line)


def _shown(person: Person) -> dict[str, Any]:
    """What a person's device shows in the end, chat by chat."""
    core: Any = person.core
    return {
        "core": core.number,
        "device": person.device,
        "online": core.online,
        "unsent": len(core.outbox),
        "chats": {chat_id: _chat_shown(person, chat_id) for chat_id in CHAT_IDS},
    }


def _chat_shown(person: Person, chat_id: str) -> dict[str, Any]:
    chat = person.core.chat(chat_id)
    row, inbox = chat.row, chat.inbox
    messages = {
        message_id: {
            "content": state.entry.content,
            "deleted": state.entry.deleted is True,
            "replies": sorted(state.replies),
            "reactions": state.reactions,
        }
        for message_id, state in replay(person.seen[chat_id]).items()
    }
    return {
        "entries": [msgspec.to_builtins(entry) for entry in person.seen[chat_id]],
        "messages": messages,
        "is_listed": row is not None,
        "head": None if row is None else row.head,
        "unread": [chat.unread_count, chat.unread_more],
        "muted": chat.is_muted(person.world.wall_ms),
        "typing": list(chat.typing),
        "is_open": chat.is_open,
        "members": list(chat.members),
        "receipts": [chat.receipts(sequence, person.user_id) for sequence in (1, 2, 3)],
        "inbox": None if inbox is None else [inbox.epoch, inbox.resolved, inbox.restarts, inbox.wants_sync],
        "cursor": person.core.cursors.get(chat_id),
    }
