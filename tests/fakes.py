"""What several unit tests build on."""

from parley.core.cluster_keys import ClusterKeys
from parley.gateway.hub import Hub
from parley.gateway.interests import Interest, NoInterest
from parley.gateway.subscribers import Subscribers
from parley.sending.pending import PendingSends
from parley.store.ports import Batching, Directory, Log
from parley.telemetry import Metrics
from parley.traces.flight_recorder import FlightRecorder

KEYS = ClusterKeys("the secret of a cluster in tests")
"""Of nodes that tests put together without a configuration."""
ONE_APPEND_AT_A_TIME = Batching(per_chat=False, appends_at_once_max=1)
PER_CHAT = Batching(per_chat=True, appends_at_once_max=256)
"""As a log wants it that commits chat by chat."""


def hub_over(
    log: Log,
    directory: Directory,
    metrics: Metrics,
    pending: PendingSends | None = None,
    interest: Interest | None = None,
    subscribers: Subscribers | None = None,
) -> Hub:
    """A hub without a node around it."""
    return Hub(
        log=log,
        directory=directory,
        subscribers=subscribers or Subscribers(),
        pending_sends=pending or PendingSends(),
        chat_changed=lambda _, __: None,
        metrics=metrics,
        fault_point=lambda _: None,
        recorder=FlightRecorder("node", lambda: 1, lambda _: ()),
        interest=interest or NoInterest(),
    )
