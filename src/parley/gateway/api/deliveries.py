"""Dead letters and webhooks. All of it needs an operator's token."""

from __future__ import annotations

from parley.clock import MS_PER_HOUR, from_iso, iso
from parley.concurrency import map_concurrently
from parley.core.deliveries import DeadLetter, DeadLetterStatus, Selection
from parley.core.node_questions import StateQuestion
from parley.delivery.admin import READ, Chosen, told, webhook_info
from parley.delivery.tallies import DISCARD, REPLAY
from parley.errors import BAD_REQUEST, FORBIDDEN, NOT_FOUND, PASSWORD_NEEDED, PREVIEW_OUTDATED, Refused
from parley.gateway.calls import Call
from parley.gateway.routes import Answer, Parameter, Routes, limit_parameter
from parley.wire import bodies, limits, operator_bodies

DLQ, WEBHOOKS = "/v1/admin/dlq", "/v1/admin/webhooks"
LOOKS_AT_ONCE_MAX = 8
DEAD_LETTERS_PER_PAGE_MAX = 200
"""Each one's content is read from the log."""
UNCLEAR = BAD_REQUEST.because("name either ids or a filter, which may be empty")
TOKEN_ALONE = BAD_REQUEST.because("a token stands alone: it names what its preview showed")

CONDITIONS = (
    Parameter("status", str, "`pending`, `replayed` or `permanently_failed`."),
    Parameter("error", str, "With this error."),
    Parameter("topic", str, "From this queue."),
    Parameter("chat_id", str, "Of this chat."),
    Parameter("recipient", str, "For this webhook."),
    Parameter("after", str, "Became a dead letter at this time or later."),
    Parameter("before", str, "Became a dead letter before this time."),
)

routes = Routes("Operators")


@routes.route(
    "GET",
    DLQ,
    "Dead letters, and how many by error",
    {200: bodies.DeadLetterPage},
    query=(
        *CONDITIONS,
        Parameter("page", str, "The `next` of the page before."),
        Parameter("brief", bool, "Without what the messages say; then it is not audited.", default=False),
        limit_parameter(limits.PAGE_ENTRIES_DEFAULT, DEAD_LETTERS_PER_PAGE_MAX),
    ),
    refusals=(FORBIDDEN,),
    needs="operator",
)
async def list_dead_letters(call: Call) -> Answer:
    """Messages that could not be delivered, the newest first. Kept for 30 days after their last change."""
    limit = call.limit(limits.PAGE_ENTRIES_DEFAULT, DEAD_LETTERS_PER_PAGE_MAX)
    selection = _conditions(call)
    page = await call.services.deliveries.dead_letters(selection, call.text("page"), limit)
    if call.flag("brief"):
        records = [_told(dead_letter, None) for dead_letter in page.dead_letters]
    else:
        async with call.services.user_admin.audited(call.acting, READ, "", told(selection)):
            records = [await _info(call, dead_letter) for dead_letter in page.dead_letters]
    groups = sorted(page.counts.items(), key=lambda item: (-item[1], item[0]))
    return 200, bodies.DeadLetterPage(
        total=sum(page.counts.values()),
        groups=[bodies.DeadLetterGroup(error, count) for error, count in groups],
        records=records,
        next=page.dead_letters[-1].dlq_id if len(page.dead_letters) == limit else None,
    )


@routes.route(
    "GET",
    f"{DLQ}/summary",
    "How many dead letters, by error, hour and recipient",
    {200: operator_bodies.DeadLetterSummary},
    query=CONDITIONS,
    refusals=(FORBIDDEN,),
    needs="operator",
)
async def summarize_dead_letters(call: Call) -> Answer:
    """Without what they say. Hours in which there was none are left out."""
    found = await call.services.deliveries.tally(_conditions(call))
    most_first = lambda item: (-item[1], item[0])  # noqa: E731
    return 200, operator_bodies.DeadLetterSummary(
        total=found.errors.total(),
        errors=[bodies.DeadLetterGroup(*one) for one in sorted(found.errors.items(), key=most_first)],
        recipients=[
            operator_bodies.DeadLetterRecipient(*one)
            for one in sorted(found.recipients.items(), key=most_first)
        ],
        hours=[
            operator_bodies.DeadLetterHour(iso(hour * MS_PER_HOUR), count)
            for hour, count in sorted(found.hours.items())
        ],
    )


