"""One declaration for each HTTP route.

The router, the OpenAPI document and docs/PROTOCOL.md are made from it: method, path, parameters, bodies,
answers and refusals are written nowhere else. A handler's docstring is the description that users read.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from types import UnionType
from typing import Annotated, Any, get_args

import msgspec
from msgspec import UNSET, Meta, Struct

from parley.errors import (
    BAD_REQUEST,
    IDEMPOTENCY_CONFLICT,
    INTERNAL,
    OUTCOME_UNKNOWN,
    PASSWORD_NEEDED,
    RATE_LIMITED,
    REQUEST_TIMEOUT,
    SHUTTING_DOWN,
    STORE_DAMAGED,
    STORE_UNAVAILABLE,
    TOO_LARGE,
    UNAUTHENTICATED,
    UNSUPPORTED_MEDIA,
    Refusal,
)
from parley.gateway import fields
from parley.gateway.calls import IDEMPOTENCY_HEADER, Call
from parley.model import Scope
from parley.wire import limits
from parley.wire.frames import Limit, Sequence
from parley.wire.request_body import RequestBody

JSON = "application/json"

Answer = tuple[int, Struct | None]
Handler = Callable[[Call], Awaitable[Answer]]


class Parameter(Struct, frozen=True):
    """A value in the path, the query or a header. `kind` is its type, with its limits.

    One that may be left out has an example only if a request with it gets a good answer.
    """

    name: str
    kind: Any
    description: str
    example: Any = UNSET
    default: Any = UNSET
    is_required: bool = False


class Operation(Struct, frozen=True, kw_only=True):
    """What one method of one path does: what it takes, what it answers, and who may ask.

    `answers` has the body of each good status; the first is the usual one. `refusals` are those of this
    operation; the ones that every such request can meet are added.
    """

    method: str
    path: str
    tag: str
    summary: str
    description: str
    answers: Mapping[int, Any]
    name: str
    body: type[RequestBody] | None = None
    path_parameters: tuple[Parameter, ...] = ()
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    needs: str = "token"
    media: str = JSON
    cost: int = 0
    """What it takes of the person's budget, or of the address's if it needs no session; rows that a request
    asks for come on top (`Call.limit`). 0: it is free."""

    @property
    def parameters(self) -> dict[str, list[Parameter]]:
        """By where they stand."""
        known = PATH_PARAMETERS | {one.name: one for one in self.path_parameters}
        in_path = [known[name] for name in re.findall(r"{(\w+)}", self.path)]
        headers = [*self.headers, REQUEST_ID]
        if self.is_keyed and not self.shows_secret:
            headers.insert(0, ANSWER_KEY)
        return {"path": in_path, "query": list(self.query), "header": headers}

    @property
    def is_keyed(self) -> bool:
        """Whether an `Idempotency-Key` stands for its answer: it creates what no log finds again."""
        creates = self.method == "POST" and not CREATED.isdisjoint(self.answers)
        return creates and MESSAGE_KEY not in self.headers

    @property
    def shows_secret(self) -> bool:
        """Whether an answer has a token or a secret, which the server does not keep."""
        kinds = [one for kind in self.answers.values() if kind is not None for one in alternatives(kind)]
        return any(one.name in SECRETS for kind in kinds for one in msgspec.structs.fields(kind))

    @property
    def all_refusals(self) -> list[Refusal]:
        """Its own refusals and those of every request like it."""
        found = [BAD_REQUEST, *self.refusals, INTERNAL, STORE_UNAVAILABLE, STORE_DAMAGED, SHUTTING_DOWN]
        if self.cost:
            found.append(RATE_LIMITED)
        if self.needs != "nothing":
            found.append(UNAUTHENTICATED)
        if self.body is not None:
            found += [TOO_LARGE, UNSUPPORTED_MEDIA, REQUEST_TIMEOUT]
        if self.method != "GET":
            found.append(OUTCOME_UNKNOWN)
        if self.is_keyed and not self.shows_secret:
            found.append(IDEMPOTENCY_CONFLICT)
        return found


def alternatives(kind: Any) -> tuple[Any, ...]:
    """The types of which a body is one."""
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


class Route(Operation, frozen=True, kw_only=True):
    """An operation with its handler. `hashes`: it waits for its turn to hash a password. `scope`: what an API
    token must have for it; None where no token is asked for. `without_store`: operators whom the store has
    lately confirmed are answered while it does not answer. `needs_password`: it cannot be undone, so the
    console asks for the operator's password if the last time was long ago."""

    handler: Handler
    hashes: bool = False
    scope: Scope | None = None
    without_store: bool = False
    needs_password: bool = False

    @property
    def names_external(self) -> bool:
        """Whether the `user_id` in its path is of another system."""
        return any(one.name == "user_id" for one in self.path_parameters)


