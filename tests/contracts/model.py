"""The store as a few dictionaries: slow, obvious, and what every engine must agree with."""

from dataclasses import dataclass, field

from parley.core.permissions import decide_change
from parley.errors import BLOCKED, COUNTER_MISSING, DUPLICATE_ID, NOT_A_MEMBER, OUT_OF_TURN, Refusal
from parley.model import Action, Appended, ChatType, Draft, Mark, Outcome, ReadReceipts, Role


@dataclass
class Kept:
    """One entry."""

    sequence: int
    sender: str
    content: str
    kind: str
    key: bytes | None
    message_id: str


@dataclass
class KeptChat:
    chat_id: str
    chat_type: ChatType
    members: dict[str, Role]
    open_to_join: bool = False
    has_counter: bool = True
    entries: dict[int, Kept] = field(default_factory=dict)
    keys: dict[bytes, int] = field(default_factory=dict)
    left_at: dict[str, int] = field(default_factory=dict)
    joined_at: dict[str, int] = field(default_factory=dict)
    title: str | None = None
    read_receipts: ReadReceipts = ReadReceipts.FULL
    abandoned: int = 0
    """The last number that somebody took and did not write."""

    @property
    def last(self) -> int:
        return max(self.entries, default=0)


Rise = tuple[int, str | None]
"""A position, and when it got there."""
NEVER: Rise = (0, None)


@dataclass(frozen=True)
class Expected:
    """What a draft must come to: a refusal of one of these codes, its original, or a new position."""

    codes: frozenset[str] = frozenset()
    original: Kept | None = None

    def fits(self, outcome: Outcome, draft: Draft) -> bool:
        if isinstance(outcome, Refusal):
            return outcome.code in self.codes
        if self.original is None:
            return not self.codes and not outcome.deduplicated
        conflict = self.original.content != draft.content
        return (outcome.deduplicated, outcome.conflict) == (True, conflict) and (
            outcome.sequence,
            outcome.message_id,
        ) == (self.original.sequence, self.original.message_id)


def refused(*refusals: Refusal) -> Expected:
    return Expected(codes=frozenset(refusal.code for refusal in refusals))


