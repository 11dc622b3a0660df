"""Who may post in a group, and how often: on every engine and in both modes."""

import pytest

from parley.clock import MS_PER_SECOND
from parley.errors import ANNOUNCEMENT_ONLY, SLOW_MODE, Refusal
from parley.model import Action, Appended, Draft, Outcome, Role
from tests.contracts.acting import add_group, add_people, change, message, posting, stored
from tests.contracts.engines import Engine, OpenStore

SLOW_SECONDS = 30


async def told(store: OpenStore, *drafts: Draft) -> list[Outcome]:
    return (await store.log.append(drafts)).outcomes


async def of_three(store: OpenStore) -> tuple[str, str, str, str]:
    """A group of an owner, an admin and a member."""
    ann, ben, cat = await add_people(store, "ann", "ben", "cat")
    chat = await add_group(store, ann, ben, cat)
    await stored(store, change(chat, ann, Action.ROLE, ben, Role.ADMIN))
    return chat, ann, ben, cat


async def test_what_a_chat_says_about_posting(engine: Engine) -> None:
    """Each setting changes alone and stays, also after a restart."""
    async with engine.opened() as store:
        chat, ann, ben, _ = await of_three(store)
        await stored(store, posting(chat, ann, announcement_only=True))
        await stored(store, posting(chat, ben, slow_mode_seconds=SLOW_SECONDS))
        for _ in range(2):
            found = await store.directory.chat(chat)
            assert found is not None
            assert (found.announcement_only, found.slow_mode_seconds) == (True, SLOW_SECONDS)
            await store.reopen()


async def test_only_admins_post_announcements(engine: Engine) -> None:
    """From its entry on a member is refused, in the same batch too, until it is lifted."""
    async with engine.opened() as store:
        chat, ann, ben, cat = await of_three(store)
        early, late = message(chat, cat, "early"), message(chat, cat, "late")
        first = await told(store, early, posting(chat, ann, announcement_only=True), late)
        assert [type(outcome) for outcome in first] == [Appended, Appended, Refusal]
        assert first[2] == ANNOUNCEMENT_ONLY
        await store.reopen()
        assert (await told(store, message(chat, cat)))[0] == ANNOUNCEMENT_ONLY
        again, by_admin = await told(store, early, message(chat, ben))
        assert isinstance(again, Appended)
        assert again.deduplicated
        assert isinstance(by_admin, Appended)
        await stored(store, posting(chat, ann, announcement_only=False))
        await stored(store, late)


@pytest.mark.parametrize("reopens", [False, True])
async def test_slow_mode_lets_a_member_send_now_and_then(engine: Engine, reopens: bool) -> None:
    """One message per stretch of time, also of what was sent before; the refusal says how long to wait."""
    async with engine.opened() as store:
        chat, ann, ben, cat = await of_three(store)
        first = message(chat, cat, "first")
        await stored(store, first)
        await stored(store, posting(chat, ann, slow_mode_seconds=SLOW_SECONDS))
        store.clock.advance(10 * MS_PER_SECOND)
        if reopens:
            await store.reopen()
        second = message(chat, cat, "second")
        refused, again, by_admin = await told(store, second, first, message(chat, ben))
        assert refused == SLOW_MODE.after((SLOW_SECONDS - 10) * MS_PER_SECOND)
        assert refused.temporary
        assert isinstance(again, Appended)
        assert again.deduplicated
        assert isinstance(by_admin, Appended)
        store.clock.advance((SLOW_SECONDS - 10) * MS_PER_SECOND)
        outcomes = await told(store, second, message(chat, cat, "third"))
        assert isinstance(outcomes[0], Appended)
        assert outcomes[1] == SLOW_MODE.after(SLOW_SECONDS * MS_PER_SECOND)
        if reopens:
            await store.reopen()
        assert isinstance((await told(store, message(chat, cat)))[0], Refusal)
        await stored(store, posting(chat, ann, slow_mode_seconds=0))
        await stored(store, message(chat, cat))


async def test_a_member_may_not_decide_it(engine: Engine) -> None:
    """Nor may anybody in a direct chat."""
    async with engine.opened() as store:
        chat, _, _, cat = await of_three(store)
        (refused,) = await told(store, posting(chat, cat, slow_mode_seconds=0))
        assert isinstance(refused, Refusal)
        assert refused.code == "forbidden"
