"""The hub alone: what it sends when news comes late, out of order, or not at all."""

import asyncio

import msgspec

from parley.gateway import hub as hub_module
from parley.gateway.hub import Hub
from parley.gateway.subscribers import LiveChat
from parley.model import Page, Persisted, Scope, StoredEntry
from parley.sending.pending import PendingBatch, PendingSends
from parley.telemetry import Metrics
from parley.wire import codes
from parley.wire.codec import JSON, Codec
from parley.wire.codes import Close
from tests.fakes import hub_over
from tests.harness.clock import VirtualClock, run_virtual
from tests.harness.scripted_log import ScriptedLog, wire_at
from tests.memory.people import MemoryDirectory

CHAT = "chat_1"


def news(*sequences: int) -> Persisted:
    return Persisted(CHAT, 1, [StoredEntry(sequence, wire_at(CHAT, sequence)) for sequence in sequences])


class OneChatLog(ScriptedLog):
    """Ann's only chat, whose entries everybody can read as soon as they are in it."""

    def __init__(self) -> None:
        super().__init__("ann")
        self.chat(CHAT)
        self.directory = MemoryDirectory(self.tables)

    def fill(self, head: int) -> None:
        self.store(CHAT, *range(self.head(CHAT) + 1, head + 1))


class Ear:
    """A connection that remembers which positions it was sent, frame by frame."""

    def __init__(self, live: bool = True) -> None:
        self.user_id, self.session_id, self.live = "ann", "ses_1", live
        self.device_id, self.heard_from_ms = "phone", 0
        self.scopes: frozenset[Scope] | None = None
        self.codec: Codec = JSON
        self.chats: dict[str, LiveChat] = {}
        self.frames: list[list[int]] = []

    def offer(self, data: bytes) -> None:
        frame = msgspec.json.decode(data[data.index(b"{") :])
        self.frames.append([one["sequence"] for one in frame["entries"]])

    def close(self, close: Close) -> None:
        raise AssertionError(close)

    async def verify(self) -> None:
        """Its session never ends."""

    @property
    def heard(self) -> list[int]:
        return [sequence for frame in self.frames for sequence in frame]


async def listening(
    clock: VirtualClock, log: OneChatLog, pending: PendingSends | None = None
) -> tuple[Hub, Ear]:
    hub, ear = hub_over(log, log.directory, Metrics(clock), pending), Ear()
    await hub.subscribe(ear)
    return hub, ear


def test_what_follows_is_sent_at_once() -> None:
    """News of the next positions goes out in the call that brings it, without a look at the log."""

    async def scenario(clock: VirtualClock) -> None:
        log = OneChatLog()
        hub, ear = await listening(clock, log)
        hub.persisted([news(1, 2)])
        hub.persisted([news(3)])
        assert (ear.frames, log.reads) == ([[1, 2], [3]], 0)

    run_virtual(scenario)


def test_news_out_of_order_waits_for_what_lies_between() -> None:
    """A later position is sent only after the earlier one was told of, and from memory."""

    async def scenario(clock: VirtualClock) -> None:
        log = OneChatLog()
        hub, ear = await listening(clock, log)
        log.fill(3)
        hub.persisted([news(2)])
        hub.persisted([news(3)])
        await asyncio.sleep(0)
        assert ear.frames == []
        hub.persisted([news(1)])
        assert (ear.heard, log.reads) == ([1, 2, 3], 0)

    run_virtual(scenario)


def test_an_entry_that_nobody_was_told_of_is_not_sent_from_the_log() -> None:
    """What is durable but not told yet stays back, so that its sender hears the ack first."""

    async def scenario(clock: VirtualClock) -> None:
        log = OneChatLog()
        hub, ear = await listening(clock, log)
        log.fill(2)
        hub.persisted([news(2)])
        for _ in range(20):
            await asyncio.sleep(0)
        assert ear.heard == []

    run_virtual(scenario)


def test_news_that_is_lost_is_read_from_the_log() -> None:
    """After a moment without news of what lies between, the log is read; nothing is skipped or repeated."""

    async def scenario(clock: VirtualClock) -> None:
        log = OneChatLog()
        hub, ear = await listening(clock, log)
        log.fill(5)
        hub.persisted([news(4, 5)])
        await asyncio.sleep(10 * hub_module.FILL_AFTER_SECONDS)
        assert ear.heard == [1, 2, 3, 4, 5]
        hub.persisted([news(3)])
        hub.persisted([news(6)])
        assert ear.heard == [1, 2, 3, 4, 5, 6]

    run_virtual(scenario)


