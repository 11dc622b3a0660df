"""What operators see of chats and do to them. All of it needs an operator's token."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from parley.chats.operated_chats import ChatState, MemberProgress
from parley.checks.recovery import ImplausibleNumber, Recovery, how_to_go_on, recover
from parley.clock import iso
from parley.errors import (
    BAD_REQUEST,
    FORBIDDEN,
    NO_SUCH_MESSAGE,
    NOT_FOUND,
    PASSWORD_NEEDED,
    TOO_LARGE,
    UNDER_HOLD,
    InconsistentCounterError,
    Refused,
)
from parley.gateway.api.chats import APPENDS
from parley.gateway.calls import Call
from parley.gateway.routes import Answer, Parameter, Routes, limit_parameter
from parley.ids import MESSAGE
from parley.model import AccountState, ChatType, Page, User
from parley.push.fanout_admin import FanoutView
from parley.store.ports import Engine
from parley.wire import bodies, limits
from parley.wire import operator_bodies as operator
from parley.wire.codec import decode_entry
from parley.wire.frames import Entry

CHATS, CHAT = "/v1/admin/chats", "/v1/admin/chats/{chat_id}"
LIST_COST, STATE_COST = 20, 5
MEMBERS_DEFAULT, MEMBERS_MAX = 50, 100
"""The positions of each one's devices are read."""
LINES_DEFAULT, LINES_MAX = 100, 500
REASON_CHARS_MAX = limits.REPORT_REASON_CHARS_MAX
READ = "chat.read"
"""In the audit log: an operator saw what a log says."""
WRONG_TYPE = BAD_REQUEST.because("type is direct or group, or left out: both")
NO_CHANGE = BAD_REQUEST.because("name a title or a fanout")
WRONG_REASON = BAD_REQUEST.because(f"reveal has a reason of 1 to {REASON_CHARS_MAX:,} characters")

routes = Routes("Operators")


@routes.route(
    "GET",
    CHATS,
    "Find chats",
    {200: operator.ListedChatPage},
    query=(
        Parameter(
            "q", str, "A chat's id, a part of its title, or `ann,ben` for their direct chat; all without it."
        ),
        Parameter("type", str, "`direct` or `group`; both without it.", "group"),
        Parameter("after", str, "The `next` of the page before; the newest chats without it."),
        limit_parameter(MEMBERS_DEFAULT, MEMBERS_MAX),
    ),
    refusals=(FORBIDDEN, TOO_LARGE),
    needs="operator",
    cost=LIST_COST,
)
async def find_chats(call: Call) -> Answer:
    """The newest first. A page of a search may be short although others follow: go on while there is a
    `next`. It changes nothing, and shows no messages.
    """
    limit, asked, services = call.limit(MEMBERS_DEFAULT, MEMBERS_MAX), call.text("type"), call.services
    if asked and asked not in list(ChatType):
        raise Refused(WRONG_TYPE)
    chat_type = ChatType(asked) if asked else None
    page = await services.chat_finder.find(call.text("q"), chat_type, call.text("after"), limit)
    listed = await services.operated_chats.listed(page.chats)
    lines = [
        operator.ListedChatInfo(
            chat_id=one.chat.chat_id,
            type=one.chat.chat_type,
            title=one.chat.title,
            people=_people(one.people),
            member_count=one.member_count,
            head=one.head,
            created_at=one.chat.created_at,
        )
        for one in listed
    ]
    return 200, operator.ListedChatPage(lines, page.next_after)


@routes.route(
    "GET",
    CHAT,
    "A chat with its counters and rules",
    {200: operator.ChatOverview},
    refusals=(FORBIDDEN, NOT_FOUND),
    needs="operator",
    cost=STATE_COST,
)
async def show_chat_state(call: Call) -> Answer:
    """Without its messages. Voids are counted a second long; the next answer goes on where this one ended
    (`counted_through`). `counter` is null while it is lost: the chat refuses messages until it is recovered.
    """
    services, chat_id = call.services, call.path("chat_id")
    state = await services.operated_chats.state(chat_id)
    return 200, await _overview(call, state, await services.fanouts.show(chat_id))


@routes.route(
    "PATCH",
    CHAT,
    "Rename a chat, or choose how its notifications are fanned out",
    {200: bodies.FanoutInfo},
    body=bodies.FanoutChange,
    refusals=(FORBIDDEN, NOT_FOUND, *APPENDS),
    needs="operator",
)
async def choose_fanout(call: Call) -> Answer:
    """A new title is an entry like every other, in the name of an owner, with `"by": "operator"`; a direct
    chat has none. The fan-out holds for messages from now on, on every node within half a minute:
    notifications that are owed stay owed.
    """
    wanted, services, chat_id = await call.body(bodies.FanoutChange), call.services, call.path("chat_id")
    if wanted.fanout is UNSET and wanted.title is UNSET:
        raise Refused(NO_CHANGE)
    if wanted.title is not UNSET:
        async with services.user_admin.audited(call.acting, "chat.rename", chat_id, wanted.title):
            await services.chat_admin.rename(chat_id, wanted.title)
    if wanted.fanout is UNSET:
        view = await services.fanouts.show(chat_id)
    else:
        view = await services.fanouts.choose(call.acting, chat_id, wanted.fanout)
    chat = view.chat
    return 200, bodies.FanoutInfo(
        chat.chat_id, chat.chat_type, chat.title, view.member_count, view.strategy, view.chosen
    )


