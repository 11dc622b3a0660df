"""Replies, edits, deletes and reactions on every engine and in both modes, in both tiers."""

import asyncio
from itertools import product
from pathlib import Path
from typing import cast

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from parley.core import log_hash
from parley.core.marks import AmendmentNote, edit_mark, reaction_mark
from parley.core.message_actions import replay
from parley.errors import (
    EDIT_WINDOW_OVER,
    FORBIDDEN,
    MESSAGE_DELETED,
    NO_SUCH_MESSAGE,
    NOT_A_MEMBER,
    TOO_MANY_REACTIONS,
    UNDER_HOLD,
    OutcomeUnknown,
    Refusal,
    Refused,
    StoreUnavailable,
)
from parley.model import Action, Appended, Draft, Role
from parley.records.amendments import Amendments
from parley.sending import message_actions as message_life
from parley.sending.amended_log import AmendedLog
from parley.store.dynamodb import scans
from parley.store.ports import Replaced
from parley.store.rows import ChatRetention
from parley.wire.limits import REACTIONS_MAX
from tests.contracts.acting import (
    add_direct,
    add_group,
    add_people,
    change,
    decode_entry,
    message,
    new_id,
    stored,
)
from tests.contracts.cold_world import ColdWorld, synced
from tests.contracts.engines import ENGINES, Engine, OpenStore, SqliteEngine
from tests.contracts.life_world import LifeWorld, delete, edit, react, reply
from tests.contracts.test_retention import all_content, raw_bytes

SECOND_MS = 1_000


@pytest.fixture(autouse=True)
def _look_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks broken on DynamoDB is broken: nobody writes meanwhile."""
    monkeypatch.setattr(scans, "READ_AGAIN_SECONDS", 0.0)


async def two_people(store: OpenStore) -> tuple[str, str, str]:
    ann, ben = await add_people(store, "ann", "ben")
    return ann, ben, await add_group(store, ann, ben)


async def unread_of(store: OpenStore, user_id: str) -> int:
    (shown,) = (await store.overviews.changed(user_id, "phone", None, 10)).positions
    return shown.unread


async def test_an_edited_message_is_read_with_its_newest_content(engine: Engine) -> None:
    """Two of a batch, which share an item, and one alone; the edits are entries, and idempotent."""
    async with engine.opened() as store:
        ann, _, chat = await two_people(store)
        world = LifeWorld(store)
        await store.log.append([message(chat, ann, f"first {at}") for at in range(3)])
        await stored(store, message(chat, ann, "alone"))
        before = await world.entries(chat)
        for target in (before[1], before[3]):
            draft = edit(chat, ann, target.message_id, f"better {target.sequence}")
            done = await world.done(draft)
            store.clock.advance(1)
            again = await world.done(draft)
            assert (again.sequence, again.deduplicated, again.conflict) == (done.sequence, True, False)
        after = await world.entries(chat)
        assert [entry.content for entry in after] == [
            "first 0", "better 2", "first 2", "better 4", "better 2", "better 4",
        ]  # fmt: skip
        assert [entry.kind for entry in after[4:]] == ["edit", "edit"]
        assert [entry.target_id for entry in after[4:]] == [before[1].message_id, before[3].message_id]
        assert (after[1].edited_at, after[1].edit_sequence) == (after[4].created_at, 5)
        assert (after[0], after[2]) == (before[0], before[2])
        assert store.breaches() == []


async def test_the_newest_edit_counts_in_whatever_order_they_are_finished(engine: Engine) -> None:
    """Two nodes edit one message; the one with the older edit is slower."""
    async with engine.opened() as store:
        ann, _, chat = await two_people(store)
        world = LifeWorld(store)
        first = await stored(store, message(chat, ann, "one"))
        old, new = edit(chat, ann, first.message_id, "two"), edit(chat, ann, first.message_id, "three")
        old.target = new.target = await world.life._target(old)
        for draft in (old, new):
            await stored(store, draft)
        entries = await world.entries(chat)
        for edited_by in (entries[2], entries[1]):
            await world.life._apply(edited_by, first.sequence)
        shown = await world.entries(chat)
        assert (shown[0].content, shown[0].edit_sequence) == ("three", 3)


async def test_a_deleted_message_keeps_its_place_and_loses_its_body(engine: Engine) -> None:
    """With all its edits; others' messages stay; it no longer counts as unread."""
    async with engine.opened() as store:
        ann, ben, chat = await two_people(store)
        world = LifeWorld(store)
        await store.log.append([message(chat, ann, f"secret {at}") for at in range(3)])
        target = (await world.entries(chat))[1]
        await world.done(edit(chat, ann, target.message_id, "secret again"))
        assert await unread_of(store, ben) == 3
        draft = delete(chat, ann, target.message_id)
        done = await world.done(draft)
        assert await unread_of(store, ben) == 2
        shown = await world.entries(chat)
        assert [(entry.content, entry.deleted) for entry in shown] == [
            ("secret 0", UNSET), ("", True), ("secret 2", UNSET), ("", True), ("", UNSET),
        ]  # fmt: skip
        assert (shown[1].message_id, shown[4].target_id) == (target.message_id, target.message_id)
        again = await world.done(draft)
        assert (again.sequence, again.deduplicated) == (done.sequence, True)
        assert await world.try_send(edit(chat, ann, target.message_id, "no")) == MESSAGE_DELETED
        assert await world.amendments.under_way() == []
        assert store.breaches() == []


