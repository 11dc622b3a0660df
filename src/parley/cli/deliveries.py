"""`parley dlq …` and `parley webhook …`: dead letters and webhooks, also beside a running server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from parley.cli.options import AsJson, ConfigFile, Data

if TYPE_CHECKING:
    from parley.core.deliveries import DeadLetter, Selection
    from parley.delivery.admin import Chosen, DeliveryAdmin

T = TypeVar("T")

PROGRESS_SECONDS = 1.0
LIMIT_MAX = 1_000

dlq = typer.Typer(
    no_args_is_help=True, help="Dead letters: messages that could not be delivered. See docs/delivery.md."
)
webhook = typer.Typer(no_args_is_help=True, help="Webhooks: where events are sent to. See docs/delivery.md.")

Error = Annotated[str | None, typer.Option("--error", metavar="WORD", help="With this error.")]
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Dead since then (ISO 8601).")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Dead before then (ISO 8601).")]
Chat = Annotated[str | None, typer.Option("--chat", metavar="ID", help="Of this chat.")]
To = Annotated[str | None, typer.Option("--to", metavar="ID", help="For this recipient.")]
Ids = Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="Only this one; may be repeated.")]
Previewed = Annotated[
    str,
    typer.Option(
        "--preview", metavar="TOKEN", help="Exactly what a run without --apply showed: it prints a token."
    ),
]
Apply = Annotated[bool, typer.Option("--apply", help="Do it; without this nothing is changed.")]


def _selected(
    error: Error = None,
    since: Since = None,
    until: Until = None,
    chat: Chat = None,
    to: To = None,
    dlq_ids: Ids = None,
) -> Selection:
    from parley.cli.places import CommandFailed
    from parley.clock import from_iso
    from parley.core.deliveries import Selection

    try:
        return Selection(
            ids=tuple(dlq_ids) if dlq_ids else None,
            error=error,
            chat_id=chat,
            recipient=to,
            after_ms=from_iso(since) if since else None,
            before_ms=from_iso(until) if until else None,
        )
    except ValueError as problem:
        raise CommandFailed(f"not a time: {problem}") from problem


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `_selected`. It gets what they select as its argument `selection`."""
    options = signature(_selected, eval_str=True, locals={"Selection": object}).parameters
    own = signature(command, eval_str=True, locals={"Selection": object})

    @wraps(command)
    def run(**given: Any) -> None:
        command(selection=_selected(**{name: given.pop(name) for name in options}), **given)

    shown = [parameter for name, parameter in own.parameters.items() if name != "selection"]
    place = list(own.parameters).index("selection")
    keyword_only = [
        parameter.replace(kind=Parameter.KEYWORD_ONLY)
        for parameter in (*shown[:place], *options.values(), *shown[place:])
    ]
    run.__signature__ = own.replace(parameters=keyword_only)  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


