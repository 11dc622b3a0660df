"""What `parley recover` does and tells."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from parley.cli.checking import tell_breach
from parley.cli.output import note, print_json, print_table
from parley.cli.problems import complain, explain
from parley.cli.records import Keeping
from parley.errors import InconsistentCounterError, StoreError
from parley.store.checks import Breach
from parley.store.recovery import Recovery
from parley.telemetry import configure_logs


class Outcome(Struct, omit_defaults=True):
    """What `recover --json` prints of each chat."""

    chat_id: str
    status: str
    applied: bool
    found: dict[str, int | None] | None = None
    sequence_counter: int | None = None
    voids: list[tuple[int, int]] = []
    breaches: list[Breach] = []
    error: str | None = None


def recover(
    records: Keeping, chat_ids: Sequence[str] | None, *, apply: bool, seal_holes: bool, as_json: bool
) -> bool:
    """Look at each chat and repair it if asked to; whether all are, or would be, well."""
    configure_logs("warning", as_json=False)
    chosen = records.chats_without_counter() if chat_ids is None else list(chat_ids)
    if not chosen and not as_json:
        print("Every chat has its counter.")
    outcomes = [_recover_one(records, chat_id, apply, seal_holes, as_json) for chat_id in chosen]
    if as_json:
        print_json({"chats": outcomes})
    return all(outcome.error is None and not outcome.breaches for outcome in outcomes)


def _recover_one(records: Keeping, chat_id: str, apply: bool, seal_holes: bool, as_json: bool) -> Outcome:
    try:
        recovery = records.recover(chat_id, apply=apply, seal_holes=seal_holes)
    except StoreError as error:
        if not as_json:
            complain(f"{chat_id}: {explain(error)}{_next_step(error, records, chat_id)}")
        return Outcome(
            chat_id,
            "inconsistent" if isinstance(error, InconsistentCounterError) else "failed",
            applied=False,
            error=str(error),
        )
    if not as_json:
        _tell_recovery(recovery, apply, seal_holes)
    return _outcome(recovery)


def _outcome(recovery: Recovery) -> Outcome:
    found = recovery.found
    status = (
        "fine"
        if not recovery.is_lost and not recovery.voids
        else "recovered"
        if recovery.applied
        else "missing"
    )
    return Outcome(
        found.chat_id,
        status,
        applied=recovery.applied,
        found=_sources(recovery),
        sequence_counter=recovery.counter,
        voids=recovery.voids,
        breaches=recovery.breaches,
    )


def _sources(recovery: Recovery) -> dict[str, int | None]:
    found = recovery.found
    trimmed = {"trimmed_through": found.trimmed} if found.trimmed else {}
    return {
        "sequence_counter": found.counter,
        "entries": found.entries,
        "voids": found.voids,
        "open_allocations": found.open_allocations,
        "idempotency_keys": found.keys,
        "user_device_cursors": found.device_cursors,
        "delivery_state": found.delivery_state,
        **trimmed,
    }


def _next_step(error: StoreError, records: Keeping, chat_id: str) -> str:
    if not isinstance(error, InconsistentCounterError):
        return ""
    return (
        "\nA counter that is there is never overwritten. Find out who lowered it (a restored backup?), then:"
        f"\n{records.how_to_delete_counter(chat_id)}"
    )


def _tell_recovery(recovery: Recovery, apply: bool, seal_holes: bool) -> None:
    found = recovery.found
    print(found.chat_id)
    rows = [
        (name, "missing" if value is None else value or "-") for name, value in _sources(recovery).items()
    ]
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
            "The counter is there and not behind its log: nothing to do." if not seal_holes else "No holes."
        )
        _point_at_cursors(recovery)
    elif not apply:
        note("Nothing was changed. To write this, add --apply.")
    for breach in recovery.breaches:
        print()
        tell_breach(breach)


def _point_at_cursors(recovery: Recovery) -> None:
    if recovery.found.maximum > recovery.counter:
        note("Some cursors are beyond it, though: parley check says which.")
