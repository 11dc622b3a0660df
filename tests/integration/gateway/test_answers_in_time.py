"""A store that hangs leaves no request without an answer. Budgets are short while it does."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from parley.gateway import connection, server
from parley.model import AppendResult, Draft
from parley.sending import answers
from parley.wire import codes
from tests.harness.clients import Frame, Person
from tests.integration.gateway.serving import Place, Served, assert_refused, message

SOON_SECONDS = 0.1
LATE_SECONDS = 60.0
BUDGETS = (
    (answers, "SEND_SECONDS_MAX"),
    (connection, "REQUEST_SECONDS_MAX"),
    (connection, "BARRIER_SECONDS_MAX"),
    (server, "REQUEST_SECONDS_MAX"),
)


class Hanging:
    """Stands in for a method of a store: whoever calls it waits until it goes on, then it is done.

    `patient`: budgets that are long all the same.
    """

    def __init__(self, patch: pytest.MonkeyPatch, port: object, method: str, *patient: str) -> None:
        self._patch = patch
        self._real = getattr(port, method)
        self._goes_on = asyncio.Event()
        self._patient = patient
        self._set_budgets(SOON_SECONDS)
        patch.setattr(port, method, self)

    async def __call__(self, *arguments: Any, **options: Any) -> Any:
        await self._goes_on.wait()
        return await self._real(*arguments, **options)

    def go_on(self) -> None:
        self._set_budgets(LATE_SECONDS)
        self._goes_on.set()

    def _set_budgets(self, seconds: float) -> None:
        for module, name in BUDGETS:
            self._patch.setattr(module, name, LATE_SECONDS if name in self._patient else seconds)


@pytest.fixture(autouse=True)
def long_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test machine may be slow: only what hangs is given up."""
    for module, name in BUDGETS:
        monkeypatch.setattr(module, name, LATE_SECONDS)


async def chatting(served: Served) -> tuple[Person, Person, str]:
    ann, ben = await served.people("ann", "ben")
    return ann, ben, await served.as_(ann).create_group(ben)


