"""`Log.append` answers as `decide_append` says, for every combination of facts that can be set up.

The cases of one queue share a few chats, which are prepared once: what earlier drafts have stored, who has
left, who is blocked, and what became of the counter. Only a change of members has a chat of its own.
"""

import asyncio
import logging
from enum import Enum
from itertools import product

import pytest
import structlog
from msgspec import Struct
from msgspec.structs import replace

from parley import ids
from parley.core.append import (
    NO_CHAT,
    AppendFacts,
    ChangeFacts,
    Decision,
    JoinFacts,
    StoredBy,
    Verdict,
    decide_append,
)
from parley.errors import COUNTER_INCONSISTENT, COUNTER_MISSING, Refusal
from parley.model import Action, Appended, ChatType, Draft, Outcome, ReadReceipts, Role, Target
from tests.contracts.acting import (
    add_direct,
    add_group,
    add_people,
    block,
    change,
    message,
    new_id,
    posting,
    rename,
    show_receipts,
)
from tests.contracts.cassandra_engine import CassandraEngine
from tests.contracts.dynamodb_engine import DynamoEngine
from tests.contracts.engines import Engine, OpenStore

CASES_PER_ROOM_MAX = 60
ROOMS_AT_ONCE = 8
CASES_AT_ONCE = 12
"""Where each append is several requests to a server. An embedded store takes them one by one: after the first
draft that is not new it would look up the ids of all others in the same transaction."""
QUIET = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR)).bind()
"""Thousands of debug lines would take longer than everything else."""
NO_MESSAGE = "msg_00000000000000000000000000"
NO_SUCH_CHAT = "chat_00000000000000000000000000"


class Place(Enum):
    """The kinds of chats."""

    GROUP = "group"
    OPEN_GROUP = "open group"
    DIRECT = "direct chat"
    ANNOUNCEMENTS = "announcement-only group"
    SLOW_GROUP = "group in slow mode"
    """Everybody sent a moment ago."""
    NOWHERE = "no chat"


class Who(Enum):
    """The senders: in a direct chat, MEMBER is one of the two."""

    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"
    BLOCKED = "blocked"
    GONE = "gone"
    """Was a member once."""
    STRANGER = "stranger"


ROLES = {Who.OWNER: Role.OWNER, Who.ADMIN: Role.ADMIN, Who.MEMBER: Role.MEMBER, Who.BLOCKED: Role.MEMBER}
SENDERS = {
    Place.GROUP: [Who.OWNER, Who.ADMIN, Who.MEMBER, Who.GONE, Who.STRANGER],
    Place.OPEN_GROUP: [Who.MEMBER, Who.GONE, Who.STRANGER],
    Place.DIRECT: [Who.MEMBER, Who.BLOCKED, Who.STRANGER],
    Place.ANNOUNCEMENTS: [Who.ADMIN, Who.MEMBER, Who.STRANGER],
    Place.SLOW_GROUP: [Who.ADMIN, Who.MEMBER, Who.STRANGER],
    Place.NOWHERE: [Who.STRANGER],
}


class Id(Enum):
    """Who has used an id before."""

    NONE = "none"
    """Nobody; as a predecessor: none is named."""
    OWN = "own"
    OTHERS = "others"
    OWN_IN_BATCH = "own in batch"
    OTHERS_IN_BATCH = "others in batch"
    MISSING = "missing"
    """As a predecessor alone: it is named, and not stored."""


RESTRICTED = (Place.ANNOUNCEMENTS, Place.SLOW_GROUP)
STORED_BY = {
    Id.NONE: StoredBy.NOBODY,
    Id.OWN: StoredBy.SENDER,
    Id.OWN_IN_BATCH: StoredBy.SENDER,
    Id.OTHERS: StoredBy.OTHER,
    Id.OTHERS_IN_BATCH: StoredBy.OTHER,
    Id.MISSING: StoredBy.NOBODY,
}
OWN = (Id.OWN, Id.OWN_IN_BATCH)
STORED = (Id.OWN, Id.OTHERS)
IN_BATCH = (Id.OWN_IN_BATCH, Id.OTHERS_IN_BATCH)


