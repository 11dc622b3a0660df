"""The forwarder alone: drafts reach the node that has the chat, and failures are told for what they are."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import structlog

from parley.errors import Refused
from parley.model import Appended, Outcome
from parley.sending import answers, forwarder, pending
from parley.sending.forwarder import CALL_CHARS_MAX, CALLS_PER_NODE_MAX, CHAT_DRAFTS_PER_CALL_MAX
from parley.store.ports import DRAFTS_PER_APPEND_MAX
from parley.wire.limits import MESSAGE_BYTES_MAX
from tests.harness.clock import run_virtual
from tests.unit.sending.nodes import ME, Cluster, Mood, change, message, news_of

SENDER_PATIENCE_SECONDS = 5.0
A_MOMENT_SECONDS = 0.005
AT = Appended(message_id="", sequence=1, epoch=1, created_at="")


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    """A scenario in virtual time, without its warnings on the terminal."""
    with structlog.testing.capture_logs():
        run_virtual(lambda _: scenario())


def owned_by(cluster: Cluster, node_id: str, *chat_ids: str) -> None:
    cluster.peers.owners.update(dict.fromkeys(chat_ids or ("chat",), node_id))


def test_an_own_chat_goes_straight_into_the_log() -> None:
    """What belongs to this node is handed to its own sender in the same call."""

    async def scenario() -> None:
        cluster = Cluster()
        owned_by(cluster, ME)
        cluster.submit(message("hello"))
        await cluster.finish()
        assert cluster.local.taken == ["hello"]
        assert cluster.code("hello") == "stored"
        assert cluster.forwarded() == []

    run(scenario)


def test_a_foreign_chat_goes_to_its_owner() -> None:
    """What arrives together travels as one batch, and each sender hears its own outcome."""

    async def scenario() -> None:
        cluster = Cluster()
        owned_by(cluster, "one", "a", "b")
        owned_by(cluster, "two", "c")
        for content, chat_id in (("a1", "a"), ("b1", "b"), ("c1", "c"), ("a2", "a")):
            cluster.submit(message(content, chat_id))
        await cluster.finish()
        assert cluster.forwarded() == [("one", ["a1", "a2", "b1"]), ("two", ["c1"])]
        positions = [cluster.outcome(content) for content in ("a1", "a2", "b1", "c1")]
        assert [at.sequence for at in positions if isinstance(at, Appended)] == [1, 2, 1, 1]
        assert cluster.local.taken == []

    run(scenario)


def test_whoever_can_wait_hears_it_too() -> None:
    """`send` returns where the draft is, or raises its refusal."""

    async def scenario() -> None:
        cluster = Cluster(["one"], appends_here=False)
        assert (await cluster.forwarder.send(message("hello"))).sequence == 1
        cluster.peers.node_ids.clear()
        with pytest.raises(Refused, match="store_unavailable"):
            await cluster.forwarder.send(message("again"))

    run(scenario)


def test_what_comes_meanwhile_is_the_next_batch() -> None:
    """While a batch of a chat is under way, the next one gathers behind it."""

    async def scenario() -> None:
        cluster = Cluster()
        owned_by(cluster, "one")
        cluster.submit(message("first"))
        await asyncio.sleep(0.001)
        for n in range(10):
            cluster.submit(message(f"{n}"))
            await asyncio.sleep(0)
        await cluster.finish()
        assert cluster.forwarded() == [("one", ["first"]), ("one", [f"{n}" for n in range(10)])]

    run(scenario)


def test_a_batch_is_bounded() -> None:
    """Neither too many drafts, nor too many chars, nor too many of one chat go into one call."""

    async def scenario() -> None:
        cluster = Cluster(["one"], appends_here=False)
        for n in range(3 * DRAFTS_PER_APPEND_MAX):
            cluster.submit(message(f"small {n}", f"chat {n % 9}"))
        for n in range(30):
            cluster.submit(message(f"{n}".ljust(MESSAGE_BYTES_MAX, "x"), f"big {n % 7}"))
        await cluster.finish()
        batches = [drafts for _, drafts in cluster.peers.batches]
        assert max(map(len, batches)) <= DRAFTS_PER_APPEND_MAX
        chars = [sum(len(draft.content) for draft in batch) for batch in batches]
        assert max(chars) <= CALL_CHARS_MAX + MESSAGE_BYTES_MAX
        per_chat = [sum(d.chat_id == c for d in b) for b in batches for c in {d.chat_id for d in b}]
        assert max(per_chat) == CHAT_DRAFTS_PER_CALL_MAX
        assert sum(map(len, batches)) == len(cluster.drafts)

    run(scenario)


def test_few_calls_to_a_node_are_under_way() -> None:
    """Chats that are ready share a bounded number of calls; the fake asserts one per chat."""

    async def scenario() -> None:
        cluster = Cluster(["one"], appends_here=False)
        for n in range(100):
            cluster.submit(message(f"{n}", f"chat {n % 25}"))
            await asyncio.sleep(0.0004)
        await cluster.finish()
        assert cluster.peers.most_under_way["one"] == CALLS_PER_NODE_MAX

    run(scenario)


def test_an_unreachable_node_is_passed_over_at_once() -> None:
    """Nothing was sent, so the next node gets it, or this one; no time is lost."""

    async def scenario() -> None:
        cluster = Cluster()
        owned_by(cluster, "one")
        cluster.peers.moods = {"one": [Mood.GONE], "two": [Mood.GONE]}
        contents = [f"{n}" for n in range(5)]
        for content in contents:
            cluster.submit(message(content))
        await cluster.finish()
        assert cluster.store.contents["chat"] == contents == cluster.local.taken
        assert {cluster.code(content) for content in contents} == {"stored"}
        assert asyncio.get_running_loop().time() < 0.1

    run(scenario)


@pytest.mark.parametrize("mood", [Mood.DEAF, Mood.DUMB, Mood.LATE])
def test_a_message_to_a_silent_node_is_stored_once(mood: Mood) -> None:
    """Whether the silent node stored it before, never or later: it is sent elsewhere, and is there once."""

    async def scenario() -> None:
        cluster = Cluster()
        owned_by(cluster, "one")
        cluster.peers.moods = {"one": [mood]}
        cluster.submit(message("hello"))
        await cluster.finish()
        assert cluster.code("hello") == ("deduplicated" if mood is Mood.DUMB else "stored")
        assert cluster.store.contents["chat"] == ["hello"]

    run(scenario)


@pytest.mark.parametrize("mood", [Mood.DEAF, Mood.DUMB, Mood.LATE])
def test_a_change_to_a_silent_node_is_never_sent_twice(mood: Mood) -> None:
    """Nobody would recognise it, so its sender hears that its outcome is unknown; messages go on."""

    async def scenario() -> None:
        cluster = Cluster()
        owned_by(cluster, "one")
        cluster.peers.moods = {"one": [mood]}
        for draft in (message("before"), change("leave"), message("after")):
            cluster.submit(draft)
        await cluster.finish()
        assert cluster.code("leave") == "outcome_unknown"
        assert [content for _, batch in cluster.forwarded() for content in batch].count("leave") == 1
        assert cluster.store.count("chat", "leave") <= 1
        assert cluster.store.count("chat", "before") == cluster.store.count("chat", "after") == 1

    run(scenario)


def test_two_silent_nodes_leave_the_sender_time_to_retry() -> None:
    """The outcome comes before the SDK loses patience, and does not claim that nothing was stored."""

    async def scenario() -> None:
        cluster = Cluster(["one", "two", "three"], appends_here=False)
        cluster.peers.moods = {node: [Mood.DEAF] * 9 for node in ("one", "two", "three")}
        cluster.submit(message("hello"))
        await cluster.finish()
        assert cluster.code("hello") == "outcome_unknown"
        assert asyncio.get_running_loop().time() < SENDER_PATIENCE_SECONDS

    run(scenario)


@pytest.mark.parametrize("after", [Mood.GONE, Mood.STORELESS])
def test_after_silence_nobody_claims_that_nothing_is_stored(after: Mood) -> None:
    """The second node stored nothing, but the first one may have."""

    async def scenario() -> None:
        cluster = Cluster(["one", "two"], appends_here=False)
        owned_by(cluster, "one")
        cluster.peers.moods = {"one": [Mood.DUMB], "two": [after] * 9}
        cluster.submit(message("hello"))
        await cluster.finish()
        assert cluster.code("hello") == "outcome_unknown"

    run(scenario)


def test_a_node_without_its_store_is_heard() -> None:
    """Its refusal is temporary and reaches the sender as it is."""

    async def scenario() -> None:
        cluster = Cluster(["one"], appends_here=False)
        cluster.peers.moods = {"one": [Mood.STORELESS]}
        cluster.submit(message("hello"))
        await cluster.finish()
        assert cluster.code("hello") == "store_unavailable"

    run(scenario)


def test_without_any_node_nothing_is_taken() -> None:
    """A node that does not append itself refuses as temporary, and appends nothing."""

    async def scenario() -> None:
        cluster = Cluster([], appends_here=False)
        cluster.submit(message("hello"))
        assert cluster.code("hello") == "store_unavailable"
        cluster.peers.owners["chat"] = ME
        cluster.submit(message("to myself"))
        assert cluster.code("to myself") == "store_unavailable"
        assert cluster.store.contents == {}

    run(scenario)


def test_the_drafts_of_a_leaving_node_go_elsewhere() -> None:
    """What a draining node still took is acknowledged, the rest is stored by the next one, in order."""

    async def scenario() -> None:
        cluster = Cluster()
        owned_by(cluster, "one")
        cluster.peers.moods = {"one": [Mood.LEAVING]}
        contents = [f"{n}" for n in range(5)]
        for content in contents:
            cluster.submit(message(content))
        await cluster.finish()
        assert cluster.store.contents["chat"] == contents
        assert {cluster.code(content) for content in contents} == {"stored"}

    run(scenario)


def test_a_chat_that_changes_hands_keeps_its_order() -> None:
    """What comes for a new owner waits until the old one has answered."""

    async def scenario() -> None:
        cluster = Cluster(["one", "two"])
        contents = []
        for n in range(60):
            owned_by(cluster, ["one", "two", "one", ME, "two"][n // 12])
            contents.append(f"{n}")
            cluster.submit(message(contents[-1]))
            await asyncio.sleep(0.001)
        await cluster.finish()
        assert cluster.store.contents["chat"] == contents
        assert {node for node, _ in cluster.forwarded()} == {"one", "two"}

    run(scenario)


def test_news_of_a_chat_waits_for_the_answers_under_way() -> None:
    """News that overtakes an answer waits for it; news of other chats does not."""

    async def scenario() -> None:
        cluster = Cluster(["one"], appends_here=False)
        cluster.submit(message("mine"))
        await asyncio.sleep(A_MOMENT_SECONDS)
        elsewhere = news_of(message("elsewhere", "other chat"), AT)
        cluster.store.news([elsewhere])
        await cluster.finish()
        assert cluster.heard == ["news elsewhere", "told mine", "news mine"]

    run(scenario)


def test_news_waits_until_a_message_that_was_sent_again_is_answered() -> None:
    """The silent node had stored it: its news comes long before the answer of the next one."""

    async def scenario() -> None:
        cluster = Cluster(["one", "two"], appends_here=False)
        owned_by(cluster, "one")
        cluster.peers.moods = {"one": [Mood.DUMB]}
        cluster.submit(message("hello"))
        await cluster.finish()
        assert cluster.heard == ["told hello", "news hello"]

    run(scenario)


def test_what_comes_back_to_this_node_is_answered_before_its_news() -> None:
    """The other node is gone: this one appends, and its own log publishes right after its outcomes."""

    async def scenario() -> None:
        cluster = Cluster(["one"])
        owned_by(cluster, "one")
        cluster.peers.moods = {"one": [Mood.GONE]}
        cluster.submit(message("hello"))
        await cluster.finish()
        assert cluster.heard == ["told hello", "news hello"]

    run(scenario)


def test_not_too_much_news_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit news goes out before the answer, rather than fill the memory."""
    monkeypatch.setattr(pending, "HELD_PER_BATCH_MAX", 3)

    async def scenario() -> None:
        cluster = Cluster(["one"], appends_here=False)
        cluster.peers.moods = {"one": [Mood.DEAF]}
        cluster.submit(message("mine"))
        await asyncio.sleep(A_MOMENT_SECONDS)
        for n in range(4):
            cluster.store.news([news_of(message(f"{n}"), AT)])
        assert cluster.heard == ["news 0", "news 1", "news 2"]
        await cluster.finish()
        assert cluster.heard[3:] == ["told mine", "news 3"]

    run(scenario)


