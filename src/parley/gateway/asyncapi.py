"""The AsyncAPI 3.0 document of the WebSocket, made from the frames that it carries."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from parley import __version__
from parley.gateway.fields import CHAT_ID, FIELDS, MESSAGE_ID, OTHER_ID, TIME, Field
from parley.gateway.openapi import LICENSE, SCHEMA_REF
from parley.gateway.routes import JSON
from parley.wire import codec, codes, frames, limits

ADDRESS = "/v1/ws"
CHANNEL = "live"
MESSAGE_REF = "#/components/messages/{name}"
DESCRIPTION = f"""\
Every chat is one totally ordered, durable log. This document is about the WebSocket at `{ADDRESS}`, which
carries new entries as they are stored; `/v1/openapi.json` is about HTTP.

A frame is one object with a `type`. The subprotocol `{codec.JSON_PROTOCOL}` carries it as JSON in text
frames, `{codec.MSGPACK_PROTOCOL}` as MessagePack in binary ones. The first is `hello`, with the token.
A request may carry `id`; its answer carries the same number as `re`. A client ignores fields that it does
not know, and passes over types that it does not know."""

ANSWERED_BY: Mapping[type[frames.ClientFrame], type[frames.ServerFrame] | None] = {
    frames.Hello: frames.Welcome,
    frames.Refresh: frames.Welcome,
    frames.SendMessage: frames.Ack,
    frames.EditMessage: frames.Ack,
    frames.DeleteMessage: frames.Ack,
    frames.React: frames.Ack,
    frames.SyncRequest: frames.MessageBatch,
    frames.Sync: frames.MessageBatch,
    frames.SyncOverview: frames.Overview,
    frames.AckPosition: None,
    frames.DeliveryReceipt: None,
    frames.ReadReceipt: None,
    frames.TypingStart: None,
    frames.TypingStop: None,
    frames.Attention: None,
    frames.PresenceSubscribe: frames.PresenceState,
    frames.PresenceQuery: frames.PresenceState,
    frames.Heartbeat: frames.HeartbeatAck,
}
"""What a request that is not refused is answered with; None if it has no answer."""

FRAME_FIELDS = {
    "type": Field("Which frame it is."),
    "id": Field("A number of the client's choice, which the answer carries as `re`.", 7),
    "re": Field("The `id` of the request that this answers; left out if it had none, or if nobody asked.", 7),
    "conversation_id": Field("Another name of `chat_id`."),
    "conv_id": Field("Another name of `chat_id`."),
    "Hello.token": Field("Of a session or a program, or a JWT where the server takes them."),
    "Refresh.token": Field("Another token of the same person."),
    "looking": Field("Whether somebody looks at the client; a new connection begins with true.", False),
    "live": Field("Whether new entries are sent as they are stored; false for importers.", True),
    "SendMessage.attachments": Field("Up to 10 ids of files that were uploaded to this chat."),
    "EditMessage.message_id": Field("A message of your own.", MESSAGE_ID),
    "DeleteMessage.message_id": Field(
        "A message of your own, or of anybody as an admin of a group.", MESSAGE_ID
    ),
    "React.message_id": Field("The message.", MESSAGE_ID),
    "React.on": Field("False takes a reaction of yours back.", True),
    "SyncRequest.last_acked_sequence": Field("The position after which to begin.", 46),
    "SyncRequest.epoch": Field("The epoch of the entry that the client has at that position.", 1),
    "SyncRequest.last_message_id": Field(
        "The id of that entry: another one there starts the log anew.", MESSAGE_ID
    ),
    "SyncRequest.limit": Field("How many entries at most.", limits.PAGE_ENTRIES_DEFAULT),
    "Sync.last_message_id": Field("The message after which to begin.", MESSAGE_ID),
    "Sync.limit": Field("How many entries at most.", limits.PAGE_ENTRIES_MAX),
    "changed_since": Field("The `token` of an earlier overview; null for every chat.", "412"),
    "SyncOverview.limit": Field("How many chats at most.", limits.OVERVIEW_CHATS_DEFAULT),
    "brief": Field("True for positions alone, without titles, last entries and people.", False),
    "DeliveryReceipt.message_id": Field("The message that this device has.", MESSAGE_ID),
    "DeliveryReceipt.delivered_at": Field("A time if it is there; neither stored nor shown.", TIME),
    "ReadReceipt.read_up_to": Field("A position, or the id of a message.", 47),
    "ReadReceipt.read_at": Field("A time if it is there; neither stored nor shown.", TIME),
    "PresenceSubscribe.user_ids": Field("Up to 500 people; they replace those of before.", [OTHER_ID]),
    "PresenceQuery.user_ids": Field("Up to 500 people.", [OTHER_ID]),
    "Welcome.user_id": Field("Who you are.", OTHER_ID),
    "server_time": Field("The server's clock.", TIME),
    "heartbeat_seconds": Field("How often to send `heartbeat`.", limits.HEARTBEAT_SECONDS),
    "Welcome.limits": Field("The limits of this server, by name.", {"MESSAGE_BYTES_MAX": 65536}),
    "Overview.token": Field("For `changed_since` of the next request.", "412"),
    "heads": Field(
        "Chats with newer entries than this connection was sent, with their heads.", {CHAT_ID: 47}
    ),
    "change": Field(
        "`joined`, `left` or `muted`, to the person alone; `renamed`, `role`, `read_receipts` or `posting`.",
        "joined",
    ),
    "ChatChanged.user_id": Field("Whom the change is about.", OTHER_ID),
    "ChatChanged.title": Field("The new title.", "Berlin trip"),
    "InvitationFrame.expires_at": Field("Until when it can be accepted.", TIME),
    "ReceiptFrame.user_id": Field("The member; null in a chat that does not say who has read.", OTHER_ID),
    "ReceiptFrame.kind": Field("Whether the member has received it, or read it.", "read"),
    "up_to_sequence": Field("How far.", 47),
    "ReceiptFrame.at": Field("When that position last rose.", TIME),
    "expires_in_ms": Field("For how long to show it; 0 hides it.", 5000),
}
"""What fields of frames mean where `fields.FIELDS` does not say it, or says something else."""

REQUESTS: tuple[type[frames.ClientFrame], ...] = get_args(frames.Request)
ANSWERS: tuple[type[frames.ServerFrame], ...] = get_args(frames.ServerFrames)


def document() -> dict[str, Any]:
    """The whole contract over the WebSocket, seen from the server: it receives requests and sends frames."""
    kinds = [*REQUESTS, *ANSWERS]
    messages = {message_name(kind): _message(kind) for kind in kinds}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Parley",
            "version": __version__,
            "description": DESCRIPTION,
            "license": LICENSE,
        },
        "defaultContentType": JSON,
        "channels": {
            CHANNEL: {
                "address": ADDRESS,
                "title": "The WebSocket",
                "description": _closes(),
                "messages": {name: {"$ref": MESSAGE_REF.format(name=name)} for name in messages},
                "bindings": {"ws": {"method": "GET", "bindingVersion": "0.1.0"}},
            }
        },
        "operations": {
            **{_tag(kind): _received(kind) for kind in REQUESTS},
            "push": _sent(),
        },
        "components": {
            "messages": messages,
            "schemas": _schemas(kinds),
        },
    }


def _closes() -> str:
    """How the server ends a connection, as a list."""
    found = sorted(close for close in vars(codes).values() if isinstance(close, codes.Close))
    lines = [f"- {close.code}: {close.reason}" for close in found]
    return "Close codes. 4000 to 4099: reconnect and resume.\n\n" + "\n".join(lines)


def _tag(kind: type[msgspec.Struct]) -> str:
    return str(kind.__struct_config__.tag)


def message_name(kind: type[msgspec.Struct]) -> str:
    """Both sides have an `ack`."""
    return f"{'client' if issubclass(kind, frames.ClientFrame) else 'server'}.{_tag(kind)}"


def _words(kind: type[msgspec.Struct]) -> str:
    return " ".join((inspect.getdoc(kind) or "").split())


def _in_channel(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {"$ref": f"#/channels/{CHANNEL}/messages/{message_name(kind)}"}


def _message(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {
        "name": _tag(kind),
        "title": _tag(kind),
        "summary": _words(kind).split(". ")[0].rstrip(".") + ".",
        "payload": {"$ref": SCHEMA_REF.format(name=kind.__name__)},
    }


def _received(kind: type[frames.ClientFrame]) -> dict[str, Any]:
    """A request, and the frames that may answer it."""
    answer = ANSWERED_BY[kind]
    answers: list[Any] = [frames.RefusedFrame] if answer is None else [answer, frames.RefusedFrame]
    return {
        "action": "receive",
        "channel": {"$ref": f"#/channels/{CHANNEL}"},
        "summary": _words(kind).split(". ")[0].rstrip(".") + ".",
        "messages": [_in_channel(kind)],
        "reply": {
            "channel": {"$ref": f"#/channels/{CHANNEL}"},
            "messages": [_in_channel(one) for one in answers],
        },
    }


def _sent() -> dict[str, Any]:
    answers: set[Any] = {frames.RefusedFrame, *ANSWERED_BY.values()}
    return {
        "action": "send",
        "channel": {"$ref": f"#/channels/{CHANNEL}"},
        "summary": "What the server sends unasked.",
        "messages": [_in_channel(kind) for kind in ANSWERS if kind not in answers],
    }


def _schemas(kinds: list[type[Any]]) -> dict[str, Any]:
    """Every frame and what is in it; entries, which the server embeds as they are stored, as they travel."""
    _, schemas = msgspec.json.schema_components([*kinds, frames.Entry], ref_template=SCHEMA_REF)
    is_frame = {kind.__name__ for kind in kinds}
    for name, schema in schemas.items():
        if "description" in schema:
            schema["description"] = " ".join(schema["description"].split())
        for field, described in schema.get("properties", {}).items():
            if name in is_frame and field == "entries":
                described["items"] = {"$ref": SCHEMA_REF.format(name=frames.Entry.__name__)}
            known = _field(name, field)
            described["description"] = known.description
            if known.example is not msgspec.UNSET:
                described["examples"] = [known.example]
    for kind in kinds:
        if issubclass(kind, frames.ChatFrame):
            names = ("chat_id", "conversation_id", "conv_id")
            schemas[kind.__name__]["anyOf"] = [{"required": [name]} for name in names]
    return dict(sorted(schemas.items()))


def _field(owner: str, name: str) -> Field:
    for known in (FRAME_FIELDS, FIELDS):
        if found := known.get(f"{owner}.{name}"):
            return found
    return FRAME_FIELDS.get(name) or FIELDS[name]
