"""The ports of the `ephemeral` room: leases, presence and allowances that nodes share."""

import asyncio

import pytest

from parley.core.jobs import JobRecord
from parley.ephemeral.ports import Ephemeral, Node, Presence
from parley.ephemeral.signals import MuteSignal, ReceiptSignal, Signal, TypingSignal, UserChangedSignal
from parley.model import JobOutcome, JobScope, ReceiptKind
from tests.contracts.ephemeral_engines import WORLDS, World

ANN_PHONE, ANN_LAPTOP, BEN_PHONE = ("usr_ann", "phone"), ("usr_ann", "laptop"), ("usr_ben", "phone")
PER_SECOND, BURST = 4.0, 10.0


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> World:
    return WORLDS[request.param]()


class Ear:
    """Who was told to be online or offline, in order."""

    def __init__(self, engine: Ephemeral) -> None:
        self.heard: list[tuple[str, bool]] = []
        self.presences: list[Presence] = []
        self.end = engine.registry.watch(self._hear)

    def _hear(self, presence: Presence) -> None:
        self.heard.append((presence.user_id, presence.is_online))
        self.presences.append(presence)


async def online(engine: Ephemeral, *user_ids: str) -> list[str]:
    return [found.user_id for found in await engine.registry.presences(user_ids) if found.is_online]


async def ids(engine: Ephemeral) -> list[str]:
    return [node.node_id for node in await engine.nodes.alive()]


# Nodes


async def test_every_node_sees_who_is_alive(world: World) -> None:
    """A node that announces itself is in everybody's list, as it described itself."""
    async with world.opened() as (one, two):
        a, b = Node("a", "http://127.0.0.1:1", ("gateway", "ingest")), Node("b", "http://127.0.0.1:2", ())
        await one.nodes.announce(b)
        await two.nodes.announce(a)
        assert await one.nodes.alive() == await two.nodes.alive() == [a, b]


async def test_a_node_that_falls_silent_is_not_alive(world: World) -> None:
    """The lease of who does not renew it runs out, and nobody else's does."""
    async with world.opened() as (one, two):
        await one.nodes.announce(Node("silent", "http://127.0.0.1:1", ()))

        async def only_the_other_is_left() -> bool:
            await two.nodes.announce(Node("awake", "http://127.0.0.1:2", ()))
            assert "awake" in await ids(one)
            return await ids(two) == ["awake"]

        await world.until(only_the_other_is_left)


async def test_a_node_that_withdraws_is_gone_at_once(world: World) -> None:
    """Nobody waits for the lease of a node that says goodbye."""
    async with world.opened() as (one, two):
        await one.nodes.announce(Node("a", "http://127.0.0.1:1", ()))
        await two.nodes.announce(Node("b", "http://127.0.0.1:2", ()))
        await one.nodes.withdraw("a")
        assert await ids(two) == ["b"]


async def test_a_node_that_comes_back_elsewhere_is_listed_once(world: World) -> None:
    """What a node said of itself last is what counts."""
    async with world.opened() as (one, two):
        await one.nodes.announce(Node("a", "http://127.0.0.1:1", ()))
        moved = Node("a", "http://127.0.0.1:9", ("gateway",))
        await one.nodes.announce(moved)
        assert await two.nodes.alive() == [moved]


# Leases of jobs, and what is said of jobs


async def test_a_lease_has_one_holder(world: World) -> None:
    """Who asks second does not get it; who has it may renew it; each lease is for itself."""
    async with world.opened() as (one, two):
        assert await one.leases.hold("sweep", "a.1", world.lease_seconds) is True
        assert await two.leases.hold("sweep", "b.1", world.lease_seconds) is False
        assert await one.leases.hold("sweep", "a.1", world.lease_seconds) is True
        assert await two.leases.hold("expiry", "b.1", world.lease_seconds) is True


async def test_a_lease_that_is_not_renewed_is_another_ones(world: World) -> None:
    """Its holder fell silent: it runs out, and from then on the old holder is refused."""
    async with world.opened() as (one, two):
        await one.leases.hold("sweep", "a.1", world.lease_seconds)

        async def is_taken() -> bool:
            return await two.leases.hold("sweep", "b.1", world.lease_seconds) is True

        await world.until(is_taken)
        assert await one.leases.hold("sweep", "a.1", world.lease_seconds) is False


