"""What the scenarios of receipts and presence send, count and reckon."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bench import frames
from bench.measuring import Stretch, median_ratio
from bench.roles import Counted
from bench.scenarios.presence import STATE, TOLD, Storm, added, rows
from bench.scenarios.receipts import Chat, latency_row, used_bytes
from bench.targets import verdicts
from parley.wire.codec import JSON
from parley.wire.frames import (
    AckPosition,
    PresenceChanged,
    PresenceState,
    PresenceSubscribe,
    PresenceView,
    ReadReceipt,
)
from tests.unit.test_bench_generator import CHAT_ID, payload_of


def stretch(p50_ms: float) -> Stretch:
    return Stretch(
        seconds=1.0,
        acks=1.0,
        delivered=0.0,
        cpu_seconds=0.5,
        generator_share=0.1,
        helpers_cores=0.0,
        others_cores=0.0,
        batch=None,
        ack_ms=(p50_ms, p50_ms),
        delivery_ms=(0.0, 0.0),
    )


def storm(people: int, changes: int, cpu_seconds: float, sent: int = 0) -> Storm:
    return Storm(people, changes, cpu_seconds, 1.0, sent, sent, 0.0)


def test_frames_are_what_the_server_decodes() -> None:
    """Positions and subscriptions say what they were told."""
    ack = JSON.decode(payload_of(frames.ack_position(CHAT_ID, 7)))
    read = JSON.decode(payload_of(frames.read_receipt(CHAT_ID, 8)))
    watch = JSON.decode(payload_of(frames.presence_subscribe(["user_a", "user_b"])))
    assert ack == AckPosition(chat_id=CHAT_ID, last_acked_sequence=7)
    assert read == ReadReceipt(chat_id=CHAT_ID, read_up_to=8)
    assert watch == PresenceSubscribe(user_ids=["user_a", "user_b"])


def test_a_farewell_is_a_close_frame() -> None:
    """A masked close frame that names the normal code."""
    frame = frames.close()
    assert (frame[0], frame[1], frame[2:6], frame[6:]) == (0x88, 0x82, bytes(4), (1000).to_bytes(2, "big"))


def test_what_a_watcher_is_told_is_told_from_what_it_asked() -> None:
    """An answer and an unasked change are each counted as themselves alone."""
    answer = JSON.encode(PresenceState(presences=[PresenceView("user_a", "online", None)]))
    change = JSON.encode(PresenceChanged(user_id="user_a", status="online", last_seen=None))
    stream = answer + change + change
    assert (Counted(STATE).feed(stream), Counted(TOLD).feed(stream)) == (1, 2)


def test_ratios_are_taken_pair_by_pair() -> None:
    """A machine that gets slower halfway does not count; a single odd pair neither."""
    assert median_ratio([(1.0, 1.0), (10.0, 10.0), (30.0, 10.0)]) == 1.0
    assert median_ratio([]) == 0.0


def test_the_last_position_is_the_highest_that_was_acknowledged() -> None:
    """Acks may come out of order; a number that is cut off does not count."""
    chat = Chat(CHAT_ID)
    chat.note(b'{"type":"ack","sequence":12,"epoch":1}{"type":"ack","sequence":14,"epoch":1}')
    chat.note(b'{"type":"ack","sequence":13,"epoch":1}{"type":"ack","sequence":99')
    assert chat.head == 14


def test_ten_percent_is_the_most_that_receipts_may_cost() -> None:
    """The verdict is about the median of the pairs."""
    for with_ms, is_met in ((1.09, True), (1.2, False)):
        pairs = [(stretch(with_ms), stretch(1.0))] * 3
        row = latency_row("", pairs, (with_ms, with_ms), (1.0, 1.0), [])
        assert [verdict.met for verdict in verdicts(row)] == [is_met]
        assert row.value == pytest.approx(with_ms)


def test_free_pages_are_not_used_bytes(tmp_path: Path) -> None:
    """What was deleted is not counted, although the file keeps its size."""
    database = tmp_path / "some.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE things (thing BLOB)")
        connection.commit()
        before = used_bytes(database)
        connection.executemany("INSERT INTO things VALUES (?)", [(bytes(3_000),)] * 100)
        connection.commit()
        grown = used_bytes(database)
        connection.execute("DELETE FROM things")
        connection.commit()
    assert grown > before + 100 * 3_000
    assert used_bytes(database) <= before + 4_096


def test_storms_are_compared_by_their_changes() -> None:
    """Twice the people at twice the CPU is the same for each change; frames are bounded by who watches."""
    half = added([storm(100, 100, 1.0), storm(100, 200, 2.0)])
    whole = added([storm(200, 200, 2.2, 5_000), storm(200, 400, 4.4, 5_000)])
    _, linear, told = rows(storm(200, 600, 1.0), half, whole, [])
    assert linear.value == pytest.approx(1.1)
    assert told.value == pytest.approx(10_000 / (600 * 50))
    assert all(verdict.met for row in (linear, told) for verdict in verdicts(row))
