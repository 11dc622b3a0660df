"""A small server without sockets or time: the contract as an SDK sees it, for tests of the pure engine."""

import copy
from collections import Counter, defaultdict
from typing import Literal

import msgspec
from msgspec import UNSET, Raw

from parley.client.bodies import ChatInfo, ChatMarks, MemberInfo
from parley.client.opened import Picture
from parley.errors import AHEAD_OF_LOG, BAD_REQUEST, NOT_A_MEMBER, OUT_OF_TURN, OUTCOME_UNKNOWN, Refusal
from parley.model import ChatType, Mark, ReadReceipts, Role
from parley.wire.frames import (
    Ack,
    AckPosition,
    ChatChanged,
    ChatFrame,
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

UNREAD_MAX = 999
OVERVIEW_CHATS_MAX = 1_000
FORBIDDEN_CONTENT = "forbidden"
TIME = "2026-11-15T12:00:00.000Z"

Answered = tuple[list[ServerFrames], list[ServerFrames]]
"""What goes back to whoever asked, and what everybody hears."""


Listed = tuple[OverviewChat, int]
"""What was told of a chat, and how often it had been muted or unmuted by then."""


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


class ModelServer:
    """Every chat's log; a None is a void. Whoever is connected is in every chat that they have not left.

    A device is named by its person, and by what follows a slash if they have several.
    """

    def __init__(self, chat_ids: list[str]) -> None:
        self.logs: dict[str, list[Entry | None]] = {chat_id: [] for chat_id in chat_ids}
        self.epochs = dict.fromkeys(chat_ids, 1)
        self.cursors: dict[tuple[str, str], int] = {}
        """Of every device."""
        self.reads: dict[tuple[str, str], int] = {}
        self.muted: dict[tuple[str, str], str] = {}
        self.guests: dict[str, dict[str, int]] = {chat_id: {} for chat_id in chat_ids}
        """Who came to a chat later, and at which position; the same for who left."""
        self.left: dict[str, dict[str, int]] = {chat_id: {} for chat_id in chat_ids}
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
        self._mutes: Counter[tuple[str, str]] = Counter()
        self._overviews: list[dict[str, Listed]] = [{}]
        """What each token stands for."""

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
        self.watched.pop(device, None)

    def is_member(self, chat_id: str, user_id: str) -> bool:
        return chat_id in self.logs and user_id not in self.left[chat_id]

    def hears(self, user_id: str, news: ServerFrames) -> bool:
        """Whether what is told to a chat is told to this person, too."""
        match news:
            case ReceiptFrame(kind="delivered") | Typing():
                return self.is_member(news.chat_id, user_id) and news.user_id != user_id
            case Messages() | ReceiptFrame():
                return self.is_member(news.chat_id, user_id)
            case _:
                return True

    def answer(self, request: Request, device: str) -> Answered:
        user_id = device.partition("/")[0]
        if isinstance(request, ChatFrame) and not self.is_member(request.chat, user_id):
            return [refused(NOT_A_MEMBER, request.id)], []
        if self.refuse_any and not isinstance(request, SendMessage | TypingStart | TypingStop):
            return [refused(self.refuse_any.pop(), request.id)], []
        match request:
            case SendMessage():
                return self._send(request, user_id)
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

    def add_void(self, chat_id: str) -> list[ServerFrames]:
        self.logs[chat_id].append(None)
        return self.unsent(chat_id)

    def add_unheard(self, chat_id: str, user_id: str) -> None:
        """A message of which nobody is told for now."""
        log = self.logs[chat_id]
        log.append(make_entry(chat_id, len(log) + 1, epoch=self.epochs[chat_id], sender=user_id))

    def unsent(self, chat_id: str) -> list[ServerFrames]:
        """What of a chat was not told live, one frame for each position."""
        log, epoch, after = self.logs[chat_id], self.epochs[chat_id], self.sent_through[chat_id]
        self.sent_through[chat_id] = len(log)
        frames: list[ServerFrames] = []
        for sequence, entry in enumerate(log[after:], after + 1):
            entries = [] if entry is None else [raw(entry)]
            voids = [sequence] if entry is None else []
            frames.append(Messages(chat_id=chat_id, epoch=epoch, entries=entries, voids=voids))
        return frames

    def change(self, chat_id: str, user_id: str, *, joins: bool) -> list[ServerFrames]:
        """Somebody comes or goes: what the others hear."""
        log, epoch = self.logs[chat_id], self.epochs[chat_id]
        action = "joined" if joins else "left"
        content = msgspec.json.encode({"action": action, "user_id": user_id, "role": "member"}).decode()
        entry = make_entry(chat_id, len(log) + 1, content, epoch=epoch, sender=user_id, kind="member")
        log.append(entry)
        if joins:
            self.guests[chat_id][user_id] = entry.sequence
            self.left[chat_id].pop(user_id, None)
        else:
            self.guests[chat_id].pop(user_id, None)
            self.left[chat_id][user_id] = entry.sequence
        return self.unsent(chat_id)

    def mute(self, chat_id: str, user_id: str, until: str | None) -> ChatChanged:
        """What the person's devices hear."""
        self.muted.pop((user_id, chat_id), None)
        self._mutes[user_id, chat_id] += 1
        if until is not None:
            self.muted[user_id, chat_id] = until
        return ChatChanged(chat_id=chat_id, change="muted", muted_until=until)

    def come_or_go(self, user_id: str) -> PresenceChanged:
        """Somebody is there who was not, or the other way round: what those hear who watch."""
        self.online ^= {user_id}
        view = self._view(user_id)
        return PresenceChanged(user_id=view.user_id, status=view.status, last_seen=view.last_seen)

    def picture(self, chat_id: str, user_ids: list[str]) -> Picture:
        """A chat with these people and its guests, as HTTP would tell it now."""
        joined = {**dict.fromkeys(user_ids, 0), **self.guests[chat_id]}
        joined = {user_id: at for user_id, at in joined.items() if self.is_member(chat_id, user_id)}
        info = ChatInfo(
            chat_id=chat_id,
            type=ChatType.GROUP,
            title=None,
            created_by=user_ids[0],
            created_at=TIME,
            updated_at=TIME,
            epoch=self.epochs[chat_id],
            head=len(self.logs[chat_id]),
            role=Role.MEMBER,
            member_count=len(joined),
        )
        members = [
            MemberInfo(user_id, Role.MEMBER, TIME, at, user_id, status=self._view(user_id).status)
            for user_id, at in joined.items()
        ]
        marks = [
            Mark(user_id, at, *self.delivered(chat_id, user_id), *self.read(chat_id, user_id))
            for user_id, at in joined.items()
        ]
        return Picture(info, members, ChatMarks(ReadReceipts.FULL, marks))

    def delivered(self, chat_id: str, user_id: str) -> tuple[int, str]:
        mine = [(device, chat) for device, chat in self.cursors if device.partition("/")[0] == user_id]
        acked = [self.cursors[device, chat] for device, chat in mine if chat == chat_id]
        return max(0, *acked, self.read(chat_id, user_id)[0]), TIME

    def read(self, chat_id: str, user_id: str) -> tuple[int, str]:
        return self.reads.get((user_id, chat_id), 0), TIME

    def start_over(self, chat_id: str) -> None:
        """The log is lost and rebuilt under a higher epoch, with only its first half."""
        self.epochs[chat_id] += 1
        self.reads = {key: read for key, read in self.reads.items() if key[1] != chat_id}
        kept = [entry for entry in self.logs[chat_id] if entry is not None]
        self.logs[chat_id] = [
            msgspec.structs.replace(entry, epoch=self.epochs[chat_id], sequence=number)
            for number, entry in enumerate(kept[: len(kept) // 2], 1)
        ]
        self.sent_through[chat_id] = len(self.logs[chat_id])

    def read_up_to(self, chat_id: str, user_id: str, sequence: int) -> list[ServerFrames]:
        """Somebody has read so far on whatever device."""
        before = self.reads.get((user_id, chat_id), 0)
        self.reads[user_id, chat_id] = max(before, sequence)
        return [] if sequence <= before else [receipt(chat_id, user_id, "read", sequence)]

    def unread(self, chat_id: str, user_id: str) -> int:
        """Counted from the log itself."""
        read = self.reads.get((user_id, chat_id), 0)
        entries = (entry for entry in self.logs[chat_id] if entry is not None)
        others = (entry for entry in entries if entry.kind == "message" and entry.sender_id != user_id)
        return sum(entry.sequence > read for entry in others)

    def stored_ids(self, chat_id: str, sender: str) -> list[str]:
        entries = [entry for entry in self.logs[chat_id] if entry is not None and entry.sender_id == sender]
        return [entry.client_message_id for entry in entries if entry.client_message_id is not None]

    def _ack(self, chat_id: str, device: str, sequence: int) -> list[ServerFrames]:
        user_id = device.partition("/")[0]
        before, _ = self.delivered(chat_id, user_id)
        self.cursors[device, chat_id] = max(self.cursors.get((device, chat_id), 0), sequence)
        return [] if sequence <= before else [receipt(chat_id, user_id, "delivered", sequence)]

    def _heartbeat(self, request: Heartbeat, user_id: str) -> HeartbeatAck:
        answer = HeartbeatAck(re=answer_to(request.id), server_time=TIME)
        chats = [chat_id for chat_id in self.logs if self.is_member(chat_id, user_id)]
        heads = {chat_id: len(self.logs[chat_id]) for chat_id in chats}
        beyond = {chat_id: head for chat_id, head in heads.items() if head > self.sent_through[chat_id]}
        if beyond:
            answer.heads = beyond
        return answer

    def _read(self, request: ReadReceipt, user_id: str) -> Answered:
        wanted = request.read_up_to
        if isinstance(wanted, str):
            found = [entry for entry in self.logs[request.chat] if entry and entry.message_id == wanted]
            wanted = found[0].sequence if found else len(self.logs[request.chat]) + 1
        if wanted > len(self.logs[request.chat]):
            return [refused(AHEAD_OF_LOG, request.id)], []
        return [], self.read_up_to(request.chat, user_id, wanted)

    def _presence(self, request: PresenceSubscribe | PresenceQuery) -> PresenceState:
        views = [self._view(user_id) for user_id in request.user_ids]
        return PresenceState(re=answer_to(request.id), presences=views)

    def _view(self, user_id: str) -> PresenceView:
        return PresenceView(user_id, "online" if user_id in self.online else "offline", None)

    def _send(self, request: SendMessage, user_id: str) -> Answered:
        refusal = self._refusal(request)
        if refusal is not None and not (refusal is OUTCOME_UNKNOWN and self.store_when_unknown):
            return [refused(refusal, request.id)], []
        entry, news = self._store(request, user_id)
        if refusal is not None:
            return [refused(refusal, request.id)], news
        self.acked[request.client_message_id] += 1
        ack = Ack(
            re=answer_to(request.id),
            chat_id=request.chat,
            client_message_id=request.client_message_id,
            message_id=entry.message_id,
            sequence=entry.sequence,
            epoch=entry.epoch,
            created_at=entry.created_at,
            deduplicated=not news,
            conflict=False,
        )
        return [ack], news

    def _refusal(self, request: SendMessage) -> Refusal | None:
        if request.content == FORBIDDEN_CONTENT:
            return NOT_A_MEMBER
        after = request.after_client_message_id
        if after is not None and self._find(request.chat, after) is None:
            return OUT_OF_TURN
        return self.refuse_next.pop(0) if self.refuse_next else None

    def _store(self, request: SendMessage, user_id: str) -> tuple[Entry, list[ServerFrames]]:
        found = self._find(request.chat, request.client_message_id)
        if found is not None:
            return found, []
        log, epoch = self.logs[request.chat], self.epochs[request.chat]
        entry = make_entry(
            request.chat,
            len(log) + 1,
            request.content,
            epoch=epoch,
            sender=user_id,
            cid=request.client_message_id,
        )
        log.append(entry)
        return entry, self.unsent(request.chat)

    def _find(self, chat_id: str, client_message_id: str) -> Entry | None:
        entries = (entry for entry in self.logs[chat_id] if entry is not None)
        return next((entry for entry in entries if entry.client_message_id == client_message_id), None)

    def _sync(self, request: SyncRequest) -> MessageBatch:
        log, epoch, after = self.logs[request.chat], self.epochs[request.chat], request.last_acked_sequence
        reset = request.epoch not in (None, epoch) or after > len(log)
        after = 0 if reset else after
        page = log[after : after + min(request.limit, self.page_entries_max)]
        return MessageBatch(
            re=answer_to(request.id),
            chat_id=request.chat,
            epoch=epoch,
            entries=[raw(entry) for entry in page if entry is not None],
            voids=[number for number, entry in enumerate(page, after + 1) if entry is None],
            from_sequence=after + 1,
            to_sequence=after + len(page),
            head=len(log),
            complete=after + len(page) >= len(log),
            reset=reset,
        )

    def _overview(self, request: SyncOverview, device: str) -> Overview:
        """Only what is different since the overview that the token is of; what was left, if that is news."""
        rows = {chat_id: self._row(chat_id, device) for chat_id in self.logs}
        if request.changed_since is None:
            known = {chat_id: row for chat_id, row in rows.items() if row[0].left is True}
        else:
            known = self._overviews[int(request.changed_since)]
        changed = {chat_id: row for chat_id, row in rows.items() if row != known.get(chat_id)}
        page = dict(list(changed.items())[: self.overview_chats_max])
        self._overviews.append(known | copy.deepcopy(page))
        return Overview(
            re=answer_to(request.id),
            chats=[row for row, _ in page.values()],
            token=str(len(self._overviews) - 1),
            complete=len(page) == len(changed),
        )

    def _row(self, chat_id: str, device: str) -> Listed:
        user_id = device.partition("/")[0]
        is_member = self.is_member(chat_id, user_id)
        unread = self.unread(chat_id, user_id) if is_member else 0
        row = OverviewChat(
            chat_id=chat_id,
            epoch=self.epochs[chat_id],
            head=len(self.logs[chat_id]) if is_member else self.left[chat_id][user_id],
            last_acked_sequence=self.cursors.get((device, chat_id), 0),
            read_up_to=self.reads.get((user_id, chat_id), 0),
            unread=min(unread, UNREAD_MAX),
            unread_more=unread > UNREAD_MAX,
            left=UNSET if is_member else True,
            muted_until=self.muted.get((user_id, chat_id)),
        )
        return row, self._mutes[user_id, chat_id]
