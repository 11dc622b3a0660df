"""What DynamoDB's answers mean: pure decisions about errors, retries and capacity.

Every failure is one of three kinds. `NOT_DONE`: certainly nothing was written, and it may work later.
`OPEN`: perhaps it was done. `FINAL`: it was refused and will be again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from msgspec import Struct

from parley.errors import OutcomeUnknown, StoreError, StoreUnavailable
from parley.store.dynamodb.values import Item, from_item
from parley.telemetry import Metrics

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
STRANGERS = frozenset(
    {
        "IncompleteSignatureException",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "UnrecognizedClientException",
    }
)
"""Credentials that DynamoDB does not accept at all."""


class Answer(NamedTuple):
    """One HTTP answer, its JSON decoded."""

    status: int
    body: dict[str, Any]


class Reason(Struct):
    """Why one action stopped its transaction; `code` is "None" for an action that did not."""

    code: str
    item: Item | None = None


class ConditionFailed(StoreError):
    """The condition did not hold; `item` is what stood there, None if nothing did."""

    def __init__(self, item: Item | None = None) -> None:
        super().__init__("the condition did not hold")
        self.item = item


class TransactionCanceled(StoreError):
    """Nothing was written, and sending it again will not help. One reason for each action, in order."""

    def __init__(self, reasons: list[Reason]) -> None:
        super().__init__("canceled: " + ", ".join(reason.code for reason in reasons))
        self.reasons = reasons


class Rejected(StoreUnavailable):
    """DynamoDB refused a request as such: credentials, tables, validation. `code` is DynamoDB's own."""

    def __init__(self, code: str, says: str) -> None:
        super().__init__(says)
        self.code = code


class Fate(Enum):
    NOT_DONE = "not done"
    OPEN = "open"
    FINAL = "final"


class Trouble(Struct):
    """A request that did not succeed."""

    fate: Fate
    code: str
    says: str
    item: Item | None = None
    reasons: list[Reason] | None = None

    def is_worth_retrying(self, is_write: bool) -> bool:
        if self.code == UNREACHABLE:
            return not is_write
        return self.fate is Fate.NOT_DONE or (self.fate is Fate.OPEN and not is_write)

    def error(self, is_write: bool) -> StoreError:
        """What the caller is told."""
        if self.code == "ConditionalCheckFailedException":
            return ConditionFailed(self.item)
        if is_write and (self.fate is Fate.OPEN or self.code == "TransactionInProgressException"):
            return OutcomeUnknown(self.says)
        if self.fate is Fate.FINAL:
            return TransactionCanceled(self.reasons) if self.reasons else Rejected(self.code, self.says)
        return StoreUnavailable(self.says)


UNREACHABLE = "unreachable"
"""The code of a connection that could not be opened: nothing was sent."""

LOST = "lost"
"""The code of an answer that never came, or not whole."""


def unreachable(endpoint: str, error: BaseException) -> Trouble:
    return Trouble(Fate.NOT_DONE, UNREACHABLE, f"DynamoDB at {endpoint} cannot be reached: {_words(error)}")


def lost(operation: str, error: BaseException) -> Trouble:
    return Trouble(Fate.OPEN, LOST, f"DynamoDB did not answer {operation}: {_words(error)}")


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


def trouble_in(operation: str, request: Mapping[str, Any], answer: Answer) -> Trouble:
    """What an answer other than 200 means."""
    body = answer.body
    code = str(body.get("__type", "")).rpartition("#")[2]
    message = str(body.get("message") or body.get("Message") or "no reason given")
    if code == "TransactionCanceledException":
        return _canceled(body, message)
    if code == "ConditionalCheckFailedException":
        old = body.get("Item")
        return Trouble(Fate.FINAL, code, message, item=from_item(old) if old else None)
    if code in NOT_DONE_CODES:
        return Trouble(Fate.NOT_DONE, code, f"DynamoDB is busy with {operation}: {code}")
    if answer.status >= 500 or not code:
        return Trouble(Fate.OPEN, code or LOST, f"DynamoDB failed at {operation}: {answer.status} {message}")
    return Trouble(Fate.FINAL, code, _sentence(operation, request, code, message))


def _canceled(body: Mapping[str, Any], message: str) -> Trouble:
    reasons = [
        Reason(reason.get("Code", "None"), from_item(reason["Item"]) if reason.get("Item") else None)
        for reason in body.get("CancellationReasons", ())
    ]
    codes = {reason.code for reason in reasons}
    if reasons and codes <= RETRYABLE_REASONS:
        why = ", ".join(sorted(codes - {"None"}))
        return Trouble(
            Fate.NOT_DONE, "TransactionCanceledException", f"DynamoDB is busy: {why}", None, reasons
        )
    return Trouble(Fate.FINAL, "TransactionCanceledException", message, None, reasons)


def _sentence(operation: str, request: Mapping[str, Any], code: str, message: str) -> str:
    if code == "ResourceNotFoundException":
        return f"DynamoDB has no table {' or '.join(tables_of(request))} here: run parley store init"
    if code in STRANGERS:
        return f"DynamoDB does not accept these credentials: {message}"
    if code == "AccessDeniedException":
        return f"these credentials may not do {operation}: {message}"
    return f"DynamoDB refused {operation}: {code}: {message}"


def tables_of(request: Mapping[str, Any]) -> list[str]:
    """Every table that a request names, once."""
    if "TableName" in request:
        return [request["TableName"]]
    actions = (part for action in request.get("TransactItems", ()) for part in action.values())
    return list(dict.fromkeys([*request.get("RequestItems", ()), *(part["TableName"] for part in actions)]))


def backoff_seconds(attempt: int, chance: float) -> float:
    """Full jitter: anything up to a bound that doubles with each attempt, from the first (1) on."""
    return chance * min(BACKOFF_SECONDS_MAX, BACKOFF_BASE_SECONDS * 2.0 ** (attempt - 1))


class Capacity:
    """What was consumed, counted by operation. Failed requests consume too, and DynamoDB does not tell."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._metrics = metrics
        self.write_units: Counter[str] = Counter()
        self.read_units: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.retries: Counter[str] = Counter()

    def note_request(self, operation: str) -> None:
        self.requests[operation] += 1
        if self._metrics is not None:
            self._metrics.dynamodb_requests.labels(operation).inc()

    def note_retry(self, operation: str) -> None:
        self.retries[operation] += 1
        if self._metrics is not None:
            self._metrics.dynamodb_retries.labels(operation).inc()

    def note_answer(self, operation: str, body: Mapping[str, Any]) -> None:
        consumed = body.get("ConsumedCapacity")
        if consumed is None:
            return
        parts = consumed if isinstance(consumed, list) else (consumed,)
        units = sum(part["CapacityUnits"] for part in parts)
        (self.write_units if operation in WRITES else self.read_units)[operation] += units
        if self._metrics is not None:
            self._metrics.dynamodb_units.labels(operation).inc(units)
