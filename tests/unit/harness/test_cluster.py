"""The harness around several nodes, tried on stand-ins."""

import sys
from pathlib import Path

import pytest

from tests.harness import server as harness
from tests.harness.cluster import ClusterProcess
from tests.harness.server import ServerFailed

SECRET = "PARLEY_CLUSTER_SECRET"
STAND_IN = """
import json, os, signal, sys
if sys.argv[1:] == ["store", "init"]:
    sys.exit(int(os.environ.get("INIT", "0")))
print(json.dumps({"event": "node", "name": os.environ["PARLEY_CLUSTER_NODE"]}), file=sys.stderr, flush=True)
print(json.dumps({"event": "secret", "is": os.environ["PARLEY_CLUSTER_SECRET"]}), file=sys.stderr, flush=True)
print(f"parley ready on http://127.0.0.1:{os.environ['PORT']}", flush=True)
signal.pause()
"""


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "parley_command", lambda: [sys.executable, "-c", STAND_IN])


def test_each_node_has_its_name_and_all_share_a_secret(tmp_path: Path) -> None:
    """Every node runs with its own settings beside those of all, and ends with the block."""
    settings = {"a": {"PORT": "4711"}, "b": {"PORT": "4712"}}
    with ClusterProcess(tmp_path, {"MOOD": "good"}, ["a", "b"], settings) as cluster:
        assert [node.url[-4:] for node in cluster] == ["4711", "4712"]
        for name in cluster.names:
            assert cluster[name].wait_for_log("node")["name"] == name
            assert cluster[name].wait_for_log("secret")["is"] == cluster.environment[SECRET]
    assert not any(node.is_running for node in cluster)


def test_two_clusters_have_different_secrets(tmp_path: Path) -> None:
    """A node of one cluster can do nothing to another one's."""
    secrets = {ClusterProcess(tmp_path, {}, ["a"]).environment["PARLEY_CLUSTER_SECRET"] for _ in "12"}
    assert len(secrets) == 2


def test_without_tables_nothing_starts(tmp_path: Path) -> None:
    """A cluster whose tables cannot be made says so and leaves no process behind."""
    cluster = ClusterProcess(tmp_path, {"INIT": "1"}, ["a"], {"a": {"PORT": "4711"}})
    with pytest.raises(ServerFailed, match="could not be created"), cluster:
        pass
    assert not any(node.is_running for node in cluster)
