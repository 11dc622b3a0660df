"""Uploads that are begun and never end: they hold few places, and not for long."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from parley.core import upload_slots
from tests.integration.gateway.serving import Place, Served, assert_refused
from tests.integration.gateway.uploading import PART, Sharing, shrink_parts, some_bytes
from tests.waiting import eventually

DATA = some_bytes(2 * PART + 500)
AT_ONCE, OF_A_PERSON = 4, 2


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_parts(monkeypatch)
    monkeypatch.setattr(upload_slots, "UPLOADS_AT_ONCE_MAX", AT_ONCE)
    monkeypatch.setattr(upload_slots, "UPLOADS_PER_PERSON_MAX", OF_A_PERSON)


class Dripping:
    """Uploads that send a part and a little more, and then nothing."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self.answers: list[asyncio.Task[tuple[int, str]]] = []

    async def begin(self, sharing: Sharing) -> str:
        """The address, once a part is stored."""
        url = str((await sharing.announce(DATA)).body["upload_url"])
        self.answers.append(asyncio.ensure_future(self._put(url)))

        async def is_begun() -> bool:
            return bool((await self._served.http.get(url)).body["received"] == PART)

        await eventually(is_begun)
        return url

    async def _put(self, url: str) -> tuple[int, str]:
        async def chunks() -> AsyncIterator[bytes]:
            yield DATA[: PART + 10]
            await asyncio.Event().wait()

        async with self._served.session.put(self._served.url + url, data=chunks()) as response:
            return response.status, (await response.json())["code"]


async def sharing(served: Served, *names: str) -> list[Sharing]:
    return [
        Sharing(served, person, await served.as_(person).create_group())
        for person in await served.people(*names)
    ]


async def test_who_holds_all_places_gives_one_to_others(place: Place) -> None:
    """Two people hold every place with uploads that never end: a third uploads at once."""
    async with place.serving() as served:
        ann, ben, eve = await sharing(served, "ann", "ben", "eve")
        dripping = Dripping(served)
        for _ in range(OF_A_PERSON):
            await dripping.begin(ann)
            await dripping.begin(ben)
        assert_refused(await ann.put((await ann.announce(DATA)).body["upload_url"], DATA), 503, "busy")
        assert (await eve.upload(DATA))["size"] == len(DATA)
        ended = [answer for answer in dripping.answers if answer.done()]
        assert [answer.result() for answer in ended] == [(503, "busy")]
        for answer in dripping.answers:
            answer.cancel()


async def test_an_upload_that_is_too_slow_ends(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As temporary; whole parts stay, and it goes on from there."""
    async with place.serving() as served:
        (ann,) = await sharing(served, "ann")
        dripping = Dripping(served)
        monkeypatch.setattr(upload_slots, "UPLOAD_GRACE_SECONDS", 0.0)
        url = await dripping.begin(ann)
        assert await dripping.answers[0] == (408, "request_timeout")
        monkeypatch.undo()
        shrink_parts(monkeypatch)
        rest = {"Content-Range": f"bytes {PART}-{len(DATA) - 1}/{len(DATA)}"}
        assert (await ann.put(url, DATA[PART:], **rest)).status == 201