@routes.route(
    "GET",
    f"{DLQ}/jobs",
    "Replays and discards of dead letters",
    {200: operator_bodies.DeadLetterJobList},
    refusals=(FORBIDDEN,),
    needs="operator",
)
async def list_dead_letter_jobs(call: Call) -> Answer:
    """The newest hundred of which there are dead letters. One that is replayed once more belongs to the later
    job.
    """
    return 200, operator_bodies.DeadLetterJobList(
        [
            operator_bodies.DeadLetterJobInfo(
                job_id=job.job_id,
                action=job.action,
                actor=job.actor,
                begun_at=iso(job.begun_ms) if job.begun_ms else None,
                waiting=job.waiting,
                replayed=job.replayed,
                failed=job.failed,
                discarded=job.discarded,
            )
            for job in await call.services.deliveries.jobs()
        ]
    )


@routes.route(
    "GET",
    f"{DLQ}/{{dlq_id}}",
    "A dead letter with its story",
    {200: bodies.DeadLetterStory},
    refusals=(FORBIDDEN, NOT_FOUND),
    needs="operator",
)
async def show_dead_letter(call: Call) -> Answer:
    """Every attempt, and everything that operators did."""
    dlq_id = call.path("dlq_id")
    async with call.services.user_admin.audited(call.acting, READ, dlq_id):
        dead_letter = await call.services.deliveries.dead_letter(dlq_id)
        info = await _info(call, dead_letter)
    history = [
        bodies.DeadLetterEvent(iso(event.at_ms), event.action, event.error, event.detail, event.actor)
        for event in dead_letter.history
    ]
    values = {name: getattr(info, name) for name in info.__struct_fields__}
    return 200, bodies.DeadLetterStory(**values, history=history)


@routes.route(
    "POST",
    f"{DLQ}/preview",
    "What a replay or a discard would concern",
    {200: operator_bodies.DeadLetterPreview},
    body=operator_bodies.PreviewOrder,
    refusals=(FORBIDDEN,),
    needs="operator",
)
async def preview_dead_letters(call: Call) -> Answer:
    """It changes nothing. `replay` and `discard` with its `token` concern what matched here, and no dead
    dead letter that came later; if one that is older turned up meanwhile, they refuse as `preview_outdated`.
    """
    order = await call.body(operator_bodies.PreviewOrder)
    seen = await call.services.deliveries.preview(_chosen(order.ids, order.filter))
    return 200, operator_bodies.DeadLetterPreview(
        seen.matched,
        seen.token,
        iso(seen.at_ms),
        seen.chats,
        None if seen.oldest_ms is None else iso(seen.oldest_ms),
    )


@routes.route(
    "POST",
    f"{DLQ}/replay",
    "Replay dead letters",
    {200: bodies.DeadLetterJob, 202: bodies.DeadLetterJob},
    body=operator_bodies.ReplayOrder,
    refusals=(FORBIDDEN, PREVIEW_OUTDATED),
    needs="operator",
)
async def replay_dead_letters(call: Call) -> Answer:
    """They are delivered again with the same event id, in the order of each chat, with new retries, at most
    200 in a second. One that waits or was replayed is not queued again, so this may be repeated. With the
    `token` of a preview exactly what it showed, and nothing newer.
    """
    order = await call.body(operator_bodies.ReplayOrder)
    admin = call.services.deliveries
    if order.token is not None:
        chosen = await _previewed(call, order)
        return 202, bodies.DeadLetterJob(*await admin.replay(call.acting, chosen))
    selection = _chosen(order.ids, order.filter)
    if order.dry_run:
        return 200, bodies.DeadLetterJob(await admin.matching(selection, REPLAY), None)
    return 202, bodies.DeadLetterJob(*await admin.replay(call.acting, selection))