async def test_the_hash_of_the_log_stays_what_it_was(engine: Engine) -> None:
    """Of every position, whatever was edited or deleted after it was hashed."""
    async with engine.opened() as store:
        ann, _, chat = await two_people(store)
        world = LifeWorld(store)
        await store.log.append([message(chat, ann, f"text {at}") for at in range(3)])
        first, second, _ = await world.entries(chat)
        await world.done(edit(chat, ann, first.message_id, "new"))
        await world.done(reply(chat, ann, first.message_id, "so?"))
        await world.done(react(chat, ann, first.message_id, "👍", on=True))
        wires = [wire for _, wire in await synced(world.log, chat) if wire is not None]
        before = log_hash.following(log_hash.empty_log(chat), 0, wires, [])
        await world.done(edit(chat, ann, first.message_id, "newer"))
        await world.done(delete(chat, ann, first.message_id))
        await world.done(delete(chat, ann, second.message_id))
        wires = [wire for _, wire in await synced(world.log, chat) if wire is not None]
        after = log_hash.following(log_hash.empty_log(chat), 0, wires, [])
        assert after[: len(before)] == before
        was = decode_entry(wires[4])
        for other in (replace(was, reply_to="msg_1"), replace(was, reply_to=UNSET)):
            assert log_hash.after_entry(before[3], other) != before[4], "what it answers counts"


async def test_reactions_are_a_set_of_each_person(engine: Engine) -> None:
    """The same twice changes nothing, and so does taking back what is not there."""
    async with engine.opened() as store:
        ann, ben, chat = await two_people(store)
        world = LifeWorld(store)
        target = (await stored(store, message(chat, ann, "hi"))).message_id
        for sender, reaction, on in [
            (ann, "👍", True), (ben, "👍", True), (ben, "👍", True), (ben, "🎉", True),
            (ann, "🎉", False), (ann, "👎", True), (ann, "👎", False),
        ]:  # fmt: skip
            await world.done(react(chat, sender, target, reaction, on))
        shown = await world.life.message(ben, chat, target)
        assert [(one.reaction, one.count, one.user_ids) for one in shown.reactions] == [
            ("👍", 2, sorted([ann, ben])),
            ("🎉", 1, [ben]),
        ]
        assert await unread_of(store, ben) == 1, "reactions are not unread"
        entry = (await world.entries(chat))[-1]
        assert (entry.kind, entry.reaction, entry.on, entry.content) == ("reaction", "👎", False, "👎")


