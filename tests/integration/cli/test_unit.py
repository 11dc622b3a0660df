"""`ops/parley.service`: what systemd is told to run exists, and starts as written."""

import configparser
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from parley.cli.startup import plain_options
from parley.wire.limits import DRAIN_SECONDS_MAX
from tests.harness.server import READY_SECONDS_MAX, Lines, parley_command
from tests.tidy.repository import ROOT

UNIT = "ops/parley.service"
INSTALL = (ROOT / "docs/install.md").read_text(encoding="utf-8")


def service() -> configparser.SectionProxy:
    unit = configparser.ConfigParser(interpolation=None, comment_prefixes=("#", ";"))
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / UNIT, encoding="utf-8")
    return unit["Service"]


def state_folder() -> str:
    return f"/var/lib/{service()['StateDirectory']}"


def test_every_option_exists() -> None:
    """The command is a `serve` whose options are all known, on the folder that systemd makes for it."""
    program, verb, *options = shlex.split(service()["ExecStart"])
    assert (Path(program).is_absolute(), Path(program).name, verb) == (True, "parley", "serve")
    found = plain_options(options)
    assert found is not None
    assert found.data == state_folder()


def test_nothing_is_needed_but_what_the_install_makes() -> None:
    """A file of settings may be missing, and no other is named."""
    assert service()["EnvironmentFile"].startswith("-")
    assert "--config" not in service()["ExecStart"]


def test_a_drain_has_its_time() -> None:
    """systemd kills no server that still finishes what it took."""
    assert int(service()["TimeoutStopSec"]) > DRAIN_SECONDS_MAX


def test_the_page_installs_what_the_unit_names() -> None:
    """User, program, folder and file of settings are those of install.md, which has no unit of its own."""
    program = shlex.split(service()["ExecStart"])[0]
    for named in (
        f"../{UNIT}",
        f"--home-dir {state_folder()} --shell /usr/sbin/nologin {service()['User']}\n",
        f"git clone . {Path(program).parents[2]} ",
        f"{program} doctor --data {state_folder()}",
        service()["EnvironmentFile"].removeprefix("-"),
    ):
        assert named in INSTALL
    assert "[Service]" not in INSTALL


def test_the_command_starts_in_a_bare_environment(tmp_path: Path) -> None:
    """With systemd's few variables and its umask the server is ready, and its files are private."""
    folder = tmp_path / "state"
    folder.mkdir(mode=int(service()["StateDirectoryMode"], 8))
    _, *arguments = shlex.split(service()["ExecStart"].replace(state_folder(), str(folder)))
    process = subprocess.Popen(
        [*parley_command(), *arguments],
        cwd=folder,
        env={"PATH": os.defpath, "LANG": "C.UTF-8", "PARLEY_SERVER_PORT": "0"},
        umask=int(service()["UMask"], 8),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    said = Lines(process.stdout)
    try:
        assert said.wait_for(lambda line: line.startswith("parley ready on "), READY_SECONDS_MAX)
        assert {path.stat().st_mode & 0o077 for path in folder.iterdir()} == {0}
    finally:
        process.terminate()
        process.wait()
        said.join()


@pytest.mark.parametrize("key", ["User", "Group"])
def test_the_server_is_not_root(key: str) -> None:
    """It has a user and a group of its own."""
    assert service()[key] == "parley"
