"""What goes out, in which order, and what becomes of it."""

import itertools

import pytest

from parley.client import outbox as outbox_module
from parley.client.errors import OutboxFull
from parley.client.outbox import (
    IN_FLIGHT_BYTES_MAX,
    WINDOW_MAX,
    WINDOW_START,
    ClientOutbox,
)
from parley.client.storage import OutgoingMessage
from parley.client.timing import SAFE_RESEND_MS_MAX, Timers, Timing
from parley.errors import NOT_A_MEMBER, OUT_OF_TURN, OUTCOME_UNKNOWN, RATE_LIMITED, STORE_DAMAGED
from parley.model import Kind
from parley.wire.frames import EditMessage, SendMessage

CHAT = "chat_1"
WALL_MS = 1_800_000_000_000


class Sender:
    """An outbox with its clock in hand."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.outbox = ClientOutbox(Timing(), self.timers, itertools.count(1).__next__, lambda: 0.0)
        self.now_ms = 0

    def add(self, *names: str, chat_id: str = CHAT, saved: bool = True, created_at_ms: int = WALL_MS) -> None:
        for name in names:
            message = OutgoingMessage(
                chat_id=chat_id, client_message_id=name, content=name, created_at_ms=created_at_ms
            )
            self.outbox.add(message, saved=saved)

    def transmit(self) -> list[SendMessage]:
        frames = self.outbox.frames_to_send(self.now_ms, WALL_MS)
        return [frame for frame in frames if isinstance(frame, SendMessage)]

    def transmitted(self) -> list[tuple[str, str | None]]:
        return [(frame.client_message_id, frame.after_client_message_id) for frame in self.transmit()]

    def acknowledge(self, name: str) -> bool:
        return self.outbox.acknowledged((CHAT, name), self.now_ms) is not None

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.timers.run_due(self.now_ms)


@pytest.fixture
def sender() -> Sender:
    return Sender()


def request_id(frame: SendMessage) -> int:
    assert isinstance(frame.id, int)
    return frame.id


def test_a_single_message_names_no_predecessor(sender: Sender) -> None:
    """It costs nothing when nothing is in flight."""
    sender.add("a")
    assert sender.transmitted() == [("a", None)]


def test_pipelined_messages_name_their_unacknowledged_predecessor(sender: Sender) -> None:
    """Each message may be stored only after the one before it."""
    sender.add("a", "b", "c")
    assert sender.transmitted() == [("a", None), ("b", "a"), ("c", "b")]


def test_an_acknowledged_predecessor_is_not_named(sender: Sender) -> None:
    """After the ack there is nothing to wait for."""
    sender.add("a")
    sender.transmit()
    sender.acknowledge("a")
    sender.add("b")
    assert sender.transmitted() == [("b", None)]


def test_chats_do_not_wait_for_each_other(sender: Sender) -> None:
    """There is no order across chats."""
    sender.add("a", chat_id="chat_1")
    sender.add("b", chat_id="chat_2")
    assert sender.transmitted() == [("a", None), ("b", None)]


def test_what_is_not_kept_does_not_go_out(sender: Sender) -> None:
    """A message is durable here before it is sent, and holds back those after it."""
    sender.add("a", saved=False)
    sender.add("b")
    assert sender.transmitted() == []
    sender.outbox.saved([(CHAT, "a")])
    assert sender.transmitted() == [("a", None), ("b", "a")]


def test_no_ack_in_five_seconds_is_resent_under_the_same_id(sender: Sender) -> None:
    """The resend has another request id and the same client_message_id."""
    sender.add("a")
    first = sender.transmit()
    sender.pass_time(4_999)
    assert sender.transmit() == []
    sender.pass_time(1)
    again = sender.transmit()
    assert [frame.client_message_id for frame in again] == ["a"]
    assert again[0].id != first[0].id


def test_three_resends_then_queued_with_backoff(sender: Sender) -> None:
    """A send is tried four times, five seconds apart, and then waits one second, two, four and so on."""
    sender.add("a")
    sent_at = []
    for _ in range(40):
        if sender.transmit():
            sent_at.append(sender.now_ms // 1000)
        sender.pass_time(1_000)
    assert sent_at == [0, 5, 10, 15, 21, 28, 37]
    assert sender.outbox.is_queued((CHAT, "a"))


def test_a_message_is_queued_until_it_goes_out(sender: Sender) -> None:
    """`queued` is true while it waits here, false while quick retries are left, false when it is gone."""
    sender.add("a")
    assert sender.outbox.is_queued((CHAT, "a"))
    sender.transmit()
    assert not sender.outbox.is_queued((CHAT, "a"))
    sender.outbox.disconnected()
    assert sender.outbox.is_queued((CHAT, "a"))
    sender.transmit()
    sender.acknowledge("a")
    assert not sender.outbox.is_queued((CHAT, "a"))


def test_only_the_oldest_is_resent_when_acks_are_late(sender: Sender) -> None:
    """The others would be out of turn anyway, and a slow server is not drowned."""
    sender.add("a", "b", "c")
    sender.transmit()
    sender.pass_time(5_000)
    assert sender.transmitted() == [("a", None)]


def test_a_temporary_refusal_resends_from_there_on(sender: Sender) -> None:
    """The refused message and all after it go out again, in order, after a rest."""
    sender.add("a", "b", "c")
    frames = sender.transmit()
    sender.acknowledge("a")
    assert sender.outbox.refused(request_id(frames[1]), OUTCOME_UNKNOWN, sender.now_ms) is None
    assert sender.transmit() == []
    sender.pass_time(1_000)
    assert sender.transmitted() == [("b", None), ("c", "b")]


def test_answers_to_replaced_transmissions_say_nothing(sender: Sender) -> None:
    """`out_of_turn` for what is already waiting to be resent changes nothing."""
    sender.add("a", "b")
    frames = sender.transmit()
    sender.outbox.refused(request_id(frames[0]), RATE_LIMITED, sender.now_ms)
    assert sender.outbox.refused(request_id(frames[1]), OUT_OF_TURN, sender.now_ms) is None
    assert sender.outbox.refused(request_id(frames[1]), NOT_A_MEMBER, sender.now_ms) is None
    sender.pass_time(1_000)
    assert sender.transmitted() == [("a", None), ("b", "a")]


def test_a_late_refusal_of_a_resent_message_says_nothing(sender: Sender) -> None:
    """Once a message was resent on the same connection, only the answer to the newer transmission ends it."""
    sender.add("a")
    (first,) = sender.transmit()
    sender.pass_time(5_000)
    (second,) = sender.transmit()
    assert sender.outbox.refused(request_id(first), NOT_A_MEMBER, sender.now_ms) is None
    assert sender.outbox.refused(request_id(second), NOT_A_MEMBER, sender.now_ms) is not None


def test_a_late_ack_of_a_replaced_transmission_counts(sender: Sender) -> None:
    """An ack means stored, whichever transmission it answers."""
    sender.add("a", "b")
    frames = sender.transmit()
    sender.outbox.refused(request_id(frames[0]), OUTCOME_UNKNOWN, sender.now_ms)
    assert sender.acknowledge("a")
    sender.pass_time(1_000)
    assert sender.transmitted() == [("b", None)]


def test_a_permanent_refusal_lets_the_next_go_on_without_it(sender: Sender) -> None:
    """Those after it are sent again at once and no longer name it."""
    sender.add("a", "b", "c")
    frames = sender.transmit()
    failed = sender.outbox.refused(request_id(frames[1]), NOT_A_MEMBER, sender.now_ms)
    assert failed is not None
    assert failed.message.client_message_id == "b"
    assert sender.transmitted() == [("c", "a")]
    assert len(sender.outbox) == 2


def test_a_reconnect_resends_everything_in_order(sender: Sender) -> None:
    """What was in flight goes out first, with the same ids, and without waiting."""
    sender.add("a", "b")
    sender.transmit()
    sender.add("c")
    sender.outbox.disconnected()
    assert sender.transmitted() == [("a", None), ("b", "a"), ("c", "b")]


def test_a_reconnect_ends_a_rest(sender: Sender) -> None:
    """A new connection is a new chance."""
    sender.add("a")
    frames = sender.transmit()
    sender.outbox.refused(request_id(frames[0]), RATE_LIMITED.after(60_000), sender.now_ms)
    sender.outbox.disconnected()
    assert sender.transmitted() == [("a", None)]


def test_an_ack_out_of_order_keeps_the_rest_in_order(sender: Sender) -> None:
    """An ack for a later message does not confuse the queue."""
    sender.add("a", "b", "c")
    sender.transmit()
    sender.acknowledge("b")
    sender.outbox.disconnected()
    assert sender.transmitted() == [("a", None), ("c", "a")]


def test_the_window_bounds_what_is_in_flight(sender: Sender) -> None:
    """No more than the window is unanswered, and each ack opens it by one more."""
    sender.add(*[f"m{number}" for number in range(WINDOW_MAX * 2)])
    assert len(sender.transmit()) == WINDOW_START
    sender.acknowledge("m0")
    assert len(sender.transmit()) == 2
    for number in range(1, WINDOW_MAX):
        sender.acknowledge(f"m{number}")
        sender.transmit()
    assert len(sender.outbox._by_request) == WINDOW_MAX


def test_a_temporary_refusal_halves_the_window(sender: Sender) -> None:
    """A server that says it is too much gets less."""
    sender.add(*[f"m{number}" for number in range(WINDOW_START)])
    frames = sender.transmit()
    sender.outbox.refused(request_id(frames[0]), RATE_LIMITED, sender.now_ms)
    sender.pass_time(1_000)
    assert len(sender.transmit()) == WINDOW_START // 2


def test_large_messages_shrink_the_window(sender: Sender) -> None:
    """What is in flight is bounded in bytes, too."""
    size = 64 * 1024
    for number in range(100):
        message = OutgoingMessage(
            chat_id=CHAT, client_message_id=f"m{number}", content="x" * size, created_at_ms=WALL_MS
        )
        sender.outbox.add(message, saved=True)
    assert len(sender.transmit()) == IN_FLIGHT_BYTES_MAX // size


def test_a_full_outbox_says_so(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, and nothing that was taken is dropped."""
    monkeypatch.setattr(outbox_module, "OUTBOX_MESSAGES_MAX", 2)
    sender.add("a", "b")
    with pytest.raises(OutboxFull):
        sender.add("c")
    assert len(sender.outbox) == 2


