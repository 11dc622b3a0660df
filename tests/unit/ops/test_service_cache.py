"""What the services script fetched: once, completely, and only where there is room."""

import shutil
import threading
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from ops.local_services import ServiceError
from ops.local_services.cache import VARIABLE, cache_folder, cached, fetched
from ops.local_services.fetching import pom_text


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def quiet(_: str) -> None:
    """Nobody listens."""


def write_program(into: Path) -> None:
    (into / "program").write_text("runs", encoding="utf-8")


def fail_halfway(into: Path) -> None:
    write_program(into)
    raise ServiceError("The network is gone.")


def test_a_program_is_fetched_once() -> None:
    """What is in the cache is not fetched again."""
    first = fetched("kafka-1", write_program, quiet)
    assert fetched("kafka-1", fail_halfway, quiet) == first
    assert (first / "program").read_text(encoding="utf-8") == "runs"


def test_two_at_once_fetch_once() -> None:
    """The second of two waits for the first and takes what it fetched."""
    begun, waiting, fetches = threading.Event(), threading.Event(), []

    def fetch(into: Path) -> None:
        fetches.append(into)
        begun.set()
        assert waiting.wait(10)
        write_program(into)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(fetched, "kafka-1", fetch, quiet)
        assert begun.wait(10)
        second = pool.submit(fetched, "kafka-1", fetch, lambda _: waiting.set())
        assert first.result(10) == second.result(10)
    assert len(fetches) == 1


def test_half_a_program_is_never_used() -> None:
    """A fetch that failed or was killed leaves nothing that looks complete, and the next one starts anew."""
    with pytest.raises(ServiceError, match=r"The network is gone\."):
        fetched("kafka-1", fail_halfway, quiet)
    assert cached("kafka-1") is None
    assert (fetched("kafka-1", write_program, quiet) / "program").exists()


def test_a_full_disk_is_told_before(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Where there is no room, nothing is fetched and the sentence says how much is missing."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=12_345_678))
    with pytest.raises(ServiceError) as refusal:
        fetched("kafka-1", write_program, quiet)
    assert str(refusal.value) == f"The disk of {folder} has 12 MB free, but 300 MB are needed."


def test_the_cache_is_outside_of_the_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a folder of its own the cache stands where the user's other caches stand."""
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "parley" / "services"


def test_the_pom_names_every_library() -> None:
    """Maven is asked for just the libraries and the imported versions."""
    project = ET.fromstring(pom_text(["org.one:first:1.2"], ["org.two:bom:3"]))
    asked = [
        [part.text for part in dependency] for dependency in project.findall("./dependencies/dependency")
    ]
    assert asked == [["org.one", "first", "1.2"]]
    managed = project.find("./dependencyManagement/dependencies/dependency")
    assert managed is not None
    assert [part.text for part in managed] == ["org.two", "bom", "3", "pom", "import"]
