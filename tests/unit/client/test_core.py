"""What the core does by the clock and by what the server says, without either."""

from collections.abc import Callable

import pytest
from msgspec import Raw

from parley.client.chat_model import ChatModel
from parley.client.core import ClientCore
from parley.client.events import MessageStored, OverviewComplete, ReadMarkDone, RequestFailed
from parley.client.storage import Cursor, StateChanges
from parley.client.timing import Timing
from parley.errors import AHEAD_OF_LOG, BAD_REQUEST, FORBIDDEN, NOT_A_MEMBER, RATE_LIMITED, Refusal
from parley.wire.codec import CLIENT_CODECS, NotAFrame
from parley.wire.frames import (
    AckPosition,
    ChatChanged,
    Heartbeat,
    HeartbeatAck,
    Messages,
    Overview,
    ReadReceipt,
    SyncOverview,
    SyncRequest,
    answer_to,
    refused,
)
from tests.model_server.server import TIME, make_entry, raw
from tests.unit.client.harness import CHAT, Harness, of, outgoing, position, reading


def test_each_connection_begins_with_the_overview_since_the_last() -> None:
    """The first asks for everything, later ones only for what changed."""
    harness = Harness()
    harness.connect()
    harness.answer_overview(token="t7")
    harness.core.disconnected()
    harness.connect()
    (asked,) = of(SyncOverview, harness.frames())
    assert isinstance(asked, SyncOverview)
    assert asked.changed_since == "t7"


def test_what_a_lost_connection_told_and_did_not_bring_is_asked_for() -> None:
    """The next overview does not repeat a head whose page was cut off: the log is asked all the same."""
    harness = reading(head=3, acked=3)
    harness.receive(Messages(chat_id=CHAT, epoch=1, entries=[raw(make_entry(CHAT, 9))]))
    assert len(of(SyncRequest, harness.frames())) == 1
    harness.core.disconnected()
    harness.connect()
    assert len(of(SyncRequest, harness.frames())) == 1


def test_an_overview_is_read_to_its_end() -> None:
    """Pages follow each other by their tokens, and only the last completes it."""
    harness = Harness()
    harness.connect()
    harness.answer_overview(position("chat_1"), token="p1", complete=False)
    assert OverviewComplete(1) not in harness.core.events()
    harness.answer_overview(position("chat_2"), token="p2")
    assert OverviewComplete(1) in harness.core.events()
    assert set(harness.core.rows) == {"chat_1", "chat_2"}


def test_an_overview_on_its_way_does_not_answer_a_later_question() -> None:
    """Whoever asks while one is under way waits for the next, which is then asked for."""
    harness = Harness()
    harness.connect()
    (first,) = of(SyncOverview, harness.frames())
    assert harness.core.overview.ask() == 2
    harness.receive(Overview(re=answer_to(first.id), chats=[], token="t1", complete=True))
    assert OverviewComplete(1) in harness.core.events()
    harness.answer_overview(token="t2")
    assert OverviewComplete(2) in harness.core.events()


def test_a_token_that_is_not_taken_is_given_up() -> None:
    """The next overview then lists everything."""
    harness = Harness()
    harness.connect()
    harness.answer_overview(token="t7")
    harness.core.overview.ask()
    (asked,) = of(SyncOverview, harness.frames())
    harness.receive(refused(BAD_REQUEST, asked.id))
    (again,) = of(SyncOverview, harness.pass_time(1_000))
    assert isinstance(again, SyncOverview)
    assert again.changed_since is None


def test_reading_starts_at_the_servers_cursor() -> None:
    """A device without its own record asks after the position that the server keeps for it."""
    harness = Harness()
    harness.core.read(harness.core.chat(CHAT))
    harness.connect()
    assert of(SyncRequest, harness.frames()) == []
    harness.core.disconnected()
    harness.connect()
    harness.answer_overview(position(head=9, acked=4))
    (request,) = of(SyncRequest, harness.frames())
    assert isinstance(request, SyncRequest)
    assert (request.last_acked_sequence, request.epoch, request.last_message_id) == (4, 1, None)


def test_reading_starts_at_ones_own_cursor() -> None:
    """A device with its own record does not wait for the overview, and names its last message."""
    harness = Harness({CHAT: Cursor(1, 6, "msg_6")})
    harness.core.read(harness.core.chat(CHAT))
    harness.connect()
    (request,) = of(SyncRequest, harness.frames())
    assert isinstance(request, SyncRequest)
    assert (request.last_acked_sequence, request.epoch, request.last_message_id) == (6, 1, "msg_6")


