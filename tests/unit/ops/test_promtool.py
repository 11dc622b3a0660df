"""promtool is fetched like the services, and where that cannot be, a sentence says why."""

from pathlib import Path

import pytest

from ops.local_services import ServiceError, promtool
from ops.local_services.cache import VARIABLE


@pytest.fixture(autouse=True)
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a PATH with nothing on it but what a test puts there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    return folder


def put(folder: Path, name: str, script: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    file.chmod(0o755)


def says(version: str) -> str:
    return f"echo 'promtool, version {version} (branch: x)'"


def put_apt(folder: Path, version: str) -> None:
    """A distribution with one package, which has a promtool of this version."""
    put(
        folder,
        "apt-get",
        'case "$*" in *download*prometheus) : > prometheus.deb;; *download*) exit 100;; esac',
    )
    put(folder, "promtool.sh", says(version))
    put(
        folder,
        "dpkg-deb",
        f'/bin/mkdir -p "$3/usr/bin"; /bin/cp "{folder}/promtool.sh" "$3/usr/bin/promtool"',
    )


def test_it_is_unpacked_from_a_package_once(tools: Path, tmp_path: Path) -> None:
    """The first package that exists is fetched, and only promtool of it is kept."""
    put_apt(tools, "2.53.1")
    found = promtool.program(lambda _: None)
    assert [file.name for file in found.parent.iterdir()] == ["promtool"]
    put(tools, "apt-get", "exit 1")
    assert promtool.program(lambda _: None) == found
    assert found.is_relative_to(tmp_path / "cache")


def test_one_on_the_path_is_taken_where_it_cannot_be_fetched(tools: Path) -> None:
    """Where there is no apt, a promtool of the machine does, and the script says so."""
    put(tools, "promtool", says("3.5.0"))
    told: list[str] = []
    assert promtool.program(told.append) == tools / "promtool"
    assert "no `apt-get` on this machine" in told[-1]


@pytest.mark.parametrize("way", ["path", "package"])
def test_one_that_is_too_old_is_refused(way: str, tools: Path) -> None:
    """Rules that it does not understand would fail for the wrong reason."""
    if way == "path":
        put(tools, "promtool", says("2.41.9"))
    else:
        put_apt(tools, "2.41.9")
    with pytest.raises(ServiceError, match=r"is 2\.41, but 2\.42 is needed"):
        promtool.program(lambda _: None)


def test_a_machine_without_any_is_told_what_to_do() -> None:
    """Neither apt nor a promtool: one sentence, and nothing is left in the cache."""
    with pytest.raises(ServiceError, match=r"needs Debian or Ubuntu.*Or install one"):
        promtool.program(lambda _: None)