@dlq.command("list")
@selecting
def list_dead_letters(
    selection: Selection,
    status: Annotated[
        str | None, typer.Option("--status", help="pending, replayed or permanently_failed.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=LIMIT_MAX, help="How many.")] = 50,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """List dead letters, the newest message first, and count them by error."""
    from msgspec.structs import replace

    from parley.cli.output import print_json, print_table
    from parley.cli.places import CommandFailed
    from parley.clock import iso
    from parley.core.deliveries import DeadLetterStatus

    if status is not None and status not in list(DeadLetterStatus):
        raise CommandFailed(f"there is no status {status}; choose of {', '.join(DeadLetterStatus)}")
    wanted = replace(selection, status=DeadLetterStatus(status) if status else None)
    page = _with_admin(data, config, lambda admin, _: admin.dead_letters(wanted, "", limit))
    if json:
        groups = [{"error": name, "count": count} for name, count in page.counts.items()]
        records = [_shown(dead_letter) for dead_letter in page.dead_letters]
        print_json({"total": sum(page.counts.values()), "groups": groups, "records": records})
        return
    by_count: list[tuple[str, int]] = sorted(page.counts.items(), key=lambda item: (-item[1], item[0]))
    print_table(["ERROR", "COUNT"], by_count)
    print_table(
        ["DEAD LETTER", "SINCE", "STATUS", "ERROR", "CHAT", "SEQUENCE", "RECIPIENT"],
        (
            (a.dlq_id, iso(a.dlq_ms), a.status.value, a.error, a.chat_id, a.sequence, a.recipient)
            for a in page.dead_letters
        ),
    )


@dlq.command("show")
def show_dead_letter_command(
    dlq_id: Annotated[str, typer.Argument(metavar="ID", help="The dead letter.")],
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Show a dead letter with all that happened to it."""
    from parley.cli.output import print_json, print_table

    shown = _shown(_with_admin(data, config, lambda admin, _: admin.dead_letter(dlq_id)))
    if json:
        print_json(shown)
        return
    history = shown.pop("history")
    print_table(["FIELD", "VALUE"], shown.items())
    print_table(["WHEN", "WHAT", "ERROR", "DETAIL", "WHO"], [list(event.values()) for event in history])


@dlq.command("replay")
@selecting
def replay(
    selection: Selection,
    preview: Previewed = "",
    apply: Apply = False,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Deliver dead letters again. Without --apply it only says how many match.

    A running server delivers them, in the order of each chat; without one, the next that starts.
    """
    from parley.cli.offline import who_acts
    from parley.delivery.tallies import REPLAY

    async def act(admin: DeliveryAdmin, is_served: bool) -> dict[str, Any]:
        if not apply:
            return await _previewed(admin, selection, REPLAY)
        chosen = await _chosen(admin, selection, preview)
        matched, job_id = await admin.replay(who_acts(), chosen)
        done = await _watch(admin, job_id) if is_served and matched else {}
        return {"matched": matched, "job_id": job_id, **done}

    _tell(json, _with_admin(data, config, act), "queued for replay")


@dlq.command("discard")
@selecting
def discard(
    reason: Annotated[str, typer.Option("--reason", help="Why, for the record.")],
    selection: Selection,
    preview: Previewed = "",
    apply: Apply = False,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Give dead letters up for good. Without --apply it only says how many match."""
    from parley.cli.offline import who_acts
    from parley.delivery.tallies import DISCARD

    async def act(admin: DeliveryAdmin, _: bool) -> dict[str, Any]:
        if not apply:
            return await _previewed(admin, selection, DISCARD)
        chosen = await _chosen(admin, selection, preview)
        matched, job_id = await admin.discard(who_acts(), chosen, reason)
        return {"matched": matched, "job_id": job_id}

    _tell(json, _with_admin(data, config, act), "discarded")


async def _previewed(admin: DeliveryAdmin, selection: Selection, action: str) -> dict[str, Any]:
    """How many an action would concern, and the token that names them."""
    seen = await admin.preview(selection)
    return {"matched": await admin.matching(selection, action), "job_id": None, "token": seen.token}


async def _chosen(admin: DeliveryAdmin, selection: Selection, preview: str) -> Selection | Chosen:
    from parley.core.deliveries import Selection as Nothing

    if not preview:
        return selection
    if selection != Nothing():
        raise typer.BadParameter("it names the dead letters by itself", param_hint="--preview")
    return await admin.previewed(preview)


@webhook.command("add")
def add_webhook(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where to send events to.")],
    events: Annotated[
        list[str] | None, typer.Option("--event", metavar="NAME", help="Which; may be repeated.")
    ] = None,
    chat: Chat = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Add a webhook, and print the secret that its signatures are made with. It is shown only once."""
    from parley.cli.offline import who_acts
    from parley.cli.output import print_json
    from parley.cli.places import CommandFailed
    from parley.wire.webhook_events import EventName

    wanted = events or ["message.created"]
    unknown = [name for name in wanted if name not in list(EventName)]
    if unknown:
        raise CommandFailed(f"there is no event {unknown[0]}; choose of {', '.join(EventName)}")
    hook = _with_admin(data, config, lambda admin, _: admin.add_webhook(who_acts(), url, wanted, chat or ""))
    if json:
        print_json({"webhook_id": hook.webhook_id, "secret": hook.secret})
        return
    print(f"{hook.webhook_id}  {url}")
    print(f"secret  {hook.secret}")


@webhook.command("list")
def list_webhooks(data: Data = None, config: ConfigFile = None, json: AsJson = False) -> None:
    """List all webhooks, without their secrets."""
    import msgspec

    from parley.cli.output import print_json, print_table
    from parley.delivery.admin import webhook_info

    async def look(admin: DeliveryAdmin, _: Any) -> list[dict[str, Any]]:
        failing = await admin.failing_webhooks()
        hooks = [webhook_info(hook, failing.get(hook.webhook_id)) for hook in await admin.webhooks()]
        return [msgspec.to_builtins(hook) for hook in hooks]

    found = _with_admin(data, config, look)
    if json:
        print_json({"webhooks": found})
        return
    rows = [
        [a["webhook_id"], a["url"], ",".join(a["events"]), a["chat_id"], a["created_at"], _how(a)]
        for a in found
    ]
    print_table(["WEBHOOK", "URL", "EVENTS", "CHAT", "SINCE", "STATE"], rows)


def _how(hook: dict[str, Any]) -> str:
    """How a webhook is, in a few words."""
    if hook["state"] == "working":
        return "working"
    until = f", paused until {hook['paused_until']}" if hook["paused_until"] else ""
    return f"failing since {hook['failing_since']}{until}: {hook['last_error']}"


@webhook.command("remove")
def remove_webhook(
    webhook_id: Annotated[str, typer.Argument(metavar="ID", help="The webhook.")],
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Remove a webhook: nothing more is sent to it."""
    from parley.cli.offline import who_acts
    from parley.cli.output import print_json

    _with_admin(data, config, lambda admin, _: admin.remove_webhook(who_acts(), webhook_id))
    if json:
        print_json({"webhook_id": webhook_id, "result": "removed"})
        return
    print(f"{webhook_id}  removed")


async def _watch(admin: DeliveryAdmin, job_id: str) -> dict[str, int]:
    """Wait until nothing of the job waits, with a line about each step."""
    from parley.cli.output import note
    from parley.errors import Refused

    last = -1
    while True:
        try:
            progress = await admin.progress(job_id)
        except Refused:  # another job has chosen all of it meanwhile
            return {}
        if progress.waiting != last:
            note(f"{progress.waiting} wait, {progress.replayed} replayed, {progress.failed} failed")
            last = progress.waiting
        if not progress.waiting:
            return {"replayed": progress.replayed, "failed": progress.failed}
        await asyncio.sleep(PROGRESS_SECONDS)


def _with_admin(
    data: Path | None, config: Path | None, act: Callable[[DeliveryAdmin, bool], Awaitable[T]]
) -> T:
    """Act at the admin; the second argument says whether a server runs on the folder."""
    from parley.app.deliveries import make_delivery_admin
    from parley.cli import offline
    from parley.cli.places import find_place
    from parley.clock import wall_clock

    place = find_place(data, config)

    async def acted() -> T:
        async with offline.open_services(place) as services:
            admin = make_delivery_admin(
                place.settings,
                services.engine,
                services.kinds,
                services.user_admin.audited,
                wall_clock,
                services.make_ids,
            )
            return await act(admin, place.server_process() is not None)

    return offline.run(acted())


def _shown(dead_letter: DeadLetter) -> dict[str, Any]:
    from parley.clock import iso

    return {
        "dlq_id": dead_letter.dlq_id,
        "status": dead_letter.status.value,
        "error": dead_letter.error,
        "error_detail": dead_letter.detail,
        "chat_id": dead_letter.chat_id,
        "sequence": dead_letter.sequence,
        "recipient": dead_letter.recipient,
        "msg_id": dead_letter.message_id,
        "sender": dead_letter.sender_id,
        "timestamp": iso(dead_letter.created_ms),
        "retry_count": dead_letter.retry_count,
        "first_attempt": iso(dead_letter.first_attempt_ms),
        "last_attempt": iso(dead_letter.last_attempt_ms),
        "dlq_timestamp": iso(dead_letter.dlq_ms),
        "source_topic": dead_letter.source_topic,
        "source_partition": dead_letter.source_partition,
        "source_offset": dead_letter.source_offset,
        "queued": dead_letter.is_queued,
        "job_id": dead_letter.job_id,
        "history": [
            {
                "at": iso(event.at_ms),
                "action": event.action,
                "error": event.error,
                "detail": event.detail,
                "actor": event.actor,
            }
            for event in dead_letter.history
        ],
    }


def _tell(json: bool, result: dict[str, Any], done: str) -> None:
    from parley.cli.output import note, plural, print_json

    if json:
        print_json(result)
    elif result["job_id"] is None:
        print(f"{plural(result['matched'], 'dead dead_letter')} would be {done}")
        note("Nothing was changed; do it with --apply. For exactly these, whatever comes meanwhile:")
        note(f"--apply --preview {result['token']}")
    else:
        print(f"{plural(result['matched'], 'dead dead_letter')} {done}  {result['job_id']}")
