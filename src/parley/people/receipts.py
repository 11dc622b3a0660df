"""Receipts: which members have received and read what, sent live and derived on request.

A receipt is sent only once its position is durable, so a receipt that others saw is never taken back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice

import structlog
from msgspec import Struct

from parley.core.privacy import may_see_reads
from parley.core.receipts import MessageReceipts, receipts_of
from parley.ephemeral.ports import Signals
from parley.ephemeral.signals import ReceiptSignal
from parley.errors import AHEAD_OF_LOG, BAD_REQUEST, NOT_A_MEMBER, NOT_FOUND, Refused, StoreError
from parley.model import CursorMove, MemberCursor, ReadReceipts, ReceiptKind, Relationship, Visibility
from parley.people.audience import Audience
from parley.people.caches import ChatFacts, ChatFactsCache, ReadCache
from parley.records.relations import Relations
from parley.store.ports import Directory, Log, MemberStates
from parley.telemetry import Metrics
from parley.wire.codec import decode_entry
from parley.wire.frames import ReceiptFrame
from parley.wire.limits import RECEIPT_MEMBERS_MAX, SEQUENCE_MAX

SENT_AFTER_SECONDS = 0.01
"""Positions become durable in the same commit as messages: acks of messages go first."""
MOVED_PER_TURN = 500
MOVED_WAITING_MAX = 100_000
"""Beyond it receipts are not sent. A client can still request them."""
RELATIONSHIPS_PER_CALL = 500

NO_MESSAGE = NOT_FOUND.because("there is no message at this position")
TOO_MANY_MEMBERS = BAD_REQUEST.because(
    f"in a chat of more than {RECEIPT_MEMBERS_MAX} members, request the receipts of one message"
)

log = structlog.get_logger("parley.receipts")


class ChatReceipts(Struct, frozen=True):
    """How far members are, as far as the viewer may see it; a hidden read position is 0.

    `read_by_anybody`: the furthest that another member has read, in a chat that does not say who.
    """

    mode: ReadReceipts
    marks: list[MemberCursor]
    read_by_anybody: int = 0


class ReceiptService:
    """`told` is called with each receipt of a member that others may see, on the node where it arrived."""

    def __init__(
        self,
        *,
        log: Log,
        directory: Directory,
        member_states: MemberStates,
        relations: Relations,
        facts: ChatFactsCache,
        visibility: ReadCache[Visibility],
        signals: Signals,
        audience: Audience,
        metrics: Metrics,
        told: Callable[[ReceiptSignal], None] = lambda _: None,
    ) -> None:
        self._told = told
        self._log = log
        self._directory = directory
        self._member_states = member_states
        self._relations = relations
        self._facts = facts
        self._visibility = visibility
        self._signals = signals
        self._audience = audience
        self._metrics = metrics
        self._waiting: dict[tuple[str, str, ReceiptKind], CursorMove] = {}
        self._worker: asyncio.Task[None] | None = None
        self._is_closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsubscribe = signals.subscribe(ReceiptSignal, self._deliver)

    # As it happens

    def moved(self, moved: list[CursorMove]) -> None:
        """These positions rose and are durable. If a position rose several times, only the last is sent."""
        for one in moved:
            if one.kind is ReceiptKind.DELIVERED:  # never sent in a large chat: drop these many moves first
                facts = self._facts.known(one.chat_id)
                if facts is not None and facts.member_count > RECEIPT_MEMBERS_MAX:
                    continue
            if len(self._waiting) < MOVED_WAITING_MAX:
                self._waiting[one.user_id, one.chat_id, one.kind] = one
        if self._waiting and self._worker is None and not self._is_closed:
            self._worker = asyncio.get_running_loop().create_task(self._publish_waiting())

    async def _publish_waiting(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(SENT_AFTER_SECONDS)
                some = list(islice(self._waiting, MOVED_PER_TURN))
                await self._publish([self._waiting.pop(key) for key in some])
        finally:
            self._worker = None

    async def _publish(self, moved: list[CursorMove]) -> None:
        """Decide what is shown of each move, and publish it to every node."""
        try:
            facts = await self._facts.get({one.chat_id for one in moved})
            visibility = await self._visibility.get({one.user_id for one in moved})
        except StoreError as error:
            log.debug("receipts not sent", count=len(moved), reason=str(error))
            return
        for one in moved:
            user, chat = visibility.get(one.user_id), facts.get(one.chat_id)
            if user is None or chat is None:
                continue
            is_public = is_sent_to_others(one.kind, chat, user)
            if not is_public and one.kind is not ReceiptKind.READ:
                continue
            signal = ReceiptSignal(
                chat_id=one.chat_id,
                user_id=one.user_id,
                kind=one.kind,
                up_to=one.up_to,
                at=one.at,
                is_public=is_public,
                is_named=chat.read_receipts is ReadReceipts.FULL,
                hidden_from=sorted(user.blocked) if is_public else [],
            )
            self._signals.publish(signal)
            if is_public and (signal.is_named or one.kind is ReceiptKind.DELIVERED):
                self._told(signal)

    def _deliver(self, signal: ReceiptSignal) -> None:
        """Send it to clients of this node: the member's own devices, and others who may see it."""
        if signal.kind is ReceiptKind.READ:  # for the unread count of the member's other devices
            self._audience.tell_people([signal.user_id], _frame(signal, signal.user_id))
        if not signal.is_public:
            return
        people = self._audience.people_in(signal.chat_id) - {signal.user_id, *signal.hidden_from}
        if not people:
            return
        if signal.kind is ReceiptKind.DELIVERED:
            self._send(signal, people, signal.user_id)
        else:
            task = asyncio.get_running_loop().create_task(self._deliver_read(signal, people))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _deliver_read(self, signal: ReceiptSignal, people: set[str]) -> None:
        """Members who send no read receipts get none."""
        try:
            visibility = await self._visibility.get(people)
        except StoreError as error:
            log.debug("receipt not sent", chat_id=signal.chat_id, reason=str(error))
            return
        receivers = {user_id for user_id, user in visibility.items() if user.send_read_receipts}
        self._send(signal, receivers, signal.user_id if signal.is_named else None)

    def _send(self, signal: ReceiptSignal, people: set[str], reader_id: str | None) -> None:
        self._metrics.receipts_told.labels(signal.kind.value).inc(len(people))
        self._audience.tell_chat(signal.chat_id, _frame(signal, reader_id), people.__contains__)

    async def close(self) -> None:
        """Positions that the store still writes while it closes are not sent: no client is connected."""
        self._is_closed = True
        self._unsubscribe()
        running = [*self._tasks, *([self._worker] if self._worker is not None else [])]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    # On request

    async def of_message(
        self, viewer_id: str, chat_id: str, sequence: int
    ) -> tuple[ReadReceipts, MessageReceipts]:
        """Which members have received and read one message."""
        mode = await self._mode(viewer_id, chat_id)
        sender_id = await self._sender(chat_id, sequence)
        marks = await self._member_states.cursors(chat_id)
        reached = [mark.user_id for mark in marks if mark.delivered_up_to >= sequence]
        rights = await self._rights(viewer_id, reached)
        bots = rights.bots | await self._bots_among(
            [mark.user_id for mark in marks if mark.delivered_up_to < sequence]
        )
        people = [mark for mark in marks if mark.user_id not in bots]
        return mode, receipts_of(sequence, sender_id, people, mode, rights.sees, rights.sees_reads)

    async def of_chat(self, viewer_id: str, chat_id: str) -> ChatReceipts:
        """How far every member is: the receipts of any message follow from it."""
        mode = await self._mode(viewer_id, chat_id)
        if await self._directory.member_count(chat_id) > RECEIPT_MEMBERS_MAX:
            raise Refused(TOO_MANY_MEMBERS)
        marks = await self._member_states.cursors(chat_id)
        rights = await self._rights(viewer_id, [mark.user_id for mark in marks])
        bots = rights.bots
        seen = [rights.seen(mark) for mark in marks if mark.user_id not in bots]
        others = [mark.read_up_to for mark in seen if mark.user_id != viewer_id]
        if mode is ReadReceipts.FULL:
            return ChatReceipts(mode, seen)
        unnamed = [mark if mark.user_id == viewer_id else _unread(mark) for mark in seen]
        return ChatReceipts(mode, unnamed, max(others, default=0) if mode is ReadReceipts.SIMPLE else 0)

    async def _bots_among(self, user_ids: Sequence[str]) -> set[str]:
        bots: set[str] = set()
        for first in range(0, len(user_ids), RELATIONSHIPS_PER_CALL):
            found = await self._relations.profiles(user_ids[first : first + RELATIONSHIPS_PER_CALL])
            bots.update(user_id for user_id, user in found.items() if user.is_bot)
            await asyncio.sleep(0)
        return bots

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

    async def _rights(self, viewer_id: str, user_ids: Sequence[str]) -> ReceiptRights:
        relationships: dict[str, Relationship] = {}
        asked = list(dict.fromkeys([viewer_id, *user_ids]))
        for first in range(0, len(asked), RELATIONSHIPS_PER_CALL):
            some = asked[first : first + RELATIONSHIPS_PER_CALL]
            relationships |= await self._relations.relationships(viewer_id, some, acquainted=True)
            await asyncio.sleep(0)  # a large chat must not block the event loop
        viewer = relationships.get(viewer_id)
        return ReceiptRights(viewer_id, viewer is not None and viewer.user.send_read_receipts, relationships)


