"""What waits for one socket: bounded, and in the order in which it must arrive."""

import asyncio
import errno
from typing import cast

from parley.gateway.outbox import ConnectionOutbox, Flusher
from parley.wire.limits import OUTBOX_BYTES_MAX


class FakeTransport:
    """A socket that takes nothing further than its own buffer."""

    def __init__(self, unsent_bytes: int = 0) -> None:
        self.unsent_bytes = unsent_bytes
        self.written: list[bytes] = []

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.written.append(data)


def outbox_on(transport: FakeTransport) -> ConnectionOutbox:
    return ConnectionOutbox(cast(asyncio.Transport, transport), Flusher())


async def test_an_outbox_takes_its_limit_and_no_byte_more() -> None:
    """What is gathered here and what the socket has not sent yet count together."""
    outbox = outbox_on(FakeTransport(unsent_bytes=1_000))
    assert outbox.offer(b"x" * (OUTBOX_BYTES_MAX - 1_001))
    assert outbox.offer(b"y")
    assert not outbox.offer(b"z")


async def test_what_was_held_comes_behind_the_first_frame() -> None:
    """Frames that are offered before the welcome wait for it, and leave with it in one write."""
    transport = FakeTransport()
    outbox = outbox_on(transport)
    outbox.hold()
    outbox.offer(b"two ")
    outbox.offer(b"three")
    await asyncio.sleep(0)
    assert transport.written == []
    outbox.begin(b"one ")
    await asyncio.sleep(0)
    assert transport.written == [b"one two three"]


async def test_frames_of_one_turn_leave_in_one_write() -> None:
    """What is offered in one turn of the loop goes to the socket together, once."""
    transport = FakeTransport()
    outbox = outbox_on(transport)
    outbox.offer(b"a")
    outbox.offer(b"b")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (transport.written, outbox.waiting_bytes) == ([b"ab"], 0)


class LostTransport(FakeTransport):
    """A socket whose peer has reset the connection, which the loop has not seen yet."""

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")


async def test_the_end_of_a_connection_that_is_lost_already_hurts_nobody() -> None:
    """A server that stops ends all of its connections; one whose peer is gone does not keep it from that."""
    lost = LostTransport()
    outbox_on(lost).end(b"the close")
    assert lost.written == [b"the close"]
