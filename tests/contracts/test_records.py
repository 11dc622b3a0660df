"""The port `Records`: tables of small records, each one struct under a key, and compared as a whole."""

import asyncio
from itertools import count

import pytest
from msgspec.structs import replace

from parley.core.log_hash import StoredHash
from parley.core.marks import AmendmentNote
from parley.model import AnsweredRequest, ApiToken, Link, LinkPurpose, PersonDevices, Scope
from parley.store.tables import (
    AMENDMENTS,
    ANSWERS,
    API_TOKENS,
    CHANGES_MAX,
    DEVICE_LISTS,
    LINKS,
    LOG_HASHES,
    ONE_LIST,
    REPORTS,
    TABLES,
    WHATEVER,
    CheckRecord,
    PutRecord,
    RecordChange,
    RemoveRecord,
    alone,
    listed,
    ordered,
)
from tests.contracts.engines import Engine, OpenStore
from tests.contracts.full_store import one_of_each

DAY_MS = 86_400_000


def new_link(number: int = 1, **changed: object) -> Link:
    link = Link(
        link_id=f"lnk_{number}",
        digest=f"digest {number}",
        purpose=LinkPurpose.INVITE,
        created_by="user_1",
        created_at_ms=5,
        expires_at_ms=7,
        uses_max=3,
        note="für alle",
    )
    return replace(link, **changed)


_turns = count(1)
_turn = 0


@pytest.fixture(autouse=True)
def other_tokens() -> None:
    """A number that rises is never written again below a row that was deleted, as it is between tests."""
    global _turn
    _turn = next(_turns)


def token_id(number: int) -> str:
    return f"tok_{_turn}_{number}"


def new_token(number: int = 1, **changed: object) -> ApiToken:
    token = ApiToken(
        token_id=token_id(number),
        token_hash=bytes([number, 0, 255]),
        user_id="user_1",
        name="alerts",
        scopes=(Scope.SEND, Scope.ADMIN),
        created_at_ms=5,
        expires_at_ms=7,
    )
    return replace(token, **changed)


def new_answer(number: int, made_at_ms: int) -> AnsweredRequest:
    return AnsweredRequest(
        request_id=f"req_{number}", digest="d", claim="c", made_at_ms=made_at_ms, claimed_until_ms=9
    )


def new_hash(chat_id: str, sequence: int) -> StoredHash:
    return StoredHash(chat_id=chat_id, epoch=1, sequence=sequence, value=bytes([sequence, 0, 255]))


async def links_in(store: OpenStore) -> list[Link]:
    return await store.records.page(LINKS, ONE_LIST, "", 1_000)


async def add(store: OpenStore, *links: Link) -> None:
    for link in links:
        assert await store.records.commit(LINKS, [PutRecord(link, before=None)])


async def test_records_are_found_by_their_keys(engine: Engine) -> None:
    """Each where it was asked for, as it was written, also after a restart; others are None."""
    async with engine.opened() as store:
        full = new_link(2, used_by=("user_2", "user_3"), revoked_at_ms=9, user_id="user_4")
        await add(store, new_link(1), full)
        keys = [listed("lnk_2"), listed("lnk_3"), listed("lnk_1")]
        for _ in range(2):
            assert await store.records.get(LINKS, keys) == [full, None, new_link(1)]
            await store.reopen()


async def test_many_records_are_found_at_once(engine: Engine) -> None:
    """More than one request holds, each in a partition of its own; the same twice."""
    async with engine.opened() as store:
        lists = [PersonDevices(f"user_{number}", {"phone": number}) for number in range(120)]
        await store.records.load(DEVICE_LISTS, lists)
        keys = [alone(one.user_id) for one in lists]
        assert await store.records.get(DEVICE_LISTS, [*keys, keys[0]]) == [*lists, lists[0]]
        assert await store.records.get(DEVICE_LISTS, []) == []


