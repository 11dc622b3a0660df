"""Sending and reading messages over HTTP."""

import asyncio

import pytest

from parley.wire.limits import MESSAGE_BYTES_MAX
from tests.harness.clients import Frame
from tests.integration.gateway.serving import Place, Served, assert_refused, message, new_id

SEQUENCE_MAX = 2**53 - 1


async def test_a_send_is_201_and_its_retry_200(either: Place) -> None:
    """A new message is created, a retry is answered with the original."""
    async with either.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        body = message("hello")
        first, again = [await served.as_(ann).post(f"/v1/chats/{chat}/messages", body) for _ in range(2)]
        assert (first.status, again.status) == (201, 200)
        assert again.body == {**first.body, "deduplicated": True}
        assert first.body["message_id"].startswith("msg_")
        assert {
            k: first.body[k] for k in ("chat_id", "client_message_id", "sequence", "epoch", "conflict")
        } == {
            "chat_id": chat,
            "client_message_id": body["client_message_id"],
            "sequence": 1,
            "epoch": 1,
            "conflict": False,
        }


async def test_a_retry_with_other_content_says_conflict(place: Place) -> None:
    """The original is kept."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        client_id = new_id()
        await served.as_(ann).post(f"/v1/chats/{chat}/messages", message("one", client_id))
        again = await served.as_(ann).post(f"/v1/chats/{chat}/messages", message("two", client_id.upper()))
        assert (again.status, again.body["conflict"]) == (200, True)
        assert again.body["client_message_id"] == client_id.upper()
        assert [entry["content"] for entry in await read(served, ann.token, chat)] == ["one"]


async def test_a_taken_id_is_409(place: Place) -> None:
    """Another member's id is refused without telling what is stored."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        body = message("secret")
        await served.as_(ann).post(f"/v1/chats/{chat}/messages", body)
        answer = await served.as_(ben).post(f"/v1/chats/{chat}/messages", body)
        assert_refused(answer, 409, "duplicate_id")
        assert "secret" not in str(answer.body)


async def test_out_of_turn_is_409_and_temporary(place: Place) -> None:
    """A message whose predecessor is not stored may be sent again later."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        body = message("second", after_client_message_id=new_id())
        answer = await served.as_(ann).post(f"/v1/chats/{chat}/messages", body)
        assert_refused(answer, 409, "out_of_turn")
        assert answer.body["temporary"] is True


WRONG_MESSAGES = [
    {},
    {"client_message_id": "not-a-uuid", "content": "x"},
    {"client_message_id": "00000000-0000-1000-8000-000000000000", "content": "x"},
    {"client_message_id": "00000000-0000-4000-8000-000000000000"},
    {"client_message_id": "00000000-0000-4000-8000-000000000000", "content": 5},
    {"client_message_id": "00000000-0000-4000-8000-000000000000", "content": "x", "content_type": "text"},
    {"client_message_id": "00000000-0000-4000-8000-000000000000", "content": "x", "display_time": "soon"},
    {
        "client_message_id": "00000000-0000-4000-8000-000000000000",
        "content": "x",
        "after_client_message_id": "y",
    },
    "text",
    [],
    True,
]


async def test_a_wrong_message_is_400(place: Place) -> None:
    """What is no message is refused, and nothing is stored."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        for body in WRONG_MESSAGES:
            assert_refused(await served.as_(ann).post(f"/v1/chats/{chat}/messages", body), 400, "bad_request")
        assert await read(served, ann.token, chat) == []


async def test_times_pass_with_and_without_milliseconds(place: Place) -> None:
    """A display time is kept as it was sent."""
    times = ["2026-01-01T10:00:00Z", "2026-01-01T10:00:00.123Z", "2026-01-01T10:00:00+02:00"]
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        for time in times:
            await served.as_(ann).post(f"/v1/chats/{chat}/messages", message("x", display_time=time))
        assert [entry["display_time"] for entry in await read(served, ann.token, chat)] == times


async def test_a_message_may_have_64_kib_and_no_more(place: Place) -> None:
    """The limit counts bytes in UTF-8."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        path = f"/v1/chats/{chat}/messages"
        for fits in ("x" * MESSAGE_BYTES_MAX, "é" * (MESSAGE_BYTES_MAX // 2), "\0" * MESSAGE_BYTES_MAX):
            assert (await served.as_(ann).post(path, message(fits))).status == 201
        for too_large in ("x" * (MESSAGE_BYTES_MAX + 1), "é" * (MESSAGE_BYTES_MAX // 2 + 1)):
            assert_refused(await served.as_(ann).post(path, message(too_large)), 413, "too_large")


async def test_a_page_is_as_a_message_batch(either: Place) -> None:
    """A page has entries, voids, its range, the head, and whether it is the last one."""
    async with either.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        await served.said(ann, chat, "1", "2", "3")
        page = (await served.as_(ann).get(f"/v1/chats/{chat}/messages", after=1, limit=1)).body
        assert [entry["content"] for entry in page.pop("entries")] == ["2"]
        assert page.pop("log_hash").startswith("1:")
        assert page == {
            "chat_id": chat,
            "epoch": 1,
            "voids": [],
            "from_sequence": 2,
            "to_sequence": 2,
            "head": 3,
            "complete": False,
            "reset": False,
        }


async def test_an_entry_has_every_field(place: Place) -> None:
    """Each field of an entry travels, times with milliseconds and Z."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        (receipt,) = await served.said(ann, chat, "hi")
        (entry,) = await read(served, ann.token, chat)
        assert entry == {
            "chat_id": chat,
            "sequence": 1,
            "epoch": 1,
            "kind": "message",
            "message_id": receipt["message_id"],
            "sender_id": ann.user_id,
            "client_message_id": receipt["client_message_id"],
            "content": "hi",
            "content_type": "text/plain",
            "created_at": receipt["created_at"],
            "server_timestamp": receipt["created_at"],
            "display_time": None,
        }
        assert len(entry["created_at"]) == len("2026-01-01T00:00:00.000Z")
        assert entry["created_at"].endswith("Z")