async def test_a_lease_that_is_renewed_stays(world: World) -> None:
    """For several times its length, as long as its holder renews it."""
    async with world.opened() as (one, two):
        await two.leases.hold("clock", "b.1", 3 * world.lease_seconds)

        async def three_leases_are_over() -> bool:
            assert await one.leases.hold("sweep", "a.1", world.lease_seconds) is True
            assert await two.leases.hold("sweep", "b.1", world.lease_seconds) is False
            return await one.leases.hold("clock", "a.1", 1.0) is True

        await world.until(three_leases_are_over)


async def test_a_lease_is_given_back_by_its_holder_only(world: World) -> None:
    """Then it is free at once; a release by somebody else changes nothing."""
    async with world.opened() as (one, two):
        await one.leases.hold("sweep", "a.1", world.lease_seconds)
        await two.leases.release("sweep", "b.1")
        assert await two.leases.hold("sweep", "b.1", world.lease_seconds) is False
        await one.leases.release("sweep", "a.1")
        assert await two.leases.hold("sweep", "b.1", world.lease_seconds) is True


def job_record(name: str, node_id: str, scope: JobScope, runs: int = 1) -> JobRecord:
    return JobRecord(
        name=name,
        scope=scope,
        node_id=node_id,
        interval_seconds=5.0,
        last_started_ms=1,
        last_outcome=JobOutcome.FAILED,
        last_error="the table 'a b' is away",
        runs=runs,
    )


async def test_every_node_reads_what_is_said_of_jobs(world: World) -> None:
    """One record of a job of the cluster, whoever said it last; one of each node for the others."""
    async with world.opened() as (one, two):
        swept_by_b = job_record("sweep", "b", JobScope.CLUSTER, runs=2)
        sealing = [job_record("sealing", node_id, JobScope.NODE) for node_id in "ab"]
        await one.job_records.put([job_record("sweep", "a", JobScope.CLUSTER), sealing[0]])
        await two.job_records.put([swept_by_b, sealing[1]])
        assert await one.job_records.all() == await two.job_records.all() == [*sealing, swept_by_b]
        await two.job_records.remove([sealing[1].key])
        assert await one.job_records.all() == [sealing[0], swept_by_b]


# Who is where


async def test_devices_on_two_nodes_are_found_on_both(world: World) -> None:
    """A person with devices on two nodes is found there by every node; who is not connected is not found."""
    async with world.opened() as (one, two):
        await one.registry.connected([ANN_PHONE, BEN_PHONE], "a")
        await two.registry.connected([ANN_LAPTOP], "b")
        found = {"usr_ann": {"phone": "a", "laptop": "b"}, "usr_ben": {"phone": "a"}}
        for engine in (one, two):
            assert await engine.registry.whereabouts(["usr_ann", "usr_ben", "usr_eve"]) == found


async def test_a_late_goodbye_forgets_nobody_who_has_moved(world: World) -> None:
    """A device that reconnected elsewhere is not forgotten when the old node notices that it left."""
    async with world.opened() as (one, two):
        ear = Ear(one)
        await one.registry.connected([ANN_PHONE], "a")
        await two.registry.connected([ANN_PHONE], "b")
        await one.registry.disconnected([ANN_PHONE], "a")
        assert await one.registry.whereabouts(["usr_ann"]) == {"usr_ann": {"phone": "b"}}
        assert await online(two, "usr_ann") == ["usr_ann"]
        await two.registry.disconnected([ANN_PHONE], "b")
        await world.until(lambda: _as_coroutine(len(ear.heard) >= 2))
        assert ear.heard == [("usr_ann", True), ("usr_ann", False)]


async def test_an_old_node_that_still_renews_does_not_win(world: World) -> None:
    """A device is where it connected last, even while the old node holds a dead socket for it."""
    async with world.opened() as (one, two):
        await one.registry.connected([ANN_PHONE], "z")
        world.tick()
        await two.registry.connected([ANN_PHONE], "b")
        world.tick()
        await one.registry.renew([ANN_PHONE], "z")
        assert await two.registry.whereabouts(["usr_ann"]) == {"usr_ann": {"phone": "b"}}


async def test_leases_of_a_node_that_died_run_out(world: World) -> None:
    """Nobody renews for it: its people go offline, those of other nodes stay, and everybody is told once."""
    async with world.opened() as (one, two):
        ear, other_ear = Ear(one), Ear(two)
        await one.registry.connected([BEN_PHONE], "dead")
        await two.registry.connected([ANN_PHONE], "b")

        async def ben_is_gone() -> bool:
            await two.registry.renew([ANN_PHONE], "b")
            assert await online(two, "usr_ann") == ["usr_ann"]
            return ("usr_ben", False) in ear.heard and ("usr_ben", False) in other_ear.heard

        await world.until(ben_is_gone)
        await one.registry.renew([], "a")
        await two.registry.renew([ANN_PHONE], "b")
        assert await online(one, "usr_ann", "usr_ben") == ["usr_ann"]
        assert await one.registry.whereabouts(["usr_ann", "usr_ben"]) == {"usr_ann": {"phone": "b"}}
        told = [("usr_ben", True), ("usr_ann", True), ("usr_ben", False)]
        assert ear.heard == other_ear.heard == told


