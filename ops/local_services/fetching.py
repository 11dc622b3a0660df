"""Downloads with package managers, so that their configured mirrors, proxies and credentials apply."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ops.local_services.cache import cache_folder
from ops.local_services.faults import ServiceError

FETCH_SECONDS_MAX = 900.0
PROGRESS_SECONDS = 5.0
POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>parley.services</groupId>
  <artifactId>fetch</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencyManagement><dependencies>{boms}</dependencies></dependencyManagement>
  <dependencies>{libraries}</dependencies>
</project>
"""


def fetch_by_maven(
    libraries: Sequence[str], into: Path, say: Callable[[str], None], boms: Sequence[str] = ()
) -> None:
    """Copy libraries, given as `group:artifact:version`, and all they need at run time into a folder."""
    maven = shutil.which("mvn")
    if maven is None:
        raise ServiceError(
            "Fetching needs Maven, but there is no `mvn` on the PATH (Debian: apt install maven)."
        )
    pom = into / "pom.xml"
    pom.write_text(pom_text(libraries, boms), encoding="utf-8")
    command = [maven, "-q", "-B", "-f", str(pom), f"-Dmaven.repo.local={cache_folder() / 'm2'}"]
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={into / 'libs'}"]
    _run([*command, *goal], into, say)


def pom_text(libraries: Sequence[str], boms: Sequence[str]) -> str:
    """A project that does nothing but depend on these."""
    imported = "<type>pom</type><scope>import</scope>"
    return POM.format(
        boms="".join(_dependency(bom, imported) for bom in boms),
        libraries="".join(_dependency(library) for library in libraries),
    )


def fetch_by_pip(requirement: str, into: Path, say: Callable[[str], None]) -> None:
    """Unpack one Python package, without what it needs, into a folder of its own."""
    if importlib.util.find_spec("pip") is None:
        raise ServiceError(f"Fetching {requirement} needs pip, but {sys.executable} has none.")
    options = ["--quiet", "--no-deps", "--disable-pip-version-check", "--target", str(into)]
    _run([sys.executable, "-m", "pip", "install", *options, requirement], into, say)


def fetch_by_apt(packages: Sequence[str], into: Path, say: Callable[[str], None]) -> None:
    """Unpack the first of these packages that exists into a folder, without root."""
    apt, work = _own_apt(packages[-1], into, say)
    for package in packages:
        try:
            _run([*apt, "download", package], into, say, work)
        except ServiceError:
            if package == packages[-1]:
                raise
        else:
            break
    _unpack(work.glob("*.deb"), work, into, say)


def fetch_all_by_apt(package: str, into: Path, say: Callable[[str], None]) -> None:
    """Unpack a package, and all it needs that this machine does not have, into a folder, without root."""
    apt, work = _own_apt(package, into, say)
    options = ("-y", "-o", "Debug::NoLocking=true", "--no-install-recommends", "--download-only")
    _run([*apt, *options, "install", package], into, say, work)
    _unpack((work / "cache" / "archives").glob("*.deb"), work, into, say)


def _own_apt(package: str, into: Path, say: Callable[[str], None]) -> tuple[list[str], Path]:
    """apt with its own lists and cache: those of the system may be missing or old, and need root."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise ServiceError(
                f"Fetching {package} needs Debian or Ubuntu, but there is no `{tool}` on this machine."
            )
    work = into / "apt"
    for name in ("lists/partial", "cache/archives/partial"):
        (work / name).mkdir(parents=True)
    own = {"Dir::State::lists": work / "lists", "Dir::Cache": work / "cache", "APT::Sandbox::User": "root"}
    apt = ["apt-get", "-q", *(part for name, value in own.items() for part in ("-o", f"{name}={value}"))]
    _run([*apt, "update"], into, say, work)
    return apt, work


def _unpack(archives: Iterable[Path], work: Path, into: Path, say: Callable[[str], None]) -> None:
    for archive in archives:
        _run(["dpkg-deb", "-x", str(archive), str(into)], into, say, work)
    shutil.rmtree(work)


def _dependency(coordinates: str, more: str = "") -> str:
    group, artifact, version = coordinates.split(":")
    names = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
    return f"<dependency>{names}{more}</dependency>"


def _run(command: Sequence[str], grows: Path, say: Callable[[str], None], cwd: Path | None = None) -> None:
    """Run a command to its end and report its progress."""
    log = cache_folder() / "fetch.log"
    began = time.monotonic()
    with log.open("wb") as output:
        fetching = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd=cwd
        )
        try:
            while not _ended(fetching):
                seconds = time.monotonic() - began
                if seconds > FETCH_SECONDS_MAX:
                    raise ServiceError(f"Fetching took longer than {FETCH_SECONDS_MAX:.0f} s; see {log}.")
                say(f"  {seconds:.0f} s, {folder_bytes(cache_folder() / 'm2', grows) // 1_000_000} MB")
        finally:
            _end(fetching)
    if fetching.returncode != 0:
        raise ServiceError(
            f"{Path(command[0]).name} could not fetch it: {_last_error(log)} (all of it: {log})"
        )


def _ended(process: "subprocess.Popen[bytes]") -> bool:
    try:
        process.wait(PROGRESS_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the whole process group when the script is interrupted: Maven is a script that starts Java."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def folder_bytes(*folders: Path) -> int:
    """The size of these folders, while other processes may write there."""
    total = 0
    for folder in folders:
        for path, _, files in os.walk(folder):
            for name in files:
                try:
                    total += os.lstat(os.path.join(path, name)).st_size
                except FileNotFoundError:
                    continue  # A download was renamed after it was listed.
    return total


def _last_error(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line for line in lines if line.startswith(("[ERROR]", "ERROR", "E: "))]
    first = (errors or lines or ["it said nothing"])[0]
    return first.removeprefix("[ERROR]").removeprefix("E: ").strip()
