"""What a page needs to show a part of a chat: where it opens, and what stands beside each message."""

from typing import Any

import pytest

from parley.clock import iso
from parley.core.rates import COST_PER_USER
from parley.wire.limits import LOOKUP_MESSAGES_MAX, PAGE_BYTES_MAX, SHOWN_ENTRIES_MAX
from tests.harness.clients import Person
from tests.harness.clock import VirtualClock
from tests.integration.gateway.serving import Place, Served, assert_refused, message
from tests.integration.gateway.test_message_life import about

LOG_LENGTH = 21
MINUTE_MS = 60_000
UNKNOWN_ID = f"msg_{'0' * 26}"


async def page(served: Served, person: Person, chat: str, **query: str | int) -> dict[str, Any]:
    answer = await served.as_(person).get(f"/v1/chats/{chat}/messages", **query)
    assert answer.status == 200, answer
    body: dict[str, Any] = answer.body
    return body


def numbers(body: dict[str, Any]) -> list[int]:
    """Every position of a page, which is without a gap between its ends."""
    found = sorted([entry["sequence"] for entry in body["entries"]] + body["voids"])
    assert not found or found == list(range(body["from_sequence"], body["to_sequence"] + 1))
    return found


# What stands beside a message


async def a_lively_chat(served: Served) -> tuple[Person, Person, str, list[dict[str, Any]]]:
    """Five messages: two answer the first, which has reactions; the last is deleted."""
    ann, ben = await served.people("ann", "ben")
    chat = await served.as_(ann).create_group(ben)
    (first,) = await served.said(ann, chat, "shall we\nmeet   at five?")
    sent = [first]
    for content, fields in (
        ("yes", {"reply_to": first["message_id"]}),
        ("no", {}),
        ("perhaps", {"reply_to": first["message_id"]}),
        ("rude", {}),
    ):
        answer = await served.as_(ben).post(f"/v1/chats/{chat}/messages", message(content, **fields))
        sent.append(answer.body)
    async with served.client(ann) as one, served.client(ben) as other:
        for client, reaction in ((one, "x"), (other, "x"), (other, "y")):
            told = await client.request("react", **about(chat, first["message_id"], reaction=reaction))
            assert told["type"] == "ack"
        await other.request("delete_message", **about(chat, sent[4]["message_id"]))
    return ann, ben, chat, sent


async def test_a_shown_page_has_what_a_reader_sees(place: Place) -> None:
    """Each message has the reactions and replies that the message by itself has, and what it answers."""
    async with place.serving() as served:
        ann, ben, chat, sent = await a_lively_chat(served)
        entries = (await page(served, ann, chat, shown="true"))["entries"]
        assert [entry["kind"] for entry in entries] == ["message"] * 5 + ["reaction"] * 3 + ["delete"]
        for entry in entries[:5]:
            alone = (await served.as_(ann).get(f"/v1/chats/{chat}/messages/{entry['message_id']}")).body
            assert (entry["reactions"], entry["reply_count"]) == (alone["reactions"], alone["reply_count"])
            shown = {"reactions", "reply_count", "replied"}
            assert {name: entry[name] for name in entry if name not in shown} == alone["entry"]
        assert [one["reaction"] for one in entries[0]["reactions"]] == ["x", "y"]
        assert entries[0]["reactions"][0]["user_ids"] == sorted([ann.user_id, ben.user_id])
        assert [entry["reply_count"] for entry in entries[:5]] == [2, 0, 0, 0, 0]
        quoted = {
            "message_id": sent[0]["message_id"],
            "sequence": 1,
            "sender_id": ann.user_id,
            "excerpt": "shall we meet at five?",
            "deleted": False,
        }
        assert [entry.get("replied") for entry in entries[:5]] == [None, quoted, None, quoted, None]
        assert not {"reactions", "reply_count", "replied"} & set(entries[5])
        assert "reply_count" not in (await page(served, ann, chat))["entries"][0]


