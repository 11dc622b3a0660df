"""Cassandra, Kafka, DynamoDB Local, Redis and an S3 server on this machine: to develop, test and measure.

Only the standard library is used: the script runs before `.venv` exists. From the bottom up:

    faults     the errors that users see
    processes  processes that outlive the script, identified by id and start time
    ports      free ports of this machine
    cache      downloaded programs, shared by all checkouts
    fetching   package managers: Maven, pip and apt
    service    the interface of a service; cassandra, kafka, dynamodb, redis and s3 implement it
    state      what runs in a data folder
    instance   one service in one data folder
    promtool, chromium   not services: test the alerts and the SDK of browsers, downloaded like the others
    service_set  up, down, kill, start, pause, resume, reset
    cli        the verbs of `ops/services`
"""

from ops.local_services.faults import ServiceError
from ops.local_services.service_set import CASSANDRA_GUARDED, CASSANDRA_RING, NAMES, ServiceSet

__all__ = ["CASSANDRA_GUARDED", "CASSANDRA_RING", "NAMES", "ServiceError", "ServiceSet"]