async def test_whatever_is_asked_for_finds_only_itself(engine: Engine) -> None:
    """What a person types may be no key at all."""
    async with engine.opened() as store:
        await add(store, new_link(1))
        for text in ("", "LNK_1", "lnk_1\0", "lnk_1 ", "x" * 2_000, "\ud800"):
            keys = [listed(text), (text, "lnk_1"), (text, text)]
            assert await store.records.get(LINKS, keys) == [None] * 3
            assert await store.records.page(LINKS, text or "x", text, 10) == []


async def test_a_record_is_added_once(engine: Engine) -> None:
    """Of many who add another one under the same key, one does."""
    async with engine.opened() as store:
        wanted = [new_link(1, note=str(number)) for number in range(5)]
        done = await asyncio.gather(
            *(store.records.commit(LINKS, [PutRecord(link, before=None)]) for link in wanted)
        )
        assert sum(done) == 1
        assert await links_in(store) == [wanted[done.index(True)]]


async def test_one_of_many_replaces_it(engine: Engine) -> None:
    """Of those who read the same and replace it at once, one does; so it is with the next round."""
    async with engine.opened() as store:
        before = new_link()
        await add(store, before)
        for turn in range(2):
            afters = [replace(before, used_by=(*before.used_by, f"user_{turn}{n}")) for n in range(5)]
            done = await asyncio.gather(
                *(store.records.commit(LINKS, [PutRecord(after, before=before)]) for after in afters)
            )
            assert sum(done) == 1
            before = afters[done.index(True)]
            assert await links_in(store) == [before]


async def test_what_is_not_there_is_not_replaced(engine: Engine) -> None:
    """Nor is another record than the one that was read."""
    async with engine.opened() as store:
        await add(store, new_link(1))
        for before in (new_link(1, note="other"), new_link(1, uses_max=4)):
            assert not await store.records.commit(LINKS, [PutRecord(new_link(1, note="x"), before=before)])
        assert not await store.records.commit(LINKS, [PutRecord(new_link(2), before=new_link(2))])
        assert await links_in(store) == [new_link(1)]


async def test_a_record_is_written_over_whatever_is_there(engine: Engine) -> None:
    """Nothing, the same, or another one."""
    async with engine.opened() as store:
        for link in (new_link(1), new_link(1), new_link(1, note="other")):
            assert await store.records.commit(LINKS, [PutRecord(link)])
            assert await links_in(store) == [link]


async def test_replacing_a_record_by_itself_is_done(engine: Engine) -> None:
    """It is compared all the same."""
    async with engine.opened() as store:
        await add(store, new_link(1))
        assert await store.records.commit(LINKS, [PutRecord(new_link(1), before=new_link(1))])
        other = new_link(1, note="other")
        assert not await store.records.commit(LINKS, [PutRecord(other, before=other)])


async def test_a_removed_record_stays_away(engine: Engine) -> None:
    """Nobody reads it again, nor replaces it; others stay, and it may be added again."""
    async with engine.opened() as store:
        await add(store, new_link(1), new_link(2))
        other = new_link(1, note="other")
        assert not await store.records.commit(LINKS, [RemoveRecord(listed("lnk_1"), before=other)])
        assert await store.records.commit(LINKS, [RemoveRecord(listed("lnk_1"), before=new_link(1))])
        assert not await store.records.commit(LINKS, [RemoveRecord(listed("lnk_1"), before=new_link(1))])
        assert not await store.records.commit(LINKS, [PutRecord(other, before=new_link(1))])
        await store.reopen()
        assert await links_in(store) == [new_link(2)]
        await add(store, other)
        assert await links_in(store) == [other, new_link(2)]


async def test_removing_nothing_is_done(engine: Engine) -> None:
    """Without a condition, whatever is there goes."""
    async with engine.opened() as store:
        await add(store, new_link(1))
        for _ in range(2):
            assert await store.records.commit(LINKS, [RemoveRecord(listed("lnk_1"))])
            assert await links_in(store) == []


