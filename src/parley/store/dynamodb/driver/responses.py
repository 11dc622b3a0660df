"""What a response of DynamoDB means: pure decisions about errors and retries.

A request that did not succeed is a `Failure` of one of three kinds. `NOT_DONE`: it certainly wrote nothing,
and may work later. `UNKNOWN`: it may have been done. `REFUSED`: DynamoDB would refuse it again.

The caller gets an error:

    StoreError
    ├── ConditionFailed       the condition of a write did not hold
    ├── TransactionCanceled   a transaction wrote nothing; one reason per action
    ├── OutcomeUnknown        a write that may have been done
    └── StoreUnavailable      nothing was done, and it may work later
        └── RequestRejected   nothing was done, and the same request will fail again
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from msgspec import Struct

from parley.core.backoff import backoff
from parley.errors import OutcomeUnknown, StoreError, StoreUnavailable
from parley.store.dynamodb.driver.items import Item, from_item

BACKOFF_BASE_SECONDS = 0.02
BACKOFF_SECONDS_MAX = 1.0

WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"})

THROTTLES = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "RequestLimitExceeded",
        "LimitExceededException",
    }
)
NOT_DONE_CODES = THROTTLES | {
    "ExpiredTokenException",
    "ReplicatedWriteConflictException",
    "TransactionConflictException",
    "TransactionInProgressException",
}
RETRYABLE_REASONS = frozenset(
    {
        "None",
        "ProvisionedThroughputExceeded",
        "RequestLimitExceeded",
        "ThrottlingError",
        "TransactionConflict",
        "TransactionInProgress",
    }
)
BAD_CREDENTIALS = frozenset(
    {
        "IncompleteSignatureException",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "UnrecognizedClientException",
    }
)
"""Credentials that DynamoDB does not accept at all."""


class Response(NamedTuple):
    """One HTTP response with its JSON decoded."""

    status: int
    body: dict[str, Any]


class CancellationReason(Struct):
    """Why one action stopped its transaction; `code` is "None" for an action that did not."""

    code: str
    item: Item | None = None


class ConditionFailed(StoreError):
    """The condition did not hold; `item` is the stored item, None if there is none."""

    def __init__(self, item: Item | None = None) -> None:
        super().__init__("the condition did not hold")
        self.item = item


class TransactionCanceled(StoreError):
    """Nothing was written, and sending it again will not help. One reason per action, in order."""

    def __init__(self, reasons: list[CancellationReason]) -> None:
        super().__init__("canceled: " + ", ".join(reason.code for reason in reasons))
        self.reasons = reasons


class RequestRejected(StoreUnavailable):
    """DynamoDB refused the request: credentials, tables, validation. `code` is DynamoDB's own."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class FailureKind(Enum):
    NOT_DONE = "not done"
    UNKNOWN = "unknown"
    REFUSED = "refused"


class Failure(Struct):
    """A request that did not succeed."""

    kind: FailureKind
    code: str
    message: str
    item: Item | None = None
    reasons: list[CancellationReason] | None = None

    def should_retry(self, is_write: bool) -> bool:
        if self.code == UNREACHABLE:
            return not is_write
        return self.kind is FailureKind.NOT_DONE or (self.kind is FailureKind.UNKNOWN and not is_write)

    def error(self, is_write: bool) -> StoreError:
        """The error that the caller gets."""
        if self.code == "ConditionalCheckFailedException":
            return ConditionFailed(self.item)
        if is_write and (self.kind is FailureKind.UNKNOWN or self.code == "TransactionInProgressException"):
            return OutcomeUnknown(self.message)
        if self.kind is FailureKind.REFUSED:
            if self.reasons:
                return TransactionCanceled(self.reasons)
            return RequestRejected(self.code, self.message)
        return StoreUnavailable(self.message)


UNREACHABLE = "unreachable"
"""The code of a connection that could not be opened: nothing was sent."""

LOST = "lost"
"""The code of a response that did not arrive, or not whole."""


def unreachable(endpoint: str, error: BaseException) -> Failure:
    return Failure(
        FailureKind.NOT_DONE, UNREACHABLE, f"DynamoDB at {endpoint} cannot be reached: {_reason(error)}"
    )


def lost(operation: str, error: BaseException) -> Failure:
    return Failure(FailureKind.UNKNOWN, LOST, f"DynamoDB did not answer {operation}: {_reason(error)}")


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def failure_in(operation: str, request: Mapping[str, Any], response: Response) -> Failure:
    """What a response other than 200 means."""
    body = response.body
    code = str(body.get("__type", "")).rpartition("#")[2]
    message = str(body.get("message") or body.get("Message") or "no reason given")
    if code == "TransactionCanceledException":
        return _canceled(body, message)
    if code == "ConditionalCheckFailedException":
        old = body.get("Item")
        return Failure(FailureKind.REFUSED, code, message, item=from_item(old) if old else None)
    if code in NOT_DONE_CODES:
        return Failure(FailureKind.NOT_DONE, code, f"DynamoDB is busy with {operation}: {code}")
    if response.status >= 500 or not code:
        return Failure(
            FailureKind.UNKNOWN, code or LOST, f"DynamoDB failed at {operation}: {response.status} {message}"
        )
    return Failure(FailureKind.REFUSED, code, _explanation(operation, request, code, message))


def _canceled(body: Mapping[str, Any], message: str) -> Failure:
    reasons = [
        CancellationReason(
            reason.get("Code", "None"), from_item(reason["Item"]) if reason.get("Item") else None
        )
        for reason in body.get("CancellationReasons", ())
    ]
    codes = {reason.code for reason in reasons}
    if reasons and codes <= RETRYABLE_REASONS:
        why = ", ".join(sorted(codes - {"None"}))
        return Failure(
            FailureKind.NOT_DONE, "TransactionCanceledException", f"DynamoDB is busy: {why}", None, reasons
        )
    return Failure(FailureKind.REFUSED, "TransactionCanceledException", message, None, reasons)


def _explanation(operation: str, request: Mapping[str, Any], code: str, message: str) -> str:
    if code == "ResourceNotFoundException":
        return f"DynamoDB has no table {' or '.join(tables_of(request))}: run parley store init"
    if code in BAD_CREDENTIALS:
        return f"DynamoDB does not accept these credentials: {message}"
    if code == "AccessDeniedException":
        return f"these credentials may not do {operation}: {message}"
    return f"DynamoDB refused {operation}: {code}: {message}"


def tables_of(request: Mapping[str, Any]) -> list[str]:
    """Every table that a request names, without duplicates."""
    if "TableName" in request:
        return [request["TableName"]]
    actions = (part for action in request.get("TransactItems", ()) for part in action.values())
    return list(dict.fromkeys([*request.get("RequestItems", ()), *(part["TableName"] for part in actions)]))


def backoff_seconds(attempt: int, chance: float) -> float:
    """Full jitter: up to a bound that doubles with each attempt. The first attempt is 1."""
    return backoff(attempt - 1, BACKOFF_BASE_SECONDS, BACKOFF_SECONDS_MAX, chance - 1)
