"""The load generator counts what it does not parse; these are the claims that rests on."""

import json

import pytest

from bench import frames
from bench.connection import frame_bounds
from bench.report import median_of
from bench.roles import ACK, ENTRY, Counted
from bench.rows import Row
from bench.targets import verdicts
from parley import ids
from parley.wire.codec import JSON
from parley.wire.frames import Hello, SendMessage, SyncRequest

CHAT_ID = "chat_" + "0" * 26
MASK_BYTES = 4


def payload_of(frame: bytes) -> bytes:
    """The payload of a single client frame, whose mask key must be zero."""
    bounds = frame_bounds(bytes((frame[0], frame[1] & 0x7F)) + frame[2:])
    assert bounds is not None
    start, end = bounds
    assert frame[start : start + MASK_BYTES] == bytes(MASK_BYTES)
    assert len(frame) == end + MASK_BYTES
    return frame[start + MASK_BYTES :]


def row(value: float, cpu_us: float | None = None) -> Row:
    return Row(name="hot_chat", label="hot chat", unit="acks/s", value=value, cpu_us=cpu_us)


def test_a_send_frame_is_what_the_server_decodes() -> None:
    """A frame made from a template is a whole send_message with a valid UUIDv4 and 128 bytes."""
    request = JSON.decode(payload_of(frames.SendFrames(CHAT_ID).next(now_ns=7)))
    assert isinstance(request, SendMessage)
    assert request.chat_id == CHAT_ID
    assert ids.client_key(request.client_message_id) is not None
    assert len(request.content) == frames.CONTENT_BYTES
    assert int(request.content[: frames.TIME_CHARS], 16) == 7


def test_a_chained_frame_names_its_predecessor() -> None:
    """A message behind another carries that one's id, and the first carries none."""
    made = frames.SendFrames(CHAT_ID)
    first, second = frames.next_client_id(), frames.next_client_id()
    alone = JSON.decode(payload_of(made.after(first, b"", now_ns=1)))
    behind = JSON.decode(payload_of(made.after(second, first, now_ns=1)))
    assert isinstance(alone, SendMessage)
    assert isinstance(behind, SendMessage)
    assert alone.after_client_message_id is None
    assert behind.after_client_message_id == alone.client_message_id


def test_ids_do_not_repeat() -> None:
    """A thousand ids are a thousand different ones."""
    assert len({frames.next_client_id() for _ in range(1_000)}) == 1_000


def test_other_frames_are_what_the_server_decodes() -> None:
    """Hello and sync_request say what they were told."""
    hello = JSON.decode(payload_of(frames.hello("prl_x", "phone", live=False)))
    sync = JSON.decode(payload_of(frames.sync_request(CHAT_ID, 41, 1000)))
    assert hello == Hello(token="prl_x", device_id="phone", live=False)
    assert sync == SyncRequest(chat_id=CHAT_ID, last_acked_sequence=41, limit=1000)


@pytest.mark.parametrize("marker", [ACK, ENTRY])
def test_a_marker_is_counted_once_wherever_the_stream_is_cut(marker: bytes) -> None:
    """Every way to cut a stream in two chunks gives the same count."""
    stream = b"\x81\x30{" + marker + b',"n":1}\x81\x30{' + marker + b',"n":2}\x81'
    for cut in range(1, len(stream)):
        counted = Counted(marker)
        assert counted.feed(stream[:cut]) + counted.feed(stream[cut:]) == 2


def test_content_cannot_forge_a_marker() -> None:
    """A message that quotes an ack is not counted as one."""
    entry = json.dumps({"type": "messages", "content": ACK.decode()}).encode()
    assert Counted(ACK).feed(entry) == 0


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_frame_bounds_follow_every_length_form(size: int) -> None:
    """The payload of a server's frame is found for each of the three ways to write its length."""
    if size <= 125:
        header = bytes((0x81, size))
    elif size <= 65_535:
        header = b"\x81\x7e" + size.to_bytes(2, "big")
    else:
        header = b"\x81\x7f" + size.to_bytes(8, "big")
    assert frame_bounds(header + bytes(size)) == (len(header), len(header) + size)
    assert frame_bounds(header[:1]) is None


def test_a_verdict_compares_both_ways() -> None:
    """A rate must reach its bound and a cost must stay below its own."""
    fast, dear = verdicts(row(24_000, cpu_us=160))
    assert (fast.met, fast.ratio) == (True, 2.0)
    assert (dear.met, dear.ratio) == (False, 0.5)


def test_the_median_run_knows_the_others() -> None:
    """Of three runs the middle one is shown, with the figures of all."""
    shown = median_of([row(3), row(1), row(2)])
    assert shown.value == 2
    assert shown.runs == [3, 1, 2]
