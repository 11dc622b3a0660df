"""Free ports of this machine."""

import random
import socket
from collections.abc import Iterable

from ops.local_services.faults import ServiceError

PORT_MIN, PORT_MAX = 20_000, 32_000
"""Below the range that Linux takes source ports from: while a killed service is away, a client that keeps
connecting could otherwise be given the service's own port, or even be connected to itself."""
TRIES_MAX = 200


def is_free(port: int) -> bool:
    """Whether nobody listens there, on any interface."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """As many different free ports; who wants them must be ready to find them taken a moment later."""
    candidates: Iterable[int] = random.sample(range(PORT_MIN, PORT_MAX), TRIES_MAX)
    found = [port for _, port in zip(range(count), filter(is_free, candidates), strict=False)]
    if len(found) < count:
        raise ServiceError(f"There is no free port between {PORT_MIN} and {PORT_MAX}.")
    return found
