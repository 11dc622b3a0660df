"""Who has received and read what: told to others as it happens, and derived for any message on request.

A receipt is told only once the position behind it is durable, so what others saw never goes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice

import structlog
from msgspec import Struct

from parley.core.changes import decode_entry
from parley.core.privacy import may_see_reads
from parley.core.receipts import MessageReceipts, receipts_of
from parley.errors import AHEAD_OF_LOG, BAD_REQUEST, NOT_A_MEMBER, NOT_FOUND, Refused, StoreError
from parley.model import Manners, Mark, Moved, ReadReceipts, ReceiptKind, Regard
from parley.people.audience import Audience
from parley.people.facts import ChatFacts, Facts
from parley.people.remembering import Remembered
from parley.people.signals import Receipted, Signalling
from parley.store.ports import Directory, Log, Relations, Standings
from parley.telemetry import Metrics
from parley.wire.frames import ReceiptFrame
from parley.wire.limits import RECEIPT_MEMBERS_MAX, SEQUENCE_MAX

TOLD_AFTER_SECONDS = 0.01
"""Positions become durable together with messages: their senders' acks go first."""
MOVED_PER_TURN = 500
MOVED_WAITING_MAX = 100_000
"""Beyond it receipts are not told: whoever asks finds them."""
REGARDS_PER_CALL = 500

NO_MESSAGE = NOT_FOUND.because("there is no message at this position")
TOO_MANY_MEMBERS = BAD_REQUEST.because(
    f"above {RECEIPT_MEMBERS_MAX} members receipts are told per message: ask for one"
)

log = structlog.get_logger("parley.receipts")


class ChatReceipts(Struct, frozen=True):
    """How far members are, as far as somebody may see it; a read position that is hidden is 0.

    `read_by_anybody`: the furthest that anybody else has read, in a chat that does not say who.
    """

    mode: ReadReceipts
    marks: list[Mark]
    read_by_anybody: int = 0


