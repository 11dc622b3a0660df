"""Cassandra: one node alone, one that asks for a password and TLS, or a ring of three."""

import socket
import ssl
import struct
import subprocess
from pathlib import Path

from ops.local_services.cache import fetched
from ops.local_services.faults import ServiceError
from ops.local_services.fetching import fetch_by_maven
from ops.local_services.service import ANSWER_SECONDS_MAX, LOOPBACK, Place, Say, Service, java, java_command

VERSION = "5.0.9"
LIBRARIES = (f"org.apache.cassandra:cassandra-all:{VERSION}",)
DATACENTER = "datacenter1"
"""The name that SimpleSnitch gives to every node."""
HEADER = struct.Struct(">BBhBi")
"""Version, flags, stream, kind and length of a frame, in version 4 of the protocol."""
PROTOCOL_VERSION, STREAM = 4, 1
STARTUP, AUTHENTICATE, OPTIONS, SUPPORTED, AUTH_RESPONSE, AUTH_SUCCESS = 1, 3, 5, 6, 15, 16
STARTUP_BODY = b"\0\1\0\x0bCQL_VERSION\0\x053.0.0"

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
      - seeds: 127.0.0.1:{seed}
{guard}
"""
GUARD = """\
authenticator: PasswordAuthenticator
authorizer: CassandraAuthorizer
client_encryption_options:
  enabled: true
  optional: false
  keystore: {keystore}
  keystore_password: {password}
