"""Metrics and log lines of an append: counts, a critical line for a missing counter, and debug lines.

Debug lines trace each message through the store by its request id. While they are off, they cost one check
per append.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

import structlog

from parley.errors import COUNTER_MISSING, Refusal
from parley.model import AppendResult, Draft, Outcome, Persisted
from parley.telemetry import Metrics

NOT_TRACED: Mapping[str, int] = {}

log = structlog.get_logger("parley.store")


def count_resolved(metrics: Metrics, persisted: Sequence[Persisted], *, are_voids_sealed: bool) -> None:
    """Positions that this process has just made durable, for `sequence_gap_rate`.

    The process that resolves a number counts it: an entry as an allocation that was persisted, a void as one
    that was not, whichever process took the number. A position is written once, so no number is counted
    twice. The process that seals a number after a crash counts it too.

    `are_voids_sealed`: the voids stand at abandoned numbers, and the operator is told. Otherwise the append
    that took the numbers has given them up itself.
    """
    voids = [news.chat_id for news in persisted for at in news.positions if at.wire is None]
    metrics.gaps.add(len(voids), sum([len(news.positions) for news in persisted]))
    if voids and are_voids_sealed:
        metrics.voids_sealed.inc(len(voids))
        log.warning("Abandoned positions sealed", positions=len(voids), chats=list(dict.fromkeys(voids))[:10])


def count_appended(
    metrics: Metrics,
    drafts: Sequence[Draft],
    result: AppendResult,
    is_atomic: bool,
    heads: Mapping[str, int] = NOT_TRACED,
) -> None:
    """Once per append, not per message. `heads`: see `_trace_outcomes`."""
    metrics.batch_messages.observe(len(drafts))
    retries = refused = 0
    for draft, outcome in zip(drafts, result.outcomes, strict=True):
        if isinstance(outcome, Refusal):
            refused += 1
            _count_refusal(metrics, draft, outcome)
        elif outcome.deduplicated:
            retries += 1
    metrics.retries.add(retries, len(drafts))
    metrics.messages_stored.inc(len(drafts) - retries - refused)
    for news in result.persisted:
        metrics.hot_chats.add(news.chat_id, len(news.positions))
    if log.is_enabled_for(logging.DEBUG):
        _trace_outcomes(drafts, result.outcomes, is_atomic, heads)


def _count_refusal(metrics: Metrics, draft: Draft, refusal: Refusal) -> None:
    metrics.messages_refused.labels(refusal.code).inc()
    if refusal.code == COUNTER_MISSING.code:
        metrics.counter_missing_errors.inc()
        now = asyncio.get_running_loop().time()
        if (more := metrics.lines.admit(f"COUNTER_MISSING {draft.chat_id}", now)) is not None:
            log.critical(
                "COUNTER_MISSING",
                chat_id=draft.chat_id,
                request_id=draft.request_id,
                hint="nothing was stored; run: parley recover CHAT",
                **more,
            )


# Debug lines


def log_allocated(drafts: Sequence[Draft], sequences: Sequence[int]) -> None:
    """Phase 1 of two_phase: the numbers that were allocated; 0 for a draft without one."""
    if log.is_enabled_for(logging.DEBUG):
        for draft, sequence in zip(drafts, sequences, strict=True):
            if sequence:
                _log_draft("Sequence allocated", draft, sequence=sequence)


def log_races(drafts: Sequence[Draft], sequences: Sequence[int], outcomes: Sequence[Outcome]) -> None:
    """Phase 2 of two_phase: drafts that got a number, but another append had stored the message."""
    if log.is_enabled_for(logging.DEBUG):
        for draft, taken, outcome in zip(drafts, sequences, outcomes, strict=True):
            if taken and not isinstance(outcome, Refusal) and outcome.deduplicated:
                _log_draft("Race condition resolved", draft, sequence=outcome.sequence, abandoned=taken)


def trace_heads(drafts: Sequence[Draft], head_of: Callable[[str], int | None]) -> Mapping[str, int]:
    """The heads of these drafts' logs before the append, as far as they are in memory."""
    if not log.is_enabled_for(logging.DEBUG):
        return NOT_TRACED
    heads = {draft.chat_id: head_of(draft.chat_id) for draft in drafts}
    return {chat_id: head for chat_id, head in heads.items() if head is not None}


def _trace_outcomes(
    drafts: Sequence[Draft], outcomes: Sequence[Outcome], is_atomic: bool, heads: Mapping[str, int]
) -> None:
    """The outcome of each draft. In atomic mode the same commit allocated its number.

    `heads`: the heads of the logs when an append in atomic mode began. That mode looks up no key first, so
    the position distinguishes a race from a retry: a race's message is beyond that head, and not from this
    append.
    """
    pairs = list(zip(drafts, outcomes, strict=True))
    by_us = {(draft.chat_id, draft.client_key) for draft, outcome in pairs if _is_new(outcome)}
    for draft, outcome in pairs:
        if isinstance(outcome, Refusal):
            _log_draft("Message refused", draft, code=outcome.code)
            continue
        if outcome.deduplicated:
            event = "Duplicate message detected"
            is_late = outcome.sequence > heads.get(draft.chat_id, outcome.sequence)
            if is_late and (draft.chat_id, draft.client_key) not in by_us:
                _log_draft("Race condition resolved", draft, sequence=outcome.sequence)
        else:
            event = "Message persisted"
            if is_atomic:
                _log_draft("Sequence allocated", draft, sequence=outcome.sequence)
        _log_draft(event, draft, sequence=outcome.sequence, message_id=outcome.message_id)


def _is_new(outcome: Outcome) -> bool:
    return not isinstance(outcome, Refusal) and not outcome.deduplicated


def _log_draft(event: str, draft: Draft, **more: object) -> None:
    log.debug(
        event,
        request_id=draft.request_id,
        chat_id=draft.chat_id,
        client_message_id=draft.client_message_id,
        **more,
    )
