"""The forwarder under any interleaving of failures: nothing acknowledged is lost, nobody hears twice."""

import asyncio
from typing import NamedTuple

import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.errors import Refusal
from parley.model import Draft
from tests.harness.clock import run_virtual
from tests.unit.sending.nodes import Cluster, Mood, change, message

OTHERS = ("one", "two", "three")
CHATS = ("a", "b", "c")
HONEST = [Mood.WELL, Mood.GONE, Mood.LEAVING, Mood.STORELESS]
SILENT = [Mood.DEAF, Mood.DUMB, Mood.LATE]


class Step(NamedTuple):
    """After a while, something is sent, and perhaps the nodes that were doubted are trusted again."""

    wait_ms: int
    chat_id: str
    is_change: bool
    healed: bool


steps = st.lists(
    st.builds(
        Step,
        wait_ms=st.sampled_from([0, 0, 0, 1, 5, 20, 700]),
        chat_id=st.sampled_from(CHATS),
        is_change=st.booleans(),
        healed=st.booleans(),
    ),
    min_size=1,
    max_size=40,
)


def moods(of: list[Mood]) -> st.SearchStrategy[dict[str, list[Mood]]]:
    return st.fixed_dictionaries({node: st.lists(st.sampled_from(of), max_size=8) for node in OTHERS})


def play(course: list[Step], how: dict[str, list[Mood]], appends_here: bool) -> Cluster:
    """Send along the course while nodes fail; returns when everything is told and nothing is under way."""

    async def scenario() -> Cluster:
        cluster = Cluster(OTHERS, appends_here)
        cluster.peers.moods = {node: list(said) for node, said in how.items()}
        for number, step in enumerate(course):
            await asyncio.sleep(step.wait_ms / 1000)
            if step.healed:
                cluster.peers.doubted.clear()
            make = change if step.is_change else message
            cluster.submit(make(f"{number}", step.chat_id))
        await cluster.finish()
        return cluster

    with structlog.testing.capture_logs():
        return run_virtual(lambda _: scenario())


def is_refused_as_not_stored(cluster: Cluster, draft: Draft) -> bool:
    outcome = cluster.outcome(draft.content)
    return isinstance(outcome, Refusal) and outcome.code != "outcome_unknown"


@settings(deadline=None)
@given(steps, moods(HONEST + SILENT), st.booleans())
def test_nothing_acknowledged_is_lost_and_nothing_is_stored_twice(
    course: list[Step], how: dict[str, list[Mood]], appends_here: bool
) -> None:
    """Each sender hears once; an acknowledged draft is where it was said to be; the log holds none twice."""
    cluster = play(course, how, appends_here)
    for draft in cluster.drafts:
        outcome = cluster.outcome(draft.content)
        stored = cluster.store.count(draft.chat_id, draft.content)
        assert stored <= 1
        if not isinstance(outcome, Refusal):
            assert cluster.store.contents[draft.chat_id][outcome.sequence - 1] == draft.content
        elif is_refused_as_not_stored(cluster, draft):
            assert not stored, f"{draft.content} was refused as {outcome.code}, yet it is stored"


@settings(deadline=None)
@given(steps, moods(HONEST), st.booleans())
def test_while_nodes_are_honest_every_chat_keeps_its_order(
    course: list[Step], how: dict[str, list[Mood]], appends_here: bool
) -> None:
    """Without a silent node nothing is unknown, and what is stored stands in the order it was sent in."""
    cluster = play(course, how, appends_here)
    for chat_id in CHATS:
        sent = [draft for draft in cluster.drafts if draft.chat_id == chat_id]
        stored = [draft.content for draft in sent if not is_refused_as_not_stored(cluster, draft)]
        assert cluster.store.contents.get(chat_id, []) == stored


@settings(deadline=None)
@given(steps, moods(HONEST + SILENT), st.booleans())
def test_an_answer_precedes_the_news_of_its_own_message(
    course: list[Step], how: dict[str, list[Mood]], appends_here: bool
) -> None:
    """Whichever way a message was stored, its sender hears the ack first; and no news is kept back."""
    cluster = play(course, how, appends_here)
    for draft in cluster.drafts:
        told, news = f"told {draft.content}", f"news {draft.content}"
        assert cluster.heard.count(news) == cluster.store.count(draft.chat_id, draft.content)
        if news in cluster.heard and not isinstance(cluster.outcome(draft.content), Refusal):
            assert cluster.heard.index(told) < cluster.heard.index(news)
