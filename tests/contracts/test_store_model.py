"""Whatever happens to a store, in whatever order, it agrees with the model (property test, stateful)."""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import hypothesis
import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from parley.clock import iso
from parley.errors import BLOCKED, Refused
from parley.model import (
    Action,
    Appended,
    Changed,
    ChatType,
    Draft,
    Moved,
    Outcome,
    Position,
    ReadReceipts,
    ReceiptKind,
    Role,
)
from parley.store.sqlite.log import SEAL_AFTER_MS
from tests.contracts.acting import (
    add_person,
    block,
    change,
    decode_entry,
    entries_of,
    head_of,
    message,
    new_chat,
    outcome,
    rename,
    resolved,
    show_receipts,
    unblock,
)
from tests.contracts.drawing import (
    CLIENT_IDS,
    PEOPLE,
    Alter,
    Listed,
    Say,
    alters,
    chat_numbers,
    person_numbers,
    places,
    says,
    shares,
)
from tests.contracts.engines import ENGINES, OpenStore
from tests.contracts.model import NEVER, KeptChat, Model
from tests.seeds import IS_VARIED, SHRINK_SECONDS_MAX, try_seed

T = TypeVar("T")

DEVICES = ("phone", "tablet")
MUTED_UNTIL = ("2026-12-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z", None)
CHATS_MAX = 3
SETTINGS = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class StoreMachine(RuleBasedStateMachine):
    """One store and its model, side by side."""

    engine_name = ""

    def __init__(self) -> None:
        super().__init__()
        try_seed()
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._folder = Path(tempfile.mkdtemp(prefix="parley-model-"))
        self.model = Model()
        self.store: OpenStore
        self.people: list[str] = []
        self.tokens: dict[str, str] = {}
        self.lists: dict[tuple[str, str], list[Listed]] = {}
        self.known: dict[tuple[str, str], Listed] = {}
        self.chat_ids: list[str] = []
        self.told: dict[tuple[str, str, ReceiptKind], tuple[int, str]] = {}
        self.told_in_vain: list[Moved] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def teardown(self) -> None:
        try:
            self.run(self._stack.aclose())
        finally:
            self._runner.close()
            shutil.rmtree(self._folder)

    @initialize()
    def open(self) -> None:
        self.run(self._open())

    async def _open(self) -> None:
        engine = ENGINES[self.engine_name](self._folder)
        self.is_atomic = engine.sequencing == "atomic"
        self.store = await self._stack.enter_async_context(engine.opened())
        self.store.cursors.moved = self.hear
        for name in PEOPLE:
            user = await add_person(self.store, name)
            self.people.append(user)
            self.model.add_user(user)
            self.tokens[user] = (await self.store.cursors.changed(user, "phone", None, 1)).token
            self.lists |= {(user, device): [Listed()] for device in DEVICES}
        await self._create_group(self.people[0], self.people[1:3], False)

    async def _create_group(self, creator: str, others: list[str], open_to_join: bool) -> None:
        chat = new_chat(self.store, creator, open_to_join=open_to_join)
        await self.store.directory.create_chat(chat, others)
        roles = dict.fromkeys(others, Role.MEMBER) | {creator: Role.OWNER}
        self.model.add_chat(KeptChat(chat.chat_id, ChatType.GROUP, roles, open_to_join, title=chat.title))
        self.chat_ids.append(chat.chat_id)

    def hear(self, moved: list[Moved]) -> None:
        """Of each position every rise is told once, in order."""
        for one in moved:
            place = one.user_id, one.chat_id, one.kind
            if one.up_to <= self.told.get(place, (0, ""))[0]:
                self.told_in_vain.append(one)
            self.told[place] = one.up_to, one.at

    def chat_id(self, number: int) -> str:
        """One of the chats; one number in nine is a chat that does not exist."""
        return self.chat_ids[number % len(self.chat_ids)] if number < 8 else "chat_unknown"

    def person(self, chat_id: str, number: int) -> str:
        """Mostly a member of the chat, now and then anybody."""
        kept = self.model.chats.get(chat_id)
        people = sorted(kept.members) if kept is not None and number < 8 else self.people
        return people[number % len(people)]

    # Chats

    @precondition(lambda self: len(self.chat_ids) < CHATS_MAX)
    @rule(owner=places, members=st.sets(places), open_to_join=st.booleans())
    def create_group(self, owner: int, members: set[int], open_to_join: bool) -> None:
        others = [self.people[number] for number in members]
        self.run(self._create_group(self.people[owner], others, open_to_join))

    @precondition(lambda self: len(self.chat_ids) < CHATS_MAX)
    @rule(one=places, step=st.integers(1, len(PEOPLE) - 1))
    def create_direct(self, one: int, step: int) -> None:
        creator, other = self.people[one], self.people[(one + step) % len(PEOPLE)]
        opening = self.store.directory.create_chat(new_chat(self.store, creator, ChatType.DIRECT), [other])
        if (other, creator) in self.model.blocks:
            with pytest.raises(Refused) as refused:
                self.run(opening)
            assert refused.value.refusal == BLOCKED
            return
        chat, created = self.run(opening)
        kept = self.model.chats.get(chat.chat_id)
        assert created == (kept is None)
        if kept is None:
            roles = {creator: Role.OWNER, other: Role.MEMBER}
            self.model.add_chat(KeptChat(chat.chat_id, ChatType.DIRECT, roles))
            self.chat_ids.append(chat.chat_id)
        else:
            assert set(kept.members) == {creator, other}

    # Drafts

    def draft(self, wish: Say | Alter) -> Draft:
        chat_id = self.chat_id(wish.chat)
        if isinstance(wish, Say):
            after = CLIENT_IDS[wish.after] if wish.after is not None else ""
            client_id = CLIENT_IDS[wish.client_id] if wish.client_id is not None else ""
            return message(chat_id, self.person(chat_id, wish.sender), wish.content, client_id, after)
        actor, about = self.person(chat_id, wish.actor), self.person(chat_id, wish.about)
        if wish.action is Action.RENAMED:
            return rename(chat_id, actor, f"by {wish.actor}")
        if wish.action is Action.READ_RECEIPTS:
            return show_receipts(chat_id, actor, list(ReadReceipts)[wish.about % len(ReadReceipts)])
        return change(chat_id, actor, wish.action, about, wish.role)

    @rule(wishes=st.lists(says, min_size=3, max_size=10))
    def send_messages(self, wishes: list[Say | Alter]) -> None:
        self.send(wishes)

    @rule(wishes=st.lists(says | alters, min_size=1, max_size=8))
    def send_messages_and_changes(self, wishes: list[Say | Alter]) -> None:
        self.send(wishes)

    def send(self, wishes: list[Say | Alter]) -> None:
        """Every outcome of a batch is what the model says, draft by draft."""
        drafts = [self.draft(wish) for wish in wishes]
        result = self.run(self.store.log.append(drafts))
        for draft, got in zip(drafts, result.outcomes, strict=True):
            self.settle(draft, got)

    def settle(self, draft: Draft, got: Outcome) -> None:
        expected = self.model.expected(draft)
        assert expected.fits(got, draft), (draft, got, expected)
        self.model.touch(draft)
        if isinstance(got, Appended) and not got.deduplicated:
            kept = self.model.chats[draft.chat_id]
            last = max(kept.last, kept.abandoned)
            assert got.sequence == last + 1 or (got.sequence > last and not self.is_atomic)
            self.model.store(draft, got)

    @rule(wishes=st.lists(says, min_size=2, max_size=12))
    def send_at_once(self, wishes: list[Say]) -> None:
        """Of concurrent batches any may come first, but one order explains all their outcomes."""
        drafts = [self.draft(wish._replace(after=None)) for wish in wishes]
        outcomes = self.run(self._gathered(drafts))
        pairs = list(zip(drafts, outcomes, strict=True))
        new = [pair for pair in pairs if isinstance(pair[1], Appended) and not pair[1].deduplicated]
        for draft, got in sorted(new, key=lambda pair: getattr(pair[1], "sequence", 0)):
            expected = self.model.expected(draft)
            assert expected.fits(got, draft), (draft, got, expected)
            assert isinstance(got, Appended)
            self.model.store(draft, got)
        for draft, got in (pair for pair in pairs if pair not in new):
            self.settle(draft, got)

    async def _gathered(self, drafts: list[Draft]) -> list[Outcome]:
        return await asyncio.gather(*(outcome(self.store, draft) for draft in drafts))

    # Positions

    def place(self, chat: int, user: int, share: float) -> tuple[str, str, int] | None:
        """A person, a chat of theirs, and a position in it."""
        kept = self.model.chats.get(self.chat_id(chat))
        person = self.person(self.chat_id(chat), user)
        if kept is None or person not in kept.members:
            return None
        return person, kept.chat_id, int(kept.last * share)

    @rule(
        steps=st.lists(st.tuples(chat_numbers, person_numbers, shares, st.sampled_from(DEVICES)), min_size=1)
    )
    def acknowledge(self, steps: list[tuple[int, int, float, str]]) -> None:
        for chat, user, share, device in steps:
            found = self.place(chat, user, share)
            if found is not None:
                person, chat_id, sequence = found
                self.model.acknowledge(person, device, chat_id, sequence, iso(self.store.clock()))
                self.run(self._note_acked(person, device, chat_id, sequence))

    async def _note_acked(self, person: str, device: str, chat_id: str, sequence: int) -> None:
        self.store.cursors.note_acked(person, device, chat_id, sequence, self.store.clock())
        at = await self.store.cursors.position(person, device, chat_id)
        assert at == self.model.acked[person, device, chat_id]

    @rule(steps=st.lists(st.tuples(chat_numbers, person_numbers, shares), min_size=1))
    def read_up_to(self, steps: list[tuple[int, int, float]]) -> None:
        for chat, user, share in steps:
            found = self.place(chat, user, share)
            if found is not None:
                self.model.mark_read(*found, iso(self.store.clock()))
                self.run(self._note_read(*found))

    async def _note_read(self, person: str, chat_id: str, sequence: int) -> None:
        self.store.cursors.note_read(person, chat_id, sequence, self.store.clock())

    @rule(user=places, device=st.sampled_from(DEVICES))
    def forget_device(self, user: int, device: str) -> None:
        self.model.forget_device(self.people[user], device)
        self.lists[self.people[user], device] = [Listed()]
        self.known.pop((self.people[user], device), None)
        self.run(self.store.cursors.forget_device(self.people[user], device))

    @rule(chat=chat_numbers, user=person_numbers, until=st.sampled_from(MUTED_UNTIL))
    def mute(self, chat: int, user: int, until: str | None) -> None:
        chat_id = self.chat_id(chat)
        if chat_id in self.model.chats:
            person = self.person(chat_id, user)
            self.model.mute(person, chat_id, until)
            self.run(self.store.standings.mute(person, chat_id, until))

    @rule(one=places, step=st.integers(1, len(PEOPLE) - 1), is_block=st.booleans())
    def block_or_unblock(self, one: int, step: int, is_block: bool) -> None:
        blocker, blocked = self.people[one], self.people[(one + step) % len(PEOPLE)]
        if is_block:
            self.model.blocks.add((blocker, blocked))
            self.run(block(self.store, blocker, blocked))
        else:
            self.model.blocks.discard((blocker, blocked))
            self.run(unblock(self.store, blocker, blocked))

    @rule(user=places, limit=st.integers(1, CHATS_MAX))
    def ask_for_a_page(self, user: int, limit: int) -> None:
        """The next page lists what changed and was not listed; the last one leaves nothing out."""
        person = self.people[user]
        changed = self.run(self._changed(person, limit))
        seen = [at.chat_id for at in changed.positions]
        assert len(seen) == len(set(seen)) <= limit
        assert set(seen) <= self.model.may_list(person), seen
        self.model.listed(person, seen, changed.complete)
        for at in changed.positions:
            chat = self.model.chats[at.chat_id]
            assert at.left == (person not in chat.members)
            assert not at.left or (at.head, at.unread) == (chat.left_at[person], 0)
            assert not at.left or (at.title, at.last_entry) == (None, None)

    async def _changed(self, person: str, limit: int) -> Changed:
        await self.store.cursors.flush()
        changed = await self.store.cursors.changed(person, "phone", self.tokens[person], limit)
        self.tokens[person] = changed.token
        return changed

    @rule(
        user=places,
        device=st.sampled_from(DEVICES),
        back=st.integers(0, 99),
        limit=st.integers(1, CHATS_MAX),
        brief=st.booleans(),
    )
    def ask_since_any_list(self, user: int, device: str, back: int, limit: int, brief: bool) -> None:
        """Any list that a device ever had is gone on with."""
        lists = self.lists[self.people[user], device]
        self.run(self._add_pages(user, device, lists[back % len(lists)], limit, brief))

    async def _add_pages(self, user: int, device: str, known: Listed, limit: int, brief: bool) -> Listed:
        """What changed since a list, put on top of it, is the whole list."""
        person, cursors, is_complete = self.people[user], self.store.cursors, False
        await cursors.flush()
        while not is_complete:
            page = await cursors.changed(person, device, known.token, limit, brief)
            known, is_complete = known.then(page, brief), page.complete
            self.lists[person, device].append(known)
        now = Listed().then(await cursors.changed(person, device, None, 1000), known.brief)
        assert known.told(self.engine_name) == now.told(self.engine_name)
        return known

    # Trouble

    @rule(number=chat_numbers)
    def abandon(self, number: int) -> None:
        """A process takes the next number of a chat and dies."""
        kept = self.model.chats.get(self.chat_id(number))
        if kept is not None and kept.has_counter:
            kept.abandoned = (self.store.counter(kept.chat_id) or 0) + 1
            self.store.abandon(kept.chat_id, kept.abandoned, self.store.clock())

    @rule()
    def reopen(self) -> None:
        self.run(self.store.reopen())
        self.store.cursors.moved = self.hear

    @rule()
    def seal(self) -> None:
        self.store.clock.advance(SEAL_AFTER_MS)
        self.run(self.store.log.seal())

    @rule(number=chat_numbers)
    def lose_counter(self, number: int) -> None:
        """A chat without its counter takes nothing until it is recovered."""
        chat_id = self.chat_id(number)
        if chat_id in self.model.chats:
            self.store.set_counter(chat_id, None)
            self.model.lose_counter(chat_id)

    @rule()
    def recover_counters(self) -> None:
        for kept in self.model.chats.values():
            if not kept.has_counter:
                self.store.recover_counter(kept.chat_id)
                self.model.recover_counter(kept.chat_id)
                kept.abandoned = min(kept.abandoned, self.store.counter(kept.chat_id) or 0)
        assert self.store.breaches() == []

    # What must always hold

    @invariant()
    def logs_are_equal(self) -> None:
        self.run(self._compare_logs())

    async def _compare_logs(self) -> None:
        for kept in self.model.chats.values():
            page = await self.store.log.read(kept.chat_id, 0, 1000)
            assert resolved(page) == list(range(1, page.head + 1))
            assert page.head >= kept.last
            assert page.head == await head_of(self.store, kept.chat_id)
            found = {entry.sequence: entry for entry in entries_of(page)}
            assert found.keys() == kept.entries.keys()
            for sequence, entry in found.items():
                expected = kept.entries[sequence]
                assert (entry.sender_id, entry.content) == (expected.sender, expected.content)
                assert (entry.message_id, entry.kind) == (expected.message_id, expected.kind)
            if kept.has_counter:
                assert self.store.counter(kept.chat_id) == max(page.head, kept.abandoned)

    @invariant()
    def members_are_equal(self) -> None:
        self.run(self._compare_members())

    async def _compare_members(self) -> None:
        for kept in self.model.chats.values():
            members = await self.store.directory.members(kept.chat_id, "", 100)
            assert {member.user_id: member.role for member in members} == kept.members
            chat = await self.store.directory.chat(kept.chat_id)
            assert chat is not None
            assert (chat.title, chat.read_receipts) == (kept.title, kept.read_receipts)
        for person in self.people:
            chats = {kept.chat_id for kept in self.model.chats.values() if person in kept.members}
            assert set(await self.store.directory.chat_ids_of(person)) == chats

    @invariant()
    def overviews_are_equal(self) -> None:
        self.run(self._compare_overviews())

    async def _compare_overviews(self) -> None:
        for user, person in enumerate(self.people):
            for device in DEVICES:
                known = self.known.get((person, device), Listed())
                self.known[person, device] = await self._add_pages(user, device, known, 1000, False)
            mine = {kept.chat_id: kept for kept in self.model.chats.values() if person in kept.members}
            rows = (await self.store.cursors.changed(person, "phone", None, 1000)).positions
            assert {at.chat_id for at in rows} == mine.keys()
            for at in rows:
                assert at.head == await head_of(self.store, at.chat_id)
                self._compare_position(person, at, mine[at.chat_id])

    def _compare_position(self, person: str, at: Position, kept: KeptChat) -> None:
        assert at.last_acked_sequence == self.model.acked.get((person, "phone", at.chat_id), 0)
        assert at.read_up_to == self.model.read.get((person, at.chat_id), NEVER)[0]
        assert (at.unread, at.left) == (self.model.unread(person, kept), False)
        assert (at.chat_type, at.title) == (kept.chat_type, kept.title)
        assert at.muted_until == self.model.muted.get((person, at.chat_id))
        is_direct = kept.chat_type is ChatType.DIRECT
        assert [at.peer_id] == ([user for user in kept.members if user != person] if is_direct else [None])
        last = decode_entry(at.last_entry).sequence if at.last_entry is not None else 0
        assert last == kept.last

    @invariant()
    def marks_are_equal(self) -> None:
        self.run(self._compare_marks())

    async def _compare_marks(self) -> None:
        """How far everybody is, and that they were told so, is what their events come to."""
        await self.store.cursors.flush()
        for kept in self.model.chats.values():
            marks = await self.store.standings.marks(kept.chat_id)
            assert marks == self.model.marks(kept)
            head = await head_of(self.store, kept.chat_id)
            assert all(mark.read_up_to <= mark.delivered_up_to <= head for mark in marks)
        rises = {(*place, ReceiptKind.DELIVERED): rise for place, rise in self.model.delivered.items()}
        rises |= {(*place, ReceiptKind.READ): rise for place, rise in self.model.read.items()}
        assert (self.told, self.told_in_vain) == (rises, [])


FEW = settings(SETTINGS, max_examples=2)
"""DynamoDB Local takes milliseconds for what SQLite does in microseconds."""
EXAMPLES: dict[str, settings] = {name: SETTINGS if name.startswith("sqlite") else FEW for name in ENGINES}


@pytest.mark.randomised
@pytest.mark.timeout(SHRINK_SECONDS_MAX)
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_store_agrees_with_the_model(name: str, seed: int) -> None:
    """After any course of events log, members, overviews, marks and what is told equal the model's."""
    machine = type("Machine", (StoreMachine,), {"engine_name": name})
    if IS_VARIED:
        hypothesis.seed(seed)(machine)
    with structlog.testing.capture_logs():
        run_state_machine_as_test(machine, settings=EXAMPLES[name])
