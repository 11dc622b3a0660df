"""What `parley doctor` says of a keyspace: where it is, how fast it answers, and whether it is safe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from parley.clock import MS_PER_SECOND
from parley.store.cassandra.client import Cassandra
from parley.store.cassandra.schema import MARK, READ_MARK, TABLES, VERSION, check_tables
from parley.store.rows import Finding

ROUND_TRIPS_MEASURED = 5
SLOW_MS = 25.0
REPLICAS_MIN = 3
READ_CLUSTER = "SELECT cluster_name, release_version, data_center FROM system.local"
READ_REPLICATION = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?"


async def diagnose(cassandra: Cassandra) -> AsyncIterator[Finding]:
    await cassandra.connect()
    local = await cassandra.row(READ_CLUSTER) or {}
    bucket_positions = await check_tables(cassandra)
    milliseconds = await _round_trip_ms(cassandra)
    says = (
        f"{local.get('release_version')} at {cassandra.where}, cluster {local.get('cluster_name')},"
        f" {milliseconds:.1f} ms to answer"
    )
    if milliseconds > SLOW_MS:
        yield Finding("look", "Cassandra", says, "nodes should run in the datacenter of their replicas")
    else:
        yield Finding("ok", "Cassandra", says)
    yield await _replication(cassandra)
    says = f"{len(TABLES)} as they should be, version {VERSION}, {bucket_positions:,} positions in a bucket"
    yield Finding("ok", "tables", says)


async def _round_trip_ms(cassandra: Cassandra) -> float:
    time = asyncio.get_running_loop().time
    started = time()
    for _ in range(ROUND_TRIPS_MEASURED):
        await cassandra.row(READ_MARK, MARK)
    return (time() - started) * MS_PER_SECOND / ROUND_TRIPS_MEASURED


async def _replication(cassandra: Cassandra) -> Finding:
    """Conditions are decided by a quorum of the local datacenter, so it must have replicas, and enough."""
    row = await cassandra.row(READ_REPLICATION, cassandra.keyspace)
    options = dict(row["replication"]) if row is not None else {}
    local_dc = cassandra.connection.address.local_dc
    replicas = options.get(local_dc, options.get("replication_factor", "0"))
    says = f"{replicas} of {cassandra.keyspace} in {local_dc}"
    count = int(replicas) if replicas.isdecimal() else 0
    if count == 0:
        remedy = f"ALTER KEYSPACE {cassandra.keyspace} so that {local_dc} has 3, or set cassandra.local_dc"
        return Finding("wrong", "replicas", says, remedy)
    if count < REPLICAS_MIN:
        remedy = "with 3 the store outlives the loss of one node; ALTER KEYSPACE, then repair it"
        return Finding("look", "replicas", says, remedy)
    return Finding("ok", "replicas", says)
