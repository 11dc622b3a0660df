"""What is said of a server that does not know what was just written."""

from pathlib import Path

import pytest

from parley.cli.places import CommandFailed, Place
from parley.cli.remote import explained
from parley.client import BadToken
from parley.config import Config, StoreConfig


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        ("sqlite", "created in data: it runs on another folder"),
        ("dynamodb", "created on dynamodb: it runs on another store"),
    ],
)
def test_a_server_on_another_store_is_told_apart(engine: str, says: str) -> None:
    """The sentence names what the token was made in: a folder, or the store of the settings."""
    place = Place(Config(store=StoreConfig(engine=engine)), Path("data"), [])  # type: ignore[arg-type]
    with pytest.raises(CommandFailed, match=says), explained("http://127.0.0.1:8080", place):
        raise BadToken("no such session")