async def test_a_message_has_so_many_different_reactions(engine: Engine) -> None:
    """One more is refused; one that is there already is not, and one that was taken back makes room."""
    async with engine.opened() as store:
        ann, ben, chat = await two_people(store)
        world = LifeWorld(store)
        target = (await stored(store, message(chat, ann, "hi"))).message_id
        for at in range(REACTIONS_MAX):
            await world.done(react(chat, ann, target, f"r{at}"))
        assert await world.try_send(react(chat, ben, target, "one more")) == TOO_MANY_REACTIONS
        await world.done(react(chat, ben, target, "r0"))
        await world.done(react(chat, ann, target, "r1", on=False))
        await world.done(react(chat, ben, target, "one more"))


async def test_replies_are_counted_until_they_are_deleted(engine: Engine) -> None:
    """A reply names its message, and one to no message is refused."""
    async with engine.opened() as store:
        ann, ben, chat = await two_people(store)
        world = LifeWorld(store)
        target = (await stored(store, message(chat, ann, "hi"))).message_id
        first = await world.done(reply(chat, ben, target, "a"))
        await world.done(reply(chat, ann, target, "b"))
        assert (await world.life.message(ann, chat, target)).reply_count == 2
        assert (await world.entries(chat))[1].reply_to == target
        await world.done(delete(chat, ben, first.message_id))
        assert (await world.life.message(ann, chat, target)).reply_count == 1
        assert await world.try_send(reply(chat, ben, "msg_00000000000000000000000000", "?")) == (
            NO_SUCH_MESSAGE
        )


async def test_who_may_do_what_to_whose_message(engine: Engine) -> None:
    """Edits are for the sender, deletes also for owners and admins of a group; strangers learn nothing."""
    async with engine.opened() as store:
        ann, ben, cleo, dan, eve = await add_people(store, "ann", "ben", "cleo", "dan", "eve")
        group = await add_group(store, ann, ben, cleo, dan)
        await stored(store, change(group, ann, Action.ROLE, cleo, Role.ADMIN))
        direct = await add_direct(store, ann, ben)
        world = LifeWorld(store)
        outcomes: dict[tuple[str, str], list[str]] = {}
        for chat, make in product((group, direct), (edit, delete)):
            for who in (ann, ben, cleo, dan, eve):
                target = (await stored(store, message(chat, ben, "ben's"))).message_id
                draft = make(chat, who, target, "x") if make is edit else delete(chat, who, target)
                told = await world.try_send(draft)
                name = ("group" if chat == group else "direct", draft.kind)
                outcomes.setdefault(name, []).append(told.code if isinstance(told, Refusal) else "ok")
        assert outcomes == {
            ("group", "edit"): ["forbidden", "ok", "forbidden", "forbidden", "not_a_member"],
            ("group", "delete"): ["ok", "ok", "ok", "forbidden", "not_a_member"],
            ("direct", "edit"): ["forbidden", "ok", *["not_a_member"] * 3],
            ("direct", "delete"): ["forbidden", "ok", *["not_a_member"] * 3],
        }


async def test_what_is_no_message_of_the_chat_cannot_be_changed(engine: Engine) -> None:
    """One of another chat, an edit, a member entry, nothing at all."""
    async with engine.opened() as store:
        ann, ben, chat = await two_people(store)
        world = LifeWorld(store)
        other = await stored(store, message(await add_group(store, ann, ben), ann, "elsewhere"))
        mine = await stored(store, message(chat, ann, "mine"))
        edited = await world.done(edit(chat, ann, mine.message_id, "x"))
        role = await stored(store, change(chat, ann, Action.ROLE, ben, Role.ADMIN))
        for target in (
            other.message_id,
            edited.message_id,
            role.message_id,
            "msg_00000000000000000000000000",
        ):
            for draft in (
                edit(chat, ann, target, "y"),
                delete(chat, ann, target),
                react(chat, ann, target, "x"),
            ):
                assert await world.try_send(draft) == NO_SUCH_MESSAGE
        eve = (await add_people(store, "eve"))[0]
        assert await world.try_send(react(chat, eve, mine.message_id, "x")) == NOT_A_MEMBER


