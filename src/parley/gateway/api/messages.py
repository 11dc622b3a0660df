"""Messages and their receipts."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from msgspec import structs

from parley import ids
from parley.chats.reader import check_sequence
from parley.clock import from_iso
from parley.core.idempotency import TWO_IDS
from parley.core.session import NO_CLIENT_ID, check_send
from parley.errors import (
    AHEAD_OF_LOG,
    BAD_REQUEST,
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
from parley.gateway.fields import TIME
from parley.gateway.routes import MESSAGE_KEY, Answer, Parameter, Routes, limit_parameter
from parley.model import Appended, Draft, Kind, Page, Scope
from parley.sending.message_actions import MessageNow
from parley.wire import bodies, limits
from parley.wire.codec import JSON, decode_entry
from parley.wire.frames import Batch, Receipt, SendMessage, SyncRequest
from parley.wire.frames import Sequence as SequenceNumber
from parley.wire.page_bodies import MessageLookup, MessagesFound, RepliedMessage, ShownEntry

MESSAGES = f"{CHAT}/messages"
UUID_BYTES = 16
SHOWN_PER_COST = 10
"""So many messages with what stands beside them cost as much as an ordinary request."""
EXCERPT_CHARS_MAX = 200
NO_TIME = BAD_REQUEST.because("at must be a time like 2026-01-01T12:00:00Z")

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
    {200: Batch[ShownEntry]},
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
        Parameter(
            "around", str, "A page with both sides of this position, or of the message with this id.", "47"
        ),
        Parameter("at", str, "The same around the first entry that was stored at this time, or later.", TIME),
        Parameter(
            "shown",
            bool,
            "Whether each message has its `reactions`, its `reply_count`, and in `replied` what it answers."
            f" Such a page has at most {limits.SHOWN_ENTRIES_MAX} entries, and costs more.",
            default=False,
        ),
    ),
    refusals=(NOT_A_MEMBER, NOT_FOUND),
    scope=Scope.READ,
)
async def list_messages(call: Call) -> Answer:
    """Every number from `from_sequence` to `to_sequence` is an entry or in `voids`. `after` catches up like
    the frame `sync_request`; `reset` says that the log is another one than before.

    `around` and `at` open a chat somewhere else than at its end: at what a search, a link or an answer leads
    to, or at a date.
    """
    is_shown = call.flag("shown")
    most = limits.SHOWN_ENTRIES_MAX if is_shown else limits.PAGE_ENTRIES_MAX
    page = await _page(call, call.limit(limits.PAGE_ENTRIES_DEFAULT, most))
    if not is_shown:
        return 200, Batch(**batch_fields(page, JSON))
    call.charge(len(page.entries) // SHOWN_PER_COST)
    found = await call.services.message_actions.shown([decode_entry(wire) for wire in page.entries])
    return 200, Batch(**batch_fields(page, JSON) | {"entries": [_shown(one) for one in found]})


async def _page(call: Call, limit: int) -> Page:
    """The page that the query asks for."""
    reading, chat_id, query = call.services.reader, call.path("chat_id"), call.request.query
    if "around" in query:
        place = call.text("around")
        is_number = place.isascii() and place.isdigit()
        wanted = check_sequence(place, "around", 0) if is_number else place
        return await reading.around(call.user_id, chat_id, wanted, limit)
    if "at" in query:
        return await reading.at(call.user_id, chat_id, _time(call.text("at")), limit)
    if "before" in query:
        before = call.number("before", limits.SEQUENCE_MAX)
        return await reading.history(call.user_id, chat_id, before, limit)
    request = SyncRequest(
        chat_id=chat_id,
        last_acked_sequence=call.number("after", 0),
        epoch=call.number("epoch", 0) or None,
        last_message_id=call.text("last_message_id") or None,
        limit=limit,
    )
    return await reading.sync(call.user_id, request)


def _time(text: str) -> int:
    try:
        return from_iso(text)
    except (ValueError, OverflowError, OSError) as error:
        raise Refused(NO_TIME) from error


def _shown(now: MessageNow) -> ShownEntry:
    """An entry, and beside a message what a reader sees."""
    shown = ShownEntry(**structs.asdict(now.entry))
    if now.entry.kind != Kind.MESSAGE.value:
        return shown
    shown.reactions, shown.reply_count = _reactions(now), now.reply_count
    if now.replied is not None:
        replied, is_text = now.replied, now.replied.content_type.startswith("text/")
        shown.replied = RepliedMessage(
            message_id=replied.message_id,
            sequence=replied.sequence,
            sender_id=replied.sender_id,
            excerpt=" ".join(replied.content.split())[:EXCERPT_CHARS_MAX] if is_text else "",
            deleted=replied.deleted is True,
        )
    return shown


def _reactions(now: MessageNow) -> list[bodies.Reaction]:
    return [
        bodies.Reaction(reaction=one.reaction, count=one.count, user_ids=one.user_ids)
        for one in now.reactions
    ]


@routes.route(
    "POST",
    f"{MESSAGES}/lookup",
    "Messages by their ids, as a reader sees them",
    {200: MessagesFound},
    body=MessageLookup,
    refusals=(NOT_A_MEMBER,),
    scope=Scope.READ,
)
async def look_up_messages(call: Call) -> Answer:
    """What was replied to, pinned or linked, without its page of the log. An id that is no message of this
    chat is left out.
    """
    wanted = await call.body(MessageLookup)
    call.charge(len(wanted.message_ids) // SHOWN_PER_COST)
    found = await call.services.message_actions.lookup(call.user_id, call.path("chat_id"), wanted.message_ids)
    return 200, MessagesFound([_shown(one) for one in found])


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
        reactions=_reactions(now),
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