async def test_changes_of_a_partition_are_made_together(engine: Engine) -> None:
    """All of them, or none if one is not met: a record that is not as it was, is there, or is not."""
    async with engine.opened() as store:
        await add(store, new_link(1), new_link(2))
        one, two, three = new_link(1, note="one"), new_link(2, note="two"), new_link(3)
        refused: tuple[RecordChange[Link], ...] = (
            PutRecord(two, before=new_link(2, note="other")),
            PutRecord(new_link(2), before=None),
            RemoveRecord(listed("lnk_2"), before=two),
            CheckRecord(listed("lnk_2"), before=two),
            CheckRecord(listed("lnk_2"), before=None),
            CheckRecord(listed("lnk_4"), before=new_link(4)),
        )
        for change in refused:
            changes = [PutRecord(one, before=new_link(1)), PutRecord(three, before=None), change]
            assert not await store.records.commit(LINKS, changes)
            assert await links_in(store) == [new_link(1), new_link(2)]
        made: list[RecordChange[Link]] = [
            PutRecord(three, before=None),
            RemoveRecord(listed("lnk_1"), before=new_link(1)),
            CheckRecord(listed("lnk_2"), before=new_link(2)),
            CheckRecord(listed("lnk_4"), before=None),
        ]
        assert await store.records.commit(LINKS, made)
        assert await links_in(store) == [new_link(2), three]


async def test_a_check_alone_says_what_is_there(engine: Engine) -> None:
    """It writes nothing."""
    async with engine.opened() as store:
        await add(store, new_link(1))
        assert await store.records.commit(LINKS, [CheckRecord(listed("lnk_1"), before=new_link(1))])
        assert not await store.records.commit(LINKS, [CheckRecord(listed("lnk_1"), before=None)])
        assert await store.records.commit(LINKS, [CheckRecord(listed("lnk_2"), before=None)])
        assert await links_in(store) == [new_link(1)]


async def test_a_partition_changes_as_much_as_a_commit_holds(engine: Engine) -> None:
    """Two who change all of it at once: one does."""
    async with engine.opened() as store:
        links = [new_link(10 + number) for number in range(CHANGES_MAX)]
        assert await store.records.commit(LINKS, [PutRecord(link, before=None) for link in links])
        done = await asyncio.gather(
            *(
                store.records.commit(
                    LINKS, [PutRecord(replace(link, note=note), before=link) for link in links]
                )
                for note in ("a", "b")
            )
        )
        assert sum(done) == 1
        assert {link.note for link in await links_in(store)} == {"ab"[done.index(True)]}


async def test_pages_go_in_the_order_of_the_places(engine: Engine) -> None:
    """Forwards and backwards; each goes on where the one before ended."""
    async with engine.opened() as store:
        await add(store, *(new_link(number) for number in (3, 1, 5, 2, 4)))
        for newest_first, wanted in ((False, "12345"), (True, "54321")):
            found, after = "", ""
            while page := await store.records.page(LINKS, ONE_LIST, after, 2, newest_first):
                found += "".join(link.link_id[-1] for link in page)
                after = page[-1].link_id
            assert found == wanted


async def test_long_pages_are_whole(engine: Engine) -> None:
    """Also where the store would answer in parts."""
    async with engine.opened() as store:
        links = [new_link(number, link_id=ordered(number), note="n" * 20_000) for number in range(120)]
        await store.records.load(LINKS, links)
        assert await links_in(store) == links
        assert await store.records.page(LINKS, ONE_LIST, ordered(99), 100, True) == links[98::-1]


async def test_a_partition_knows_nothing_of_others(engine: Engine) -> None:
    """Nor a table, though the keys are the same."""
    async with engine.opened() as store:
        await add(store, new_link(1))
        await store.records.load(DEVICE_LISTS, [PersonDevices("user_1", {}), PersonDevices("user_2", {})])
        (one,) = await store.records.page(DEVICE_LISTS, "user_1", "", 10)
        assert one.user_id == "user_1"
        assert await store.records.page(REPORTS, ONE_LIST, "", 10) == []
        assert await store.records.get(REPORTS, [listed("lnk_1")]) == [None]