async def test_a_message_is_edited_within_its_window_and_never_under_a_hold(engine: Engine) -> None:
    """A reaction removes nothing, so a hold lets it be."""
    async with engine.opened() as store:
        ann, _, chat = await two_people(store)
        world = LifeWorld(store, window_seconds=60)
        target = (await stored(store, message(chat, ann, "one"))).message_id
        store.clock.advance(60 * SECOND_MS)
        await world.done(edit(chat, ann, target, "two"))
        store.clock.advance(1)
        assert await world.try_send(edit(chat, ann, target, "three")) == EDIT_WINDOW_OVER
        await store.kinds.retentions.decide(chat, ChatRetention(is_held=True))
        assert await world.try_send(delete(chat, ann, target)) == UNDER_HOLD
        await world.done(react(chat, ann, target, "x"))
        assert (await world.entries(chat))[0].content == "two"


async def test_an_older_mark_changes_nothing(engine: Engine) -> None:
    """In whatever order marks come; each message has its own, and they are read in the order of names."""
    async with engine.opened() as store:
        _, ben, chat = await two_people(store)
        amendments = LifeWorld(store).amendments
        newer = reaction_mark(chat, 1, ben, "x", 7, is_on=False)
        for mark in (newer, newer, reaction_mark(chat, 1, ben, "x", 5, is_on=True)):
            await amendments.mark([mark])
        await amendments.mark([edit_mark(chat, 1, 3), edit_mark(chat, 2, 4)])
        assert await amendments.marks(chat, 1) == [edit_mark(chat, 1, 3), newer]
        assert await amendments.marks(chat, 2) == [edit_mark(chat, 2, 4)]
        key, other = b"k" * 16, b"l" * 16
        notes = [AmendmentNote(chat, key, 1, 10), AmendmentNote(chat, other, 2, 11)]
        for note in (*notes, notes[0]):
            await amendments.begin(note)
        assert sorted(one.target for one in await amendments.under_way(chat)) == [1, 2]
        for _ in range(2):
            await amendments.finish(notes[0])
        assert await amendments.under_way(chat) == await amendments.under_way() == notes[1:]
        await amendments.finish(notes[1])


async def test_an_entry_is_replaced_only_if_it_is_what_was_read(engine: Engine) -> None:
    """Whoever has read something older is told so, and writes nothing."""
    async with engine.opened() as store:
        ann, _, chat = await two_people(store)
        await stored(store, message(chat, ann, "one"))
        (read,) = (await store.log.read(chat, 0, 1)).entries
        two, three = (read.replace(b'"one"', new) for new in (b'"two"', b'"three"'))
        entries = store.engine.entries
        assert await entries.replace(chat, {1: Replaced(after=two, before=read)}) == [1]
        assert await entries.replace(chat, {1: Replaced(after=three, before=read)}) == []
        assert (await store.log.read(chat, 0, 1)).entries == [two]


async def test_an_older_edit_window_changes_nothing(engine: Engine) -> None:
    """By the entries that say it: nodes may note them in another order."""
    async with engine.opened() as store:
        settings = store.kinds.chat_settings
        for seconds, at in ((60, 2), (None, 4), (30, 3)):
            await settings.note_edit_window("chat_1", seconds, at)
        (found,) = await settings.of(["chat_1"])
        assert (found.edit_window_seconds, found.edit_window_at) == (None, 4)


async def test_a_chat_may_have_an_edit_window_of_its_own(engine: Engine) -> None:
    """By an entry of an owner or admin, or of either person of a direct chat; the last one counts."""
    async with engine.opened() as store:
        ann, ben, chat = await two_people(store)
        direct = await add_direct(store, ann, ben)
        world = LifeWorld(store, window_seconds=60)
        life, target = world.life, (await stored(store, message(chat, ann, "one"))).message_id
        assert await life.edit_window(chat) == 60
        await life.set_edit_window(chat, ann, 10, new_id())
        with pytest.raises(Refused) as refused:
            await life.set_edit_window(chat, ben, 0, new_id())
        assert refused.value.refusal == FORBIDDEN
        await life.set_edit_window(direct, ben, 0, new_id())
        assert (await life.edit_window(chat), await life.edit_window(direct)) == (10, 0)
        store.clock.advance(11 * SECOND_MS)
        assert await world.try_send(edit(chat, ann, target, "late")) == EDIT_WINDOW_OVER
        await life.set_edit_window(chat, ann, 20, new_id())
        await life.set_edit_window(chat, ann, 10, new_id())
        assert await life.edit_window(chat) == 10
        await life.set_edit_window(chat, ann, None, new_id())
        await world.done(edit(chat, ann, target, "in time"))
        assert await world.amendments.under_way() == []
        assert store.breaches() == []


