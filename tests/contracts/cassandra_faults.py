"""A connection to Cassandra that loses requests and answers, as a test asks for."""

from collections.abc import Callable, Sequence

from cassandra import OperationTimedOut

from parley.store.cassandra.connection import CassandraConnection, OnError, OnRows, Row, Statement

Wanted = Callable[[Sequence[Statement]], bool]


def nothing(_: Sequence[Statement]) -> bool:
    return False


def appends(statements: Sequence[Statement]) -> bool:
    """The batch of an append: a fence, and entries."""
    return len(statements) > 1 and any("wire)" in cql for cql, _ in statements)


class FaultyConnection(CassandraConnection):
    """Shares the session of another one. `loses_answer` and `loses_request` are asked once each time."""

    def __init__(self, behind: CassandraConnection) -> None:
        super().__init__(behind.address)
        self._behind = behind
        self.loses_answer: Wanted = nothing
        self.loses_request: Wanted = nothing
        self.before: Callable[[Sequence[Statement]], None] = lambda _: None
        self.lost = 0

    def connect(self) -> None:
        self._behind.connect()

    def use_keyspace(self) -> None:
        self._behind.use_keyspace()

    def is_prepared(self, statements: Sequence[Statement]) -> bool:
        return self._behind.is_prepared(statements)

    def prepare(self, statements: Sequence[Statement]) -> None:
        self._behind.prepare(statements)

    def send(
        self,
        statements: Sequence[Statement],
        on_rows: OnRows,
        on_error: OnError,
        *,
        is_serial: bool = False,
        page: bytes | None = None,
        page_size: int = 1_000,
    ) -> None:
        def lose(_: list[Row], __: bytes | None) -> None:
            on_error(OperationTimedOut())

        self.before(statements)
        if self.loses_request(statements):
            self.lost += 1
            on_error(OperationTimedOut())
            return
        if self.loses_answer(statements):
            self.lost += 1
            on_rows = lose
        self._behind.send(statements, on_rows, on_error, is_serial=is_serial, page=page, page_size=page_size)
