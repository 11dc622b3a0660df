"""A person with many chats at a server that counts frames."""

from parley.core.rates import FRAMES_PER_CONNECTION, MESSAGES_PER_USER, RateLimiter
from parley.errors import RATE_LIMITED
from parley.gateway.connection import REFUSED_FRAMES_MAX
from parley.wire.frames import Request, SendMessage, ServerFrames, SyncOverview, SyncRequest, refused
from tests.model_server.server import ModelServer, make_entry
from tests.unit.client.harness import Harness, of, outgoing, position

CHATS = 2_500
ROUND_TRIP_MS = 5
SENT = 1_500


class CountingServer:
    """A server that lets so many frames through and remembers how often it refused."""

    def __init__(self, chats: int) -> None:
        self.model = ModelServer([f"chat_{number}" for number in range(chats)])
        for chat_id in self.model.logs:
            self.model.add(chat_id, make_entry(chat_id, 1))
        self.rate = RateLimiter(FRAMES_PER_CONNECTION)
        self.message_rate = RateLimiter(MESSAGES_PER_USER)
        self.refused_frames = 0

    def answer(self, request: Request, now_ms: int) -> list[ServerFrames]:
        wait_ms = self.rate.take("", now_ms)
        if wait_ms:
            self.refused_frames += 1
        elif isinstance(request, SendMessage):
            wait_ms = self.message_rate.take("", now_ms)
        if wait_ms:
            return [refused(RATE_LIMITED.after(wait_ms), request.id)]
        return self.model.answer(request, "user_me")[0]


def live(harness: Harness, server: CountingServer) -> None:
    """One round trip: what is to be said is said, and what comes is taken."""
    for request in harness.frames():
        for answer in server.answer(request, harness.now_ms):
            harness.receive(answer)
    for chat_id in harness.core.sync.ready():
        while harness.core.take(harness.core.chat(chat_id), harness.now_ms) is not None:
            pass


def test_a_crowd_of_chats_is_read_without_being_thrown_out() -> None:
    """Pages and acks slow down before the server ends the connection for good, and all of them arrive."""
    server, harness = CountingServer(CHATS), Harness()
    harness.core.read_all()
    harness.connect()
    while len(server.model.tables.devices) < CHATS:
        live(harness, server)
        harness.now_ms += ROUND_TRIP_MS
        assert server.refused_frames <= REFUSED_FRAMES_MAX // 2
        assert harness.now_ms < 60_000, "and not much later than it could"


def test_a_message_to_each_of_many_chats_arrives() -> None:
    """One chat that sends too fast speaks for all of them."""
    server, harness = CountingServer(SENT), Harness()
    harness.connect()
    for number, chat_id in enumerate(server.model.logs):
        harness.core.send(outgoing(str(number), chat_id))
    while len(harness.core.outbox):
        live(harness, server)
        harness.now_ms += ROUND_TRIP_MS // 2
        assert server.refused_frames <= REFUSED_FRAMES_MAX // 2
        assert harness.now_ms < 60_000, "and not much later than it could"


def test_a_refused_overview_rests_whoever_asks() -> None:
    """Asking again meanwhile does not make it sooner, and is answered by the same round."""
    harness = Harness()
    harness.connect()
    (asked,) = of(SyncOverview, harness.frames())
    harness.receive(refused(RATE_LIMITED.after(2_000), asked.id))
    wanted_round = harness.core.overview.ask()
    assert of(SyncOverview, harness.pass_time(1_999)) == []
    assert len(of(SyncOverview, harness.pass_time(1))) == 1
    assert harness.core.overview.round == wanted_round


def test_one_chat_that_asks_too_fast_speaks_for_all() -> None:
    """The others would be refused, too; a new connection owes nothing."""
    harness = Harness()
    harness.core.read_all()
    harness.connect()
    harness.answer_overview(*[position(f"chat_{number}", head=5) for number in range(20)])
    for request in of(SyncRequest, harness.frames()):
        harness.receive(refused(RATE_LIMITED.after(5), request.id))
    assert of(SyncRequest, harness.pass_time(999)) == []
    harness.core.disconnected()
    harness.connect()
    assert len(of(SyncRequest, harness.frames())) == 8