async def test_an_overview_shows_the_newest_content(engine: Engine) -> None:
    """Of the last entry, after edits and deletes of it and of others; a brief one has none."""
    async with engine.opened() as store:
        ann, ben, chat = await two_people(store)
        world = LifeWorld(store)
        first = (await stored(store, message(chat, ann, "one"))).message_id
        token = (await store.overviews.changed(ben, "phone", None, 10)).token
        for done, shown in (
            (edit(chat, ann, first, "two"), ("edit", "two")),
            (reply(chat, ben, first, "yes"), ("message", "yes")),
            (react(chat, ben, first, "x"), ("reaction", "x")),
            (delete(chat, ann, first), ("delete", "")),
        ):
            await world.done(done)
            page = await store.overviews.changed(ben, "phone", token, 10)
            (row,) = page.positions
            assert row.last_entry is not None
            last = decode_entry(row.last_entry)
            assert (last.kind, last.content) == shown
            token = page.token
        second = (await stored(store, message(chat, ann, "three"))).message_id
        (row,) = (await store.overviews.changed(ben, "phone", token, 10)).positions
        await crash_behind(world, delete(chat, ann, second))
        store.clock.advance(message_life.UNFINISHED_MS + 1)
        await world.life.look()
        (row,) = (await store.overviews.changed(ben, "phone", None, 10)).positions
        assert b"three" not in (row.last_entry or b"")


async def test_what_a_crash_left_half_done_is_finished(engine: Engine) -> None:
    """The process died behind the entry of each; another one looks for it a minute later."""
    async with engine.opened() as store:
        ann, ben, chat = await two_people(store)
        world = LifeWorld(store)
        texts = [await stored(store, message(chat, ann, f"secret {at}")) for at in range(4)]
        drafts = [
            edit(chat, ann, texts[0].message_id, "new"),
            delete(chat, ann, texts[1].message_id),
            react(chat, ben, texts[2].message_id, "x"),
            reply(chat, ben, texts[3].message_id, "so?"),
        ]
        for draft in drafts:
            await crash_behind(world, draft)
        never = edit(chat, ann, texts[3].message_id, "never stored")
        await note(world, never)
        await world.life.look()
        assert len(await world.amendments.under_way()) == 5, "they may still be at work"
        store.clock.advance(message_life.UNFINISHED_MS + 1)
        await world.life.look()
        assert await world.amendments.under_way() == []
        shown = await world.entries(chat)
        assert [entry.content for entry in shown[:4]] == ["new", "", "secret 2", "secret 3"]
        assert [one.reaction for one in (await world.life.message(ann, chat, texts[2].message_id)).reactions]
        assert (await world.life.message(ann, chat, texts[3].message_id)).reply_count == 1


async def test_a_delete_waits_for_those_who_forget_and_keeps_no_other(engine: Engine) -> None:
    """While one does not confirm it, the outcome is unknown, and the job does what is left in other chats."""
    async with engine.opened() as store:
        ann, ben, stuck = await two_people(store)
        other = await add_group(store, ann, ben)
        world, is_stuck = LifeWorld(store), [True]

        async def forget(chat_id: str, sequences: list[int]) -> None:
            assert sequences == [1]
            if chat_id == stuck and is_stuck[0]:
                raise StoreUnavailable("a node does not answer")

        world.life._forget = forget
        drafts = {
            chat: delete(chat, ann, (await stored(store, message(chat, ann, "secret"))).message_id)
            for chat in (stuck, other)
        }
        with pytest.raises(OutcomeUnknown):
            await world.life.send(drafts[stuck])
        await crash_behind(world, drafts[other])
        store.clock.advance(message_life.UNFINISHED_MS + 1)
        with pytest.raises(StoreUnavailable):
            await world.life.look()
        assert [one.chat_id for one in await world.amendments.under_way()] == [stuck]
        is_stuck[0] = False
        assert (await world.done(drafts[stuck])).deduplicated
        assert await world.amendments.under_way() == []