def test_an_old_message_is_looked_for_before_it_goes_out(sender: Sender) -> None:
    """It and those after it wait until somebody has looked."""
    sender.add("old", created_at_ms=WALL_MS - SAFE_RESEND_MS_MAX)
    sender.add("new")
    assert sender.transmit() == []
    assert [message.client_message_id for message in sender.outbox.to_check()] == ["old"]
    assert sender.outbox.to_check() == []
    sender.outbox.not_stored((CHAT, "old"), WALL_MS)
    assert sender.transmitted() == [("old", None), ("new", "old")]


def test_an_old_message_that_is_stored_is_not_sent(sender: Sender) -> None:
    """Found in the log is as good as acknowledged."""
    sender.add("old", created_at_ms=WALL_MS - SAFE_RESEND_MS_MAX)
    sender.add("new")
    sender.transmit()
    sender.acknowledge("old")
    assert sender.transmitted() == [("new", None)]


def test_a_failed_look_is_repeated_later(sender: Sender) -> None:
    """When nobody can tell, the message waits rather than being stored twice."""
    sender.add("old", created_at_ms=WALL_MS - SAFE_RESEND_MS_MAX)
    sender.transmit()
    sender.outbox.to_check()
    sender.outbox.check_failed((CHAT, "old"), sender.now_ms)
    assert sender.transmit() == []
    assert sender.outbox.to_check() == []
    sender.pass_time(1_000)
    assert sender.transmit() == []
    assert len(sender.outbox.to_check()) == 1