@pytest.mark.usefixtures("pages_of_two")
async def test_a_scan_finds_every_record(engine: Engine) -> None:
    """Of all partitions, once each, and nothing of other tables."""
    async with engine.opened() as store:
        lists = [PersonDevices(f"user_{number}", {"phone": number}) for number in range(7)]
        await store.records.load(DEVICE_LISTS, lists)
        await add(store, new_link(1))
        found = [one async for page in store.records.scan(DEVICE_LISTS) for one in page]
        assert sorted(found, key=lambda one: one.user_id) == lists


async def test_a_scan_may_be_of_one_partition(engine: Engine) -> None:
    """In the order of the places, over as many pages as there are; also beside the server."""
    async with engine.opened() as store:
        hashes = [new_hash("chat_1", sequence) for sequence in range(7)]
        await store.records.load(
            LOG_HASHES, [new_hash("chat_0", 1), *reversed(hashes), new_hash("chat_2", 1)]
        )
        async with store.operator() as other:
            for records in (store.records, other.records):
                assert [one async for page in records.scan(LOG_HASHES, "chat_1") for one in page] == hashes
            assert [one async for page in other.records.scan(LOG_HASHES, "chat") for one in page] == []


async def test_what_is_not_compared_is_written_in_any_order(engine: Engine) -> None:
    """The highest number stays: a lower one is not written over it, and does not remove it."""
    async with engine.opened() as store:
        one, two, three = (AmendmentNote(f"chat_{_turn}", b"key", at, 100 + at) for at in (1, 2, 3))
        key = AMENDMENTS.key(one)
        for note, left in ((two, two), (one, two), (two, two), (three, three)):
            assert await store.records.commit(AMENDMENTS, [PutRecord(note)])
            assert await store.records.get(AMENDMENTS, [key]) == [left]
        for note, kept in ((two, three), (three, None), (three, None)):
            assert await store.records.commit(AMENDMENTS, [RemoveRecord(key, before=note)])
            assert await store.records.get(AMENDMENTS, [key]) == [kept]


async def test_more_than_one_may_be_written_without_a_comparison(engine: Engine) -> None:
    """Over what is there, each at its place."""
    async with engine.opened() as store:
        hashes = [new_hash("chat_1", sequence) for sequence in range(CHANGES_MAX)]
        for _ in range(2):
            assert await store.records.commit(LOG_HASHES, [PutRecord(one) for one in hashes])
        assert await store.records.page(LOG_HASHES, "chat_1", "", 99) == hashes


async def test_a_command_reads_and_writes_beside_the_server(engine: Engine) -> None:
    """With an engine of its own that is not opened; the server finds it."""
    async with engine.opened() as store:
        await add(store, new_link(1))
        async with store.operator() as other:
            assert [page async for page in other.records.scan(LINKS)] == [[new_link(1)]]
            await other.records.load(LINKS, [new_link(1, note="other"), new_link(2)])
            await other.records.load(LINKS, [])
        assert await links_in(store) == [new_link(1, note="other"), new_link(2)]


async def test_the_number_only_rises(engine: Engine) -> None:
    """However late a lower one comes; nothing else of the record changes, and no other record."""
    async with engine.opened() as store:
        await store.records.load(API_TOKENS, [new_token(1), new_token(2)])
        for number in (30, 10, 20):
            assert await store.records.raise_to(API_TOKENS, listed(token_id(1)), number)
        await asyncio.gather(
            *(store.records.raise_to(API_TOKENS, listed(token_id(1)), 30 + number) for number in range(9))
        )
        await store.reopen()
        found = await store.records.page(API_TOKENS, ONE_LIST, "", 9)
        assert found == [new_token(1, last_used_at_ms=38), new_token(2)]


