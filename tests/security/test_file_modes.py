"""Another user of the machine reads and replaces nothing, whatever the modes were before."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from parley.client.storage import FILE_MODE, SqliteStorage
from parley.errors import ConfigError
from parley.store.folder import lock_folder, make_private
from tests.harness.server import READY_SECONDS_MAX, Lines, parley_command
from tests.integration.cli.running import clean_environment, parley
from tests.integration.gateway.serving import Place

OTHERS = 0o077
STORE_FILES = {
    *("parley.db", "parley.db-wal", "parley.db-shm"),
    *("search.db", "search.db-wal", "search.db-shm"),
    *("serve.lock", "serve.url", "store.toml"),
}


def open_to_others(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.stat().st_mode & OTHERS]


@pytest.fixture
def careless() -> Iterator[None]:
    """A user whose new files everybody may read and write."""
    before = os.umask(0)
    yield
    os.umask(before)


@contextmanager
def careless_server(folder: Path) -> Iterator[None]:
    """`parley serve` of such a user, started as a shell would."""
    command = [*parley_command(), "serve", "--data", str(folder), "--port", "0"]
    process = subprocess.Popen(
        command,
        env=clean_environment(),
        umask=0,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    said = Lines(process.stdout)
    try:
        assert said.wait_for(lambda line: line.startswith("parley ready on "), READY_SECONDS_MAX)
        yield
    finally:
        process.terminate()
        process.wait()
        said.join()


def test_a_neighbour_cannot_read_a_new_store(tmp_path: Path) -> None:
    """With an open umask and an open folder, every file is the owner's alone, the write-ahead log too."""
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o777)
    with careless_server(folder):
        assert {path.name for path in folder.iterdir()} == STORE_FILES
        assert open_to_others(folder) == []
        assert folder.stat().st_mode & OTHERS == 0


def test_a_neighbour_cannot_read_a_store_that_was_open(tmp_path: Path) -> None:
    """A start closes what a backup, a copy or an older version left open."""
    folder = tmp_path / "data"
    with careless_server(folder):
        pass
    for path in (folder, *folder.iterdir()):
        path.chmod(0o777)
    with careless_server(folder):
        assert open_to_others(folder) == []
        assert folder.stat().st_mode & OTHERS == 0


async def test_a_neighbour_cannot_read_the_store_of_an_application(place: Place, careless: None) -> None:
    """A server inside of another program has the same files, whose modes do not depend on the umask."""
    async with place.serving() as served:
        await served.people("ann")
        assert open_to_others(place.folder) == []


def test_a_neighbour_cannot_read_what_a_command_made(tmp_path: Path) -> None:
    """`store init` in an open folder leaves nothing that others can read."""
    tmp_path.chmod(0o777)
    assert parley("store", "init", data=tmp_path).status == 0
    assert open_to_others(tmp_path) == []


def test_a_neighbour_cannot_replace_the_store(tmp_path: Path) -> None:
    """A folder that others write to, and that is not the store's alone, is refused with what to do."""
    (tmp_path / "holiday.jpg").touch()
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match=r"other users may write to .*chmod go-w"):
        lock_folder(tmp_path)
    tmp_path.chmod(0o700)


def test_a_folder_that_everybody_shares_is_not_taken_from_them(tmp_path: Path) -> None:
    """Somebody serves from a home or from /tmp: its mode stays, and the store's files are closed."""
    (tmp_path / "holiday.jpg").touch()
    (tmp_path / "holiday.jpg").chmod(0o644)
    (tmp_path / "parley.db").touch()
    (tmp_path / "parley.db").chmod(0o644)
    tmp_path.chmod(0o755)
    make_private(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    assert open_to_others(tmp_path) == ["holiday.jpg"]


def test_a_file_that_cannot_be_closed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it belongs to somebody else, or its file system has no modes, no message is written to it."""
    (tmp_path / "parley.db").touch()
    (tmp_path / "parley.db").chmod(0o644)

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(ConfigError, match=r"other users may read or write .*parley\.db"):
        lock_folder(tmp_path)


@pytest.mark.parametrize("name", sorted(STORE_FILES))
def test_the_doctor_finds_what_is_open(tmp_path: Path, name: str) -> None:
    """Any file of the store that others can read is told as wrong."""
    assert parley("store", "init", data=tmp_path).status == 0
    (tmp_path / name).touch()
    (tmp_path / name).chmod(0o640)
    tmp_path.chmod(0o750)
    report = parley("doctor", "--json", data=tmp_path).json
    (privacy,) = [finding for finding in report["findings"] if finding["what"] == "privacy"]
    assert (privacy["state"], name in privacy["says"]) == ("wrong", True)


def test_a_neighbour_cannot_read_the_outbox_of_an_application(tmp_path: Path, careless: None) -> None:
    """The SDK's file and its log are closed when they are opened, also a copy that was open."""
    path = tmp_path / "ada.db"
    path.touch(mode=0o666)
    storage = SqliteStorage(str(path))
    try:
        assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {FILE_MODE}
    finally:
        storage.close()
