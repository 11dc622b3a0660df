"""The topic of events in Kafka, written to by somebody who wants to put words into others' mouths."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
import structlog
from aiokafka import ConsumerRecord
from msgspec import structs

from parley.bus import events
from parley.bus.events import PROOF, Headers, Record
from parley.bus.kafka.records import RecordReader
from parley.core.cluster_keys import EVENTS, SIGNALS, ClusterKeys
from parley.gateway import hub as hub_module
from parley.model import Action, Change, ChatMember, Kind, Role, Scope, StoredEntry
from parley.telemetry import Metrics
from parley.wire.codec import JSON, Codec
from parley.wire.codes import Close
from tests.fakes import KEYS, hub_over
from tests.harness.clock import VirtualClock, run_virtual
from tests.harness.scripted_log import TIME, ScriptedLog, entry_at, wire_at
from tests.memory.people import MemoryDirectory

TOPIC = "messages.persisted"
CHAT = "chat_1"
FORGED_WIRE = wire_at(CHAT, 1, "I owe you a million")


class Victim:
    """A connection that remembers every frame."""

    def __init__(self, user_id: str) -> None:
        self.user_id, self.session_id, self.live = user_id, "ses_1", True
        self.scopes: frozenset[Scope] | None = None
        self.codec: Codec = JSON
        self.chats: dict[str, object] = {}
        self.frames: list[dict[str, object]] = []

    def offer(self, data: bytes) -> None:
        header_bytes = {126: 4, 127: 10}.get(data[1], 2)
        self.frames.append(msgspec.json.decode(data[header_bytes:]))

    def close(self, close: Close) -> None:
        raise AssertionError(close)

    @property
    def shown(self) -> list[str]:
        """The bodies of all entries that it was sent."""
        found = []
        for frame in self.frames:
            entries = frame.get("entries", [])
            assert isinstance(entries, list)
            found += [entry["content"] for entry in entries]
        return found


class Gateway:
    """A hub that hears a topic, a log below it, and ann, who is connected."""

    def __init__(self, clock: VirtualClock) -> None:
        self.log = ScriptedLog("ann")
        self.metrics = Metrics(clock)
        self.hub = hub_over(self.log, MemoryDirectory(self.log.tables), self.metrics)
        self.reader = RecordReader(TOPIC, KEYS, self.metrics)
        self.ann = Victim("ann")
        self._offset = 0

    async def connect(self) -> None:
        await self.hub.subscribe(self.ann)  # type: ignore[arg-type]

    def hear(self, record: Record) -> None:
        """A record comes out of the topic, and what it tells is routed here."""
        self._offset += 1
        read = ConsumerRecord(
            TOPIC, 0, self._offset, 0, 0, record.key, record.value, 0, 0, 0, tuple(record.headers)
        )
        told = self.reader.read(read)
        if told is not None:
            self.hub.persisted_elsewhere(events.gather([told]))

    @property
    def unproven(self) -> float:
        return self.metrics.registry.get_sample_value("parley_unproven_total", {"what": "event"}) or 0


def record_of(stored: StoredEntry) -> Record:
    return events.encode(CHAT, 1, stored, "there", 0)


def signed(record: Record, keys: ClusterKeys = KEYS, purpose: str = EVENTS, topic: str = TOPIC) -> Record:
    headers: Headers = [*record.headers, (PROOF, keys.ring(purpose, topic).tag(record.value))]
    return record._replace(headers=headers)


def attacking(scenario: Callable[[Gateway], Awaitable[None]]) -> None:
    async def run(clock: VirtualClock) -> None:
        with structlog.testing.capture_logs():
            gateway = Gateway(clock)
            await scenario(gateway)
            await gateway.hub.close()

    run_virtual(run)


FORGERIES: dict[str, Callable[[Record], Record]] = {
    "not signed": lambda record: record,
    "signed with zeros": lambda record: record._replace(headers=[(PROOF, bytes(16))]),
    "signed with another secret": lambda record: signed(record, ClusterKeys("a guess of some length")),
    "signed as a signal": lambda record: signed(record, purpose=SIGNALS),
    "signed for another topic": lambda record: signed(record, topic="staging." + TOPIC),
    "changed": lambda record: signed(
        record._replace(value=record.value.replace(b"million", b"penny"))
    )._replace(value=record.value),
}


@pytest.mark.parametrize("how", FORGERIES)
def test_a_forged_message_is_not_shown(how: str) -> None:
    """A body that is in no log reaches nobody, and the attempt is counted."""

    async def scenario(gateway: Gateway) -> None:
        gateway.log.chat(CHAT)
        await gateway.connect()
        gateway.hear(FORGERIES[how](record_of(StoredEntry(1, FORGED_WIRE))))
        await asyncio.sleep(10 * hub_module.FILL_AFTER_SECONDS)
        assert (gateway.ann.shown, gateway.unproven) == ([], 1)

    attacking(scenario)


def test_a_genuine_message_is_shown() -> None:
    """The same way, signed by a node of the cluster, is the one that messages come."""

    async def scenario(gateway: Gateway) -> None:
        gateway.log.chat(CHAT)
        await gateway.connect()
        (stored,) = gateway.log.store(CHAT, 1, content="hello").positions
        gateway.hear(signed(record_of(stored)))
        assert gateway.ann.shown == ["hello"]

    attacking(scenario)


def change_at(sequence: int, action: Action, user_id: str) -> StoredEntry:
    content = msgspec.json.encode({"action": action.value, "user_id": user_id}).decode()
    entry = entry_at(CHAT, sequence, content, Kind.MEMBER.value)
    return StoredEntry(sequence, msgspec.json.encode(entry), Change(action, user_id))


@pytest.mark.parametrize("is_signed", [False, True])
def test_a_forged_joined_subscribes_nobody(is_signed: bool) -> None:
    """Neither an invented joining nor an old one that is put on the bus again lets a stranger hear a chat."""

    async def scenario(gateway: Gateway) -> None:
        gateway.log.chat(CHAT).members = {"ben": ChatMember("ben", Role.OWNER, TIME, 0)}
        await gateway.connect()
        joining = record_of(change_at(1, Action.JOINED, "ann"))
        gateway.hear(signed(joining) if is_signed else joining)
        await asyncio.sleep(1)
        (stored,) = gateway.log.store(CHAT, 1, content="between us").positions
        gateway.hear(signed(record_of(stored)))
        await asyncio.sleep(1)
        assert gateway.ann.frames == []

    attacking(scenario)


def test_a_joining_of_a_member_is_heard() -> None:
    """Whom the store names hears the chat from the joining on, although nobody here heard it before."""

    async def scenario(gateway: Gateway) -> None:
        record = gateway.log.chat(CHAT)
        member, record.members = record.members["ann"], {}
        await gateway.connect()
        record.members = {"ann": member}
        joining = change_at(1, Action.JOINED, "ann")
        record.resolve(1, entry_at(CHAT, 1, "joined", Kind.MEMBER.value))
        (stored,) = gateway.log.store(CHAT, 2, content="welcome").positions
        gateway.hear(signed(record_of(joining)))
        gateway.hear(signed(record_of(stored)))
        await asyncio.sleep(1)
        assert gateway.ann.frames[0]["change"] == "joined"
        assert gateway.ann.shown == ["welcome"]

    attacking(scenario)


def test_an_old_removal_that_is_put_back_removes_nobody() -> None:
    """A member who was removed once and is back stays, while the head of the chat is still being read."""

    async def scenario(gateway: Gateway) -> None:
        gateway.log.store(CHAT, 1, 2, 3)
        connecting = asyncio.create_task(gateway.connect())
        await asyncio.sleep(0)
        gateway.hear(signed(record_of(change_at(1, Action.REMOVED, "ann"))))
        await connecting
        await asyncio.sleep(1)
        assert [frame for frame in gateway.ann.frames if frame.get("change") == "left"] == []
        assert CHAT in gateway.ann.chats

    attacking(scenario)


def test_a_message_of_a_log_that_was_lost_is_not_shown() -> None:
    """After a chat's log was rebuilt, events of the epoch before bring nothing back."""

    async def scenario(gateway: Gateway) -> None:
        gateway.log.chat(CHAT)
        await gateway.connect()
        rebuilt = structs.replace(entry_at(CHAT, 1, "rebuilt"), epoch=2)
        lost = entry_at(CHAT, 2, "of the log that was lost")
        for entry in (rebuilt, lost):
            gateway.hear(signed(record_of(StoredEntry(entry.sequence, msgspec.json.encode(entry)))))
        await asyncio.sleep(1)
        assert gateway.ann.shown == ["rebuilt"]

    attacking(scenario)
