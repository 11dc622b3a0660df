"""What the answers of providers mean, for all of them. Pure."""

from __future__ import annotations

from parley.core.retry import DeliveryFailure, Fault, retry_after_ms
from parley.push.ports import PushAnswer, failed, gone, taken

GONE_STATUSES = frozenset({404, 410})
UNAUTHORIZED_STATUSES = frozenset({401, 403})
BUSY_STATUSES = frozenset({408, 425, 429})


def judge_status(status: int, detail: str, retry_after: str, now_ms: int) -> PushAnswer:
    """By the status alone, as Web Push and webhooks have it."""
    said = f"{status} {detail}".strip()
    if 200 <= status < 300:
        return taken(said)
    if status in GONE_STATUSES:
        return gone(said)
    wait_ms = retry_after_ms(retry_after, now_ms)
    if status in BUSY_STATUSES:
        return failed(DeliveryFailure(Fault.BUSY, said, wait_ms))
    if status >= 500:
        return failed(DeliveryFailure(Fault.SERVER_ERROR, said, wait_ms))
    if status in UNAUTHORIZED_STATUSES:
        return failed(DeliveryFailure(Fault.UNAUTHORIZED, said))
    return failed(DeliveryFailure(Fault.REFUSED, said))