async def test_history_goes_backwards(place: Place) -> None:
    """`before` gives the last entries below a position, and nothing below the first."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        await served.said(ann, chat, "1", "2", "3", "4")
        path = f"/v1/chats/{chat}/messages"
        page = (await served.as_(ann).get(path, before=4, limit=2)).body
        assert [entry["sequence"] for entry in page["entries"]] == [2, 3]
        for before in (0, 1):
            nothing = (await served.as_(ann).get(path, before=before)).body
            assert (nothing["entries"], nothing["from_sequence"], nothing["to_sequence"]) == ([], 1, 0)


POSITIONS: list[tuple[dict[str, str | int], bool, int]] = [
    ({"after": 2}, False, 3),
    ({"after": 2, "epoch": 1}, False, 3),
    ({"after": 2, "epoch": 7}, True, 1),
    ({"after": 99}, True, 1),
    ({"after": 2, "last_message_id": "msg_00000000000000000000000000"}, True, 1),
]


async def test_a_position_of_another_log_is_reset(place: Place) -> None:
    """An old epoch, another message at the position or one beyond the head starts over."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        await served.said(ann, chat, "1", "2", "3")
        for query, reset, first in POSITIONS:
            page = (await served.as_(ann).get(f"/v1/chats/{chat}/messages", **query)).body
            assert (page["reset"], page["from_sequence"]) == (reset, first), query


NO_NUMBERS = [
    "-1",
    "x",
    "1.5",
    "1e3",
    "٣",
    " 1",
    str(SEQUENCE_MAX + 1),
    "9" * 40,
    "0" * 30 + "9" * 30,
    "0" * 5000,
]


@pytest.mark.parametrize("name", ["after", "before", "limit", "epoch"])
async def test_a_number_that_is_none_is_400(place: Place, name: str) -> None:
    """Whatever stands in a query, the answer is a refusal and never a failure."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        for value in NO_NUMBERS:
            answer = await served.as_(ann).get(f"/v1/chats/{chat}/messages", **{name: value})
            assert_refused(answer, 400, "bad_request")


async def test_a_limit_too_high_is_lowered(place: Place) -> None:
    """A large limit is no fault, and 0 is."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        await served.said(ann, chat, "1", "2", "3")
        for limit, given in (("1", 1), ("1000", 3), ("999999", 3)):
            page = (await served.as_(ann).get(f"/v1/chats/{chat}/messages", limit=limit)).body
            assert len(page["entries"]) == given
        answer = await served.as_(ann).get(f"/v1/chats/{chat}/messages", limit=0)
        assert_refused(answer, 400, "bad_request")


async def test_what_became_of_a_send_is_told_to_its_sender(either: Place) -> None:
    """A stored message is found by its client id in any letter case, and by nobody else."""
    async with either.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        client_id = "ABCDEFAB-0000-4000-8000-ABCDEFABCDEF"
        receipt = await served.as_(ann).post(f"/v1/chats/{chat}/messages", message("x", client_id))
        found = await served.as_(ann).get(f"/v1/sends/{chat}/{client_id.lower()}")
        assert (found.status, found.body["status"]) == (200, "stored")
        assert found.body["message_id"] == receipt.body["message_id"]
        for client, path in (
            (served.as_(ben), f"/v1/sends/{chat}/{client_id}"),
            (served.as_(ann), f"/v1/sends/{chat}/{new_id()}"),
            (served.as_(ann), f"/v1/sends/chat_unknown/{client_id}"),
        ):
            assert_refused(await client.get(path), 404, "not_found")
        assert_refused(await served.as_(ann).get(f"/v1/sends/{chat}/nonsense"), 400, "bad_request")


async def test_a_removed_sender_still_learns_what_became_of_it(place: Place) -> None:
    """Removal takes the chat away, not the answer about one's own message."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        (receipt,) = await served.said(ben, chat, "mine")
        await served.as_(ann).request("DELETE", f"/v1/chats/{chat}/members/{ben.user_id}")
        found = await served.as_(ben).get(f"/v1/sends/{chat}/{receipt['client_message_id']}")
        assert (found.status, found.body["sequence"]) == (200, 1)
        assert_refused(await served.as_(ben).get(f"/v1/chats/{chat}/messages"), 403, "not_a_member")


async def test_concurrent_sends_get_distinct_positions(either: Place) -> None:
    """Fifty requests at once are stored at fifty positions."""
    async with either.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        path = f"/v1/chats/{chat}/messages"
        answers = await asyncio.gather(*(served.as_(ann).post(path, message(f"{n}")) for n in range(50)))
        assert {answer.status for answer in answers} == {201}
        stored = [entry["sequence"] for entry in await read(served, ann.token, chat)]
        assert sorted(answer.body["sequence"] for answer in answers) == stored


async def read(served: Served, token: str, chat: str) -> list[Frame]:
    client = type(served.http)(served.session, served.url, token)
    found: list[Frame] = (await client.get(f"/v1/chats/{chat}/messages", limit=1000)).body["entries"]
    return found
