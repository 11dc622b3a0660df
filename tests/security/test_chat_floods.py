"""One person floods others with new chats, members and titles: each is an entry and a frame to everybody."""

from collections.abc import Awaitable, Callable

import pytest

from parley.core import rates
from tests.harness.clients import Answer, Person
from tests.harness.clock import VirtualClock
from tests.integration.gateway.serving import Place, Served, assert_refused

RATES_ON = {"PARLEY_LIMITS_RATES": "on"}

Act = Callable[[], Awaitable[Answer]]


async def check_flood(act: Act, rate: rates.Rate, clock: VirtualClock) -> None:
    """A burst passes, the next is refused with when to come back, and passes then."""
    statuses = {(await act()).status for _ in range(int(rate.burst))}
    assert statuses <= {200, 201}
    refused = await act()
    assert_refused(refused, 429, "rate_limited")
    assert refused.body["retry_after_ms"] == round(1000 / rate.per_second)
    clock.advance(refused.body["retry_after_ms"])
    assert (await act()).status in (200, 201)


async def test_a_flood_of_renames_is_refused(place: Place) -> None:
    """Thirty titles a minute, not thousands a second: every one is told to every member."""
    clock = VirtualClock()
    async with place.serving(RATES_ON, clock) as served:
        (eve,) = await served.people("eve")
        chat = await served.as_(eve).create_group()
        http = served.as_(eve)
        await check_flood(
            lambda: http.patch(f"/v1/chats/{chat}", {"title": "spam"}), rates.CHAT_CHANGES_PER_USER, clock
        )


async def test_a_flood_of_read_receipt_modes_is_refused(place: Place) -> None:
    """A mode of read receipts is an entry like a title, and counts as one."""
    clock = VirtualClock()
    async with place.serving(RATES_ON, clock) as served:
        (eve,) = await served.people("eve")
        chat = await served.as_(eve).create_group()
        http = served.as_(eve)
        await check_flood(
            lambda: http.patch(f"/v1/chats/{chat}", {"read_receipts": "none"}),
            rates.CHAT_CHANGES_PER_USER,
            clock,
        )


async def test_a_flood_of_new_chats_is_refused(place: Place) -> None:
    """Sixty chats a minute and person, whatever they are called."""
    clock = VirtualClock()
    async with place.serving(RATES_ON, clock) as served:
        (eve,) = await served.people("eve")
        http = served.as_(eve)
        body = {"type": "group", "member_ids": []}
        await check_flood(lambda: http.post("/v1/chats", body), rates.NEW_CHATS_PER_USER, clock)


async def test_members_of_new_chats_count_as_member_changes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may not add so many people cannot put them into new chats instead."""
    monkeypatch.setattr("parley.gateway.shared_rates.MEMBER_CHANGES_PER_USER", rates.Rate(1 / 60, 3))
    async with place.serving(RATES_ON, VirtualClock()) as served:
        eve, ann, ben = await served.people("eve", "ann", "ben")
        await served.as_(eve).create_group(ann, ben)
        body = {"type": "group", "member_ids": [ann.user_id, ben.user_id]}
        assert_refused(await served.as_(eve).post("/v1/chats", body), 429, "rate_limited")


async def joining_and_leaving(served: Served, eve: Person) -> Act:
    host, *_ = await served.people("host")
    body = {"type": "group", "member_ids": [], "open_to_join": True}
    chat = (await served.as_(host).post("/v1/chats", body)).body["chat_id"]
    http, members = served.as_(eve), f"/v1/chats/{chat}/members"
    is_in = False

    async def act() -> Answer:
        nonlocal is_in
        path = f"{members}/{eve.user_id}"
        answer = await (
            http.request("DELETE", path) if is_in else http.post(members, {"user_id": eve.user_id})
        )
        is_in ^= answer.status in (200, 201)
        return answer

    return act


async def adding_and_removing(served: Served, eve: Person) -> Act:
    (ann,) = await served.people("ann")
    chat = await served.as_(eve).create_group()
    http, members = served.as_(eve), f"/v1/chats/{chat}/members"
    is_in = False

    async def act() -> Answer:
        nonlocal is_in
        path = f"{members}/{ann.user_id}"
        answer = await (
            http.request("DELETE", path) if is_in else http.post(members, {"user_id": ann.user_id})
        )
        is_in ^= answer.status in (200, 201)
        return answer

    return act


async def giving_roles(served: Served, eve: Person) -> Act:
    (ann,) = await served.people("ann")
    chat = await served.as_(eve).create_group(ann)
    http, path = served.as_(eve), f"/v1/chats/{chat}/members/{ann.user_id}"
    return lambda: http.patch(path, {"role": "admin"})


@pytest.mark.parametrize("flood", [joining_and_leaving, adding_and_removing, giving_roles])
async def test_a_flood_of_member_changes_is_refused(
    place: Place, flood: Callable[[Served, Person], Awaitable[Act]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Joining, leaving, adding, removing and roles are counted together, for the person who does it."""
    rate = rates.Rate(10 / 60, 10)
    clock = VirtualClock()
    async with place.serving(RATES_ON, clock) as served:
        (eve,) = await served.people("eve")
        act = await flood(served, eve)
        monkeypatch.setattr("parley.gateway.shared_rates.MEMBER_CHANGES_PER_USER", rate)
        served.app.ephemeral.rates._limiters.pop("member_changes", None)  # type: ignore[attr-defined]
        await check_flood(act, rate, clock)


async def test_the_numbers_of_a_minute() -> None:
    """60 chats, 600 changes of members and 30 titles a minute and person."""
    found = [rates.NEW_CHATS_PER_USER, rates.MEMBER_CHANGES_PER_USER, rates.CHAT_CHANGES_PER_USER]
    assert [(round(rate.per_second * 60), rate.burst) for rate in found] == [(60, 60), (600, 600), (30, 30)]


async def test_a_flood_of_one_person_slows_nobody_else(place: Place) -> None:
    """Rates are counted for each person: another member renames the same chat."""
    async with place.serving(RATES_ON, VirtualClock()) as served:
        eve, ann = await served.people("eve", "ann")
        chat = await served.as_(eve).create_group(ann)
        await served.as_(eve).patch(f"/v1/chats/{chat}/members/{ann.user_id}", {"role": "admin"})
        spam = [
            await served.as_(eve).patch(f"/v1/chats/{chat}", {"title": "spam"})
            for _ in range(int(rates.CHAT_CHANGES_PER_USER.burst) + 1)
        ]
        assert spam[-1].status == 429
        assert (await served.as_(ann).patch(f"/v1/chats/{chat}", {"title": "calm"})).status == 200
