"""The report of `parley recover`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from parley.checks import recovery as store_recovery
from parley.checks.recovery import Recovery, how_to_go_on
from parley.cli.check_report import print_breach
from parley.cli.output import note, print_json, print_table
from parley.cli.problems import complain, explain
from parley.errors import InconsistentCounterError, StoreError
from parley.store.invariants import Breach
from parley.store.ports import Engine


class ChatReport(Struct, omit_defaults=True):
    """What `recover --json` prints for each chat."""

    chat_id: str
    status: str
    applied: bool
    found: dict[str, int | None] | None = None
    sequence_counter: int | None = None
    voids: list[tuple[int, int]] = []
    breaches: list[Breach] = []
    error: str | None = None


async def recover(
    engine: Engine, chat_ids: Sequence[str] | None, *, apply: bool, seal_holes: bool, as_json: bool
) -> bool:
    """Examine each chat and, with `apply`, repair it. Returns whether all are, or would be, repaired."""
    chosen = await engine.repairs.chats_without_counter() if chat_ids is None else list(chat_ids)
    if not chosen and not as_json:
        print("Every chat has its counter.")
    outcomes = [await _recover_one(engine, chat_id, apply, seal_holes, as_json) for chat_id in chosen]
    if as_json:
        print_json({"chats": outcomes})
    return all(outcome.error is None and not outcome.breaches for outcome in outcomes)


async def _recover_one(
    engine: Engine, chat_id: str, apply: bool, seal_holes: bool, as_json: bool
) -> ChatReport:
    try:
        recovery = await store_recovery.recover(engine, chat_id, apply=apply, seal_holes=seal_holes)
    except StoreError as error:
        if not as_json:
            complain(f"{chat_id}: {explain(error)}{_next_step(error, engine, chat_id)}")
        return ChatReport(
            chat_id,
            "inconsistent" if isinstance(error, InconsistentCounterError) else "failed",
            applied=False,
            error=str(error),
        )
    if not as_json:
        _print_recovery(recovery, apply, seal_holes)
    return _outcome(recovery)


def _outcome(recovery: Recovery) -> ChatReport:
    return ChatReport(
        recovery.remains.chat_id,
        recovery.status,
        applied=recovery.applied,
        found=recovery.found,
        sequence_counter=recovery.counter,
        voids=recovery.voids,
        breaches=recovery.breaches,
    )


def _next_step(error: StoreError, engine: Engine, chat_id: str) -> str:
    if not isinstance(error, InconsistentCounterError):
        return ""
    return f"\n{how_to_go_on(engine, chat_id)}"


def _print_recovery(recovery: Recovery, apply: bool, seal_holes: bool) -> None:
    remains = recovery.remains
    print(remains.chat_id)
    rows = [(name, "missing" if value is None else value or "-") for name, value in recovery.found.items()]
    print_table(["HIGHEST NUMBER IN", ""], rows)
    print()
    done = "written" if recovery.applied else "would write"
    if recovery.is_lost:
        print(f"{done}: sequence_counter = {recovery.counter}; the next message gets {recovery.counter + 1}")
    for first, last in recovery.voids:
        numbers = f"{first}" if first == last else f"{first} to {last}"
        print(f"{done}: void {numbers}")
    if not recovery.is_lost and not recovery.voids:
        print(
            "The counter exists and is not behind its log: nothing to do." if not seal_holes else "No holes."
        )
        _warn_about_cursors(recovery)
    elif not apply:
        note("Nothing was changed. To write this, add --apply.")
    for breach in recovery.breaches:
        print()
        print_breach(breach)


def _warn_about_cursors(recovery: Recovery) -> None:
    if recovery.remains.maximum > recovery.counter:
        note("Some cursors are beyond it: parley check lists them.")
