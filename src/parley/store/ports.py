"""The engine contract: everything that a storage engine must implement. See docs/adding-an-engine.md.

Each docstring is a promise, and the contract suite (tests/contracts) checks it on every engine. `Engine` at
the end of this file puts the ports together.

An engine raises `StoreUnavailable` when nothing was written, and `OutcomeUnknown` when something may have
been written. It never raises the errors of its driver.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from parley.core.deliveries import DeliveryQueue, QueueClaim
from parley.core.jobs import Job
from parley.model import (
    AppendResult,
    ChatMember,
    CursorMove,
    Draft,
    Head,
    MemberCursor,
    MemberSettings,
    Notify,
    OverviewPage,
    Page,
    Persisted,
    Role,
    StoredChat,
    User,
)
from parley.store.maintenance import Inspection, Repairs, Transfer
from parley.store.rows import ArchiveMark, Finding
from parley.store.subscriptions import Subscriptions
from parley.store.tables import Key, R, RecordChange, RecordTable
from parley.wire.limits import ANSWER_SECONDS_MAX

APPEND_SECONDS_MAX = 2.5
"""How long an append waits for a lock, a race or lower numbers before it returns what it knows."""
assert APPEND_SECONDS_MAX < ANSWER_SECONDS_MAX
DRAFTS_PER_APPEND_MAX = 512
"""Drafts in one `Log.append`, on every engine. Calls between nodes are sized for it."""

Handle = Callable[[Persisted], Awaitable[None]]
"""A worker's handler: it gets positions of one chat that became durable."""


class Batching(Struct, frozen=True, kw_only=True):
    """How the sender groups drafts for `Log.append`, and how many appends it runs at once."""

    per_chat: bool
    """True: an append holds drafts of one chat, and the chat's next append waits for it, so a slow chat
    delays no other. False: all chats share one queue, and an append holds drafts of any of them."""
    appends_at_once_max: int
    """Appends that run at once, over all chats."""
    drafts_max: int = DRAFTS_PER_APPEND_MAX
    """Drafts in one append."""

    def __post_init__(self) -> None:
        assert self.appends_at_once_max >= 1
        assert 1 <= self.drafts_max <= DRAFTS_PER_APPEND_MAX


class Log(Protocol):
    """Every chat's entries. Dense: each number from 1 to the head is an entry or a void."""

    async def append(self, drafts: Sequence[Draft]) -> AppendResult:
        """Durable before it returns, in the drafts' order within each chat.

        The same client key returns the same position. Membership, predecessors, permissions and the consent
        of a person who is added are decided in the same transaction. A join ends the person's invitation to
        the chat. A bad draft never fails the others.
        """
        ...

    async def read(self, chat_id: str, after: int, limit: int) -> Page:
        """Positions after `after`, ascending, contiguous and resolved; at least one if there is one."""
        ...

    async def read_before(self, chat_id: str, before: int, limit: int) -> Page:
        """The last positions below `before`, ascending, contiguous and resolved."""
        ...

    async def heads(self, chat_ids: Sequence[str]) -> dict[str, Head]:
        """Where the resolved prefix of each log ends, read strongly; needs no counter."""
        ...

    async def find_key(self, chat_id: str, client_key: bytes) -> bytes | None:
        """The JSON of the entry that is stored under a client's id."""
        ...

    async def find_message(self, message_id: str, chat_ids: Sequence[str] | None) -> tuple[str, int] | None:
        """The chat and the sequence of a message in one of these chats.

        None: in any chat. Only operators ask for that: a shared store may have to look at all its chats.
        """
        ...

    async def seal(self) -> list[Persisted]:
        """Turn positions that were allocated and abandoned into voids; durable before it returns."""
        ...


class Replaced(Struct, frozen=True):
    """What an entry becomes. `before`: the JSON that it must still have; None: whatever it has."""

    after: bytes
    before: bytes | None = None