@routes.route(
    "GET",
    f"{CHAT}/members",
    "The members of a chat, and how far their devices are",
    {200: operator.MemberPositionPage},
    query=(
        Parameter("after", str, "The `next` of the page before; the first members without it."),
        limit_parameter(MEMBERS_DEFAULT, MEMBERS_MAX),
    ),
    refusals=(FORBIDDEN, NOT_FOUND),
    needs="operator",
    cost=STATE_COST,
)
async def list_member_positions(call: Call) -> Answer:
    """By their ids. `lag` is how many positions a device has not acknowledged."""
    limit = call.limit(MEMBERS_DEFAULT, MEMBERS_MAX)
    page = await call.services.operated_chats.members(call.path("chat_id"), call.text("after"), limit)
    following = page.members[-1].member.user_id if len(page.members) == limit else None
    members = [_member(state, page.head) for state in page.members]
    return 200, operator.MemberPositionPage(members, page.head, following)


@routes.route(
    "GET",
    f"{CHAT}/log",
    "The log of a chat around a position",
    {200: operator.LogLines},
    query=(
        Parameter("around", str, "A position, or the id of a message; the end of the log without it.", "47"),
        limit_parameter(LINES_DEFAULT, LINES_MAX),
        Parameter("reveal", str, "Why you must see what the entries say; without it they do not say it."),
    ),
    refusals=(FORBIDDEN, NOT_FOUND),
    needs="operator",
    cost=STATE_COST,
)
async def show_log(call: Call) -> Answer:
    """Numbers, kinds, ids, times and sizes. With `reveal` also what the entries say, as they are now: the
    reason is recorded before anything is read, in the audit log.
    """
    limit, chat_id, asked = call.limit(LINES_DEFAULT, LINES_MAX), call.path("chat_id"), call.text("around")
    around = asked if asked.startswith(MESSAGE) else call.number("around", -1)
    services = call.services
    if "reveal" not in call.request.query:
        page = await services.operated_chats.log(chat_id, None if around == -1 else around, limit)
        return 200, _lines(page, is_revealed=False)
    reason = call.text("reveal").strip()
    if not 1 <= len(reason) <= REASON_CHARS_MAX:
        raise Refused(WRONG_REASON)
    detail = f"around={asked or 'end'} limit={limit} reason={reason}"
    async with services.user_admin.audited(call.acting, READ, chat_id, detail):
        page = await services.operated_chats.log(chat_id, None if around == -1 else around, limit)
    return 200, _lines(page, is_revealed=True)


@routes.route(
    "DELETE",
    f"{CHAT}/messages/{{message_id}}",
    "Delete a message of a chat",
    {204: None},
    body=operator.DeletionReason,
    refusals=(FORBIDDEN, NO_SUCH_MESSAGE, UNDER_HOLD, *APPENDS),
    needs="operator",
)
async def delete_message_of_others(call: Call) -> Answer:
    """Also in a direct chat, and whoever wrote it. From the answer on nobody reads its body again. It is an
    entry of kind `delete`, in the name of its sender, or of an owner if they left, with `"by": "operator"`.
    The reason is in the audit log. May be repeated.
    """
    reason = (await call.body(operator.DeletionReason)).reason
    services, chat_id, message_id = call.services, call.path("chat_id"), call.path("message_id")
    detail = f"chat={chat_id} reason={reason}"
    async with services.user_admin.audited(call.acting, "message.delete", message_id, detail):
        await services.chat_admin.delete_message(chat_id, message_id)
    return 204, None


@routes.route(
    "DELETE",
    CHAT,
    "Delete a chat",
    {202: operator.ChatDeletion},
    body=operator.DeletionReason,
    refusals=(FORBIDDEN, NOT_FOUND, UNDER_HOLD),
    needs="operator",
    needs_password=True,
)
async def delete_chat_of_others(call: Call) -> Answer:
    """A job takes everybody out of a group, which they see as entries, and then removes every body. A direct
    chat keeps its two people, and loses every body. What is left is for operators: numbers, kinds, times.
    `GET /v1/admin/erasures/{chat_id}` says how far it is. This cannot be undone. May be repeated.
    """
    reason = (await call.body(operator.DeletionReason)).reason
    services, chat_id = call.services, call.path("chat_id")
    async with services.user_admin.audited(call.acting, "chat.delete", chat_id, f"reason={reason}"):
        return 202, operator.ChatDeletion(chat_id, await services.body_admin.begin_chat(chat_id))


