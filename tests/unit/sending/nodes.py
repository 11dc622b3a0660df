"""A cluster in one process for tests of forwarding: nodes over one store, each failing as it is told to."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from hashlib import blake2b
from uuid import UUID

from parley.bus.embedded import EmbeddedBus
from parley.core.rendezvous import owner
from parley.errors import SHUTTING_DOWN, STORE_UNAVAILABLE, OutcomeUnknown, Refusal, StoreUnavailable
from parley.model import Action, Appended, AppendResult, Change, Draft, Head, Outcome, Persisted, StoredEntry
from parley.sending.forwarder import Forwarder
from parley.sending.pending import PendingSends
from parley.sending.sender import LocalSender
from parley.telemetry import Metrics
from parley.wire.codec import decode_entry
from parley.wire.frames import RequestId
from tests.fakes import PER_CHAT
from tests.harness.clock import START_MS, VirtualClock
from tests.harness.faulty_log import FaultyLog
from tests.harness.scripted_log import wire_at

ME = "here"
SILENCE_SECONDS = 2.0
APPEND_SECONDS = 0.01
NEWS_SECONDS = 0.001
LATE_SECONDS = 3.0
SLOW_SECONDS = 4.0


class Mood(StrEnum):
    """What a node does with a batch."""

    WELL = "appends and answers"
    GONE = "cannot be reached"
    DEAF = "takes it, does nothing and never answers"
    DUMB = "appends and never answers"
    LATE = "wakes up after everybody has given up, and appends then"
    SLOW = "answers pings, and the call later than anybody waits"
    STORELESS = "answers that its store is away"
    LEAVING = "appends the first draft, then takes nothing more"
    BROKEN = "raises what nobody expects"


class SharedLog(FaultyLog):
    """Every chat's log, as all nodes see it: a message is stored once, whoever brings it.

    `news` hears what another node appends, sooner than that node answers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.news: Callable[[list[Persisted]], None] = lambda _: None

    async def append_there(self, drafts: Sequence[Draft]) -> AppendResult:
        """On another node: its news comes back by the bus."""
        result = await self.append(drafts)
        asyncio.get_running_loop().call_later(NEWS_SECONDS, self.news, result.persisted)
        return result

    def count(self, chat_id: str, content: str) -> int:
        return self.contents.get(chat_id, []).count(content)


class LocalLog(FaultyLog):
    """This node's own way into the store, chat by chat.

    It answers late: another node reads what is stored, and its news is here before the answer. `hangs`: no
    append ends before it is set.
    """

    def __init__(self, store: SharedLog) -> None:
        super().__init__(store.tables)
        self._store = store
        self.hangs: asyncio.Event | None = None

    async def append(self, drafts: Sequence[Draft]) -> AppendResult:
        self.batches.append([draft.content for draft in drafts])
        result = await self._store.append_there(drafts)
        await asyncio.sleep(APPEND_SECONDS)
        if self.hangs is not None:
            await self.hangs.wait()
        return result

    @property
    def taken(self) -> list[str]:
        return [content for batch in self.batches for content in batch]


class FakePeers:
    """The other nodes. `moods`: how each takes its next batches; well when nothing is left to say."""

    def __init__(self, store: SharedLog, node_ids: Sequence[str]) -> None:
        self._store = store
        self.node_ids = list(node_ids)
        self.moods: dict[str, list[Mood]] = {}
        self.owners: dict[str, str | None] = {}
        self.doubted: set[str] = set()
        self.batches: list[tuple[str, list[Draft]]] = []
        self.under_way: Counter[str] = Counter()
        self.most_under_way: Counter[str] = Counter()
        self.chats_under_way: Counter[str] = Counter()
        self.late: list[asyncio.Task[None]] = []

    def owner_of(self, chat_id: str) -> str | None:
        if chat_id in self.owners and self.owners[chat_id] not in self.doubted:
            return self.owners[chat_id]
        return owner(chat_id, [node_id for node_id in self.node_ids if node_id not in self.doubted])

    async def append(self, node_id: str, drafts: Sequence[Draft]) -> list[Outcome]:
        self.batches.append((node_id, list(drafts)))
        chats = {draft.chat_id for draft in drafts}
        assert not any(self.chats_under_way[chat] for chat in chats), "of one chat one batch is under way"
        self.chats_under_way.update(chats)
        self.under_way[node_id] += 1
        self.most_under_way[node_id] = max(self.most_under_way[node_id], self.under_way[node_id])
        moods = self.moods.get(node_id)
        try:
            return await self._append(node_id, drafts, moods.pop(0) if moods else Mood.WELL)
        finally:
            self.chats_under_way.subtract(chats)
            self.under_way[node_id] -= 1

    async def _append(self, node_id: str, drafts: Sequence[Draft], mood: Mood) -> list[Outcome]:
        match mood:
            case Mood.WELL:
                result = await self._store.append_there(drafts)
                await asyncio.sleep(APPEND_SECONDS)
                return result.outcomes
            case Mood.LEAVING:
                self.doubted.add(node_id)
                await asyncio.sleep(APPEND_SECONDS)
                result = await self._store.append_there(drafts[:1])
                return [*result.outcomes, *[SHUTTING_DOWN] * (len(drafts) - 1)]
            case Mood.STORELESS:
                await asyncio.sleep(APPEND_SECONDS)
                return [STORE_UNAVAILABLE] * len(drafts)
            case Mood.SLOW:
                await asyncio.sleep(SLOW_SECONDS)
                raise OutcomeUnknown(f"{node_id} took too long")
            case Mood.GONE:
                self.doubted.add(node_id)
                raise StoreUnavailable(f"{node_id} cannot be reached")
            case Mood.BROKEN:
                raise ValueError("on purpose")
            case _:
                return await self._be_silent(node_id, drafts, mood)

    async def _be_silent(self, node_id: str, drafts: Sequence[Draft], mood: Mood) -> list[Outcome]:
        if mood is Mood.DUMB:
            await self._store.append_there(drafts)
        if mood is Mood.LATE:
            self.late.append(asyncio.create_task(self._append_late(drafts)))
        await asyncio.sleep(SILENCE_SECONDS)
        self.doubted.add(node_id)
        raise OutcomeUnknown(f"{node_id} gave no answer")

    async def _append_late(self, drafts: Sequence[Draft]) -> None:
        await asyncio.sleep(SILENCE_SECONDS + LATE_SECONDS)
        await self._store.append_there(drafts)


