"""Passwords that attackers try first are refused where anybody may try."""

import pytest

from tests.integration.gateway.serving import Place, assert_refused

OPEN = {"PARLEY_ACCOUNTS_REGISTRATION": "open"}


@pytest.mark.parametrize(
    "password", ["password", "Passw0rd!", "12345678", "qwertyuiop", "parley2026", "annabel1"]
)
async def test_a_common_password_cannot_be_registered(place: Place, password: str) -> None:
    """Where registration is open it is refused, with a reason that says why."""
    async with place.serving(OPEN) as served:
        refused = await served.http.post("/v1/accounts", {"username": "annabel", "password": password})
        assert_refused(refused, 400, "bad_request")
        assert "choose another" in refused.body["reason"]


async def test_nobody_changes_to_a_common_password(place: Place) -> None:
    """The same holds for a change, and for what an operator sets."""
    async with place.serving(OPEN) as served:
        root, ann = await served.operator(), (await served.people("ann"))[0]
        change = {"old_password": "correct horse battery", "new_password": "password1"}
        assert_refused(await served.as_(ann).post("/v1/me/password", change), 400, "bad_request")
        reset = f"/v1/admin/users/{ann.user_id}/password"
        assert_refused(await served.as_(root).post(reset, {"password": "password1"}), 400, "bad_request")


async def test_a_private_server_takes_any_password(place: Place) -> None:
    """On one's own machine nobody else guesses."""
    async with place.serving() as served:
        answer = await served.http.post("/v1/accounts", {"username": "ann", "password": "password"})
        assert answer.status == 201
