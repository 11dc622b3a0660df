"""One append to one chat, on a store that commits chat by chat: its drafts, and what became of each.

ChatAppend   the drafts of one append
Placed       a draft with its position, not yet written
Twin         a draft whose id an earlier one of the same plan uses
Attempt      the numbers that a plan of two_phase has taken

`append_by_chat` runs them: chats are independent, and every draft gets an outcome.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from typing import Generic, Protocol, TypeVar

from msgspec import Struct, field

from parley.concurrency import map_concurrently
from parley.core.append import NO_CHAT, Decision, Verdict, answer_again, decide_append
from parley.errors import (
    OUTCOME_UNKNOWN,
    STORE_UNAVAILABLE,
    OutcomeUnknown,
    Refusal,
    StoreError,
    refusal_of,
)
from parley.model import Action, Appended, AppendResult, Draft, Outcome, Persisted, Role, StoredEntry
from parley.store.damage import note_damage
from parley.store.recent_sends import RecentSends
from parley.telemetry import Metrics
from parley.wire.codec import encode_entry
from parley.wire.frames import Entry

PEOPLE_REMEMBERED_MAX = 10_000
CHATS_AT_ONCE_MAX = 64
NONE: Set[int] = frozenset()

Original = TypeVar("Original")
"""How an engine knows an id that is in the log already."""
PlanT = TypeVar("PlanT")


class Placed(Struct):
    """A draft with its position in the log, not yet written."""

    index: int
    draft: Draft
    entry: Entry


class Twin(Struct):
    """A draft whose id an earlier one of the same plan uses: what it hears if that one is written."""

    index: int
    first: int
    decision: Decision


class RememberedChat(Protocol):
    """What an append tells the memory of its chat."""

    epoch: int
    published: int | None
    last_keys: dict[str, bytes]
    sent: RecentSends


class ChatAppend(Generic[Original]):
    """One append to one chat: what is still to do, and what became of the rest."""

    def __init__(self, chat_id: str, drafts: list[Draft]) -> None:
        self.chat_id = chat_id
        self.drafts = drafts
        self.todo = deque(range(len(drafts)))
        self.outcomes: dict[int, Outcome] = {}
        self.positions: list[StoredEntry] = []
        self.epoch = 0
        self.published: int | None = None
        self.conflicts = 0
        """How often a condition of its write failed; a retry that met its own key is none."""
        self.originals: dict[bytes, Original] = {}
        """Ids that are in the log already, with their keys: they stay there, however often this is tried."""
        self.trouble: Refusal | None = None
        """Why the allocator gives no numbers."""

    def decide_without_chat(self) -> None:
        """There is no such chat: the decision itself says what its drafts are refused with."""
        for index, draft in enumerate(self.drafts):
            decision = decide_append(draft, NO_CHAT)
            assert isinstance(decision, Refusal), "there is nothing to place it in, and no original"
            self.outcomes[index] = decision
        self.todo.clear()

    def refuse_rest(self, refusal: Refusal) -> None:
        """Refuse every draft without an outcome. They were certainly not written: see `leave_open`."""
        for index in range(len(self.drafts)):
            self.outcomes.setdefault(index, refusal)
        self.todo.clear()

    def leave_open(self, indices: Iterable[int]) -> None:
        """The outcome of these is unknown: neither acknowledged nor refused."""
        for index in indices:
            self.outcomes[index] = OUTCOME_UNKNOWN

    def doubt_above(self, resolved: int) -> None:
        """What is stored and not yet visible is not acknowledged. A retry will find it."""
        for index, outcome in self.outcomes.items():
            if isinstance(outcome, Appended) and outcome.sequence > resolved:
                self.outcomes[index] = OUTCOME_UNKNOWN

    def put_back(self, indices: list[int]) -> None:
        """These are to be done again, in their old order."""
        self.todo = deque(sorted([*indices, *self.todo]))

    def settle(self, chat: RememberedChat, twins: Sequence[Twin], placed: Sequence[Placed] = ()) -> None:
        """`placed` is durable, and nothing else of its plan is: tell the drafts, and their twins."""
        self.epoch, self.published = chat.epoch, chat.published
        if len(chat.last_keys) > PEOPLE_REMEMBERED_MAX:
            chat.last_keys.clear()
        chat.sent.note(one.entry for one in placed)
        written: dict[int, Entry] = {}
        for one in placed:
            draft, entry = one.draft, one.entry
            written[one.index] = entry
            self.outcomes[one.index] = Appended(
                message_id=entry.message_id,
                sequence=entry.sequence,
                epoch=entry.epoch,
                created_at=entry.created_at,
            )
            self.positions.append(
                StoredEntry(entry.sequence, encode_entry(entry), draft.change, draft.request_id)
            )
            if draft.client_key is not None:
                chat.last_keys[draft.sender_id] = draft.client_key
        for twin in twins:
            self._settle_twin(twin, written)

    def _settle_twin(self, twin: Twin, written: dict[int, Entry]) -> None:
        if twin.first not in written:
            is_open = self.outcomes.get(twin.first) is OUTCOME_UNKNOWN
            if is_open and twin.decision is Verdict.ANSWER:
                self.outcomes[twin.index] = OUTCOME_UNKNOWN
            else:
                self.put_back([twin.index])
        elif isinstance(twin.decision, Refusal):
            self.outcomes[twin.index] = twin.decision
        else:
            self.outcomes[twin.index] = answer_again(self.drafts[twin.index], written[twin.first])

    @property
    def news(self) -> Persisted | None:
        if not self.positions:
            return None
        positions = sorted(self.positions, key=lambda at: at.sequence)
        return Persisted(self.chat_id, self.epoch, positions, self.published)


async def append_by_chat(
    drafts: Sequence[Draft],
    append_to: Callable[[ChatAppend[Original]], Awaitable[None]],
    metrics: Metrics,
) -> AppendResult:
    """Append to each chat by itself. Every draft gets an outcome, whatever happens to the store."""

    async def settle(append: ChatAppend[Original]) -> None:
        try:
            await append_to(append)
        except OutcomeUnknown:  # what is in doubt has its outcome by now: nothing else was sent
            metrics.commit_failures.inc()
            append.refuse_rest(STORE_UNAVAILABLE)
        except StoreError as error:
            metrics.sequence_allocation_errors.inc()
            note_damage(metrics, error, by_write=True)
            append.refuse_rest(refusal_of(error))

    by_chat: dict[str, list[int]] = {}
    for index, draft in enumerate(drafts):
        by_chat.setdefault(draft.chat_id, []).append(index)
    appends: list[ChatAppend[Original]] = [
        ChatAppend(chat_id, [drafts[index] for index in indices]) for chat_id, indices in by_chat.items()
    ]
    await map_concurrently(settle, appends, CHATS_AT_ONCE_MAX)
    outcomes: dict[int, Outcome] = {}
    for append, indices in zip(appends, by_chat.values(), strict=True):
        outcomes |= {index: append.outcomes[place] for place, index in enumerate(indices)}
    result = AppendResult(
        [outcomes[index] for index in range(len(drafts))],
        [append.news for append in appends if append.news is not None],
    )
    metrics.conflicts.add(sum(append.conflicts for append in appends), len(appends))
    return result


def keyed(placed: list[Placed]) -> list[Placed]:
    """Those with a client's id."""
    return [one for one in placed if one.draft.client_key is not None]


