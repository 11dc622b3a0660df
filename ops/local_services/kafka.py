"""Kafka: one broker that is its own controller."""

import socket
import struct
import subprocess
from pathlib import Path

from ops.local_services.cache import fetched
from ops.local_services.faults import ServiceError
from ops.local_services.fetching import fetch_by_maven
from ops.local_services.service import ANSWER_SECONDS_MAX, LOOPBACK, Place, Say, Service, java_command

VERSION = "4.3.1"
LIBRARIES = (f"org.apache.kafka:kafka_2.13:{VERSION}", "org.slf4j:slf4j-simple:1.7.36")
CLUSTER_ID = "A" * 22
FORMAT_SECONDS_MAX = 60.0
METADATA_KEY, METADATA_VERSION, CORRELATION = 3, 4, 7
ANSWER_BYTES_MAX = 1024 * 1024
QUICK_TO_START = "-XX:TieredStopAtLevel=1"

# The last two make a restart after kill -9 fast: a broker may register again once its old session has ended.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{broker},CONTROLLER://{controller}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@{controller}
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
offsets.topic.num.partitions=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=4194304
broker.session.timeout.ms=1000
broker.heartbeat.interval.ms=250
"""


class Kafka(Service):
    name = "kafka"
    title = f"Kafka {VERSION}"
    port_names = ("broker", "controller")
    note = ""
    can_forget = False

    def program(self, say: Say) -> Path:
        return fetched(f"kafka-{VERSION}", lambda into: self._fetch(into, say), say)

    def version(self, program: Path) -> str:
        return VERSION

    def prepare(self, program: Path, place: Place) -> list[str]:
        properties = place.folder / "server.properties"
        properties.write_text(
            PROPERTIES.format(
                broker=place.address("broker"), controller=place.address("controller"), data=place.data
            ),
            encoding="utf-8",
        )
        if not (place.data / "meta.properties").exists():
            self._format(program, properties)
        return self._java(program, "kafka.Kafka", str(properties))

    def answers(self, place: Place) -> bool:
        """Whether the broker lists itself for clients, which it does not do while it is fenced."""
        question = struct.pack(">hhihi?", METADATA_KEY, METADATA_VERSION, CORRELATION, -1, 0, False)
        with socket.create_connection((LOOPBACK, place.ports["broker"]), ANSWER_SECONDS_MAX) as connection:
            connection.sendall(struct.pack(">i", len(question)) + question)
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            answer = _exactly(connection, min(size, ANSWER_BYTES_MAX))
        correlation, _throttled_ms, brokers = struct.unpack_from(">iii", answer)
        return bool(correlation == CORRELATION and brokers == 1)

    def variables(self, place: Place) -> dict[str, str]:
        return {"PARLEY_KAFKA_BROKERS": place.address("broker")}

    def _fetch(self, into: Path, say: Say) -> None:
        say(f"fetching {self.title} by Maven, about 45 MB")
        fetch_by_maven(LIBRARIES, into, say)

    def _java(self, program: Path, *arguments: str) -> list[str]:
        return java_command(self.title, program / "libs", QUICK_TO_START, *arguments)

    def _format(self, program: Path, properties: Path) -> None:
        tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)]
        formatting = subprocess.run(
            self._java(program, *tool),
            capture_output=True,
            text=True,
            timeout=FORMAT_SECONDS_MAX,
            check=False,
        )
        if formatting.returncode != 0:
            words = (formatting.stderr or formatting.stdout).strip().splitlines() or ["no output"]
            raise ServiceError(f"Kafka could not create its data folder: {words[-1]}")


def _exactly(connection: socket.socket, count: int) -> bytes:
    """Exactly `count` bytes; OSError if the connection ends before."""
    received = b""
    while len(received) < count:
        piece = connection.recv(count - len(received))
        if not piece:
            raise ConnectionError("the answer was cut off")
        received += piece
    return received
