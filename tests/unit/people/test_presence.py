"""Presence: who may see it is told of every change, once, soon, and of nothing else."""

import asyncio

import pytest

from parley.clock import iso
from parley.errors import Refused, StoreUnavailable
from parley.model import Privacy, Relation
from parley.people import presence_lookup
from parley.people.presence import check_batch
from parley.wire.limits import PRESENCE_BATCH_MAX
from tests.harness.clock import START_MS
from tests.unit.people.world import Connection, PresenceWorld, in_world, quiet, soon

ANN, BEN, CAT, EVE = "usr_ann", "usr_ben", "usr_cat", "usr_eve"
HIDDEN = ("offline", "unavailable")


# On request


def test_everybody_asked_for_is_answered_once_in_order() -> None:
    """Online with when they were last active, offline with when they were last seen, or never."""

    async def scenario(world: PresenceWorld) -> None:
        await world.registry.come(BEN)
        world.relations.set(CAT, last_seen="2025-12-31T10:00:00.000Z")
        found = await world.presences.query(ANN, [CAT, BEN, CAT, EVE])
        assert [(view.user_id, view.status, view.last_seen) for view in found] == [
            (CAT, "offline", "2025-12-31T10:00:00.000Z"),
            (BEN, "online", iso(START_MS)),
            (EVE, "offline", None),
        ]

    in_world(scenario)


@pytest.mark.parametrize("nobody", ["", "usr_" + 100 * "x", "stranger", "\x00"])
def test_who_does_not_exist_looks_like_who_is_hidden(nobody: str) -> None:
    """The answer is the same, and nobody asks the registry about either."""

    async def scenario(world: PresenceWorld) -> None:
        await world.registry.come(BEN, CAT, nobody)
        world.relations.set(BEN, Privacy.NOBODY)
        world.relations.estrange(CAT)
        found = await world.presences.query(ANN, [BEN, CAT, nobody])
        assert [(view.status, view.last_seen) for view in found] == [HIDDEN] * 3
        assert world.registry.asked == 0

    in_world(scenario)


def test_a_person_sees_themself() -> None:
    """Whatever they hide from others."""

    async def scenario(world: PresenceWorld) -> None:
        world.relations.set(ANN, Privacy.NOBODY)
        await world.registry.come(ANN)
        assert (await world.sees(ANN, ANN))[0] == "online"

    in_world(scenario)


def test_a_viewer_who_is_no_more_sees_nobody() -> None:
    """An account that is gone has no rights."""

    async def scenario(world: PresenceWorld) -> None:
        assert await world.sees("gone", BEN) == HIDDEN

    in_world(scenario)


def test_last_seen_is_known_before_it_is_stored() -> None:
    """Who has just gone is offline at once, last seen then, although the store does not know yet."""

    async def scenario(world: PresenceWorld) -> None:
        world.relations.set(BEN, last_seen="2025-12-31T10:00:00.000Z")
        await world.registry.come(BEN)
        await soon()
        gone_ms = world.clock()
        await world.registry.go(BEN)
        assert await world.sees(ANN, BEN) == ("offline", iso(gone_ms))
        world.relations.set(BEN, last_seen="2026-01-31T10:00:00.000Z")
        assert await world.sees(ANN, BEN) == ("offline", "2026-01-31T10:00:00.000Z")

    in_world(scenario)


