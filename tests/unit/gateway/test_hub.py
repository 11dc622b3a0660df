"""The hub alone: what it sends when news comes late, out of order, or not at all."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from parley.gateway import hub as hub_module
from parley.gateway.hub import Hub, LiveChat
from parley.model import Chat, Head, Member, Page, Persisted, Role, Stored
from parley.telemetry import Metrics
from parley.testing.clock import VirtualClock, run_virtual
from parley.wire import codes
from parley.wire.codec import JSON, Codec
from parley.wire.codes import Close
from parley.wire.frames import Entry
from tests.fakes import UnaskedLog

CHAT = "chat_1"


def entry(sequence: int, content: str = "x") -> bytes:
    return msgspec.json.encode(
        Entry(
            chat_id=CHAT,
            sequence=sequence,
            epoch=1,
            kind="message",
            message_id=f"msg_{sequence}",
            sender_id="ann",
            client_message_id=None,
            content=content,
            content_type="text/plain",
            created_at="",
            server_timestamp="",
        )
    )


def news(*sequences: int) -> Persisted:
    return Persisted(CHAT, 1, [Stored(sequence, entry(sequence)) for sequence in sequences])


class FakeLog(UnaskedLog):
    """A log whose entries everybody can read as soon as they are in it; `reads` counts."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.reads = 0
        self.is_read = asyncio.Event()

    def fill(self, head: int) -> None:
        self.entries = [entry(sequence) for sequence in range(1, head + 1)]

    async def read(self, chat_id: str, after: int, limit: int) -> Page:
        self.reads += 1
        self.is_read.set()
        await asyncio.sleep(0)
        found = self.entries[after : after + limit]
        return Page(chat_id, 1, found, [], after + 1, after + len(found), len(self.entries))

    async def heads(self, chat_ids: Sequence[str]) -> dict[str, Head]:
        head = len(self.entries)
        await asyncio.sleep(0)
        return {chat_id: Head(1, head) for chat_id in chat_ids}


class FakeDirectory:
    """Everybody is in the one chat."""

    async def chat_ids_of(self, user_id: str) -> list[str]:
        return [CHAT]

    async def create_chat(self, chat: Chat, member_ids: Sequence[str]) -> tuple[Chat, bool]:
        raise AssertionError("nobody asks")

    async def chat(self, chat_id: str) -> Chat | None:
        raise AssertionError("nobody asks")

    async def role(self, chat_id: str, user_id: str) -> Role | None:
        raise AssertionError("nobody asks")

    async def members(self, chat_id: str, after_user_id: str, limit: int) -> list[Member]:
        raise AssertionError("nobody asks")

    async def member_count(self, chat_id: str) -> int:
        raise AssertionError("nobody asks")


class Ear:
    """A connection that remembers which positions it was sent, frame by frame."""

    def __init__(self, live: bool = True) -> None:
        self.user_id, self.session_id, self.live = "ann", "ses_1", live
        self.codec: Codec = JSON
        self.chats: dict[str, LiveChat] = {}
        self.frames: list[list[int]] = []

    def offer(self, data: bytes) -> None:
        frame = msgspec.json.decode(data[data.index(b"{") :])
        self.frames.append([one["sequence"] for one in frame["entries"]])

    def close(self, close: Close) -> None:
        raise AssertionError(close)

    @property
    def heard(self) -> list[int]:
        return [sequence for frame in self.frames for sequence in frame]


async def listening(clock: VirtualClock, log: FakeLog) -> tuple[Hub, Ear]:
    hub, ear = Hub(log, FakeDirectory(), Metrics(clock), lambda _: None), Ear()
    await hub.subscribe(ear)
    return hub, ear


def test_what_follows_is_sent_at_once() -> None:
    """News of the next positions goes out in the call that brings it, without a look at the log."""

    async def scenario(clock: VirtualClock) -> None:
        log = FakeLog()
        hub, ear = await listening(clock, log)
        hub.persisted([news(1, 2)])
        hub.persisted([news(3)])
        assert (ear.frames, log.reads) == ([[1, 2], [3]], 0)

    run_virtual(scenario)


def test_news_out_of_order_waits_for_what_lies_between() -> None:
    """A later position is sent only after the earlier one was told of, and from memory."""

    async def scenario(clock: VirtualClock) -> None:
        log = FakeLog()
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
        log = FakeLog()
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
        log = FakeLog()
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
        log = FakeLog()
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
        log = FakeLog()
        hub, ear = await listening(clock, log)
        held: list[Callable[[], None]] = []

        def hold(chat_id: str, through: int, tell: Callable[[], None]) -> bool:
            assert through == 2
            held.append(tell)
            return True

        hub.hold = hold
        log.fill(2)
        await hub.check_heads()
        await asyncio.sleep(10 * hub_module.FILL_AFTER_SECONDS)
        assert (ear.heard, log.reads, len(held)) == ([], 1, 1)
        held[0]()
        await asyncio.sleep(hub_module.FILL_AFTER_SECONDS)
        assert ear.heard == [1, 2]

    run_virtual(scenario)


def test_news_while_the_head_is_looked_up_is_sent_once_and_then_forgotten() -> None:
    """What the head covers is not kept for ever; what it does not is sent from memory."""

    async def scenario(clock: VirtualClock) -> None:
        log = FakeLog()
        log.fill(2)
        hub, ear = Hub(log, FakeDirectory(), Metrics(clock), lambda _: None), Ear()
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
        log = FakeLog()
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


def test_an_unresolved_position_holds_everything_behind_it() -> None:
    """Nothing is sent beyond an open number, however long it takes, and everything once it is resolved."""

    async def scenario(clock: VirtualClock) -> None:
        log = FakeLog()
        hub, ear = await listening(clock, log)
        hub.persisted([news(2)])
        await asyncio.sleep(60)
        assert ear.heard == []
        hub.persisted([Persisted(CHAT, 1, [Stored(1, None)])])
        assert ear.heard == [2]
        assert ear.chats[CHAT].sent_through == 2

    run_virtual(scenario)


def test_news_of_what_is_being_read_is_sent_once() -> None:
    """News that comes while the log is read for that very position is not sent beside it."""

    async def scenario(clock: VirtualClock) -> None:
        log = FakeLog()
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
        log = FakeLog()
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
        hub = Hub(FakeLog(), FakeDirectory(), Metrics(clock), lambda _: None)
        ears = [Closable("ses_1"), Closable("ses_2"), Closable("ses_1"), Closable("ses_3")]
        for ear in ears:
            await hub.subscribe(ear)
        hub.sessions_ended(["ses_1", "ses_3"])
        assert [ear.closed for ear in ears] == [[codes.REVOKED], [], [codes.REVOKED], [codes.REVOKED]]

    run_virtual(scenario)
