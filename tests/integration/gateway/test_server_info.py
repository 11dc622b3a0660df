"""What a server tells anybody who is not logged in: enough for a page where people sign in."""

from collections.abc import Mapping

import pytest

from parley import __version__
from parley.wire.limits import WELCOME_LIMITS
from tests.integration.gateway.serving import Place

EXPOSED = {"PARLEY_SERVER_HOSTS": "127.0.0.1"}


async def test_anybody_may_know_what_a_server_is(place: Place) -> None:
    """Its name, its version, what it can do and its limits, without a token."""
    async with place.serving({"PARLEY_SERVER_NAME": "Tea room"}) as served:
        answer = await served.http.get("/v1/server")
        assert answer.status == 200
        assert (answer.body["name"], answer.body["version"]) == ("Tea room", __version__)
        assert answer.body["limits"] == WELCOME_LIMITS
        (ann,) = await served.people("ann")
        key = (await served.as_(ann).get("/v1/push/vapid")).body["public_key"]
        assert answer.body["vapid_key"] == key
        assert answer.body["features"] == {
            "search": True,
            "push": True,
            "web_push": True,
            "attachments": True,
            "previews": True,
            "jwt": False,
            "console": True,
        }


@pytest.mark.parametrize(
    ("settings", "registration", "length"),
    [
        ({}, "open", 1),
        (EXPOSED, "invite", 8),
        (EXPOSED | {"PARLEY_ACCOUNTS_REGISTRATION": "open"}, "open", 8),
        ({"PARLEY_ACCOUNTS_REGISTRATION": "invite"}, "invite", 1),
        ({"PARLEY_ACCOUNTS_REGISTRATION": "closed"}, "closed", 1),
        ({"PARLEY_ACCOUNTS_PASSWORD_LETTERS_MIN": "12"}, "open", 12),
    ],
)
async def test_a_page_knows_whether_to_offer_an_account(
    place: Place, settings: Mapping[str, str], registration: str, length: int
) -> None:
    """What it says is what a registration then meets."""
    async with place.serving(settings) as served:
        told = (await served.http.get("/v1/server")).body
        assert (told["registration"], told["password_length_min"]) == (registration, length)
        body = {"username": "ann", "password": "kettle drum"[:length].ljust(length, "s")}
        answer = await served.http.post("/v1/accounts", body)
        assert answer.status == (201 if registration == "open" else 403)


async def test_a_server_says_what_it_does_not_do(place: Place) -> None:
    """A page offers no search, no console and no ringing where there is none."""
    settings = {
        "PARLEY_SEARCH_ENABLED": "false",
        "PARLEY_CONSOLE_ENABLED": "false",
        "PARLEY_CLUSTER_ROLES": "gateway,ingest,delivery",
    }
    async with place.serving(settings) as served:
        features = (await served.http.get("/v1/server")).body["features"]
        assert not features["search"]
        assert not features["console"]
