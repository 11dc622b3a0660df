"""Search on a running server: who finds what, and what is left of what was deleted."""

from pathlib import Path
from typing import Any

import pytest

from parley.archive.tiers import TieredEngine
from parley.client import connect
from parley.core.search import HIT_BEGINS, HIT_ENDS
from parley.store.folder import SEARCH_NAME
from tests.harness.clients import Person
from tests.integration.gateway.serving import Place, Served, assert_refused, message
from tests.integration.gateway.test_erasure import ARCHIVE, archiver_of
from tests.integration.gateway.test_message_life import about
from tests.waiting import eventually

OPERATORS = [
    '"', '""', "AND", "OR", "NOT", "NEAR(a b)", "a AND", "(", ")", "a:b", "body:x", "^a", "-a", "+", "{a}",
    "a*b", "*", "**", "'", ";--", "a\0b", "\\", "%", "\u2068x\u2069", "\ufdd0", "a" * 200, "🙂",
    "é*", "\u0301",
]  # fmt: skip


async def found(served: Served, person: Person, chat: str, text: str, **query: Any) -> list[str]:
    """The contents of the hits in a chat."""
    answer = await served.as_(person).get(f"/v1/chats/{chat}/search", q=text, **query)
    assert answer.status == 200, answer
    return [hit["entry"]["content"] for hit in answer.body["hits"]]


async def everywhere(served: Served, person: Person, text: str, **query: Any) -> dict[str, Any]:
    answer = await served.as_(person).get("/v1/search", q=text, **query)
    assert answer.status == 200, answer
    body: dict[str, Any] = answer.body
    return body


async def test_words_prefixes_accents_and_scripts(place: Place) -> None:
    """All words, the newest first; without case and accents; parts of words where they have no spaces."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        texts = [
            "Hello world",
            "hello there",
            "Élan vital",
            "我爱北京天安门",
            "東京タワー",
            "straße",
            "don't panic",
        ]
        await served.said(ann, chat, *texts)
        assert await found(served, ben, chat, "HELLO") == ["hello there", "Hello world"]
        assert await found(served, ben, chat, "world hello") == ["Hello world"]
        assert await found(served, ben, chat, "hel") == []
        assert await found(served, ben, chat, "hel*") == ["hello there", "Hello world"]
        assert await found(served, ben, chat, "elan") == ["Élan vital"]
        assert await found(served, ben, chat, "北京") == ["我爱北京天安门"]
        assert await found(served, ben, chat, "京北") == []
        assert await found(served, ben, chat, "タワー") == ["東京タワー"]
        assert await found(served, ben, chat, "don't") == ["don't panic"]
        assert await found(served, ben, chat, "don panic") == ["don't panic"]


async def test_a_snippet_is_plain_text_with_marks(place: Place) -> None:
    """The words around the hit, each hit between two characters that are not shown."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await served.said(ann, chat, "<b>one</b>\ntwo", f"x {HIT_BEGINS}北京{HIT_ENDS} y")
        hits = (await served.as_(ben).get(f"/v1/chats/{chat}/search", q="two")).body["hits"]
        assert hits[0]["snippet"] == f"<b>one</b> {HIT_BEGINS}two{HIT_ENDS}"
        hits = (await served.as_(ben).get(f"/v1/chats/{chat}/search", q="北京")).body["hits"]
        assert hits[0]["snippet"] == f"x {HIT_BEGINS}北京{HIT_ENDS} y"