async def test_a_renewal_brings_back_what_was_forgotten(world: World) -> None:
    """A node that slept through its lease has its people online again with its next renewal."""
    async with world.opened() as (one, two):
        await one.registry.connected([ANN_PHONE], "a")

        async def forgotten() -> bool:
            await two.registry.renew([], "b")
            return not (await two.registry.whereabouts(["usr_ann"]) or await online(two, "usr_ann"))

        await world.until(forgotten)
        await one.registry.renew([ANN_PHONE], "a")
        assert await two.registry.whereabouts(["usr_ann"]) == {"usr_ann": {"phone": "a"}}
        assert await online(two, "usr_ann") == ["usr_ann"]


# Presence


async def test_a_person_is_online_while_any_device_is(world: World) -> None:
    """Only the first device that comes and the last that goes change anything, and each is told once."""
    async with world.opened() as (one, two):
        ear, other_ear = Ear(one), Ear(two)
        await one.registry.connected([ANN_PHONE], "a")
        await two.registry.connected([ANN_LAPTOP], "b")
        await one.registry.renew([ANN_PHONE], "a")
        await one.registry.disconnected([ANN_PHONE], "a")
        assert await online(one, "usr_ann") == ["usr_ann"]
        await two.registry.disconnected([ANN_LAPTOP], "b")
        await two.registry.disconnected([ANN_LAPTOP], "b")
        assert await online(one, "usr_ann") == []
        await one.registry.connected([BEN_PHONE], "a")
        told = [("usr_ann", True), ("usr_ann", False), ("usr_ben", True)]
        await world.until(lambda: _as_coroutine(ear.heard == told and other_ear.heard == told))


async def test_presence_says_since_when(world: World) -> None:
    """A change carries the time at which it was seen, and a query the time of the last renewal."""
    world.lease_seconds = 60.0  # no lease ends by itself here, however busy the machine is
    async with world.opened() as (one, two):
        ear = Ear(two)
        await one.registry.connected([ANN_PHONE], "a")
        await world.until(lambda: _as_coroutine(len(ear.presences) == 1))
        (present,) = await two.registry.presences(["usr_ann"])
        assert present == ear.presences[0]
        await one.registry.disconnected([ANN_PHONE], "a")
        await world.until(lambda: _as_coroutine(len(ear.presences) == 2))
        assert ear.presences[1].last_active_ms >= present.last_active_ms > 0


async def test_presences_come_in_the_order_asked_for(world: World) -> None:
    """Everybody who was asked for is answered, also who was never seen."""
    async with world.opened() as (one, _):
        await one.registry.connected([ANN_PHONE], "a")
        found = await one.registry.presences(["usr_eve", "usr_ann", "usr_eve"])
        assert [presence.user_id for presence in found] == ["usr_eve", "usr_ann", "usr_eve"]
        assert found[0] == Presence("usr_eve", False, 0)
        assert await one.registry.presences([]) == []


async def test_who_stopped_watching_hears_nothing(world: World) -> None:
    """Ending a watch ends it for that listener alone, and a listener that fails harms no other."""
    async with world.opened() as (one, _):
        gone, broken = Ear(one), one.registry.watch(_fail)
        left = Ear(one)
        gone.end()
        await one.registry.connected([ANN_PHONE], "a")
        await world.until(lambda: _as_coroutine(left.heard == [("usr_ann", True)]))
        broken()
        assert gone.heard == []


async def test_many_devices_are_told_of_at_once(world: World) -> None:
    """A crowd comes, is found, and goes again, whatever the size of one call."""
    crowd = [(f"usr_{number}", "phone") for number in range(1_200)]
    user_ids = [user_id for user_id, _ in crowd]
    async with world.opened() as (one, two):
        ear = Ear(two)
        await one.registry.connected(crowd, "a")
        assert len(await two.registry.whereabouts(user_ids)) == len(crowd)
        assert len(await online(two, *user_ids)) == len(crowd)
        await one.registry.disconnected(crowd, "a")
        assert await online(two, *user_ids) == []
        await world.until(lambda: _as_coroutine(len(ear.heard) == 2 * len(crowd)))