def test_a_heartbeat_goes_out_every_thirty_seconds() -> None:
    """The server's own interval is kept."""
    harness = Harness()
    harness.connect()
    harness.answer_overview()
    assert of(Heartbeat, harness.pass_time(29_999)) == []
    (heartbeat,) = of(Heartbeat, harness.pass_time(1))
    harness.receive(HeartbeatAck(re=answer_to(heartbeat.id), server_time=TIME))
    harness.pass_time(15_000)
    assert not harness.core.silent
    assert len(of(Heartbeat, harness.pass_time(15_000))) == 1


def test_a_silent_server_is_noticed() -> None:
    """A heartbeat without an answer ends the connection."""
    harness = Harness()
    harness.connect()
    harness.answer_overview()
    harness.pass_time(30_000)
    harness.pass_time(9_999)
    was_silent = harness.core.silent
    harness.pass_time(1)
    assert (was_silent, harness.core.silent) == (False, True)


def test_a_lost_last_notice_is_found_by_the_heartbeat() -> None:
    """A head beyond what was received is fetched."""
    harness = reading(head=3, acked=3)
    (heartbeat,) = of(Heartbeat, harness.pass_time(30_000))
    harness.receive(HeartbeatAck(re=answer_to(heartbeat.id), server_time=TIME, heads={CHAT: 5}))
    (request,) = of(SyncRequest, harness.frames())
    assert isinstance(request, SyncRequest)
    assert request.last_acked_sequence == 3


def test_processed_entries_are_acknowledged_once_per_interval() -> None:
    """However many entries are taken, one cumulative ack follows."""
    harness = reading(head=50, acked=0)
    while harness.core.take(harness.core.chat(CHAT), harness.now_ms) is not None:
        pass
    assert of(AckPosition, harness.frames()) == []
    acks = of(AckPosition, harness.pass_time(100))
    assert [frame.last_acked_sequence for frame in acks if isinstance(frame, AckPosition)] == [50]
    assert of(AckPosition, harness.pass_time(1_000)) == []


def test_an_ack_that_may_be_lost_is_repeated_after_a_reconnect() -> None:
    """Only an answered heartbeat after it proves that it has taken effect."""
    harness = reading(head=2, acked=0)
    harness.core.take(harness.core.chat(CHAT), 0)
    harness.core.take(harness.core.chat(CHAT), 0)
    assert len(of(AckPosition, harness.pass_time(100))) == 1
    harness.core.disconnected()
    harness.connect()
    assert len(of(AckPosition, harness.frames())) == 1
    (heartbeat,) = of(Heartbeat, harness.pass_time(30_000))
    harness.receive(HeartbeatAck(re=answer_to(heartbeat.id), server_time=TIME))
    harness.core.disconnected()
    harness.connect()
    assert of(AckPosition, harness.frames()) == []


def test_acks_that_are_forbidden_are_not_repeated() -> None:
    """A program whose token moves no position reads on, and asks again on its next connection."""
    harness = reading(head=2, acked=0)
    harness.core.take(harness.core.chat(CHAT), 0)
    harness.core.take(harness.core.chat(CHAT), 0)
    (ack,) = of(AckPosition, harness.pass_time(100))
    harness.receive(refused(FORBIDDEN, ack.id))
    news = Messages(chat_id=CHAT, epoch=1, entries=[raw(make_entry(CHAT, 3))])
    harness.receive(news)
    assert harness.core.take(harness.core.chat(CHAT), harness.now_ms) is not None
    harness.core.take(harness.core.chat(CHAT), harness.now_ms)
    assert of(AckPosition, harness.pass_time(1_000)) == []
    harness.core.disconnected()
    harness.connect()
    assert len(of(AckPosition, harness.frames())) == 1


def test_an_ack_beyond_the_log_makes_the_position_doubtful() -> None:
    """The log is asked, which then tells that it was started over."""
    harness = reading(head=1, acked=0)
    harness.core.take(harness.core.chat(CHAT), 0)
    harness.core.take(harness.core.chat(CHAT), 0)
    (ack,) = of(AckPosition, harness.pass_time(100))
    harness.receive(refused(AHEAD_OF_LOG, ack.id))
    assert len(of(SyncRequest, harness.frames())) == 1


def test_an_ack_that_came_too_fast_is_repeated() -> None:
    """A rate limit does not lose a cursor."""
    harness = reading(head=1, acked=0)
    harness.core.take(harness.core.chat(CHAT), 0)
    harness.core.take(harness.core.chat(CHAT), 0)
    (ack,) = of(AckPosition, harness.pass_time(100))
    harness.receive(refused(RATE_LIMITED, ack.id))
    assert len(of(AckPosition, harness.pass_time(1_000))) == 1