async def test_a_quote_outside_of_the_page_is_there(place: Place) -> None:
    """What a message answers may be far away, edited or deleted since: it is quoted as it is now."""
    async with place.serving() as served:
        ann, _, chat, sent = await a_lively_chat(served)
        async with served.client(ann) as client:
            await client.request("edit_message", **about(chat, sent[0]["message_id"], content="at six?"))
            (reply,) = (await page(served, ann, chat, after=1, limit=1, shown="true"))["entries"]
            assert (reply["replied"]["excerpt"], reply["replied"]["deleted"]) == ("at six?", False)
            await client.request("delete_message", **about(chat, sent[0]["message_id"]))
            (reply,) = (await page(served, ann, chat, after=1, limit=1, shown="true"))["entries"]
            assert (reply["replied"]["excerpt"], reply["replied"]["deleted"]) == ("", True)


async def test_a_look_up_finds_messages_of_this_chat(place: Place) -> None:
    """In the order asked for, each once, as a shown page has them; others' and unknown ids are left out."""
    async with place.serving() as served:
        ann, ben, chat, sent = await a_lively_chat(served)
        other = await served.as_(ann).create_group(ben)
        (elsewhere,) = await served.said(ann, other, "elsewhere")
        path = f"/v1/chats/{chat}/messages/lookup"
        wanted = [sent[3]["message_id"], UNKNOWN_ID, elsewhere["message_id"], sent[0]["message_id"]]
        found = await served.as_(ben).post(path, {"message_ids": [*wanted, wanted[0]]})
        entries = (await page(served, ben, chat, shown="true"))["entries"]
        assert (found.status, found.body) == (200, {"messages": [entries[3], entries[0]]})
        for bad in ([], [UNKNOWN_ID] * (LOOKUP_MESSAGES_MAX + 1)):
            assert_refused(await served.as_(ben).post(path, {"message_ids": bad}), 400, "bad_request")


@pytest.mark.parametrize("query", [{"shown": "true"}, {"around": 1}, {"at": "2026-01-01"}])
async def test_strangers_see_nothing_shown(place: Place, query: dict[str, str]) -> None:
    """A page by whatever way, and a look-up, are for members."""
    async with place.serving() as served:
        _, _, chat, sent = await a_lively_chat(served)
        (eve,) = await served.people("eve")
        answer = await served.as_(eve).get(f"/v1/chats/{chat}/messages", **query)
        assert_refused(answer, 403, "not_a_member")
        looked = await served.as_(eve).post(
            f"/v1/chats/{chat}/messages/lookup", {"message_ids": [sent[0]["message_id"]]}
        )
        assert_refused(looked, 403, "not_a_member")


async def test_a_shown_page_is_shorter_and_costs_more(place: Place) -> None:
    """Reading what stands beside each message is work: a flood of such pages ends sooner."""
    async with place.serving({"PARLEY_LIMITS_RATES": "on"}, VirtualClock()) as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        await served.said(ann, chat, *map(str, range(LOG_LENGTH)))
        path = f"/v1/chats/{chat}/messages"
        passed = 0
        while (await served.as_(ann).get(path, shown="true")).status == 200:
            passed += 1
        assert passed < COST_PER_USER.burst // 3


