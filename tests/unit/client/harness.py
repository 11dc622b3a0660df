"""The core alone, with time and the server's words in a test's hands."""

from msgspec import UNSET

from parley.client.core import ClientCore
from parley.client.storage import Cursor, OutgoingMessage, SavedState
from parley.client.timing import Timing
from parley.wire.codec import CLIENT_CODECS
from parley.wire.frames import (
    MessageBatch,
    Overview,
    OverviewChat,
    Request,
    SyncOverview,
    SyncRequest,
    Welcome,
    answer_to,
)
from tests.model_server.server import TIME, make_entry, raw

CHAT = "chat_1"
WALL_MS = 1_800_000_000_000


class Harness:
    """An core, its time, and the frames it sent."""

    def __init__(self, cursors: dict[str, Cursor] | None = None) -> None:
        self.now_ms = 0
        self.core = ClientCore(CLIENT_CODECS["json"], Timing(), lambda: 0.0, durable=False)
        self.core.restore(SavedState(cursors=cursors or {}))

    def connect(self) -> None:
        welcome = Welcome(
            user_id="user_me",
            device_id="d",
            session_id="s",
            server_time=TIME,
            heartbeat_seconds=30,
            limits={},
        )
        self.core.connected(welcome, self.now_ms)

    def frames(self) -> list[Request]:
        self.core.tick(self.now_ms)
        changes = self.core.to_save()
        self.core.saved(changes)
        return self.core.frames_to_send(self.now_ms, WALL_MS)

    def pass_time(self, ms: int) -> list[Request]:
        self.now_ms += ms
        return self.frames()

    def receive(self, frame: object) -> None:
        self.core.receive(frame, self.now_ms)  # type: ignore[arg-type]

    def answer_overview(self, *chats: OverviewChat, token: str = "t1", complete: bool = True) -> None:
        (asked,) = [frame for frame in self.frames() if isinstance(frame, SyncOverview)]
        self.receive(Overview(re=answer_to(asked.id), chats=list(chats), token=token, complete=complete))

    def answer_sync(self, request: SyncRequest, *sequences: int, head: int) -> None:
        entries = [raw(make_entry(CHAT, sequence)) for sequence in sequences]
        to_sequence = sequences[-1] if sequences else request.last_acked_sequence
        self.receive(
            MessageBatch(
                re=answer_to(request.id),
                chat_id=CHAT,
                epoch=1,
                entries=entries,
                voids=[],
                from_sequence=request.last_acked_sequence + 1,
                to_sequence=to_sequence,
                head=head,
                complete=to_sequence >= head,
                reset=False,
            )
        )


def outgoing(name: str, chat_id: str = CHAT) -> OutgoingMessage:
    return OutgoingMessage(chat_id=chat_id, client_message_id=name, content=name, created_at_ms=WALL_MS)


def of(kind: type[Request], frames: list[Request]) -> list[Request]:
    return [frame for frame in frames if isinstance(frame, kind)]


def position(chat_id: str = CHAT, head: int = 0, acked: int = 0, *, left: bool = False) -> OverviewChat:
    return OverviewChat(
        chat_id=chat_id,
        epoch=1,
        head=head,
        last_acked_sequence=acked,
        read_up_to=0,
        unread=0,
        unread_more=False,
        left=True if left else UNSET,
    )


def reading(head: int, acked: int) -> Harness:
    """Somebody reads a chat whose position the server has confirmed."""
    harness = Harness()
    harness.core.read(harness.core.chat(CHAT))
    harness.connect()
    harness.answer_overview(position(head=head, acked=acked))
    (request,) = of(SyncRequest, harness.frames())
    assert isinstance(request, SyncRequest)
    harness.answer_sync(request, *range(acked + 1, head + 1), head=head)
    return harness