async def test_a_number_is_raised_of_a_record_only(engine: Engine) -> None:
    """It brings none back that was removed."""
    async with engine.opened() as store:
        await store.records.load(API_TOKENS, [new_token(1)])
        assert await store.records.commit(
            API_TOKENS, [RemoveRecord(listed(token_id(1)), before=new_token(1))]
        )
        assert not await store.records.raise_to(API_TOKENS, listed(token_id(1)), 5)
        assert await store.records.page(API_TOKENS, ONE_LIST, "", 9) == []
        assert [one async for page in store.records.scan(API_TOKENS) for one in page] == []


async def test_a_number_that_rises_meets_no_change(engine: Engine) -> None:
    """A record is replaced whatever its number was, keeps the higher one, and is removed."""
    async with engine.opened() as store:
        first = new_token(1, last_used_at_ms=3)
        assert await store.records.commit(API_TOKENS, [PutRecord(first, before=None)])
        await store.records.raise_to(API_TOKENS, listed(token_id(1)), 9)
        second = replace(first, name="other", last_used_at_ms=4)
        assert await store.records.commit(API_TOKENS, [PutRecord(second, before=first)])
        (found,) = await store.records.get(API_TOKENS, [listed(token_id(1))])
        assert found == replace(second, last_used_at_ms=9)
        third = replace(second, last_used_at_ms=12)
        assert await store.records.commit(API_TOKENS, [PutRecord(third, before=second)])
        await store.records.raise_to(API_TOKENS, listed(token_id(1)), 11)
        assert await store.records.get(API_TOKENS, [listed(token_id(1))]) == [third]
        assert await store.records.commit(
            API_TOKENS, [RemoveRecord(listed(token_id(1)), before=replace(third, last_used_at_ms=1))]
        )


async def test_the_number_is_kept_with_others(engine: Engine) -> None:
    """Of many changes at once, each record has its own."""
    async with engine.opened() as store:
        tokens = [new_token(number, last_used_at_ms=number) for number in range(1, 4)]
        assert await store.records.commit(API_TOKENS, [PutRecord(token, before=None) for token in tokens])
        assert await store.records.page(API_TOKENS, ONE_LIST, "", 9) == tokens


async def test_what_has_expired_goes(engine: Engine) -> None:
    """By what the record says, unless the store does so by itself; a later record stays."""
    async with engine.opened() as store:
        now_ms = store.clock()
        old, new = new_answer(1, now_ms - 8 * DAY_MS), new_answer(2, now_ms)
        renewed = replace(new_answer(3, now_ms - 8 * DAY_MS), made_at_ms=now_ms)
        await store.records.load(ANSWERS, [new_answer(3, now_ms - 8 * DAY_MS), new])
        await store.records.commit(ANSWERS, [PutRecord(renewed)])
        await store.records.load(ANSWERS, [old])
        gone = await store.records.expire(ANSWERS, now_ms)
        left = [new, renewed]
        assert await store.records.get(ANSWERS, [alone("req_2"), alone("req_3")]) == left
        if gone:
            assert gone == 1
            assert await store.records.get(ANSWERS, [alone("req_1")]) == [None]


async def test_every_table_is_reachable(engine: Engine) -> None:
    """One record of each is written, found by its key, by its partition and by a scan, and removed."""
    async with engine.opened() as store:
        for table in TABLES:
            record = one_of_each(table, store.clock())
            key = table.key(record)
            before = None if table.is_compared else WHATEVER
            assert await store.records.commit(table, [PutRecord(record, before=before)]), table
            assert await store.records.get(table, [key]) == [record], table
            assert await store.records.page(table, key[0], "", 2) == [record], table
            assert [one async for page in store.records.scan(table) for one in page] == [record], table
            if table.is_compared:
                assert await store.records.commit(table, [RemoveRecord(key, before=record)]), table
                assert await store.records.get(table, [key]) == [None], table


def test_there_is_a_sample_of_every_table() -> None:
    """With a value in every field: what is not written is not lost unseen."""
    for table in TABLES:
        record = one_of_each(table, 2**40)
        assert table.decode(table.encode(record), table.number(record)) == record