class Entries(Protocol):
    """What is done to entries after they were appended: bodies are replaced, archived ones are let go.

    Positions up to a chat's `trimmed_through` are in the cold tier alone (docs/cold-tier.md). There the
    engine's `Log` reads nothing (EntriesTrimmed), and no append, no seal and no repair writes anything,
    however late it comes. The head, its counter and recovery count them as entries. For as long as
    idempotency keys live, an id whose entry was trimmed is answered as before.
    """

    async def replace(self, chat_id: str, entries: Mapping[int, Replaced]) -> list[int]:
        """Put other JSON in place of these entries, and nothing else of them; durable before it returns.

        Returns the positions that have it now. Those that are void, are not as they must be, or that the
        engine does not hold any more are left out; those that it still holds below its mark, beside later
        ones, are replaced. A message that is deleted no longer counts as unread. May be repeated.
        """
        ...

    async def scrub(self, leftovers: Sequence[bytes] | None = None) -> None:
        """What was replaced or trimmed before the call is in no file of the engine when it returns.

        `leftovers`: the bytes before each body that was replaced, up to its quotation mark. By them a copy
        that was left behind is found; without a body it ends with another quotation mark there. None: all.
        """
        ...

    async def marks(self, chat_ids: Sequence[str]) -> dict[str, ArchiveMark]:
        """How far each of the chats that exist is archived and trimmed, read strongly."""
        ...

    async def record(self, chat_id: str, mark: ArchiveMark) -> bool:
        """Replace the mark, durable before it returns; what was trimmed stays as it is.

        False, and nothing is written, unless the stored version is the one before: another archiver won.
        """
        ...

    async def needed_from(self, chat_id: str) -> int:
        """The lowest position that a consumer has not done: of a feed, of the bus, of deliveries and push.

        Above every sequence if there is none.
        """
        ...

    async def trim(self, chat_id: str, through: int) -> None:
        """Remove the positions up to here; the mark first. Durable before it returns. May be repeated.

        Nothing happens unless the log is archived that far.
        """
        ...


class Directory(Protocol):
    """Chats and their members. Changes of an existing chat are drafts: see `Log.append`."""

    async def create_chat(self, chat: StoredChat, member_ids: Sequence[str]) -> tuple[StoredChat, bool]:
        """The chat, its counter at 0 and its members, all or nothing; `created_by` is the owner.

        A direct chat of the same two people is returned as it is, with False. Refused with `BLOCKED` or
        `INVITATION_NEEDED` unless each person consents to being added by the creator (`core.consent`). That
        is decided with the members' rows: in the same transaction, unless the engine says that it writes
        those of a large chat before the chat itself.
        """
        ...

    async def chat(self, chat_id: str) -> StoredChat | None:
        """The chat's own record."""
        ...

    async def role(self, chat_id: str, user_id: str) -> Role | None:
        """The role of a member, read strongly; None for a non-member."""
        ...

    async def members(self, chat_id: str, after_user_id: str, limit: int) -> list[ChatMember]:
        """Members in the order of their ids, after this one."""
        ...

    async def member_count(self, chat_id: str) -> int:
        """How many members a chat has."""
        ...

    async def chat_ids_of(self, user_id: str, *, unasked: bool = False) -> list[str]:
        """Every chat that a person is a member of, read strongly.

        `unasked`: only those that somebody put them into who was not their contact.
        """
        ...

    async def sharing_chats(self, user_id: str, others: Sequence[str]) -> set[str]:
        """Those of these other people who are in a chat with this person, read strongly."""
        ...

    async def fence(self, user_id: str, chat_ids: Sequence[str] | None = None) -> None:
        """What is under way is decided again by what is stored now, not by what was read before the call.

        Appends to these chats, to all of the person's if none are given; and whatever adds them to a chat.
        """
        ...