async def test_what_is_stored_is_read_as_done(engine: Engine) -> None:
    """Of a delete and an edit whose process died behind their entries, and of an edit that came too late."""
    async with engine.opened() as store:
        ann, _, chat = await two_people(store)
        world = LifeWorld(store)
        gone, changed, kept = [
            (await stored(store, message(chat, ann, text))).message_id for text in ("SECRET", "helo", "other")
        ]
        await world.done(edit(chat, ann, gone, "SECRET edit"))
        late, unstored = edit(chat, ann, gone, "SECRET late"), delete(chat, ann, kept)
        await note(world, late)
        await note(world, unstored)
        doomed = delete(chat, ann, gone)
        await crash_behind(world, doomed)
        await crash_behind(world, edit(chat, ann, changed, "hello"))
        await stored(store, late)
        shown = ["", "hello", "other", "", "", "hello", ""]
        assert [entry.content for entry in await world.shown(chat)] == shown
        reader = world.reader
        for at, content in enumerate(shown):
            (alone,) = (await reader.read(chat, at, 1)).entries
            (before,) = (await reader.read_before(chat, at + 2, 1)).entries
            assert decode_entry(alone).content == decode_entry(before).content == content
        assert late.client_key is not None
        assert b"SECRET" not in (await reader.find_key(chat, late.client_key) or b"")
        assert (await world.life.message(ann, chat, gone)).entry.deleted is True
        assert await world.try_send(edit(chat, ann, gone, "no")) == MESSAGE_DELETED
        store.clock.advance(message_life.UNFINISHED_MS + 1)
        await world.life.look()
        assert [entry.content for entry in await world.entries(chat)] == shown
        latest = edit(chat, ann, gone, "SECRET latest")
        latest.target = late.target
        assert latest.target is not None
        assert latest.client_key is not None
        await world.amendments.begin(
            AmendmentNote(chat, latest.client_key, latest.target.sequence, store.clock())
        )
        await stored(store, latest)
        assert [entry.content for entry in await world.shown(chat)] == [*shown, ""]


class FinishingAmendments:
    """Finishes everything just before it says what is under way."""

    def __init__(self, world: LifeWorld) -> None:
        self._world = world

    async def under_way(self, chat_id: str | None = None) -> list[AmendmentNote]:
        await self._world.life.finish_all()
        return await self._world.amendments.under_way(chat_id)


async def test_a_delete_that_is_finished_meanwhile_counts(tmp_path: Path) -> None:
    """The notes are read before the entries: who finds none any more reads what was carried out."""
    async with ENGINES["memory-atomic"](tmp_path).opened() as store:
        ann, _, chat = await two_people(store)
        world = LifeWorld(store)
        target = (await stored(store, message(chat, ann, "one"))).message_id
        await crash_behind(world, delete(chat, ann, target))
        reader = AmendedLog(world.log, cast(Amendments, FinishingAmendments(world)))
        (wire,) = (await reader.read(chat, 0, 1)).entries
        assert decode_entry(wire).content == ""


async def crash_behind(world: LifeWorld, draft: Draft) -> None:
    """Everything up to its entry is stored, and nothing behind it."""
    await note(world, draft)
    await stored(world.store, draft)


async def note(world: LifeWorld, draft: Draft) -> None:
    draft.target = await world.life._target(draft)
    assert draft.target is not None
    assert draft.client_key is not None
    started = AmendmentNote(draft.chat_id, draft.client_key, draft.target.sequence, world.store.clock())
    await world.amendments.begin(started)


