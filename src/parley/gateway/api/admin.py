"""What operators do to people when something happens. All of it needs an operator's token."""

from __future__ import annotations

import msgspec

from parley.accounts.user_admin import WantedPeople
from parley.audit import WantedRecords
from parley.clock import from_iso, iso
from parley.errors import (
    BAD_REQUEST,
    BUSY,
    FORBIDDEN,
    LAST_OPERATOR,
    NO_SUCH_USER,
    NOT_FOUND,
    TOO_LARGE,
    Refused,
)
from parley.gateway import fields
from parley.gateway.calls import Call
from parley.gateway.routes import Answer, Parameter, Routes, limit_parameter, page_parameters
from parley.model import AccountState, Session, User
from parley.store.rows import ChatRetention
from parley.wire import bodies, limits, people_bodies

WRONG_ERASURE = BAD_REQUEST.because("erase must be bodies, or left out: then the messages stay")
WRONG_STATE = BAD_REQUEST.because("state is active, disabled or deleted, or left out")
USERS, USER = "/v1/admin/users", "/v1/admin/users/{user_id}"
RETENTION = "/v1/admin/chats/{chat_id}/retention"
SESSIONS, SESSION = f"{USER}/sessions", f"{USER}/sessions/{{session_id}}"
CHECK_COST = 20

ERASE = Parameter("erase", str, "`bodies` removes what the person wrote; otherwise it stays.")

routes = Routes("Operators")


@routes.route(
    "GET",
    USERS,
    "Find people",
    {200: people_bodies.UserInfoPage},
    query=(
        Parameter(
            "q",
            str,
            "A username, an id, an external id, or a part of a name; everybody without it.",
        ),
        *page_parameters("people"),
        Parameter("state", str, "`active`, `disabled` or `deleted`; all without it.", "active"),
        Parameter("operator", str, "`true` or `false`; all without it.", "false"),
        Parameter("bot", str, "`true` or `false`; all without it.", "false"),
    ),
    refusals=(FORBIDDEN,),
    needs="operator",
)
async def find_users(call: Call) -> Answer:
    """In pages. A page may be short although others follow: go on while there is a `next_after`."""
    limit = call.limit(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX)
    query, after, wanted = call.text("q"), call.text("after"), _wanted(call)
    known = await call.services.external_people.find(query) if query and not after else None
    if known is not None:
        return 200, people_bodies.UserInfoPage([user_info(known)] if wanted.takes(known) else [], None)
    page = await call.services.user_admin.find(query, after, limit, wanted)
    return 200, people_bodies.UserInfoPage(
        [user_info(user) for user in page.users], page.next_after, page.next_after
    )


@routes.route(
    "POST",
    f"{USER}/disable",
    "Disable an account",
    {200: people_bodies.UserInfo},
    refusals=(FORBIDDEN, NO_SUCH_USER, LAST_OPERATOR),
    needs="operator",
)
async def disable_user(call: Call) -> Answer:
    """From the answer on nothing that the person sends is stored. Their sessions end, their sockets close on
    every node, and they cannot log in. They stay a member of their chats. May be repeated.
    """
    return 200, user_info(await call.services.user_admin.disable(call.acting, call.path("user_id")))


@routes.route(
    "POST",
    f"{USER}/enable",
    "Enable an account again",
    {200: people_bodies.UserInfo},
    refusals=(FORBIDDEN, NO_SUCH_USER),
    needs="operator",
)
async def enable_user(call: Call) -> Answer:
    """The person may log in again. May be repeated. A deleted account stays deleted."""
    return 200, user_info(await call.services.user_admin.enable(call.acting, call.path("user_id")))


@routes.route(
    "POST",
    f"{USER}/password",
    "Set a person's password; their sessions end",
    {204: None},
    body=bodies.PasswordReset,
    refusals=(FORBIDDEN, NO_SUCH_USER, BUSY),
    needs="operator",
    hashes=True,
)
async def reset_password(call: Call) -> Answer:
    """The person logs in with it on each device again."""
    password = (await call.body(bodies.PasswordReset)).password
    await call.services.user_admin.set_password(call.acting, call.path("user_id"), password)
    return 204, None


