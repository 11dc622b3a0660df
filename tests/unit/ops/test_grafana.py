"""The dashboard for Grafana reads metrics and labels that exist, and can be read itself."""

import json
import re
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from parley.telemetry import Metrics
from tests.harness.clock import VirtualClock
from tests.services import promtool_program
from tests.tidy.repository import ROOT
from tests.unit.ops.test_alerts import PROMTOOL_FETCH_SECONDS_MAX

DASHBOARD = json.loads((ROOT / "ops/grafana/parley.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
ROWS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] == "row"]
WORDS = {"by", "le", "sum", "max", "min", "rate", "time", "topk", "label_replace", "histogram_quantile"}
OF_PROMETHEUS = {"job", "instance", "exported_job", "le"}
"""Labels that Prometheus adds. A label `job` of ours is `exported_job` there."""
WIDTH = 24


def labels_by_metric() -> dict[str, set[str]]:
    """Every sample that a server exposes, with the labels that it may have."""
    found = dict[str, set[str]]()
    for collector in Metrics(VirtualClock()).registry._collector_to_names:
        labels = {*getattr(collector, "_labelnames", ()), getattr(collector, "_label", "")}
        for family in collector.collect():
            ending = {"counter": "_total", "histogram": "_bucket"}.get(family.type, "")
            found[family.name + ending] = labels
    return found


LABELS = labels_by_metric()


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def names_in(expression: str) -> set[str]:
    """The metrics that an expression reads: what stands before braces."""
    return set(re.findall(r"[a-z_][a-z0-9_]*(?=\{)", expression))


def labels_in(expression: str) -> set[str]:
    """The labels that it groups by or selects."""
    by = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
    braces = re.findall(r"\{([^}]*)\}", expression)
    return by | set(re.findall(r"([a-z_]+)(?==~|!=|=)", ",".join(braces)))


def titled(panel: dict[str, Any]) -> str:
    return str(panel["title"])


def test_it_can_be_imported() -> None:
    """It has a uid of its own, the data source is chosen, and ids are unique."""
    assert (DASHBOARD["uid"], DASHBOARD["title"]) == ("parley", "Parley")
    assert DASHBOARD["schemaVersion"] >= 39
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    assert set(variables) == {"datasource", "job", "instance"}
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_panels_stand_beside_each_other() -> None:
    """Each begins with a row, is within the width, and covers no other one."""
    taken = set[tuple[int, int]]()
    assert DASHBOARD["panels"][0]["type"] == "row"
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        taken |= cells
    assert all(a["gridPos"]["y"] < b["gridPos"]["y"] for a, b in pairwise(ROWS))


@pytest.mark.parametrize("panel", PANELS, ids=titled)
def test_a_panel_reads_metrics_and_labels_that_exist(panel: dict[str, Any]) -> None:
    """Every name is one that a real server exposes, and every label one that it has."""
    for expression in expressions(panel):
        names = names_in(expression)
        assert names
        assert names <= set(LABELS), names - set(LABELS)
        known = {label for name in names for label in LABELS[name]} | OF_PROMETHEUS | {"job_name"}
        assert labels_in(expression) <= known, labels_in(expression) - known
        calls = set(re.findall(r"[a-z_]+(?=\()", expression))
        assert calls <= WORDS, calls - WORDS


@pytest.mark.parametrize("panel", PANELS, ids=titled)
def test_a_panel_says_what_it_shows(panel: dict[str, Any]) -> None:
    """A unit, a sentence, the chosen data source, and a name for each line."""
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert re.fullmatch(r"[A-Z].{10,160}\.", panel["description"])
    assert panel["datasource"]["uid"] == "${datasource}"
    assert all(target["legendFormat"] for target in panel["targets"])


@pytest.mark.parametrize("panel", PANELS, ids=titled)
def test_a_counter_is_shown_as_a_rate(panel: dict[str, Any]) -> None:
    """What only rises says nothing by its height."""
    for expression in expressions(panel):
        for name in names_in(expression):
            if name.endswith(("_total", "_bucket")):
                assert re.search(rf"rate\({name}{{", expression), expression


@pytest.mark.timeout(PROMTOOL_FETCH_SECONDS_MAX)
def test_prometheus_understands_every_expression(tmp_path: Path) -> None:
    """With its variables filled in, as Grafana does."""
    filled = {"$job": ".*", "$instance": ".*", "$__rate_interval": "5m"}
    rules = []
    for number, expression in enumerate(one for panel in PANELS for one in expressions(panel)):
        for name, value in filled.items():
            expression = expression.replace(name, value)
        rules.append({"record": f"panel:{number}", "expr": expression})
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8")
    done = subprocess.run(
        [promtool_program(), "check", "rules", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout
