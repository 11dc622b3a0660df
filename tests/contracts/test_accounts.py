"""The `Accounts` port."""

import asyncio

import pytest
from msgspec.structs import replace

from parley import ids
from parley.clock import MS_PER_DAY, iso
from parley.model import Privacy, Session, User
from parley.wire.limits import SESSION_DAYS
from tests.contracts.acting import add_person
from tests.contracts.engines import Engine, OpenStore


async def test_a_person_is_found_by_id_and_by_name(engine: Engine) -> None:
    """An added person is found both ways, with the hash by name only, also after a restart."""
    async with engine.opened() as store:
        user = new_user(store, "ann")
        assert await store.accounts.add_user(user, "hash")
        for _ in range(2):
            assert await store.accounts.user(user.user_id) == user
            assert await store.accounts.user_by_name("ann") == (user, "hash")
            await store.reopen()


async def test_nobody_unknown_is_found(engine: Engine) -> None:
    """Names match exactly, letter by letter."""
    async with engine.opened() as store:
        await add_person(store, "ann")
        for name in ("", "ANN", "ann ", "ann\0", "an", "%"):
            assert await store.accounts.user_by_name(name) is None
        assert await store.accounts.user("user_unknown") is None


async def test_a_username_is_taken_once(engine: Engine) -> None:
    """Of many who want one name at once, one gets it, and the others are not stored."""
    async with engine.opened() as store:
        users = [new_user(store, "ann") for _ in range(5)]
        added = await asyncio.gather(*(store.accounts.add_user(user, "hash") for user in users))
        assert added.count(True) == 1
        found = [user for user in users if await store.accounts.user(user.user_id)]
        assert found == [users[added.index(True)]]


async def test_a_person_is_added_once(engine: Engine) -> None:
    """Asked for again, in the same words or others, nothing is added and nothing changes."""
    async with engine.opened() as store:
        ann = new_user(store, "ann")
        assert await store.accounts.add_user(ann, "hash")
        for again, password_hash in ((ann, "hash"), (ann, "other"), (replace(ann, username="bea"), "hash")):
            assert not await store.accounts.add_user(again, password_hash)
        assert await store.accounts.user_by_name("ann") == (ann, "hash")
        assert await store.accounts.user_by_name("bea") is None


async def test_a_profile_is_changed_without_the_password(engine: Engine) -> None:
    """Changing a profile keeps the hash unless one is given, and touches nobody else."""
    async with engine.opened() as store:
        ann, ben = new_user(store, "ann"), new_user(store, "ben")
        await store.accounts.add_user(ann, "old")
        await store.accounts.add_user(ben, "ben's")
        ann = replace(ann, display_name="Ann \0 👩", about="about\n", is_operator=True)
        await store.accounts.update_user(ann)
        assert await store.accounts.user_by_name("ann") == (ann, "old")
        await store.accounts.update_user(ann, "new")
        assert await store.accounts.user_by_name("ann") == (ann, "new")
        assert await store.accounts.user_by_name("ben") == (ben, "ben's")


@pytest.mark.parametrize("privacy", Privacy)
async def test_settings_are_kept(engine: Engine, privacy: Privacy) -> None:
    """What a person lets others see is stored with the person, from the start and after every change."""
    async with engine.opened() as store:
        ann = replace(new_user(store, "ann"), last_seen_privacy=privacy, send_read_receipts=False)
        await store.accounts.add_user(ann, "hash")
        ben = new_user(store, "ben")
        await store.accounts.add_user(ben, "hash")
        ben = replace(ben, last_seen_privacy=privacy, send_read_receipts=False)
        await store.accounts.update_user(ben)
        for _ in range(2):
            assert [await store.accounts.user(user.user_id) for user in (ann, ben)] == [ann, ben]
            await store.reopen()


async def test_being_seen_is_kept_and_only_rises(engine: Engine) -> None:
    """The latest time counts, whichever was noted last, before a flush and after it, also after a restart."""
    async with engine.opened() as store:
        ann, ben = await add_person(store, "ann"), await add_person(store, "ben")
        assert await last_seen(store, ann) is None
        for later_ms in (5, 7, 3):
            store.accounts.note_seen(ann, store.clock() + later_ms)
        await store.kinds.raised.flush()
        store.accounts.note_seen(ann, store.clock() + 6)
        await store.kinds.raised.flush()
        for _ in range(2):
            assert await last_seen(store, ann) == iso(store.clock() + 7)
            assert await last_seen(store, ben) is None
            await store.reopen()


async def test_closing_keeps_who_was_seen(engine: Engine) -> None:
    """What was noted before a proper end is kept without a flush."""
    async with engine.opened() as store:
        ann = await add_person(store, "ann")
        store.accounts.note_seen(ann, store.clock())
        await store.reopen()
        assert await last_seen(store, ann) == iso(store.clock())


async def test_nobody_changes_when_they_were_seen(engine: Engine) -> None:
    """Changing a profile leaves alone when the person was seen, whatever it says of that."""
    async with engine.opened() as store:
        ann = new_user(store, "ann")
        await store.accounts.add_user(ann, "hash")
        store.accounts.note_seen(ann.user_id, store.clock())
        await store.kinds.raised.flush()
        for said in (None, iso(store.clock() + 60_000)):
            await store.accounts.update_user(replace(ann, about="new", last_seen=said), "hash")
            found = await store.accounts.user(ann.user_id)
            assert found == replace(ann, about="new", last_seen=iso(store.clock()))


async def test_seeing_somebody_unknown_makes_nobody(engine: Engine) -> None:
    """A note about a person who does not exist changes nothing."""
    async with engine.opened() as store:
        store.accounts.note_seen("user_unknown", store.clock())
        await store.kinds.raised.flush()
        assert await store.accounts.user("user_unknown") is None
        assert store.breaches() == []