async def test_who_takes_somebody_offline_is_told(world: World) -> None:
    """The call that ends a person's last claim returns them with the time, and no other call does."""
    async with world.opened() as (one, two):
        ear = Ear(two)
        await one.registry.connected([ANN_PHONE, BEN_PHONE], "a")
        await two.registry.connected([ANN_LAPTOP], "b")
        assert await one.registry.disconnected([ANN_PHONE], "a") == []
        assert await one.registry.disconnected([ANN_LAPTOP], "a") == []
        gone = await two.registry.disconnected([ANN_LAPTOP, BEN_PHONE], "b")
        assert await two.registry.disconnected([ANN_LAPTOP], "b") == []
        assert [(found.user_id, found.is_online) for found in gone] == [("usr_ann", False)]
        await world.until(lambda: _as_coroutine(gone[0] in ear.presences))


async def test_one_of_two_nodes_is_told_who_ran_out(world: World) -> None:
    """However many nodes look for what has run out, one of them is told, with when they were last there."""
    async with world.opened() as (one, two):
        ear = Ear(one)
        await one.registry.connected([ANN_PHONE, BEN_PHONE], "dead")
        await world.until(lambda: _as_coroutine(len(ear.presences) == 2))
        gone: list[Presence] = []

        async def both_are_gone() -> bool:
            for found in await asyncio.gather(one.registry.renew([], "a"), two.registry.renew([], "b")):
                gone.extend(found)
            return len(gone) >= 2

        await world.until(both_are_gone)
        assert await one.registry.disconnected([ANN_PHONE, BEN_PHONE], "dead") == []
        assert await two.registry.renew([], "b") == []
        assert sorted(found.user_id for found in gone) == ["usr_ann", "usr_ben"]
        assert [found.last_active_ms for found in gone] == [ear.presences[0].last_active_ms] * 2
        assert not any(found.is_online for found in gone)


async def test_the_last_claim_runs_out_in_its_own_time(world: World) -> None:
    """A device that closes takes along neither the lease of a lost one nor what is left of its time."""
    async with world.opened() as (one, two):
        await one.registry.connected([ANN_PHONE], "lost")
        (began,) = await one.registry.presences(["usr_ann"])

        async def is_later() -> bool:
            await two.registry.connected([ANN_LAPTOP, BEN_PHONE], "b")
            (now,) = await two.registry.presences(["usr_ben"])
            return now.last_active_ms >= began.last_active_ms + world.lease_seconds * 100

        await world.until(is_later)
        assert await two.registry.disconnected([ANN_LAPTOP], "b") == []
        gone: list[Presence] = []

        async def ann_is_gone() -> bool:
            gone.extend(await two.registry.renew([BEN_PHONE], "b"))
            return not await online(one, "usr_ann") and bool(gone)

        await world.until(ann_is_gone)
        assert gone == [Presence("usr_ann", False, began.last_active_ms)]


# Rates


async def take(engine: Ephemeral, key: str = "ann", cost: float = 1.0, name: str = "tests") -> int:
    return await engine.rates.take(name, key, cost, PER_SECOND, BURST)


async def test_an_allowance_is_shared_by_nodes(world: World) -> None:
    """What one node took is missing on the other, which says how long to wait."""
    async with world.opened() as (one, two):
        assert await take(one, cost=6) == 0
        assert await take(two, cost=6) > 0
        assert await take(two, cost=3.5) == 0
        assert 0 < await take(one, cost=2) <= 500


async def test_who_waits_is_let_through(world: World) -> None:
    """An empty bucket fills again, with time and not by being asked."""
    async with world.opened() as (one, two):
        assert await take(one, cost=BURST) == 0
        assert await take(two) > 0

        async def is_let_through() -> bool:
            return await take(two) == 0

        await world.until(is_let_through)
        assert await take(one, cost=BURST - 1) > 0


async def test_allowances_are_each_of_their_own(world: World) -> None:
    """Neither another key nor another kind of allowance is touched."""
    async with world.opened() as (one, two):
        assert await take(one, cost=BURST) == 0
        assert await take(two, key="ben", cost=BURST) == 0
        assert await take(two, name="others", cost=BURST) == 0


async def test_what_is_given_back_can_be_taken_again(world: World) -> None:
    """A cost below zero gives back, and never more than fits."""
    async with world.opened() as (one, two):
        assert await take(one, cost=BURST) == 0
        assert await take(one, cost=-BURST) == 0
        assert await take(one, cost=-BURST) == 0
        assert await take(two, cost=BURST) == 0
        assert await take(two, cost=BURST / 2) > 0