class Records(Protocol):
    """Tables of small records: each is one struct under a key, and is compared as a whole. Read strongly.

    An engine knows nothing of what is in them: `store/tables.py` says which there are.
    """

    rest_seconds: float
    """How long what can be computed again rests before it is written: longer where each write is charged."""

    async def get(
        self, table: RecordTable[R], keys: Sequence[Key], *, may_be_old: bool = False
    ) -> list[R | None]:
        """What is under each of these keys. Whatever a person types may be asked for.

        `may_be_old`: what is found may be a moment old, but what is there is never missing. May be used
        without `Engine.open`.
        """
        ...

    async def page(
        self, table: RecordTable[R], partition: str, after: str, limit: int, newest_first: bool = False
    ) -> list[R]:
        """The records of a partition in the order of their places, or from the last to the first.

        Those beyond the place `after`, if that is not empty.
        """
        ...

    def scan(self, table: RecordTable[R], partition: str = "", *, after: str = "") -> AsyncIterator[list[R]]:
        """Every record, or those of a partition, page by page, in the order of their places within each.

        `after`: those beyond this partition. For commands and rare jobs. May be used without `Engine.open`.
        None is missing that was there before and after.
        """
        ...

    async def count(self, table: RecordTable[R]) -> int:
        """How many records there are. It may be some hours old."""
        ...

    async def commit(self, table: RecordTable[R], changes: Sequence[RecordChange[R]]) -> bool:
        """All of these changes of one partition, durably, or none; see `RecordTable.is_compared`.

        False, and nothing changes, if one of them is not met. Of many who change the same record at once,
        one does. OutcomeUnknown: they may have been made, and what is there now says neither.
        """
        ...

    async def raise_to(self, table: RecordTable[R], key: Key, number: int) -> bool:
        """Raise the table's number of a record, durably; a lower one changes nothing. False: there is none.

        Writes nothing else, and meets no change of the record. A record that was removed, and is added
        again, may begin with the number that it had.
        """
        ...

    async def expire(self, table: RecordTable[R], now_ms: int) -> int:
        """Delete what has expired by then; returns how much. An engine that does so by itself returns 0."""
        ...

    async def load(self, table: RecordTable[R], records: Sequence[R]) -> None:
        """Write many as they are, over whatever is there; durable when it returns. For copies.

        May be used without `Engine.open`. Not all or none: it is repeated after a failure.
        """
        ...


class Profiles(Protocol):
    """Many people at once. Read strongly."""

    async def profiles(self, user_ids: Sequence[str]) -> dict[str, User]:
        """The profiles of these people, for those who exist, in the order in which they are asked for."""
        ...


class MemberStates(Protocol):
    """The state of members in a chat, read strongly. Notes that are not durable yet are not included."""

    async def cursors(self, chat_id: str) -> list[MemberCursor]:
        """Every member of a chat and how far they are, in the order of their ids."""
        ...

    async def mute(self, user_id: str, chat_id: str, until: str | None) -> None:
        """Durable before it returns; the chat counts as changed for this person. None: not muted."""
        ...

    async def set_notify(self, user_id: str, chat_id: str, notify: Notify) -> None:
        """Durable before it returns. Nothing happens if the person is not in the chat."""
        ...

    async def settings(self, chat_id: str, user_ids: Sequence[str]) -> dict[str, MemberSettings]:
        """The settings and positions of these people in a chat; of people without any, the defaults.

        Those that were set last, and the defaults while they are out of the chat.
        """
        ...

    async def forget_cursors(self, user_id: str, *, dry: bool = False) -> int:
        """Delete the positions of all devices of a person, durably; returns how many. May be repeated.

        `dry`: only count them.
        """
        ...


class Overviews(Protocol):
    """Which chats of a user changed. Read strongly."""

    async def changed(
        self, user_id: str, device_id: str, after: str | None, limit: int, brief: bool = False
    ) -> OverviewPage:
        """The chats that changed for a person after a token, read strongly; every chat if the token is None,
        or, by their last entries, the latest first, if it is NEWEST (an empty chat counts by its creation).
        A page ends early when its last entries exceed the size of a page. `brief`: only positions and counts,
        so no last entry is read. A token works with and without `brief`.
        """
        ...


