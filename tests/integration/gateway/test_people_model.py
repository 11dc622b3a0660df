"""Whatever people and their devices do, in whatever order: ticks, unread counts and chat lists never drift.

A whole server, and beside it everything worked out anew from its logs and what was said to it. Each seed is
one course of events; a failure names its steps.
"""

from contextlib import nullcontext
from pathlib import Path
from random import Random

import pytest

from parley.ephemeral.redis.engine import RedisEphemeral
from parley.store import compared_overviews
from parley.store.dynamodb import overview as dynamodb_overview
from parley.store.sqlite import overview
from tests.clusters import MODES
from tests.integration.gateway.people_model.acting import (
    OF_ONE_PROCESS,
    ON_THE_SAME_SOCKETS,
    STEPS_BY_WEIGHT,
    Step,
    restart,
)
from tests.integration.gateway.people_model.comparing import compare, reading_along
from tests.integration.gateway.people_model.town import Town
from tests.integration.gateway.serving import Place
from tests.integration.gateway.two_nodes import TwoNodes
from tests.seeds import IS_VARIED

COURSES = range(4)
HOUR_SECONDS = 3600.0
STEPS = 50
STEPS_ON_TWO_NODES = 10
UNREAD_MAX = 6
PAGE_BYTES_MAX = 1_000
"""Two or three entries."""


@pytest.mark.randomised
@pytest.mark.timeout(300)
@pytest.mark.parametrize("course", COURSES)
async def test_nothing_ever_drifts(
    either: Place, course: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any course of events positions, ticks, unread counts and chat lists equal the naive ones."""
    monkeypatch.setattr(overview, "UNREAD_MAX", UNREAD_MAX)
    monkeypatch.setattr(overview, "PAGE_BYTES_MAX", PAGE_BYTES_MAX)
    await live(Town(either, Random(seed), UNREAD_MAX), STEPS_BY_WEIGHT, STEPS)


@pytest.fixture(params=["atomic", "redis"] if IS_VARIED else ["redis"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> TwoNodes:
    return TwoNodes(tmp_path, MODES[request.param])


@pytest.mark.randomised
@pytest.mark.timeout(900 if IS_VARIED else 300)
async def test_nothing_ever_drifts_between_two_nodes(
    nodes: TwoNodes, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same on DynamoDB and Redis, where everybody uses either of two nodes for whatever they do next."""
    for module in (dynamodb_overview, compared_overviews):
        monkeypatch.setattr(module, "UNREAD_MAX", UNREAD_MAX)
    # On a busy machine a step takes longer than a silent device counts as here.
    options = RedisEphemeral.__init__.__kwdefaults__ or {}
    monkeypatch.setitem(options, "device_lease_seconds", HOUR_SECONDS)
    steps = {step: weight for step, weight in STEPS_BY_WEIGHT.items() if step not in OF_ONE_PROCESS}
    await live(Town(nodes, Random(seed), UNREAD_MAX), steps, STEPS if IS_VARIED else STEPS_ON_TWO_NODES)


async def live(town: Town, steps_by_weight: dict[Step, int], count: int) -> None:
    """So many steps, and what must hold after each."""
    played = list[str]()
    try:
        await town.begin()
        steps = town.random.choices(list(steps_by_weight), list(steps_by_weight.values()), k=count)
        for step in (*steps, restart):
            played.append(step.__name__)
            async with reading_along(town) if step in ON_THE_SAME_SOCKETS else nullcontext():
                await step(town)
            await compare(town, everything=step is restart)
    except AssertionError as error:
        error.add_note(" → ".join(played))
        raise
    finally:
        await town.leave()