def test_news_during_a_read_is_sent_after_it() -> None:
    """What is told while the log is being read is neither lost nor sent too early."""

    async def scenario(clock: VirtualClock) -> None:
        log = OneChatLog()
        hub, ear = await listening(clock, log)
        log.fill(3)
        hub.persisted([news(3)])
        await log.is_read.wait()
        hub.persisted([news(4)])
        hub.persisted([news(5)])
        await asyncio.sleep(10 * hub_module.FILL_AFTER_SECONDS)
        assert ear.heard == [1, 2, 3, 4, 5]

    run_virtual(scenario)


def test_the_log_waits_for_answers_that_are_on_their_way() -> None:
    """A head that is ahead of the news is not shown before the senders in its chat have their answers."""

    async def scenario(clock: VirtualClock) -> None:
        log = OneChatLog()
        pending, batch = PendingSends(), PendingBatch()
        hub, ear = await listening(clock, log, pending)
        pending.begin(CHAT, batch)
        log.fill(2)
        await hub.check_heads()
        await asyncio.sleep(10 * hub_module.FILL_AFTER_SECONDS)
        assert (ear.heard, log.reads) == ([], 1)
        pending.end(CHAT, batch)
        await asyncio.sleep(hub_module.FILL_AFTER_SECONDS)
        assert ear.heard == [1, 2]

    run_virtual(scenario)


def test_other_nodes_wait_for_answers_and_own_commits_do_not() -> None:
    """What another node says waits for the senders here; this node's own commits come after their acks."""

    async def scenario(clock: VirtualClock) -> None:
        pending, batch = PendingSends(), PendingBatch()
        hub, ear = await listening(clock, OneChatLog(), pending)
        pending.begin(CHAT, batch)
        hub.persisted([news(1)])
        hub.persisted_elsewhere([news(2)])
        assert ear.heard == [1]
        pending.end(CHAT, batch)
        assert ear.heard == [1, 2]

    run_virtual(scenario)


def test_a_page_that_waits_is_overtaken_by_nothing_and_sent_once() -> None:
    """What comes while a page waits for answers is sent as it follows; the page adds what is missing."""

    async def scenario(clock: VirtualClock) -> None:
        log, pending, batch = OneChatLog(), PendingSends(), PendingBatch()
        hub, ear = await listening(clock, log, pending)
        pending.begin(CHAT, batch)
        log.fill(3)
        await hub.check_heads()
        await asyncio.sleep(2 * hub_module.FILL_AFTER_SECONDS)
        hub.persisted([news(1)])
        hub.persisted([news(4)])
        pending.end(CHAT, batch)
        await asyncio.sleep(hub_module.FILL_AFTER_SECONDS)
        assert ear.heard == [1, 2, 3, 4]

    run_virtual(scenario)


def test_news_while_the_head_is_looked_up_is_sent_once_and_then_forgotten() -> None:
    """What the head covers is not kept for ever; what it does not is sent from memory."""

    async def scenario(clock: VirtualClock) -> None:
        log = OneChatLog()
        log.fill(2)
        hub, ear = hub_over(log, log.directory, Metrics(clock)), Ear()
        arriving = asyncio.ensure_future(hub.subscribe(ear))
        await asyncio.sleep(0)
        hub.persisted([news(2, 3)])
        await arriving
        assert (ear.heard, log.reads) == ([3], 0)
        assert ear.chats[CHAT].pending == {}

    run_virtual(scenario)


def test_what_waits_is_bounded() -> None:
    """More than is kept in memory is dropped there and read from the log in time."""

    async def scenario(clock: VirtualClock) -> None:
        log = OneChatLog()
        hub, ear = await listening(clock, log)
        many = hub_module.PENDING_POSITIONS_MAX * 3
        log.fill(many)
        for sequence in range(2, many + 1):
            hub.persisted([news(sequence)])
        (chat,) = ear.chats.values()
        assert len(chat.pending) <= hub_module.PENDING_POSITIONS_MAX
        hub.persisted([news(1)])
        await asyncio.sleep(100 * hub_module.FILL_AFTER_SECONDS)
        assert ear.heard == list(range(1, many + 1))
        assert chat.pending == {}

    run_virtual(scenario)


