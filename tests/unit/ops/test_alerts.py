"""Every shipped alert reads metrics that exist, and fires exactly beyond its own threshold."""

import re
import subprocess
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from parley.telemetry import Metrics
from tests.harness.clock import VirtualClock
from tests.services import promtool_program
from tests.tidy.repository import ROOT
from tests.tidy.test_links import anchors
from tests.unit.ops.evaluating import TARGET, History, Scrape, fires, names_in, scrape
from tests.waiting import stretched

ALERTS = ROOT / "ops/alerts.yml"
PROMTOOL_FETCH_SECONDS_MAX = 300
"""`make test` has fetched it before; a single run of this file may have to."""
MADE_BY_PROMETHEUS = {"up"}
MIB = 1024 * 1024


class Scene:
    """A server between two scrapes. `instead` holds values that only the machine or Prometheus can make."""

    def __init__(self) -> None:
        self.metrics = Metrics(VirtualClock())
        self.instead: dict[str, float] = {}

    def scrape(self) -> Scrape:
        found = scrape(self.metrics.text().decode())
        found.update({name: {frozenset(TARGET.items()): value} for name, value in self.instead.items()})
        return found


Play = Callable[[Scene], object]


class Case(NamedTuple):
    """An alert, what happens just within its threshold, and what happens just beyond it."""

    alert: str
    within: Play
    beyond: Play


def batches(failed: int, stored: int) -> Play:
    def play(scene: Scene) -> None:
        scene.metrics.sequence_allocation_errors.inc(failed)
        for _ in range(stored):
            scene.metrics.allocation_seconds.observe(0.001)

    return play


def commits(slow: int, fast: int) -> Play:
    def play(scene: Scene) -> None:
        for seconds, count in ((0.11, slow), (0.1, fast)):
            for _ in range(count):
                scene.metrics.commit_seconds.observe(seconds)
                scene.metrics.fanout_seconds.observe(seconds)

    return play


def missing_counters(count: int) -> Play:
    def play(scene: Scene) -> None:
        scene.metrics.counter_missing_errors.inc(count)

    return play


def refusals(code: str, count: int) -> Play:
    return lambda scene: scene.metrics.refusals.labels(code).inc(count)


def instead(**values: float) -> Play:
    return lambda scene: scene.instead.update(values)


def store_available(available: bool) -> Play:
    return lambda scene: scene.metrics.store_available.register(lambda: available)


def in_doubt(is_doubtful: bool) -> Play:
    return lambda scene: scene.metrics.interest_doubt.register(lambda: is_doubtful)


def ephemeral_available(available: bool) -> Play:
    return lambda scene: scene.metrics.ephemeral_available.register(lambda: available)


def stalled(seconds: float) -> Play:
    return lambda scene: scene.metrics.publish_stalled_seconds.register(lambda: seconds)


def overdue(is_overdue: bool) -> Play:
    return lambda scene: scene.metrics.job_overdue.register(lambda: is_overdue, "outbox_sweep")


def lagging(events: int) -> Play:
    return lambda scene: scene.metrics.consumer_lag.register(lambda: events, "live")


