"""What `parley doctor` says of the routing of live entries."""

import pytest

from parley import config
from parley.cli.doctor_services import routing_findings
from parley.ephemeral.ports import Node


@pytest.mark.parametrize(
    ("roles", "brokers", "is_told"),
    [
        ([("gateway",), ("ingest",)], "127.0.0.1:9092", True),
        ([("gateway",), ("ingest", "delivery")], "127.0.0.1:9092", False),
        ([("gateway", "ingest")], "", False),
    ],
)
def test_a_cluster_that_routes_nothing_is_told_of(
    roles: list[tuple[str, ...]], brokers: str, is_told: bool
) -> None:
    """Without a node that has the role delivery live entries come late, and the doctor says what to do."""
    chosen, _ = config.load(None, {"PARLEY_KAFKA_BROKERS": brokers} if brokers else {})
    nodes = [Node(f"n{number}", "http://127.0.0.1:1", some) for number, some in enumerate(roles)]
    found = list(routing_findings(chosen, nodes))
    assert [finding.state for finding in found] == ["wrong"] * is_told
    assert all("--roles delivery" in finding.remedy for finding in found)
