"""What DynamoDB's answers mean for whoever asked."""

from typing import Any

import pytest

from parley.errors import OutcomeUnknown, StoreError, StoreUnavailable
from parley.store.dynamodb.driver import (
    Capacity,
    ConditionFailed,
    RequestRejected,
    Response,
    TransactionCanceled,
    backoff_seconds,
)
from parley.store.dynamodb.driver.responses import BACKOFF_SECONDS_MAX, Failure, failure_in

REQUEST = {"TableName": "parley_chats"}


def refusal(code: str, message: str = "no", status: int = 400, **more: Any) -> Failure:
    body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message, **more}
    return failure_in("PutItem", REQUEST, Response(status, body))


def canceled(*codes: str) -> Failure:
    reasons = [{"Code": code, "Message": "why"} for code in codes]
    return refusal("TransactionCanceledException", CancellationReasons=reasons)


def error_of(trouble: Failure, is_write: bool = True) -> StoreError:
    return trouble.error(is_write)


@pytest.mark.parametrize(
    "code",
    [
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "RequestLimitExceeded",
        "TransactionConflictException",
        "ExpiredTokenException",
    ],
)
@pytest.mark.parametrize("is_write", [True, False])
def test_what_was_certainly_not_done_is_tried_again(code: str, is_write: bool) -> None:
    """Throttling and conflicts are retried, for reads and writes, and end as unavailable."""
    trouble = refusal(code)
    assert trouble.should_retry(is_write)
    assert type(error_of(trouble, is_write)) is StoreUnavailable


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_failure_of_the_server_leaves_a_write_open(status: int) -> None:
    """After a 5xx a read is tried again, and a write is not: it may be done."""
    trouble = refusal("InternalServerError", status=status)
    assert trouble.should_retry(is_write=False)
    assert not trouble.should_retry(is_write=True)
    assert type(error_of(trouble)) is OutcomeUnknown
    assert type(error_of(trouble, is_write=False)) is StoreUnavailable


def test_an_answer_of_something_in_between_is_open() -> None:
    """An answer that is none of DynamoDB's says nothing about a write."""
    assert type(error_of(failure_in("PutItem", REQUEST, Response(400, {})))) is OutcomeUnknown


def test_a_transaction_in_progress_is_open_in_the_end() -> None:
    """The same transaction is under way already, so after the last attempt its outcome is not known."""
    trouble = refusal("TransactionInProgressException")
    assert trouble.should_retry(is_write=True)
    assert type(error_of(trouble)) is OutcomeUnknown


def test_a_failed_condition_carries_what_stood_there() -> None:
    """A condition that did not hold is never retried and shows the item in its place."""
    trouble = refusal("ConditionalCheckFailedException", Item={"head": {"N": "7"}})
    error = error_of(trouble)
    assert isinstance(error, ConditionFailed)
    assert error.item == {"head": 7}
    assert not trouble.should_retry(is_write=True)


def test_a_failed_condition_on_nothing_carries_none() -> None:
    """Where no item stood, none is shown."""
    error = error_of(refusal("ConditionalCheckFailedException"))
    assert isinstance(error, ConditionFailed)
    assert error.item is None


@pytest.mark.parametrize(
    "codes",
    [
        ("TransactionConflict", "None"),
        ("None", "ThrottlingError", "TransactionConflict"),
        ("ProvisionedThroughputExceeded",),
        ("TransactionInProgress",),
    ],
)
def test_a_transaction_that_met_others_is_tried_again(codes: tuple[str, ...]) -> None:
    """Reasons that pass by themselves are retried, and end as unavailable: nothing was written."""
    trouble = canceled(*codes)
    assert trouble.should_retry(is_write=True)
    assert type(error_of(trouble)) is StoreUnavailable


@pytest.mark.parametrize(
    "codes", [("ConditionalCheckFailed", "TransactionConflict"), ("None", "ValidationError")]
)
def test_a_transaction_that_cannot_succeed_is_canceled(codes: tuple[str, ...]) -> None:
    """One reason that stays is enough, and each action's reason is told in order."""
    trouble = canceled(*codes)
    assert not trouble.should_retry(is_write=True)
    error = error_of(trouble)
    assert isinstance(error, TransactionCanceled)
    assert tuple(reason.code for reason in error.reasons) == codes


def test_a_cancellation_shows_each_item() -> None:
    """The item that made an action fail comes with its reason."""
    reasons = [{"Code": "ConditionalCheckFailed", "Item": {"head": {"N": "3"}}}, {"Code": "None"}]
    error = error_of(refusal("TransactionCanceledException", CancellationReasons=reasons))
    assert isinstance(error, TransactionCanceled)
    assert [reason.item for reason in error.reasons] == [{"head": 3}, None]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("ResourceNotFoundException", "no table parley_chats: run parley store init"),
        ("UnrecognizedClientException", "does not accept these credentials"),
        ("InvalidSignatureException", "does not accept these credentials"),
        ("AccessDeniedException", "these credentials may not do PutItem"),
        ("ValidationException", "refused PutItem"),
        ("IdempotentParameterMismatchException", "refused PutItem"),
    ],
)
def test_a_rejection_is_a_sentence(code: str, says: str) -> None:
    """What will not work later either is told in a sentence, at once, and nothing was written."""
    trouble = refusal(code, "because")
    error = error_of(trouble)
    assert isinstance(error, RequestRejected)
    assert isinstance(error, StoreUnavailable)
    assert says in str(error)
    assert error.code == code
    assert not trouble.should_retry(is_write=False)


def test_a_missing_table_of_a_transaction_is_named() -> None:
    """Of a transaction, every table that may be the missing one is named once."""
    actions = [{"Put": {"TableName": "a"}}, {"Update": {"TableName": "b"}}, {"Put": {"TableName": "a"}}]
    answer = Response(400, {"__type": "x#ResourceNotFoundException"})
    assert "no table a or b" in failure_in("TransactWriteItems", {"TransactItems": actions}, answer).message


def test_pauses_grow_up_to_a_bound() -> None:
    """The longest possible pause doubles with each attempt and ends at its bound; the shortest is none."""
    longest = [backoff_seconds(attempt, 1.0) for attempt in range(1, 12)]
    assert longest[1] == 2 * longest[0]
    assert max(longest) == BACKOFF_SECONDS_MAX
    assert backoff_seconds(5, 0.0) == 0


def test_units_are_counted_by_what_they_paid_for() -> None:
    """Write units and read units are summed apart, for one table and for several."""
    capacity = Capacity()
    capacity.count_units("PutItem", {"ConsumedCapacity": {"CapacityUnits": 2.0}})
    capacity.count_units("TransactWriteItems", {"ConsumedCapacity": [{"CapacityUnits": 4.0}] * 2})
    capacity.count_units("Query", {"ConsumedCapacity": {"CapacityUnits": 0.5}})
    capacity.count_units("DescribeTable", {})
    assert dict(capacity.write_units) == {"PutItem": 2.0, "TransactWriteItems": 8.0}
    assert dict(capacity.read_units) == {"Query": 0.5}
