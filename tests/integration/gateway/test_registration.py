"""Who is connected is registered before the log is read for them, and is not once they have gone."""

import pytest

from parley.gateway.hub import Hub
from parley.gateway.subscribers import Subscriber
from tests.integration.gateway.bare import BareSocket
from tests.integration.gateway.serving import Place, Served
from tests.waiting import eventually


async def whereabouts(served: Served, user_id: str) -> dict[str, str]:
    registry = served.app.ephemeral.registry
    return (await registry.whereabouts([user_id])).get(user_id, {})


async def test_a_connection_is_registered_for_as_long_as_it_lasts(place: Place) -> None:
    """Each device of a person is found here while it is connected, and is not afterwards."""
    async with place.serving() as served:
        ann, _ = await served.people("ann", "ben")

        async def is_here() -> bool:
            return await whereabouts(served, ann.user_id) == {"phone": served.app.devices.node_id}

        async def is_gone() -> bool:
            return await whereabouts(served, ann.user_id) == {}

        async with served.client(ann):
            await eventually(is_here)
            async with served.client(ann):
                await eventually(is_here)
            assert await is_here()
        await eventually(is_gone)


async def test_who_is_refused_is_not_registered(place: Place) -> None:
    """A hello with a token that is not valid makes nobody present."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        bare = BareSocket(served.port)
        await bare.open()
        bare.send([{"type": "hello", "token": "nonsense", "device_id": "phone"}])
        assert (await bare.until_closed())[1] == 4101
        presences = await served.app.ephemeral.registry.presences([ann.user_id])
        assert [presence.is_online for presence in presences] == [False]
        bare.close()


async def test_registration_comes_before_the_log_is_read(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks for the person from then on finds them, so no message falls between."""
    found: list[dict[str, str]] = []
    subscribe = Hub.subscribe

    async def look_first(hub: Hub, subscriber: Subscriber) -> None:
        await eventually(lambda: is_found(subscriber.user_id))
        await subscribe(hub, subscriber)

    async def is_found(user_id: str) -> bool:
        found.append(await whereabouts(served, user_id))
        return bool(found[-1])

    monkeypatch.setattr(Hub, "subscribe", look_first)
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        async with served.client(ann):
            assert found[-1] == {"phone": served.app.devices.node_id}
