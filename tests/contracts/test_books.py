"""The port `Book`, by that of links: records that are added once, and replaced only if they are as read."""

import asyncio

from msgspec.structs import replace

from parley.model import Link, LinkPurpose
from tests.contracts.engines import Engine


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


async def test_a_record_is_found_by_its_id(engine: Engine) -> None:
    """With all that was stored of it, also after a restart; others are not found."""
    async with engine.opened() as store:
        links = store.kinds.links
        full = new_link(2, used_by=("user_2", "user_3"), revoked_at_ms=9, user_id="user_4")
        assert await links.add(full) == full
        assert await links.add(new_link(1)) == new_link(1)
        for _ in range(2):
            links = store.kinds.links
            assert await links.get("lnk_1") == new_link(1)
            assert await links.get("lnk_2") == full
            for unknown in ("", "lnk_3", "LNK_1", "lnk_1\0"):
                assert await links.get(unknown) is None
            await store.reopen()


async def test_a_record_is_added_once(engine: Engine) -> None:
    """The first stays, whoever comes after it, and all are told what is there."""
    async with engine.opened() as store:
        links = store.kinds.links
        wanted = [new_link(1, note=str(number)) for number in range(5)]
        kept = await asyncio.gather(*(links.add(link) for link in wanted))
        assert kept == [kept[0]] * 5
        assert kept[0] in wanted
        assert await links.get("lnk_1") == kept[0]


async def test_one_of_many_replaces_it(engine: Engine) -> None:
    """Of those who read the same and replace it at once, one does; so it is with the next round."""
    async with engine.opened() as store:
        links, before = store.kinds.links, new_link()
        await links.add(before)
        for turn in range(2):
            afters = [replace(before, used_by=(*before.used_by, f"user_{turn}{n}")) for n in range(5)]
            done = await asyncio.gather(*(links.swap(before, after) for after in afters))
            assert sum(done) == 1
            before = afters[done.index(True)]
            assert await links.get("lnk_1") == before
        assert not await links.swap(new_link(9), new_link(9, note="other"))
        assert await links.get("lnk_9") is None


async def test_pages_go_from_the_newest_to_the_oldest(engine: Engine) -> None:
    """Each page goes on below the one before; a book knows nothing of the others."""
    async with engine.opened() as store:
        links = store.kinds.links
        for number in (3, 1, 5, 2, 4):
            await links.add(new_link(number))
        found, before = [], ""
        while page := await links.page(before, 2):
            found += [link.link_id for link in page]
            before = page[-1].link_id
        assert found == ["lnk_5", "lnk_4", "lnk_3", "lnk_2", "lnk_1"]
        assert await store.kinds.reports.page("", 10) == []


async def test_a_removed_record_stays_away(engine: Engine) -> None:
    """Nobody reads it again, nor replaces it; others stay."""
    async with engine.opened() as store:
        links = store.kinds.links
        await links.add(new_link(1))
        await links.add(new_link(2))
        assert await links.remove("lnk_1")
        assert not await links.remove("lnk_1")
        assert not await links.swap(new_link(1), new_link(1, note="late"))
        await store.reopen()
        assert await store.kinds.links.page("", 10) == [new_link(2)]