class Cursors(Protocol):
    """How far each device and person is. Positions only rise."""

    rides_with_appends: bool
    """Whether an append also makes everything durable that was noted before it."""

    def subscribe(self, notify: Callable[[list[CursorMove]], None]) -> None:
        """Call `notify` with the users' positions that rose, once they are durable, and with no others.

        A read position also raises the delivered one: both are in the call. An error of `notify` is logged
        and has no other effect.
        """
        ...

    def note_acked(self, user_id: str, device_id: str, chat_id: str, sequence: int, now_ms: int) -> None:
        """Remember a device's position; durable with the next commit, or after 50 ms; if shared, 2 s."""
        ...

    def note_read(self, user_id: str, chat_id: str, sequence: int, now_ms: int) -> None:
        """Remember how far a person has read; as `note_acked`."""
        ...

    async def flush(self, user_id: str | None = None) -> None:
        """Everything noted before the call (of this person, if given) is durable when it returns."""
        ...

    async def forget_device(self, user_id: str, device_id: str) -> None:
        """Delete the positions of a device; those of the person stay. Durable before it returns."""
        ...

    async def position(self, user_id: str, device_id: str, chat_id: str) -> int:
        """A device's own position in a chat."""
        ...


class DeliveryQueues(Protocol):
    """The recipients that are not up to date, by chat. A queue holds positions, never messages.

    A worker runs a queue only while it has claimed it. Workers of one kind share a prefix of the ids of their
    recipients.
    """

    async def extend(
        self, chat_id: str, recipients: Sequence[str], first: int, last: int, claim: QueueClaim | None = None
    ) -> list[DeliveryQueue]:
        """These recipients are owed the positions from `first` to `last`; durable before it returns.

        An existing queue only gets a higher target: its front, its retries, its claim and its due time stay.
        Returns the new queues, which are due at once, or belong to the claim if there is one.
        """
        ...

    async def due(
        self, prefix: str, now_ms: int, limit: int, besides: Collection[str] = ()
    ) -> list[DeliveryQueue]:
        """Delivery queues that are due by then, without those of the recipients `besides`.

        Not more than `limit`, in no order, but none is left out for ever. A queue with a claim is due when
        the claim has run out: its worker died, or is too slow.
        """
        ...

    async def next_due(self, prefix: str, after_ms: int) -> int | None:
        """The earliest due time after this one."""
        ...

    async def claim(
        self, chat_id: str, recipient: str, claim: QueueClaim, now_ms: int
    ) -> DeliveryQueue | None:
        """Take a queue that is due, durable before it returns. Of several workers one gets it.

        Returns the queue as it was before, with the claim that ran out, if there was any. None: not due.
        """
        ...

    async def advance(self, queue: DeliveryQueue, token: str) -> DeliveryQueue | None:
        """Replace the queue, except its target, which only `extend` raises. Durable before it returns.

        Returns it as it is stored. None, and nothing is written, unless the queue's claim is `token`.
        """
        ...

    async def finish(self, queue: DeliveryQueue) -> bool:
        """Everything up to its target was delivered: remove the queue.

        False if its target is higher by now, or the claim is another one.
        """
        ...

    async def forget(self, recipient: str) -> None:
        """Remove all queues of a recipient. Durable before it returns."""
        ...


class Outbox(Protocol):
    """The chats with durable entries that may not be on the bus yet. The entries are in the log."""

    def note_published(self, chat_id: str, through: int) -> None:
        """Everything up to here is on the bus; durable with the chat's next append, or some seconds later."""
        ...

    async def unpublished(self) -> dict[str, int]:
        """Chats with entries that are not marked as published, and each one's mark.

        A chat is listed from the moment its append is durable until its mark has reached its head. It may
        be listed for some seconds longer.
        """
        ...

    async def flush(self) -> None:
        """Every mark noted before the call is durable when it returns."""
        ...