async def test_nothing_that_a_person_writes_is_an_operator(place: Place) -> None:
    """Each is answered or refused as a bad request; the word beside it still counts."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await served.said(ann, chat, "plain words", *(f"needle {text}" for text in OPERATORS))
        for text in OPERATORS:
            answer = await served.as_(ben).get(f"/v1/chats/{chat}/search", q=text)
            if answer.status != 200:
                assert_refused(answer, 400, "bad_request")
            both = await served.as_(ben).get(f"/v1/chats/{chat}/search", q=f"needle {text}", limit=100)
            if both.status == 200:
                assert f"needle {text}" in [hit["entry"]["content"] for hit in both.body["hits"]], text
            else:
                assert_refused(both, 400, "bad_request")


async def test_members_alone_search(place: Place) -> None:
    """Also from the moment that somebody is removed, in one chat and in all."""
    async with place.serving() as served:
        ann, ben, eve = await served.people("ann", "ben", "eve")
        chat = await served.as_(ann).create_group(ben)
        await served.said(ann, chat, "needle")
        path = f"/v1/chats/{chat}/search"
        assert_refused(await served.as_(eve).get(path, q="needle"), 403, "not_a_member")
        assert (await everywhere(served, eve, "needle"))["hits"] == []
        assert len((await everywhere(served, ben, "needle"))["hits"]) == 1
        assert (await served.as_(ann).delete(f"/v1/chats/{chat}/members/{ben.user_id}")).status == 200
        assert_refused(await served.as_(ben).get(path, q="needle"), 403, "not_a_member")
        assert (await everywhere(served, ben, "needle"))["hits"] == []


async def test_people_whom_i_blocked_are_not_found(place: Place) -> None:
    """Only I do not find them: a block is one-sided."""
    async with place.serving() as served:
        ann, ben, eve = await served.people("ann", "ben", "eve")
        chat = await served.as_(ann).create_group(ben, eve)
        await served.said(eve, chat, "needle of eve")
        await served.said(ben, chat, "needle of ben")
        assert (await served.as_(ann).put(f"/v1/blocks/{eve.user_id}", {})).status in (200, 201, 204)
        assert await found(served, ann, chat, "needle") == ["needle of ben"]
        assert await found(served, ben, chat, "needle") == ["needle of ben", "needle of eve"]


async def test_an_edit_is_found_by_its_newest_content_alone(place: Place) -> None:
    """From the answer of the edit on, whatever the index had before."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        (first,) = await served.said(ann, chat, "before")
        assert await found(served, ben, chat, "before") == ["before"]
        async with served.client(ann) as client:
            for content in ("between", "after"):
                await client.request("edit_message", **about(chat, first["message_id"], content=content))
        assert await found(served, ben, chat, "before") == []
        assert await found(served, ben, chat, "between") == []
        assert await found(served, ben, chat, "after") == ["after"]


async def test_what_was_deleted_is_in_no_file_of_the_index(place: Place) -> None:
    """Neither in the index nor in its write-ahead log, when the delete is answered."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        receipts = await served.said(ann, chat, *(f"zebrafish{n} unspeakable{n}" for n in range(40)))
        assert len(await found(served, ben, chat, "zebrafish*", limit=50)) == 40
        assert raw_bytes(place.folder).count(b"unspeakable")
        async with served.client(ann) as client:
            await client.request(
                "edit_message", **about(chat, receipts[7]["message_id"], content="tapirs unutterable")
            )
            assert await found(served, ben, chat, "unutterable") == ["tapirs unutterable"]
            for receipt in receipts:
                answer = await client.request("delete_message", **about(chat, receipt["message_id"]))
                assert answer["type"] == "ack"
        raw = raw_bytes(place.folder)
        for trace in (b"unspeakable", b"zebrafish", b"unutterable", b"tapirs", b"nspeakab"):
            assert trace not in raw
        assert await found(served, ben, chat, "zebrafish*") == []


def raw_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob(f"{SEARCH_NAME}*")))


async def test_archived_messages_are_found_and_erased_ones_are_gone(place: Place) -> None:
    """They are read back from the cold tier; erasure takes them out of the index as well."""
    async with place.serving(ARCHIVE) as served:
        root = await served.operator()
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await served.said(ann, chat, "needle of ann unspeakable")
        await served.said(ben, chat, "needle of ben")
        await archiver_of(served).run()
        assert isinstance(served.app.store, TieredEngine)
        assert await found(served, ben, chat, "needle") == ["needle of ben", "needle of ann unspeakable"]
        await served.as_(root).delete(f"/v1/admin/users/{ann.user_id}?erase=bodies")

        async def is_erased() -> bool:
            return not await served.app.kinds.erasures.pending()

        await eventually(is_erased)
        assert await found(served, ben, chat, "needle") == ["needle of ben"]
        assert b"unspeakable" not in raw_bytes(place.folder)


async def test_pages_in_one_chat_and_over_all(place: Place) -> None:
    """Every hit once, the newest first, whatever the size of a page."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chats = [await served.as_(ann).create_group(ben) for _ in range(3)]
        for number in range(12):
            await served.said(ann, chats[number % 3], f"needle {number}")
        seen: list[tuple[str, str]] = []
        query: dict[str, Any] = {"limit": 5}
        while True:
            body = await everywhere(served, ben, "needle", **query)
            seen += [(hit["entry"]["created_at"], hit["entry"]["content"]) for hit in body["hits"]]
            if body["next"] is None:
                break
            query["before"] = body["next"]
        assert [at for at, _ in seen] == sorted((at for at, _ in seen), reverse=True)
        assert sorted(content for _, content in seen) == sorted(f"needle {number}" for number in range(12))
        answer = await served.as_(ben).get(f"/v1/chats/{chats[0]}/search", q="needle", limit=3)
        rest = await found(served, ben, chats[0], "needle", before=answer.body["next"])
        assert [hit["entry"]["content"] for hit in answer.body["hits"]] == [
            "needle 9",
            "needle 6",
            "needle 3",
        ]
        assert rest == ["needle 0"]
        assert_refused(await served.as_(ben).get("/v1/search", q="needle", before="x"), 400, "bad_request")