class Counter(Enum):
    """What another program did to the counter of the chat."""

    FINE = "fine"
    MISSING = "missing"
    ASTRAY = "astray"
    """So far ahead of its log that it must be a mistake."""


TROUBLE = {Counter.FINE: None, Counter.MISSING: COUNTER_MISSING, Counter.ASTRAY: COUNTER_INCONSISTENT}
FAR_AHEAD = 5_000_000
SLOW_SECONDS = 3_600


class What(Enum):
    MESSAGE = "message"
    JOIN = "join"
    JOIN_ALONE = "join alone"
    LEAVE = "leave"
    REMOVE = "remove"
    ROLE = "role"
    RENAME = "rename"
    READ_RECEIPTS = "read receipts"
    POSTING = "who may post"
    EDIT = "edit"
    EDIT_OTHERS = "edit of another's"
    DELETE_OTHERS = "delete of another's"
    REACT_TO_DELETED = "reaction to what was deleted"
    REPLY_TO_NOTHING = "reply to nothing"


ABOUT_MESSAGES = {
    What.EDIT: ("edit", True, False),
    What.EDIT_OTHERS: ("edit", False, False),
    What.DELETE_OTHERS: ("delete", False, False),
    What.REACT_TO_DELETED: ("reaction", False, True),
}
"""The kind, whether the message is the sender's own, whether it was deleted."""


class Case(Struct, frozen=True):
    """One combination of facts."""

    place: Place
    sender: Who
    what: What
    original: Id
    predecessor: Id
    counter: Counter

    def __str__(self) -> str:
        return (
            f"{self.place.value}: {self.what.value} by {self.sender.value}, id {self.original.value},"
            f" predecessor {self.predecessor.value}, counter {self.counter.value}"
        )

    @property
    def can_be_set_up(self) -> bool:
        used = {self.original, self.predecessor}
        if self.original is Id.MISSING:
            return False
        if self.place is Place.NOWHERE:
            return self.counter is Counter.FINE and used <= {Id.NONE, Id.MISSING}
        if self.sender is Who.STRANGER and used & {*OWN}:
            return False
        if (
            self.place in RESTRICTED and self.sender is Who.MEMBER and Id.OWN_IN_BATCH in used
        ):  # refused itself
            return False
        if Id.OWN_IN_BATCH in used and self.sender not in (Who.OWNER, Who.ADMIN, Who.MEMBER):
            return False
        return self.counter is not Counter.ASTRAY or self.what is What.MESSAGE

    @property
    def expected(self) -> Decision:
        draft = Draft(chat_id="", sender_id="sender", content="", client_key=b"k")
        if self.predecessor is not Id.NONE:
            draft.after_key = b"a"
        like = draft_of(self.what, "", "sender", "target")
        draft.change, draft.kind, draft.target = like.change, like.kind, like.target
        draft.reply_to = like.reply_to
        if self.place is Place.NOWHERE:
            return decide_append(draft, NO_CHAT)
        target = {What.REMOVE: Role.MEMBER, What.ROLE: Role.MEMBER}.get(self.what)
        role = ROLES.get(self.sender)
        facts = AppendFacts(
            role=role,
            is_blocked=self.sender is Who.BLOCKED,
            original=self._stored_by(self.original),
            predecessor=self._stored_by(self.predecessor),
            change=ChangeFacts(
                chat_type=ChatType.DIRECT if self.place is Place.DIRECT else ChatType.GROUP,
                open_to_join=self.place is Place.OPEN_GROUP,
                owners=2,
                target=role if self.what in (What.LEAVE, What.JOIN_ALONE) else target,
                join=JoinFacts(),
            ),
            trouble=TROUBLE[self.counter],
            announcement_only=self.place is Place.ANNOUNCEMENTS,
            slow_mode_seconds=SLOW_SECONDS if self.place is Place.SLOW_GROUP else 0,
            since_last_ms=0,
        )
        return decide_append(draft, facts)

    def _stored_by(self, used: Id) -> StoredBy:
        """Without a counter nothing is stored, so an id earlier in the batch is not used."""
        return StoredBy.NOBODY if used in IN_BATCH and TROUBLE[self.counter] else STORED_BY[used]

    @property
    def moves_members(self) -> bool:
        """Whether later cases of the same chat would find other members."""
        actions = (What.JOIN, What.JOIN_ALONE, What.LEAVE, What.REMOVE)
        return self.what in actions and self.expected is Verdict.PLACE


