"""Making a server die, wait or fail at a labelled point (see `parley.testing.faults`)."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

from parley.testing import faults
from tests.acceptance.world import World, store_of
from tests.harness.clients import Disconnected, RawClient
from tests.waiting import deadline, eventually

LOOK_SECONDS = 0.01


async def send_into_crash(
    world: World, label: str, *client_message_ids: str, readers: Sequence[RawClient] = ()
) -> None:
    """Restart the server so that it dies at the label, and send messages, the last of which makes it.

    Arriving is written down too, at leisure: only once that is done may the label be reached.
    `readers` are connected before and hear all messages but the last.
    """
    label, _, count = label.partition(":")
    armed = world.server.data.with_suffix(".armed")
    await asyncio.to_thread(world.server.restart, {faults.CRASH: f"{label}:{count or 1}:{armed}"})
    async with contextlib.AsyncExitStack() as stack:
        for reader in readers:
            await stack.enter_async_context(reader)
        ann = await stack.enter_async_context(world.client(world.ann))
        await ann.tell("ack", chat_id=world.chat_id, last_acked_sequence=0)
        await ann.heartbeat()
        await eventually(lambda: "phone" in store_of(world).listed_devices(world.ann.user_id))
        armed.touch()
        *heard, last = client_message_ids
        for client_message_id in heard:
            ack = await ann.send_message(world.chat_id, "hello", client_message_id)
            for reader in readers:
                await reader.live_entry(world.chat_id, ack["sequence"])
        answer = await ann.post_message(world.chat_id, "hello", last)
        with contextlib.suppress(Disconnected):
            await ann.answered(answer)
        await asyncio.to_thread(world.server.wait)
        for reader in readers:
            await reader.until_ended()
    armed.unlink()


class Held:
    """A point at which the first to come waits, until it is let go."""

    def __init__(self, label: str, file: Path) -> None:
        self._file = file
        self.environment = {faults.PAUSE: f"{label}:{file}"}

    def arm(self) -> None:
        self._file.touch()

    async def until_reached(self) -> None:
        await until_exists(self._file.with_suffix(".paused"))

    def let_go(self) -> None:
        self._file.unlink()


async def until_exists(file: Path) -> None:
    """Files tell nobody when they appear, so look again and again."""
    async with deadline():
        while not file.exists():  # noqa: ASYNC110 - no event tells of a file
            await asyncio.sleep(LOOK_SECONDS)
