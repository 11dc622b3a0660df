"""What an append tells an operator: counts, refusals, and a critical line for a chat without its counter."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from parley.errors import COUNTER_MISSING, Refusal
from parley.model import AppendResult, Draft
from parley.store.tracing import trace_outcomes
from parley.telemetry import Metrics

log = structlog.get_logger("parley.store")


def count_appended(
    metrics: Metrics, drafts: Sequence[Draft], result: AppendResult, seconds: float, is_atomic: bool
) -> None:
    """`seconds`: from the first statement to durable positions. Once per append, not per message."""
    metrics.allocation.add(seconds)
    metrics.allocation_seconds.observe(seconds)
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
    trace_outcomes(drafts, result.outcomes, is_atomic)


def _count_refusal(metrics: Metrics, draft: Draft, refusal: Refusal) -> None:
    metrics.messages_refused.labels(refusal.code).inc()
    if refusal.code == COUNTER_MISSING.code:
        metrics.counter_missing_errors += 1
        log.critical(
            "COUNTER_MISSING",
            chat_id=draft.chat_id,
            request_id=draft.request_id,
            hint="nothing was stored; run: parley recover CHAT",
        )
