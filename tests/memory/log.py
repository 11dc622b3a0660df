"""The `Log` port in memory, with both sequencing modes.

`atomic`: one step allocates a number and writes the entry. `two_phase`: one step allocates, other tasks may
run, and a second step writes the entry, or a void when the draft may no longer be stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import assert_never

from msgspec import structs

from parley import ids
from parley.clock import Clock, from_iso, iso
from parley.core.append import (
    NO_CHAT,
    AppendFacts,
    ChangeFacts,
    JoinFacts,
    Verdict,
    answer_again,
    decide_append,
    stored_by,
)
from parley.errors import EntriesTrimmed, Refusal
from parley.model import (
    AccountState,
    Action,
    Appended,
    AppendResult,
    Change,
    ChatMember,
    Draft,
    Head,
    Outcome,
    Page,
    Persisted,
    Role,
    StoredEntry,
)
from parley.store.consent import Newcomer
from parley.store.entries import entry_of
from parley.store.log_telemetry import (
    NOT_TRACED,
    count_appended,
    count_resolved,
    log_allocated,
    log_races,
    trace_heads,
)
from parley.store.paging import fitting, page_of
from parley.store.rules import counter_trouble
from parley.store.two_phase import FaultPoint, no_fault
from parley.telemetry import Metrics
from parley.wire.frames import Entry
from tests.memory.tables import MemoryChat, MemoryState, Tables

SEAL_AFTER_MS = 2_000

News = dict[str, Persisted]
"""What an append has made durable so far, by chat."""


class MemoryLog:
    """Without `metrics` it counts and logs nothing."""

    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        *,
        make_ids: ids.Ids | None = None,
        metrics: Metrics | None = None,
        is_atomic: bool = True,
        commit: Callable[[], None] = lambda: None,
        fault_point: FaultPoint = no_fault,
    ) -> None:
        self._tables = tables
        self._clock = clock
        self._ids = make_ids or ids.Ids(lambda _: 0)
        self._metrics = metrics
        self._is_atomic = is_atomic
        self._commit = commit
        self._fault_point = fault_point
        self._under_way: set[tuple[str, int]] = set()
        """Numbers that this process has allocated and will resolve itself."""

    # Appending

    async def append(self, drafts: Sequence[Draft]) -> AppendResult:
        heads = trace_heads(drafts, self._head_of) if self._is_atomic and self._metrics else NOT_TRACED
        await self._reach("before_write")
        news: News = {}
        if self._is_atomic:
            outcomes = [self._append_atomic(draft, news) for draft in drafts]
        else:
            outcomes = [await self._append_two_phase(draft, news) for draft in drafts]
        self._commit()
        for persisted in news.values():
            persisted.positions.sort(key=lambda position: position.sequence)
        result = AppendResult(outcomes, self._count(news))
        if self._metrics is not None:
            count_appended(self._metrics, drafts, result, self._is_atomic, heads)
        return result

    def _count(self, news: News) -> list[Persisted]:
        """Count what became durable, and return it."""
        persisted = list(news.values())
        if self._metrics is not None:
            count_resolved(self._metrics, persisted, are_voids_sealed=True)
        return persisted

    async def _reach(self, label: str) -> None:
        """Let other tasks run, as a disk would."""
        await asyncio.sleep(0)
        pause = self._fault_point(label)
        if pause is not None:
            await pause

    def _append_atomic(self, draft: Draft, news: News) -> Outcome:
        decided = self._decide(draft)
        if not isinstance(decided, MemoryChat):
            return decided
        return self._place(decided, self._take(decided, draft, news), draft, news)

    async def _append_two_phase(self, draft: Draft, news: News) -> Outcome:
        """Retries with another number when this one was sealed, or overtaken by a change, meanwhile."""
        while True:
            chat = self._decide(draft)
            if not isinstance(chat, MemoryChat):
                return chat
            sequence = self._take(chat, draft, news)
            self._under_way.add((draft.chat_id, sequence))
            try:
                await self._reach("after_allocate")
            finally:
                self._under_way.discard((draft.chat_id, sequence))
            if sequence in chat.entries or sequence <= chat.trimmed:
                continue
            decided = self._decide(draft)
            is_overtaken = draft.change is not None and chat.last > sequence
            if isinstance(decided, MemoryChat) and not is_overtaken:
                return self._place(chat, sequence, draft, news)
            self._resolve(chat, sequence, None, news)
            if not isinstance(decided, MemoryChat):
                if self._metrics is not None:
                    log_races([draft], [sequence], [decided])
                return decided

    def _take(self, chat: MemoryChat, draft: Draft, news: News) -> int:
        """Allocate the next number. First turns abandoned numbers into voids, so that nothing waits."""
        started = self._metrics.now() if self._metrics is not None else 0.0
        for sequence in chat.open:
            if (draft.chat_id, sequence) not in self._under_way:
                self._resolve(chat, sequence, None, news)
        assert chat.counter is not None
        chat.counter += 1
        chat.taken[chat.counter] = self._clock()
        if self._metrics is not None:
            self._metrics.time_allocation(self._metrics.now() - started)
            if not self._is_atomic:
                log_allocated([draft], [chat.counter])
        return chat.counter

    def _decide(self, draft: Draft) -> MemoryChat | Outcome:
        """The chat if the draft may be placed, its original if it is a retry, or the refusal."""
        chat = self._tables.chats.get(draft.chat_id)
        original = chat.find(draft.client_key) if chat is not None else None
        decision = decide_append(draft, self._facts(draft, chat, original) if chat is not None else NO_CHAT)
        if isinstance(decision, Refusal):
            return decision
        assert chat is not None
        if decision is Verdict.ANSWER:
            assert original is not None
            if original.sequence <= chat.trimmed:
                original = structs.replace(original, content=draft.content, content_type=draft.content_type)
            return answer_again(draft, original)
        return chat

    def _facts(self, draft: Draft, chat: MemoryChat, original: Entry | None) -> AppendFacts:
        before, role = chat.find(draft.after_key), chat.role(draft.sender_id)
        return AppendFacts(
            role=role,
            account=self._tables.account(draft.sender_id) if role is not None else AccountState.ACTIVE,
            is_peer_deleted=self._tables.is_peer_deleted(chat, draft.sender_id),
            is_blocked=role is not None and self._tables.is_blocked(chat, draft.sender_id),
            original=stored_by(original.sender_id if original else None, draft),
            predecessor=stored_by(before.sender_id if before else None, draft),
            change=self._change_facts(draft, draft.change, chat) if draft.change is not None else None,
            trouble=counter_trouble(chat.counter, chat.last),
            announcement_only=chat.chat.announcement_only,
            slow_mode_seconds=chat.chat.slow_mode_seconds,
            since_last_ms=self._since_last_ms(draft, chat),
        )

    def _since_last_ms(self, draft: Draft, chat: MemoryChat) -> int:
        if not chat.chat.slow_mode_seconds:
            return 0
        own = [
            from_iso(entry.created_at)
            for entry in chat.entries.values()
            if entry is not None and entry.kind == "message" and entry.sender_id == draft.sender_id
        ]
        return self._clock() - max(own, default=0)

    def _change_facts(self, draft: Draft, change: Change, chat: MemoryChat) -> ChangeFacts:
        account = self._tables.account(change.user_id)
        return ChangeFacts(
            chat_type=chat.chat.chat_type,
            open_to_join=chat.chat.open_to_join,
            owners=sum(member.role is Role.OWNER for member in chat.members.values()),
            members=len(chat.members),
            target=chat.role(change.user_id),
            is_target_deleted=account is AccountState.DELETED,
            join=self._join_facts(draft.sender_id, change.user_id, chat),
        )

    def _join_facts(self, actor_id: str, user_id: str, chat: MemoryChat) -> JoinFacts:
        facts, said = self._tables.join_facts(actor_id, user_id), self._tables.said(user_id)
        person = Newcomer(user_id, facts, said, None)
        return person.facts_in(chat.chat.chat_id, len(chat.members), self._clock())

    # Writing

    def _place(self, chat: MemoryChat, sequence: int, draft: Draft, news: News) -> Appended:
        """Write a draft at its number, and apply its change."""
        now = iso(self._clock())
        name = self._ids.next(ids.MESSAGE, self._clock())
        entry = entry_of(draft, sequence, chat.chat.epoch, name, now)
        if draft.client_key is not None:
            chat.keys[draft.client_key] = sequence
        self._resolve(chat, sequence, entry, news, draft)
        if draft.change is not None:
            self._apply(chat, draft, sequence, now)
        return Appended(message_id=entry.message_id, sequence=sequence, epoch=chat.chat.epoch, created_at=now)

    def _resolve(
        self, chat: MemoryChat, sequence: int, entry: Entry | None, news: News, draft: Draft | None = None
    ) -> None:
        """Write an entry or a void; the chat counts as changed."""
        position = StoredEntry(sequence, chat.resolve(sequence, entry))
        chat.change = self._tables.next_change()
        if draft is not None:
            position.change, position.request_id = draft.change, draft.request_id
        told = news.setdefault(chat.chat.chat_id, Persisted(chat.chat.chat_id, chat.chat.epoch, []))
        told.positions.append(position)

    def _apply(self, chat: MemoryChat, draft: Draft, sequence: int, now: str) -> None:
        change, states = draft.change, self._tables.states
        assert change is not None
        user_id, place = change.user_id, (change.user_id, draft.chat_id)
        match change.action:
            case Action.JOINED:
                chat.members[user_id] = ChatMember(user_id, change.role, now, sequence)
                is_own = user_id == draft.sender_id
                if not is_own and not self._tables.has_contact(user_id, draft.sender_id):
                    chat.unasked.add(user_id)
                self._tables.uninvite(*place)
                state = states.setdefault(place, MemoryState(0))
                state.left_at, state.change = None, self._tables.next_change()
            case Action.LEFT | Action.REMOVED:
                del chat.members[user_id]
                chat.unasked.discard(user_id)
                states[place].left_at, states[place].change = sequence, self._tables.next_change()
            case Action.ROLE:
                chat.members[user_id] = structs.replace(chat.members[user_id], role=change.role)
            case Action.RENAMED:
                chat.chat = structs.replace(chat.chat, title=change.title, updated_at=now)
            case Action.READ_RECEIPTS:
                assert change.read_receipts is not None
                chat.chat = structs.replace(chat.chat, read_receipts=change.read_receipts, updated_at=now)
            case Action.POSTING:
                names = ("announcement_only", "slow_mode_seconds")
                wanted = {name: at for name in names if (at := getattr(change, name)) is not None}
                chat.chat = structs.replace(chat.chat, updated_at=now, **wanted)
            case _:
                assert_never(change.action)

    async def seal(self) -> list[Persisted]:
        return self.seal_before(self._clock() - SEAL_AFTER_MS)

    def seal_before(self, taken_ms: int) -> list[Persisted]:
        """Turn open numbers that were allocated until then into voids."""
        news: News = {}
        for chat in self._tables.chats.values():
            for sequence in chat.open:
                if chat.taken.get(sequence, 0) <= taken_ms:
                    self._resolve(chat, sequence, None, news)
        return self._count(news)

    # Reading

    async def read(self, chat_id: str, after: int, limit: int) -> Page:
        head = self._head_of(chat_id) or 0
        if after < min(self._trimmed(chat_id), head):
            raise EntriesTrimmed((chat_id, after + 1))
        return self._page(chat_id, range(after + 1, min(after + limit, head) + 1), after)

    async def read_before(self, chat_id: str, before: int, limit: int) -> Page:
        end = max(1, min(before, (self._head_of(chat_id) or 0) + 1))
        trimmed = self._trimmed(chat_id)
        if 1 < end <= trimmed + 1:
            raise EntriesTrimmed((chat_id, end - 1))
        return self._page(chat_id, range(end - 1, max(trimmed, end - 1 - limit), -1), end - 1)

    def _trimmed(self, chat_id: str) -> int:
        chat = self._tables.chats.get(chat_id)
        return 0 if chat is None else chat.trimmed

    def _page(self, chat_id: str, wanted: range, after: int) -> Page:
        """The first of these positions that fit into a page, and always one."""
        chat = self._tables.chats.get(chat_id)
        if chat is None:
            return Page(chat_id, 0, [], [], after + 1, after, 0)
        rows = sorted(fitting([(sequence, chat.wires.get(sequence)) for sequence in wanted]))
        return page_of(chat_id, chat.chat.epoch, rows, rows[0][0] - 1 if rows else after, chat.head)

    async def heads(self, chat_ids: Sequence[str]) -> dict[str, Head]:
        rows = {chat_id: self._tables.chats.get(chat_id) for chat_id in chat_ids}
        return {chat_id: Head(row.chat.epoch, row.head) for chat_id, row in rows.items() if row is not None}

    async def find_key(self, chat_id: str, client_key: bytes) -> bytes | None:
        chat = self._tables.chats.get(chat_id)
        at = 0 if chat is None else chat.keys.get(client_key, 0)
        if chat is not None and at in chat.archived:
            raise EntriesTrimmed((chat_id, at))
        return None if chat is None else chat.wires.get(at)

    async def find_message(self, message_id: str, chat_ids: Sequence[str] | None) -> tuple[str, int] | None:
        for chat_id in self._tables.chats if chat_ids is None else chat_ids:
            chat = self._tables.chats.get(chat_id)
            for sequence, entry in {**chat.archived, **chat.entries}.items() if chat is not None else ():
                if entry is not None and entry.message_id == message_id:
                    return chat_id, sequence
        return None

    def _head_of(self, chat_id: str) -> int | None:
        chat = self._tables.chats.get(chat_id)
        return None if chat is None else chat.head
