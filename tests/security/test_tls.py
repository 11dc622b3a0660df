"""TLS on the server's own port: what is on the way stays hidden, and a renewal disturbs nobody."""

import asyncio
import os
import shutil
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from parley import client
from parley.client.api import open_http
from parley.errors import ConfigError
from parley.gateway import tls
from tests.certificates import TestAuthority
from tests.harness.clients import PASSWORD
from tests.harness.server import ServerProcess
from tests.integration.cli.running import parley
from tests.integration.gateway.serving import Place, Served
from tests.waiting import eventually


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> TestAuthority:
    return TestAuthority(tmp_path_factory.mktemp("authority"))


class TlsPlace:
    """A place to serve from, and the files that its server has its certificate from."""

    def __init__(self, place: Place, folder: Path, authority: TestAuthority) -> None:
        self._place = place
        self._authority = authority
        self.ca = str(authority.ca)
        self.certificate, self.key = folder / "chat.pem", folder / "chat.key"
        self.settings = {
            "PARLEY_TLS_CERTIFICATE": str(self.certificate),
            "PARLEY_TLS_KEY": str(self.key),
        }
        self.serial = self.renew()

    def renew(self) -> int:
        """Put a new certificate into the files; its serial number."""
        certificate, key, serial = self._authority.issue("new")
        shutil.move(key, self.key)
        shutil.move(certificate, self.certificate)
        return serial

    @asynccontextmanager
    async def serving(self, **settings: str) -> AsyncIterator[Served]:
        async with self._place.serving({**self.settings, **settings}) as served:
            served.url = f"https://localhost:{served.port}"
            yield served

    async def shown(self, served: Served, version: ssl.TLSVersion | None = None) -> int:
        """The serial number of the certificate that a new connection is shown."""
        context = ssl.create_default_context(cafile=self.ca)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        _, writer = await asyncio.open_connection("localhost", served.port, ssl=context)
        seen = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
        writer.close()
        return int(seen, 16)


@pytest.fixture
def secured(place: Place, tmp_path: Path, authority: TestAuthority) -> TlsPlace:
    return TlsPlace(place, tmp_path, authority)


async def token_for(served: Served, username: str) -> str:
    await served.app.accounts.register(username, PASSWORD)
    return (await served.app.accounts.log_in(username, PASSWORD, "phone", ""))[0]


async def test_messages_travel_encrypted(secured: TlsPlace) -> None:
    """The SDK speaks https and wss to a server with a certificate of a private authority."""
    async with secured.serving() as served:
        token = await token_for(served, "ann")
        async with client.connect(served.url.replace("https", "wss"), token, ca=secured.ca) as ann:
            chat = await ann.create_chat([], title="alone")
            assert (await chat.send("hidden on the way")).sequence > 0


async def test_nobody_is_asked_without_encryption(secured: TlsPlace) -> None:
    """The port has no plain way beside: what is sent to it in the clear gets no answer."""
    async with secured.serving() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP" not in await reader.read()
        writer.close()


async def test_an_impostor_is_not_believed(secured: TlsPlace) -> None:
    """A certificate of an authority that the client does not trust ends the attempt, and the token stays."""
    async with secured.serving() as served:
        token = await token_for(served, "ann")
        with pytest.raises(client.CannotConnect, match="is not trusted"):
            async with client.connect(served.url, token):
                pass


async def test_an_old_version_of_tls_is_refused(secured: TlsPlace) -> None:
    """A client that is talked into a version before `tls.min_version` cannot connect."""
    async with secured.serving(PARLEY_TLS_MIN_VERSION="1.3") as served:
        assert await secured.shown(served, ssl.TLSVersion.TLSv1_3) == secured.serial
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await secured.shown(served, ssl.TLSVersion.TLSv1_2)


def test_broken_versions_of_tls_are_never_spoken(authority: TestAuthority) -> None:
    """Without a word about it the oldest is 1.2."""
    certificate, key, _ = authority.issue("versions")
    assert tls.server_context(str(certificate), str(key)).minimum_version == ssl.TLSVersion.TLSv1_2


