"""What `Idempotency-Key` does for a request that creates something: once carried out, it is only answered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from parley.core.idempotency import body_digest
from parley.errors import BAD_REQUEST, OUTCOME_UNKNOWN, Refused, StoreError
from parley.gateway.answered_requests import AnsweredRequests
from parley.gateway.calls import Call, address_of
from parley.gateway.client_ids import ServerSecret
from parley.gateway.routes import JSON, Answer, Route

LOOK_SECONDS = 0.1
WAIT_SECONDS_LEFT = 1.0
SHOWN_ONCE = BAD_REQUEST.because(
    "Idempotency-Key does not count here: the answer has a secret that is shown once and not kept. After an"
    " answer that was lost, look at the list, and remove what you have no secret for"
)
UNDER_WAY = OUTCOME_UNKNOWN.because("the first request with this key is still under way; retry it as it is")


class RepeatedRequests:
    def __init__(self, requests: AnsweredRequests, secret: ServerSecret) -> None:
        self._requests = requests
        self._secret = secret

    async def answer(
        self, route: Route, call: Call, perform: Callable[[], Awaitable[Answer]]
    ) -> web.Response:
        """The answer of the first request with this key; by performing it, if this is the first."""
        if route.shows_secret:
            raise Refused(SHOWN_ONCE)
        secret, key = await self._secret.get(), call.idempotency_key
        user_id = call.session.user_id if call.session is not None else ""
        caller = user_id or f"address {address_of(call.request, call.services)}"
        request_id = secret.digest("request", caller, route.method, call.request.path_qs, key).hex()
        digest = body_digest(await call.raw_body(), key, secret)
        while True:
            record, is_first = await self._requests.begin(request_id, digest, user_id)
            if is_first or record.status:
                break
            if call.seconds_left < WAIT_SECONDS_LEFT:
                raise Refused(UNDER_WAY)
            await asyncio.sleep(LOOK_SECONDS)
        if not is_first:
            return _response(record.status, record.answer)
        call.record = record
        try:
            status, body = await perform()
        except Refused as error:
            await (self._requests.given_up if error.refusal.temporary else self._requests.refused)(record)
            raise
        except StoreError:
            await self._requests.given_up(record)
            raise
        answer = msgspec.json.encode(body).decode() if body is not None else ""
        with contextlib.suppress(StoreError):  # it is done: a retry finds what it has created
            await self._requests.answered(record, status, answer)
        return _response(status, answer)


def _response(status: int, answer: str) -> web.Response:
    if not answer:
        return web.Response(status=status)
    return web.Response(status=status, body=answer.encode(), content_type=JSON)
