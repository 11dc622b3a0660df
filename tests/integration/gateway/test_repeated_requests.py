"""`Idempotency-Key` on what creates something: it is done once, and answered as often as it is asked."""

import asyncio

import pytest

from parley.clock import MS_PER_DAY
from parley.core.idempotency import CLAIM_MS
from parley.errors import StoreUnavailable
from parley.gateway.api import ROUTES
from parley.gateway.repeated_requests import SHOWN_ONCE
from parley.gateway.routes import ANSWER_KEY, MESSAGE_KEY
from parley.model import AnsweredRequest
from parley.store.tables import ANSWERS, PutRecord
from tests.harness.clients import PASSWORD, Answer, Person
from tests.harness.clock import VirtualClock
from tests.integration.gateway.serving import Place, Served, assert_refused

GROUP = {"type": "group", "title": "Tea", "member_ids": []}


async def keyed(served: Served, path: str, body: object, token: str = "", key: str = "key 1") -> Answer:
    headers = {"Idempotency-Key": key} | ({"Authorization": f"Bearer {token}"} if token else {})
    async with served.session.post(served.url + path, json=body, headers=headers) as answer:
        return Answer(answer.status, await answer.json(), dict(answer.headers))


async def answers_of(served: Served) -> list[AnsweredRequest]:
    return [one async for page in served.app.store.records.scan(ANSWERS) for one in page]


async def chats_of(served: Served, person: Person) -> int:
    return len((await served.as_(person).get("/v1/chats")).body["chats"])


def test_every_request_that_creates_something_takes_a_key() -> None:
    """By its message, by its answer, or refused because its answer is shown once; no other POST does."""
    creating = [one for one in ROUTES if one.method == "POST" and {201, 202} & set(one.answers)]
    taking = {one.name: one.parameters["header"][0] for one in creating}
    secret = {one.name for one in creating if one.shows_secret}
    assert {name for name, first in taking.items() if first is MESSAGE_KEY} == {
        "send_message",
        "post_by_hook",
        "send_on_behalf",
    }
    assert {name for name, first in taking.items() if first not in (MESSAGE_KEY, ANSWER_KEY)} == secret
    assert secret == {
        "create_session",
        "create_page_session",
        "make_api_token",
        "make_user_token",
        "add_webhook",
        "make_invite",
        "offer_password_reset",
    }


async def test_a_repeated_request_gets_the_first_answer(place: Place) -> None:
    """Whatever way its JSON is written, and after a restart; nothing is created again."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        first = await keyed(served, "/v1/chats", GROUP, ann.token)
        again = await keyed(served, "/v1/chats", dict(reversed(GROUP.items())), ann.token)
        assert (first.status, again.status) == (201, 201)
        assert again.body == first.body
    async with place.serving() as served:
        assert (await keyed(served, "/v1/chats", GROUP, ann.token)).body == first.body
        assert await chats_of(served, ann) == 1


async def test_a_key_is_for_one_request_of_one_person(place: Place) -> None:
    """With another body it is refused; another person, address or key is another request."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        await keyed(served, "/v1/chats", GROUP, ann.token)
        other = await keyed(served, "/v1/chats", GROUP | {"title": "Coffee"}, ann.token)
        assert_refused(other, 409, "idempotency_conflict")
        assert (await keyed(served, "/v1/chats", GROUP, ben.token)).status == 201
        assert (await keyed(served, "/v1/contacts", {"user_id": ben.user_id}, ann.token)).status == 201
        assert (await keyed(served, "/v1/chats", GROUP, ann.token, "key 2")).status == 201
        assert (await chats_of(served, ann), await chats_of(served, ben)) == (2, 1)


async def test_of_requests_at_once_one_is_carried_out(place: Place) -> None:
    """The others wait for its answer."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        answers = await asyncio.gather(*(keyed(served, "/v1/chats", GROUP, ann.token) for _ in range(5)))
        assert {(one.status, one.body["chat_id"]) for one in answers} == {(201, answers[0].body["chat_id"])}
        assert await chats_of(served, ann) == 1


async def test_a_refused_request_uses_no_key(place: Place) -> None:
    """What was wrong may be put right under the same key."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        wrong = {"type": "group", "title": "", "member_ids": []}
        assert_refused(await keyed(served, "/v1/chats", wrong, ann.token), 400, "bad_request")
        assert (await keyed(served, "/v1/chats", GROUP, ann.token)).status == 201


