"""Where credentials and the region come from."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from parley.errors import ConfigError
from parley.store.dynamodb.driver import Credentials, Dynamo, credentials_from
from parley.store.dynamodb.driver.auth import RENEW_SECONDS, ProviderChain, find_region
from tests.harness.clock import VirtualClock, run_virtual
from tests.waiting import stretched

PROFILE = "[profile other]\nregion = eu-north-1\naws_access_key_id = A\naws_secret_access_key = S\n"


@pytest.fixture
def no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any trace of AWS; returns the file of its profiles."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path / "config"


async def test_keys_in_the_environment_are_used_as_they_are() -> None:
    """Keys that stand in the environment need no chain, and an empty token is none."""
    environment = {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "S", "AWS_SESSION_TOKEN": ""}
    assert await credentials_from(environment)() == Credentials("A", "S", None)


async def test_a_profile_is_found_by_the_chain(no_aws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without keys in the environment, botocore's chain finds those of a profile."""
    no_aws.write_text(PROFILE)
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert isinstance(find := credentials_from({}), ProviderChain)
    assert await find() == Credentials("A", "S", None)


async def test_no_credentials_are_a_sentence(no_aws: Path) -> None:
    """Where nothing is found, the operator is told what to set."""
    with pytest.raises(ConfigError, match="no AWS credentials were found: set AWS_ACCESS_KEY_ID"):
        await credentials_from({})()


async def test_a_missing_profile_is_a_sentence(no_aws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile that does not exist is named."""
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ConfigError, match="nobody"):
        await credentials_from({})()


async def test_the_region_is_that_of_aws_tools(no_aws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable names the region, or else the profile does."""
    no_aws.write_text(PROFILE)
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert await find_region({"AWS_REGION": "eu-west-3"}) == "eu-west-3"
    assert await find_region({}) == "eu-north-1"


async def test_no_region_is_a_sentence(no_aws: Path) -> None:
    """Where no region is named, the operator is told which key to set."""
    with pytest.raises(ConfigError, match=r"dynamodb\.region is not set"):
        await find_region({})


def test_credentials_are_renewed_in_the_background() -> None:
    """The chain is asked again every minute, and one that fails for a while does not stop the asking."""
    asked: list[int] = []

    async def find() -> Credentials:
        asked.append(len(asked))
        if len(asked) == 2:
            raise ConfigError("no answer from the instance")
        return Credentials("A", "S")

    async def scenario(clock: VirtualClock) -> None:
        dynamo = Dynamo("http://127.0.0.1:9", "us-east-1", credentials=find, clock=clock)
        await dynamo.open()
        await asyncio.sleep(3.5 * RENEW_SECONDS)
        await dynamo.close()

    run_virtual(scenario)
    assert len(asked) == 4


def test_botocore_is_loaded_only_for_its_chain() -> None:
    """Whoever names keys in the environment never pays for loading botocore."""
    lines = "import sys, parley.store.dynamodb.driver.client; sys.exit('botocore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", lines], check=False, timeout=stretched(30))
    assert done.returncode == 0
