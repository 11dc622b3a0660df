"""A small HTTP/2 server, as Apple's looks from outside: it notes requests and answers as it is told."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded


@dataclass
class Http2Request:
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass
class Http2Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class Http2Server:
    """`answers`: for the next requests; then 200 without a body."""

    def __init__(self) -> None:
        self.got: list[Http2Request] = []
        self.answers: list[Http2Answer] = []
        self.connections = 0
        self.port = 0
        self.silent = False
        """It takes requests and answers none."""
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        protocol = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        protocol.initiate_connection()
        writer.write(protocol.data_to_send())
        streams: dict[int, Http2Request] = {}
        try:
            while data := await reader.read(65_536):
                for event in protocol.receive_data(data):
                    match event:
                        case RequestReceived(stream_id=int(number), headers=headers):
                            streams[number] = Http2Request({str(n): str(v) for n, v in headers or ()})
                        case DataReceived(stream_id=int(number), data=bytes(part)):
                            streams[number].body += part
                            protocol.acknowledge_received_data(event.flow_controlled_length or 0, number)
                        case StreamEnded(stream_id=int(number)):
                            self.got.append(streams.pop(number))
                            if not self.silent:
                                self._answer(protocol, number)
                writer.write(protocol.data_to_send())
                await writer.drain()
        except (ConnectionError, ssl.SSLError):
            pass  # the client is gone
        finally:
            self._writers.discard(writer)
            writer.close()

    def _answer(self, protocol: H2Connection, number: int) -> None:
        answer = self.answers.pop(0) if self.answers else Http2Answer()
        headers = [(":status", str(answer.status)), *answer.headers.items()]
        protocol.send_headers(number, headers, end_stream=not answer.body)
        if answer.body:
            protocol.send_data(number, answer.body, end_stream=True)

    def cut(self) -> None:
        """Break every connection."""
        for writer in list(self._writers):
            writer.transport.abort()


@asynccontextmanager
async def http2_server(folder: Path) -> AsyncIterator[tuple[Http2Server, ssl.SSLContext]]:
    """The server, and what a client needs to trust it."""
    certificate = make_certificate(folder)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate)
    served.set_alpn_protocols(["h2"])
    server = Http2Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=served)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server, ssl.create_default_context(cafile=str(certificate))
    finally:
        listening.close()
        server.cut()


def make_certificate(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    path.write_bytes(pem_of(key) + certificate.public_bytes(serialization.Encoding.PEM))
    return path


def pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