class Cluster:
    """This node, the others, and what every sender was told."""

    def __init__(self, others: Sequence[str] = ("one", "two"), appends_here: bool = True) -> None:
        self.store = SharedLog()
        self.peers = FakePeers(self.store, [*others, ME] if appends_here else others)
        self.local = LocalLog(self.store)
        self.metrics = Metrics(VirtualClock(START_MS))
        bus = EmbeddedBus()
        self.pending = PendingSends()
        self.sender = LocalSender(self.local, bus, self.pending, self.metrics, PER_CHAT)
        local = self.sender if appends_here else None
        self.forwarder = Forwarder(ME, local, self.peers, self.pending, self.metrics)
        self.told: dict[str, list[Outcome]] = {}
        self.drafts: list[Draft] = []
        self.heard: list[str] = []
        """What this node's people hear: their outcomes and the news, in order."""
        self.store.news = self._persisted_elsewhere
        bus.subscribe(self)

    def submit(self, draft: Draft) -> None:
        self.drafts.append(draft)
        self.told[draft.content] = []
        self.forwarder.submit(draft, len(self.drafts), self._hear)

    def _hear(self, draft: Draft, request_id: RequestId, outcome: Outcome) -> None:
        assert isinstance(request_id, int)
        assert self.drafts[request_id - 1] is draft
        self.told[draft.content].append(outcome)
        self.heard.append(f"told {draft.content}")

    def _persisted_elsewhere(self, news: list[Persisted]) -> None:
        """As a hub does with what other nodes say."""
        for item in news:
            self.pending.after_answers(
                item.chat_id, item.positions[-1].sequence, partial(self.persisted, [item])
            )

    def persisted(self, news: list[Persisted]) -> None:
        """As a hub does, which knows what it has sent: what comes twice is told once."""
        wires = [stored.wire for item in news for stored in item.positions if stored.wire]
        told = [f"news {decode_entry(wire).content}" for wire in wires]
        self.heard += [one for one in told if one not in self.heard]

    def joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        raise AssertionError("nobody says so")

    def sessions_ended(self, session_ids: list[str]) -> None:
        raise AssertionError("nobody says so")

    async def finish(self) -> None:
        """Until everything is told, and whoever was late has come."""
        while not all(self.told.values()):  # noqa: ASYNC110 - takes no time here
            await asyncio.sleep(APPEND_SECONDS)
        await self.forwarder.stop()
        await self.sender.stop()
        await asyncio.gather(*self.peers.late)
        await asyncio.sleep(NEWS_SECONDS)

    def outcome(self, content: str) -> Outcome:
        (outcome,) = self.told[content]
        return outcome

    def code(self, content: str) -> str:
        """How a send ended, in one word."""
        outcome = self.outcome(content)
        if isinstance(outcome, Refusal):
            return outcome.code
        return "deduplicated" if outcome.deduplicated else "stored"

    def forwarded(self) -> list[tuple[str, list[str]]]:
        return [(node_id, [draft.content for draft in drafts]) for node_id, drafts in self.peers.batches]


def news_of(draft: Draft, at: Appended) -> Persisted:
    wire = wire_at(draft.chat_id, at.sequence, draft.content)
    return Persisted(draft.chat_id, at.epoch, [StoredEntry(at.sequence, wire)])


def message(content: str, chat_id: str = "chat") -> Draft:
    key = UUID(bytes=blake2b(content.encode(), digest_size=16).digest(), version=4)
    return Draft(
        chat_id=chat_id, sender_id="ann", content=content, client_message_id=str(key), client_key=key.bytes
    )


def change(content: str, chat_id: str = "chat") -> Draft:
    """A change of a chat has no client's id, so nobody would recognise it the second time."""
    renamed = Change(Action.RENAMED, title=content)
    return Draft(chat_id=chat_id, sender_id="ann", content=content, kind="chat", change=renamed)
