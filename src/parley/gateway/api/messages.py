"""Messages and their receipts."""

from __future__ import annotations

from msgspec import UNSET, Raw

from parley import ids
from parley.chats.reader import check_sequence
from parley.core import log_hash
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
from parley.gateway.api.chats import APPENDS, CHAT
from parley.gateway.calls import REQUEST_ID, Call, check_rate
from parley.gateway.routes import Answer, Parameter, Routes, limit_parameter
from parley.model import Appended, Draft, Page
from parley.wire import bodies, limits
from parley.wire.codec import JSON
from parley.wire.frames import Batch, Entry, Receipt, SendMessage, Sequence, SyncRequest

MESSAGES = f"{CHAT}/messages"

routes = Routes("Messages")


@routes.route(
    "POST",
    MESSAGES,
    "Send a message",
    {201: Receipt, 200: Receipt},
    body=bodies.NewMessage,
    refusals=(BLOCKED, DUPLICATE_ID, OUT_OF_TURN, *APPENDS),
)
async def send_message(call: Call) -> Answer:
    """The answer comes once the message is durable. Make a new `client_message_id` for each message and retry
    with the same one until you have an answer: the message is stored once, and 200 says that it had been
    there. `after_client_message_id` keeps the order of messages that you send without waiting.
    """
    services = call.services
    wanted = await call.body(bodies.NewMessage)
    request = SendMessage(
        chat_id=call.path("chat_id"),
        client_message_id=wanted.client_message_id,
        content=wanted.content,
        content_type=wanted.content_type,
        display_time=wanted.display_time,
        after_client_message_id=wanted.after_client_message_id,
        mentions=wanted.mentions,
    )
    draft = check_send(request, call.user_id, call.request[REQUEST_ID])
    if isinstance(draft, Refusal):
        raise Refused(draft)
    if call.is_limited:
        check_rate(services.rates.messages.take(call.user_id, services.clock()))
    appended = await services.sender.send(draft)
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
        Parameter("after", Sequence, "Entries above this position, ascending.", default=0),
        Parameter("before", Sequence, "The last entries below this position; wins over `after`."),
        limit_parameter(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX),
        Parameter("epoch", Sequence, "With `after`: the epoch of that position; 0 for unknown.", default=0),
        Parameter(
            "last_message_id",
            str,
            "With `after`: the id of the entry at that position, as a check that the log is the same.",
        ),
    ),
    refusals=(NOT_A_MEMBER,),
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
    return Batch(
        chat_id=page.chat_id,
        epoch=page.epoch,
        entries=JSON.entries(page.entries),
        voids=page.voids,
        from_sequence=page.from_sequence,
        to_sequence=page.to_sequence,
        head=page.head,
        complete=page.complete,
        reset=page.reset,
        log_hash=UNSET if page.log_hash is None else log_hash.shown(page.log_hash),
    )


@routes.route(
    "GET",
    f"{MESSAGES}/{{sequence}}/receipts",
    "Who has received and read a message",
    {200: bodies.Receipts},
    refusals=(NOT_A_MEMBER, NOT_FOUND, AHEAD_OF_LOG),
    cost=10,
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
