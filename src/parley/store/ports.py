"""The doors to whatever keeps things. Each docstring is a promise that every engine's tests check.

An engine raises `StoreUnavailable` when nothing was written, and `OutcomeUnknown` when it cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from parley.model import (
    AppendResult,
    Changed,
    Chat,
    Draft,
    Head,
    Manners,
    Mark,
    Member,
    Moved,
    Page,
    Persisted,
    Regard,
    Related,
    Relation,
    Role,
    Session,
    User,
)
from parley.wire.limits import ANSWER_SECONDS_MAX

APPEND_SECONDS_MAX = 2.5
"""How long an append waits for others (a lock, a race, numbers below its own); then it says what it knows."""
assert APPEND_SECONDS_MAX < ANSWER_SECONDS_MAX


class Log(Protocol):
    """Every chat's entries. Dense: each number from 1 to the head is an entry or a void."""

    async def append(self, drafts: Sequence[Draft]) -> AppendResult:
        """Durable before it returns, in the drafts' order within each chat.

        The same client key returns the same position; membership, predecessors and permissions are
        decided in the same transaction; one bad draft never fails its neighbours.
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
        """The entry stored under a client's id, as it travels."""
        ...

    async def find_message(self, message_id: str, chat_ids: Sequence[str]) -> tuple[str, int] | None:
        """The chat and the sequence of a message in one of these chats."""
        ...

    async def seal(self) -> list[Persisted]:
        """Turn positions that were allocated and abandoned into voids; durable before it returns."""
        ...


class Directory(Protocol):
    """Chats and who is in them. Changes of a chat that exists are drafts: see `Log.append`."""

    async def create_chat(self, chat: Chat, member_ids: Sequence[str]) -> tuple[Chat, bool]:
        """The chat, its counter at 0 and its members, all or nothing; `created_by` is the owner.

        A direct chat of the same two people is returned as it is, with False.
        """
        ...

    async def chat(self, chat_id: str) -> Chat | None:
        """The chat's own record."""
        ...

    async def role(self, chat_id: str, user_id: str) -> Role | None:
        """The role of a member, read strongly; None for everybody else."""
        ...

    async def members(self, chat_id: str, after_user_id: str, limit: int) -> list[Member]:
        """Members in the order of their ids, after one."""
        ...

    async def member_count(self, chat_id: str) -> int:
        """How many members a chat has."""
        ...

    async def chat_ids_of(self, user_id: str) -> list[str]:
        """Every chat that a person is a member of, read strongly."""
        ...


class Accounts(Protocol):
    """People and the sessions of their devices."""

    async def add_user(self, user: User, password_hash: str) -> bool:
        """Durable before it returns; False when the username is taken."""
        ...

    async def user(self, user_id: str) -> User | None:
        """A person by id."""
        ...

    async def user_by_name(self, username: str) -> tuple[User, str] | None:
        """A person by exact username, with the password's hash."""
        ...

    async def update_user(self, user: User, password_hash: str | None = None) -> None:
        """Replace what a person may change; the hash only if one is given. `last_seen` is not theirs."""
        ...

    async def add_session(self, session: Session, token_hash: bytes) -> None:
        """Durable before it returns. Only the token's hash is kept."""
        ...

    async def session_by_token(self, token_hash: bytes) -> Session | None:
        """The session of a token, whatever its age."""
        ...

    async def sessions(self, user_id: str) -> list[Session]:
        """A person's sessions, the last used first."""
        ...

    async def end_sessions(self, user_id: str, session_ids: Sequence[str]) -> list[str]:
        """Forget these sessions of this person; returns those that existed."""
        ...


class Relations(Protocol):
    """Whom people know and whom they have blocked. Read strongly."""

    async def relate(self, user_id: str, other_id: str, relation: Relation, since: str | None) -> str | None:
        """Hold somebody so since then, or no more; repeating it changes nothing. Returns since when it holds.

        Durable before it returns. Somebody who is blocked can neither create the direct chat of the two nor
        append to it from then on (`BLOCKED`), whatever is under way. Refused: unknown people, too many.
        """
        ...

    async def related(
        self, user_id: str, relation: Relation, after_user_id: str, limit: int
    ) -> list[Related]:
        """Those a person holds so, in the order of their ids, after one."""
        ...

    async def regards(
        self, viewer_id: str, user_ids: Sequence[str], acquainted: bool = False
    ) -> dict[str, Regard]:
        """For each of these who exists, how they and the viewer stand to each other.

        `acquainted`: the caller knows that they share a chat, so nobody looks. The viewer may be among them.
        """
        ...

    async def manners(self, user_ids: Sequence[str]) -> dict[str, Manners]:
        """For each of these who exists, what others may notice of them."""
        ...

    async def profiles(self, user_ids: Sequence[str]) -> dict[str, User]:
        """Those of these who exist."""
        ...