async def test_browsers_are_told_to_stay_with_tls(secured: TlsPlace, place: Place) -> None:
    """With TLS every answer has Strict-Transport-Security, and without none."""
    async with (
        secured.serving() as served,
        open_http(secured.ca) as http,
        http.get(f"{served.url}/healthz") as answer,
    ):
        assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"
    async with place.serving() as served:
        assert "Strict-Transport-Security" not in (await served.http.get("/healthz")).headers


# Renewal


async def test_a_renewed_certificate_is_shown_without_a_restart(
    secured: TlsPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are watched; new connections get the new certificate, and an old one stays."""
    monkeypatch.setattr(tls, "WATCH_SECONDS", 0.01)
    async with secured.serving() as served:
        token = await token_for(served, "ann")
        async with client.connect(served.url, token, ca=secured.ca) as ann:
            chat = await ann.create_chat([], title="alone")
            assert await secured.shown(served) == secured.serial
            new = secured.renew()

            async def is_shown() -> bool:
                return await secured.shown(served) == new

            await eventually(is_shown)
            assert (await chat.send("still here")).sequence > 0


@pytest.mark.parametrize("damage", ["gone", "nonsense", "another key"])
async def test_a_bad_renewal_does_not_end_the_service(
    secured: TlsPlace, damage: str, authority: TestAuthority, capfd: pytest.CaptureFixture[str]
) -> None:
    """The old certificate stays in use, and the log says why."""
    async with secured.serving() as served:
        if damage == "gone":
            secured.certificate.unlink()
        elif damage == "nonsense":
            secured.certificate.write_text("no certificate")
        else:
            shutil.copy(authority.issue("other")[1], secured.key)
        served.app.reload()
        assert await secured.shown(served) == secured.serial
    assert "certificate not renewed" in capfd.readouterr().out


async def test_a_bad_certificate_is_a_sentence_at_start(authority: TestAuthority, tmp_path: Path) -> None:
    """Missing, nonsense, another key, or a key with a passphrase, which must not be asked for."""
    certificate, key, _ = authority.issue("good")
    other, hidden = authority.issue("bad")[1], authority.issue("hidden", b"secret")
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("no certificate")
    pairs = [
        (tmp_path / "gone.pem", key),
        (nonsense, key),
        (certificate, other),
        hidden[:2],
        (certificate, ""),
    ]
    for pair in pairs:
        with pytest.raises(ConfigError, match=r"TLS file|no certificate with its key") as refused:
            tls.server_context(*map(str, pair))
        assert "\n" not in str(refused.value)


def test_a_process_says_https_and_renews_on_a_signal(
    tmp_path: Path, secured: TlsPlace, authority: TestAuthority
) -> None:
    """The ready line has the scheme, commands take the authority, and SIGHUP reloads and does not end it."""
    with ServerProcess(tmp_path / "data", secured.settings) as server:
        assert server.stdout_lines() == [f"parley ready on https://127.0.0.1:{server.port}"]
        assert parley("user", "add", "ann", data=server.data, given=f"{PASSWORD}\n").status == 0
        assert parley("chat", "create", "--title", "Tea", "--as", "ann", data=server.data).status == 0
        run = parley("send", "Tea", "hi", "--as", "ann", "--ca", secured.ca, data=server.data)
        assert run.status == 0, run.stderr
        secured.renew()
        os.kill(server.pid, signal.SIGHUP)
        server.wait_for_log("certificate renewed")
        run = parley(
            "tail", "Tea", "--once", "--as", "ann", data=server.data, environment={"PARLEY_CA": secured.ca}
        )
        assert "hi" in run.stdout, run.stderr
        untrusting = parley("send", "Tea", "hi", "--as", "ann", data=server.data)
        assert (untrusting.status, "is not trusted" in untrusting.stderr) == (1, True)
        assert server.terminate() == 0
