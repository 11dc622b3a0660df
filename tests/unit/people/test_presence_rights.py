"""Rights to see presence that change, and tellings that were lost: nothing is told that should not be."""

import asyncio

from parley.clock import iso
from parley.model import Privacy, Relation
from parley.people.presence import RETURN_SECONDS
from parley.people.presence_publisher import FLAP_SECONDS, RETRY_SECONDS, RIGHTS_VALID_SECONDS
from tests.unit.people.world import SOON_SECONDS, Connection, PresenceWorld, in_world, quiet, soon

ANN, BEN, CAT, EVE = "usr_ann", "usr_ben", "usr_cat", "usr_eve"
HIDDEN = ("offline", "unavailable")


# Rights that change


def test_a_right_that_is_lost_is_told_once() -> None:
    """By either side's setting or block: one frame that says no more than hidden, then silence."""

    async def scenario(world: PresenceWorld) -> None:
        await world.registry.come(ANN, BEN)
        ann, ben = await world.watches(ANN, BEN), await world.watches(BEN, ANN)
        world.relations.hold(Relation.BLOCK, (BEN, ANN))
        world.presences.user_changed(BEN)
        world.presences.user_changed(BEN)
        await soon()
        assert (ann.told, ben.told) == ([(BEN, *HIDDEN)], [(ANN, *HIDDEN)])
        await world.registry.go(ANN, BEN)
        await quiet()
        assert (len(ann.told), len(ben.told)) == (1, 1)

    in_world(scenario)


def test_a_right_that_is_gained_shows_how_it_is() -> None:
    """Who may see somebody from now on is told at once whether they are there, or when they last were."""

    async def scenario(world: PresenceWorld) -> None:
        world.relations.set(ANN, Privacy.NOBODY)
        world.relations.set(CAT, last_seen="2025-12-31T10:00:00.000Z")
        await world.registry.come(BEN)
        came_ms = world.clock()
        ann = await world.watches(ANN, BEN, CAT)
        await soon()
        world.relations.set(ANN, Privacy.EVERYONE)
        world.presences.user_changed(ANN)
        await soon()
        assert sorted(ann.told) == [
            (BEN, "online", iso(came_ms)),
            (CAT, "offline", "2025-12-31T10:00:00.000Z"),
        ]
        await world.registry.come(CAT)
        await quiet()
        assert ann.statuses[2:] == [(CAT, "online")]

    in_world(scenario)


def test_who_parts_may_become_a_stranger() -> None:
    """Leaving the last common chat hides both from each other."""

    async def scenario(world: PresenceWorld) -> None:
        ann, ben = await world.watches(ANN, BEN), await world.watches(BEN, ANN)
        world.relations.estrange(BEN)
        world.presences.user_changed(BEN)
        await soon()
        assert (ann.told, ben.told) == ([(BEN, *HIDDEN)], [(ANN, *HIDDEN)])

    in_world(scenario)


def test_nothing_is_told_to_who_may_have_lost_the_right() -> None:
    """A change of presence waits until changed rights are judged; a store that is away is asked seldom."""

    async def scenario(world: PresenceWorld) -> None:
        ann, cat = await world.watches(ANN, BEN), await world.watches(CAT, BEN)
        world.relations.hold(Relation.BLOCK, (BEN, ANN))
        world.relations.is_away = True
        world.presences.user_changed(BEN)
        for _ in range(100):
            await world.registry.come(BEN)
            await world.registry.go(BEN)
        await world.registry.come(BEN)
        await quiet()
        assert (ann.told, cat.told) == ([], [])
        assert len(world.relations.reads) <= 2 + 1 + 2 * FLAP_SECONDS / RETRY_SECONDS
        world.relations.is_away = False
        await asyncio.sleep(2 * RETRY_SECONDS)
        assert (ann.told, cat.statuses) == ([(BEN, *HIDDEN)], [(BEN, "online")])

    in_world(scenario)


