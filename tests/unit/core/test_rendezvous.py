"""Whose chat is whose: everybody agrees, and little moves when a node comes or goes."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.core.rendezvous import owner, ranked

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
some_nodes = st.lists(names, min_size=1, max_size=8, unique=True)

CHATS = [f"chat_{n:026}" for n in range(6_000)]
SHARE_TOLERANCE = 0.15


@given(names, some_nodes, st.randoms(use_true_random=False))
def test_everybody_agrees(chat_id: str, nodes: list[str], chance: Random) -> None:
    """The ranking depends on which nodes there are, not on the order in which they are listed."""
    shuffled = chance.sample(nodes, len(nodes))
    assert ranked(chat_id, nodes) == ranked(chat_id, shuffled)


@given(names, some_nodes)
def test_the_owner_stands_first(chat_id: str, nodes: list[str]) -> None:
    """The ranking begins with the owner and holds every node once."""
    order = ranked(chat_id, nodes)
    assert order[0] == owner(chat_id, nodes)
    assert sorted(order) == sorted(nodes)


@given(names, some_nodes, names)
def test_a_new_node_takes_and_nobody_else_does(chat_id: str, nodes: list[str], new: str) -> None:
    """When a node comes, a chat stays where it was or goes to the new one."""
    before = owner(chat_id, nodes)
    assert owner(chat_id, {*nodes, new}) in (before, new)


@given(names, some_nodes)
def test_the_next_in_rank_stands_in(chat_id: str, nodes: list[str]) -> None:
    """When the owner goes, the chat goes to the second; when another goes, nothing moves."""
    order = ranked(chat_id, nodes)
    assert ranked(chat_id, order[1:]) == order[1:]
    for gone in order[1:]:
        assert owner(chat_id, [node for node in order if node != gone]) == order[0]


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_each_node_has_its_share(count: int) -> None:
    """Chats are spread evenly, and a node that comes takes one of n from the others."""
    nodes = [f"node-{n}" for n in range(count)]
    shares = Counter(owner(chat, nodes) for chat in CHATS)
    moved = sum(owner(chat, nodes) != owner(chat, nodes[:-1]) for chat in CHATS)
    assert len(shares) == count
    fair = len(CHATS) / count
    assert all(abs(held - fair) <= SHARE_TOLERANCE * fair for held in [*shares.values(), moved])


def test_a_place_is_the_same_on_every_machine() -> None:
    """The hash is fixed: nodes of different versions and machines must agree."""
    assert ranked("chat_01JHV3Z8M4QK7N5X2R9T6WBCDF", ["a", "b", "c", "d"]) == ["d", "b", "c", "a"]


def test_without_nodes_nobody_owns_it() -> None:
    """No node, no owner."""
    assert owner("chat", []) is None