class Standings(Protocol):
    """Where people stand in a chat. Read strongly; what is noted and not durable does not count."""

    async def marks(self, chat_id: str) -> list[Mark]:
        """Every member of a chat and how far they are, in the order of their ids."""
        ...

    async def mute(self, user_id: str, chat_id: str, until: str | None) -> None:
        """Durable before it returns; the chat counts as changed for this person. None: not muted."""
        ...

    async def muted_until(self, user_id: str, chat_id: str) -> str | None:
        """As it was set last."""
        ...


class Cursors(Protocol):
    """How far each device and person is. Positions only rise."""

    moved: Callable[[list[Moved]], None]
    """Told which people's positions rose, once that is durable; those that did not rise are not told of.

    What is read raises what is delivered, and both are told. Whoever wants to hear sets it.
    """
    rides_with_appends: bool
    """Whether what is noted before an append is durable with it, at the latest."""

    def note_acked(self, user_id: str, device_id: str, chat_id: str, sequence: int, now_ms: int) -> None:
        """Remember a device's position; durable with the next commit, or after 50 ms; if shared, 2 s."""
        ...

    def note_read(self, user_id: str, chat_id: str, sequence: int, now_ms: int) -> None:
        """Remember how far a person has read; as `note_acked`."""
        ...

    def note_used(self, token_hash: bytes, now_ms: int) -> None:
        """Remember that a session was used; as `note_acked`."""
        ...

    def note_seen(self, user_id: str, now_ms: int) -> None:
        """Remember that a person was there then; as `note_acked`."""
        ...

    async def flush(self, user_id: str | None = None) -> None:
        """Everything noted before the call, of one person if named, is durable when it returns."""
        ...

    async def forget_device(self, user_id: str, device_id: str) -> None:
        """The positions of a device that is no more; those of the person stay. Durable before it returns."""
        ...

    async def position(self, user_id: str, device_id: str, chat_id: str) -> int:
        """A device's own position in a chat."""
        ...

    async def changed(
        self, user_id: str, device_id: str, after: str | None, limit: int, brief: bool = False
    ) -> Changed:
        """What changed for a person after a token, read strongly; every chat when there is none.

        A page ends early when its last entries get longer than a page may be. `brief`: positions and counts
        alone, so no last entry is read; tokens serve either way.
        """
        ...


class Outbox(Protocol):
    """What became durable and may not be on the bus yet. The log itself holds the bodies."""

    def note_published(self, chat_id: str, through: int) -> None:
        """Everything up to here is on the bus; durable with the chat's next append, or some seconds later."""
        ...

    async def unpublished(self) -> dict[str, int]:
        """Chats with entries that nobody has marked as published, and each one's mark.

        A chat is listed from the moment its append is durable until its mark has reached its head. It may
        be listed for some seconds longer.
        """
        ...

    async def flush(self) -> None:
        """Every mark noted before the call is durable when it returns."""
        ...


class Allocator(Protocol):
    """Gives the numbers of `two_phase`. A number is given once, whatever happens to its taker."""

    async def create(self, chat_id: str) -> None:
        """A new chat's counter at 0; leaves one that exists as it is."""
        ...

    async def allocate(self, chat_id: str, count: int, floor: int) -> int:
        """The last of `count` successive numbers, which nobody else gets.

        `floor` is the highest number known to be in the log. A counter below it has lost data:
        InconsistentCounterError; a counter that is not there: CounterMissingError; both give nothing.
        OutcomeUnknown or StoreUnavailable: numbers may be lost, never given twice.
        """
        ...

    async def last(self, chat_id: str) -> int | None:
        """The last number given, read strongly; None without a counter."""
        ...

    async def restore(self, chat_id: str, at_least: int) -> int:
        """An operator puts a lost or fallen-back counter to at least this number; returns what it is now."""
        ...
