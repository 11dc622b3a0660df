"""How many connections one user or one address may have at the same time."""

from tests.harness.clients import Answer
from tests.integration.gateway.bare import BareSocket
from tests.integration.gateway.serving import Place, assert_refused
from tests.integration.gateway.test_limits import RATES_ON
from tests.waiting import eventually

FEW = {**RATES_ON, "PARLEY_LIMITS_CONNECTIONS_PER_USER": "3", "PARLEY_LIMITS_CONNECTIONS_PER_ADDRESS": "5"}


async def test_a_user_with_too_many_sockets_is_refused_another(place: Place) -> None:
    """The fourth is told so and closed with 4104; when another one has ended, there is room again."""
    async with place.serving(FEW) as served:
        (ann,) = await served.people("ann")
        sockets = [BareSocket(served.port) for _ in range(5)]
        for bare in sockets[:3]:
            await bare.open()
            assert (await bare.hello(ann))["type"] == "welcome"
        await sockets[3].open()
        assert (await sockets[3].hello(ann))["code"] == "too_many_connections"
        assert await sockets[3].until_closed() == ([], 4104)
        sockets[0].close()
        await eventually(lambda: len(served.app.gateway.connections) == 2)
        await sockets[4].open()
        assert (await sockets[4].hello(ann))["type"] == "welcome"
        for bare in sockets:
            bare.close()


async def test_an_address_with_too_many_sockets_is_refused_another(place: Place) -> None:
    """The sixth upgrade is answered 429; another address still gets in."""
    async with place.serving(FEW) as served:
        sockets = [BareSocket(served.port) for _ in range(6)]
        for bare in sockets[:5]:
            await bare.open(**{"X-Forwarded-For": "203.0.113.1"})
        async with served.session.get(
            f"{served.url}/v1/ws", headers={"X-Forwarded-For": "203.0.113.1"}
        ) as answer:
            refused = Answer(answer.status, await answer.json(), dict(answer.headers))
        await sockets[5].open(**{"X-Forwarded-For": "203.0.113.2"})
        for bare in sockets:
            bare.close()
    assert_refused(refused, 429, "too_many_connections")


async def test_sockets_of_a_private_server_are_not_counted(place: Place) -> None:
    """Where rates are off, one user and one address may have as many as they like."""
    async with place.serving({**FEW, "PARLEY_LIMITS_RATES": "auto"}) as served:
        (ann,) = await served.people("ann")
        sockets = [BareSocket(served.port) for _ in range(7)]
        for bare in sockets:
            await bare.open()
            assert (await bare.hello(ann))["type"] == "welcome"
        for bare in sockets:
            bare.close()