async def test_a_shown_page_is_bounded(place: Place) -> None:
    """However many entries are asked for; the page says where it goes on."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        await served.said(ann, chat, *map(str, range(SHOWN_ENTRIES_MAX + 1)))
        found = await page(served, ann, chat, shown="true", limit=1_000)
        assert (found["to_sequence"], found["complete"]) == (SHOWN_ENTRIES_MAX, False)
        answer = await served.as_(ann).get(f"/v1/chats/{chat}/messages", shown="perhaps")
        assert_refused(answer, 400, "bad_request")


# Where a page opens


async def a_long_chat(served: Served, clock: VirtualClock | None = None) -> tuple[Person, str, list[Any]]:
    (ann,) = await served.people("ann")
    chat = await served.as_(ann).create_group()
    sent = []
    for number in range(1, LOG_LENGTH + 1):
        sent += await served.said(ann, chat, f"message {number}")
        if clock is not None:
            clock.advance(MINUTE_MS)
    return ann, chat, sent


@pytest.mark.parametrize(
    ("around", "limit", "wanted"),
    [
        (10, 5, (8, 12)),
        (10, 4, (8, 11)),
        (10, 1, (10, 10)),
        (1, 4, (1, 2)),
        (LOG_LENGTH, 5, (LOG_LENGTH - 4, LOG_LENGTH)),
        (LOG_LENGTH + 50, 5, (LOG_LENGTH - 4, LOG_LENGTH)),
        (0, 4, (1, 2)),
    ],
)
async def test_a_page_opens_around_a_position(
    place: Place, around: int, limit: int, wanted: tuple[int, int]
) -> None:
    """Both sides of it, by its number or by the id of the message there; never more than was asked for."""
    async with place.serving() as served:
        ann, chat, sent = await a_long_chat(served)
        found = await page(served, ann, chat, around=around, limit=limit)
        assert (found["from_sequence"], found["to_sequence"]) == wanted
        assert numbers(found) == list(range(wanted[0], wanted[1] + 1))
        assert (found["head"], found["complete"]) == (LOG_LENGTH, wanted[1] == LOG_LENGTH)
        if 1 <= around <= LOG_LENGTH:
            by_id = await page(served, ann, chat, around=sent[around - 1]["message_id"], limit=limit)
            assert by_id == found


async def test_a_page_around_something_large_has_it(place: Place) -> None:
    """A page is cut at its bytes; what it was opened for is never what is cut off."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        large = "x" * 60_000
        count = 2 * PAGE_BYTES_MAX // len(large)
        await served.said(ann, chat, *[large] * count)
        found = await page(served, ann, chat, around=count // 2, limit=100)
        assert count // 2 in numbers(found)
        assert found["from_sequence"] < count // 2 < found["to_sequence"]


async def test_a_page_around_an_unknown_message_is_not_found(place: Place) -> None:
    """An id of another chat is as unknown as any."""
    async with place.serving() as served:
        ann, _, sent = await a_long_chat(served)
        other = await served.as_(ann).create_group()
        for wanted in (UNKNOWN_ID, "nonsense", sent[3]["message_id"]):
            answer = await served.as_(ann).get(f"/v1/chats/{other}/messages", around=wanted)
            assert_refused(answer, 404, "not_found")
        assert (await page(served, ann, other, around=1))["entries"] == []


async def test_a_page_opens_at_a_time(place: Place) -> None:
    """Around the first entry that was stored then or later; before all of them at the first, after all at the
    end."""
    clock = VirtualClock()
    async with place.serving(clock=clock) as served:
        begun_ms = clock.now_ms
        ann, chat, _ = await a_long_chat(served, clock)
        for minute, wanted in ((0, 1), (4, 5), (4.5, 6), (-999, 1), (20, 21), (9_999, 21)):
            at = iso(begun_ms + round(minute * MINUTE_MS))
            found = await page(served, ann, chat, at=at, limit=1)
            assert numbers(found) == [wanted], minute
        assert numbers(await page(served, ann, chat, at=iso(begun_ms + 9 * MINUTE_MS), limit=5)) == [
            8, 9, 10, 11, 12,
        ]  # fmt: skip
        for bad in ("yesterday", "", "99999-01-01"):
            answer = await served.as_(ann).get(f"/v1/chats/{chat}/messages", at=bad)
            assert_refused(answer, 400, "bad_request")


async def test_voids_have_no_time(place: Place) -> None:
    """A position that was never filled is passed over, and is in the page like any other."""
    clock = VirtualClock()
    async with place.serving({"PARLEY_STORE_SEQUENCING": "two_phase"}, clock) as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        async with served.client(ann) as client:
            await client.send_message(chat, "1")
            sent_ms = clock.advance(MINUTE_MS)
            early = "ffffffff-0000-4000-8000-000000000000"
            await client.send_message(chat, "2", after_client_message_id=early)
            await client.send_message(chat, "3")
        assert numbers(await page(served, ann, chat, at=iso(sent_ms), limit=1)) == [3]
        assert numbers(await page(served, ann, chat, around=2, limit=3)) == [1, 2, 3]


async def test_a_shown_page_opens_anywhere(place: Place) -> None:
    """What stands beside a message does not depend on how its page was opened."""
    async with place.serving() as served:
        ann, _, chat, sent = await a_lively_chat(served)
        whole = (await page(served, ann, chat, shown="true"))["entries"]
        for query in ({"around": sent[1]["message_id"]}, {"before": 3}, {"after": 1}):
            found = await page(served, ann, chat, shown="true", limit=3, **query)
            assert found["entries"] == whole[found["from_sequence"] - 1 : found["to_sequence"]]