CASES = [
    Case(
        "ParleySequenceAllocationSlow",
        lambda scene: scene.metrics.allocation.add(0.05),
        lambda scene: scene.metrics.allocation.add(0.0501),
    ),
    Case(
        "ParleyPersistSlow",
        lambda scene: scene.metrics.persist.add(0.1),
        lambda scene: scene.metrics.persist.add(0.1001),
    ),
    Case("ParleySequenceAllocationErrors", batches(failed=1, stored=999), batches(failed=1, stored=998)),
    Case("ParleyCounterMissing", missing_counters(0), missing_counters(1)),
    Case(
        "ParleyRetryStorm",
        lambda scene: scene.metrics.retries.add(100, 1000),
        lambda scene: scene.metrics.retries.add(101, 1000),
    ),
    Case(
        "ParleySequenceGaps",
        lambda scene: scene.metrics.gaps.add(50, 1000),
        lambda scene: scene.metrics.gaps.add(51, 1000),
    ),
    Case(
        "ParleyTransactionConflicts",
        lambda scene: scene.metrics.conflicts.add(10, 1000),
        lambda scene: scene.metrics.conflicts.add(11, 1000),
    ),
    Case(
        "ParleyHotChat",
        lambda scene: scene.metrics.hot_chats.add("chat_a", 100),
        lambda scene: scene.metrics.hot_chats.add("chat_a", 101),
    ),
    Case("ParleyDown", instead(up=1), instead(up=0)),
    Case("ParleyStoreUnavailable", store_available(True), store_available(False)),
    Case(
        "ParleyStoreDamaged", lambda scene: None, lambda scene: scene.metrics.damage.met("table entries", 0)
    ),
    Case("ParleyEphemeralUnavailable", ephemeral_available(True), ephemeral_available(False)),
    Case("ParleyEntriesNotRouted", in_doubt(False), in_doubt(True)),
    Case("ParleyPublishStalled", stalled(30), stalled(30.1)),
    Case("ParleyConsumerLag", lagging(10_000), lagging(10_001)),
    Case(
        "ParleyEventsSwept",
        lambda scene: scene.metrics.swept.inc(0),
        lambda scene: scene.metrics.swept.inc(1),
    ),
    Case(
        "ParleyCommitFailed",
        lambda scene: scene.metrics.commit_failures.inc(0),
        lambda scene: scene.metrics.commit_failures.inc(1),
    ),
    Case(
        "ParleySearchBehind",
        lambda scene: scene.metrics.search_lag.register(lambda: 600),
        lambda scene: scene.metrics.search_lag.register(lambda: 601),
    ),
    Case("ParleyJobOverdue", overdue(False), overdue(True)),
    Case("ParleyWritesRefused", refusals("store_unavailable", 10), refusals("store_unavailable", 11)),
    Case("ParleyCommitsSlow", commits(slow=1, fast=99), commits(slow=2, fast=98)),
    Case("ParleyFanoutSlow", commits(slow=1, fast=99), commits(slow=2, fast=98)),
    Case(
        "ParleyOutboxesFull",
        lambda scene: scene.metrics.outbox_bytes.set(256 * MIB),
        lambda scene: scene.metrics.outbox_bytes.set(256 * MIB + 1),
    ),
    Case(
        "ParleySlowReaders",
        lambda scene: scene.metrics.closed.labels("4001").inc(100),
        lambda scene: scene.metrics.closed.labels("4001").inc(101),
    ),
    Case(
        "ParleyConnectionsRefused",
        lambda scene: scene.metrics.connections_refused.labels("user").inc(),
        lambda scene: scene.metrics.connections_refused.labels("descriptors").inc(),
    ),
    Case("ParleyInternalErrors", refusals("bad_request", 1), refusals("internal", 1)),
    Case(
        "ParleyUnprovenInput",
        lambda scene: scene.metrics.unproven.labels("call").inc(20),
        lambda scene: scene.metrics.unproven.labels("call").inc(21),
    ),
    Case(
        "ParleyDeadLetters",
        lambda scene: scene.metrics.dlq_size.set(1_000),
        lambda scene: scene.metrics.dlq_size.set(1_001),
    ),
    Case(
        "ParleyDeadLetterSpike",
        lambda scene: scene.metrics.delivery_outcomes.labels("dead_lettered").inc(500),
        lambda scene: scene.metrics.delivery_outcomes.labels("dead_lettered").inc(501),
    ),
    Case(
        "ParleyWebhookPaused",
        lambda scene: scene.metrics.webhooks_paused.set(0),
        lambda scene: scene.metrics.webhooks_paused.set(1),
    ),
    Case(
        "ParleyPushRefused",
        lambda scene: scene.metrics.push_outcomes.labels("apns", "refused").inc(500),
        lambda scene: scene.metrics.push_outcomes.labels("apns", "unauthorized").inc(),
    ),
    Case(
        "ParleyColdStoreUnavailable",
        lambda scene: scene.metrics.archive_read_failures.inc(5),
        lambda scene: scene.metrics.archive_read_failures.inc(6),
    ),
    Case(
        "ParleyArchiveFailing",
        lambda scene: scene.metrics.archived_entries.inc(500),
        lambda scene: scene.metrics.archive_failures.inc(),
    ),
    Case(
        "ParleyFileDescriptorsLow",
        instead(process_open_fds=800, process_max_fds=1000),
        instead(process_open_fds=801, process_max_fds=1000),
    ),
]