async def test_a_heartbeat_does_not_wait_behind_sends(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a send hangs in the store, the heartbeat behind it is answered, and then the send is too."""
    async with place.serving() as served:
        ann, _, chat = await chatting(served)
        patient = "SEND_SECONDS_MAX", "REQUEST_SECONDS_MAX"
        append = Hanging(monkeypatch, served.app.store.log, "append", *patient)
        async with served.client(ann) as client:
            sent = await client.post_message(chat, "slow")
            assert (await client.heartbeat())["type"] == "heartbeat_ack"
            assert not sent.done()
            append.go_on()
            assert (await client.answered(sent))["type"] == "ack"


async def test_a_heartbeat_says_that_the_sends_before_it_are_answered(place: Place) -> None:
    """As long as the store answers in time, the acks come first: only slow sends are not waited for."""
    async with place.serving() as served:
        ann, _, chat = await chatting(served)
        async with served.client(ann) as client:
            sent = [await client.post_message(chat, f"{n}") for n in range(20)]
            await client.heartbeat()
            assert all(answer.done() for answer in sent)


async def test_a_send_into_a_store_that_hangs_is_answered(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its outcome is unknown, and nobody hears of it twice when the store goes on."""
    async with place.serving() as served:
        ann, _, chat = await chatting(served)
        async with served.client(ann) as client:
            append = Hanging(monkeypatch, served.app.store.log, "append")
            refused = await client.request("send_message", chat_id=chat, **message("slow"))
            assert (refused["type"], refused["code"]) == ("refused", "outcome_unknown")
            append.go_on()
            assert (await client.live_entry(chat, 1))["content"] == "slow"
            assert client.heard("ack") == []


@pytest.mark.parametrize("kind", ["heartbeat", "sync_overview"])
async def test_a_request_is_refused_in_time(place: Place, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """What cannot be read in time is refused as temporary, and works when the store does."""
    async with place.serving() as served:
        ann, _, _ = await chatting(served)
        async with served.client(ann) as client:
            port, method = {
                "heartbeat": (served.app.kinds.sessions, "by_token"),
                "sync_overview": (served.app.store.overviews, "changed"),
            }[kind]
            reads = Hanging(monkeypatch, port, method)
            refused = await client.request(kind)
            assert (refused["code"], refused["temporary"]) == ("store_unavailable", True)
            reads.go_on()
            assert (await client.request(kind))["type"] in ("heartbeat_ack", "overview")


async def test_a_request_behind_a_send_that_hangs_is_answered_in_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the send no longer than for anything else."""
    async with place.serving() as served:
        ann, _, chat = await chatting(served)
        async with served.client(ann) as client:
            append = Hanging(monkeypatch, served.app.store.log, "append", "SEND_SECONDS_MAX")
            sent = await client.post_message(chat, "slow")
            assert (await client.sync(chat))["code"] == "store_unavailable"
            append.go_on()
            assert (await client.answered(sent))["type"] == "ack"


async def test_a_hello_is_refused_in_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a verdict on the token the connection ends with a code that says to come again."""
    async with place.serving() as served:
        ann, _, _ = await chatting(served)
        Hanging(monkeypatch, served.app.kinds.sessions, "by_token")
        client = served.client(ann)
        await client.open()
        refused = await client.request("hello", token=ann.token, device_id=ann.device_id)
        assert refused["code"] == "store_unavailable"
        assert (await client.until_ended()).code == codes.INTERNAL.code
        await client.close()


async def test_a_read_over_http_is_refused_in_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As temporary, for nothing was changed by it."""
    async with place.serving() as served:
        ann, _, _ = await chatting(served)
        Hanging(monkeypatch, served.app.store.overviews, "changed")
        assert_refused(await served.as_(ann).get("/v1/chats"), 503, "store_unavailable")


async def test_a_write_over_http_that_takes_too_long_is_unknown_and_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what becomes of it, and it is not cut off in the middle."""
    async with place.serving() as served:
        ann, ben, _ = await chatting(served)
        async with served.client(ben) as client:
            create = Hanging(monkeypatch, served.app.store.directory, "create_chat")
            body = {"type": "group", "title": "late", "member_ids": [ben.user_id]}
            assert_refused(await served.as_(ann).post("/v1/chats", body), 503, "outcome_unknown")
            create.go_on()
            assert (await client.hear("chat_changed"))["change"] == "joined"


class Frames:
    """What one connection receives, by type."""

    def __init__(self) -> None:
        self.received_types: list[str] = []

    def sent(self, frame: Frame) -> None:
        """Nobody asks."""

    def received(self, frame: Frame) -> None:
        self.received_types.append(frame["type"])


async def test_the_log_does_not_show_an_entry_before_its_ack(
    either: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has written and answers late: what the hub reads meanwhile waits for the sender's ack."""
    async with either.serving() as served:
        ann, _, chat = await chatting(served)
        log, hub, frames = served.app.store.log, served.app.hub, Frames()
        stored, answers, asked = asyncio.Event(), asyncio.Event(), asyncio.Event()
        pending = served.app.pending
        append, after_answers = log.append, pending.after_answers

        async def append_late(drafts: Sequence[Draft]) -> AppendResult:
            result = await append(drafts)
            stored.set()
            await answers.wait()
            return result

        def asked_after_answers(chat_id: str, through: int, deliver: Callable[[], None]) -> None:
            asked.set()
            after_answers(chat_id, through, deliver)

        async with served.client(ann, observer=frames) as client:
            monkeypatch.setattr(log, "append", append_late)
            monkeypatch.setattr(pending, "after_answers", asked_after_answers)
            sent = await client.post_message(chat, "mine")
            await stored.wait()
            await hub.check_heads()
            await asked.wait()
            answers.set()
            await client.answered(sent)
            await client.live_entry(chat, 1)
            assert frames.received_types[-2:] == ["ack", "messages"]
