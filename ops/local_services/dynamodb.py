"""DynamoDB Local: the emulator that AWS publishes."""

import http.client
import json
from pathlib import Path

from ops.local_services.cache import fetched
from ops.local_services.fetching import fetch_by_maven
from ops.local_services.service import ANSWER_SECONDS_MAX, LOOPBACK, Place, Say, Service, java_command

VERSION = "3.3.1"
LIBRARIES = (f"software.amazon.dynamodb:DynamoDBLocal:{VERSION}",)
BOMS = ("software.amazon.awssdk:bom:2.54.15",)
"""DynamoDB Local requires a version of the AWS SDK that was never fully published; this version works."""
REGION, KEY_ID, KEY = "local", "local", "local"
CREDENTIAL = f"Credential={KEY_ID}/20260101/{REGION}/dynamodb/aws4_request"
LIST_TABLES = {
    "Authorization": f"AWS4-HMAC-SHA256 {CREDENTIAL}, SignedHeaders=host, Signature=0",
    "Content-Type": "application/x-amz-json-1.0",
    "X-Amz-Target": "DynamoDB_20120810.ListTables",
}


class DynamoDb(Service):
    name = "dynamodb"
    title = f"DynamoDB Local {VERSION}"
    port_names = ("http",)
    note = "it listens on every interface of this machine, and accepts any credentials"
    can_forget = True

    def program(self, say: Say) -> Path:
        return fetched(f"dynamodb-{VERSION}", lambda into: self._fetch(into, say), say)

    def version(self, program: Path) -> str:
        return VERSION

    def prepare(self, program: Path, place: Place) -> list[str]:
        place.data.mkdir(exist_ok=True)
        libraries = program / "libs"
        native = f"-Dsqlite4java.library.path={libraries}"
        main = "software.amazon.dynamodb.services.local.main.ServerRunner"
        tables = ["-inMemory"] if place.in_memory else ["-dbPath", str(place.data)]
        options = ["-port", str(place.ports["http"]), *tables, "-sharedDb", "-disableTelemetry"]
        return java_command(self.title, libraries, native, main, *options)

    def answers(self, place: Place) -> bool:
        connection = http.client.HTTPConnection(LOOPBACK, place.ports["http"], timeout=ANSWER_SECONDS_MAX)
        try:
            connection.request("POST", "/", body=b"{}", headers=LIST_TABLES)
            response = connection.getresponse()
            return response.status == http.HTTPStatus.OK and "TableNames" in json.loads(response.read())
        except http.client.HTTPException as error:
            raise ConnectionError("it does not speak HTTP") from error
        finally:
            connection.close()

    def variables(self, place: Place) -> dict[str, str]:
        return {
            "PARLEY_DYNAMODB_ENDPOINT": f"http://{place.address('http')}",
            "PARLEY_DYNAMODB_REGION": REGION,
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": KEY,
        }

    def _fetch(self, into: Path, say: Say) -> None:
        say(f"fetching {self.title} by Maven, about 60 MB")
        fetch_by_maven(LIBRARIES, into, say, boms=BOMS)