class Model:
    """Chats, positions, and which chats changed for whom since their last overview."""

    def __init__(self) -> None:
        self.chats: dict[str, KeptChat] = {}
        self.acked: dict[tuple[str, str, str], int] = {}
        self.delivered: dict[tuple[str, str], Rise] = {}
        self.read: dict[tuple[str, str], Rise] = {}
        self.muted: dict[tuple[str, str], str | None] = {}
        self.blocks: set[tuple[str, str]] = set()
        self.must: dict[str, set[str]] = {}
        self.may: dict[str, set[str]] = {}

    def add_user(self, user: str) -> None:
        self.must[user], self.may[user] = set(), set()

    def add_chat(self, chat: KeptChat) -> None:
        self.chats[chat.chat_id] = chat
        for user in chat.members:
            self.must[user].add(chat.chat_id)

    def expected(self, draft: Draft) -> Expected:
        """The key first, for its sender; then membership; then everything else."""
        chat = self.chats.get(draft.chat_id)
        if chat is None:
            return refused(NOT_A_MEMBER)
        role = chat.members.get(draft.sender_id)
        if draft.client_key is not None and draft.client_key in chat.keys:
            original = chat.entries[chat.keys[draft.client_key]]
            if original.sender == draft.sender_id:
                return Expected(original=original)
            return refused(DUPLICATE_ID if role else NOT_A_MEMBER)
        refusal = self._refusal(chat, draft, role)
        if refusal is not None:
            # With both wrong, an engine may find either first.
            troubled = refusal.temporary and not chat.has_counter
            return refused(refusal, COUNTER_MISSING) if troubled else refused(refusal)
        return Expected() if chat.has_counter else refused(COUNTER_MISSING)

    def _refusal(self, chat: KeptChat, draft: Draft, role: Role | None) -> Refusal | None:
        change = draft.change
        if role is not None and self.is_blocked(chat, draft.sender_id):
            return BLOCKED
        if change is not None:
            owners = list(chat.members.values()).count(Role.OWNER)
            target = chat.members.get(change.user_id)
            return decide_change(
                change, draft.sender_id, role, target, chat.chat_type, owners, chat.open_to_join
            )
        if role is None:
            return NOT_A_MEMBER
        if draft.after_key is not None:
            at = chat.keys.get(draft.after_key)
            if at is None or chat.entries[at].sender != draft.sender_id:
                return OUT_OF_TURN
        return None

    def is_blocked(self, chat: KeptChat, user: str) -> bool:
        """By the other one of a direct chat."""
        return chat.chat_type is ChatType.DIRECT and any((peer, user) in self.blocks for peer in chat.members)

    def touch(self, draft: Draft) -> None:
        """A draft that is not stored may still move a number of its chat."""
        chat = self.chats.get(draft.chat_id)
        for user in chat.members if chat else ():
            self.may[user].add(draft.chat_id)

    def store(self, draft: Draft, place: Appended) -> None:
        """A new entry, and what it changes."""
        chat = self.chats[draft.chat_id]
        kept = Kept(
            place.sequence, draft.sender_id, draft.content, draft.kind, draft.client_key, place.message_id
        )
        assert place.sequence not in chat.entries, "a position is written once"
        chat.entries[place.sequence] = kept
        if draft.client_key is not None:
            chat.keys[draft.client_key] = place.sequence
        self._change(chat, draft, place.sequence)
        for user in chat.members:
            self.must[user].add(draft.chat_id)

    def _change(self, chat: KeptChat, draft: Draft, sequence: int) -> None:
        change = draft.change
        if change is None:
            return
        match change.action:
            case Action.JOINED:
                chat.members[change.user_id] = change.role
                chat.left_at.pop(change.user_id, None)
                chat.joined_at[change.user_id] = sequence
            case Action.ROLE:
                chat.members[change.user_id] = change.role
            case Action.LEFT | Action.REMOVED:
                del chat.members[change.user_id]
                chat.left_at[change.user_id] = sequence
                self.must[change.user_id].add(chat.chat_id)
            case Action.RENAMED:
                chat.title = change.title
            case Action.READ_RECEIPTS:
                assert change.read_receipts is not None
                chat.read_receipts = change.read_receipts

    def acknowledge(self, user: str, device: str, chat_id: str, sequence: int, now: str) -> None:
        """A device that catches up with another may be listed; a person's own rise must be."""
        known = self.acked.get((user, device, chat_id), 0)
        self.acked[user, device, chat_id] = max(known, sequence)
        self.may[user].add(chat_id)
        self._raise(self.delivered, user, chat_id, sequence, now)

    def mark_read(self, user: str, chat_id: str, sequence: int, now: str) -> None:
        self._raise(self.delivered, user, chat_id, sequence, now)
        self._raise(self.read, user, chat_id, sequence, now)

    def _raise(
        self, rises: dict[tuple[str, str], Rise], user: str, chat_id: str, sequence: int, now: str
    ) -> None:
        if sequence > rises.get((user, chat_id), NEVER)[0]:
            rises[user, chat_id] = sequence, now
            self.must[user].add(chat_id)

    def forget_device(self, user: str, device: str) -> None:
        for key in [key for key in self.acked if key[:2] == (user, device)]:
            del self.acked[key]

    def mute(self, user: str, chat_id: str, until: str | None) -> None:
        if user in self.chats[chat_id].members:
            is_new = self.muted.get((user, chat_id)) != until
            self.muted[user, chat_id] = until
            (self.must if is_new else self.may)[user].add(chat_id)

    def marks(self, chat: KeptChat) -> list[Mark]:
        return [
            Mark(
                user,
                chat.joined_at.get(user, 0),
                *self.delivered.get((user, chat.chat_id), NEVER),
                *self.read.get((user, chat.chat_id), NEVER),
            )
            for user in sorted(chat.members)
        ]

    def lose_counter(self, chat_id: str) -> None:
        self.chats[chat_id].has_counter = False

    def recover_counter(self, chat_id: str) -> None:
        """A chat that has its counter again may be listed, although nothing else of it is different."""
        self.chats[chat_id].has_counter = True
        for user in self.chats[chat_id].members:
            self.may[user].add(chat_id)

    def unread(self, user: str, chat: KeptChat) -> int:
        after, _ = self.read.get((user, chat.chat_id), NEVER)
        return sum(
            kept.kind == "message" and kept.sender != user and kept.sequence > after
            for kept in chat.entries.values()
        )

    def may_list(self, user: str) -> set[str]:
        """The chats that a page of an overview may list; those with numbers to be sealed at any time."""
        mine = [chat for chat in self.chats.values() if user in chat.members]
        moving = {chat.chat_id for chat in mine if chat.abandoned or not chat.has_counter}
        return self.must[user] | self.may[user] | moving

    def listed(self, user: str, chat_ids: list[str], complete: bool) -> None:
        """A page has listed these; after the last one nothing may be left that must be listed."""
        self.must[user].difference_update(chat_ids)
        self.may[user].update(chat_ids)
        if complete:
            assert not [chat for chat in self.must[user] if self._concerns(user, chat)], (
                "an overview missed a chat"
            )
            self.must[user], self.may[user] = set(), set()

    def _concerns(self, user: str, chat_id: str) -> bool:
        chat = self.chats[chat_id]
        return user in chat.members or user in chat.left_at
