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
from msgspec.structs import replace

from parley.clock import iso
from parley.errors import Refusal
from parley.model import (
    Action,
    Appended,
    ChatType,
    Draft,
    Invitation,
    Kind,
    Outcome,
    Privacy,
    ReadReceipts,
    Relation,
    Role,
    StoredChat,
)
from parley.records.kinds import Kinds
from parley.sending.message_actions import MessageNow
from parley.store.sqlite.log import SEAL_AFTER_MS
from tests.contracts.acting import (
    add_person,
    change,
    entries_of,
    head_of,
    message,
    new_chat,
    new_id,
    outcome,
    rename,
    resolved,
    show_receipts,
)
from tests.contracts.drawing import (
    CLIENT_IDS,
    PEOPLE,
    Alter,
    Amend,
    Listed,
    Say,
    alters,
    amends,
    chat_numbers,
    person_numbers,
    places,
    says,
    shares,
)
from tests.contracts.engines import ENGINES, OpenStore
from tests.contracts.life_world import make_life
from tests.contracts.reference import Reference, Told, answer_or_refusal, comparable_row
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


def _order(outcome: Outcome) -> tuple[bool, int]:
    """What was stored, in the order of the log; then everything else, which looks back on it."""
    is_new = isinstance(outcome, Appended) and not outcome.deduplicated
    return not is_new, outcome.sequence if isinstance(outcome, Appended) else 0


def _shown(now: MessageNow | Refusal) -> object:
    """A message without what engines may choose."""
    if isinstance(now, Refusal):
        return now
    return now.entry.content, now.entry.deleted, now.entry.edit_sequence, now.reactions, now.reply_count