async def test_a_delete_removes_the_body_of_an_edit_that_is_not_finished(engine: Engine) -> None:
    """An edit is stored and its node died, or is slow: whichever comes second removes its body."""
    async with engine.opened() as store:
        ann, _, chat = await two_people(store)
        world = LifeWorld(store)
        target = await stored(store, message(chat, ann, "one"))
        await crash_behind(world, edit(chat, ann, target.message_id, "half done"))
        late = edit(chat, ann, target.message_id, "too late")
        await note(world, late)
        await world.done(delete(chat, ann, target.message_id))
        assert [entry.content for entry in await world.entries(chat)] == ["", "", ""]
        await stored(store, late)
        await world.done(late)
        assert [entry.content for entry in await world.entries(chat)] == ["", "", "", ""]


async def test_both_tiers_are_changed(engine: Engine, tmp_path: Path) -> None:
    """Archived messages are edited and deleted, too; the archive verifies; nothing brings a body back."""
    async with engine.opened() as store:
        ann, ben, chat = await two_people(store)
        cold = ColdWorld(store, tmp_path)
        world = LifeWorld(store, cold)
        await store.log.append([message(chat, ann, f"secret {at}") for at in range(6)])
        texts = await world.entries(chat)
        await world.done(edit(chat, ann, texts[0].message_id, "secret edit"))
        await cold.run()
        assert b"secret edit" in all_content(cold)
        await world.done(edit(chat, ann, texts[1].message_id, "newer"))
        await world.done(delete(chat, ann, texts[0].message_id))
        await world.done(delete(chat, ann, texts[2].message_id))
        shown = await world.entries(chat)
        assert [entry.content for entry in shown[:3]] == ["", "newer", ""]
        assert shown[1].edit_sequence == 8
        content = all_content(cold)
        assert b"secret edit" not in content
        assert b"secret 2" not in content
        assert (await world.life.message(ben, chat, texts[1].message_id)).entry.content == "newer"
        await cold.run()
        verified = await cold.verify()
        assert (verified.faults, await world.entries(chat)) == ([], shown)
        assert store.breaches() == []


@pytest.mark.parametrize("length", [3, 100, 5_000, 20_000])
async def test_a_deleted_body_is_in_no_file(sqlite: SqliteEngine, tmp_path: Path, length: int) -> None:
    """Nor are its edits: among neighbours of all sizes, whose rows grew and moved before."""
    async with sqlite.opened() as store:
        ann, ben, chat = await two_people(store)
        world = LifeWorld(store)
        neighbours = [message(chat, (ann, ben)[at % 2], f"neighbour {at} " * (at % 9)) for at in range(60)]
        texts = (await store.log.append(neighbours)).outcomes
        body = "SECRET" + "s" * length
        target = await stored(store, message(chat, ann, body))
        await store.log.append(
            [message(chat, (ann, ben)[at % 2], f"behind {at} " * (at % 7)) for at in range(60)]
        )
        for at, text in enumerate(texts[40:52]):
            assert isinstance(text, Appended)
            await world.done(edit(chat, (ann, ben)[at % 2], text.message_id, "grown " * (at * 17)))
        await world.done(edit(chat, ann, target.message_id, "SECRET edit " + body))
        assert b"SECRET" in raw_bytes(tmp_path)
        await world.done(delete(chat, ann, target.message_id))
        assert b"SECRET" not in raw_bytes(tmp_path)


async def test_everybody_who_edits_at_once_is_kept(engine: Engine) -> None:
    """Many at once: the log has every edit, and the message shows the last one in it."""
    async with engine.opened() as store:
        ann, ben, chat = await two_people(store)
        world = LifeWorld(store)
        target = (await stored(store, message(chat, ann, "one"))).message_id
        work = [edit(chat, ann, target, f"edit {at}") for at in range(6)]
        work += [react(chat, who, target, "x") for who in (ann, ben)]
        outcomes = await asyncio.gather(*map(world.try_send, work))
        assert all(isinstance(outcome, Appended) for outcome in outcomes)
        shown = await world.entries(chat)
        edits = [entry for entry in shown if entry.kind == "edit"]
        assert (len(edits), shown[0].content) == (6, edits[-1].content)
        now = replay(shown)[target]
        assert now.reactions == (await world.life.message(ann, chat, target)).reactions