@routes.route(
    "POST",
    f"{DLQ}/discard",
    "Give dead letters up",
    {200: bodies.DeadLetterJob},
    body=operator_bodies.DiscardOrder,
    refusals=(FORBIDDEN, PREVIEW_OUTDATED, PASSWORD_NEEDED),
    needs="operator",
)
async def discard_dead_letters(call: Call) -> Answer:
    """Those that are pending are `permanently_failed` from now on, and are kept for 30 days. With the `token`
    of a preview exactly what it showed, and nothing newer.
    """
    order = await call.body(operator_bodies.DiscardOrder)
    admin = call.services.deliveries
    if order.ids is None and not order.dry_run:
        call.check_recent_password()
    if order.token is not None:
        chosen = await _previewed(call, order)
        return 200, bodies.DeadLetterJob(*await admin.discard(call.acting, chosen, order.reason))
    selection = _chosen(order.ids, order.filter)
    if order.dry_run:
        return 200, bodies.DeadLetterJob(await admin.matching(selection, DISCARD), None)
    return 200, bodies.DeadLetterJob(*await admin.discard(call.acting, selection, order.reason))


@routes.route(
    "GET",
    f"{DLQ}/jobs/{{job_id}}",
    "How far a replay is",
    {200: bodies.DeadLetterProgress},
    refusals=(FORBIDDEN, NOT_FOUND),
    needs="operator",
)
async def show_replay(call: Call) -> Answer:
    """What is replayed once more belongs to the later job."""
    job_id = call.path("job_id")
    progress = await call.services.deliveries.progress(job_id)
    return 200, bodies.DeadLetterProgress(job_id, progress.waiting, progress.replayed, progress.failed)


@routes.route("GET", WEBHOOKS, "Webhooks", {200: bodies.WebhookList}, refusals=(FORBIDDEN,), needs="operator")
async def list_webhooks(call: Call) -> Answer:
    """Without their secrets. One that fails again and again is `paused`: one delivery at a time is sent to
    it, until it answers. What it is owed waits until then, for `webhooks.give_up_hours`. `waiting` counts
    positions of the first 1,000 chats, also those of which it wants no event. `last_success_at` is what the
    nodes remember since they started.
    """
    admin, services = call.services.deliveries, call.services
    failing, hooks = await admin.failing_webhooks(), await admin.webhooks()
    reached: dict[str, int] = {}
    for said in (await services.nodes.ask_all(StateQuestion(), operator_bodies.NodeState)).values():
        if isinstance(said, operator_bodies.NodeState):
            for webhook_id, at_ms in said.webhooks_reached.items():
                reached[webhook_id] = max(at_ms, reached.get(webhook_id, 0))
    queues = await map_concurrently(lambda hook: admin.waiting(hook.webhook_id), hooks, LOOKS_AT_ONCE_MAX)
    return 200, bodies.WebhookList(
        [
            webhook_info(hook, failing.get(hook.webhook_id), owed, reached.get(hook.webhook_id, 0))
            for hook, owed in zip(hooks, queues, strict=True)
        ]
    )


@routes.route(
    "POST",
    WEBHOOKS,
    "Add a webhook",
    {201: bodies.WebhookAdded},
    body=bodies.NewWebhook,
    refusals=(FORBIDDEN,),
    needs="operator",
)
async def add_webhook(call: Call) -> Answer:
    """Events from now on are sent to it as signed POST requests, in the order of each chat, at least once.
    Receivers recognise a repeated one by `Parley-Event-Id`.
    """
    new = await call.body(bodies.NewWebhook)
    events = [event.value for event in new.events]
    hook = await call.services.deliveries.add_webhook(call.acting, new.url, events, new.chat_id or "")
    return 201, bodies.WebhookAdded(hook.webhook_id, hook.secret)


@routes.route(
    "PATCH",
    f"{WEBHOOKS}/{{webhook_id}}",
    "Pause a webhook, or let it go on",
    {200: bodies.WebhookInfo},
    body=operator_bodies.WebhookChange,
    refusals=(FORBIDDEN, NOT_FOUND),
    needs="operator",
)
async def pause_webhook(call: Call) -> Answer:
    """Nothing is sent to a paused one. What it is owed waits in order, as for one that does not answer: for
    `webhooks.give_up_hours`, and it is asked again some time after it goes on.
    """
    wanted, admin = await call.body(operator_bodies.WebhookChange), call.services.deliveries
    hook = await admin.pause_webhook(call.acting, call.path("webhook_id"), is_paused=wanted.paused)
    failing = await admin.failing_webhooks()
    return 200, webhook_info(hook, failing.get(hook.webhook_id))


