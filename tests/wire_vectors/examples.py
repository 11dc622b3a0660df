"""The frames that the vectors pin: at least one of every type, plus what is easy to get wrong."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from parley.core import log_hash
from parley.model import AttachedFile
from parley.wire import limits
from parley.wire.codec import Codec
from parley.wire.frames import (
    Ack,
    AckPosition,
    Attention,
    ChatChanged,
    DeleteMessage,
    DeliveryReceipt,
    EditMessage,
    Entry,
    Heartbeat,
    HeartbeatAck,
    Hello,
    InvitationEnded,
    InvitationFrame,
    MessageBatch,
    Messages,
    Overview,
    OverviewChat,
    Peer,
    PresenceChanged,
    PresenceQuery,
    PresenceState,
    PresenceSubscribe,
    PresenceView,
    React,
    ReadReceipt,
    ReceiptFrame,
    Refresh,
    RefusedFrame,
    Request,
    SendMessage,
    ServerFrames,
    Sync,
    SyncOverview,
    SyncRequest,
    Typing,
    TypingStart,
    TypingStop,
    Welcome,
)

CHAT = "chat_01JHV3Z8M4QK7N5X2R9T6WBCDE"
USER = "user_01JHV3Z8M4QK7N5X2R9T6WBCDF"
OTHER = "user_01JHV3Z8M4QK7N5X2R9T6WBCDJ"
ATTACHMENT = "att_01JHV3Z8M4QK7N5X2R9T6WBCDG"
MESSAGE = "msg_01JHV3Z8M4QK7N5X2R9T6WBCDG"
CLIENT_ID = "550e8400-e29b-41d4-a716-446655440000"
PREVIOUS_ID = "6fa459ea-ee8a-4ca4-894e-db77e160355e"
TOKEN = "prl_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
TIME = "2026-01-30T14:30:00.000Z"
AWKWARD = 'tab\there, "quotes", back\\slash, NUL \x00, line\u2028end, é, 👋🏽, \U0010ffff'

ENTRY = Entry(
    chat_id=CHAT,
    sequence=47,
    epoch=1,
    kind="message",
    message_id=MESSAGE,
    sender_id=USER,
    client_message_id=CLIENT_ID,
    content="Hello, world!",
    content_type="text/plain",
    created_at=TIME,
    server_timestamp=TIME,
    display_time="2026-01-30T14:29:59Z",
)
MEMBER_ENTRY = Entry(
    chat_id=CHAT,
    sequence=limits.SEQUENCE_MAX,
    epoch=2,
    kind="member",
    message_id="msg_01JHV3Z8M4QK7N5X2R9T6WBCDH",
    sender_id=USER,
    client_message_id=None,
    content='{"action":"joined","user_id":"user_01JHV3Z8M4QK7N5X2R9T6WBCDF","role":"member"}',
    content_type="application/json",
    created_at=TIME,
    server_timestamp=TIME,
)
AWKWARD_ENTRY = msgspec.structs.replace(ENTRY, sequence=49, content=AWKWARD)
EDIT_ENTRY = msgspec.structs.replace(ENTRY, sequence=48, kind="edit", target_id=MESSAGE, content="better")
DELETE_ENTRY = msgspec.structs.replace(ENTRY, sequence=49, kind="delete", target_id=MESSAGE, content="")
REACTION_ENTRY = msgspec.structs.replace(
    ENTRY, sequence=50, kind="reaction", target_id=MESSAGE, content="👍", reaction="👍", on=False
)
IMAGE = AttachedFile(
    attachment_id=ATTACHMENT,
    name="Ünïcode ✓.png",
    size=48_213,
    content_type="image/png",
    sha256="0f" * 32,
    width=640,
    height=480,
    preview="data:image/webp;base64,UklGRg==",
)
PLAIN_FILE = AttachedFile(
    attachment_id="att_01JHV3Z8M4QK7N5X2R9T6WBCDH",
    name="a",
    size=2**33,
    content_type="application/octet-stream",
    sha256="f0" * 32,
)
FILES_ENTRY = msgspec.structs.replace(ENTRY, sequence=51, content="", attachments=[IMAGE, PLAIN_FILE])
EDITED_ENTRY = msgspec.structs.replace(
    log_hash.without_body(ENTRY), content="better", edited_at=TIME, edit_sequence=48
)
HASHED_LOG: list[Entry | None] = [
    msgspec.structs.replace(MEMBER_ENTRY, sequence=1),
    msgspec.structs.replace(ENTRY, sequence=2),
    None,
    msgspec.structs.replace(AWKWARD_ENTRY, sequence=4, display_time=None),
    msgspec.structs.replace(ENTRY, sequence=5, mentions=[OTHER, USER]),
    log_hash.without_body(msgspec.structs.replace(ENTRY, sequence=6)),
    msgspec.structs.replace(ENTRY, sequence=7, reply_to=MESSAGE),
    msgspec.structs.replace(EDIT_ENTRY, sequence=8),
    msgspec.structs.replace(REACTION_ENTRY, sequence=9),
    msgspec.structs.replace(FILES_ENTRY, sequence=10),
    log_hash.without_body(msgspec.structs.replace(FILES_ENTRY, sequence=11)),
]
"""A log with every kind of position: None is a void, the sixth entry has lost its body."""

REQUESTS: dict[str, Request] = {
    "hello": Hello(id=1, token=TOKEN, device_id="phone"),
    "hello without live messages": Hello(id=1, token=TOKEN, device_id="importer", live=False),
    "refresh": Refresh(id=4, token=TOKEN),
    "send_message": SendMessage(id=2, chat_id=CHAT, client_message_id=CLIENT_ID, content="Hello, world!"),
    "send_message with everything": SendMessage(
        id=3,
        chat_id=CHAT,
        client_message_id=CLIENT_ID,
        content='{"x":1}',
        content_type="application/json",
        display_time=TIME,
        after_client_message_id=PREVIOUS_ID,
    ),
    "send_message with mentions": SendMessage(
        id=3, chat_id=CHAT, client_message_id=CLIENT_ID, content="hi", mentions=[OTHER, USER]
    ),
    "send_message with awkward letters": SendMessage(
        id=4, chat_id=CHAT, client_message_id=CLIENT_ID, content=AWKWARD
    ),
    "send_message without id": SendMessage(chat_id=CHAT, client_message_id=CLIENT_ID, content=""),
    "send_message with a fractional id": SendMessage(
        id=0.5, chat_id=CHAT, client_message_id=CLIENT_ID, content="x"
    ),
    "send_message in reply": SendMessage(
        id=5, chat_id=CHAT, client_message_id=CLIENT_ID, content="so?", reply_to=MESSAGE
    ),
    "send_message with files": SendMessage(
        id=10, chat_id=CHAT, client_message_id=CLIENT_ID, content="", attachments=[ATTACHMENT]
    ),
    "edit_message": EditMessage(
        id=6, chat_id=CHAT, client_message_id=CLIENT_ID, message_id=MESSAGE, content="better"
    ),
    "delete_message": DeleteMessage(id=7, chat_id=CHAT, client_message_id=CLIENT_ID, message_id=MESSAGE),
    "react": React(id=8, chat_id=CHAT, client_message_id=CLIENT_ID, message_id=MESSAGE, reaction="👍"),
    "react to take it back": React(
        id=9, chat_id=CHAT, client_message_id=CLIENT_ID, message_id=MESSAGE, reaction="👍", on=False
    ),
    "sync_request": SyncRequest(id=5, chat_id=CHAT, last_acked_sequence=0),
    "sync_request with everything": SyncRequest(
        id=6,
        chat_id=CHAT,
        last_acked_sequence=limits.SEQUENCE_MAX,
        epoch=3,
        last_message_id=MESSAGE,
        limit=limits.PAGE_ENTRIES_MAX,
    ),
    "sync": Sync(id=7, last_message_id=MESSAGE, limit=10),
    "sync_overview": SyncOverview(id=8),
    "sync_overview continued": SyncOverview(id=9, changed_since="412", limit=500),
    "ack": AckPosition(chat_id=CHAT, last_acked_sequence=47),
    "delivery_receipt": DeliveryReceipt(conversation_id=CHAT, message_id=MESSAGE, delivered_at=TIME),
    "read_receipt by sequence": ReadReceipt(conversation_id=CHAT, read_up_to=47),
    "read_receipt by message": ReadReceipt(conversation_id=CHAT, read_up_to=MESSAGE, read_at=TIME),
    "sync_overview of positions alone": SyncOverview(id=10, brief=True),
    "typing_start": TypingStart(conv_id=CHAT),
    "typing_stop": TypingStop(conv_id=CHAT),
    "attention": Attention(looking=False),
    "presence_subscribe": PresenceSubscribe(id=11, user_ids=[USER]),
    "presence_subscribe to nobody": PresenceSubscribe(id=12, user_ids=[]),
    "presence_query": PresenceQuery(id=13, user_ids=[USER, OTHER]),
    "heartbeat": Heartbeat(),
    "heartbeat with id": Heartbeat(id=2**53 - 1),
}


def answers(codec: Codec) -> dict[str, ServerFrames]:
    """The server's frames, with their entries in this codec's own form."""

    def embedded(*entries: Entry) -> list[Raw]:
        return codec.entries([msgspec.json.encode(entry) for entry in entries])

    def batch(entries: Sequence[Entry], **fields: int | bool | str | list[int]) -> MessageBatch:
        page = {"voids": [], "complete": True, "reset": False, "epoch": 1, "re": 5, **fields}
        return msgspec.convert(
            {"type": "message_batch", "chat_id": CHAT, "entries": embedded(*entries), **page}, MessageBatch
        )

    return {
        "welcome": Welcome(
            re=1,
            user_id=USER,
            device_id="phone",
            session_id="ses_01JHV3Z8M4QK7N5X2R9T6WBCDK",
            server_time=TIME,
            heartbeat_seconds=30,
            limits={"MESSAGE_BYTES_MAX": 65_536},
        ),
        "ack": ack(re=2, sequence=47, deduplicated=False, conflict=False),
        "ack of a retry with other content": ack(re=2, sequence=47, deduplicated=True, conflict=True),
        "ack of a request without id": ack(
            re=msgspec.UNSET, sequence=2**32, deduplicated=False, conflict=False
        ),
        "message_batch": batch(
            [ENTRY, AWKWARD_ENTRY], voids=[48], from_sequence=47, to_sequence=49, head=60, complete=False
        ),
        "message_batch with the hash of the log": batch(
            [log_hash.without_body(ENTRY)],
            from_sequence=47,
            to_sequence=47,
            head=47,
            log_hash=log_hash.shown(log_hash.empty_log(CHAT)),
        ),
        "message_batch that is empty": batch([], from_sequence=50, to_sequence=49, head=49),
        "message_batch after a reset": batch(
            [ENTRY], from_sequence=1, to_sequence=47, head=47, epoch=2, reset=True, voids=[*range(1, 47)]
        ),
        "overview": overview(),
        "overview with what a person reads": full_overview(),
        "overview of nothing": Overview(re=8, chats=[], token="0", complete=True),
        "heartbeat_ack": HeartbeatAck(server_time=TIME),
        "heartbeat_ack with heads": HeartbeatAck(re=9, server_time=TIME, heads={CHAT: 51}),
        "messages": Messages(chat_id=CHAT, epoch=1, entries=embedded(ENTRY)),
        "messages with a void and a change": Messages(
            chat_id=CHAT, epoch=2, entries=embedded(MEMBER_ENTRY), voids=[limits.SEQUENCE_MAX - 1]
        ),
        "messages about messages": Messages(
            chat_id=CHAT,
            epoch=1,
            entries=embedded(EDITED_ENTRY, EDIT_ENTRY, DELETE_ENTRY, REACTION_ENTRY),
        ),
        "messages with files": Messages(chat_id=CHAT, epoch=1, entries=embedded(FILES_ENTRY)),
        "messages with mentions": Messages(
            chat_id=CHAT,
            epoch=1,
            entries=embedded(msgspec.structs.replace(ENTRY, mentions=[OTHER])),
        ),
        "messages with a removed body": Messages(
            chat_id=CHAT,
            epoch=1,
            entries=embedded(msgspec.structs.replace(ENTRY, content="", deleted=True)),
        ),
        "chat_changed joined": ChatChanged(
            chat_id=CHAT, change="joined", user_id=USER, role="member", head=12, epoch=1
        ),
        "chat_changed renamed": ChatChanged(chat_id=CHAT, change="renamed", title="Grüße"),
        **noticed(),
        "refused": RefusedFrame(re=2, code="not_a_member", reason="you are not a member", temporary=False),
        "refused for now": RefusedFrame(
            re=2.5, code="rate_limited", reason="too fast", temporary=True, retry_after_ms=1_000
        ),
        "refused without id": RefusedFrame(code="unknown_type", reason="there is no such", temporary=False),
    }


def noticed() -> dict[str, ServerFrames]:
    """What people notice of each other."""
    return {
        "chat_changed read_receipts": ChatChanged(chat_id=CHAT, change="read_receipts", read_receipts="none"),
        "chat_changed posting": ChatChanged(
            chat_id=CHAT, change="posting", announcement_only=True, slow_mode_seconds=30
        ),
        "chat_changed muted": ChatChanged(chat_id=CHAT, change="muted", muted_until=TIME),
        "chat_changed no longer muted": ChatChanged(chat_id=CHAT, change="muted", muted_until=None),
        "invitation": InvitationFrame(
            chat_id=CHAT, title="Grüße", by=OTHER, role="member", invited_at=TIME, expires_at=TIME
        ),
        "invitation without a title": InvitationFrame(
            chat_id=CHAT, title=None, by=OTHER, role="admin", invited_at=TIME, expires_at=TIME
        ),
        "invitation_ended": InvitationEnded(chat_id=CHAT),
        "receipt delivered": ReceiptFrame(
            chat_id=CHAT, user_id=OTHER, kind="delivered", up_to_sequence=47, at=TIME
        ),
        "receipt read": ReceiptFrame(chat_id=CHAT, user_id=OTHER, kind="read", up_to_sequence=2**32, at=TIME),
        "typing": Typing(chat_id=CHAT, user_id=OTHER, expires_in_ms=5_000),
        "typing no more": Typing(chat_id=CHAT, user_id=OTHER, expires_in_ms=0),
        "presence_state": PresenceState(
            re=13,
            presences=[
                PresenceView(USER, "online", TIME),
                PresenceView(OTHER, "offline", None),
            ],
        ),
        "presence_state of nobody": PresenceState(re=12, presences=[]),
        "presence online": PresenceChanged(user_id=OTHER, status="online", last_seen=TIME),
        "presence hidden": PresenceChanged(user_id=OTHER, status="offline", last_seen="unavailable"),
    }


def ack(re: int | msgspec.UnsetType, sequence: int, deduplicated: bool, conflict: bool) -> Ack:
    return Ack(
        re=re,
        chat_id=CHAT,
        client_message_id=CLIENT_ID,
        message_id=MESSAGE,
        sequence=sequence,
        epoch=1,
        created_at=TIME,
        deduplicated=deduplicated,
        conflict=conflict,
    )


def overview() -> Overview:
    open_chat = OverviewChat(
        chat_id=CHAT,
        epoch=1,
        head=60,
        last_acked_sequence=47,
        read_up_to=40,
        unread=999,
        unread_more=True,
    )
    left = msgspec.structs.replace(open_chat, chat_id=CHAT[:-1] + "F", unread=0, unread_more=False, left=True)
    return Overview(re=8, chats=[open_chat, left], token="413", complete=False)


def full_overview() -> Overview:
    """With what a person reads: of a group that is muted, and of a direct chat whose other one hides."""
    group = msgspec.structs.replace(
        overview().chats[0],
        muted=True,
        muted_until=TIME,
        type="group",
        title="Grüße",
        peer=None,
        last_entry=AWKWARD_ENTRY,
    )
    direct = msgspec.structs.replace(
        overview().chats[0],
        chat_id=CHAT[:-1] + "G",
        muted_until=None,
        type="direct",
        title=None,
        peer=Peer(OTHER, "bob", "Bob", "offline", "unavailable"),
        last_entry=None,
    )
    return Overview(re=8, chats=[group, direct], token="414", complete=True)