@routes.route(
    "DELETE",
    USER,
    "Delete an account",
    {202: people_bodies.DeletedUser},
    query=(ERASE,),
    refusals=(FORBIDDEN, NO_SUCH_USER, LAST_OPERATOR),
    needs="operator",
    needs_password=True,
)
async def delete_user(call: Call) -> Answer:
    """From the answer on the account cannot be used, and its username is free. The person leaves their groups
    one by one, which the server goes on with whatever happens. Messages stay, under an author called
    `deleted`; with `erase=bodies` a job removes their contents, in every chat that is not under a legal hold.
    This cannot be undone. May be repeated.
    """
    services, user_id, wants_erasure = call.services, call.path("user_id"), erases(call)
    user = await services.user_admin.delete(call.acting, user_id)
    answer = msgspec.convert(msgspec.structs.asdict(user_info(user)), people_bodies.DeletedUser)
    if wants_erasure:
        async with services.user_admin.audited(call.acting, "user.erase", user_id, "bodies"):
            answer.job_id = await services.body_admin.begin(user_id)
    return 202, answer


@routes.route(
    "GET",
    SESSIONS,
    "A person's sessions",
    {200: bodies.UserSessionList},
    refusals=(FORBIDDEN, NO_SUCH_USER),
    needs="operator",
)
async def list_user_sessions(call: Call) -> Answer:
    """Last used first."""
    found = await call.services.user_admin.sessions(call.path("user_id"))
    return 200, bodies.UserSessionList([session_info(session) for session in found])


@routes.route(
    "DELETE",
    SESSIONS,
    "Revoke all sessions of a person",
    {204: None},
    refusals=(FORBIDDEN, NO_SUCH_USER),
    needs="operator",
)
async def end_user_sessions(call: Call) -> Answer:
    """Their tokens are refused from now on, and their sockets close at once. The person may log in again."""
    await call.services.user_admin.end_sessions(call.acting, call.path("user_id"))
    return 204, None


@routes.route(
    "DELETE",
    SESSION,
    "Revoke a session of a person",
    {204: None},
    refusals=(FORBIDDEN, NOT_FOUND),
    needs="operator",
)
async def end_user_session(call: Call) -> Answer:
    """Its token is refused from now on, and its sockets close at once."""
    session_id = call.path("session_id")
    await call.services.user_admin.end_sessions(call.acting, call.path("user_id"), session_id)
    return 204, None


@routes.route(
    "GET",
    RETENTION,
    "How long the bodies of a chat are kept",
    {200: people_bodies.RetentionChange},
    refusals=(FORBIDDEN, NOT_FOUND),
    needs="operator",
)
async def show_retention(call: Call) -> Answer:
    """What an operator has decided for this chat."""
    found = await call.services.body_admin.retention_of(call.path("chat_id"))
    return 200, people_bodies.RetentionChange(found.days, found.is_held)


@routes.route(
    "PUT",
    RETENTION,
    "Decide how long the bodies of a chat are kept, or hold them",
    {200: people_bodies.RetentionChange},
    body=people_bodies.RetentionChange,
    refusals=(FORBIDDEN, NOT_FOUND),
    needs="operator",
)
async def decide_retention(call: Call) -> Answer:
    """It replaces what was decided before. Nothing is removed by this: `parley retention apply` does that."""
    wanted = await call.body(people_bodies.RetentionChange)
    chat_id = call.path("chat_id")
    detail = f"days={'default' if wanted.days is None else wanted.days} held={wanted.is_held}"
    async with call.services.user_admin.audited(call.acting, "retention.set", chat_id, detail):
        decided = ChatRetention(days=wanted.days, is_held=wanted.is_held)
        await call.services.body_admin.decide(chat_id, decided)
    return 200, wanted