def draft_of(what: What, chat_id: str, sender: str, target: str) -> Draft:
    match what:
        case What.JOIN:
            return change(chat_id, sender, Action.JOINED, target)
        case What.JOIN_ALONE:
            return change(chat_id, sender, Action.JOINED, sender)
        case What.LEAVE:
            return change(chat_id, sender, Action.LEFT, sender)
        case What.REMOVE:
            return change(chat_id, sender, Action.REMOVED, target)
        case What.ROLE:
            return change(chat_id, sender, Action.ROLE, target)
        case What.RENAME:
            return rename(chat_id, sender, "new")
        case What.READ_RECEIPTS:
            return show_receipts(chat_id, sender, ReadReceipts.SIMPLE)
        case What.POSTING:
            return posting(chat_id, sender)
        case What.REPLY_TO_NOTHING:
            return replace(message(chat_id, sender), reply_to=NO_MESSAGE)
        case What.MESSAGE:
            return message(chat_id, sender)
        case _:
            kind, is_own, is_deleted = ABOUT_MESSAGES[what]
            whose = sender if is_own else "another"
            about = Target(sequence=1, sender_id=whose, is_group=True, is_deleted=is_deleted)
            return replace(message(chat_id, sender), kind=kind, target_id=NO_MESSAGE, target=about)


def every_case(is_remote: bool) -> list[Case]:
    """All that can be set up; where each costs requests, fewer ids with changes and with trouble."""
    cases = [
        case
        for place in Place
        for facts in product(SENDERS[place], What, Id, Id, Counter)
        if (case := Case(place, *facts)).can_be_set_up
    ]
    return [case for case in cases if not is_remote or is_telling(case)]


def is_telling(case: Case) -> bool:
    if case.place in RESTRICTED:
        is_plain = case.counter is Counter.FINE and case.predecessor in (Id.NONE, Id.MISSING)
        return is_plain and case.original in (Id.NONE, *STORED)
    if case.what is What.MESSAGE:
        return case.counter is not Counter.ASTRAY or case.original in (Id.NONE, *STORED)
    if case.what is What.RENAME:
        return case.counter is Counter.FINE or not {case.original, case.predecessor} & {*IN_BATCH}
    return case.original in (Id.NONE, Id.OTHERS) and case.predecessor in (Id.NONE, Id.MISSING)