class Allocator(Protocol):
    """Allocates the sequences of `two_phase`. It allocates a number once, whatever happens to the caller."""

    async def create(self, chat_id: str) -> None:
        """Create a new chat's counter at 0. An existing counter stays as it is."""
        ...

    async def allocate(self, chat_id: str, count: int, floor: int) -> int:
        """The last of `count` successive numbers, which no other caller gets.

        `floor` is the highest number known to be in the log. A counter below it has lost data:
        InconsistentCounterError. Without a counter: CounterMissingError. Neither allocates anything.
        After OutcomeUnknown or StoreUnavailable numbers may be lost, but are never allocated twice.
        """
        ...

    async def last(self, chat_id: str) -> int | None:
        """The last allocated number, read strongly; None without a counter."""
        ...

    async def restore(self, chat_id: str, at_least: int) -> int:
        """Set a counter that was lost or fell back to at least this number. Returns its value."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


class Feed(Protocol):
    """Every durable position, for workers that must not miss one."""

    async def lags(self) -> dict[str, int]:
        """How many positions each group that has stored an offset has not done yet, by what is durable.

        StoreUnavailable if that cannot be read now.
        """
        ...

    async def consume(self, group: str, handle: Handle) -> None:
        """Pass each chat's positions to one member of the group, ascending, until cancelled.

        A new group begins with the oldest position. Positions are done when `handle` returns. If it raises,
        they are delivered again, before any later position of their chat. Positions may be delivered twice
        after a crash, or when a chat moves to another member: a `handle` that takes long is then cancelled.
        """
        ...


class Store(Protocol):
    """The ports that every use case needs."""

    @property
    def log(self) -> Log:
        """See `Log`."""
        ...

    @property
    def directory(self) -> Directory:
        """See `Directory`."""
        ...

    @property
    def member_states(self) -> MemberStates:
        """See `MemberStates`."""
        ...

    @property
    def cursors(self) -> Cursors:
        """See `Cursors`."""
        ...

    @property
    def overviews(self) -> Overviews:
        """See `Overviews`."""
        ...


class Engine(Store, Protocol):
    """One storage engine. `app.engines.make_engine` creates it; nothing else knows which one it is.

    Creating it connects to nothing. The caller calls `open` before it uses a port, except where a port says
    otherwise, and `close` last, with or without `open`.
    Who has asked a port that may be used without `open` may then read `Directory` and `MemberStates`, too.
    """

    @property
    def records(self) -> Records:
        """See `Records`."""
        ...

    @property
    def entries(self) -> Entries:
        """See `Entries`."""
        ...

    @property
    def batching(self) -> Batching:
        """How the sender must group drafts for its log."""
        ...

    @property
    def outbox(self) -> Outbox | None:
        """None: appends leave no mark for a bus, so this engine cannot serve a node with Kafka."""
        ...

    @property
    def feed(self) -> Feed | None:
        """None: the engine has no order over all chats. Workers then consume the feed of the bus."""
        ...

    @property
    def allocator(self) -> Allocator | None:
        """Allocates the sequences of `two_phase`. None: the engine does it itself, for itself only."""
        ...

    @property
    def queues(self) -> DeliveryQueues:
        """See `DeliveryQueues`."""
        ...

    @property
    def inspection(self) -> Inspection:
        """See `Inspection`."""
        ...

    @property
    def repairs(self) -> Repairs:
        """See `Repairs`."""
        ...

    @property
    def transfer(self) -> Transfer:
        """See `Transfer`."""
        ...

    @property
    def available(self) -> bool:
        """Whether it can serve at the moment; appends are refused while it cannot."""
        ...

    async def create(self, report: Callable[[str], None]) -> list[str]:
        """Create a missing file or missing tables, and return their names. Existing ones stay unchanged.

        `report` gets a line about each step, for the operator. May be called without `open`.
        """
        ...

    def diagnose(self) -> AsyncIterator[Finding]:
        """What an operator should know about the store and what it runs on; changes nothing.

        May be called without `open`. ParleyError: the store cannot be used.
        """
        ...

    async def open(self) -> None:
        """Ready to serve when it returns. Repairs what a crash left behind.

        ConfigError: it cannot serve until the operator changes something, as a copy into it that is not
        finished (`COPY_MARK`). StoreUnavailable: not now.
        """
        ...

    def jobs(self, subscriptions: Subscriptions) -> list[Job]:
        """The background jobs of the engine, from `open` to `close`, supervised. Commands do not run them."""
        ...

    async def close(self) -> None:
        """Make everything noted durable, if the store can be reached, and close connections."""
        ...
