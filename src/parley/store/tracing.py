"""Debug lines that follow each message through the store by its request id; one look when they are off."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import structlog

from parley.errors import Refusal
from parley.model import Draft, Outcome

NOT_TRACED: Mapping[str, int] = {}

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


def trace_heads(drafts: Sequence[Draft], head_of: Callable[[str], int | None]) -> Mapping[str, int]:
    """Where the logs of these drafts end before they are appended, as far as memory knows."""
    if not log.is_enabled_for(logging.DEBUG):
        return NOT_TRACED
    heads = {draft.chat_id: head_of(draft.chat_id) for draft in drafts}
    return {chat_id: head for chat_id, head in heads.items() if head is not None}


def trace_outcomes(
    drafts: Sequence[Draft], outcomes: Sequence[Outcome], is_atomic: bool, heads: Mapping[str, int]
) -> None:
    """What became of each draft; in atomic mode its number was taken by the same commit.

    `heads`: where the logs ended when an append of atomic mode began. Nothing is looked up there first, so a
    race is told from a retry by where the message is: beyond the end of the log, yet not by this append.
    """
    if log.is_enabled_for(logging.DEBUG):
        pairs = list(zip(drafts, outcomes, strict=True))
        by_us = {(draft.chat_id, draft.client_key) for draft, outcome in pairs if _is_new(outcome)}
        for draft, outcome in pairs:
            if isinstance(outcome, Refusal):
                _say("Message refused", draft, code=outcome.code)
                continue
            if outcome.deduplicated:
                event = "Duplicate message detected"
                is_late = outcome.sequence > heads.get(draft.chat_id, outcome.sequence)
                if is_late and (draft.chat_id, draft.client_key) not in by_us:
                    _say("Race condition resolved", draft, sequence=outcome.sequence)
            else:
                event = "Message persisted"
                if is_atomic:
                    _say("Sequence allocated", draft, sequence=outcome.sequence)
            _say(event, draft, sequence=outcome.sequence, message_id=outcome.message_id)


def _is_new(outcome: Outcome) -> bool:
    return not isinstance(outcome, Refusal) and not outcome.deduplicated


def _say(event: str, draft: Draft, **more: object) -> None:
    log.debug(
        event,
        request_id=draft.request_id,
        chat_id=draft.chat_id,
        client_message_id=draft.client_message_id,
        **more,
    )
