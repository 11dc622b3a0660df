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


BY_NAME = re.compile(
    r"(?:pip|npm) (?:install|i|add) [^\n`]*\bparley-chat(?![\w.-]*\.(?:tgz|whl))|\bon (?:npm|PyPI)\b"
)


def test_no_page_says_that_an_index_has_the_package() -> None:
    """Whoever installs it by its name from an index gets what somebody else has put there."""
    root = SOURCES.parents[1]
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("clients/*/README.md")]
    assert [page.name for page in pages if BY_NAME.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("says", "is_by_name"),
    [
        ("pip install parley-chat[server]", True),
        ("npm install --save parley-chat", True),
        ("`parley-chat` on npm, for browsers", True),
        ("npm install ~/parley/parley-chat-0.1.0.tgz", False),
        ("pip install dist/parley-chat-0.1.0.whl", False),
        ("do not `npm install` it by its name", False),
    ],
)
def test_an_installation_by_name_is_seen(says: str, is_by_name: bool) -> None:
    """On any index, with options and extras; one from a file is none."""
    assert (BY_NAME.search(says) is not None) is is_by_name