def test_a_viewer_in_doubt_holds_up_nobody_else() -> None:
    """While the store is away, those whose rights are beyond doubt are told."""

    async def scenario(world: PresenceWorld) -> None:
        ann, cat = await world.watches(ANN, BEN), await world.watches(CAT, BEN)
        world.relations.is_away = True
        world.presences.user_changed(ANN)
        await world.registry.come(BEN)
        await soon()
        assert (ann.told, cat.statuses) == ([], [(BEN, "online")])
        world.relations.is_away = False
        await asyncio.sleep(RETRY_SECONDS + 2 * FLAP_SECONDS)
        assert ann.statuses == [(BEN, "online")]

    in_world(scenario)


def test_a_right_that_changes_while_a_subscription_is_made_counts() -> None:
    """What was read before the change does not stay."""

    async def scenario(world: PresenceWorld) -> None:
        ann = Connection(ANN)
        await world.registry.come(BEN)
        subscribing = asyncio.create_task(world.presences.subscribe(ann, [BEN]))
        await asyncio.sleep(0.0015)
        world.relations.hold(Relation.BLOCK, (BEN, ANN))
        world.presences.user_changed(BEN)
        ((view),) = await subscribing
        assert view.status == "online"
        await soon()
        assert ann.told == [(BEN, *HIDDEN)]

    in_world(scenario)


def test_an_old_judgement_is_not_believed() -> None:
    """A telling that was lost is made up for before anything is published to who lost the right."""

    async def scenario(world: PresenceWorld) -> None:
        ann, cat = await world.watches(ANN, BEN), await world.watches(CAT, BEN)
        world.relations.hold(Relation.BLOCK, (BEN, ANN))
        await asyncio.sleep(RIGHTS_VALID_SECONDS + 1)
        await world.registry.come(BEN)
        await quiet()
        assert (ann.told, cat.statuses) == ([(BEN, *HIDDEN)], [(BEN, "online")])

    in_world(scenario)


def test_a_person_whom_nobody_watches_costs_nothing() -> None:
    """Changes of rights and of presence of others are passed over."""

    async def scenario(world: PresenceWorld) -> None:
        await world.watches(ANN, BEN)
        reads = len(world.relations.reads)
        world.presences.user_changed(EVE)
        await world.registry.come(EVE)
        await soon()
        assert len(world.relations.reads) == reads

    in_world(scenario)


# After an outage


def test_what_was_missed_is_told_after_an_outage() -> None:
    """Everybody who is watched is looked at again, and only what differs is told; rights too."""

    async def scenario(world: PresenceWorld) -> None:
        await world.registry.come(BEN, CAT)
        ann = await world.watches(ANN, BEN, CAT, EVE, "usr_dan")
        async with world.registry.unheard():
            await world.registry.go(BEN)
            await world.registry.come(EVE)
            came_ms = world.clock()
        world.relations.set(BEN, last_seen="2026-01-01T00:00:00.500Z")
        world.relations.set("usr_dan", Privacy.NOBODY)
        world.registry.return_()
        world.registry.return_()
        await asyncio.sleep(RETURN_SECONDS + SOON_SECONDS)
        assert sorted(ann.told, key=lambda told: told[0]) == [
            (BEN, "offline", "2026-01-01T00:00:00.500Z"),
            ("usr_dan", *HIDDEN),
            (EVE, "online", iso(came_ms)),
        ]
        assert world.registry.asked == 4 + 4

    in_world(scenario)


def test_a_failure_is_made_up_for() -> None:
    """What nobody expected is logged, and those who were not told are told later."""

    async def scenario(world: PresenceWorld) -> None:
        ann = await world.watches(ANN, BEN, CAT)
        publisher = world.presences._publisher
        check, publisher._check_rights = publisher._check_rights, _fail  # type: ignore[method-assign]
        world.presences.user_changed(ANN)
        await world.registry.come(BEN, CAT)
        await soon()
        assert ann.told == []
        publisher._check_rights = check  # type: ignore[method-assign]
        await asyncio.sleep(2 * RETRY_SECONDS)
        assert ann.statuses == [(BEN, "online"), (CAT, "online")]

    in_world(scenario)


async def _fail(user_id: str, also_watchers: bool) -> None:
    raise ZeroDivisionError(user_id)