def is_about_members(draft: Draft) -> bool:
    """Whether it gives the membership a new revision."""
    return draft.change is not None and draft.change.action not in (Action.RENAMED, Action.READ_RECEIPTS)


class PostingRules(Protocol):
    """What a chat says about who may post."""

    @property
    def announcement_only(self) -> bool:
        """Only owners and admins post."""
        ...

    @property
    def slow_mode_seconds(self) -> int:
        """How long a member waits between two messages."""
        ...


def is_restricted(chat: PostingRules, role: Role | None) -> bool:
    """Whether a sender with this role is decided about again when the chat has changed meanwhile."""
    return role is Role.MEMBER and (chat.announcement_only or chat.slow_mode_seconds > 0)


class Attempt(Struct, Generic[PlanT]):
    """The numbers that a plan has taken: what is to be written there, and which of them are given up."""

    plan: PlanT
    placed: list[Placed]
    voids: list[int] = field(default_factory=list)

    @property
    def first(self) -> int:
        return min([self.placed[0].entry.sequence, *self.voids])

    @property
    def last(self) -> int:
        return self.placed[-1].entry.sequence

    @property
    def must_be_last(self) -> bool:
        return is_about_members(self.placed[0].draft)

    def give_up(self, append: ChatAppend[Original]) -> None:
        """Other numbers must be taken for all that is left."""
        self.sort(append, late={one.index for one in self.placed})

    def keep_members(self, append: ChatAppend[Original], joined: Mapping[str, int]) -> None:
        """The membership has changed: who was a member before the number and still is writes there.

        `joined`: the position at which each of those who may write joined. All others are decided again.
        """
        self.sort(
            append,
            out={one.index for one in self.placed if one.draft.sender_id not in joined},
            late={
                one.index
                for one in self.placed
                if one.draft.change is not None or joined.get(one.draft.sender_id, 0) >= one.entry.sequence
            },
        )

    def sort(
        self,
        append: ChatAppend[Original],
        *,
        out: Set[int] = NONE,
        late: Set[int] = NONE,
        taken: Set[int] = NONE,
    ) -> None:
        """Keep what can still be written at its number; the rest is decided again, if it has no outcome.

        `out`: what may not be written. `late`: what must take another number, and for the order's sake all
        that come after it. `taken`: whose number another append has written, so that it needs no void.
        """
        placed, self.placed = self.placed, []
        is_late, unwritten = False, set[bytes | None]()
        for one in placed:
            is_late = is_late or one.index in late
            follows = one.draft.after_key is not None and one.draft.after_key in unwritten
            if not (is_late or follows or one.index in out):
                self.placed.append(one)
                continue
            if one.index not in append.outcomes:
                append.put_back([one.index])
            if not isinstance(append.outcomes.get(one.index), Appended):
                unwritten.add(one.draft.client_key)
            if one.index not in taken:
                self.voids.append(one.entry.sequence)
