"""Debug lines that follow each message through the store by its request id; one look when they are off."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import structlog

from parley.errors import Refusal
from parley.model import Draft, Outcome

log = structlog.get_logger("parley.store")


def trace_allocated(drafts: Sequence[Draft], sequences: Sequence[int]) -> None:
    """Phase 1 of two_phase: the numbers that were taken; 0 for who took none."""
    if log.is_enabled_for(logging.DEBUG):
        for draft, sequence in zip(drafts, sequences, strict=True):
            if sequence:
                _say("Sequence allocated", draft, sequence=sequence)


def trace_races(drafts: Sequence[Draft], sequences: Sequence[int], outcomes: Sequence[Outcome]) -> None:
    """Phase 2 of two_phase: who took a number and then found the message stored by somebody faster."""
    if log.is_enabled_for(logging.DEBUG):
        for draft, taken, outcome in zip(drafts, sequences, outcomes, strict=True):
            if taken and not isinstance(outcome, Refusal) and outcome.deduplicated:
                _say("Race condition resolved", draft, sequence=outcome.sequence, abandoned=taken)


def trace_outcomes(drafts: Sequence[Draft], outcomes: Sequence[Outcome], is_atomic: bool) -> None:
    """What became of each draft; in atomic mode its number was taken by the same commit."""
    if log.is_enabled_for(logging.DEBUG):
        for draft, outcome in zip(drafts, outcomes, strict=True):
            if isinstance(outcome, Refusal):
                _say("Message refused", draft, code=outcome.code)
                continue
            if outcome.deduplicated:
                event = "Duplicate message detected"
            else:
                event = "Message persisted"
                if is_atomic:
                    _say("Sequence allocated", draft, sequence=outcome.sequence)
            _say(event, draft, sequence=outcome.sequence, message_id=outcome.message_id)


def _say(event: str, draft: Draft, **more: object) -> None:
    log.debug(
        event,
        request_id=draft.request_id,
        chat_id=draft.chat_id,
        client_message_id=draft.client_message_id,
        **more,
    )
