"""A signed address to upload to ends with the right to upload of the one who asked for it."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from msgspec.structs import replace

from parley.accounts.api_tokens import SCOPES_DEFAULT
from parley.clock import MS_PER_DAY
from parley.files.signing import Grant, Right
from parley.model import Scope
from parley.records.attachments import Attachments
from tests.harness.clients import Person
from tests.harness.clock import VirtualClock
from tests.integration.gateway.serving import Place, Served, assert_refused
from tests.integration.gateway.uploading import PART, Sharing, shrink_parts, some_bytes
from tests.waiting import eventually

DATA = some_bytes(2 * PART)
FIRST = {"Content-Range": f"bytes 0-{PART - 1}/{len(DATA)}"}
REST = {"Content-Range": f"bytes {PART}-{len(DATA) - 1}/{len(DATA)}"}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_parts(monkeypatch)


async def leave(served: Served, ann: Person, chat: str) -> None:
    assert (await served.as_(ann).delete(f"/v1/chats/{chat}/members/{ann.user_id}")).status < 300


async def log_out(served: Served, ann: Person, chat: str) -> None:
    sessions = await served.app.accounts.sessions(ann.user_id)
    await served.app.accounts.end_sessions(ann.user_id, [session.session_id for session in sessions])


async def disable(served: Served, ann: Person, chat: str) -> None:
    root = await served.operator()
    assert (await served.as_(root).post(f"/v1/admin/users/{ann.user_id}/disable", None)).status == 200


End = Callable[[Served, Person, str], Awaitable[None]]


@pytest.mark.parametrize("end", [leave, log_out, disable])
async def test_an_address_ends_with_the_right(place: Place, end: End) -> None:
    """When its person leaves the chat, when their session ends, and when they are disabled."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ben).create_group(ann)
        url = (await Sharing(served, ann, chat).announce(DATA)).body["upload_url"]
        sharing = Sharing(served, ben, chat)
        assert (await sharing.put(url, DATA[:PART], **FIRST)).status == 200
        await end(served, ann, chat)
        assert_refused(await sharing.put(url, DATA[PART:], **REST), 404, "not_found")
        assert_refused(
            await sharing.put(url, b"", **{"Content-Range": f"bytes */{len(DATA)}"}), 404, "not_found"
        )
        assert_refused(await served.http.get(url), 404, "not_found")


async def test_a_body_under_way_ends_with_the_right(place: Place) -> None:
    """What comes after is not stored."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ben).create_group(ann)
        url = (await Sharing(served, ann, chat).announce(DATA)).body["upload_url"]

        async def is_begun() -> bool:
            return bool((await served.http.get(url)).body["received"] == PART)

        async def chunks() -> AsyncIterator[bytes]:
            yield DATA[:PART]
            await eventually(is_begun)
            await log_out(served, ann, chat)
            yield DATA[PART:]

        async with served.session.put(served.url + url, data=chunks()) as response:
            assert (response.status, (await response.json())["code"]) == (404, "not_found")


async def test_an_address_of_a_program_ends_with_its_token(place: Place) -> None:
    """When the token is revoked, and when its time is over."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        tokens = served.app.identities.api_tokens
        for end in ("revoked", "expired"):
            token, kept = await tokens.make(ann.user_id, "bot", SCOPES_DEFAULT, chat, expires_in_days=1)
            sharing = Sharing(served, replace(ann, token=token), chat)
            url = (await sharing.announce(DATA)).body["upload_url"]
            assert (await sharing.put(url, DATA[:PART], **FIRST)).status == 200
            if end == "revoked":
                await tokens.revoke(kept.token_id)
            else:
                clock.advance(MS_PER_DAY)
            assert_refused(await sharing.put(url, DATA[PART:], **REST), 404, "not_found")


async def test_a_token_that_only_reads_gets_no_address(place: Place) -> None:
    """It hears of the upload of its person, and not where to go on with it."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        announced = (await Sharing(served, ann, chat).announce(DATA)).body
        token, _ = await served.app.identities.api_tokens.make(ann.user_id, "reader", [Scope.READ])
        found = await Sharing(served, replace(ann, token=token), chat).find(announced["attachment_id"])
        assert found.body == {"attachment_id": announced["attachment_id"], "status": "uploading"}
        assert "upload" in (await Sharing(served, ann, chat).find(announced["attachment_id"])).body


@pytest.mark.parametrize("end", [leave, disable])
async def test_an_address_of_an_earlier_version_is_good(place: Place, end: End) -> None:
    """It names no session; its person must still be a member, and not disabled."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ben).create_group(ann)
        announced = (await Sharing(served, ann, chat).announce(DATA)).body
        file = await Attachments(served.app.store.records, served.app.clock).get(
            chat, announced["attachment_id"]
        )
        assert file is not None
        assert served.app.files is not None
        signer = served.app.files.downloads._signer
        grant = Grant(
            Right.UPLOAD, chat, file.attachment_id, file.size, file.content_type, file.upload_until_ms
        )
        url = f"/v1/uploads/{await signer.token(grant)}"
        sharing = Sharing(served, ben, chat)
        assert (await sharing.put(url, DATA[:PART], **FIRST)).status == 200
        await end(served, ann, chat)
        assert_refused(await sharing.put(url, DATA[PART:], **REST), 404, "not_found")