async def test_search_can_be_turned_off(place: Place) -> None:
    """Then a search is refused for good, and an index of before is deleted: it would keep what is deleted."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        assert (place.folder / SEARCH_NAME).exists()
    async with place.serving({"PARLEY_SEARCH_ENABLED": "false"}) as served:
        assert_refused(await served.as_(ann).get(f"/v1/chats/{chat}/search", q="x"), 403, "search_off")
        assert not (place.folder / SEARCH_NAME).exists()


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_an_index_that_is_lost_is_made_again(place: Place, is_damaged: bool) -> None:
    """A file that is missing, or cannot be read: the server starts, and the job reads the log again."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await served.said(ann, chat, "needle")
        assert await found(served, ben, chat, "needle") == ["needle"]
    for path in place.folder.glob(f"{SEARCH_NAME}*"):
        path.unlink()
    if is_damaged:
        (place.folder / SEARCH_NAME).write_bytes(b"this is no database" * 1_000)
    async with place.serving() as served:

        async def is_indexed() -> bool:
            return served.metric("parley_search_entries_indexed_total") >= 1

        await eventually(is_indexed)
        assert await found(served, ben, chat, "needle") == ["needle"]


async def test_too_much_to_catch_up_with_is_refused_and_done(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search never leaves out what is not indexed yet: it is refused for now, and the job does it."""
    monkeypatch.setattr("parley.search.indexer.PASS_SECONDS", 3_600.0)
    monkeypatch.setattr("parley.search.service.CAUGHT_UP_MAX", 2)
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await served.said(ann, chat, "needle 1", "needle 2")
        assert len(await found(served, ben, chat, "needle")) == 2
        await served.said(ann, chat, "needle 3", "needle 4", "needle 5")
        answer = await served.as_(ben).get(f"/v1/chats/{chat}/search", q="needle")
        assert_refused(answer, 503, "search_behind")
        assert served.app.search.indexer is not None
        await served.app.search.indexer.follow_news()
        assert len(await found(served, ben, chat, "needle")) == 5


async def test_a_message_of_another_type_is_not_indexed(place: Place) -> None:
    """Only text is: what clients have sealed has no words."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        sealed = message("needle", content_type="application/octet-stream")
        assert (await served.as_(ann).post(f"/v1/chats/{chat}/messages", sealed)).status == 201
        assert await found(served, ben, chat, "needle") == []


async def test_the_sdk_searches_a_chat_and_all_of_them(place: Place) -> None:
    """Page by page, by the `next` of the page before."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await served.said(ann, chat, "needle 1", "needle 2", "hay")
        async with connect(served.url, ben.token) as client:
            first = await client.chat(chat).search("needle", limit=1)
            second = await client.chat(chat).search("needle", before=first.next)
            assert [hit.entry.content for hit in (*first.hits, *second.hits)] == ["needle 2", "needle 1"]
            assert second.next is None
            page = await client.search("need*", limit=1)
            rest = await client.search("need*", before=page.next)
            assert [hit.entry.content for hit in (*page.hits, *rest.hits)] == ["needle 2", "needle 1"]
