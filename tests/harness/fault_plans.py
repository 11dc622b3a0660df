"""Faults of DynamoDB that a test chooses one by one."""

from collections.abc import Iterable

from parley.store.dynamodb.driver import Fault, Request


class Planned:
    """Faults in a given order: each operation gets its own, one by one; None lets a request pass."""

    def __init__(self, **plans: Iterable[Fault | None]) -> None:
        self._plans = {operation: iter(plan) for operation, plan in plans.items()}

    def __call__(self, operation: str, request: Request) -> Fault | None:
        return next(self._plans.get(operation, iter(())), None)
