"""Which folder and which server a command means."""

import fcntl
from pathlib import Path

import pytest

from parley.cli.places import URL_NAME, CommandFailed, find_place, url_for
from parley.store.folder import DATABASE_NAME, LOCK_NAME, lock_folder


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PARLEY_SERVER_DATA", "PARLEY_SERVER_PORT", "PARLEY_SERVER_HOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("::1", "http://[::1]:80"),
        ("chat.example", "http://chat.example:80"),
    ],
)
def test_a_bind_address_becomes_one_that_can_be_reached(host: str, url: str) -> None:
    """A server that listens everywhere is reached on this machine."""
    assert url_for(host, 80) == url


def test_the_folder_on_the_command_line_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--data is stronger than the file, the file than the default."""
    file = tmp_path / "parley.toml"
    file.write_text('[server]\ndata = "from-file"\nport = 9999\n', encoding="utf-8")
    assert find_place(None, None).folder == Path("data")
    assert find_place(None, file).folder == Path("from-file")
    place = find_place(tmp_path, file)
    assert (place.folder, place.settings.server.data) == (tmp_path, str(tmp_path))
    assert place.server_url() == "http://127.0.0.1:9999"


def test_a_server_says_where_it_is(tmp_path: Path) -> None:
    """The address in the folder is stronger than the configured one."""
    (tmp_path / URL_NAME).write_text("http://127.0.0.1:4321", encoding="utf-8")
    with lock_folder(tmp_path):
        place = find_place(tmp_path, None)
        assert place.server_process() is not None
        assert place.server_url() == "http://127.0.0.1:4321"


def test_a_server_that_crashed_is_named_by_its_last_address(tmp_path: Path) -> None:
    """Nobody holds the folder, its last server did not say goodbye: it will come back where it was."""
    (tmp_path / URL_NAME).write_text("http://127.0.0.1:4321", encoding="utf-8")
    place = find_place(tmp_path, None)
    assert place.server_process() is None
    assert place.server_url() == "http://127.0.0.1:4321"
    assert place.how_to_serve() == f"parley serve --data {tmp_path} --port 4321"


def test_a_server_that_stopped_is_started_as_configured(tmp_path: Path) -> None:
    """It took its address down, so nothing is known but the configuration."""
    assert find_place(tmp_path, None).how_to_serve() == f"parley serve --data {tmp_path}"


def test_looking_does_not_take_the_folder(tmp_path: Path) -> None:
    """A command that looks for the server leaves the lock free for one."""
    (tmp_path / LOCK_NAME).touch()
    assert find_place(tmp_path, None).server_process() is None
    with open(tmp_path / LOCK_NAME, encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_folder_without_a_store_is_refused(tmp_path: Path) -> None:
    """A command that needs a store says in one sentence how to get one."""
    place = find_place(tmp_path, None)
    with pytest.raises(CommandFailed, match=r"parley serve --data .*parley store init --data") as refused:
        place.require_store()
    assert "\n" not in str(refused.value)
    (tmp_path / DATABASE_NAME).touch()
    assert place.require_store() == tmp_path