@routes.route(
    "GET",
    "/v1/admin/audit",
    "What operators did, newest first",
    {200: bodies.AuditList},
    query=(
        Parameter("actor", str, "Of this operator, or command line, as a record names them.", "cli:root"),
        Parameter("action", str, "With this action, such as `user.disable`.", "user.disable"),
        Parameter("target", str, "About this.", fields.OTHER_ID),
        Parameter("since", str, "At this time or later.", fields.TIME),
        Parameter("until", str, "Before this time.", fields.TIME),
        Parameter("before", str, "The `next` of the page before; the newest without it."),
        limit_parameter(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX),
    ),
    refusals=(FORBIDDEN,),
    needs="operator",
)
async def list_audit(call: Call) -> Answer:
    """Every action of these routes that changes something or shows messages, and those of commands. An action
    is recorded before it begins and gets its outcome when it ends; `begun` stays if the server died. A page
    may be short although others follow: go on while there is a `next`.
    """
    limit = call.limit(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX)
    try:
        wanted = WantedRecords(
            actor=call.text("actor"),
            action=call.text("action"),
            target=call.text("target"),
            since=iso(from_iso(call.text("since"))) if call.text("since") else "",
            until=iso(from_iso(call.text("until"))) if call.text("until") else "",
        )
    except (ValueError, OverflowError) as error:
        raise Refused(BAD_REQUEST.because(f"since or until is no time: {error}")) from error
    found = await call.services.user_admin.records(call.text("before"), limit, wanted)
    return 200, bodies.AuditList(found.records, found.next_before)


@routes.route(
    "GET",
    "/v1/admin/chats/{chat_id}/check",
    "Check the invariants of a chat",
    {200: bodies.ChatCheck},
    refusals=(FORBIDDEN, NOT_FOUND, BUSY, TOO_LARGE),
    needs="operator",
    cost=CHECK_COST,
)
async def check_chat(call: Call) -> Answer:
    """As `parley check CHAT` does it: the log, its voids and hashes, also in the cold tier, the members, the
    positions of devices. It changes nothing. One check runs at a time. One that takes longer than 4 seconds
    is refused as `too_large`: only the command can do it.
    """
    chat_id = call.path("chat_id")
    found = await call.services.check_chat(chat_id)
    if not found.chats:
        raise Refused(NOT_FOUND)
    return 200, bodies.ChatCheck(
        chat_id=chat_id,
        ok=found.is_clean,
        entries=found.entries,
        voids=found.voids,
        open_allocations=found.open_allocations,
        invariants=found.counted,
        breaches=[
            bodies.InvariantBreach(one.invariant, one.says, one.remedy, one.sequence)
            for one in found.breaches
        ],
        breaches_not_listed=found.counts.total() - len(found.breaches),
    )


def _wanted(call: Call) -> WantedPeople:
    state = call.text("state")
    if state and state not in list(AccountState):
        raise Refused(WRONG_STATE)
    return WantedPeople(AccountState(state) if state else None, _flag(call, "operator"), _flag(call, "bot"))


def _flag(call: Call, name: str) -> bool | None:
    given = call.text(name)
    if given not in ("", "true", "false"):
        raise Refused(BAD_REQUEST.because(f"{name} is true or false, or left out"))
    return given == "true" if given else None


def erases(call: Call) -> bool:
    """Whether a deletion also removes what the person wrote."""
    if "erase" not in call.request.query:
        return False
    if call.text("erase") != "bodies":
        raise Refused(WRONG_ERASURE)
    return True


def session_info(session: Session) -> bodies.UserSession:
    return bodies.UserSession(
        session_id=session.session_id,
        device_id=session.device_id,
        device_name=session.device_name,
        created_at=iso(session.created_at_ms),
        last_used_at=iso(session.last_used_at_ms),
        expires_at=iso(session.expires_at_ms),
    )


def user_info(user: User) -> people_bodies.UserInfo:
    return people_bodies.UserInfo(
        user_id=user.user_id,
        username=user.username,
        display_name=user.display_name,
        state=user.state,
        is_operator=user.is_operator,
        created_at=user.created_at,
        last_seen=user.last_seen,
        is_bot=user.is_bot,
        external_id=user.external_id or None,
    )