class ReceiptRights(Struct, frozen=True):
    """What the viewer may see of other members' positions."""

    viewer_id: str
    sends: bool
    relationships: dict[str, Relationship]

    @property
    def bots(self) -> set[str]:
        return {user_id for user_id, found in self.relationships.items() if found.user.is_bot}

    def sees(self, mark: MemberCursor) -> bool:
        relationship = self.relationships.get(mark.user_id)
        return mark.user_id == self.viewer_id or (relationship is not None and not relationship.has_blocked)

    def sees_reads(self, mark: MemberCursor) -> bool:
        relationship = self.relationships.get(mark.user_id)
        if mark.user_id == self.viewer_id:
            return True
        return relationship is not None and may_see_reads(relationship.user.send_read_receipts, self.sends)

    def seen(self, mark: MemberCursor) -> MemberCursor:
        if not self.sees(mark):
            return MemberCursor(mark.user_id, mark.joined_sequence, 0, None, 0, None)
        return mark if self.sees_reads(mark) else _unread(mark)


def is_sent_to_others(kind: ReceiptKind, chat: ChatFacts, user: Visibility) -> bool:
    """Whether other members get receipts of this user at all. Of programs they do not."""
    if user.is_bot or chat.member_count > RECEIPT_MEMBERS_MAX:
        return False
    if kind is ReceiptKind.DELIVERED:
        return True
    return user.send_read_receipts and chat.read_receipts is not ReadReceipts.NONE


def _unread(mark: MemberCursor) -> MemberCursor:
    return MemberCursor(mark.user_id, mark.joined_sequence, mark.delivered_up_to, mark.delivered_at, 0, None)


def _frame(signal: ReceiptSignal, reader_id: str | None) -> ReceiptFrame:
    return ReceiptFrame(
        chat_id=signal.chat_id,
        user_id=reader_id,
        kind=signal.kind.value,
        up_to_sequence=signal.up_to,
        at=signal.at,
    )