def test_an_empty_outbox_leaves_nothing_behind(sender: Sender) -> None:
    """DeliveryQueues, timers and counts end with the last message."""
    sender.add("a", "b")
    frames = sender.transmit()
    sender.acknowledge("a")
    sender.outbox.refused(request_id(frames[1]), NOT_A_MEMBER, sender.now_ms)
    assert len(sender.outbox) == 0
    assert sender.timers.next_ms() is None
    assert not sender.outbox._queues
    assert not sender.outbox._by_request
    assert sender.outbox._bytes == sender.outbox._in_flight_bytes == 0


def test_an_edit_waits_for_what_was_sent_before_it(sender: Sender) -> None:
    """It can name no predecessor; a message behind it names it."""
    sender.add("a")
    edit = OutgoingMessage(
        chat_id=CHAT,
        client_message_id="edit",
        content="x",
        created_at_ms=WALL_MS,
        kind=Kind.EDIT.value,
        target_id="msg_1",
    )
    sender.outbox.add(edit, saved=True)
    sender.add("b")
    assert sender.transmitted() == [("a", None)]
    sender.acknowledge("a")
    frames = sender.outbox.frames_to_send(sender.now_ms, WALL_MS)
    assert [type(frame) for frame in frames] == [EditMessage, SendMessage]
    assert isinstance(frames[1], SendMessage)
    assert frames[1].after_client_message_id == "edit"


def test_a_message_that_met_damage_is_kept_for_the_next_connection(sender: Sender) -> None:
    """The application is told, later messages go out, and it is sent once more after the next connect."""
    sender.add("a", "b")
    first, _ = sender.transmit()
    failed = sender.outbox.refused(request_id(first), STORE_DAMAGED, sender.now_ms)
    assert failed is not None
    assert failed.message.client_message_id == "a"
    assert sender.outbox.is_kept((CHAT, "a"))
    for _ in range(3):
        sender.pass_time(60_000)
        assert {name for name, _ in sender.transmitted()} <= {"b"}
    sender.acknowledge("b")
    sender.outbox.disconnected()
    assert sender.transmitted() == [("a", None)]
    assert not sender.outbox.is_kept((CHAT, "a"))
