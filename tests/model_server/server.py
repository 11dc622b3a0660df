"""A small server without sockets or time: the contract as an SDK sees it, for tests of the pure core."""

import asyncio
import atexit
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw

from parley import ids
from parley.bodies.writer import EntryWriter
from parley.client.members import ChatSnapshot
from parley.clock import from_iso
from parley.core import log_hash
from parley.core.session import check_amendment
from parley.errors import AHEAD_OF_LOG, BAD_REQUEST, NOT_A_MEMBER, OUTCOME_UNKNOWN, Refusal, Refused
from parley.model import (
    Action,
    Change,
    ChatMember,
    ChatSummary,
    ChatType,
    CursorMove,
    Draft,
    Kind,
    Outcome,
    ReadReceipts,
    Role,
    StoredChat,
    User,
)
from parley.records.amendments import Amendments
from parley.records.chat_settings import SettingsOfChats
from parley.sending.answers import Done
from parley.sending.message_actions import MessageActions
from parley.store.ports import Log
from parley.store.tables import MESSAGE_MARKS, message_place
from parley.wire.bodies import ChatInfo, ChatMarks, MemberInfo
from parley.wire.frames import (
    Ack,
    AckPosition,
    ChatChanged,
    ChatFrame,
    DeleteMessage,
    EditMessage,
    Entry,
    Heartbeat,
    HeartbeatAck,
    MessageBatch,
    Messages,
    Overview,
    OverviewChat,
    PresenceChanged,
    PresenceQuery,
    PresenceState,
    PresenceSubscribe,
    PresenceView,
    React,
    ReadReceipt,
    ReceiptFrame,
    Request,
    SendMessage,
    ServerFrames,
    SyncOverview,
    SyncRequest,
    Typing,
    TypingStart,
    TypingStop,
    Welcome,
    answer_to,
    refused,
)
from tests.contracts.life_world import StraightSender
from tests.harness.log_replay import as_fields, replayed
from tests.memory.cursors import MemoryCursors, MemoryMemberStates, MemoryOverviews
from tests.memory.entry_changes import MemoryEntries
from tests.memory.log import MemoryLog
from tests.memory.people import MemoryDirectory
from tests.memory.records import MemoryRecords
from tests.memory.tables import MemoryChat, MemoryState, Tables

OVERVIEW_CHATS_MAX = 1_000
FORBIDDEN_CONTENT = "forbidden"
TIME = "2026-11-15T12:00:00.000Z"

APPENDING = SendMessage | EditMessage | DeleteMessage | React
Answered = tuple[list[ServerFrames], list[ServerFrames]]
"""What goes back to whoever asked, and what everybody hears."""


