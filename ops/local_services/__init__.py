"""Kafka, DynamoDB Local and Redis on this machine, for development, tests and benchmarks.

Only the standard library is used: the script runs before `.venv` exists. From the bottom up:

    faults     what a person is told
    processes  processes that outlive the script, known by id and start time
    ports      free ports of this machine
    cache      what was fetched, once for all checkouts
    fetching   package managers: Maven, pip and apt
    service    what a service is; kafka, dynamodb and redis are the three
    state      what runs in a data folder
    instance   one service in one data folder
    promtool   no service: what tries the alerts, fetched like the others
    service_set  up, down, kill, start, reset
    cli        the verbs of `ops/services`
"""

from ops.local_services.faults import ServiceError
from ops.local_services.service_set import NAMES, ServiceSet

__all__ = ["NAMES", "ServiceError", "ServiceSet"]
