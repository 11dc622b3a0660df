"""The port by which entries are routed: who hears what, under which tenure, and how a node finds out."""

import pytest

from tests.contracts.ephemeral_engines import WORLDS, World


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> World:
    return WORLDS[request.param]()


async def test_what_is_registered_is_found_by_every_node(world: World) -> None:
    """A lookup that begins after a registration returned finds it; subjects of nobody have nobody."""
    async with world.opened() as (one, two):
        assert await one.interests.begin("n1.a")
        assert await two.interests.begin("n2.b")
        assert await one.interests.register("n1.a", ["chat_1", "user_1"]) == ["chat_1", "user_1"]
        assert await two.interests.register("n2.b", ["chat_1"]) == ["chat_1"]
        found = await two.interests.tenures(["chat_1", "user_1", "chat_2"])
        assert found is not None
        assert {subject: sorted(held) for subject, held in found.items()} == {
            "chat_1": ["n1.a", "n2.b"],
            "user_1": ["n1.a"],
            "chat_2": [],
        }


async def test_a_registration_tells_what_is_new(world: World) -> None:
    """Registered again, a subject is not new: so a node notices when one was lost."""
    async with world.opened() as (one, _):
        await one.interests.begin("n1.a")
        await one.interests.register("n1.a", ["chat_1", "chat_2"])
        assert await one.interests.register("n1.a", ["chat_1", "chat_2", "chat_3"]) == ["chat_3"]
        await one.interests.release("n1.a", ["chat_1"])
        assert await one.interests.register("n1.a", ["chat_1", "chat_2"]) == ["chat_1"]


async def test_what_is_released_is_not_found(world: World) -> None:
    """A release takes one tenure's interest in what it names, and no other."""
    async with world.opened() as (one, two):
        for engine, tenure in ((one, "n1.a"), (two, "n2.b")):
            await engine.interests.begin(tenure)
            await engine.interests.register(tenure, ["chat_1", "chat_2"])
        await one.interests.release("n1.a", ["chat_1"])
        found = await two.interests.tenures(["chat_1", "chat_2"])
        assert found is not None
        assert (found["chat_1"], sorted(found["chat_2"])) == (["n2.b"], ["n1.a", "n2.b"])


async def test_nothing_is_registered_under_a_tenure_that_never_began(world: World) -> None:
    """Without a lease nobody would notice that what was registered is lost."""
    async with world.opened() as (one, two):
        assert await one.interests.register("n1.a", ["chat_1"]) is None
        assert await one.interests.renew("n1.a") is False
        assert await two.interests.tenures(["chat_1"]) == {"chat_1": []}


async def test_a_tenure_that_nobody_renews_runs_out(world: World) -> None:
    """Its subjects are not found, it cannot be renewed, and another one begins with nothing."""
    async with world.opened() as (one, two):
        await one.interests.begin("n1.a")
        await one.interests.register("n1.a", ["chat_1"])
        await two.interests.begin("n2.b")
        await two.interests.register("n2.b", ["chat_1"])

        async def only_the_other_is_found() -> bool:
            assert await two.interests.renew("n2.b") is True
            found = await two.interests.tenures(["chat_1"])
            assert found is not None
            assert "n2.b" in found["chat_1"]
            return found["chat_1"] == ["n2.b"]

        await world.until(only_the_other_is_found)
        assert await one.interests.renew("n1.a") is False
        assert await one.interests.register("n1.a", ["chat_2"]) is None
        await one.interests.begin("n1.c")
        assert await one.interests.register("n1.c", ["chat_1"]) == ["chat_1"]


async def test_a_renewed_tenure_lasts(world: World) -> None:
    """As long as it is renewed in time, everything under it is found."""
    async with world.opened() as (one, two):
        await one.interests.begin("n1.a")
        await one.interests.register("n1.a", ["chat_1"])
        await two.interests.begin("unrenewed")
        await two.interests.register("unrenewed", ["chat_2"])

        async def the_other_has_run_out() -> bool:
            assert await one.interests.renew("n1.a") is True
            return await two.interests.tenures(["chat_2"]) == {"chat_2": []}

        await world.until(the_other_has_run_out)
        assert await two.interests.tenures(["chat_1"]) == {"chat_1": ["n1.a"]}


@pytest.mark.parametrize("ended", ["n1.a", ""])
async def test_a_tenure_that_another_node_ends_is_over(world: World, ended: str) -> None:
    """Its node finds out with its next renewal, and registers nothing under it any more."""
    async with world.opened() as (one, two):
        await one.interests.begin("n1.a")
        await one.interests.register("n1.a", ["chat_1"])
        assert await two.interests.end(ended) is True
        assert await two.interests.tenures(["chat_1"]) == {"chat_1": []}
        assert await one.interests.register("n1.a", ["chat_1"]) is None
        assert await one.interests.renew("n1.a") is False


async def test_one_tenure_ends_alone(world: World) -> None:
    """Those of other nodes last."""
    async with world.opened() as (one, two):
        await one.interests.begin("n1.a")
        await two.interests.begin("n2.b")
        await one.interests.end("n1.a")
        assert await two.interests.renew("n2.b") is True


async def test_a_suspicion_is_heard_and_passes(world: World) -> None:
    """What one node suspects every node knows, for as long as it said."""
    async with world.opened() as (one, two):
        assert not await two.interests.is_suspected()
        await one.interests.suspect(world.lease_seconds / 2)
        assert await two.interests.is_suspected()

        async def it_has_passed() -> bool:
            return not await two.interests.is_suspected()

        await world.until(it_has_passed)


async def test_many_subjects_are_registered_and_found(world: World) -> None:
    """More than fit into one call."""
    async with world.opened() as (one, two):
        await one.interests.begin("n1.a")
        subjects = [f"chat_{number}" for number in range(1_201)]
        assert await one.interests.register("n1.a", subjects) == subjects
        assert await two.interests.tenures(subjects) == {subject: ["n1.a"] for subject in subjects}
