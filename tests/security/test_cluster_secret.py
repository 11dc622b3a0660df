"""A cluster without a secret, or with one that can be guessed, is a cluster that anybody can join."""

from pathlib import Path

import pytest

from parley import config
from parley.app import App
from parley.app.sequencer import SequencerApp
from parley.cluster.trust import cluster_keys
from parley.config import ClusterConfig, Config
from parley.core.cluster_keys import (
    ANNOUNCEMENTS,
    CALLS,
    EVENTS,
    SEQUENCER,
    SIGNALS,
    ClusterKeys,
)
from parley.errors import ConfigError

SECRET = "a secret of some length"
SHARED = {
    "PARLEY_STORE_ENGINE": "dynamodb",
    "PARLEY_DYNAMODB_ENDPOINT": "http://127.0.0.1:9",
    "PARLEY_DYNAMODB_REGION": "local",
}
PURPOSES = (CALLS, SEQUENCER, ANNOUNCEMENTS, SIGNALS, EVENTS)


def configured(folder: Path, **settings: str) -> Config:
    return config.load(None, {"PARLEY_SERVER_DATA": str(folder), **SHARED, **settings})[0]


@pytest.mark.parametrize("roles", ["gateway,ingest,delivery", "sequencer"])
def test_a_node_that_anybody_could_join_is_not_made(tmp_path: Path, roles: str) -> None:
    """On loopback too, a node with a shared store needs a secret, and is told how to make one."""
    two_phase = {"PARLEY_STORE_SEQUENCING": "two_phase"} if roles == "sequencer" else {}
    chosen = configured(tmp_path, PARLEY_CLUSTER_ROLES=roles, **two_phase)
    with pytest.raises(ConfigError, match=r"need cluster\.secret: .*openssl rand -hex 32"):
        SequencerApp(chosen, environment={}) if roles == "sequencer" else App(chosen, environment={})


def test_a_caller_without_a_secret_asks_no_sequencer(tmp_path: Path) -> None:
    """Neither a node nor a command signs with a key that everybody knows."""
    chosen = configured(
        tmp_path,
        PARLEY_STORE_SEQUENCING="two_phase",
        PARLEY_STORE_ALLOCATOR="sequencer",
        PARLEY_CLUSTER_SEQUENCERS="http://127.0.0.1:9",
    )
    with pytest.raises(ConfigError, match=r"cluster\.secret"):
        App(chosen, environment={})


@pytest.mark.parametrize(
    "guessable",
    [ClusterConfig(secret="guess me"), ClusterConfig(secret=SECRET, accepted_secret="guess me")],
)
def test_a_secret_that_can_be_guessed_does_not_leave_loopback(guessable: ClusterConfig) -> None:
    """Where other machines reach a node, neither the secret nor the one that is accepted may be short."""
    with pytest.raises(ConfigError, match="16 characters") as refused:
        cluster_keys(guessable, "10.1.2.3")
    assert "guess me" not in str(refused.value)


def test_a_proof_for_one_purpose_is_worth_nothing_for_another() -> None:
    """What was signed as a signal cannot be passed off as a call, an announcement or an event."""
    keys = ClusterKeys(SECRET)
    tags = [keys.ring(purpose, "place").tag(b"data") for purpose in PURPOSES]
    assert len(set(tags)) == len(PURPOSES)


def test_a_proof_of_one_deployment_is_worth_nothing_in_another() -> None:
    """Two deployments that share a secret and differ in their prefix do not believe each other."""
    keys = ClusterKeys(SECRET)
    tag = keys.ring(SIGNALS, "staging-signals_channel").tag(b"data")
    assert not keys.ring(SIGNALS, "signals_channel").accepts(b"data", tag)


def test_a_secret_that_was_given_up_opens_nothing() -> None:
    """Once a node no longer accepts the old secret, whoever stole it is a stranger."""
    tag = ClusterKeys("the old secret").ring(CALLS).tag(b"data")
    assert ClusterKeys("the new secret", "the old secret").ring(CALLS).accepts(b"data", tag)
    assert not ClusterKeys("the new secret").ring(CALLS).accepts(b"data", tag)