async def test_a_crash_before_the_answer_is_recorded_creates_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The retry finds the chat under the id that follows from its key, once nobody can be at it any more."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        (ann,) = await served.people("ann")

        async def crash(mine: AnsweredRequest, status: int, answer: str) -> None:
            raise StoreUnavailable("gone")

        with monkeypatch.context() as patched:
            patched.setattr(served.app.answered_requests, "answered", crash)
            first = await keyed(served, "/v1/chats", GROUP, ann.token)
        clock.advance(CLAIM_MS)
        again = await keyed(served, "/v1/chats", GROUP, ann.token)
        assert (again.status, again.body["chat_id"]) == (200, first.body["chat_id"])
        assert await chats_of(served, ann) == 1


async def test_a_request_under_way_is_not_carried_out_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its claim lasts a retry waits, and is then told to come again."""
    monkeypatch.setattr("parley.gateway.repeated_requests.WAIT_SECONDS_LEFT", 10.0)
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        await keyed(served, "/v1/chats", GROUP, ann.token)
        (record,) = await answers_of(served)
        claim = AnsweredRequest(
            request_id=record.request_id,
            digest=record.digest,
            claim="another",
            made_at_ms=record.made_at_ms,
            claimed_until_ms=record.claimed_until_ms,
        )
        assert await served.app.store.records.commit(ANSWERS, [PutRecord(claim, before=record)])
        assert_refused(await keyed(served, "/v1/chats", GROUP, ann.token), 503, "outcome_unknown")
        assert await chats_of(served, ann) == 1


async def test_an_account_is_made_once(place: Place) -> None:
    """Without a session the key counts for the address; its record says nothing of the password."""
    async with place.serving() as served:
        body = {"username": "ann", "password": PASSWORD}
        first, again = [await keyed(served, "/v1/accounts", body) for _ in range(2)]
        assert (first.status, again.status) == (201, 201)
        assert first.body == again.body
        other = await keyed(served, "/v1/accounts", body | {"username": "b"})
        assert_refused(other, 409, "idempotency_conflict")
        guess = await keyed(served, "/v1/accounts", body | {"password": "another long password"})
        assert guess.body == first.body


async def test_a_secret_is_not_kept_for_a_retry(place: Place) -> None:
    """Where the answer is shown once a key is refused, and nothing is created."""
    async with place.serving() as served:
        root = await served.operator()
        body = {"name": "ci", "scopes": ["send"]}
        refused = await keyed(served, "/v1/admin/tokens", body, root.token)
        assert (refused.status, refused.body["reason"]) == (400, SHOWN_ONCE.reason)
        assert (await served.as_(root).get("/v1/admin/tokens")).body["tokens"] == []


async def test_an_answer_is_forgotten_after_a_week_and_with_its_person(place: Place) -> None:
    """The key may be used again then."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        for person in (ann, ben):
            await keyed(served, "/v1/chats", GROUP, person.token)
        await served.as_(root).delete(f"/v1/admin/users/{ben.user_id}")
        await served.app.deletions.look()
        (left,) = await answers_of(served)
        assert left.user_id == ann.user_id
        clock.advance(7 * MS_PER_DAY)
        assert (await keyed(served, "/v1/chats", GROUP, ann.token)).status == 201
        assert await chats_of(served, ann) == 2
        clock.advance(7 * MS_PER_DAY)
        await served.app.answered_requests.expire()
        assert await answers_of(served) == []


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b'{"x":' * 50_000, b"1e999"])
async def test_a_hostile_body_with_a_key_is_refused(place: Place, body: bytes) -> None:
    """As without one; its key stays free."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        headers = {
            "Idempotency-Key": "key 1",
            "Authorization": f"Bearer {ann.token}",
            "Content-Type": "application/json",
        }
        async with served.session.post(f"{served.url}/v1/chats", data=body, headers=headers) as answer:
            assert (answer.status, (await answer.json())["code"]) == (400, "bad_request")
        assert (await keyed(served, "/v1/chats", GROUP, ann.token)).status == 201