def test_a_listener_to_news_that_fails_stops_nobody() -> None:
    """A bug in whoever hears news that waited is logged, and forwarding goes on."""

    async def scenario() -> None:
        cluster = Cluster(["one"], appends_here=False)

        def fail() -> None:
            raise ValueError("on purpose")

        cluster.submit(message("first"))
        await asyncio.sleep(A_MOMENT_SECONDS)
        cluster.pending.after_answers("chat", 1, fail)
        await asyncio.sleep(1)
        cluster.submit(message("second"))
        await cluster.finish()
        assert [cluster.code("first"), cluster.code("second")] == ["stored", "stored"]
        with pytest.raises(ValueError, match="on purpose"):
            cluster.pending.after_answers("chat", 1, fail)

    run(scenario)


def test_too_much_waiting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit a draft is refused as temporary, until some are told."""
    monkeypatch.setattr(answers, "WAITING_DRAFTS_MAX", 3)

    async def scenario() -> None:
        cluster = Cluster(["one"], appends_here=False)
        for n in range(5):
            cluster.submit(message(f"{n}"))
        await asyncio.sleep(1)
        cluster.submit(message("later"))
        await cluster.finish()
        codes = [cluster.code(content) for content in ("0", "1", "2", "3", "4", "later")]
        assert codes == ["stored"] * 3 + ["busy"] * 2 + ["stored"]

    run(scenario)


def test_a_node_that_always_fails_is_not_asked_for_ever() -> None:
    """Even if nobody else is there, a draft is tried a few times only."""

    async def scenario() -> None:
        cluster = Cluster(["one"], appends_here=False)
        cluster.peers.moods = {"one": [Mood.GONE] * 99}
        cluster.peers.doubted = _Forgetful()
        cluster.submit(message("hello"))
        await cluster.finish()
        assert cluster.code("hello") == "store_unavailable"
        assert len(cluster.peers.batches) == forwarder.TRIES_MAX

    run(scenario)


class _Forgetful(set[str]):
    """Doubts nobody."""

    def add(self, _: str, /) -> None:
        pass


def test_a_surprise_is_told_as_unknown() -> None:
    """A bug on the way says nothing about what was stored, and the next batch goes on."""

    async def scenario() -> None:
        cluster = Cluster(["one"], appends_here=False)
        cluster.peers.moods = {"one": [Mood.BROKEN]}
        cluster.submit(message("hello"))
        await asyncio.sleep(1)
        cluster.submit(message("again"))
        await cluster.finish()
        assert [cluster.code("hello"), cluster.code("again")] == ["outcome_unknown", "stored"]

    run(scenario)


@pytest.mark.parametrize("owner", ["one", ME])
def test_a_listener_that_fails_stops_nobody(owner: str) -> None:
    """A bug in one place that hears outcomes is logged, and forwarding goes on."""

    async def scenario() -> None:
        cluster = Cluster(["one"])
        owned_by(cluster, "one")

        def failing(_: object, __: object, outcome: Outcome) -> None:
            raise ValueError("on purpose")

        cluster.forwarder.submit(message("first"), None, failing)
        cluster.submit(message("second"))
        await asyncio.sleep(0)
        owned_by(cluster, owner)
        await cluster.finish()
        assert cluster.code("second") == "stored"

    run(scenario)


def test_stopping_finishes_what_was_taken() -> None:
    """What came before the stop is told, also if its node fails then; what comes after is refused."""

    async def scenario() -> None:
        cluster = Cluster()
        owned_by(cluster, "one")
        cluster.peers.moods = {"one": [Mood.DEAF]}
        cluster.submit(message("before"))
        await asyncio.sleep(0.001)
        cluster.submit(message("behind it"))
        stopping = asyncio.create_task(cluster.forwarder.stop())
        await asyncio.sleep(0)
        cluster.submit(message("after"))
        await stopping
        await cluster.finish()
        assert [cluster.code(c) for c in ("before", "behind it", "after")] == ["stored"] * 2 + [
            "shutting_down"
        ]

    run(scenario)


def test_failures_are_counted() -> None:
    """An operator sees what was forwarded, and which calls failed how."""

    async def scenario() -> None:
        cluster = Cluster(["one", "two"], appends_here=False)
        owned_by(cluster, "one")
        cluster.peers.moods = {"one": [Mood.GONE], "two": [Mood.DEAF]}
        cluster.submit(message("hello"))
        await cluster.finish()
        text = cluster.metrics.text().decode()
        assert "parley_forwarded_batches_total 2.0" in text
        assert "parley_forwarded_drafts_total 2.0" in text
        assert 'parley_forward_failures_total{reason="refused"} 1.0' in text
        assert 'parley_forward_failures_total{reason="silent"} 1.0' in text

    run(scenario)
