"""Chromium is fetched like the services, with what it needs; where that cannot be, a sentence says why."""

import subprocess
from pathlib import Path

import pytest

from ops.local_services import ServiceError, chromium
from ops.local_services.cache import VARIABLE


@pytest.fixture(autouse=True)
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a PATH with little more on it than what a test puts there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "dirname").symlink_to("/usr/bin/dirname")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    return folder


def put(folder: Path, name: str, script: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    file.chmod(0o755)


def put_apt(folder: Path, version: str) -> None:
    """A distribution whose Chromium needs a library; both are packages."""
    archives = 'for word in "$@"; do case $word in Dir::Cache=*) place=${word#*=}/archives;; esac; done'
    downloads = ': > "$place/chromium.deb"; : > "$place/libtea.deb"'
    put(folder, "apt-get", f'{archives}\ncase "$*" in *--download-only*chromium) {downloads};; esac')
    put(folder, "browser", f'echo "Chromium {version}.0.1 at $LD_LIBRARY_PATH"')
    library = (
        '/bin/mkdir -p "$3/usr/lib/x86_64-linux-gnu/tea"; : > "$3/usr/lib/x86_64-linux-gnu/tea/libtea.so.1"'
    )
    browser = (
        f'/bin/mkdir -p "$3/usr/lib/chromium"; /bin/cp "{folder}/browser" "$3/usr/lib/chromium/chromium"'
    )
    put(folder, "dpkg-deb", f'case "$2" in *libtea*) {library};; *) {browser};; esac')


def test_it_is_unpacked_with_what_it_needs_once(tools: Path, tmp_path: Path) -> None:
    """The linker is told where the libraries are; a second call fetches nothing."""
    put_apt(tools, "156")
    found = chromium.program(lambda _: None)
    assert found.is_relative_to(tmp_path / "cache")
    said = subprocess.run([found], capture_output=True, text=True, check=True).stdout
    assert said.startswith("Chromium 156")
    assert f"{found.parent}/usr/lib/x86_64-linux-gnu/tea" in said
    put(tools, "apt-get", "exit 1")
    assert chromium.program(lambda _: None) == found


def test_one_on_the_path_is_taken(tools: Path) -> None:
    """A machine that has one fetches none."""
    put(tools, "chromium", "echo Chromium 130.0.6723.91")
    assert chromium.program(lambda _: None) == tools / "chromium"


def test_one_that_is_too_old_is_refused(tools: Path) -> None:
    """It lacks what the SDK's tests use."""
    put(tools, "chromium", "echo Chromium 99.0.4844.51")
    with pytest.raises(ServiceError, match="is 99, but 120 is needed"):
        chromium.program(lambda _: None)


def test_a_machine_without_any_is_told_what_to_do() -> None:
    """Neither apt nor Chromium: one sentence."""
    with pytest.raises(ServiceError, match=r"needs Debian or Ubuntu.*Or install one"):
        chromium.program(lambda _: None)