def test_a_page_that_was_refused_for_now_is_asked_for_later() -> None:
    """A temporary refusal is followed by the same request after a rest."""
    harness = Harness({CHAT: Cursor(1, 6, "msg_6")})
    harness.core.read(harness.core.chat(CHAT))
    harness.connect()
    (request,) = of(SyncRequest, harness.frames())
    harness.receive(refused(RATE_LIMITED, request.id))
    assert of(SyncRequest, harness.frames()) == []
    assert len(of(SyncRequest, harness.pass_time(1_000))) == 1


def test_a_page_that_never_comes_is_asked_for_again() -> None:
    """No answer in ten seconds is no reason to wait for ever."""
    harness = Harness({CHAT: Cursor(1, 6, "msg_6")})
    harness.core.read(harness.core.chat(CHAT))
    harness.connect()
    harness.frames()
    assert len(of(SyncRequest, harness.pass_time(10_000))) == 1


def test_a_useless_page_is_not_asked_for_in_a_hot_loop() -> None:
    """A server that promises more than it gives is asked with backoff."""
    harness = reading(head=3, acked=3)
    harness.receive(HeartbeatAck(server_time=TIME, heads={CHAT: 5}))
    for _ in range(3):
        for request in of(SyncRequest, harness.frames()):
            assert isinstance(request, SyncRequest)
            harness.answer_sync(request, head=5)
    assert len(of(SyncRequest, harness.pass_time(1_000))) == 1


def test_a_read_receipt_is_done_when_the_heartbeat_behind_it_is_answered() -> None:
    """Its own frame has no answer."""
    harness = Harness()
    harness.connect()
    number = harness.core.mark_read(CHAT, 3)
    receipt, heartbeat = [frame for frame in harness.frames() if isinstance(frame, ReadReceipt | Heartbeat)]
    assert isinstance(receipt, ReadReceipt)
    assert ReadMarkDone(number) not in harness.core.events()
    harness.receive(HeartbeatAck(re=answer_to(heartbeat.id), server_time=TIME))
    assert ReadMarkDone(number) in harness.core.events()


def test_a_read_receipt_is_repeated_until_it_is_done() -> None:
    """A lost connection, a temporary refusal and a refused barrier all lead to another try."""
    harness = Harness()
    harness.connect()
    number = harness.core.mark_read(CHAT, 3)
    harness.frames()
    harness.core.disconnected()
    harness.connect()
    (receipt,) = of(ReadReceipt, harness.frames())
    harness.receive(refused(RATE_LIMITED, receipt.id))
    again = harness.pass_time(1_000)
    assert len(of(ReadReceipt, again)) == 1
    (barrier,) = of(Heartbeat, again)
    harness.receive(refused(RATE_LIMITED, barrier.id))
    last = harness.pass_time(2_000)
    assert len(of(ReadReceipt, last)) == 1
    harness.receive(refused(NOT_A_MEMBER, of(ReadReceipt, last)[0].id))
    assert ReadMarkDone(number, Refusal("not_a_member", NOT_A_MEMBER.reason)) in harness.core.events()


def test_ones_own_entry_counts_as_the_ack() -> None:
    """When the ack was lost but the entry comes, nothing is resent."""
    harness = Harness()
    harness.connect()
    harness.core.send(outgoing("a"))
    harness.frames()
    own = make_entry(CHAT, 1, sender="user_me", cid="a")
    harness.receive(Messages(chat_id=CHAT, epoch=1, entries=[raw(own)]))
    (acked,) = [event for event in harness.core.events() if isinstance(event, MessageStored)]
    assert (acked.ack.sequence, acked.ack.client_message_id) == (1, "a")
    assert len(harness.core.outbox) == 0


def test_somebody_elses_entry_is_no_ack() -> None:
    """An id that another person used says nothing about one's own message."""
    harness = Harness()
    harness.connect()
    harness.core.send(outgoing("a"))
    harness.frames()
    harness.receive(Messages(chat_id=CHAT, epoch=1, entries=[raw(make_entry(CHAT, 1, cid="a"))]))
    assert len(harness.core.outbox) == 1


def test_whoever_was_removed_is_told_by_the_log() -> None:
    """A chat that one has left is asked once more, and its refusal ends the reading."""
    harness = reading(head=1, acked=1)
    harness.receive(ChatChanged(chat_id=CHAT, change="left", user_id="user_me"))
    (request,) = of(SyncRequest, harness.frames())
    harness.receive(refused(NOT_A_MEMBER, request.id))
    inbox = harness.core.chat(CHAT).inbox
    assert inbox is not None
    assert inbox.failure is not None
    assert CHAT not in harness.core.rows


def test_a_chat_that_was_left_while_away_is_noticed() -> None:
    """The overview says so, and the chat is listed no more."""
    harness = reading(head=1, acked=1)
    harness.core.disconnected()
    harness.connect()
    harness.answer_overview(position(left=True))
    assert len(of(SyncRequest, harness.frames())) == 1
    assert harness.core.rows == {}


