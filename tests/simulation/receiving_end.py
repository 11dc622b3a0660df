"""Somebody who is never connected, with a phone and a browser that ring, and the webhook of an integrator.

    async with receiving_end(cluster, session) as end:
        chat_id = await http.of(ann).create_group(end.person)
        ...faults...
        assert not await end.breaches(logs_of(history))

The phone is rung by a webhook, which has no word for silence: its app shows each event id once, as
docs/push.md says. The browser is rung by Web Push, and makes a sound unless it is told not to.

To wait until every worker that died is replaced takes up to 40 s a run. So in `make test` only the runs that
say `rings=True` have devices and a webhook; in the others the person is a member like others, and has none.
In `make simulate` all have them.
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import msgspec
from aiohttp import ClientSession, web

from tests.harness.clients import PASSWORD, HttpClient, Person, Unexpected
from tests.harness.cluster import ClusterProcess
from tests.harness.deliveries import (
    ArrivedDelivery,
    ArrivedRing,
    DeliveryBreach,
    Logs,
    check_deliveries,
    undelivered,
    unrung,
)
from tests.harness.events import Stored
from tests.harness.history import History
from tests.harness.tables import tables_of
from tests.integration.cli.running import parley
from tests.integration.gateway.test_webhook_channel import Receiver, receiving
from tests.integration.push.test_webpush import Browser
from tests.seeds import IS_VARIED
from tests.waiting import eventually

PHONE, BROWSER, WEBHOOK = "phone", "browser", "webhook"
ANSWER_SECONDS = 1.0
"""How long a ring takes, so that faults find some under way."""
LOOK_SECONDS = 0.2
SETTLED_SECONDS_MAX = 90.0
"""The claim of a dead worker (30 s), a look at queues that nobody runs (10 s), and what came meanwhile."""
POISON = "poison"
"""Two processes died over it: the faults of a run may hit the same message twice."""


class ReceivingEnd(Receiver):
    """`person` is a member of the chats, and is in front of no device."""

    def __init__(self, cluster: ClusterProcess, session: ClientSession, *, rings: bool) -> None:
        super().__init__()
        self._cluster = cluster
        self._has_devices = rings or IS_VARIED
        self._http = HttpClient(session, next(iter(cluster)).url)
        self._operator = self._http
        self._browser = Browser()
        self._webhook_id = ""
        self.person: Person
        self.deliveries: list[ArrivedDelivery] = []
        self.rings: dict[str, list[ArrivedRing]] = {PHONE: [], BROWSER: []}

    async def take(self, request: web.Request) -> web.Response:
        body, place = await request.read(), request.path.strip("/")
        if place == WEBHOOK:
            event = msgspec.json.decode(body)
            message_id = event["data"]["message_id"]
            self.deliveries.append(ArrivedDelivery(event["chat_id"], message_id, event["event_id"]))
            return web.Response()
        if place == PHONE:
            event = msgspec.json.decode(body)
            known = {ring.event_id for ring in self.rings[PHONE]}
            self._ring(PHONE, event, is_silent=event["event_id"] in known)
        else:
            event = msgspec.json.decode(self._browser.decrypt(body))
            self._ring(BROWSER, event, is_silent=event["repeated"], collapse_id=event["tag"])
        await asyncio.sleep(ANSWER_SECONDS)
        return web.Response()

    def _ring(self, device_id: str, event: dict[str, str], *, is_silent: bool, collapse_id: str = "") -> None:
        names = event["chat_id"], event["message_id"], event["event_id"]
        self.rings[device_id].append(ArrivedRing(device_id, *names, is_silent, collapse_id))

    # Before anybody says anything

    async def settle_in(self) -> None:
        """An account, its devices, and the webhook."""
        name = uuid.uuid4().hex[:8]
        self.person = await self._http.newcomer(f"away.{name}", PHONE)
        if not self._has_devices:
            return
        await self._http.login(self.person.username, BROWSER)
        keys = self._browser.device("")
        subscription = {
            "endpoint": self._url(BROWSER),
            "keys": {"p256dh": keys.public_key, "auth": keys.auth},
        }
        mine = self._http.of(self.person)
        await _put(mine, PHONE, {"provider": "webhook", "token": self._url(PHONE)})
        await _put(mine, BROWSER, {"provider": "webpush", "subscription": subscription})
        self._operator = await self._new_operator(f"operator.{name}")
        hook = {"url": self._url(WEBHOOK), "events": ["message.created"]}
        answer = await self._operator.post("/v1/admin/webhooks", hook)
        if answer.status != 201:
            raise Unexpected(str(answer))
        self._webhook_id = answer.body["webhook_id"]

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"

    async def _new_operator(self, username: str) -> HttpClient:
        added = await asyncio.to_thread(
            lambda: parley(
                *("user", "add", username, "--operator", "--password-stdin"),
                given=PASSWORD,
                environment=self._cluster.environment,
            )
        )
        assert added.status == 0, added.stderr
        return self._http.of(await self._http.login(username))

    async def leave(self) -> None:
        """Others who use the same nodes are not to wait for what cannot be delivered any more."""
        if not self._webhook_id:
            return
        answer = await self._operator.delete(f"/v1/admin/webhooks/{self._webhook_id}")
        if answer.status != 204:
            raise Unexpected(str(answer))

    # When all is said

    async def breaches(self, logs: Logs) -> list[str]:
        """Wait until nothing is owed any more, or nothing came for too long. `logs`: what the store holds."""
        if not self._webhook_id:
            return []
        async with tables_of(self._cluster.environment) as tables:

            async def is_settled() -> bool:
                await asyncio.sleep(LOOK_SECONDS)
                return await self._has_all(logs) and not await tables.queues()

            arrived = -1
            while arrived < self._arrived:  # a busy machine is slow, but it goes on
                arrived = self._arrived
                with contextlib.suppress(TimeoutError):
                    await eventually(is_settled, SETTLED_SECONDS_MAX)
                    break
            left = [f"a queue is left: {queue}" for queue in await tables.queues()]
        dead = await self._dead_letters()
        poison = {message_id for message_id, error in dead.items() if error.startswith(POISON)}
        found = check_deliveries(logs, self.deliveries, self.rings, poison)
        dead_letters = [
            f"a dead letter: {name}, {error}" for name, error in dead.items() if name not in poison
        ]
        return [*map(str, found), *left, *dead_letters]

    @property
    def _arrived(self) -> int:
        return len(self.deliveries) + sum(map(len, self.rings.values()))

    def write(self, path: Path) -> None:
        """One JSON object per line: each device's rings, then the deliveries, in the order of arrival."""
        rings = [ring for rung in self.rings.values() for ring in rung]
        path.write_bytes(msgspec.json.Encoder().encode_lines([*rings, *self.deliveries]))

    async def _has_all(self, logs: Logs) -> bool:
        return not self._owed(logs) or not self._owed(logs, await self._dead_letters())

    def _owed(self, logs: Logs, given_up: Collection[str] = ()) -> list[DeliveryBreach]:
        owed = [*undelivered(logs, self.deliveries, given_up)]
        for device_id, rings in self.rings.items():
            owed += unrung(logs, device_id, rings, given_up)
        return owed

    async def _dead_letters(self) -> dict[str, str]:
        """The messages that were given up, and why."""
        answer = await self._operator.get("/v1/admin/dlq", limit=200)
        if answer.status != 200:
            raise Unexpected(str(answer))
        return {
            record["original_message"]["msg_id"]: f"{record['error']}: {record['error_detail']}"
            for record in answer.body["records"]
        }


@contextlib.asynccontextmanager
async def receiving_end(
    cluster: ClusterProcess, session: ClientSession, *, rings: bool = False
) -> AsyncIterator[ReceivingEnd]:
    """It listens until the end of the block."""
    end = ReceivingEnd(cluster, session, rings=rings)
    async with receiving(end):
        await end.settle_in()
        yield end
        await end.leave()


async def _put(http: HttpClient, device_id: str, body: object) -> None:
    answer = await http.put(f"/v1/me/push/{device_id}", body)
    if answer.status != 200:
        raise Unexpected(str(answer))


def logs_of(history: History) -> dict[str, list[str]]:
    """The messages that the store holds, by chat. What happened to members has no client id."""
    stored = [event for event in history.events if isinstance(event, Stored) and event.client_message_id]
    logs: dict[str, list[str]] = {event.chat_id: [] for event in stored}
    for event in sorted(stored, key=lambda entry: entry.sequence):
        logs[event.chat_id].append(event.message_id)
    return logs