T = TypeVar("T")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    return loop


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of work on the engine in memory, which waits for nothing but its turn.

    A life is lived outside of any loop, and work that makes tasks needs one. Within a loop it must make none.
    """
    if not is_in_loop():
        return _loop().run_until_complete(work)
    while True:
        try:
            work.send(None)
        except StopIteration as done:
            result: T = done.value
            return result


def is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def make_entry(
    chat_id: str,
    sequence: int,
    content: str = "hi",
    *,
    epoch: int = 1,
    sender: str = "user_b",
    cid: str | None = None,
    kind: str = "message",
) -> Entry:
    return Entry(
        chat_id=chat_id,
        sequence=sequence,
        epoch=epoch,
        kind=kind,
        message_id=f"msg_{chat_id}_{epoch}_{sequence}",
        sender_id=sender,
        client_message_id=cid,
        content=content,
        content_type="text/plain",
        created_at=TIME,
        server_timestamp=TIME,
    )


def raw(entry: Entry) -> Raw:
    return Raw(msgspec.json.encode(entry))


def receipt(
    chat_id: str, user_id: str | None, kind: Literal["delivered", "read"], up_to: int
) -> ReceiptFrame:
    return ReceiptFrame(chat_id=chat_id, user_id=user_id, kind=kind, up_to_sequence=up_to, at=TIME)


class TellingSender(StraightSender):
    """Says what was appended as soon as it is."""

    def __init__(self, log: Log, heard: Callable[[Draft, Outcome], None]) -> None:
        super().__init__(log)
        self._heard = heard

    async def send_all(self, drafts: Sequence[Draft], heard: Done | None = None) -> list[Outcome]:
        outcomes = await super().send_all(drafts, heard)
        for draft, outcome in zip(drafts, outcomes, strict=True):
            self._heard(draft, outcome)
        return outcomes

    async def send_one(self, draft: Draft) -> Outcome:
        (outcome,) = await self.send_all([draft])
        return outcome


class PromptCursors(MemoryCursors):
    """Makes durable at once what is noted: there is no time here."""

    def _commit_soon(self) -> None:
        self.commit()


class ModelServer:
    """The engine in memory behind the frames of the protocol.

    Whoever is connected is in every chat that they have not left. A device is named by its person, and by
    what follows a slash if they have several.
    """

    def __init__(self, chat_ids: list[str]) -> None:
        self.tables = Tables()
        for chat_id in chat_ids:
            chat = StoredChat(chat_id, ChatType.GROUP, None, "", TIME, TIME, 1, open_to_join=True)
            self.tables.add_chat(chat, [])
        self._log = MemoryLog(self.tables, lambda: from_iso(TIME))
        self._cursors = PromptCursors(self.tables)
        self._overviews = MemoryOverviews(self.tables)
        self._cursors.subscribe(self._moved)
        self._member_states = MemoryMemberStates(self.tables)
        self._moves: list[ServerFrames] = []
        self._news: list[ServerFrames] = []
        self._teller = TellingSender(self._log, self.heard)
        records = MemoryRecords(self.tables)
        bodies = EntryWriter(self._log, MemoryEntries(self.tables), None)
        directory, clock = MemoryDirectory(self.tables), lambda: from_iso(TIME)
        self._life = MessageActions(
            log=self._log,
            directory=directory,
            sender=self._teller,
            amendments=Amendments(records),
            settings=SettingsOfChats(MemoryRecords(self.tables)),
            bodies=bodies,
            clock=clock,
        )
        self.online: set[str] = set()
        self.watched: dict[str, list[str]] = defaultdict(list)
        """By device: those of whom its connection is told."""
        self.sent_through: dict[str, int] = dict.fromkeys(chat_ids, 0)
        """How far a chat was told live; what is beyond it the next heartbeat tells."""
        self.refuse_next: list[Refusal] = []
        self.refuse_any: list[Refusal] = []
        """The same for what is no message."""
        self.store_when_unknown = True
        self.page_entries_max = 7
        self.overview_chats_max = OVERVIEW_CHATS_MAX
        self.acked: Counter[str] = Counter()

    # Who is there

    def welcome(self, user_id: str) -> Welcome:
        return Welcome(
            user_id=user_id,
            device_id="device",
            session_id="ses_1",
            server_time=TIME,
            heartbeat_seconds=30,
            limits={},
        )

    def connected(self, device: str) -> None:
        """A new connection watches nobody."""
        self.admit(_person(device))
        self.watched.pop(device, None)

    def admit(self, user_id: str) -> None:
        """Whoever comes for the first time is in every chat."""
        if self.tables.has_account(user_id):
            return
        self.tables.put_user(User(user_id, user_id, user_id, "", False, TIME))
        for chat_id, record in self.tables.chats.items():
            record.members[user_id] = ChatMember(user_id, Role.MEMBER, TIME, 0)
            self.tables.states[user_id, chat_id] = MemoryState(self.tables.next_change())

    def is_member(self, chat_id: str, user_id: str) -> bool:
        record = self.tables.chats.get(chat_id)
        return record is not None and user_id in record.members

    def hears(self, user_id: str, news: ServerFrames) -> bool:
        """Whether what is told to a chat is told to this person, too."""
        match news:
            case ReceiptFrame(kind="delivered") | Typing():
                return self.is_member(news.chat_id, user_id) and news.user_id != user_id
            case Messages() | ReceiptFrame():
                return self.is_member(news.chat_id, user_id)
            case _:
                return True

    # What the logs and positions are

    @property
    def logs(self) -> dict[str, list[Entry | None]]:
        """Every chat's log; a None is a void."""
        chats = self.tables.chats.items()
        return {chat_id: [record.entries[at] for at in sorted(record.entries)] for chat_id, record in chats}

    def head(self, chat_id: str) -> int:
        return self.tables.chats[chat_id].head

    def cursor(self, device: str, chat_id: str) -> int:
        return self.tables.devices.get((_person(device), device, chat_id), 0)

    def is_muted(self, chat_id: str, user_id: str) -> bool:
        return self._state(chat_id, user_id).muted_until is not None

    def delivered(self, chat_id: str, user_id: str) -> int:
        return self._state(chat_id, user_id).delivered[0]

    def read(self, chat_id: str, user_id: str) -> int:
        return self._state(chat_id, user_id).read[0]

    def _state(self, chat_id: str, user_id: str) -> MemoryState:
        return self.tables.states.get((user_id, chat_id)) or MemoryState(0)

    def unread(self, chat_id: str, user_id: str) -> int:
        page = at_once(self._overviews.changed(user_id, "", None, OVERVIEW_CHATS_MAX))
        return next(at.unread for at in page.positions if at.chat_id == chat_id)

    def stored_ids(self, chat_id: str, sender: str) -> list[str]:
        entries = [entry for entry in self.logs[chat_id] if entry is not None and entry.sender_id == sender]
        return [entry.client_message_id for entry in entries if entry.client_message_id is not None]

    def stored(self, chat_id: str, client_message_id: str) -> Entry | None:
        """What became of a send."""
        record = self.tables.chats[chat_id]
        at = record.keys.get(_key(client_message_id))
        return None if at is None else record.entries[at]

    # What happens without a request

    def add(self, chat_id: str, entry: Entry | None = None) -> None:
        """An entry, or a void, of which nobody is told for now."""
        record = self.tables.chats[chat_id]
        record.counter = record.head + 1
        record.resolve(record.counter, entry)
        if entry is not None and entry.client_message_id is not None:
            record.keys[_key(entry.client_message_id)] = record.counter
        record.change = self.tables.next_change()

    def add_void(self, chat_id: str) -> list[ServerFrames]:
        self.add(chat_id)
        return self.unsent(chat_id)

    def add_unheard(self, chat_id: str, user_id: str) -> None:
        """A message of which nobody is told for now."""
        epoch = self.tables.chats[chat_id].chat.epoch
        self.add(chat_id, make_entry(chat_id, self.head(chat_id) + 1, epoch=epoch, sender=user_id))

    def unsent(self, chat_id: str) -> list[ServerFrames]:
        """What of a chat was not told live, one frame for each position."""
        record, after = self.tables.chats[chat_id], self.sent_through[chat_id]
        self.sent_through[chat_id] = record.head
        frames: list[ServerFrames] = []
        for sequence in range(after + 1, record.head + 1):
            wire = record.wires.get(sequence)
            entries, voids = ([], [sequence]) if wire is None else ([Raw(wire)], [])
            frames.append(Messages(chat_id=chat_id, epoch=record.chat.epoch, entries=entries, voids=voids))
        return frames

    def change(self, chat_id: str, user_id: str, *, joins: bool) -> list[ServerFrames]:
        """Somebody comes or goes: what the others hear."""
        self.tables.put_user(User(user_id, user_id, user_id, "", False, TIME))
        change = Change(Action.JOINED if joins else Action.LEFT, user_id)
        said = {"action": change.action, "user_id": user_id, "role": "member"}
        content = msgspec.json.encode(said).decode()
        draft = Draft(
            chat_id=chat_id, sender_id=user_id, content=content, kind=Kind.MEMBER.value, change=change
        )
        (outcome,) = at_once(self._log.append([draft])).outcomes
        assert not isinstance(outcome, Refusal), outcome
        return self.unsent(chat_id)

    def mute(self, chat_id: str, user_id: str, until: str | None) -> ChatChanged:
        """What the person's devices hear."""
        at_once(self._member_states.mute(user_id, chat_id, until))
        return ChatChanged(chat_id=chat_id, change="muted", muted_until=until)

    def come_or_go(self, user_id: str) -> PresenceChanged:
        """Somebody is there who was not, or the other way round: what those hear who watch."""
        self.online ^= {user_id}
        view = self._view(user_id)
        return PresenceChanged(user_id=view.user_id, status=view.status, last_seen=view.last_seen)

    def tamper(self, chat_id: str) -> None:
        """The last entry that has a body is changed where it is stored, and nobody notices."""
        record = self.tables.chats[chat_id]
        for sequence, entry in sorted(record.entries.items(), reverse=True):
            if entry is not None and entry.kind == Kind.MESSAGE.value and entry.deleted is not True:
                changed = msgspec.structs.replace(entry, content=entry.content + "!")
                record.entries[sequence], record.wires[sequence] = changed, msgspec.json.encode(changed)
                return

    def start_over(self, chat_id: str, keeps: int | None = None) -> None:
        """The log is lost and rebuilt under a higher epoch, with its first half, or so many entries."""
        old = self.tables.chats[chat_id]
        chat = msgspec.structs.replace(old.chat, epoch=old.chat.epoch + 1)
        self.tables.chats[chat_id] = MemoryChat(chat, counter=0, members=old.members)
        marks = self.tables.records.get(MESSAGE_MARKS.name, {})
        for place in [at for at in marks if at[0].startswith(message_place(chat_id, 0)[:-1])]:
            del marks[place]
        kept = [entry for entry in old.entries.values() if entry is not None]
        for number, entry in enumerate(kept[: len(kept) // 2 if keeps is None else keeps], 1):
            self.add(chat_id, msgspec.structs.replace(entry, epoch=chat.epoch, sequence=number))
        self.tables.chats[chat_id].change = self.tables.next_change()
        for (_, at), state in self.tables.states.items():
            if at == chat_id:
                state.read = 0, None
        self.sent_through[chat_id] = self.head(chat_id)

    def read_up_to(self, chat_id: str, user_id: str, sequence: int) -> list[ServerFrames]:
        """Somebody has read so far on whatever device."""
        self.admit(user_id)
        self._cursors.note_read(user_id, chat_id, sequence, from_iso(TIME))
        return self._told()

    def _moved(self, moves: list[CursorMove]) -> None:
        self._moves += [receipt(move.chat_id, move.user_id, move.kind.value, move.up_to) for move in moves]

    def _told(self) -> list[ServerFrames]:
        told, self._moves = self._moves, []
        return told

    def snapshot(self, chat_id: str, user_ids: list[str]) -> ChatSnapshot:
        """A chat with these people and its guests, as HTTP would tell it now."""
        for user_id in user_ids:
            self.admit(user_id)
        record = self.tables.chats[chat_id]
        info = ChatInfo(
            chat_id=chat_id,
            type=ChatType.GROUP,
            title=None,
            created_by=user_ids[0],
            created_at=TIME,
            updated_at=TIME,
            epoch=record.chat.epoch,
            head=record.head,
            role=Role.MEMBER,
            member_count=len(record.members),
            open_to_join=False,
            read_receipts=ReadReceipts.FULL,
            muted=False,
            muted_until=None,
        )
        members = [
            MemberInfo(
                member.user_id,
                Role.MEMBER,
                TIME,
                member.joined_sequence,
                member.user_id,
                "",
                self._view(member.user_id).status,
                None,
            )
            for member in sorted(record.members.values(), key=lambda member: member.user_id)
        ]
        marks = at_once(self._member_states.cursors(chat_id))
        return ChatSnapshot(info, members, ChatMarks(ReadReceipts.FULL, marks, 0))

    # Requests

    def answer(self, request: Request, device: str) -> Answered:
        user_id = _person(device)
        self.admit(user_id)
        if isinstance(request, ChatFrame) and not self.is_member(request.chat, user_id):
            return [refused(NOT_A_MEMBER, request.id)], []
        if self.refuse_any and not isinstance(request, APPENDING | TypingStart | TypingStop):
            return [refused(self.refuse_any.pop(), request.id)], []
        match request:
            case SendMessage():
                return self._send(request, user_id)
            case EditMessage() | DeleteMessage() | React():
                draft = check_amendment(request, user_id)
                return self._append(request, request.client_message_id, draft)
            case SyncRequest():
                return [self._sync(request)], []
            case SyncOverview():
                return [self._overview(request, device)], []
            case AckPosition():
                return [], self._ack(request.chat, device, request.last_acked_sequence)
            case Heartbeat():
                return [self._heartbeat(request, user_id)], []
            case ReadReceipt():
                return self._read(request, user_id)
            case TypingStart() | TypingStop():
                shown_ms = 5_000 if isinstance(request, TypingStart) else 0
                return [], [Typing(chat_id=request.chat, user_id=user_id, expires_in_ms=shown_ms)]
            case PresenceSubscribe():
                self.watched[device] = request.user_ids
                return [self._presence(request)], []
            case PresenceQuery():
                return [self._presence(request)], []
            case _:
                return [refused(BAD_REQUEST, request.id)], []

    def _ack(self, chat_id: str, device: str, sequence: int) -> list[ServerFrames]:
        self._cursors.note_acked(_person(device), device, chat_id, sequence, from_iso(TIME))
        return self._told()

    def _heartbeat(self, request: Heartbeat, user_id: str) -> HeartbeatAck:
        answer = HeartbeatAck(re=answer_to(request.id), server_time=TIME)
        heads = {chat_id: self.head(chat_id) for chat_id in self.tables.chats_of(user_id)}
        beyond = {chat_id: head for chat_id, head in heads.items() if head > self.sent_through[chat_id]}
        if beyond:
            answer.heads = beyond
        return answer

    def _read(self, request: ReadReceipt, user_id: str) -> Answered:
        wanted = request.read_up_to
        if isinstance(wanted, str):
            found = at_once(self._log.find_message(wanted, [request.chat]))
            wanted = found[1] if found is not None else self.head(request.chat) + 1
        if wanted > self.head(request.chat):
            return [refused(AHEAD_OF_LOG, request.id)], []
        return [], self.read_up_to(request.chat, user_id, wanted)

    def _presence(self, request: PresenceSubscribe | PresenceQuery) -> PresenceState:
        views = [self._view(user_id) for user_id in request.user_ids]
        return PresenceState(re=answer_to(request.id), presences=views)

    def _view(self, user_id: str) -> PresenceView:
        return PresenceView(user_id, "online" if user_id in self.online else "offline", None)

    def _send(self, request: SendMessage, user_id: str) -> Answered:
        if request.content == FORBIDDEN_CONTENT:
            return [refused(NOT_A_MEMBER, request.id)], []
        after = request.after_client_message_id
        draft = Draft(
            chat_id=request.chat,
            sender_id=user_id,
            content=request.content,
            client_message_id=request.client_message_id,
            client_key=_key(request.client_message_id),
            after_key=None if after is None else _key(after),
            reply_to=request.reply_to,
        )
        return self._append(request, request.client_message_id, draft)

    def _append(
        self,
        request: SendMessage | EditMessage | DeleteMessage | React,
        client_message_id: str,
        draft: Draft | Refusal,
    ) -> Answered:
        refusal = self.refuse_next.pop(0) if self.refuse_next else None
        if refusal is not None and not (refusal is OUTCOME_UNKNOWN and self.store_when_unknown):
            return [refused(refusal, request.id)], []
        if isinstance(draft, Refusal):
            return [refused(draft, request.id)], []
        outcome = at_once(self._done(draft))
        news, self._news = self._news, []
        if refusal is not None or isinstance(outcome, Refusal):
            told = refusal or outcome
            assert isinstance(told, Refusal)
            return [refused(told, request.id)], news
        self.acked[client_message_id] += 1
        ack = Ack(
            re=answer_to(request.id),
            chat_id=request.chat,
            client_message_id=client_message_id,
            message_id=outcome.message_id,
            sequence=outcome.sequence,
            epoch=outcome.epoch,
            created_at=outcome.created_at,
            deduplicated=outcome.deduplicated,
            conflict=outcome.conflict,
        )
        return [ack], news

    async def _done(self, draft: Draft) -> Outcome:
        """What is about another message changes that one after it was told."""
        if draft.kind == Kind.MESSAGE.value and draft.reply_to is None:
            return await self._teller.send_one(draft)
        try:
            return await self._life.send(draft)
        except Refused as error:
            return error.refusal

    def heard(self, draft: Draft, outcome: Outcome) -> None:
        """An append is told at once, before anything follows from it."""
        if not isinstance(outcome, Refusal) and not outcome.deduplicated:
            self._news += self.unsent(draft.chat_id)

    def _sync(self, request: SyncRequest) -> MessageBatch:
        record, after = self.tables.chats[request.chat], request.last_acked_sequence
        reset = request.epoch not in (None, record.chat.epoch) or after > record.head
        limit = min(request.limit, self.page_entries_max)
        page = at_once(self._log.read(request.chat, 0 if reset else after, limit))
        return MessageBatch(
            re=answer_to(request.id),
            chat_id=request.chat,
            epoch=page.epoch,
            entries=[Raw(wire) for wire in page.entries],
            voids=page.voids,
            from_sequence=page.from_sequence,
            to_sequence=page.to_sequence,
            head=page.head,
            complete=page.complete,
            reset=reset,
            log_hash=log_hash.shown(self.hash_at(request.chat, page.to_sequence)),
        )

    def hash_at(self, chat_id: str, sequence: int) -> bytes:
        """The hash of a log, replayed from its start."""
        entries = self.tables.chats[chat_id].entries
        return replayed(chat_id, [as_fields(entries[at]) for at in range(1, sequence + 1)])[-1]

    def _overview(self, request: SyncOverview, device: str) -> Overview:
        asked = _person(device), device, request.changed_since, self.overview_chats_max
        page = at_once(self._overviews.changed(*asked, brief=True))
        return Overview(
            re=answer_to(request.id),
            chats=[_row(at) for at in page.positions],
            token=page.token,
            complete=page.complete,
        )


def _row(at: ChatSummary) -> OverviewChat:
    return OverviewChat(
        chat_id=at.chat_id,
        epoch=at.epoch,
        head=at.head,
        last_acked_sequence=at.last_acked_sequence,
        read_up_to=at.read_up_to,
        unread=at.unread,
        unread_more=at.unread_more,
        left=True if at.left else UNSET,
        muted_until=at.muted_until,
    )


def _person(device: str) -> str:
    return device.partition("/")[0]


def _key(client_message_id: str) -> bytes:
    return ids.client_key(client_message_id) or client_message_id.encode()