def test_nothing_that_was_deleted_waits_here() -> None:
    """A message waits for what lies between; then it is deleted: what is left of it is read from the log."""

    async def scenario(clock: VirtualClock) -> None:
        log = OneChatLog()
        hub, ear = await listening(clock, log)
        hub.persisted([news(2)])
        (chat,) = ear.chats.values()
        assert list(chat.pending) == [2]
        wire = wire_at(CHAT, 3).replace(b'"kind":"message"', b'"kind":"delete"')
        assert wire != wire_at(CHAT, 3)
        hub.persisted([Persisted(CHAT, 1, [StoredEntry(3, wire)])])
        assert chat.pending == {}
        log.fill(3)
        await asyncio.sleep(1)
        assert ear.heard == [1, 2, 3]

    run_virtual(scenario)


def test_what_another_node_has_removed_does_not_wait_here() -> None:
    """It is read again from the log, which has what is left of it."""

    async def scenario(clock: VirtualClock) -> None:
        log = OneChatLog()
        hub, ear = await listening(clock, log)
        hub.persisted([news(2)])
        (chat,) = ear.chats.values()
        hub.forget("another chat")
        assert list(chat.pending) == [2]
        hub.forget_all()
        assert chat.pending == {}
        log.fill(2)
        await asyncio.sleep(1)
        assert ear.heard == [1, 2]

    run_virtual(scenario)


def test_a_page_that_was_read_before_a_removal_is_not_sent() -> None:
    """The log is read again: the page may have the body."""

    async def scenario(clock: VirtualClock) -> None:
        log = OneChatLog()
        hub, ear = await listening(clock, log)
        log.fill(2)
        read, reads = log.read, list[int]()

        async def slow_read(chat_id: str, after: int, limit: int) -> Page:
            page = await read(chat_id, after, limit)
            if not reads:
                hub.forget(CHAT)
            reads.append(after)
            return page

        log.read = slow_read  # type: ignore[method-assign]
        await hub.check_heads()
        await asyncio.sleep(1)
        assert ear.heard == [1, 2]
        assert reads == [0, 0]

    run_virtual(scenario)


def test_an_unresolved_position_holds_everything_behind_it() -> None:
    """Nothing is sent beyond an open number, however long it takes, and everything once it is resolved."""

    async def scenario(clock: VirtualClock) -> None:
        log = OneChatLog()
        hub, ear = await listening(clock, log)
        hub.persisted([news(2)])
        await asyncio.sleep(60)
        assert ear.heard == []
        hub.persisted([Persisted(CHAT, 1, [StoredEntry(1, None)])])
        assert ear.heard == [2]
        assert ear.chats[CHAT].sent_through == 2

    run_virtual(scenario)


def test_news_of_what_is_being_read_is_sent_once() -> None:
    """News that comes while the log is read for that very position is not sent beside it."""

    async def scenario(clock: VirtualClock) -> None:
        log = OneChatLog()
        hub, ear = await listening(clock, log)
        log.fill(2)
        await hub.check_heads()
        await log.is_read.wait()
        hub.persisted([news(1)])  # the page that is on its way has it too
        await asyncio.sleep(1)
        assert ear.heard == [1, 2]

    run_virtual(scenario)


def test_a_head_that_moved_by_one_is_named_until_it_is_sent() -> None:
    """Of news that was lost, the last one too, a connection can be told before the log is read for it."""

    async def scenario(clock: VirtualClock) -> None:
        log = OneChatLog()
        hub, ear = await listening(clock, log)
        log.fill(1)
        await hub.check_heads()
        assert hub.heads_beyond(ear, None) == {CHAT: 1}
        await asyncio.sleep(1)
        assert (hub.heads_beyond(ear, None), ear.heard) == ({}, [1])

    run_virtual(scenario)


class Closable(Ear):
    """A connection that remembers how it was closed."""

    def __init__(self, session_id: str) -> None:
        super().__init__()
        self.session_id = session_id
        self.closed: list[Close] = []

    def close(self, close: Close) -> None:
        self.closed.append(close)


def test_every_socket_of_an_ended_session_is_closed_and_no_other() -> None:
    """A session that ends takes all of its sockets along, at once, with the code that says so."""

    async def scenario(clock: VirtualClock) -> None:
        log = OneChatLog()
        hub = hub_over(log, log.directory, Metrics(clock))
        ears = [Closable("ses_1"), Closable("ses_2"), Closable("ses_1"), Closable("ses_3")]
        for ear in ears:
            await hub.subscribe(ear)
        hub.sessions_ended(["ses_1", "ses_3"])
        assert [ear.closed for ear in ears] == [[codes.REVOKED], [], [codes.REVOKED], [codes.REVOKED]]

    run_virtual(scenario)