class Room:
    """A chat with its people, and the cases that are tried in it."""

    def __init__(self, store: OpenStore, case: Case) -> None:
        self.store = store
        self.place = case.place
        self.counter = case.counter
        self.is_blocked = case.sender is Who.BLOCKED
        self.chat_id = NO_SUCH_CHAT
        self.cases: list[tuple[Case, list[Draft]]] = []
        """Each with its batch, whose last draft is the one in question."""
        self.stored: list[Draft] = []
        """What was said before anybody left, was blocked, or the counter was lost."""

    async def create(self, crowd: list[str]) -> None:
        """`crowd`: people of whom a group may have any; a direct chat has two of its own."""
        owner, self.peer, admin, member, gone, self.target, stranger, self.newcomer = crowd
        if self.place is Place.DIRECT:
            self.peer, member = await add_people(self.store, new_id(), new_id())
            self.chat_id = await add_direct(self.store, self.peer, member)
        elif self.place is not Place.NOWHERE:
            others = (self.peer, admin, member, gone, self.target)
            is_open = self.place is Place.OPEN_GROUP
            self.chat_id = await add_group(self.store, owner, *others, open_to_join=is_open)
        self.people = {
            Who.OWNER: owner,
            Who.ADMIN: admin,
            Who.MEMBER: member,
            Who.BLOCKED: member,
            Who.GONE: gone,
            Who.STRANGER: stranger,
        }

    def add(self, case: Case) -> None:
        sender = self.people[case.sender]
        target = self.newcomer if case.what is What.JOIN else self.target
        batch: list[Draft] = []
        after, own = (self._use(used, sender, batch) for used in (case.predecessor, case.original))
        draft = draft_of(case.what, self.chat_id, sender, target)
        draft.client_message_id, draft.client_key = own, ids.client_key(own)
        if case.predecessor is not Id.NONE:
            draft.after_key = ids.client_key(after)
        self.cases.append((case, [*batch, draft]))

    def _use(self, used: Id, sender: str, batch: list[Draft]) -> str:
        """An id that was used in this way."""
        first = message(self.chat_id, sender if used in OWN else self.peer, "first")
        if used in IN_BATCH:
            batch.append(first)
        elif used in STORED:
            self.stored.append(first)
        assert first.client_message_id is not None
        return first.client_message_id

    async def prepare(self) -> None:
        """Make the facts true that hold for all cases."""
        if self.place is Place.NOWHERE:
            return
        drafts = list(self.stored)
        if self.place is not Place.DIRECT:
            owner = self.people[Who.OWNER]
            drafts += [
                change(self.chat_id, owner, Action.ROLE, self.peer, Role.OWNER),
                change(self.chat_id, owner, Action.ROLE, self.people[Who.ADMIN], Role.ADMIN),
                change(self.chat_id, owner, Action.REMOVED, self.people[Who.GONE]),
            ]
            if self.place is Place.ANNOUNCEMENTS:
                drafts.append(posting(self.chat_id, owner, announcement_only=True))
            if self.place is Place.SLOW_GROUP:
                drafts.append(message(self.chat_id, self.people[Who.MEMBER]))
                drafts.append(posting(self.chat_id, owner, slow_mode_seconds=SLOW_SECONDS))
        if drafts:
            outcomes = (await self.store.log.append(drafts)).outcomes
            assert all(isinstance(outcome, Appended) for outcome in outcomes)
        if self.is_blocked:
            await block(self.store, self.peer, self.people[Who.BLOCKED])
        if self.counter is not Counter.FINE:
            given = FAR_AHEAD if self.counter is Counter.ASTRAY else None
            await asyncio.to_thread(self.store.set_counter, self.chat_id, given)

    async def differences(self, at_once: int) -> list[str]:
        """The cases in which the engine does not do what was decided; so many are one append."""
        found = []
        for start in range(0, len(self.cases), at_once):
            some = self.cases[start : start + at_once]
            outcomes = (await self.store.log.append([draft for _, batch in some for draft in batch])).outcomes
            last = -1
            for case, batch in some:
                last += len(batch)
                told, expected = told_as(outcomes[last]), told_as(case.expected)
                if told != expected:
                    found.append(f"{case}: {told} instead of {expected}")
        return found


def told_as(decided: Decision | Outcome) -> str:
    """A refusal's code; `answer` or `place`."""
    if isinstance(decided, Refusal):
        return decided.code
    if isinstance(decided, Appended):
        return "answer" if decided.deduplicated else "place"
    return str(decided.value)


def sorted_into_rooms(cases: list[Case]) -> list[list[Case]]:
    """Cases that may share a chat; one that leaves other members behind has its own."""
    alone = [[case] for case in cases if case.moves_members]
    shared: dict[tuple[Place, Counter, bool], list[Case]] = {}
    for case in cases:
        if not case.moves_members:
            shared.setdefault((case.place, case.counter, case.sender is Who.BLOCKED), []).append(case)
    size = CASES_PER_ROOM_MAX
    return alone + [some[at : at + size] for some in shared.values() for at in range(0, len(some), size)]


@pytest.mark.timeout(180)
async def test_every_send_is_answered_as_decided(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the facts are, each engine places, answers or refuses a draft as the one function says."""
    monkeypatch.setattr("parley.store.log_telemetry.log", QUIET)
    is_remote = isinstance(engine, DynamoEngine | CassandraEngine)
    turns = asyncio.Semaphore(ROOMS_AT_ONCE if is_remote else 1)
    async with engine.opened() as store:
        crowd = await add_people(store, *(new_id() for _ in range(8)))

        async def differences(cases: list[Case]) -> list[str]:
            async with turns:
                room = Room(store, cases[0])
                await room.create(crowd)
                for case in cases:
                    room.add(case)
                await room.prepare()
                return await room.differences(CASES_AT_ONCE if is_remote else 1)

        found = await asyncio.gather(*map(differences, sorted_into_rooms(every_case(is_remote))))
        assert "\n".join(difference for some in found for difference in some) == ""
