"""Free ports of this machine."""

import random
import socket
from collections.abc import Iterable

from ops.local_services.faults import ServiceError

PORT_MIN, PORT_MAX = 20_000, 32_000
"""Below the range of Linux's source ports: while a killed service is down, a client that keeps connecting
could otherwise get the service's port as its own, or even connect to itself."""
TRIES_MAX = 200


def is_free(port: int) -> bool:
    """Whether no program listens on this port, on any interface."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Different free ports. Another program may take them a moment later."""
    candidates: Iterable[int] = random.sample(range(PORT_MIN, PORT_MAX), TRIES_MAX)
    found = [port for _, port in zip(range(count), filter(is_free, candidates), strict=False)]
    if len(found) < count:
        raise ServiceError(f"There is no free port between {PORT_MIN} and {PORT_MAX}.")
    return found
