"""What the server serves about its API passes a linter: generators of clients stumble over what it finds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parley.gateway.system import asyncapi_document, openapi_document
from tests.node import ROOT, node_tool

RULES = ROOT / "docs/redocly.yaml"
QUIET = {"REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"}


def problems(document: Path) -> list[str]:
    """What the linter finds, warnings included."""
    words = ("lint", str(document), f"--config={RULES}", "--format=json", "--max-problems=1000")
    report = node_tool("redocly", *words, env=QUIET).stdout
    found = json.loads(report[report.index("\n{") : report.rindex("\n}") + 2])
    return [f"{one['ruleId']}: {one['message']}" for one in found["problems"]]


@pytest.mark.parametrize("made", [openapi_document, asyncapi_document])
def test_the_document_passes_the_linter(made: Callable[[], bytes], tmp_path: Path) -> None:
    """OpenAPI and AsyncAPI: no error, and no warning either."""
    document = tmp_path / "document.json"
    document.write_bytes(made())
    assert problems(document) == []


def test_a_fault_of_a_document_is_found(tmp_path: Path) -> None:
    """The linter is one that looks."""
    broken: dict[str, Any] = json.loads(openapi_document())
    del broken["paths"]["/v1/me"]["get"]["security"]
    document = tmp_path / "document.json"
    document.write_text(json.dumps(broken), encoding="utf-8")
    assert [one.partition(":")[0] for one in problems(document)] == ["security-defined"]
