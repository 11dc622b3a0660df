"""A thin asynchronous client of DynamoDB, on aiohttp and msgspec.

    dynamo = Dynamo("", "eu-central-1", prefix="parley-")
    await dynamo.open()
    await dynamo.put("chats", {"chat_id": "c"}, condition="attribute_not_exists(chat_id)")
    item = await dynamo.get("chats", {"chat_id": "c"})

What it promises:

* **Outcome.** A write that returns is durable. `ConditionFailed`, `TransactionCanceled` and
  `StoreUnavailable` mean that nothing was written. `OutcomeUnknown` means that it may have been written:
  the caller reads, or repeats a write that is harmless to do twice (`retry_unknown`).
* **Retries.** A read is retried after every temporary failure. A write is retried only when it was
  certainly not done. Pauses double and have full jitter.
* **Deadlines.** An attempt fails after `CONNECT_SECONDS_MAX` without a connection, or after
  `ANSWER_SECONDS_MAX` in which no byte of the response came. No attempt begins after `DEADLINE_SECONDS`.
* **Capacity.** Every response reports the units that it consumed: `dynamo.capacity` and the metrics add
  them up by operation.

Items are plain dictionaries of text, whole numbers, bytes, booleans and None.
"""

from __future__ import annotations

from parley.concurrency import map_concurrently
from parley.store.dynamodb.driver.auth import (
    Credentials,
    FindCredentials,
    credentials_from,
    fixed_credentials,
)
from parley.store.dynamodb.driver.client import (
    ACTIONS_MAX,
    ANSWER_SECONDS_MAX,
    BATCH_GET_MAX,
    CONNECT_SECONDS_MAX,
    CONNECTIONS_MAX,
    DEADLINE_SECONDS,
    Capacity,
    Dynamo,
    Fault,
    Faults,
    Request,
    Send,
    retry_unknown,
)
from parley.store.dynamodb.driver.items import (
    Action,
    ConditionCheck,
    Delete,
    Item,
    ItemPage,
    Put,
    UpdateItem,
    Value,
    from_item,
    is_valid_key,
    number,
    to_item,
)
from parley.store.dynamodb.driver.responses import (
    CancellationReason,
    ConditionFailed,
    RequestRejected,
    Response,
    TransactionCanceled,
    backoff_seconds,
)

__all__ = [
    "ACTIONS_MAX",
    "ANSWER_SECONDS_MAX",
    "BATCH_GET_MAX",
    "CONNECTIONS_MAX",
    "CONNECT_SECONDS_MAX",
    "DEADLINE_SECONDS",
    "Action",
    "CancellationReason",
    "Capacity",
    "ConditionCheck",
    "ConditionFailed",
    "Credentials",
    "Delete",
    "Dynamo",
    "Fault",
    "Faults",
    "FindCredentials",
    "Item",
    "ItemPage",
    "Put",
    "Request",
    "RequestRejected",
    "Response",
    "Send",
    "TransactionCanceled",
    "UpdateItem",
    "Value",
    "backoff_seconds",
    "credentials_from",
    "fixed_credentials",
    "from_item",
    "is_valid_key",
    "map_concurrently",
    "number",
    "retry_unknown",
    "to_item",
]