def test_what_went_lately_is_remembered_of_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more the store is believed."""
    monkeypatch.setattr(presence_lookup, "RECENT_MAX", 2)

    async def scenario(world: PresenceWorld) -> None:
        for user_id in (BEN, CAT, EVE):
            await world.registry.come(user_id)
            await world.registry.go(user_id)
        found = await world.presences.query(ANN, [BEN, CAT, EVE])
        assert [view.last_seen for view in found] == [None, iso(START_MS), iso(START_MS)]

    in_world(scenario)


def test_too_many_are_refused() -> None:
    """Neither asked for nor watched, and nothing is read."""

    async def scenario(world: PresenceWorld) -> None:
        many = [f"usr_{number}" for number in range(PRESENCE_BATCH_MAX + 1)]
        for attempt in (world.presences.query(ANN, many), world.presences.subscribe(Connection(ANN), many)):
            with pytest.raises(Refused, match=f"at most {PRESENCE_BATCH_MAX}"):
                await attempt
        assert world.relations.reads == []

    in_world(scenario)
    assert len(check_batch(["usr_ann"] * PRESENCE_BATCH_MAX)) == 1


# Told of changes


def test_a_change_is_told_to_who_watches() -> None:
    """Once, to those alone, with one encoding for all of them."""

    async def scenario(world: PresenceWorld) -> None:
        watching = [await world.watches(f"usr_{number}", BEN, CAT) for number in range(3)]
        other = await world.watches(ANN, EVE)
        await soon()
        came_ms = world.clock()
        await world.registry.come(BEN)
        await soon()
        assert [one.told for one in watching] == [[(BEN, "online", iso(came_ms))]] * 3
        assert (other.told, world.encodings) == ([], 1)
        assert world.metrics.registry.get_sample_value("parley_presence_told_total") == 3

    in_world(scenario)


def test_who_is_hidden_is_not_told_of() -> None:
    """Neither those who hide, nor those they hide from, nor strangers, are told anything."""

    async def scenario(world: PresenceWorld) -> None:
        world.relations.set(BEN, Privacy.NOBODY)
        world.relations.set(CAT, Privacy.CONTACTS)
        world.relations.hold(Relation.CONTACT, (CAT, ANN))
        ann, eve = await world.watches(ANN, BEN, CAT), await world.watches(EVE, BEN, CAT)
        ben = await world.watches(BEN, ANN)
        await world.registry.come(ANN, BEN, CAT)
        await soon()
        assert (ann.statuses, eve.told, ben.told) == ([(CAT, "online")], [], [])

    in_world(scenario)


def test_a_subscription_replaces_the_one_before() -> None:
    """Who is not in the new one is no longer told of; an empty one, or the end, ends all."""

    async def scenario(world: PresenceWorld) -> None:
        ann = await world.watches(ANN, BEN, CAT)
        await world.presences.subscribe(ann, [CAT, EVE])
        await world.registry.come(BEN, CAT, EVE)
        await soon()
        assert sorted(ann.statuses) == [(CAT, "online"), (EVE, "online")]
        await world.presences.subscribe(ann, [])
        await world.registry.go(CAT)
        world.presences.unsubscribe(ann)
        world.presences.unsubscribe(ann)
        await quiet()
        assert len(ann.told) == 2
        assert not world.presences._table.users
        assert not world.presences._table.viewers

    in_world(scenario)


def test_a_subscription_that_fails_changes_nothing() -> None:
    """The store was away: those who were watched are still told of, the others are not."""

    async def scenario(world: PresenceWorld) -> None:
        ann = await world.watches(ANN, BEN, CAT)
        world.relations.is_away = True
        with pytest.raises(StoreUnavailable):
            await world.presences.subscribe(ann, [CAT, EVE])
        await world.registry.come(BEN, CAT, EVE)
        await soon()
        assert ann.statuses == [(BEN, "online"), (CAT, "online")]

    in_world(scenario)


def test_what_changes_while_a_subscription_is_made_is_told() -> None:
    """What came too late for the answer follows it; who has ended meanwhile is told nothing."""

    async def scenario(world: PresenceWorld) -> None:
        ann, gone = Connection(ANN), Connection(EVE)
        subscribing = asyncio.create_task(world.presences.subscribe(ann, [BEN]))
        leaving = asyncio.create_task(world.presences.subscribe(gone, [BEN]))
        await asyncio.sleep(0.0015)
        world.presences.unsubscribe(gone)
        await world.registry.come(BEN)
        ((view,), _) = await asyncio.gather(subscribing, leaving)
        await quiet()
        told = [(view.user_id, view.status), *ann.statuses]
        assert told[-1] == (BEN, "online")
        assert len(told) == len(set(told))
        assert gone.told == []
        world.presences.unsubscribe(ann)
        assert not world.presences._table.users

    in_world(scenario)


def test_subscriptions_of_one_connection_count_in_their_order() -> None:
    """However long each takes, the last one stays."""

    async def scenario(world: PresenceWorld) -> None:
        ann = Connection(ANN)
        await asyncio.gather(*(world.presences.subscribe(ann, [one]) for one in (BEN, CAT, EVE)))
        await world.registry.come(BEN, CAT, EVE)
        await soon()
        assert ann.statuses == [(EVE, "online")]

    in_world(scenario)


# Flapping


def test_only_the_frame_waits_when_somebody_flaps() -> None:
    """The first change is told at once, the last one when it is quiet; a query is right at any time."""

    async def scenario(world: PresenceWorld) -> None:
        ann = await world.watches(ANN, BEN)
        for _ in range(5):
            await world.registry.come(BEN)
            assert (await world.sees(ANN, BEN))[0] == "online"
            await asyncio.sleep(0.1)
            await world.registry.go(BEN)
            assert (await world.sees(ANN, BEN))[0] == "offline"
        assert ann.statuses == [(BEN, "online")]
        await quiet()
        assert ann.statuses == [(BEN, "online"), (BEN, "offline")]

    in_world(scenario)


def test_who_is_back_in_time_was_not_seen_to_go() -> None:
    """A change that is undone before it was told is never told, and the next one comes at once."""

    async def scenario(world: PresenceWorld) -> None:
        ann = await world.watches(ANN, BEN)
        await world.registry.come(BEN)
        await soon()
        await world.registry.go(BEN)
        await world.registry.come(BEN)
        await quiet()
        assert ann.statuses == [(BEN, "online")]
        await world.registry.go(BEN)
        await soon()
        assert ann.statuses == [(BEN, "online"), (BEN, "offline")]

    in_world(scenario)


def test_who_subscribes_while_somebody_flaps_is_told_what_differs() -> None:
    """The answer says how it is; the frame that was held back goes only to those who were told otherwise."""

    async def scenario(world: PresenceWorld) -> None:
        ann = await world.watches(ANN, BEN)
        await world.registry.come(BEN)
        await soon()
        await world.registry.go(BEN)
        cat = await world.watches(CAT, BEN)
        await quiet()
        assert ann.statuses == [(BEN, "online"), (BEN, "offline")]
        assert cat.told == []

    in_world(scenario)
