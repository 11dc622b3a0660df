"""What an append tells an operator: counts, refusals, and a critical line for a chat without its counter."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from parley.errors import COUNTER_MISSING, Refusal
from parley.model import AppendResult, Draft, Persisted
from parley.store.tracing import NOT_TRACED, trace_outcomes
from parley.telemetry import Metrics

log = structlog.get_logger("parley.store")


def count_resolved(metrics: Metrics, persisted: Sequence[Persisted]) -> None:
    """Positions that this process has just made durable, for `sequence_gap_rate`.

    The rule: a number is counted once, by whoever resolves it. Who writes an entry there counts an allocation
    that was persisted; who writes a void counts one that was not, whoever took the number. A position is
    written once, so no number is counted twice; and a number that a crash has lost is counted like any
    other, by the process that seals it.
    """
    metrics.gaps.add(_voids(persisted), sum([len(news.positions) for news in persisted]))


def count_sealed(metrics: Metrics, sealed: Sequence[Persisted]) -> None:
    """Voids at numbers that somebody took and nobody wrote."""
    if count := _voids(sealed):
        metrics.voids_sealed.inc(count)
        chats = [news.chat_id for news in sealed if _voids([news])]
        log.warning("Abandoned positions sealed", positions=count, chats=chats[:10])


def _voids(persisted: Sequence[Persisted]) -> int:
    return sum([at.wire is None for news in persisted for at in news.positions])


def count_appended(
    metrics: Metrics,
    drafts: Sequence[Draft],
    result: AppendResult,
    is_atomic: bool,
    heads: Mapping[str, int] = NOT_TRACED,
) -> None:
    """Once per append, not per message. `heads`: see `trace_outcomes`."""
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
    trace_outcomes(drafts, result.outcomes, is_atomic, heads)


def _count_refusal(metrics: Metrics, draft: Draft, refusal: Refusal) -> None:
    metrics.messages_refused.labels(refusal.code).inc()
    if refusal.code == COUNTER_MISSING.code:
        metrics.counter_missing_errors += 1
        now = asyncio.get_running_loop().time()
        if (more := metrics.lines.admit(f"COUNTER_MISSING {draft.chat_id}", now)) is not None:
            log.critical(
                "COUNTER_MISSING",
                chat_id=draft.chat_id,
                request_id=draft.request_id,
                hint="nothing was stored; run: parley recover CHAT",
                **more,
            )
