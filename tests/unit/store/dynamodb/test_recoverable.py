"""Whether tables can be brought back to a point in time, as an endpoint says it."""

import pytest

from parley.store.dynamodb.driver import Response
from parley.store.dynamodb.schema import is_recoverable
from tests.unit.dynamodb.scripted import Script, refused, scripted


def described(status: str) -> Response:
    recovery = {"PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": status}}
    return Response(200, {"ContinuousBackupsDescription": recovery})


@pytest.mark.parametrize(
    ("answer", "recoverable"),
    [
        (described("ENABLED"), True),
        (described("DISABLED"), False),
        (refused("TableNotFoundException"), False),
        (refused("UnknownOperationException"), None),
    ],
)
async def test_an_endpoint_without_recovery_is_told_apart(answer: Response, recoverable: bool | None) -> None:
    """Off is something to switch on; where there is none, nobody can."""
    async with scripted(Script(answer)) as dynamo:
        assert await is_recoverable(dynamo) is recoverable