@routes.route(
    "POST",
    f"{CHAT}/recover",
    "Restore the lost counter of a chat",
    {200: operator.RecoveryReport},
    body=operator.RecoveryOrder,
    refusals=(FORBIDDEN, NOT_FOUND, PASSWORD_NEEDED),
    needs="operator",
    cost=LIST_COST,
)
async def recover_chat(call: Call) -> Answer:
    """As `parley recover CHAT` does it, beside the server that runs: the chat continues after the highest
    number in any table. Without `dry_run: false` it only says what it would write. An existing counter is
    never overwritten: one that is behind its log is `inconsistent`, and `problems` says what to do.
    """
    order, chat_id, services = await call.body(operator.RecoveryOrder), call.path("chat_id"), call.services
    if not order.dry_run:
        call.check_recent_password()
    await services.operated_chats.chat(chat_id)
    detail = f"dry_run={order.dry_run} seal_holes={order.seal_holes}"

    async def restore(engine: Engine) -> operator.RecoveryReport:
        try:
            return _recovered(
                await recover(engine, chat_id, apply=not order.dry_run, seal_holes=order.seal_holes)
            )
        except InconsistentCounterError as error:
            return _not_recovered(chat_id, "inconsistent", [str(error), how_to_go_on(engine, chat_id)])
        except ImplausibleNumber as error:
            return _not_recovered(chat_id, "failed", [str(error)])

    async with services.user_admin.audited(call.acting, "chat.recover", chat_id, detail):
        return 200, await services.beside.ask(restore)


def _recovered(done: Recovery) -> operator.RecoveryReport:
    return operator.RecoveryReport(
        chat_id=done.remains.chat_id,
        status=done.status,
        applied=done.applied,
        found=done.found,
        counter=done.counter,
        voids=[operator.VoidRange(first, last) for first, last in done.voids],
        problems=[breach.says for breach in done.breaches],
    )


def _not_recovered(chat_id: str, status: str, problems: list[str]) -> operator.RecoveryReport:
    return operator.RecoveryReport(chat_id, status, False, {}, None, [], problems)


async def _overview(call: Call, state: ChatState, fanout: FanoutView) -> operator.ChatOverview:
    chat, services = state.chat, call.services
    counter = state.counter
    return operator.ChatOverview(
        chat_id=chat.chat_id,
        type=chat.chat_type,
        title=chat.title,
        member_count=state.member_count,
        fanout=fanout.strategy,
        chosen=fanout.chosen,
        people=_people(state.people),
        created_by=chat.created_by,
        created_at=chat.created_at,
        last_at=state.last.created_at if state.last is not None else None,
        epoch=state.head.epoch,
        head=state.head.sequence,
        counter=counter,
        open_allocations=max(0, counter - state.head.sequence) if counter is not None else 0,
        voids=state.counted.voids,
        counted_through=state.counted.through,
        gap_rate=round(state.gap_rate, 6),
        hash_upto=state.hash_upto,
        retention=state.retention_days,
        is_held=state.is_held,
        open_to_join=chat.open_to_join,
        read_receipts=chat.read_receipts,
        announcement_only=chat.announcement_only,
        slow_mode_seconds=chat.slow_mode_seconds,
        edit_window_seconds=await services.message_actions.edit_window(chat.chat_id),
    )


def _people(users: Sequence[User]) -> list[operator.PersonOfChat]:
    return [operator.PersonOfChat(user.user_id, user.username, user.display_name) for user in users]


def _member(state: MemberProgress, head: int) -> operator.MemberPosition:
    member, user = state.member, state.user
    return operator.MemberPosition(
        user_id=member.user_id,
        username=user.username if user is not None else "",
        display_name=user.display_name if user is not None else "",
        state=user.state if user is not None else AccountState.DELETED,
        is_bot=user is not None and user.is_bot,
        role=member.role,
        joined_at=member.joined_at,
        joined_sequence=member.joined_sequence,
        delivered_up_to=state.settings.delivered_up_to,
        read_up_to=state.settings.read_up_to,
        devices=[
            operator.DevicePosition(
                one.device_id, one.position, max(0, head - one.position), iso(one.used_ms)
            )
            for one in state.devices
        ],
    )


def _lines(page: Page, *, is_revealed: bool) -> operator.LogLines:
    entries = [_line(decode_entry(wire), is_revealed=is_revealed) for wire in page.entries]
    return operator.LogLines(
        page.chat_id, page.epoch, page.head, page.from_sequence, page.to_sequence, entries, page.voids
    )


def _line(entry: Entry, *, is_revealed: bool) -> operator.LogLine:
    return operator.LogLine(
        sequence=entry.sequence,
        kind=entry.kind,
        message_id=entry.message_id,
        sender_id=entry.sender_id,
        client_message_id=entry.client_message_id,
        created_at=entry.created_at,
        content_type=entry.content_type,
        size=len(entry.content.encode()),
        attachments=len(entry.attachments) if entry.attachments is not UNSET else 0,
        reply_to=entry.reply_to or None,
        target_id=entry.target_id or None,
        edited_at=entry.edited_at or None,
        deleted=entry.deleted is True,
        content=entry.content if is_revealed else UNSET,
    )
