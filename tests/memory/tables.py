"""The tables of the engine in memory, as plain dictionaries. They outlive the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from parley.core.deliveries import DeliveryQueue
from parley.core.permissions import NO_USER, JoinFacts
from parley.model import AccountState, ChatMember, ChatType, Notify, PersonConsent, Role, StoredChat, User
from parley.store.consent import has_blocked, join_facts, uninvited
from parley.store.rows import ArchiveMark
from parley.store.tables import (
    CONSENTS,
    CONTACTS,
    INVITED_PEOPLE,
    PEOPLE,
    PersonRecord,
    R,
    RecordTable,
    alone,
    user_of,
)
from parley.wire.frames import Entry

NOBODY = User("", "", "", "", False, "", state=AccountState.DELETED)


@dataclass
class MemoryChat:
    """One chat: its members and its log."""

    chat: StoredChat
    pair: tuple[str, ...] = ()
    """The two people of a direct chat."""
    counter: int | None = 0
    """The last allocated number; None when it is lost."""
    members: dict[str, ChatMember] = field(default_factory=dict)
    unasked: set[str] = field(default_factory=set)
    """Members whom somebody put here who was not a contact of theirs."""
    entries: dict[int, Entry | None] = field(default_factory=dict)
    """Every resolved position; None is a void."""
    wires: dict[int, bytes] = field(default_factory=dict)
    """The JSON of the entries."""
    keys: dict[bytes, int] = field(default_factory=dict)
    """Where each client's id is stored."""
    taken: dict[int, int] = field(default_factory=dict)
    """Numbers that `two_phase` has allocated and not resolved, and when, in milliseconds."""
    head: int = 0
    """Where the resolved prefix ends."""
    last: int = 0
    """The highest resolved position."""
    change: int = 0
    """The number of the last change that its members' overviews must show."""
    mark: ArchiveMark = field(default_factory=ArchiveMark)
    archived: dict[int, Entry] = field(default_factory=dict)
    """The entries that were trimmed, without their content: for ids and keys."""

    @property
    def trimmed(self) -> int:
        return self.mark.trimmed_through

    @property
    def open(self) -> list[int]:
        """Numbers that were allocated and are not resolved."""
        given = {*self.taken, *range(self.head + 1, (self.counter or 0) + 1)}
        return sorted(at for at in given - self.entries.keys() if at > self.trimmed)

    @property
    def is_direct(self) -> bool:
        return self.chat.chat_type is ChatType.DIRECT

    def role(self, user_id: str) -> Role | None:
        member = self.members.get(user_id)
        return None if member is None else member.role

    def find(self, client_key: bytes | None) -> Entry | None:
        """The entry stored under a client's id."""
        at = 0 if client_key is None else self.keys.get(client_key, 0)
        return self.entries.get(at) or self.archived.get(at)

    def resolve(self, sequence: int, entry: Entry | None) -> bytes | None:
        """Write a position, once. Returns the JSON of the entry."""
        assert sequence not in self.entries, "a position is written once"
        assert sequence > self.trimmed, "what is archived is never written again"
        self.entries[sequence] = entry
        if entry is not None:
            self.wires[sequence] = msgspec.json.encode(entry)
        self.taken.pop(sequence, None)
        self.last = max(self.last, sequence)
        while self.head + 1 in self.entries:
            self.head += 1
        return self.wires.get(sequence)


@dataclass
class MemoryState:
    """The state of one person in one chat. It stays when they leave."""

    change: int
    left_at: int | None = None
    """The position at which they left."""
    delivered: tuple[int, str | None] = (0, None)
    """A position, and when it got there."""
    read: tuple[int, str | None] = (0, None)
    muted_until: str | None = None
    notify: Notify = Notify.ALL


