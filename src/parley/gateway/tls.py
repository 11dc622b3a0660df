"""TLS on the server's own port: its certificate, and the renewal of it while the server runs."""

from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path

import structlog

from parley.config import TlsConfig
from parley.core.jobs import Job
from parley.errors import ConfigError

WATCH_SECONDS = 10.0
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

log = structlog.get_logger("parley.tls")

Stamp = tuple[tuple[int, int, int] | None, ...]
"""Of each file: when it changed, its size, its inode; None if there is none."""


def server_context(certificate: str, key: str = "", min_version: str = "1.2") -> ssl.SSLContext:
    """A context that shows this certificate; ConfigError if the files cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[min_version]
    context.set_alpn_protocols(["http/1.1"])
    for path in filter(None, (certificate, key)):
        try:
            Path(path).read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read the TLS file {path}: {error.strerror}") from error
    try:
        # With an empty passphrase OpenSSL refuses an encrypted key instead of asking on the terminal.
        context.load_cert_chain(certificate, key or None, password="")
    except ssl.SSLError as error:
        files = f"{certificate} and {key}" if key else certificate
        why = (error.reason or str(error)).replace("_", " ").lower()
        raise ConfigError(f"no certificate with its key, unencrypted PEM, in {files}: {why}") from error
    return context


class Certificate:
    """A certificate in files. `context` shows new connections the newest one that could be used.

    Connections that are open stay as they are.
    """

    def __init__(self, tls: TlsConfig) -> None:
        self._tls = tls
        self._paths = [Path(path) for path in (tls.certificate, tls.key) if path]
        self._stamp = self._look()
        self._newest = self.context = server_context(tls.certificate, tls.key, tls.min_version)
        # OpenSSL calls this for every handshake, with a server name in it or without.
        self.context.sni_callback = self._show_newest
        self._warn_of_readers()

    def _show_newest(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._newest

    @property
    def job(self) -> Job:
        return Job(
            name="certificate_watch",
            does="shows the certificate anew when its files have changed",
            run=self.watch,
            interval_seconds=WATCH_SECONDS,
            timeout_seconds=None,
        )

    async def watch(self) -> None:
        """Reload when the files have changed. A renewal needs no restart, and no signal."""
        if self._look() != self._stamp:
            self.reload()

    def reload(self) -> None:
        """Show what the files hold now; if that cannot be used, log it and keep the old certificate."""
        tls = self._tls
        self._stamp = self._look()
        try:
            self._newest = server_context(tls.certificate, tls.key, tls.min_version)
        except ConfigError as error:
            log.error("certificate not renewed, the old one stays", reason=str(error))
            return
        log.info("certificate renewed", file=tls.certificate)
        self._warn_of_readers()

    def _look(self) -> Stamp:
        return tuple(_stamp(path) for path in self._paths)

    def _warn_of_readers(self) -> None:
        key = self._paths[-1]
        if key.stat().st_mode & stat.S_IROTH:
            log.warning("every user of this machine can read the TLS key", file=str(key))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