class StoreMachine(RuleBasedStateMachine):
    """One store and its model, side by side."""

    engine_name = ""

    def __init__(self) -> None:
        super().__init__()
        try_seed()
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._folder = Path(tempfile.mkdtemp(prefix="parley-model-"))
        self.model: Reference
        self.store: OpenStore
        self.people: list[str] = []
        self.lists: dict[tuple[str, str], list[Listed]] = {}
        self.known: dict[tuple[str, str], Listed] = {}
        self.chat_ids: list[str] = []
        self.paged: dict[str, Listed] = {}
        self.told = Told()

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
        self.store.cursors.subscribe(self.told.hear)
        self.model = Reference(self.store)
        for name in PEOPLE:
            user = await add_person(self.store, name)
            self.people.append(user)
            await self.model.add_user(user)
            self.paged[user] = Listed().then(
                await self.store.overviews.changed(user, "phone", None, 1), False
            )
            self.lists |= {(user, device): [Listed()] for device in DEVICES}
        await self._create_group(self.people[0], self.people[1:3], False)

    async def _create_group(self, creator: str, others: list[str], open_to_join: bool) -> None:
        await self._create(new_chat(self.store, creator, open_to_join=open_to_join), others)

    async def _create(self, chat: StoredChat, others: list[str]) -> None:
        """A chat of the same id in both, or the same one that was there, or the same refusal."""
        got = await answer_or_refusal(self.store.directory.create_chat(chat, others))
        assert got == await answer_or_refusal(self.model.store.directory.create_chat(chat, others))
        if self.model.chats.keys() != set(self.chat_ids):
            self.chat_ids.append(chat.chat_id)

    def chat_id(self, number: int) -> str:
        """One of the chats; one number in nine is a chat that does not exist."""
        return self.chat_ids[number % len(self.chat_ids)] if number < 8 else "chat_unknown"

    def person(self, chat_id: str, number: int) -> str:
        """Mostly a member of the chat, now and then anybody."""
        row = self.model.chats.get(chat_id)
        people = sorted(row.members) if row is not None and number < 8 else self.people
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
        self.run(self._create(new_chat(self.store, creator, ChatType.DIRECT), [other]))

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
        self.run(self.model.follow(draft, got, is_dense=self.is_atomic))

    @rule(wishes=st.lists(says, min_size=2, max_size=12))
    def send_at_once(self, wishes: list[Say]) -> None:
        """Of concurrent batches any may come first, but one order explains all their outcomes."""
        drafts = [self.draft(wish._replace(after=None)) for wish in wishes]
        outcomes = self.run(self._gathered(drafts))
        pairs = list(zip(drafts, outcomes, strict=True))
        for draft, got in sorted(pairs, key=lambda pair: _order(pair[1])):
            self.settle(draft, got)

    async def _gathered(self, drafts: list[Draft]) -> list[Outcome]:
        return await asyncio.gather(*(outcome(self.store, draft) for draft in drafts))

    # The life of a message

    @rule(wishes=st.lists(amends, min_size=1, max_size=4))
    def amend_messages(self, wishes: list[Amend]) -> None:
        """Edits, deletes, reactions and replies: the same answers, and the same messages afterwards."""
        for wish in wishes:
            self.run(self._amend(wish))

    async def _amend(self, wish: Amend) -> None:
        chat_id = self.chat_id(wish.chat)
        named = self.model.messages(chat_id)[::-1]
        target = named[wish.back % len(named)] if named else "msg_00000000000000000000000000"
        sender = self.person(chat_id, wish.sender)
        client_id = CLIENT_IDS[wish.client_id] if wish.client_id is not None else new_id()
        draft = message(chat_id, sender, wish.content, client_id)
        if wish.kind is None:
            draft.reply_to = target
        else:
            draft.kind, draft.target_id = wish.kind.value, target
            draft.on = wish.on if wish.kind is Kind.REACTION else None
            draft.content = "" if wish.kind is Kind.DELETE else wish.content
        life = make_life(self.store.engine, self.store.clock)
        got = await answer_or_refusal(life.send(draft))
        await self.model.follow_amendment(draft, got, is_dense=self.is_atomic)
        for message_id in named:
            now = await answer_or_refusal(life.message(sender, chat_id, message_id))
            own = self.model.own_id(message_id)
            assert _shown(now) == _shown(
                await answer_or_refusal(self.model.life.message(sender, chat_id, own))
            )

    # Positions

    def place(self, chat: int, user: int, share: float) -> tuple[str, str, int] | None:
        """A person, a chat of theirs, and a position in it."""
        row = self.model.chats.get(self.chat_id(chat))
        person = self.person(self.chat_id(chat), user)
        if row is None or person not in row.members:
            return None
        return person, row.chat.chat_id, int(max(row.wires, default=0) * share)

    @rule(
        steps=st.lists(st.tuples(chat_numbers, person_numbers, shares, st.sampled_from(DEVICES)), min_size=1)
    )
    def acknowledge(self, steps: list[tuple[int, int, float, str]]) -> None:
        for chat, user, share, device in steps:
            found = self.place(chat, user, share)
            if found is not None:
                person, chat_id, sequence = found
                self.run(self._note_acked(person, device, chat_id, sequence))

    async def _note_acked(self, person: str, device: str, chat_id: str, sequence: int) -> None:
        self.model.stir(chat_id)
        here, there = self.store.cursors, self.model.store.cursors
        for cursors in (here, there):
            cursors.note_acked(person, device, chat_id, sequence, self.store.clock())
        assert await here.position(person, device, chat_id) == await there.position(person, device, chat_id)

    @rule(steps=st.lists(st.tuples(chat_numbers, person_numbers, shares), min_size=1))
    def read_up_to(self, steps: list[tuple[int, int, float]]) -> None:
        for chat, user, share in steps:
            found = self.place(chat, user, share)
            if found is not None:
                self.run(self._note_read(*found))

    async def _note_read(self, person: str, chat_id: str, sequence: int) -> None:
        for store in (self.store, self.model.store):
            store.cursors.note_read(person, chat_id, sequence, self.store.clock())

    @rule(user=places, device=st.sampled_from(DEVICES))
    def forget_device(self, user: int, device: str) -> None:
        self.lists[self.people[user], device] = [Listed()]
        self.known.pop((self.people[user], device), None)
        for store in (self.store, self.model.store):
            self.run(store.cursors.forget_device(self.people[user], device))

    @rule(chat=chat_numbers, user=person_numbers, until=st.sampled_from(MUTED_UNTIL))
    def mute(self, chat: int, user: int, until: str | None) -> None:
        chat_id = self.chat_id(chat)
        if chat_id in self.model.chats:
            self.model.stir(chat_id)
            person = self.person(chat_id, user)
            for store in (self.store, self.model.store):
                self.run(store.member_states.mute(person, chat_id, until))

    @rule(one=places, step=st.integers(1, len(PEOPLE) - 1), is_block=st.booleans())
    def block_or_unblock(self, one: int, step: int, is_block: bool) -> None:
        blocker, blocked = self.people[one], self.people[(one + step) % len(PEOPLE)]
        since = iso(self.store.clock()) if is_block else None
        for kinds in self._kinds():
            self.run(kinds.relations.set_relation(blocker, blocked, Relation.BLOCK, since))

    @rule(user=places, who_may_add=st.sampled_from(Privacy))
    def choose_who_may_add(self, user: int, who_may_add: Privacy) -> None:
        for accounts in (self.store.accounts, self.model.accounts):
            found = self.run(accounts.user(self.people[user]))
            assert found is not None
            self.run(accounts.update_user(replace(found, who_may_add=who_may_add)))

    @rule(chat=chat_numbers, user=places, by=places, role=st.sampled_from(Role))
    def invite(self, chat: int, user: int, by: int, role: Role) -> None:
        """The same answer, and the same invitations afterwards."""
        chat_id, person = self.chat_id(chat), self.people[user]
        if chat_id in self.model.chats:
            asked = Invitation(person, chat_id, self.people[by], role, iso(self.store.clock()))
            got, expected = [
                self.run(answer_or_refusal(kinds.invitations.invite(asked))) for kinds in self._kinds()
            ]
            assert got == expected
            self._compare_invitations(person)

    @rule(chat=chat_numbers, user=places)
    def end_invitation(self, chat: int, user: int) -> None:
        chat_id, person = self.chat_id(chat), self.people[user]
        got, expected = [self.run(kinds.invitations.end(person, chat_id)) for kinds in self._kinds()]
        assert got == expected
        self._compare_invitations(person)

    def _kinds(self) -> tuple[Kinds, Kinds]:
        return self.store.kinds, Kinds(self.model.store, self.store.clock)

    def _compare_invitations(self, person: str) -> None:
        got, expected = [
            self.run(kinds.invitations.of_user(person, "", CHATS_MAX)) for kinds in self._kinds()
        ]
        assert got == expected

    @rule(user=places, limit=st.integers(1, CHATS_MAX))
    def ask_for_a_page(self, user: int, limit: int) -> None:
        """The next page lists what may have changed, and no more; after the last one the list is whole."""
        self.run(self._ask_for_a_page(self.people[user], limit))

    async def _ask_for_a_page(self, person: str, limit: int) -> None:
        overviews, known = self.store.overviews, self.paged[person]
        await self.store.cursors.flush()
        page = await overviews.changed(person, "phone", known.token, limit)
        listed = [at.chat_id for at in page.positions]
        assert len(listed) == len(set(listed)) <= limit
        assert set(listed) <= await self.model.may_list(person), listed
        for at in page.positions:
            if at.left:
                assert at == await self.model.row_of_left(person, at.chat_id)
        self.paged[person] = known = known.then(page, False)
        if page.complete:
            now = Listed().then(await overviews.changed(person, "phone", None, 1000), False)
            assert known.told(self.engine_name) == now.told(self.engine_name), "an overview missed a chat"
            await self.model.has_listed_all(person)

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
        person, overviews, is_complete = self.people[user], self.store.overviews, False
        await self.store.cursors.flush()
        while not is_complete:
            page = await overviews.changed(person, device, known.token, limit, brief)
            known, is_complete = known.then(page, brief), page.complete
            self.lists[person, device].append(known)
        now = Listed().then(await overviews.changed(person, device, None, 1000), known.brief)
        assert known.told(self.engine_name) == now.told(self.engine_name)
        return known

    # Trouble

    @rule(number=chat_numbers)
    def abandon(self, number: int) -> None:
        """A process takes the next number of a chat and dies."""
        row = self.model.chats.get(self.chat_id(number))
        if row is not None and row.counter is not None:
            chat_id = row.chat.chat_id
            row.counter = (self.store.counter(chat_id) or 0) + 1
            self.store.abandon(chat_id, row.counter, self.store.clock())
            self.model.abandoned.add(chat_id)

    @rule()
    def reopen(self) -> None:
        self.run(self.store.reopen())
        self.store.cursors.subscribe(self.told.hear)

    @rule()
    def seal(self) -> None:
        self.store.clock.advance(SEAL_AFTER_MS)
        for store in (self.store, self.model.store):
            self.run(store.log.seal())

    @rule(number=chat_numbers)
    def lose_counter(self, number: int) -> None:
        """A chat without its counter takes nothing until it is recovered."""
        chat_id = self.chat_id(number)
        if chat_id in self.model.chats:
            self.store.set_counter(chat_id, None)
            self.model.chats[chat_id].counter = None

    @rule()
    def recover_counters(self) -> None:
        """A chat that has its counter again may be listed, although nothing else of it is different."""
        for chat_id, row in self.model.chats.items():
            if row.counter is None:
                self.store.recover_counter(chat_id)
                row.counter = self.store.counter(chat_id)
                self.model.stir(chat_id)
        assert self.store.breaches() == []

    # What must always hold

    @invariant()
    def logs_are_equal(self) -> None:
        self.run(self._compare_logs())

    async def _compare_logs(self) -> None:
        for chat_id, row in self.model.chats.items():
            page = await self.store.log.read(chat_id, 0, 1000)
            assert resolved(page) == list(range(1, page.head + 1))
            assert page.head >= max(row.wires, default=0)
            assert page.head == await head_of(self.store, chat_id)
            expected = [row.entries[sequence] for sequence in sorted(row.wires)]
            assert entries_of(page) == [self.model.with_id(entry) for entry in expected if entry is not None]
            if row.counter is not None:
                assert self.store.counter(chat_id) == max(page.head, row.counter)

    @invariant()
    def members_are_equal(self) -> None:
        self.run(self._compare_members())

    async def _compare_members(self) -> None:
        here, there = self.store.directory, self.model.store.directory
        for chat_id in self.chat_ids:
            assert await here.members(chat_id, "", 100) == await there.members(chat_id, "", 100)
            assert await here.chat(chat_id) == await there.chat(chat_id)
        for person in self.people:
            assert sorted(await here.chat_ids_of(person)) == sorted(await there.chat_ids_of(person))

    @invariant()
    def overviews_are_equal(self) -> None:
        self.run(self._compare_overviews())

    async def _compare_overviews(self) -> None:
        for user, person in enumerate(self.people):
            for device in DEVICES:
                known = self.known.get((person, device), Listed())
                self.known[person, device] = await self._add_pages(user, device, known, 1000, False)
            rows = (await self.store.overviews.changed(person, "phone", None, 1000)).positions
            expected = {at.chat_id: at for at in await self.model.overview(person)}
            assert {at.chat_id for at in rows} == expected.keys()
            for at in rows:
                assert at.head == await head_of(self.store, at.chat_id)
                assert comparable_row(at) == comparable_row(expected[at.chat_id])

    @invariant()
    def marks_are_equal(self) -> None:
        self.run(self._compare_marks())

    async def _compare_marks(self) -> None:
        """How far everybody is, and that they were told so, is what their events come to."""
        await self.store.cursors.flush()
        await self.model.store.cursors.flush()
        for chat_id in self.chat_ids:
            marks = await self.store.member_states.cursors(chat_id)
            assert marks == await self.model.store.member_states.cursors(chat_id)
            head = await head_of(self.store, chat_id)
            assert all(mark.read_up_to <= mark.delivered_up_to <= head for mark in marks)
        assert (self.told.rises, self.told.in_vain) == (self.model.told.rises, [])


EXAMPLES_MAX = {"memory": 8, "sqlite": 40, "dynamodb": 2, "cassandra": 1}
"""Memory is the model itself; the shared stores take milliseconds for what SQLite does in microseconds."""
LEFT_OUT = ("cassandra-redis",)
"""The same engine as `cassandra-two_phase`: who gives the numbers, other suites try."""
EXAMPLES = {
    name: settings(SETTINGS, max_examples=EXAMPLES_MAX[name.split("-")[0]])
    for name in ENGINES
    if name not in LEFT_OUT
}


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
