"""What operators do with dead letters and webhooks, each action recorded before it begins."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from parley import ids
from parley.audit import OperatorCall
from parley.clock import Clock, iso
from parley.core.client_address import Network
from parley.core.deliveries import (
    DeadLetter,
    DeadLetterStatus,
    DeliveryEvent,
    DeliveryQueue,
    Selection,
    Webhook,
)
from parley.core.recipient_health import RecipientHealth
from parley.core.retry import DeliveryFailure
from parley.core.safe_addresses import url_problem
from parley.delivery import tallies
from parley.delivery.guarded_http import GuardedHttp
from parley.delivery.ports import Source
from parley.delivery.recipients import RECIPIENTS_MAX
from parley.delivery.tallies import DISCARD, REPLAY, JobTally, Tallies
from parley.delivery.webhooks import TEST_EVENT, WebhookEvent, send_event
from parley.errors import BAD_REQUEST, NOT_FOUND, PREVIEW_OUTDATED, Refused
from parley.records.book import Book
from parley.records.dead_letters import PENDING_ONLY
from parley.records.deliveries import DeliveryRecords
from parley.wire import bodies
from parley.wire.codec import decode_entry

SECRET_BYTES = 32
SECRET_PREFIX = "whs_"
WEBHOOKS_MAX = 100
QUEUES_COUNTED_MAX = 1_000
"""Chats of a webhook whose waiting events are counted: more are not looked for."""
EVER = 2**62
READ = "dlq.read"
"""In the audit log: an operator saw dead letters with their messages."""
NO_FEED = BAD_REQUEST.because(
    "a webhook needs a feed of all chats: set kafka.brokers, which a store that nodes share needs for it"
)
NOT_A_PREVIEW = BAD_REQUEST.because("token is none of a preview")
NO_SUCH_DEAD_LETTER = NOT_FOUND.because("there is no such dead letter; they are kept for 30 days")
NO_SUCH_WEBHOOK = NOT_FOUND.because("there is no such webhook")
TOO_MANY = BAD_REQUEST.because(f"there are {WEBHOOKS_MAX} webhooks; remove one first")

Audited = Callable[..., AbstractAsyncContextManager[None]]
"""As `UserAdmin.audited`."""


class FoundDeadLetters(Struct):
    """A page of dead letters, and how many match, by error."""

    counts: dict[str, int]
    dead_letters: list[DeadLetter]


class ReplayProgress(Struct):
    """How far a job is."""

    waiting: int
    replayed: int
    failed: int


class Preview(Struct, frozen=True):
    """What a replay or a discard would concern. All but the token is about those that are pending."""

    matched: int
    token: str
    at_ms: int
    chats: int
    oldest_ms: int | None


class PreviewToken(Struct, frozen=True):
    """What a token holds: no secret, and nothing that an operator could not ask for."""

    selection: Selection
    digest: str


class Chosen(Struct, frozen=True):
    """What is replayed or discarded. `only`: no dead letter but these; None: whatever is selected."""

    selection: Selection
    only: frozenset[str] | None


class DeliveryAdmin:
    """`has_feed`: whether workers can learn what happens in chats. Without that, webhooks are refused."""

    def __init__(
        self,
        *,
        store: DeliveryRecords,
        failing: Book[RecipientHealth],
        source: Source,
        audited: Audited,
        allowed: Sequence[Network],
        clock: Clock,
        make_ids: ids.Ids,
        has_feed: bool = True,
        random_text: Callable[[int], str] = secrets.token_urlsafe,
    ) -> None:
        self._store = store
        self._failing = failing
        self._source = source
        self._audited = audited
        self._allowed = allowed
        self._clock = clock
        self._ids = make_ids
        self._has_feed = has_feed
        self._random_text = random_text

    # Dead letters

    async def dead_letters(self, selection: Selection, before_id: str, limit: int) -> FoundDeadLetters:
        dead = self._store.dead_letters
        return FoundDeadLetters(await dead.count(selection), await dead.find(selection, before_id, limit))

    async def tally(self, selection: Selection) -> Tallies:
        """How many, by error, hour and recipient."""
        return await tallies.tally(self._store.dead_letters, selection)

    async def jobs(self) -> list[JobTally]:
        """Replays and discards of which dead letters are left, the newest first."""
        return await tallies.jobs(self._store.dead_letters)

    async def pending_count(self) -> int:
        return sum((await self._store.dead_letters.count(PENDING_ONLY)).values())

    async def dead_letter(self, dlq_id: str) -> DeadLetter:
        found = await self._store.dead_letters.find(Selection(ids=(dlq_id,)), "", 1)
        if not found:
            raise Refused(NO_SUCH_DEAD_LETTER)
        return found[0]

    async def content(self, dead_letter: DeadLetter) -> str | None:
        """What the message says, from the log; None if it cannot be read there."""
        wires, _ = await self._source.read(dead_letter.chat_id, dead_letter.sequence - 1, 1)
        try:
            return decode_entry(wires[dead_letter.sequence]).content
        except (KeyError, msgspec.DecodeError):
            return None

    async def matching(self, selection: Selection, action: str) -> int:
        """How many an action would concern."""
        wanted = replace(selection, status=DeadLetterStatus.PENDING)
        if action == REPLAY:
            wanted = replace(wanted, is_queued=False)
        is_other = selection.status not in (None, DeadLetterStatus.PENDING)
        return 0 if is_other else sum((await self._store.dead_letters.count(wanted)).values())

    async def preview(self, selection: Selection) -> Preview:
        """Which dead letters match now. With its token these are replayed or discarded, and no newer one."""
        now_ms = self._clock()
        fixed = _before(selection, now_ms)
        found = await self._store.dead_letters.snapshot(fixed)
        named = msgspec.json.encode({"selection": _given(fixed), "digest": found.digest})
        token = base64.urlsafe_b64encode(named).decode()
        return Preview(found.pending, token, now_ms, found.chats, found.oldest_ms)

    async def previewed(self, token: str) -> Chosen:
        """What a preview showed. Refused if other dead letters match now: one that was written late, say."""
        try:
            wanted = msgspec.json.decode(base64.urlsafe_b64decode(token.encode()), type=PreviewToken)
        except (ValueError, msgspec.DecodeError) as error:
            raise Refused(NOT_A_PREVIEW) from error
        found = await self._store.dead_letters.snapshot(wanted.selection)
        if found.digest != wanted.digest:
            raise Refused(PREVIEW_OUTDATED)
        return Chosen(wanted.selection, found.ids)

    async def replay(self, call: OperatorCall, selection: Selection | Chosen) -> tuple[int, str]:
        """Queue them; a running server delivers them. Returns how many, and the job."""
        chosen = _chosen(selection)
        dead, now_ms = self._store.dead_letters, self._clock()
        job_id = self._ids.next(ids.JOB, now_ms)
        async with self._audited(call, "dlq.replay", job_id, told(chosen.selection)):
            event = DeliveryEvent(now_ms, REPLAY, actor=call.actor)
            return await dead.queue(chosen.selection, job_id, event, chosen.only), job_id

    async def discard(
        self, call: OperatorCall, selection: Selection | Chosen, reason: str
    ) -> tuple[int, str]:
        """Give them up for good. Returns how many, and the job."""
        chosen = _chosen(selection)
        dead, now_ms = self._store.dead_letters, self._clock()
        job_id = self._ids.next(ids.JOB, now_ms)
        async with self._audited(call, "dlq.discard", job_id, f"{reason} {told(chosen.selection)}"):
            event = DeliveryEvent(now_ms, DISCARD, detail=reason, actor=call.actor)
            return await dead.discard(chosen.selection, job_id, event, chosen.only), job_id

    async def progress(self, job_id: str) -> ReplayProgress:
        dead = self._store.dead_letters

        async def count(selection: Selection) -> int:
            return sum((await dead.count(selection)).values())

        everything = await count(Selection(job_id=job_id))
        if not everything:
            raise Refused(NOT_FOUND.because("there is no such job, or nothing is left of it"))
        waiting = await count(Selection(job_id=job_id, is_queued=True))
        replayed = await count(Selection(job_id=job_id, status=DeadLetterStatus.REPLAYED))
        return ReplayProgress(waiting, replayed, everything - waiting - replayed)

    # Webhooks

    async def webhooks(self) -> list[Webhook]:
        return await self._store.webhooks.all()

    async def waiting(self, webhook_id: str) -> list[DeliveryQueue]:
        """What the webhook is owed, by chat: of so many chats at most."""
        return await self._store.queues.due(webhook_id, EVER, QUEUES_COUNTED_MAX)

    async def failing_webhooks(self) -> dict[str, RecipientHealth]:
        """Those that do not answer, by id."""
        return {health.recipient: health for health in await self._failing.page("", RECIPIENTS_MAX)}

    async def add_webhook(
        self, call: OperatorCall, url: str, events: Sequence[str], chat_id: str = ""
    ) -> Webhook:
        """The secret is made here, and never shown again."""
        hooks, now_ms = self._store.webhooks, self._clock()
        if not self._has_feed:
            raise Refused(NO_FEED)
        problem = url_problem(url, self._allowed)
        if problem is not None:
            raise Refused(BAD_REQUEST.because(problem))
        if len(await hooks.all()) >= WEBHOOKS_MAX:
            raise Refused(TOO_MANY)
        hook = Webhook(
            webhook_id=self._ids.next(ids.WEBHOOK, now_ms),
            url=url,
            events=tuple(events),
            secret=SECRET_PREFIX + self._random_text(SECRET_BYTES),
            created_ms=now_ms,
            chat_id=chat_id,
        )
        async with self._audited(call, "webhook.add", hook.webhook_id, url):
            await hooks.add(hook)
        return hook

    async def pause_webhook(self, call: OperatorCall, webhook_id: str, *, is_paused: bool) -> Webhook:
        """Send nothing to it; what it is owed waits, as for one that does not answer. Or go on."""
        action = "webhook.pause" if is_paused else "webhook.resume"
        async with self._audited(call, action, webhook_id):
            return await self._change(webhook_id, lambda hook: replace(hook, is_paused=is_paused))

    async def new_secret(self, call: OperatorCall, webhook_id: str) -> Webhook:
        """Whatever is sent from now on is signed with a new secret, which is never shown again."""
        secret = SECRET_PREFIX + self._random_text(SECRET_BYTES)
        async with self._audited(call, "webhook.secret", webhook_id):
            return await self._change(webhook_id, lambda hook: replace(hook, secret=secret))

    async def test_webhook(self, call: OperatorCall, webhook_id: str) -> DeliveryFailure | None:
        """Send it an event now, once, also if it is paused; None if it has arrived."""
        async with self._audited(call, "webhook.test", webhook_id):
            hook, now_ms = await self._hook(webhook_id), self._clock()
            event_id = self._ids.next(ids.EVENT, now_ms)
            event = WebhookEvent(event_id, TEST_EVENT, iso(now_ms), hook.chat_id or None, Raw(b"{}"))
            http = GuardedHttp(self._allowed)
            try:
                return await send_event(hook, http, event, now_ms)
            finally:
                await http.close()

    async def _hook(self, webhook_id: str) -> Webhook:
        hook = await self._store.webhooks.get(webhook_id)
        if hook is None:
            raise Refused(NO_SUCH_WEBHOOK)
        return hook

    async def _change(self, webhook_id: str, change: Callable[[Webhook], Webhook]) -> Webhook:
        while True:
            before = await self._hook(webhook_id)
            after = change(before)
            if before == after or await self._store.webhooks.swap(before, after):
                return after

    async def remove_webhook(self, call: OperatorCall, webhook_id: str) -> None:
        """Nothing more is sent to it; its dead letters stay until they expire."""
        store = self._store
        async with self._audited(call, "webhook.remove", webhook_id):
            if not await store.webhooks.remove(webhook_id):
                raise Refused(NO_SUCH_WEBHOOK)
            await store.queues.forget(webhook_id)
            await self._failing.remove(webhook_id)


def _before(selection: Selection, now_ms: int) -> Selection:
    """Of dead letters of any status: what becomes of one meanwhile does not make it another."""
    if selection.status not in (None, DeadLetterStatus.PENDING):
        return Selection(ids=())
    before_ms = now_ms if selection.before_ms is None else min(selection.before_ms, now_ms)
    return replace(selection, status=None, before_ms=before_ms)


def _chosen(selection: Selection | Chosen) -> Chosen:
    return selection if isinstance(selection, Chosen) else Chosen(selection, None)


def webhook_info(
    hook: Webhook, health: RecipientHealth | None, queues: Sequence[DeliveryQueue] = (), arrived_ms: int = 0
) -> bodies.WebhookInfo:
    """As operators see it. `health`: None if it answers. `arrived_ms`: when something last arrived."""
    info = bodies.WebhookInfo(
        hook.webhook_id, hook.url, list(hook.events), hook.chat_id or None, iso(hook.created_ms)
    )
    info.paused = hook.is_paused
    info.waiting = sum(queue.target - queue.next_sequence + 1 for queue in queues)
    info.waiting_chats = len(queues)
    info.last_success_at = iso(arrived_ms) if arrived_ms else None
    if health is not None:
        info.state = "paused" if health.is_paused else "failing"
        info.failing_since = iso(health.failing_since_ms)
        info.paused_until = iso(health.paused_until_ms) if health.is_paused else None
        info.last_error, info.last_error_detail = health.error, health.detail
    return info


def told(selection: Selection) -> str:
    """For the audit log: the conditions that were given."""
    return msgspec.json.encode(_given(selection)).decode()


def _given(selection: Selection) -> dict[str, object]:
    given = {name: getattr(selection, name) for name in selection.__struct_fields__}
    return {name: value for name, value in given.items() if value is not None}
