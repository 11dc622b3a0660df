"""What an operator asks of one node, whichever node the request came to. Pure."""

from __future__ import annotations

from msgspec import Raw, Struct

from parley.errors import Refusal
from parley.wire.operator_bodies import ConnectionList, JobRuns, NodeState, Series

NOTHING = b"\xc0"
"""MessagePack's nil."""


class SeriesQuestion(Struct, frozen=True, tag="series"):
    """The last so many seconds of these numbers; of all without names."""

    names: list[str]
    seconds: int


class ConnectionsQuestion(Struct, frozen=True, tag="connections"):
    """A page of its connections; of one person, if there is a `user_id`."""

    user_id: str
    after: str
    limit: int


class CloseOrder(Struct, frozen=True, tag="close"):
    """Close one connection."""

    connection_id: str


class DrainOrder(Struct, frozen=True, tag="drain"):
    """End, as SIGTERM does."""


class RunOrder(Struct, frozen=True, tag="run"):
    """Run a job now."""

    job: str


class RunsQuestion(Struct, frozen=True, tag="runs"):
    """The last runs of the jobs that it runs."""


class StateQuestion(Struct, frozen=True, tag="state"):
    """How it is."""


NodeQuestion = (
    SeriesQuestion | ConnectionsQuestion | CloseOrder | DrainOrder | RunOrder | RunsQuestion | StateQuestion
)
NodeFinding = Series | ConnectionList | JobRuns | NodeState | None
CHANGING = (CloseOrder, DrainOrder, RunOrder)
"""Of these it matters whether they were done."""


class NodeReply(Struct, frozen=True):
    """What a node found, packed, or why it refused."""

    found: Raw = Raw(NOTHING)
    refusal: Refusal | None = None
