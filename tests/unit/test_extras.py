"""What a message says to install can be installed: by nothing that only an index would have."""

import json
import re
from pathlib import Path

import pytest

from parley.extras import command_for, how_to_install

SOURCES = Path(__file__).parents[2] / "src" / "parley"


@pytest.mark.parametrize(
    ("noted", "command"),
    [
        (
            {"url": "file:///tmp/a%20b/parley_chat-0.1.0-py3-none-any.whl", "archive_info": {}},
            "-m pip install 'parley-chat[jwt] @ file:///tmp/a%20b/parley_chat-0.1.0-py3-none-any.whl'",
        ),
        ({"url": "file:///opt/parley", "dir_info": {}}, "-m pip install '/opt/parley[jwt]'"),
        ({"url": "file:///opt/parley", "dir_info": {"editable": True}}, "make -C /opt/parley setup"),
        (None, "install 'parley_chat-0.1.0-py3-none-any.whl[jwt]'"),
    ],
)
def test_an_extra_is_installed_from_where_parley_came(noted: dict[str, object] | None, command: str) -> None:
    """From the wheel, the folder or the source tree that is there; else it is said how to build a wheel."""
    told = command_for("jwt", json.dumps(noted) if noted else None, "0.1.0")
    assert told.endswith(command)
    assert "\n" not in told


def test_this_installation_says_how() -> None:
    """It is one of a source tree, where one command installs everything."""
    assert how_to_install("jwt") == f"make -C {SOURCES.parents[1]} setup"


def test_no_message_names_a_package_that_no_index_has() -> None:
    """Only the module that knows where this Parley came from names the distribution."""
    naming = {
        path.name
        for path in SOURCES.rglob("*.py")
        if re.search(r"parley-chat|pip install", path.read_text(encoding="utf-8"))
    }
    assert naming == {"extras.py"}