async def test_a_session_is_found_by_its_tokens_hash(engine: Engine) -> None:
    """A session is found by exactly its own hash, however old, also after a restart."""
    async with engine.opened() as store:
        ann = await add_person(store, "ann")
        session = new_session(store, ann, "phone")
        await store.sessions.add(session, b"\0" * 31 + b"\1")
        store.clock.advance(400 * MS_PER_DAY)
        for _ in range(2):
            assert await store.sessions.by_token(b"\0" * 31 + b"\1") == session
            assert await store.sessions.by_token(b"\0" * 32) is None
            await store.reopen()


async def test_a_recheck_finds_what_exists_and_nothing_that_ended(engine: Engine) -> None:
    """Asked for again, by many at once, a session is there as long as it exists, also if it is quite new."""
    async with engine.opened() as store:
        ann = await add_person(store, "ann")
        hashes = [bytes([number]) for number in range(1, 4)]
        made = [await add_session(store, ann, f"device {token_hash!r}", token_hash) for token_hash in hashes]

        async def recheck(token_hash: bytes) -> Session | None:
            return await store.sessions.by_token(token_hash, is_recheck=True)

        asked = [*hashes, b"unknown", hashes[0]]
        assert await asyncio.gather(*map(recheck, asked)) == [*made, None, made[0]]
        await store.sessions.end(ann, [made[0].session_id])
        assert await asyncio.gather(*map(recheck, hashes)) == [None, *made[1:]]


async def test_sessions_are_listed_by_their_last_use(engine: Engine) -> None:
    """A person's sessions come the last used first, and nobody else's."""
    async with engine.opened() as store:
        ann, ben = await add_person(store, "ann"), await add_person(store, "ben")
        old = await add_session(store, ann, "old", b"1")
        store.clock.advance(1_000)
        new = await add_session(store, ann, "new", b"2")
        await add_session(store, ben, "his", b"3")
        assert await store.sessions.of(ann) == [new, old]
        store.sessions.note_used(b"1", store.clock() + 1)
        await store.kinds.raised.flush()
        assert [session.device_id for session in await store.sessions.of(ann)] == ["old", "new"]


async def test_use_prolongs_a_session(engine: Engine) -> None:
    """A session that is used lives for another 30 days from then, and an older use changes nothing."""
    async with engine.opened() as store:
        ann = await add_person(store, "ann")
        await add_session(store, ann, "phone", b"1")
        used_ms = store.clock() + 10 * MS_PER_DAY
        store.sessions.note_used(b"1", used_ms)
        await store.kinds.raised.flush()
        store.sessions.note_used(b"1", used_ms - 5)
        await store.kinds.raised.flush()
        found = await store.sessions.by_token(b"1")
        assert found is not None
        assert (found.last_used_at_ms, found.expires_at_ms) == (used_ms, used_ms + SESSION_DAYS * MS_PER_DAY)


async def test_ended_sessions_are_forgotten(engine: Engine) -> None:
    """Ending tells which of the named sessions existed; they are gone at once and for good."""
    async with engine.opened() as store:
        ann = await add_person(store, "ann")
        one = await add_session(store, ann, "one", b"1")
        two = await add_session(store, ann, "two", b"2")
        ended = await store.sessions.end(ann, [one.session_id, "ses_unknown"])
        assert ended == [one.session_id]
        assert await store.sessions.end(ann, [one.session_id]) == []
        await store.reopen()
        assert await store.sessions.by_token(b"1") is None
        assert await store.sessions.of(ann) == [two]


async def test_nobody_ends_anothers_session(engine: Engine) -> None:
    """A session is ended in the name of its own person only."""
    async with engine.opened() as store:
        ann, ben = await add_person(store, "ann"), await add_person(store, "ben")
        session = await add_session(store, ann, "phone", b"1")
        assert await store.sessions.end(ben, [session.session_id]) == []
        assert await store.sessions.by_token(b"1") == session


async def test_using_an_ended_session_brings_nothing_back(engine: Engine) -> None:
    """A use that is noted late does not revive what was ended."""
    async with engine.opened() as store:
        ann = await add_person(store, "ann")
        session = await add_session(store, ann, "phone", b"1")
        store.sessions.note_used(b"1", store.clock() + 60_000)
        await store.sessions.end(ann, [session.session_id])
        await store.kinds.raised.flush()
        assert await store.sessions.by_token(b"1") is None


async def test_one_device_may_have_many_sessions(engine: Engine) -> None:
    """A second session of a device leaves the first as it is."""
    async with engine.opened() as store:
        ann = await add_person(store, "ann")
        await add_session(store, ann, "phone", b"1")
        await add_session(store, ann, "phone", b"2")
        assert len(await store.sessions.of(ann)) == 2


async def last_seen(store: OpenStore, user_id: str) -> str | None:
    user = await store.accounts.user(user_id)
    assert user is not None
    return user.last_seen


def new_user(store: OpenStore, username: str) -> User:
    now_ms = store.clock()
    return User(store.ids.next(ids.USER, now_ms), username, username, "", False, iso(now_ms))


def new_session(store: OpenStore, user_id: str, device_id: str) -> Session:
    now_ms = store.clock()
    session_id = store.ids.next(ids.SESSION, now_ms)
    expires_ms = now_ms + SESSION_DAYS * MS_PER_DAY
    return Session(session_id, user_id, device_id, "a \0 name", now_ms, now_ms, expires_ms)


async def add_session(store: OpenStore, user_id: str, device_id: str, token_hash: bytes) -> Session:
    session = new_session(store, user_id, device_id)
    await store.sessions.add(session, token_hash)
    return session
