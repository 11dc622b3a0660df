"""Which certificates of a cluster a node believes."""

import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec import convert

from parley.app.cassandra import make_tls
from parley.config import CassandraConfig
from parley.errors import ConfigError
from tests.certificates import TestAuthority

ITS_ADDRESS, OTHER_ADDRESS = "127.0.0.1", "127.0.0.2"
STEPS_MAX = 10


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path)


@pytest.fixture
def server(authority: TestAuthority) -> ssl.SSLContext:
    """A node of the cluster, with a certificate for its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("node")[:2])
    return context


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, address: str) -> None:
    """As if the node had been reached by this address. Raises what the client makes of its certificate."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=address)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(STEPS_MAX):
        with suppress(ssl.SSLWantReadError):
            ours.do_handshake()
            return
        with suppress(ssl.SSLWantReadError):
            theirs.do_handshake()
    raise AssertionError("they did not come to an end")


def context_of(**settings: str) -> ssl.SSLContext:
    context = make_tls(convert(settings, CassandraConfig))
    assert context is not None
    return context


def test_the_authority_and_the_address_must_be_right(
    authority: TestAuthority, server: ssl.SSLContext
) -> None:
    """A certificate for another address is somebody else's."""
    context = context_of(ca=str(authority.ca))
    shake_hands(context, server, ITS_ADDRESS)
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        shake_hands(context_of(ca=str(authority.ca)), server, OTHER_ADDRESS)


def test_names_can_be_left_unchecked_for_an_authority_of_its_own(
    authority: TestAuthority, server: ssl.SSLContext, tmp_path: Path
) -> None:
    """Then its certificates are enough, and those of others are not."""
    shake_hands(context_of(ca=str(authority.ca), tls="any_name"), server, OTHER_ADDRESS)
    (tmp_path / "other").mkdir()
    stranger = TestAuthority(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(context_of(ca=str(stranger.ca), tls="any_name"), server, ITS_ADDRESS)


def test_names_matter_with_the_authorities_of_the_machine() -> None:
    """Anybody can have a certificate from one of those."""
    assert context_of(tls="on").check_hostname
    with pytest.raises(ConfigError, match=r"needs cassandra\.ca"):
        make_tls(CassandraConfig(tls="any_name"))


def test_without_either_nothing_is_encrypted() -> None:
    """As the default says."""
    assert make_tls(CassandraConfig()) is None


def test_a_file_that_is_no_certificate_is_told(tmp_path: Path) -> None:
    """By the name of its setting."""
    (tmp_path / "ca.pem").write_text("nothing", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^cassandra\.ca: .* cannot be used"):
        make_tls(CassandraConfig(ca=str(tmp_path / "ca.pem")))