"""
USER, PASSWORD = "cassandra", "cassandra"
"""The first user, whom Cassandra creates itself."""
KEYSTORE, KEYSTORE_PASSWORD, CERTIFICATE = "node.p12", "parley-local", "node.pem"
CERTIFICATE_DAYS = "3650"
YAML_NAME = "cassandra.yaml"
DURABLE = "commitlog_sync: batch"
"""A write is on the disk before it is answered."""
FORGETFUL = "commitlog_sync: periodic\ncommitlog_sync_period: 10000ms"
"""It is written to the disk, and not waited for."""
FORGETFUL_OPTIONS = ("-Dcassandra.unsafesystem=true",)
"""Nor are definitions of tables."""
JOIN_MS_MAX = 30_000
"""How long a node waits for the answer of the cluster that it joins. One that is alone waits for nobody."""
QUICK_TO_START = "-XX:TieredStopAtLevel=1"
"""It lives for minutes, on a machine that has other work: what it would compile better comes too late."""
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
    """`seed`: the name of the node whose cluster this one joins; that one must run.

    `is_guarded`: clients need a password, and TLS.
    """

    title = f"Cassandra {VERSION}"
    port_names = ("native", "storage")
    note = ""
    can_forget = True

    def __init__(self, name: str = "cassandra", *, seed: str = "", is_guarded: bool = False) -> None:
        self.name = name
        self._seed = seed
        self._is_guarded = is_guarded

    def program(self, say: Say) -> Path:
        return fetched(f"cassandra-{VERSION}", lambda into: self._fetch(into, say), say)

    def version(self, program: Path) -> str:
        return VERSION

    def prepare(self, program: Path, place: Place) -> list[str]:
        place.data.mkdir(exist_ok=True)
        yaml, logback = place.folder / YAML_NAME, place.folder / "logback.xml"
        sync = FORGETFUL if place.in_memory else DURABLE
        text = YAML.format(sync=sync, seed=self._seed_port(place), guard=self._guard(place), **place.ports)
        yaml.write_text(text, encoding="utf-8")
        logback.write_text(LOGBACK, encoding="utf-8")
        options = [
            HEAP,
            QUICK_TO_START,
            *(FORGETFUL_OPTIONS if place.in_memory else ()),
            f"-Dcassandra.config=file://{yaml}",
            f"-Dcassandra.storagedir={place.data}",
            f"-Dlogback.configurationFile={logback}",
            "-Dcassandra.skip_wait_for_gossip_to_settle=0",
            f"-Dcassandra.ring_delay_ms={JOIN_MS_MAX if self._seed else 0}",
            "-Dcassandra.superuser_setup_delay_ms=0",
            *OPENED,
        ]
        main = "org.apache.cassandra.service.CassandraDaemon"
        return java_command(self.title, program / "libs", *options, main)

    def answers(self, place: Place) -> bool:
        """Whether it says which options of the protocol it supports, which it does when it serves clients.

        A guarded one lets its first user in: it creates that one some time after its start.
        """
        with socket.create_connection((LOOPBACK, place.ports["native"]), ANSWER_SECONDS_MAX) as connection:
            if not self._is_guarded:
                return _ask(connection, OPTIONS) == SUPPORTED
            trust = ssl.create_default_context(cafile=place.folder / CERTIFICATE)
            with trust.wrap_socket(connection, server_hostname=LOOPBACK) as encrypted:
                token = f"\0{USER}\0{PASSWORD}".encode()
                return (
                    _ask(encrypted, STARTUP, STARTUP_BODY) == AUTHENTICATE
                    and _ask(encrypted, AUTH_RESPONSE, struct.pack(">i", len(token)) + token) == AUTH_SUCCESS
                )

    def variables(self, place: Place) -> dict[str, str]:
        """Of a ring, clients are told the first node, and find the others by it."""
        if self._seed:
            return {}
        found = {
            "PARLEY_CASSANDRA_CONTACT_POINTS": LOOPBACK,
            "PARLEY_CASSANDRA_PORT": str(place.ports["native"]),
            "PARLEY_CASSANDRA_LOCAL_DC": DATACENTER,
        }
        if self._is_guarded:
            found["PARLEY_CASSANDRA_USERNAME"], found["PARLEY_CASSANDRA_PASSWORD"] = USER, PASSWORD
            found["PARLEY_CASSANDRA_CA"] = str(place.folder / CERTIFICATE)
        return found

    def _seed_port(self, place: Place) -> int:
        """As the seed wrote it into its own settings."""
        if not self._seed:
            return place.ports["storage"]
        text = (place.folder.parent / self._seed / YAML_NAME).read_text(encoding="utf-8")
        return int(text.partition("storage_port: ")[2].partition("\n")[0])

    def _guard(self, place: Place) -> str:
        if not self._is_guarded:
            return ""
        keystore, certificate = place.folder / KEYSTORE, place.folder / CERTIFICATE
        if not certificate.exists():
            keystore.unlink(missing_ok=True)
            _make_certificate(java(self.title), keystore, certificate)
        return GUARD.format(keystore=keystore, password=KEYSTORE_PASSWORD)

    def _fetch(self, into: Path, say: Say) -> None:
        say(f"fetching {self.title} by Maven, about 70 MB")
        fetch_by_maven(LIBRARIES, into, say)


def _ask(connection: socket.socket, kind: int, body: bytes = b"") -> int:
    """Send one frame. Returns the kind of its answer."""
    connection.sendall(HEADER.pack(PROTOCOL_VERSION, 0, STREAM, kind, len(body)) + body)
    answer = HEADER.unpack(_receive(connection, HEADER.size))
    _receive(connection, answer[-1])
    return int(answer[3])


def _receive(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        some = connection.recv(count - len(found))
        if not some:
            raise ConnectionError("it has closed the connection")
        found += some
    return found


def _make_certificate(java_program: str, keystore: Path, certificate: Path) -> None:
    """A key for loopback, and the certificate that clients trust, by Java's own tool."""
    tool = str(Path(java_program).resolve().with_name("keytool"))
    store = ["-keystore", str(keystore), "-storetype", "PKCS12", "-storepass", KEYSTORE_PASSWORD]
    made = [*("-alias", "node", "-keyalg", "EC", "-dname", "CN=localhost", "-validity", CERTIFICATE_DAYS)]
    named = ["-ext", f"san=dns:localhost,ip:{LOOPBACK}"]
    for command in (
        [tool, "-genkeypair", *store, *made, *named],
        [tool, "-exportcert", "-rfc", "-alias", "node", *store, "-file", str(certificate)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServiceError(f"{tool} made no certificate: {(done.stdout + done.stderr).strip()}")
