"""The SDK through a network that drops, delays, duplicates, stalls, splits and cuts."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.proxy import Chaos, ChaosProxy
from tests.harness.server import ServerProcess
from tests.integration.sdk import QUICK, Account, Recorder, client, new_group, newcomer

PEOPLE = 3
MESSAGES_EACH = 40
CHAOS_SECONDS_MAX = 1.0

CHAOS = st.builds(
    Chaos,
    delay_ms_max=st.sampled_from([0.0, 2.0, 10.0]),
    cut_share=st.sampled_from([0.0, 0.01, 0.05]),
    reset_share=st.sampled_from([0.0, 0.5, 1.0]),
    stall_share=st.sampled_from([0.0, 0.02]),
    stall_ms=st.sampled_from([50.0, 400.0]),
    split_bytes_max=st.sampled_from([0, 40]),
    drop_share=st.sampled_from([0.0, 0.05, 0.3]),
    duplicate_share=st.sampled_from([0.0, 0.1, 0.5]),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("sdk") / "data") as started:
        yield started


async def heal(proxy: ChaosProxy, busy: asyncio.Future[list[None]]) -> None:
    """After a while, or when everything is done in spite of it, the network becomes a good one.

    The cut matters: a real network loses no message of a connection that goes on.
    """
    await asyncio.wait([busy], timeout=CHAOS_SECONDS_MAX)
    proxy.chaos = Chaos()
    proxy.cut_all()


async def live_through(
    server: ServerProcess, chaos: Chaos, seed: int, folder: Path
) -> tuple[Recorder, list[Account]]:
    """Everybody sends and reads at once, through one bad network."""
    accounts = [await newcomer(server) for _ in range(PEOPLE)]
    recorder = Recorder(await new_group(server, accounts))
    async with ChaosProxy(server.port, Random(seed), chaos) as proxy, AsyncExitStack() as stack:
        tasks = []
        for number, account in enumerate(accounts):
            outbox = folder / f"{account.user_id}.db" if number else None
            codec = "msgpack" if number % 2 else "json"
            made = client(proxy.url, account, outbox=outbox, codec=codec, start_offline=True, seed=seed)
            me = await stack.enter_async_context(made)
            contents = [f"{number}: {count}" for count in range(MESSAGES_EACH)]
            tasks.append(recorder.send(me, account, contents))
            tasks.append(recorder.read(me, account, until=PEOPLE * MESSAGES_EACH))
        busy = asyncio.gather(*tasks)
        await heal(proxy, busy)
        await busy
    return recorder, accounts


@pytest.mark.timeout(300)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chaos=CHAOS, seed=st.integers(0, 2**32))
async def test_the_promise_holds_on_any_network(
    server: ServerProcess, tmp_path: Path, chaos: Chaos, seed: int
) -> None:
    """What is acknowledged is stored once, every reader sees one order, and each sender's order is kept."""
    recorder, accounts = await live_through(server, chaos, seed, tmp_path)
    assert recorder.breaches(server) == []
    for account in accounts:
        assert recorder.seen_by(account) == list(range(1, PEOPLE * MESSAGES_EACH + 1))


async def test_a_network_that_only_loses(server: ServerProcess, tmp_path: Path) -> None:
    """Half of all sends, acks and live frames vanish, and still nothing is lost or doubled."""
    chaos = Chaos(drop_share=0.5)
    recorder, accounts = await live_through(server, chaos, 1, tmp_path)
    assert recorder.breaches(server) == []
    assert all(len(recorder.seen_by(account)) == PEOPLE * MESSAGES_EACH for account in accounts)


async def test_a_stalled_network_loses_nothing(server: ServerProcess) -> None:
    """A message that was sent into a stall is stored once when the network flows again."""
    account = await newcomer(server)
    chat_id = await new_group(server, [account])
    async with ChaosProxy(server.port, Random(1)) as proxy, client(proxy.url, account) as me:
        proxy.stall()
        sending = me.chat(chat_id).send("hi")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sending, timeout=2 * QUICK.ack_ms / 1000)
        proxy.resume()
        assert (await sending).sequence == 1
        assert (await me.chat(chat_id).send("there")).sequence == 2