GIVEN_NAMES = {
    "sequence_allocation_latency_p99": ("ParleySequenceAllocationSlow", 0.05),
    "sequence_allocation_errors": ("ParleySequenceAllocationErrors", 0.001),
    "counter_missing_errors": ("ParleyCounterMissing", 0),
    "idempotency_hit_rate": ("ParleyRetryStorm", 0.1),
    "sequence_gap_rate": ("ParleySequenceGaps", 0.05),
    "transaction_conflict_rate": ("ParleyTransactionConflicts", 0.01),
    "messages_per_chat_per_minute": ("ParleyHotChat", 100),
    "dlq_size": ("ParleyDeadLetters", 1_000),
}
"""The eight metrics of the design, with the alert and the threshold that it gives each."""


def rules() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def exposed_names() -> set[str]:
    """Every series that a server exposes, also those that wait for their first label."""
    text = Metrics(VirtualClock()).text().decode()
    families = list(text_string_to_metric_families(text))
    declared = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    return declared | {sample.name for family in families for sample in family.samples}


def history_of(play: Play) -> History:
    scene = Scene()
    before = scene.scrape()
    play(scene)
    return History(before, scene.scrape())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_is_silent_within_its_threshold(case: Case) -> None:
    """Exactly at the threshold nothing fires."""
    assert not fires(rules()[case.alert]["expr"], history_of(case.within))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_beyond_its_threshold(case: Case) -> None:
    """The smallest step beyond the threshold fires."""
    assert fires(rules()[case.alert]["expr"], history_of(case.beyond))


def test_every_alert_is_driven() -> None:
    """No rule is shipped without a case that crosses it."""
    assert sorted(rules()) == sorted(case.alert for case in CASES)


@pytest.mark.parametrize("alert", sorted(rules()))
def test_an_idle_server_is_silent(alert: str) -> None:
    """A server that was just started and does nothing alarms nobody."""
    scene = Scene()
    scene.instead["up"] = 1
    quiet = scene.scrape()
    assert not fires(rules()[alert]["expr"], History(quiet, quiet))


@pytest.mark.parametrize("alert", sorted(rules()))
def test_an_alert_reads_metrics_that_exist(alert: str) -> None:
    """Every name in a rule is one that a real server exposes."""
    names = names_in(rules()[alert]["expr"])
    assert names
    assert names <= exposed_names() | MADE_BY_PROMETHEUS


@pytest.mark.parametrize("name", sorted(GIVEN_NAMES))
def test_the_given_metrics_have_their_given_thresholds(name: str) -> None:
    """The seven metrics of the design are alerted on at the numbers of the design."""
    alert, threshold = GIVEN_NAMES[name]
    expression = rules()[alert]["expr"]
    assert name in names_in(expression)
    assert float(expression.rpartition(">")[2]) == threshold


def test_gaps_must_last_a_quarter_of_an_hour() -> None:
    """A burst of voids after a crash is no alarm, fifteen minutes of them are."""
    assert rules()["ParleySequenceGaps"]["for"] == "15m"


def test_a_missing_counter_is_a_sev_2() -> None:
    """It fires at once and says how grave it is."""
    rule = rules()["ParleyCounterMissing"]
    assert rule["labels"]["incident"] == "SEV-2"
    assert "for" not in rule


@pytest.mark.parametrize("alert", sorted(rules()))
def test_an_alert_says_what_to_do(alert: str) -> None:
    """Each has a summary and a link to a section of the operator's handbook that exists."""
    notes = rules()[alert]["annotations"]
    path, _, heading = notes["runbook_url"].partition("#")
    assert notes["summary"].endswith((".", "?"))
    assert heading in anchors((ROOT / path).read_text(encoding="utf-8"))


def test_an_unknown_metric_would_be_noticed() -> None:
    """The names are really read from the expressions, and a wrong one is not among the exposed."""
    assert names_in('increase(no_such_total{code="x"}[5m]) / (a_b + c_d) > 0.1') == {
        "no_such_total",
        "a_b",
        "c_d",
    }
    assert "no_such_total" not in exposed_names()


@pytest.mark.timeout(PROMTOOL_FETCH_SECONDS_MAX)
@pytest.mark.parametrize(
    "arguments", [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]]
)
def test_prometheus_agrees(arguments: list[str]) -> None:
    """Prometheus's own tool takes the rules, and fires them by their own unit tests."""
    command = [str(promtool_program()), *arguments]
    done = subprocess.run(
        command, cwd=ROOT / "ops", check=False, capture_output=True, text=True, timeout=stretched(50)
    )
    assert done.returncode == 0, done.stdout + done.stderr
