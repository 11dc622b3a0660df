"""What a data folder remembers of its store."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from parley import config
from parley.cli import store_file
from parley.cli.places import CommandFailed, Place, find_place, place_to_serve
from parley.config import Config
from parley.errors import ConfigError
from parley.store.folder import DATABASE_NAME

Places = Callable[[Path | None, Path | None], Place]

NODE = {
    "PARLEY_STORE_ENGINE": "dynamodb",
    "PARLEY_STORE_SEQUENCING": "two_phase",
    "PARLEY_STORE_ALLOCATOR": "redis",
    "PARLEY_DYNAMODB_ENDPOINT": "http://127.0.0.1:8000",
    "PARLEY_DYNAMODB_REGION": "local",
    "PARLEY_DYNAMODB_PREFIX": 'a "quoted" prefix-',
    "PARLEY_KAFKA_BROKERS": "one:9092,two:9092",
    "PARLEY_KAFKA_PASSWORD": "kafka's secret",
    "PARLEY_REDIS_URL": "redis://127.0.0.1:6379/0",
    "PARLEY_CLUSTER_SECRET": "the nodes' secret",
    "PARLEY_CLUSTER_HOST": "10.0.0.7",
}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for section, keys in config.sections().items():
        for key in keys:
            monkeypatch.delenv(config.variable_of(section, key), raising=False)


def node(**changes: str) -> Config:
    return config.load(None, {**NODE, **changes})[0]


def remember(folder: Path, settings: Config) -> str:
    store_file.write(folder, settings)
    return (folder / store_file.FILE_NAME).read_text(encoding="utf-8")


def test_a_command_opens_the_store_of_the_folder(tmp_path: Path) -> None:
    """Without a word of configuration it has all that names the store, its numbers and its events."""
    remember(tmp_path, node())
    found = find_place(tmp_path, None).settings
    assert (found.store, found.dynamodb, found.redis) == (node().store, node().dynamodb, node().redis)
    assert found.kafka.brokers == ["one:9092", "two:9092"]


def test_no_secret_is_remembered(tmp_path: Path) -> None:
    """Neither passwords nor the nodes' secret, nor an address that has one in it."""
    text = remember(tmp_path, node(PARLEY_REDIS_URL="rediss://me:redis-secret@host:6379/0"))
    assert "secret" not in text
    assert "rediss://" not in text
    assert stat.S_IMODE((tmp_path / store_file.FILE_NAME).stat().st_mode) == 0o600


def test_a_password_in_the_query_of_an_address_is_not_remembered(tmp_path: Path) -> None:
    """redis:// addresses take one there, too."""
    assert "hush" not in remember(tmp_path, node(PARLEY_REDIS_URL="redis://host:6379/0?password=hush"))


def test_how_a_folder_takes_its_numbers_is_remembered(tmp_path: Path) -> None:
    """A command beside a two_phase server is one, too."""
    remember(tmp_path, config.load(None, {"PARLEY_STORE_SEQUENCING": "two_phase"})[0])
    assert find_place(tmp_path, None).settings.store.sequencing == "two_phase"


def test_configuration_wins_over_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Services move; the folder's word counts only where nothing else was said."""
    remember(tmp_path, node())
    monkeypatch.setenv("PARLEY_DYNAMODB_ENDPOINT", "http://127.0.0.1:9000")
    found = find_place(tmp_path, None).settings.dynamodb
    assert (found.endpoint, found.region) == ("http://127.0.0.1:9000", "local")


@pytest.mark.parametrize("places", [find_place, place_to_serve])
def test_another_engine_than_the_folders_is_refused(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence names the folder, both engines and the variable."""
    remember(tmp_path, node())
    monkeypatch.setenv("PARLEY_STORE_ENGINE", "sqlite")
    with pytest.raises(CommandFailed) as refused:
        places(tmp_path, None)
    for word in (str(tmp_path), "dynamodb", "sqlite", "PARLEY_STORE_ENGINE", "--data"):
        assert word in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_names_another_engine_is_named(tmp_path: Path) -> None:
    """Who configures by a file reads which one."""
    remember(tmp_path, node())
    file = tmp_path / "parley.toml"
    file.write_text('[store]\nengine = "sqlite"\n', encoding="utf-8")
    with pytest.raises(CommandFailed, match=str(file)):
        find_place(tmp_path, file)


def test_a_server_is_not_configured_by_memory(tmp_path: Path) -> None:
    """A node's settings are an operator's: without them it does not start as a lone server on SQLite."""
    remember(tmp_path, node())
    with pytest.raises(CommandFailed, match="PARLEY_STORE_ENGINE=dynamodb"):
        place_to_serve(tmp_path, None)


@pytest.mark.parametrize("places", [find_place, place_to_serve])
def test_a_folder_with_a_file_is_one_of_sqlite(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one from before folders remembered, or a restored backup."""
    (tmp_path / DATABASE_NAME).touch()
    monkeypatch.setenv("PARLEY_STORE_ENGINE", "dynamodb")
    with pytest.raises(CommandFailed, match="sqlite"):
        places(tmp_path, None)


def test_a_store_that_is_named_needs_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an environment for DynamoDB, the ./data of a lone server that happens to be here is no matter."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / DATABASE_NAME).touch()
    monkeypatch.setenv("PARLEY_STORE_ENGINE", "dynamodb")
    assert find_place(None, None).is_shared


def test_memory_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """The sentence says which file, and how to get a new one."""
    (tmp_path / store_file.FILE_NAME).write_text("[store]\nengine = 'teapot'\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=store_file.FILE_NAME):
        find_place(tmp_path, None)