@routes.route(
    "POST",
    f"{WEBHOOKS}/{{webhook_id}}/test",
    "Send a webhook a test",
    {200: operator_bodies.WebhookTest},
    refusals=(FORBIDDEN, NOT_FOUND),
    needs="operator",
    cost=5,
)
async def test_webhook(call: Call) -> Answer:
    """An event `webhook.test`, signed like every other, at once and once, also if it is paused."""
    failure = await call.services.deliveries.test_webhook(call.acting, call.path("webhook_id"))
    if failure is None:
        return 200, operator_bodies.WebhookTest(True, None, None)
    return 200, operator_bodies.WebhookTest(False, failure.fault.value, failure.detail)


@routes.route(
    "POST",
    f"{WEBHOOKS}/{{webhook_id}}/secret",
    "Give a webhook a new secret",
    {200: bodies.WebhookAdded},
    refusals=(FORBIDDEN, NOT_FOUND),
    needs="operator",
)
async def renew_webhook_secret(call: Call) -> Answer:
    """Shown this once. What is sent from now on is signed with it, and with the old one no more."""
    hook = await call.services.deliveries.new_secret(call.acting, call.path("webhook_id"))
    return 200, bodies.WebhookAdded(hook.webhook_id, hook.secret)


@routes.route(
    "DELETE",
    f"{WEBHOOKS}/{{webhook_id}}",
    "Remove a webhook",
    {204: None},
    refusals=(FORBIDDEN, NOT_FOUND),
    needs="operator",
)
async def remove_webhook(call: Call) -> Answer:
    """What was not delivered to it yet is forgotten; its dead letters stay until they expire."""
    await call.services.deliveries.remove_webhook(call.acting, call.path("webhook_id"))
    return 204, None


async def _previewed(call: Call, order: operator_bodies.ReplayOrder | operator_bodies.DiscardOrder) -> Chosen:
    if order.ids is not None or order.filter is not None or order.dry_run or order.token is None:
        raise Refused(TOKEN_ALONE)
    return await call.services.deliveries.previewed(order.token)


def _chosen(ids: list[str] | None, conditions: bodies.DeadLetterFilter | None) -> Selection:
    if (ids is None) == (conditions is None):
        raise Refused(UNCLEAR)
    if conditions is None:
        return Selection(ids=tuple(ids or ()))
    given = {name: getattr(conditions, name) for name in conditions.__struct_fields__}
    return _selected({name: value for name, value in given.items() if value is not None})


def _conditions(call: Call) -> Selection:
    given = {name: call.text(name) for name in bodies.DeadLetterFilter.__struct_fields__}
    return _selected({name: value for name, value in given.items() if value})


def _selected(given: dict[str, str]) -> Selection:
    try:
        return Selection(
            status=DeadLetterStatus(given["status"]) if "status" in given else None,
            error=given.get("error"),
            topic=given.get("topic"),
            chat_id=given.get("chat_id"),
            recipient=given.get("recipient"),
            after_ms=from_iso(given["after"]) if "after" in given else None,
            before_ms=from_iso(given["before"]) if "before" in given else None,
        )
    except (ValueError, OverflowError) as error:
        raise Refused(BAD_REQUEST.because(f"not a status or a time: {error}")) from error


async def _info(call: Call, dead_letter: DeadLetter) -> bodies.DeadLetterInfo:
    return _told(dead_letter, await call.services.deliveries.content(dead_letter))


def _told(dead_letter: DeadLetter, content: str | None) -> bodies.DeadLetterInfo:
    original = bodies.OriginalMessage(
        dead_letter.message_id,
        dead_letter.sender_id,
        dead_letter.recipient,
        content,
        iso(dead_letter.created_ms),
    )
    return bodies.DeadLetterInfo(
        dlq_id=dead_letter.dlq_id,
        status=dead_letter.status.value,
        original_message=original,
        error=dead_letter.error,
        error_detail=dead_letter.detail,
        retry_count=dead_letter.retry_count,
        first_attempt=iso(dead_letter.first_attempt_ms),
        last_attempt=iso(dead_letter.last_attempt_ms),
        dlq_timestamp=iso(dead_letter.dlq_ms),
        source_topic=dead_letter.source_topic,
        source_partition=dead_letter.source_partition,
        source_offset=dead_letter.source_offset,
        chat_id=dead_letter.chat_id,
        sequence=dead_letter.sequence,
        queued=dead_letter.is_queued,
        job_id=dead_letter.job_id,
    )
