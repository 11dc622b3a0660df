"""Whatever people and their devices do, in whatever order: ticks, unread counts and chat lists never drift.

A whole server, and beside it everything worked out anew from its logs and what was said to it. Each seed is
one course of events; a failure names its steps.
"""

from contextlib import nullcontext
from random import Random

import pytest

from parley.store.sqlite import overview
from tests.integration.gateway.people_model.acting import ON_THE_SAME_SOCKETS, STEPS_BY_WEIGHT, restart
from tests.integration.gateway.people_model.comparing import compare, reading_along
from tests.integration.gateway.people_model.town import Town
from tests.integration.gateway.serving import Place

COURSES = range(4)
STEPS = 50
UNREAD_MAX = 6
PAGE_BYTES_MAX = 1_000
"""Two or three entries."""


@pytest.mark.randomised
@pytest.mark.timeout(120)
@pytest.mark.parametrize("course", COURSES)
async def test_nothing_ever_drifts(
    either: Place, course: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any course of events positions, ticks, unread counts and chat lists equal the naive ones."""
    monkeypatch.setattr(overview, "UNREAD_MAX", UNREAD_MAX)
    monkeypatch.setattr(overview, "PAGE_BYTES_MAX", PAGE_BYTES_MAX)
    random = Random(seed)
    town, played = Town(either, random, UNREAD_MAX), list[str]()
    try:
        await town.begin()
        steps = random.choices(list(STEPS_BY_WEIGHT), list(STEPS_BY_WEIGHT.values()), k=STEPS)
        for step in (*steps, restart):
            played.append(step.__name__)
            async with reading_along(town) if step in ON_THE_SAME_SOCKETS else nullcontext():
                await step(town)
            await compare(town, everything=step is restart)
    except AssertionError as error:
        error.add_note(f"seed {seed}: {' → '.join(played)}")
        raise
    finally:
        await town.leave()