class Receipts:
    def __init__(
        self,
        *,
        log: Log,
        directory: Directory,
        standings: Standings,
        relations: Relations,
        facts: ChatFacts,
        manners: Remembered[Manners],
        signals: Signalling,
        audience: Audience,
        metrics: Metrics,
    ) -> None:
        self._log = log
        self._directory = directory
        self._standings = standings
        self._relations = relations
        self._facts = facts
        self._manners = manners
        self._signals = signals
        self._audience = audience
        self._metrics = metrics
        self._waiting: dict[tuple[str, str, ReceiptKind], Moved] = {}
        self._worker: asyncio.Task[None] | None = None
        self._is_closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        signals.on(Receipted, self._heard)

    # As it happens

    def moved(self, moved: list[Moved]) -> None:
        """These positions rose and are durable. Of several rises of one the last is told."""
        for one in moved:
            if not self._concerns_nobody(one) and len(self._waiting) < MOVED_WAITING_MAX:
                self._waiting[one.user_id, one.chat_id, one.kind] = one
        if self._waiting and self._worker is None and not self._is_closed:
            self._worker = asyncio.get_running_loop().create_task(self._tell_waiting())

    def _concerns_nobody(self, moved: Moved) -> bool:
        """What is delivered in a large chat: the most there is of, so it is passed over at once."""
        if moved.kind is ReceiptKind.READ:
            return False
        facts = self._facts.known(moved.chat_id)
        return facts is not None and facts.member_count > RECEIPT_MEMBERS_MAX

    async def _tell_waiting(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(TOLD_AFTER_SECONDS)
                some = list(islice(self._waiting, MOVED_PER_TURN))
                await self._tell([self._waiting.pop(key) for key in some])
        finally:
            self._worker = None

    async def _tell(self, moved: list[Moved]) -> None:
        try:
            facts = await self._facts.get({one.chat_id for one in moved})
            manners = await self._manners.get({one.user_id for one in moved})
        except StoreError as error:
            log.debug("receipts not told", count=len(moved), reason=str(error))
            return
        for one in moved:
            person, chat = manners.get(one.user_id), facts.get(one.chat_id)
            if person is None or chat is None:
                continue
            is_public = is_told(one.kind, chat, person)
            if is_public or one.kind is ReceiptKind.READ:
                self._signals.tell(_signal(one, is_public, chat, person))

    def _heard(self, signal: Receipted) -> None:
        """To the person's own devices, that unread falls there too; to others, as far as they may see it."""
        if signal.kind is ReceiptKind.READ:
            self._audience.tell_people([signal.user_id], _frame(signal, signal.user_id))
        if not signal.is_public:
            return
        people = self._audience.people_in(signal.chat_id) - {signal.user_id, *signal.hidden_from}
        if not people:
            return
        if signal.kind is ReceiptKind.DELIVERED:
            self._tell_members(signal, people, signal.user_id)
        else:
            task = asyncio.get_running_loop().create_task(self._tell_readers(signal, people))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _tell_readers(self, signal: Receipted, people: set[str]) -> None:
        """Those who tell nobody what they read are not told either."""
        try:
            manners = await self._manners.get(people)
        except StoreError as error:
            log.debug("receipt not told", chat_id=signal.chat_id, reason=str(error))
            return
        told = {user_id for user_id, person in manners.items() if person.send_read_receipts}
        self._tell_members(signal, told, signal.user_id if signal.is_named else None)

    def _tell_members(self, signal: Receipted, people: set[str], reader_id: str | None) -> None:
        self._metrics.receipts_told.labels(signal.kind.value).inc(len(people))
        self._audience.tell_chat(signal.chat_id, _frame(signal, reader_id), people.__contains__)

    async def close(self) -> None:
        """What the store still writes while it closes is told to nobody: those who were here are gone."""
        self._is_closed = True
        running = [*self._tasks, *([self._worker] if self._worker is not None else [])]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    # On request

    async def of_message(
        self, viewer_id: str, chat_id: str, sequence: int
    ) -> tuple[ReadReceipts, MessageReceipts]:
        """Who has received and read one message."""
        mode = await self._mode(viewer_id, chat_id)
        sender_id = await self._sender(chat_id, sequence)
        marks = await self._standings.marks(chat_id)
        reached = [mark.user_id for mark in marks if mark.delivered_up_to >= sequence]
        seeing = await self._seeing(viewer_id, reached)
        return mode, receipts_of(sequence, sender_id, marks, mode, seeing.sees, seeing.sees_reads)

    async def of_chat(self, viewer_id: str, chat_id: str) -> ChatReceipts:
        """How far every member is, from which the receipts of any message follow."""
        mode = await self._mode(viewer_id, chat_id)
        if await self._directory.member_count(chat_id) > RECEIPT_MEMBERS_MAX:
            raise Refused(TOO_MANY_MEMBERS)
        marks = await self._standings.marks(chat_id)
        seeing = await self._seeing(viewer_id, [mark.user_id for mark in marks])
        seen = [seeing.seen(mark) for mark in marks]
        others = [mark.read_up_to for mark in seen if mark.user_id != viewer_id]
        if mode is ReadReceipts.FULL:
            return ChatReceipts(mode, seen)
        unnamed = [mark if mark.user_id == viewer_id else _unread(mark) for mark in seen]
        return ChatReceipts(mode, unnamed, max(others, default=0) if mode is ReadReceipts.SIMPLE else 0)

    async def _mode(self, viewer_id: str, chat_id: str) -> ReadReceipts:
        role = await self._directory.role(chat_id, viewer_id)
        chat = await self._directory.chat(chat_id) if role is not None else None
        if chat is None:
            raise Refused(NOT_A_MEMBER)
        return chat.read_receipts

    async def _sender(self, chat_id: str, sequence: int) -> str:
        if not 1 <= sequence <= SEQUENCE_MAX:
            raise Refused(NO_MESSAGE)
        page = await self._log.read(chat_id, sequence - 1, 1)
        if page.head < sequence:
            raise Refused(AHEAD_OF_LOG)
        if not page.entries:
            raise Refused(NO_MESSAGE)
        return decode_entry(page.entries[0]).sender_id

    async def _seeing(self, viewer_id: str, user_ids: Sequence[str]) -> Seeing:
        regards: dict[str, Regard] = {}
        asked = list(dict.fromkeys([viewer_id, *user_ids]))
        for first in range(0, len(asked), REGARDS_PER_CALL):
            some = asked[first : first + REGARDS_PER_CALL]
            regards |= await self._relations.regards(viewer_id, some, acquainted=True)
            await asyncio.sleep(0)  # of a large chat's members others are not kept waiting
        viewer = regards.get(viewer_id)
        return Seeing(viewer_id, viewer is not None and viewer.user.send_read_receipts, regards)


class Seeing(Struct, frozen=True):
    """What one person may see of others' positions."""

    viewer_id: str
    sends: bool
    regards: dict[str, Regard]

    def sees(self, mark: Mark) -> bool:
        regard = self.regards.get(mark.user_id)
        return mark.user_id == self.viewer_id or (regard is not None and not regard.has_blocked)

    def sees_reads(self, mark: Mark) -> bool:
        regard = self.regards.get(mark.user_id)
        if mark.user_id == self.viewer_id:
            return True
        return regard is not None and may_see_reads(regard.user.send_read_receipts, self.sends)

    def seen(self, mark: Mark) -> Mark:
        if not self.sees(mark):
            return Mark(mark.user_id, mark.joined_sequence, 0, None, 0, None)
        return mark if self.sees_reads(mark) else _unread(mark)


def is_told(kind: ReceiptKind, chat: Facts, person: Manners) -> bool:
    """Whether other members are told at all that a position of this person rose."""
    if chat.member_count > RECEIPT_MEMBERS_MAX:
        return False
    if kind is ReceiptKind.DELIVERED:
        return True
    return person.send_read_receipts and chat.read_receipts is not ReadReceipts.NONE


def _unread(mark: Mark) -> Mark:
    return Mark(mark.user_id, mark.joined_sequence, mark.delivered_up_to, mark.delivered_at, 0, None)


def _signal(moved: Moved, is_public: bool, chat: Facts, person: Manners) -> Receipted:
    return Receipted(
        chat_id=moved.chat_id,
        user_id=moved.user_id,
        kind=moved.kind,
        up_to=moved.up_to,
        at=moved.at,
        is_public=is_public,
        is_named=chat.read_receipts is ReadReceipts.FULL,
        hidden_from=sorted(person.blocked) if is_public else [],
    )


def _frame(signal: Receipted, reader_id: str | None) -> ReceiptFrame:
    return ReceiptFrame(
        chat_id=signal.chat_id,
        user_id=reader_id,
        kind=signal.kind.value,
        up_to_sequence=signal.up_to,
        at=signal.at,
    )