def test_all_chats_are_followed_also_those_that_come_later() -> None:
    """Following asks every chat that has something, and a chat that is joined is read from then on."""
    harness = Harness()
    harness.core.read_all()
    harness.connect()
    harness.answer_overview(position("chat_1", head=3), position("chat_2", head=1))
    asked = {frame.chat_id for frame in of(SyncRequest, harness.frames()) if isinstance(frame, SyncRequest)}
    assert asked == {"chat_1", "chat_2"}
    harness.receive(ChatChanged(chat_id="chat_3", change="joined", user_id="user_me", head=2, epoch=1))
    (request,) = of(SyncRequest, harness.frames())
    assert isinstance(request, SyncRequest)
    assert request.chat_id == "chat_3"


def test_following_all_visits_only_what_changed() -> None:
    """A chat whose head is this device's position is not asked, and still hears what comes live."""
    harness = Harness()
    harness.core.read_all()
    harness.connect()
    harness.answer_overview(position("chat_2", head=7, acked=7), position(CHAT, head=1, acked=1))
    assert of(SyncRequest, harness.frames()) == []
    harness.receive(Messages(chat_id=CHAT, epoch=1, entries=[raw(make_entry(CHAT, 2))]))
    entry = harness.core.take(harness.core.chat(CHAT), 0)
    assert entry is not None
    assert entry.sequence == 2


def test_few_pages_are_asked_for_at_once() -> None:
    """A person with many chats does not flood the server after an absence."""
    harness = Harness()
    harness.core.read_all()
    harness.connect()
    harness.answer_overview(*[position(f"chat_{number}", head=5) for number in range(100)])
    assert len(of(SyncRequest, harness.frames())) == 8
    assert of(SyncRequest, harness.frames()) == []


def test_nobody_reads_means_nothing_is_kept() -> None:
    """Live entries of a chat that nobody iterates only raise its head."""
    harness = Harness()
    harness.connect()
    harness.answer_overview(position(head=1))
    harness.receive(Messages(chat_id=CHAT, epoch=1, entries=[raw(make_entry(CHAT, 2))]))
    assert harness.core.chat(CHAT).inbox is None
    assert harness.core.rows[CHAT].head == 2


def test_a_refusal_that_nobody_waits_for_is_told() -> None:
    """It is not swallowed."""
    harness = Harness()
    harness.connect()
    harness.core.events()
    harness.receive(refused(NOT_A_MEMBER, None))
    assert [type(event) for event in harness.core.events()] == [RequestFailed]


def test_an_entry_that_cannot_be_read_changes_nothing() -> None:
    """Nonsense inside a frame is told before anything of the frame is believed."""
    harness = reading(head=1, acked=1)
    good, bad = raw(make_entry(CHAT, 2)), Raw(b'{"sequence": 3}')
    with pytest.raises(NotAFrame):
        harness.receive(Messages(chat_id=CHAT, epoch=1, entries=[good, bad]))
    assert harness.core.take(harness.core.chat(CHAT), 0) is None


INPUTS: list[Callable[[ClientCore, ChatModel], object]] = [
    lambda core, _: core.send(outgoing("a")),
    lambda core, _: core.mark_read(CHAT, 1),
    lambda core, _: core.ask_overview(),
    lambda core, chat: core.read(chat),
    lambda core, _: core.read_all(),
    lambda core, chat: core.take(chat, 0),
    lambda core, chat: core.mark_processed(chat, 0),
    lambda core, chat: core.seek(chat, Cursor(sequence=1), 0),
    lambda core, chat: core.stop(chat),
    lambda core, chat: core.open(chat),
    lambda core, chat: core.close(chat),
    lambda core, chat: core.start_typing(chat, 0),
    lambda core, chat: core.stop_typing(chat),
    lambda core, _: core.watch_presence(["user_ben"]),
    lambda core, _: core.message_not_stored((CHAT, "a"), 0),
    lambda core, chat: core.load_failed(chat, None, 0),
    lambda core, _: core.receive(HeartbeatAck(server_time=TIME), 0),
    lambda core, _: core.saved(StateChanges()),
    lambda core, _: core.disconnected(),
]


@pytest.mark.parametrize("take", INPUTS)
def test_every_input_wakes_the_shell(take: Callable[[ClientCore, ChatModel], object]) -> None:
    """The core itself says that there may be something to drain; no caller must remember to."""
    woken: list[None] = []
    core = ClientCore(
        CLIENT_CODECS["json"], Timing(), lambda: 0.0, durable=False, wake=lambda: woken.append(None)
    )
    take(core, core.chat(CHAT))
    assert woken
