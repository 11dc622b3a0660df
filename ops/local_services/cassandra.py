"""Cassandra: one node, which is its whole cluster."""

import socket
import struct
from pathlib import Path

from ops.local_services.cache import fetched
from ops.local_services.fetching import fetch_by_maven
from ops.local_services.service import ANSWER_SECONDS_MAX, LOOPBACK, Place, Say, Service, java_command

VERSION = "5.0.9"
LIBRARIES = (f"org.apache.cassandra:cassandra-all:{VERSION}",)
DATACENTER = "datacenter1"
"""The name that SimpleSnitch gives to every node."""
OPTIONS_FRAME = struct.pack(">BBhBi", 4, 0, 1, 5, 0)
"""Version 4 of the protocol, no flags, stream 1, OPTIONS, no body."""
SUPPORTED = 6
HEADER_BYTES = 9

YAML = """\
cluster_name: parley
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
{sync}
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
native_transport_port: {native}
storage_port: {storage}
auto_bootstrap: false
auto_snapshot: false
num_tokens: 1
hinted_handoff_enabled: false
memtable_heap_space: 64MiB
key_cache_size: 0MiB
counter_cache_size: 0MiB
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: 127.0.0.1:{storage}
"""
DURABLE = "commitlog_sync: batch"
"""A write is on the disk before it is answered."""
FORGETFUL = "commitlog_sync: periodic\ncommitlog_sync_period: 10000ms"
"""It is written to the disk, and not waited for."""
LOGBACK = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""
HEAP = "-Xmx512m"
"""Each table takes a part of it, and tests have keyspaces of their own."""
OPENED = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "-Djdk.attach.allowAttachSelf=true",
)


class Cassandra(Service):
    name = "cassandra"
    title = f"Cassandra {VERSION}"
    port_names = ("native", "storage")
    note = ""
    can_forget = True

    def program(self, say: Say) -> Path:
        return fetched(f"cassandra-{VERSION}", lambda into: self._fetch(into, say), say)

    def version(self, program: Path) -> str:
        return VERSION

    def prepare(self, program: Path, place: Place) -> list[str]:
        place.data.mkdir(exist_ok=True)
        yaml, logback = place.folder / "cassandra.yaml", place.folder / "logback.xml"
        sync = FORGETFUL if place.in_memory else DURABLE
        yaml.write_text(YAML.format(sync=sync, **place.ports), encoding="utf-8")
        logback.write_text(LOGBACK, encoding="utf-8")
        options = [
            HEAP,
            f"-Dcassandra.config=file://{yaml}",
            f"-Dcassandra.storagedir={place.data}",
            f"-Dlogback.configurationFile={logback}",
            "-Dcassandra.skip_wait_for_gossip_to_settle=0",
            "-Dcassandra.ring_delay_ms=0",
            *OPENED,
        ]
        main = "org.apache.cassandra.service.CassandraDaemon"
        return java_command(self.title, program / "libs", *options, main)

    def answers(self, place: Place) -> bool:
        """Whether it says which options of the protocol it supports, which it does when it serves clients."""
        with socket.create_connection((LOOPBACK, place.ports["native"]), ANSWER_SECONDS_MAX) as connection:
            connection.sendall(OPTIONS_FRAME)
            header = connection.recv(HEADER_BYTES, socket.MSG_WAITALL)
        return len(header) == HEADER_BYTES and header[4] == SUPPORTED

    def variables(self, place: Place) -> dict[str, str]:
        return {
            "PARLEY_CASSANDRA_CONTACT_POINTS": LOOPBACK,
            "PARLEY_CASSANDRA_PORT": str(place.ports["native"]),
            "PARLEY_CASSANDRA_LOCAL_DC": DATACENTER,
        }

    def _fetch(self, into: Path, say: Say) -> None:
        say(f"fetching {self.title} by Maven, about 70 MB")
        fetch_by_maven(LIBRARIES, into, say)