@dataclass
class Tables:
    chats: dict[str, MemoryChat] = field(default_factory=dict)
    states: dict[tuple[str, str], MemoryState] = field(default_factory=dict)
    """By person and chat."""
    devices: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """How far each device is, by person, device and chat."""
    published: dict[str, int] = field(default_factory=dict)
    """How far each chat is on the bus."""
    queues: dict[tuple[str, str], DeliveryQueue] = field(default_factory=dict)
    """By chat and recipient."""
    records: dict[str, dict[tuple[str, str], tuple[bytes, int]]] = field(default_factory=dict)
    """By table and key: the JSON of each record, and its number that only rises."""
    changes: int = 0

    def next_change(self) -> int:
        """The number of the next change, of a chat or of a person's state in one."""
        self.changes += 1
        return self.changes

    def add_chat(self, chat: StoredChat, people: Sequence[str]) -> MemoryChat:
        """A chat with its counter at 0; `created_by` is the owner."""
        row = MemoryChat(chat, tuple(people) if chat.chat_type is ChatType.DIRECT else ())
        row.change = self.next_change()
        for person in people:
            role = Role.OWNER if person == chat.created_by else Role.MEMBER
            row.members[person] = ChatMember(person, role, chat.created_at, 0)
            if person != chat.created_by and not self.has_contact(person, chat.created_by):
                row.unasked.add(person)
            self.states[person, chat.chat_id] = MemoryState(row.change)
        self.chats[chat.chat_id] = row
        return row

    def record(self, table: RecordTable[R], name: str) -> R | None:
        row = self.records.get(table.name, {}).get(alone(name))
        return None if row is None else table.decode(*row)

    def has_account(self, user_id: str) -> bool:
        return self.record(PEOPLE, user_id) is not None

    def user(self, user_id: str) -> User:
        """A person; where there is none, one who is deleted."""
        person = self.record(PEOPLE, user_id)
        return NOBODY if person is None else user_of(person)

    def put_user(self, user: User) -> None:
        """As if they had been added, for tests of other things."""
        rows = self.records.setdefault(PEOPLE.name, {})
        rows[alone(user.user_id)] = PEOPLE.encode(PersonRecord(user=user, password_hash="")), 0

    def said(self, user_id: str) -> PersonConsent | None:
        return self.record(CONSENTS, user_id)

    def uninvite(self, user_id: str, chat_id: str) -> None:
        """The person is in the chat."""
        without = uninvited(self.said(user_id), chat_id)
        if without is not None:
            self.records[CONSENTS.name][alone(user_id)] = CONSENTS.encode(without), 0
            self.records[INVITED_PEOPLE.name].pop((chat_id, user_id), None)

    def has_contact(self, user_id: str, other_id: str) -> bool:
        return (user_id, other_id) in self.records.get(CONTACTS.name, {})

    def is_blocked(self, chat: MemoryChat, user_id: str) -> bool:
        """Whether the other person of a direct chat has blocked this one."""
        return any(has_blocked(self.said(peer), user_id) for peer in chat.pair)

    def join_facts(self, actor_id: str, user_id: str) -> JoinFacts:
        if not self.is_living(user_id):
            return NO_USER
        mine = [self.chats[chat_id] for chat_id in self.chats_of(user_id)]
        counts = len(mine), sum(user_id in row.unasked for row in mine)
        is_contact = self.has_contact(user_id, actor_id)
        return join_facts(self.user(user_id), self.said(user_id), actor_id, is_contact, counts)

    def is_living(self, user_id: str) -> bool:
        """Whether a person exists and is not deleted."""
        return self.user(user_id).state is not AccountState.DELETED

    def account(self, user_id: str) -> AccountState:
        return self.user(user_id).state if self.has_account(user_id) else AccountState.ACTIVE

    def is_peer_deleted(self, chat: MemoryChat, user_id: str) -> bool:
        """The account of the other one of a direct chat."""
        return any(self.account(peer) is AccountState.DELETED for peer in chat.pair if peer != user_id)

    def chats_of(self, user_id: str) -> list[str]:
        return [chat_id for chat_id, row in self.chats.items() if user_id in row.members]
