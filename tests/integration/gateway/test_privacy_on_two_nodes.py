"""Who may see when somebody is there, where each is on a node of their own: the cells of `test_privacy`.

A run has two choices of the other for each choice of one's own; six rounds of `make simulate` have all.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.gateway.test_privacy import SIDES, Side, check_going, check_paths, paired
from tests.integration.gateway.two_nodes import TwoNodes


@pytest.fixture
def nodes(tmp_path: Path) -> TwoNodes:
    return TwoNodes(tmp_path, {"PARLEY_STORE_SEQUENCING": "atomic"})


def cells(repeat: int) -> Iterator[tuple[Side, list[Side]]]:
    """For each side of the viewer some of the other's; in six rounds each of them."""
    for number, mine in enumerate(SIDES):
        first = number + repeat
        yield mine, [SIDES[first % len(SIDES)], SIDES[(first + len(SIDES) // 2) % len(SIDES)]]


@pytest.mark.randomised
@pytest.mark.timeout(240)
async def test_cells_on_every_path(nodes: TwoNodes, repeat: int) -> None:
    """A person on another node is seen exactly where each shows themself to the other."""
    async with nodes.serving() as served:
        pair = await paired(served)
        for mine, others in cells(repeat):
            await check_paths(pair, mine, others)


@pytest.mark.randomised
@pytest.mark.timeout(240)
async def test_cells_when_somebody_goes(
    nodes: TwoNodes, repeat: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who subscribed is told that a person went from another node exactly if they may see them."""
    monkeypatch.setattr("parley.people.presence_publisher.FLAP_SECONDS", 0.0)
    async with nodes.serving() as served:
        pair = await paired(served)
        for mine, others in cells(repeat):
            await check_going(pair, mine, others)


def test_six_rounds_have_every_cell() -> None:
    """No pair of choices is left out in the long run."""
    met = {(mine, one) for repeat in range(6) for mine, others in cells(repeat) for one in others}
    assert met == set(itertools.product(SIDES, SIDES))
