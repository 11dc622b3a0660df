"""Rule: a number in a page is the one in the code. Pages that state one of these name it here."""

import pytest

from parley.bus import publisher, sweeper
from parley.ephemeral import ports as ephemeral
from parley.gateway import hub
from parley.store import buffered_cursors as shared_cursors
from parley.store import published_marks as outbox
from parley.store import shared as shared_store
from parley.store.cassandra.records import CassandraRecords
from parley.store.dynamodb import entries
from parley.store.dynamodb.records import DynamoRecords
from parley.store.invariants import INVARIANTS
from parley.store.sqlite import cursors
from parley.store.sqlite import log as sqlite_log
from parley.store.sqlite.inspection import SqliteInspection
from parley.store.sqlite.records import SqliteRecords
from parley.wire import limits
from tests.tidy.repository import ROOT

MS = 1_000
RIDE = (cursors.FLUSH_AFTER_SECONDS * MS, shared_cursors.FLUSH_AFTER_SECONDS)
RESTS = tuple(kind.rest_seconds for kind in (SqliteRecords, CassandraRecords, DynamoRecords))
SHOWN = (len(INVARIANTS) - len(SqliteInspection.not_shown),)
SEAL = (sqlite_log.SEAL_AFTER_MS / MS, shared_store.SEAL_AFTER_MS / MS)

STATED: list[tuple[str, str, tuple[float, ...]]] = [
    ("PROTOCOL", "within {} ms on SQLite and within {} seconds on a shared store", RIDE),
    ("ARCHITECTURE", "at the latest after {} ms; on a shared store", RIDE[:1]),
    ("ARCHITECTURE", "they are written at the latest after {} s", RIDE[1:]),
    ("people", "at the latest {} ms after they came ({} s on a shared store", RIDE),
    ("positions-on-dynamodb", "only the highest is written, {} seconds later at the most", RIDE[1:]),
    ("the-log", "A number that stays open for {} seconds becomes a void", SEAL[:1]),
    ("the-log-on-dynamodb", "A hole is sealed {} seconds after a node first saw it", SEAL[1:]),
    ("runbooks", "up to {} seconds on SQLite, on a shared store {} seconds", SEAL),
    ("the-log-on-dynamodb", "`ttl` after {} days", (entries.KEY_DAYS,)),
    ("the-log", "outlasts the promised {} days", (limits.IDEMPOTENCY_DAYS,)),
    ("client-duties", "resending a message older than {} days", (limits.IDEMPOTENCY_DAYS,)),
    ("fan-out", "If positions are still missing after {} ms", (hub.FILL_AFTER_SECONDS * MS,)),
    ("fan-out", "once it has not moved for {} seconds", (outbox.QUIET_SECONDS,)),
    ("fan-out", "reads every {} seconds which chats", (sweeper.SWEEP_SECONDS,)),
    ("fan-out", "whose mark has not moved for {} seconds", (sweeper.SWEEP_AFTER_MS / MS,)),
    ("fan-out", "longer than {} seconds, it is refused as", (publisher.CONFIRM_SECONDS_MAX,)),
    (
        "ephemeral",
        "{} s after the last announcement; each node announces itself every {} s",
        (ephemeral.NODE_LEASE_SECONDS, ephemeral.NODE_RENEW_SECONDS),
    ),
    ("ephemeral", "{} s after the last renewal", (ephemeral.DEVICE_LEASE_SECONDS,)),
    ("proof", "({} s on SQLite, {} s on Cassandra, {} s on DynamoDB", RESTS),
    ("../README", "All {} invariants hold", SHOWN),
    ("backup-and-migration", "All {} invariants hold", SHOWN),
]


def states(page: str, phrase: str, numbers: tuple[float, ...]) -> bool:
    """Whether a page says this with these numbers, wherever its lines end."""
    return phrase.format(*(f"{number:g}" for number in numbers)) in " ".join(page.split())


@pytest.mark.parametrize(("page", "phrase", "numbers"), STATED)
def test_a_page_states_the_number_of_the_code(page: str, phrase: str, numbers: tuple[float, ...]) -> None:
    """What a page says a thing takes is what the constant says."""
    assert states((ROOT / f"docs/{page}.md").read_text("utf-8"), phrase, numbers), (
        f"docs/{page}.md does not say: {phrase.format(*(f'{number:g}' for number in numbers))}"
    )


def test_another_number_is_caught() -> None:
    """A page that states another number, or none, is seen; where its lines end does not matter."""
    page = "It rides at the latest\n  after 50 ms."
    assert states(page, "at the latest after {} ms", (50.0,))
    assert not states(page, "at the latest after {} ms", (60.0,))
    assert not states(page, "at the latest after {} s", (50.0,))
