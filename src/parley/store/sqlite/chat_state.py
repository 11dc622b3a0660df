"""What the log remembers of each chat between transactions. It may be forgotten at any time.

Numbers here count only after COMMIT (`head`) or inside the open transaction (`allocated`); the write
itself compares them with the rows, so a stale memory can refuse, never corrupt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import apsw
from msgspec.structs import replace

from parley.core.append import AppendFacts, StoredBy
from parley.errors import Refusal
from parley.model import AccountState, ChatType, Persisted, Role
from parley.store.consent import has_blocked
from parley.store.recent_sends import LONG_AGO_MS, LOOKED_AT_MAX
from parley.store.rules import counter_trouble
from parley.store.tables import ALONE, CONSENTS

Execute = Callable[..., apsw.Cursor]
About = Callable[[str], AbstractContextManager[None]]
"""What is read inside is about a chat: damage is told with its name."""
Row = tuple[Any, ...]

CHATS_REMEMBERED_MAX = 20_000
SENDERS_REMEMBERED_MAX = 10_000


SENDER = f"""
SELECT own.role, users.user_no, users.account_state, others.account_state IS 'deleted', records.record
FROM chat_memberships AS own JOIN users ON users.user_id = own.user_id
    LEFT JOIN chat_memberships AS peer ON ?3 AND peer.chat_id = own.chat_id AND peer.user_id <> own.user_id
    LEFT JOIN users AS others ON others.user_id = peer.user_id
    LEFT JOIN records ON kind = '{CONSENTS.name}' AND partition = peer.user_id AND place = '{ALONE}'
