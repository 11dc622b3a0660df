"""The forwarder: what is sent again stands before what came after it."""

import asyncio

import pytest

from tests.harness.clock import run_virtual
from tests.unit.sending.nodes import APPEND_SECONDS, SILENCE_SECONDS, Cluster, Mood, message


@pytest.mark.parametrize("mood", [Mood.LEAVING, Mood.DEAF, Mood.DUMB])
def test_what_is_sent_again_comes_before_what_waited_behind_it(mood: Mood) -> None:
    """A batch that must go to another node is stored there before the drafts that came meanwhile."""

    async def scenario(_: object) -> None:
        cluster = Cluster(["one", "two"], appends_here=False)
        cluster.peers.owners["chat"] = "one"
        cluster.peers.moods["one"] = [mood]
        for content in ("a", "b", "c"):
            cluster.submit(message(content))
        await asyncio.sleep(APPEND_SECONDS / 2)
        cluster.submit(message("d"))
        async with asyncio.timeout(10 * SILENCE_SECONDS):
            await cluster.finish()
        assert cluster.store.contents["chat"] == ["a", "b", "c", "d"]

    run_virtual(scenario)
