"""Messages and their receipts."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from msgspec import Raw

from parley import ids
from parley.chats.reader import check_sequence
from parley.core.idempotency import TWO_IDS
from parley.core.session import NO_CLIENT_ID, check_send
from parley.errors import (
    AHEAD_OF_LOG,
    BLOCKED,
    DUPLICATE_ID,
    NOT_A_MEMBER,
    NOT_FOUND,
    OUT_OF_TURN,
    Refusal,
    Refused,
)
from parley.gateway.answers import batch_fields
from parley.gateway.api.chats import APPENDS, CHAT, POSTS
from parley.gateway.calls import REQUEST_ID, Call, check_rate
from parley.gateway.routes import MESSAGE_KEY, Answer, Parameter, Routes, limit_parameter
from parley.model import Appended, Draft, Page, Scope
from parley.wire import bodies, limits
from parley.wire.codec import JSON
from parley.wire.frames import Batch, Entry, Receipt, SendMessage, SyncRequest
from parley.wire.frames import Sequence as SequenceNumber

MESSAGES = f"{CHAT}/messages"
UUID_BYTES = 16

routes = Routes("Messages")


@routes.route(
    "POST",
    MESSAGES,
    "Send a message",
    {201: Receipt, 200: Receipt},
    body=bodies.NewMessage,
    headers=(MESSAGE_KEY,),
    refusals=(BLOCKED, DUPLICATE_ID, OUT_OF_TURN, *POSTS, *APPENDS),
    scope=Scope.SEND,
)
async def send_message(call: Call) -> Answer:
    """The answer comes once the message is durable. Make a new `client_message_id` for each message and retry
    with the same one until you have an answer: the message is stored once, and 200 says that it had been
    there. `after_client_message_id` keeps the order of messages that you send without waiting. Programs may
    give an `Idempotency-Key` instead; with neither of the two, a retry may store the message twice.
    """
    wanted = await call.body(bodies.NewMessage)
    return await send(
        call,
        call.user_id,
        call.path("chat_id"),
        wanted.content,
        client_message_id=wanted.client_message_id,
        content_type=wanted.content_type,
        display_time=wanted.display_time,
        after_client_message_id=wanted.after_client_message_id,
        mentions=wanted.mentions,
        reply_to=wanted.reply_to or None,
        attachments=wanted.attachments or (),
    )


async def send(
    call: Call,
    sender_id: str,
    chat_id: str,
    content: str,
    *,
    client_message_id: str = "",
    content_type: str = "text/plain",
    display_time: str | None = None,
    after_client_message_id: str | None = None,
    mentions: Sequence[str] = (),
    reply_to: str | None = None,
    attachments: Sequence[str] = (),
) -> Answer:
    """Send a message of a request, whoever may make it, and answer once it is durable."""
    services, key = call.services, call.idempotency_key
    if key and client_message_id:
        raise Refused(TWO_IDS)
    if key:
        client_id = await services.client_ids.of_key(key, sender_id, chat_id)
    else:
        client_id = client_message_id or str(uuid.UUID(bytes=services.random_bytes(UUID_BYTES), version=4))
    request = SendMessage(
        chat_id=chat_id,
        client_message_id=client_id,
        content=content,
        content_type=content_type,
        display_time=display_time,
        after_client_message_id=after_client_message_id,
        mentions=list(mentions),
        reply_to=reply_to,
        attachments=list(attachments),
    )
    draft = check_send(request, sender_id, call.request[REQUEST_ID])
    if isinstance(draft, Refusal):
        raise Refused(draft)
    if call.is_limited:
        check_rate(services.rates.messages.take(sender_id, services.clock()))
    appended = await services.sending.send(draft)
    return 200 if appended.deduplicated else 201, _receipt(draft, appended)


def _receipt(draft: Draft, appended: Appended) -> Receipt:
    return Receipt(
        chat_id=draft.chat_id,
        client_message_id=draft.client_message_id or "",
        message_id=appended.message_id,
        sequence=appended.sequence,
        epoch=appended.epoch,
        created_at=appended.created_at,
        deduplicated=appended.deduplicated,
        conflict=appended.conflict,
    )


@routes.route(
    "GET",
    MESSAGES,
    "A page of the log: ?after= catches up, ?before= goes back",
    {200: Batch[Entry]},
    query=(
        Parameter("after", SequenceNumber, "Entries above this position, ascending.", default=0),
        Parameter("before", SequenceNumber, "The last entries below this position; wins over `after`."),
        limit_parameter(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX),
        Parameter(
            "epoch", SequenceNumber, "With `after`: the epoch of that position; 0 for unknown.", default=0
        ),
        Parameter(
            "last_message_id",
            str,
            "With `after`: the id of the entry at that position, as a check that the log is the same.",
        ),
    ),
    refusals=(NOT_A_MEMBER,),
    scope=Scope.READ,
)
async def list_messages(call: Call) -> Answer:
    """Every number from `from_sequence` to `to_sequence` is an entry or in `voids`. `after` catches up like
    the frame `sync_request`; `reset` says that the log is another one than before.
    """
    reading, chat_id = call.services.reader, call.path("chat_id")
    limit = call.limit(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX)
    if "before" in call.request.query:
        page = await reading.history(call.user_id, chat_id, call.number("before", limits.SEQUENCE_MAX), limit)
        return 200, _batch(page)
    request = SyncRequest(
        chat_id=chat_id,
        last_acked_sequence=call.number("after", 0),
        epoch=call.number("epoch", 0) or None,
        last_message_id=call.text("last_message_id") or None,
        limit=limit,
    )
    return 200, _batch(await reading.sync(call.user_id, request))


def _batch(page: Page) -> Batch[Raw]:
    return Batch(**batch_fields(page, JSON))


@routes.route(
    "GET",
    f"{MESSAGES}/{{message_id}}",
    "One message as it is now",
    {200: bodies.OneMessage},
    refusals=(NOT_A_MEMBER, NOT_FOUND),
    cost=2,
    scope=Scope.READ,
)
async def get_message(call: Call) -> Answer:
    """With its newest content, or none if it was deleted; who reacted to it, and how many replies it has."""
    now = await call.services.message_actions.message(
        call.user_id, call.path("chat_id"), call.path("message_id")
    )
    message = bodies.OneMessage(
        entry=now.entry,
        edited_at=now.entry.edited_at or None,
        deleted=now.entry.deleted is True,
        reactions=[
            bodies.Reaction(reaction=one.reaction, count=one.count, user_ids=one.user_ids)
            for one in now.reactions
        ],
        reply_count=now.reply_count,
    )
    return 200, message


@routes.route(
    "GET",
    f"{MESSAGES}/{{sequence}}/receipts",
    "Who has received and read a message",
    {200: bodies.Receipts},
    refusals=(NOT_A_MEMBER, NOT_FOUND, AHEAD_OF_LOG),
    cost=10,
    scope=Scope.READ,
)
async def list_receipts(call: Call) -> Answer:
    """With times, as far as you may see them. `status` is `delivered` or `read` once all members it was for
    have it; in a chat with `simple` receipts one reader is enough, and `read` has one item without a name.
    """
    sequence = check_sequence(call.path("sequence"), "sequence", 0)
    mode, found = await call.services.receipts.of_message(call.user_id, call.path("chat_id"), sequence)
    receipts = bodies.Receipts(
        sequence=sequence,
        member_count=found.member_count,
        mode=mode,
        status=found.status,
        delivered=found.delivered,
        read=found.read,
    )
    return 200, receipts


@routes.route(
    "GET",
    f"{CHAT}/receipts",
    "How far every member has received and read; in chats of up to 100 members",
    {200: bodies.ChatMarks},
    refusals=(NOT_A_MEMBER,),
    cost=2,
    scope=Scope.READ,
)
async def list_marks(call: Call) -> Answer:
    """The receipts of any message follow from it. A larger chat is refused as `bad_request`."""
    found = await call.services.receipts.of_chat(call.user_id, call.path("chat_id"))
    return 200, bodies.ChatMarks(found.mode, found.marks, found.read_by_anybody)


@routes.route(
    "GET",
    "/v1/sends/{chat_id}/{client_message_id}",
    "What became of a message of yours",
    {200: bodies.SendFound},
    refusals=(NOT_FOUND,),
    scope=Scope.READ,
)
async def find_send(call: Call) -> Answer:
    """For a send without an answer. `not_found`: it is not stored, so send it again with the same id."""
    key = ids.client_key(call.path("client_message_id"))
    if key is None:
        raise Refused(NO_CLIENT_ID)
    entry = await call.services.reader.find_send(call.user_id, call.path("chat_id"), key)
    found = bodies.SendFound(
        status="stored",
        chat_id=entry.chat_id,
        client_message_id=call.path("client_message_id"),
        message_id=entry.message_id,
        sequence=entry.sequence,
        epoch=entry.epoch,
        created_at=entry.created_at,
    )
    return 200, found