async def test_a_rush_over_two_nodes_gets_the_burst_and_no_more(world: World) -> None:
    """Hundreds who ask at once on two nodes get exactly what there is."""
    async with world.opened() as (one, two):
        rushed = [one.rates.take("rush", "ann", 1.0, 0.001, 50) for _ in range(300)]
        rushed += [two.rates.take("rush", "ann", 1.0, 0.001, 50) for _ in range(300)]
        waits_ms = await asyncio.gather(*rushed)
        assert waits_ms.count(0) == 50


async def test_what_nodes_report_is_added_up(world: World) -> None:
    """Each learns what is left of everything that all have allowed, also when that is too much already."""
    async with world.opened() as (one, two):
        used = {"ann": 6.0, "ben": 1.0}
        left = await one.rates.report("messages", used, 0.001, BURST)
        assert left == pytest.approx({"ann": 4.0, "ben": 9.0}, abs=0.1)
        left = await two.rates.report("messages", {"ann": 6.0}, 0.001, BURST)
        assert left == pytest.approx({"ann": -2.0}, abs=0.1)
        assert await one.rates.report("messages", {}, 0.001, BURST) == {}


async def test_a_report_of_many_is_answered_for_each(world: World) -> None:
    """However many keys are reported at once, each gets its own answer."""
    used = {f"usr_{number}": number / 1_000 for number in range(1_200)}
    async with world.opened() as (one, _):
        left = await one.rates.report("messages", used, 0.001, BURST)
        assert left == pytest.approx({key: BURST - cost for key, cost in used.items()}, abs=0.01)


# Signals


class Hearing:
    """What was told, in order."""

    def __init__(self, engine: Ephemeral) -> None:
        self.heard: list[Signal] = []
        self.end = engine.signals.subscribe(UserChangedSignal, self.heard.append)


async def test_a_signal_is_heard_once_on_every_node(world: World) -> None:
    """Those on the node that tells hear it before the call returns, those elsewhere soon, each once."""
    async with world.opened() as (one, two):
        here, there = Hearing(one), Hearing(two)
        first, second = UserChangedSignal("first"), UserChangedSignal("second")
        one.signals.publish(first)
        assert here.heard == [first]
        await world.until(lambda: _as_coroutine(there.heard == [first]))
        two.signals.publish(second)
        await world.until(lambda: _as_coroutine(here.heard == there.heard == [first, second]))


async def test_signals_of_a_node_come_in_order(world: World) -> None:
    """However many are told, at once or one after the other, and however long they are."""
    signals = [UserChangedSignal(f"{number} " + "x" * (number % 997)) for number in range(5_000)]
    async with world.opened() as (one, two):
        there = Hearing(two)
        for start in range(0, len(signals), 1_700):
            for signal in signals[start : start + 1_700]:
                one.signals.publish(signal)
            await asyncio.sleep(0)
        await world.until(lambda: _as_coroutine(len(there.heard) == len(signals)))
        assert there.heard == signals
        assert one.signals.dropped == 0


async def test_who_stopped_hearing_hears_nothing(world: World) -> None:
    """Ending it ends it for that listener alone, and a listener that fails harms no other."""
    async with world.opened() as (one, two):
        gone, broken = Hearing(two), two.signals.subscribe(UserChangedSignal, _fail)
        left = Hearing(two)
        gone.end()
        signal = UserChangedSignal("usr_ann")
        one.signals.publish(signal)
        two.signals.publish(signal)
        await world.until(lambda: _as_coroutine(left.heard == [signal, signal]))
        broken()
        assert gone.heard == []


async def test_a_subscriber_gets_its_kind_alone(world: World) -> None:
    """Every kind of signal arrives as it was published, and only at those who subscribed to its kind."""
    signals: list[Signal] = [
        TypingSignal("chat_a", "usr_ann", 6_000, ["usr_ben"]),
        ReceiptSignal("chat_a", "usr_ann", ReceiptKind.READ, 7, "2026-01-01T00:00:00.000Z", True),
        MuteSignal("chat_a", "usr_ann", None),
        UserChangedSignal("usr_ann"),
    ]
    async with world.opened() as (one, two):
        heard: list[Signal] = []
        changed = Hearing(two)
        two.signals.subscribe(TypingSignal, heard.append)
        two.signals.subscribe(ReceiptSignal, heard.append)
        two.signals.subscribe(MuteSignal, heard.append)
        for signal in signals:
            one.signals.publish(signal)
        await world.until(lambda: _as_coroutine((heard, changed.heard) == (signals[:3], signals[3:])))


def _fail(told: object) -> None:
    raise ZeroDivisionError(told)


async def _as_coroutine(holds: bool) -> bool:
    return holds