WHERE own.chat_id = ?1 AND own.user_id = ?2
"""
"""A direct chat has one other member at most, so there is one row at most."""


SENT_LAST = (
    "SELECT sender_no, message_id FROM entries WHERE chat_no = ? AND kind = 1 ORDER BY sequence DESC LIMIT ?"
)
ID_TIME_BYTES = 6
"""An id begins with its time in milliseconds."""


class ChatSender(NamedTuple):
    """A member, as far as an append must know them. `facts`: what is the same for each of their drafts.

    `facts_in_turn`: the same for a draft that names their last one as its predecessor.
    """

    number: int
    facts: AppendFacts
    facts_in_turn: AppendFacts


class SqliteChatState:
    """One chat: where its log stands, and the roles that were asked for."""

    __slots__ = (
        "allocated",
        "announcement_only",
        "chat_id",
        "chat_no",
        "chat_type",
        "epoch",
        "has_archived_keys",
        "head",
        "last_keys",
        "open",
        "open_to_join",
        "senders",
        "sent",
        "slow_mode_seconds",
        "trimmed",
        "trouble",
    )

    def __init__(
        self, chat_id: str, chat_no: int, epoch: int, chat_type: ChatType, open_to_join: bool
    ) -> None:
        self.chat_id = chat_id
        self.chat_no = chat_no
        self.epoch = epoch
        self.chat_type = chat_type
        self.open_to_join = open_to_join
        self.allocated = 0
        self.head = 0
        self.open: set[int] = set()
        self.trimmed = 0
        """Everything up to here is in the cold tier, and nothing is read or written here."""
        self.has_archived_keys = False
        """Some ids are in `archived_keys`, where no unique index of the entries meets them."""
        self.trouble: Refusal | None = None
        self.announcement_only = False
        self.slow_mode_seconds = 0
        self.sent: dict[int, int] | None = None
        """When members sent last, in milliseconds, by their numbers; None: not read. For slow mode."""
        self.senders: dict[str, ChatSender | None] = {}
        self.last_keys: dict[str, bytes] = {}

    def settle(self) -> None:
        """The transaction is durable: the head is the end of the resolved prefix."""
        self.head = min(self.open) - 1 if self.open else self.allocated

    def sender(self, execute: Execute, user_id: str) -> ChatSender | None:
        """A member, as of the open transaction."""
        try:
            return self.senders[user_id]
        except KeyError:
            pass
        if len(self.senders) >= SENDERS_REMEMBERED_MAX:
            self.senders.clear()
            self.last_keys.clear()
        is_direct = self.chat_type is ChatType.DIRECT
        row: Row | None = execute(SENDER, (self.chat_id, user_id, is_direct)).fetchone()
        found = None
        if row is not None:
            role, user_number, account, is_peer_deleted, said = row
            facts = AppendFacts(
                role=Role(role),
                account=AccountState(account),
                is_blocked=said is not None and has_blocked(CONSENTS.decode(said), user_id),
                is_peer_deleted=bool(is_peer_deleted),
                announcement_only=self.announcement_only,
                slow_mode_seconds=self.slow_mode_seconds,
            )
            found = ChatSender(user_number, facts, replace(facts, predecessor=StoredBy.SENDER))
        if found is None or found.facts.account is AccountState.ACTIVE:
            self.senders[user_id] = found  # nothing says when an account that is not active is so again
        return found

    def since_last_ms(self, execute: Execute, sender_number: int, now_ms: int) -> int:
        """How long ago a member sent last, as of the open transaction."""
        if self.sent is None or len(self.sent) > SENDERS_REMEMBERED_MAX:
            self.sent = {}
            for number, message_id in execute(SENT_LAST, (self.chat_no, LOOKED_AT_MAX)):
                at_ms = int.from_bytes(message_id[:ID_TIME_BYTES], "big")
                if now_ms - at_ms > LONG_AGO_MS:
                    break
                self.sent.setdefault(number, at_ms)
        return now_ms - self.sent.get(sender_number, now_ms - LONG_AGO_MS)


class SqliteChatStates:
    """The chats that are remembered. Forgetting all of them is always right."""

    def __init__(self, read: Execute, about: About) -> None:
        self._read = read
        self._about = about
        self._states: dict[str, SqliteChatState] = {}
        self._touched: set[str] = set()

    def forget_all(self) -> None:
        self._states.clear()

    def forget_touched(self) -> None:
        """Forget the chats that the open transaction has asked for."""
        for chat_id in self._touched:
            self._states.pop(chat_id, None)

    def forget_senders(self, chat_id: str) -> None:
        """What the open transaction has changed about members is read again before they append."""
        state = self._states.get(chat_id)
        if state is not None:
            state.senders.clear()

    def forget_person(self, user_id: str) -> None:
        """The same for a person in every chat, and for the other members of their direct chats."""
        for state in self._states.values():
            if state.chat_type is ChatType.DIRECT:
                state.senders.clear()
            else:
                state.senders.pop(user_id, None)

    def known(self, chat_id: str) -> SqliteChatState | None:
        return self._states.get(chat_id)

    def get(self, chat_id: str) -> SqliteChatState | None:
        """The chat as committed; None for one that does not exist."""
        state = self._states.get(chat_id)
        if state is None:
            state = self._committed(chat_id)
            if state is not None:
                self._states[chat_id] = state
        return state

    def _committed(self, chat_id: str) -> SqliteChatState | None:
        with self._about(chat_id):
            return load(self._read, chat_id)

    def within(self, execute: Execute, chat_id: str) -> SqliteChatState | None:
        """The chat as the open transaction sees it; its head stays what is committed."""
        self._touched.add(chat_id)
        state = self._states.get(chat_id)
        if state is None:
            state = load(execute, chat_id)
            if state is not None:
                committed = self._committed(chat_id)
                state.head = committed.head if committed is not None else 0
                self._states[chat_id] = state
        return state

    def settle(self, persisted: Iterable[Persisted]) -> None:
        """A transaction is durable: the heads of its chats rise, and memory stays within bounds."""
        for news in persisted:
            state = self._states.get(news.chat_id)
            if state is not None:
                if state.open:
                    state.open.difference_update(stored.sequence for stored in news.positions)
                state.settle()
        self._touched.clear()
        if len(self._states) > CHATS_REMEMBERED_MAX:
            self._states.clear()


def user_no(execute: Execute, user_id: str) -> int:
    """The number of a person who is no member yet."""
    number: Any = execute("SELECT user_no FROM user_numbers WHERE user_id = ?", (user_id,)).get
    return int(number)


def load(execute: Execute, chat_id: str) -> SqliteChatState | None:
    row: Row | None = execute(
        "SELECT chat_no, epoch, chat_type, open_to_join, announcement_only, slow_mode_seconds,"
        " (SELECT sequence_counter FROM chat_counters WHERE chat_counters.chat_id = chats.chat_id),"
        " (SELECT max(sequence) FROM entries WHERE entries.chat_no = chats.chat_no),"
        " (SELECT trimmed_through FROM chat_archives WHERE chat_archives.chat_id = chats.chat_id),"
        " EXISTS (SELECT 1 FROM archived_keys WHERE archived_keys.chat_no = chats.chat_no)"
        " FROM chats WHERE chat_id = ?",
        (chat_id,),
    ).fetchone()
    if row is None:
        return None
    chat_no, epoch, chat_type, open_to_join, *posting = row[:6]
    counter, last, trimmed, has_archived_keys = row[6:]
    state = SqliteChatState(chat_id, chat_no, epoch, ChatType(chat_type), bool(open_to_join))
    state.announcement_only, state.slow_mode_seconds = bool(posting[0]), posting[1]
    rows: list[Row] = execute(
        "SELECT sequence FROM open_allocations WHERE chat_no = ?", (chat_no,)
    ).fetchall()
    state.open = {sequence for (sequence,) in rows}
    state.trimmed, state.has_archived_keys = trimmed or 0, bool(has_archived_keys)
    _place(state, counter, max(last or 0, state.trimmed))
    state.settle()
    return state


def _place(state: SqliteChatState, counter: int | None, last: int) -> None:
    """Where the log stands, from its counter and its last entry; trouble if they cannot both be right."""
    state.allocated = max({last, *state.open})
    state.trouble = counter_trouble(counter, last)
    if counter is not None and state.trouble is None:
        state.open.update(range(last + 1, counter + 1))
        state.allocated = counter