class Routes:
    """Collects the routes of one part of the API, in the order of their handlers."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.declared: list[Route] = []

    def route(
        self,
        method: str,
        path: str,
        summary: str,
        answers: Mapping[int, Any],
        *,
        body: type[RequestBody] | None = None,
        path_parameters: tuple[Parameter, ...] = (),
        query: tuple[Parameter, ...] = (),
        headers: tuple[Parameter, ...] = (),
        refusals: tuple[Refusal, ...] = (),
        needs: str = "token",
        hashes: bool = False,
        cost: int = 1,
        scope: Scope | None = None,
        without_store: bool = False,
        needs_password: bool = False,
    ) -> Callable[[Handler], Handler]:
        """Declare the route of the handler below. One for a token names a scope; an operator's: `admin`."""
        if needs == "operator":
            scope = Scope.ADMIN
        if needs == "token" and scope is None:
            raise TypeError(f"{method} {path} names no scope")

        def declare(handler: Handler) -> Handler:
            declared = Route(
                method=method,
                path=path,
                tag=self.tag,
                summary=summary,
                description=inspect.getdoc(handler) or "",
                answers=answers,
                name=handler.__name__,
                body=body,
                path_parameters=path_parameters,
                query=query,
                headers=headers,
                refusals=(*refusals, PASSWORD_NEEDED) if needs_password else refusals,
                needs=needs,
                cost=cost,
                handler=handler,
                hashes=hashes,
                scope=scope,
                without_store=without_store,
                needs_password=needs_password,
            )
            self.declared.append(declared)
            return handler

        return declare


def page_parameters(what: str) -> tuple[Parameter, Parameter]:
    """The parameters of a list in pages, ordered by `user_id`."""
    after = Parameter("after", str, f"The `next_after` of the page before; the first {what} without it.")
    return after, limit_parameter(limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX)


def limit_parameter(default: int, most: int) -> Parameter:
    return Parameter(
        "limit", Limit, f"How many at most. A number above {most:,} counts as {most:,}.", default=default
    )


PATH_PARAMETERS = {
    one.name: one
    for one in (
        Parameter("chat_id", str, "The chat.", fields.CHAT_ID, is_required=True),
        Parameter("user_id", str, "The person.", fields.OTHER_ID, is_required=True),
        Parameter("session_id", str, "The session.", fields.SESSION_ID, is_required=True),
        Parameter("device_id", str, "The device, as named at login.", "phone", is_required=True),
        Parameter("sequence", Sequence, "The message's position in its chat.", 47, is_required=True),
        Parameter("dlq_id", str, "The dead letter.", fields.DLQ_ID, is_required=True),
        Parameter("job_id", str, "The job.", fields.JOB_ID, is_required=True),
        Parameter("webhook_id", str, "The webhook.", fields.WEBHOOK_ID, is_required=True),
        Parameter("token_id", str, "The token of a program.", fields.TOKEN_ID, is_required=True),
        Parameter("link_id", str, "The link.", fields.LINK_ID, is_required=True),
        Parameter("report_id", str, "The report.", fields.REPORT_ID, is_required=True),
        Parameter("token", str, "The token of the webhook.", "prl_api_0a1b2c", is_required=True),
        Parameter("attachment_id", str, "The file.", fields.ATTACHMENT_ID, is_required=True),
        Parameter("message_id", str, "The message.", fields.MESSAGE_ID, is_required=True),
        Parameter(
            "client_message_id",
            str,
            "The id that the client gave the message.",
            fields.CLIENT_MESSAGE_ID,
            is_required=True,
        ),
    )
}
CREATED = frozenset((201, 202))
SECRETS = frozenset(("access_token", "secret", "token"))
"""Fields of answers that are shown once."""
IDEMPOTENCY_KEY = Annotated[str, Meta(min_length=1, max_length=limits.IDEMPOTENCY_KEY_CHARS_MAX)]
MESSAGE_KEY = Parameter(
    IDEMPOTENCY_HEADER,
    IDEMPOTENCY_KEY,
    "Instead of `client_message_id`: the same key of the same sender in the same chat is the same message.",
)
ANSWER_KEY = Parameter(
    IDEMPOTENCY_HEADER,
    IDEMPOTENCY_KEY,
    "Makes a retry safe: for 7 days the same key with the same body gets the first answer, and nothing is"
    " done again; with another body it is refused.",
)
REQUEST_ID_CHARS_MAX = 64
REQUEST_ID = Parameter(
    "X-Request-Id",
    Annotated[str, Meta(max_length=REQUEST_ID_CHARS_MAX)],
    "A name for this request, printable ASCII. The answer and the server's log lines carry it; without one"
    " the server makes one.",
)
