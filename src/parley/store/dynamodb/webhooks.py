"""The ports of deliveries on DynamoDB, and the list of webhooks.

Workers ask for the list again and again. An item holds its revision, which every change moves in the same
transaction: as long as that is the same, one small strong read tells that the known list is right.
"""

from __future__ import annotations

import msgspec

from parley import ids
from parley.clock import Clock
from parley.dynamodb import (
    Dynamo,
)
from parley.store.dynamodb.dead_letters import DynamoDeadLetters
from parley.store.dynamodb.lanes import DynamoLanes

encode = msgspec.json.Encoder().encode


class DynamoDeliveries:
    def __init__(self, dynamo: Dynamo, clock: Clock, make_ids: ids.Ids) -> None:
        def make_token() -> str:
            return make_ids.next(ids.EVENT, clock())

        self.lanes = DynamoLanes(dynamo)
        self.dead_letters = DynamoDeadLetters(dynamo, make_token)
