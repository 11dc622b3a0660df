"""A damaged page is no outage: it is refused for good, told to the operator, and stops nobody else."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import apsw
import pytest
from structlog.testing import capture_logs

from parley.cli.doctor import damage_in
from parley.clock import wall_clock
from parley.errors import StoreDamaged
from parley.gateway.known_operators import CONFIRMED_MS_MAX
from parley.store.folder import DATABASE_NAME
from tests.harness.clients import Person
from tests.harness.damage import overwrite, pages_of, root_of
from tests.integration.gateway.serving import Place, Served, assert_refused, message

LONG = "a message that fills a good part of a page " * 8
MESSAGES = 40


class Hurt:
    """A server with a chat of many pages, and another chat."""

    def __init__(self, place: Place, served: Served, ann: Person, chat: str, other: str) -> None:
        self.place, self.served, self.ann, self.chat, self.other = place, served, ann, chat, other
        self.http = served.as_(ann)

    async def read(self, after: int, limit: int = 100) -> tuple[int, str | int]:
        """The status, and either the refusal's code or the last position of the page."""
        path = f"/v1/chats/{self.chat}/messages"
        answer = await self.http.get(path, after=after, limit=limit)
        return answer.status, answer.body.get("code") or answer.body["to_sequence"]

    async def send(self, chat: str) -> tuple[int, str]:
        answer = await self.http.post(f"/v1/chats/{chat}/messages", message("hi"))
        return answer.status, answer.body.get("code", "")

    async def is_ready(self) -> tuple[int, str]:
        answer = await self.http.get("/readyz")
        return answer.status, answer.body["status"]

    @property
    def damaged(self) -> float:
        return self.served.metric("parley_store_damaged")


@asynccontextmanager
async def serving(place: Place) -> AsyncIterator[Hurt]:
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group(title="long")
        await served.said(ann, chat, *[f"{number} {LONG}" for number in range(MESSAGES)])
        other = await served.as_(ann).create_group(title="other")
        await served.said(ann, other, "one")
        yield Hurt(place, served, ann, chat, other)


async def test_a_damaged_page_is_refused_for_good(place: Place) -> None:
    """Reads of its range are `store_damaged` and not temporary; what lies before and behind it is read."""
    async with serving(place) as hurt:
        overwrite(place.folder, pages_of(place.folder, "entries")[2])
        _, last = await hurt.read(0)
        assert isinstance(last, int)
        answer = await hurt.http.get(f"/v1/chats/{hurt.chat}/messages", after=last)
        assert_refused(answer, 500, "store_damaged")
        assert answer.body["temporary"] is False
        assert await hurt.read(MESSAGES - 5) == (200, MESSAGES)
        async with hurt.served.client(hurt.ann) as client:
            frame = await client.sync(hurt.chat, after=last)
        assert (frame["type"], frame["code"], frame["temporary"]) == ("refused", "store_damaged", False)


async def test_damage_that_reads_met_is_told_and_the_server_stays_ready(place: Place) -> None:
    """The log names the chat and the position once; the metric rises, which doctor reads; sends go on."""
    async with serving(place) as hurt:
        overwrite(place.folder, pages_of(place.folder, "entries")[2])
        before = hurt.damaged
        _, last = await hurt.read(0)
        assert isinstance(last, int)
        with capture_logs() as lines:
            for _ in range(3):
                assert await hurt.read(last) == (500, "store_damaged")
        told = [line for line in lines if line["event"] == "the store is damaged"]
        assert [(line["log_level"], line["place"]) for line in told] == [("error", hurt.chat)]
        assert f"position {last + 1}" in told[0]["problem"]
        assert "message that fills" not in repr(lines)
        assert (before, hurt.damaged) == (0, 1)
        (finding,) = damage_in(hurt.served.app.metrics.text().decode())
        assert finding.state == "wrong"
        assert await hurt.is_ready() == (200, "ready")
        assert await hurt.send(hurt.chat) == await hurt.send(hurt.other) == (201, "")


async def test_a_record_that_does_not_decode_is_damage(place: Place) -> None:
    """Not a failure of the server that a retry may mend; the log names the route, not the record."""
    async with place.serving() as served:
        root = await served.operator()
        made = await served.as_(root).post("/v1/admin/invites", {"uses": 1, "note": "for Ben"})
        assert made.status == 201
        with contextlib.closing(apsw.Connection(str(place.folder / DATABASE_NAME))) as connection:
            connection.execute("UPDATE records SET record = substr(record, 1, 9) WHERE kind = 'links'")
        with capture_logs() as lines:
            assert_refused(await served.as_(root).get("/v1/admin/invites"), 500, "store_damaged")
        (told,) = [line for line in lines if line["event"] == "the store is damaged"]
        assert told["place"] == "a record that /v1/admin/invites reads"
        assert "Ben" not in repr(lines)


async def test_the_overview_answers_while_the_store_does_not(place: Place) -> None:
    """To an operator whom the store has confirmed not long ago, with the last numbers; to nobody else."""
    past_ms = [0]
    async with place.serving(clock=lambda: wall_clock() + past_ms[0]) as served:
        root, late = await served.operator("root"), await served.operator("late")
        (ann,) = await served.people("ann")
        path = "/v1/admin/overview"
        assert (await served.as_(root).get(path)).body["store_available"] is True
        assert (await served.as_(ann).get(path)).status == 403
        overwrite(place.folder, root_of(place.folder, "entries"))
        served.sqlite.writer._give_up(apsw.CorruptError("on purpose"))
        answer = await served.as_(root).get(path)
        assert (answer.status, answer.body["store_available"], answer.body["people"]) == (200, False, 3)
        for person in (late, ann):
            assert_refused(await served.as_(person).get(path), 500, "store_damaged")
        past_ms[0] = CONFIRMED_MS_MAX
        assert_refused(await served.as_(root).get(path), 500, "store_damaged")


async def test_while_writes_meet_damage_the_server_is_not_ready(place: Place) -> None:
    """With a damaged root page each send is refused for good, and `/readyz` says why until the restart."""
    async with serving(place) as hurt:
        assert await hurt.is_ready() == (200, "ready")
        overwrite(place.folder, root_of(place.folder, "entries"))
        assert await hurt.send(hurt.chat) == await hurt.send(hurt.other) == (500, "store_damaged")
        assert await hurt.is_ready() == (503, "the store is damaged, and writes meet it")
        assert hurt.damaged > 0
        assert (await hurt.http.get("/v1/me")).status == 200
    with pytest.raises(StoreDamaged, match=r"table entries.*restore the last backup"):
        async with place.serving():
            pass
