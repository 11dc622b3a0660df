"""A client whose requests never leave the process: each is answered by a script."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from parley.store.dynamodb.driver import Dynamo, Fault, Request, Response, Send, fixed_credentials
from parley.telemetry import Metrics

Step = Response | Fault
OK = Response(200, {})


class Script:
    """Answers requests in order, the last step for ever, and remembers what was asked."""

    def __init__(self, *steps: Step) -> None:
        self._steps = list(steps)
        self.asked: list[tuple[str, Request]] = []

    def __call__(self, operation: str, request: Request) -> Fault:
        self.asked.append((operation, request))
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        return answering(step) if isinstance(step, Response) else step


def answering(answer: Response) -> Fault:
    async def answered(operation: str, request: Request, send: Send) -> Response:
        return answer

    return answered


def refused(code: str, **more: Any) -> Response:
    return Response(400, {"__type": f"#{code}", "message": "no", **more})


@asynccontextmanager
async def scripted(
    script: Script, *, chance: float = 0.0, metrics: Metrics | None = None
) -> AsyncIterator[Dynamo]:
    dynamo = Dynamo(
        "http://127.0.0.1:9",
        "us-east-1",
        prefix="p_",
        credentials=fixed_credentials("key", "secret"),
        metrics=metrics,
        random=lambda: chance,
        faults=script,
    )
    await dynamo.open()
    try:
        yield dynamo
    finally:
        await dynamo.close()
