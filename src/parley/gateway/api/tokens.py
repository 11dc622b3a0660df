"""Tokens of programs, and messages by incoming webhooks."""

from __future__ import annotations

from msgspec import UNSET

from parley.accounts.api_tokens import NO_SUCH_TOKEN
from parley.clock import iso
from parley.errors import (
    BLOCKED,
    DUPLICATE_ID,
    FORBIDDEN,
    NO_SUCH_USER,
    NOT_A_MEMBER,
    UNAUTHENTICATED,
    Refused,
)
from parley.gateway.api.chats import APPENDS, POSTS
from parley.gateway.api.messages import send
from parley.gateway.calls import Call
from parley.gateway.routes import MESSAGE_KEY, Answer, Routes
from parley.model import ApiToken, Scope
from parley.wire import identity_bodies as bodies
from parley.wire.frames import Receipt

TOKENS, TOKEN = "/v1/admin/tokens", "/v1/admin/tokens/{token_id}"
NO_HOOK = UNAUTHENTICATED.because("this is not the address of a webhook")

routes = Routes("Operators")
hook_routes = Routes("Messages")


@routes.route(
    "GET",
    TOKENS,
    "The tokens of programs",
    {200: bodies.ApiTokenList},
    refusals=(FORBIDDEN,),
    needs="operator",
)
async def list_api_tokens(call: Call) -> Answer:
    """Without the tokens themselves: the server has only their hashes. The oldest first; `last_used_at` is
    right to a minute.
    """
    return 200, bodies.ApiTokenList([_info(token) for token in await call.services.api_tokens.all()])


@routes.route(
    "POST",
    TOKENS,
    "Make a token for a program",
    {201: bodies.ApiTokenMade},
    body=bodies.NewApiToken,
    refusals=(FORBIDDEN, NO_SUCH_USER, NOT_A_MEMBER),
    needs="operator",
)
async def make_api_token(call: Call) -> Answer:
    """The token is shown this once. It may do what its account may, within its scopes: `read` looks, `send`
    sends messages and creates chats, `admin` uses these routes and changes everything else. With a `chat_id`
    it is for that chat alone, and `POST /v1/hooks/{token}` posts to it. It is refused while the account that
    made it is disabled, and gone when that is deleted; so it is with whoever made the token of this request.
    """
    wanted, services = await call.body(bodies.NewApiToken), call.services
    user_id = wanted.user_id or call.user_id
    detail = f"name={wanted.name} scopes={','.join(wanted.scopes)} chat={wanted.chat_id}"
    async with services.user_admin.audited(call.acting, "token.make", user_id, detail):
        token, kept = await services.api_tokens.make(
            user_id, wanted.name, wanted.scopes, wanted.chat_id, wanted.expires_in_days, makers_of(call)
        )
    info = _info(kept)
    return 201, bodies.ApiTokenMade(
        token=token,
        token_id=info.token_id,
        name=info.name,
        user_id=info.user_id,
        scopes=info.scopes,
        created_at=info.created_at,
        last_used_at=info.last_used_at,
        expires_at=info.expires_at,
        chat_id=info.chat_id,
        created_by=info.created_by,
    )


@routes.route(
    "DELETE",
    TOKEN,
    "Revoke a token of a program",
    {204: None},
    refusals=(FORBIDDEN, NO_SUCH_TOKEN),
    needs="operator",
)
async def revoke_api_token(call: Call) -> Answer:
    """It is refused from now on, and its sockets close at once."""
    token_id = call.path("token_id")
    async with call.services.user_admin.audited(call.acting, "token.revoke", token_id):
        await call.services.api_tokens.revoke(token_id)
    return 204, None


@hook_routes.route(
    "POST",
    "/v1/hooks/{token}",
    "Post by an incoming webhook",
    {201: Receipt, 200: Receipt},
    body=bodies.HookMessage,
    headers=(MESSAGE_KEY,),
    refusals=(UNAUTHENTICATED, FORBIDDEN, BLOCKED, DUPLICATE_ID, *POSTS, *APPENDS),
    needs="nothing",
    scope=Scope.SEND,
)
async def post_by_hook(call: Call) -> Answer:
    """For programs that can only post `{"text": …}` to an address. The token must be bound to one chat and
    have the scope `send`: `parley token NAME --api --scopes send --chat CHAT`. Whoever knows the address can
    post, so keep it as you keep a password.
    """
    access = await call.services.sign_in.authenticate(call.path("token"))
    if not access.chat_id:
        raise Refused(NO_HOOK)
    refusal = access.refusal(Scope.SEND, access.chat_id)
    if refusal is not None:
        raise Refused(refusal)
    wanted = await call.body(bodies.HookMessage)
    return await send(call, access.session.user_id, access.chat_id, wanted.text)


def makers_of(call: Call) -> list[str]:
    """Who makes something with this token: its account, and whoever made the token."""
    return [call.user_id, *(call.access.makers if call.access is not None else ())]


def _info(token: ApiToken) -> bodies.ApiTokenInfo:
    return bodies.ApiTokenInfo(
        token_id=token.token_id,
        name=token.name,
        user_id=token.user_id,
        scopes=list(token.scopes),
        created_at=iso(token.created_at_ms),
        last_used_at=iso(token.last_used_at_ms) if token.last_used_at_ms else None,
        expires_at=iso(token.expires_at_ms) if token.expires_at_ms else None,
        chat_id=token.chat_id or UNSET,
        created_by=token.makers[0] if token.makers else None,
    )
