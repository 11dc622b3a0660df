"""Frames of a connection become the events that the checker needs."""

from typing import Any

from tests.harness.clients import Person
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
    VoidSeen,
)
from tests.harness.history import History
from tests.harness.recording import Recording

ANN = Person("ann", "user_ann", "phone", "ses_1", "prl_x")
SEND = {"type": "send_message", "id": 1, "chat_id": "c", "client_message_id": "K", "content": "hi"}


def recorded(*frames: dict[str, Any]) -> list[AnyEvent]:
    """The events of frames in order; those with `sent` were said, the others heard."""
    history = History()
    recording = Recording(history, ANN, "ann#1")
    for frame in frames:
        if frame.pop("sent", False):
            recording.sent(frame)
        else:
            recording.received(frame)
    return history.events


def entry(sequence: int) -> dict[str, Any]:
    return {
        "chat_id": "c",
        "sequence": sequence,
        "epoch": 1,
        "message_id": f"m{sequence}",
        "client_message_id": f"k{sequence}",
        "content": "hi",
    }


def seen(reader: str, sequence: int) -> EntrySeen:
    return EntrySeen(
        chat_id="c",
        reader=reader,
        sequence=sequence,
        message_id=f"m{sequence}",
        client_message_id=f"k{sequence}",
        content="hi",
    )


def test_a_send_and_its_ack() -> None:
    """What was sent and where it is told to be are two events."""
    ack = {
        "type": "ack",
        "re": 1,
        "chat_id": "c",
        "client_message_id": "K",
        "message_id": "m",
        "sequence": 4,
        "epoch": 1,
        "deduplicated": True,
    }
    assert recorded({**SEND, "sent": True}, ack) == [
        Sent(chat_id="c", sender_id="user_ann", device_id="phone", client_message_id="K", content="hi"),
        Acknowledged(
            chat_id="c",
            sender_id="user_ann",
            client_message_id="K",
            message_id="m",
            sequence=4,
            deduplicated=True,
        ),
    ]


def test_a_refused_send() -> None:
    """A refusal of a message is an event, and whether it is for good."""
    refusal = {"type": "refused", "re": 1, "code": "too_large", "reason": "", "temporary": False}
    assert recorded({**SEND, "sent": True}, refusal)[1:] == [
        SendRejected(
            chat_id="c", sender_id="user_ann", client_message_id="K", code="too_large", temporary=False
        )
    ]


def test_a_refusal_of_something_else_is_no_event() -> None:
    """Only what became of messages matters to a history."""
    refusal = {"type": "refused", "re": 2, "code": "x", "reason": "", "temporary": False}
    assert recorded({"type": "heartbeat", "id": 2, "sent": True}, refusal) == []


def test_live_entries_and_voids_in_their_order() -> None:
    """A live frame is seen position by position, voids in their place."""
    frame = {"type": "messages", "chat_id": "c", "epoch": 1, "entries": [entry(1), entry(3)], "voids": [2]}
    assert recorded(frame) == [
        seen("ann#1/live", 1),
        VoidSeen(chat_id="c", reader="ann#1/live", sequence=2),
        seen("ann#1/live", 3),
    ]


def test_a_page() -> None:
    """A page is asked for, seen and ended, as a stream of its own."""
    page = {
        "type": "message_batch",
        "re": 9,
        "chat_id": "c",
        "epoch": 1,
        "entries": [entry(4)],
        "voids": [],
        "from_sequence": 4,
        "to_sequence": 4,
        "head": 6,
        "complete": False,
        "reset": False,
    }
    asked = {"type": "sync_request", "id": 9, "conversation_id": "c", "last_acked_sequence": 3, "sent": True}
    stream = "ann#1/page 9"
    assert recorded(asked, page) == [
        Requested(chat_id="c", reader=stream, after=3),
        seen(stream, 4),
        Paged(chat_id="c", reader=stream, to_sequence=4, head=6),
    ]


def test_a_reset_starts_over() -> None:
    """A page that starts over is read from the beginning."""
    page = {
        "type": "message_batch",
        "re": 9,
        "chat_id": "c",
        "epoch": 2,
        "entries": [],
        "voids": [],
        "to_sequence": 0,
        "head": 0,
        "reset": True,
    }
    assert Resumed(chat_id="c", reader="ann#1/page 9", after=0, epoch=2) in recorded(page)


def test_a_cursor() -> None:
    """An ack of a position moves the cursor of the live stream."""
    ack = {"type": "ack", "chat_id": "c", "last_acked_sequence": 5, "sent": True}
    assert recorded(ack) == [CursorMoved(chat_id="c", reader="ann#1/live", sequence=5)]
