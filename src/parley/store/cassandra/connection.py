"""The driver: one cluster, one session, and its statements. Everything here may block, except `send`."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Any

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, ResultSet
from cassandra.policies import DCAwareRoundRobinPolicy, FallthroughRetryPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BatchType, BoundStatement, PreparedStatement, dict_factory
from msgspec import Struct

CONNECT_SECONDS_MAX = 10.0
ANSWER_SECONDS_MAX = 4.0
"""Longer than the servers' own timeouts of 2 s: a server that answers late says what it knows."""
DEFINE_SECONDS_MAX = 60.0
HEARTBEAT_SECONDS = 2.0
HEARTBEAT_SECONDS_MAX = 2.0
"""A node that hangs with its connections open is left alone after so long without an answer."""
ROWS_PER_PAGE = 1_000
PROTOCOL_VERSION = 5
"""Of Cassandra 4.0 and later; it checks every frame, and a statement may name its keyspace."""

Values = Sequence[object]
Statement = tuple[str, Values]
Row = dict[str, Any]
OnRows = Callable[[list[Row], bytes | None], None]
OnError = Callable[[Exception], None]


class Address(Struct, frozen=True, kw_only=True):
    """Where a cluster is, and how it is entered. `local_dc`: the datacenter of this node's replicas."""

    contact_points: tuple[str, ...]
    port: int = 9042
    keyspace: str = "parley"
    local_dc: str = "datacenter1"
    username: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None


class CassandraConnection:
    """LOCAL_QUORUM for reads and writes, LOCAL_SERIAL for conditions. The driver repeats nothing itself."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._cluster: Any = None  # the driver has no types
        self._session: Any = None
        self._prepared: dict[str, PreparedStatement] = {}
        self._preparing = threading.Lock()

    def connect(self) -> None:
        """Idempotent. Raises the driver's errors."""
        if self._session is not None:
            return
        address = self.address
        local = DCAwareRoundRobinPolicy(local_dc=address.local_dc)
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(local),
            retry_policy=FallthroughRetryPolicy(),
            consistency_level=ConsistencyLevel.LOCAL_QUORUM,
            serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
            request_timeout=ANSWER_SECONDS_MAX,
            row_factory=dict_factory,
        )
        auth = PlainTextAuthProvider(address.username, address.password) if address.username else None
        cluster = Cluster(
            list(address.contact_points),
            port=address.port,
            protocol_version=PROTOCOL_VERSION,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            auth_provider=auth,
            ssl_context=address.tls,
            connect_timeout=CONNECT_SECONDS_MAX,
            control_connection_timeout=CONNECT_SECONDS_MAX,
            idle_heartbeat_interval=HEARTBEAT_SECONDS,
            idle_heartbeat_timeout=HEARTBEAT_SECONDS_MAX,
        )
        try:
            self._session = cluster.connect()
        except BaseException:
            cluster.shutdown()
            raise
        self._cluster = cluster

    def use_keyspace(self) -> None:
        """Every statement from now on is about the tables of this keyspace."""
        assert self._session is not None
        self._session.set_keyspace(self.address.keyspace)

    def execute(self, cql: str) -> list[Row]:
        """One statement as it is, for definitions of tables. It waits until all nodes agree."""
        assert self._session is not None
        return list(self._session.execute(cql, timeout=DEFINE_SECONDS_MAX))

    def is_prepared(self, statements: Sequence[Statement]) -> bool:
        return all(cql in self._prepared for cql, _ in statements)

    def prepare(self, statements: Sequence[Statement]) -> None:
        assert self._session is not None
        with self._preparing:
            for cql, _ in statements:
                if cql not in self._prepared:
                    self._prepared[cql] = self._session.prepare(cql)

    def send(
        self,
        statements: Sequence[Statement],
        on_rows: OnRows,
        on_error: OnError,
        *,
        is_serial: bool = False,
        page: bytes | None = None,
        page_size: int = ROWS_PER_PAGE,
    ) -> None:
        """Send one prepared statement, or several as a batch. One of the two is called, on another thread."""
        assert self._session is not None
        request = self._bound(*statements[0]) if len(statements) == 1 else self._batch(statements)
        if is_serial:
            request.consistency_level = ConsistencyLevel.LOCAL_SERIAL
        request.fetch_size = page_size
        future = self._session.execute_async(request, paging_state=page)
        future.add_callbacks(lambda rows: on_rows(rows or [], ResultSet(future, []).paging_state), on_error)

    def _bound(self, cql: str, values: Values) -> BoundStatement:
        return self._prepared[cql].bind(values)

    def _batch(self, statements: Sequence[Statement]) -> BatchStatement:
        """Not logged: it is about one partition, which applies a batch as a whole."""
        batch = BatchStatement(batch_type=BatchType.UNLOGGED)
        for cql, values in statements:
            batch.add(self._bound(cql, values))
        return batch

    def shutdown(self) -> None:
        """Ends the driver's threads and sockets."""
        if self._cluster is not None:
            self._cluster.shutdown()
        self._cluster = self._session = None
        self._prepared.clear()
