"""Certificates for tests: an authority of their own, and what it signs for localhost."""

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFETIME = dt.timedelta(days=1)


class TestAuthority:
    """Signs certificates for `localhost` and the loopback addresses. `ca` is the file to trust."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Parley tests")])
        certificate = _builder(self._name, self._name, self._key.public_key(), is_authority=True)
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(_pem(certificate.sign(self._key, hashes.SHA256())))

    def issue(self, name: str, password: bytes = b"") -> tuple[Path, Path, int]:
        """Files with a new certificate and its key, and the certificate's serial number."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        certificate = _builder(subject, self._name, key.public_key()).sign(self._key, hashes.SHA256())
        files = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        files[0].write_bytes(_pem(certificate))
        hidden: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            hidden = serialization.BestAvailableEncryption(password)
        files[1].write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
        )
        files[1].chmod(0o600)
        return *files, certificate.serial_number


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, is_authority: bool = False
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    addresses = [x509.IPAddress(ipaddress.ip_address(text)) for text in ("127.0.0.1", "::1")]
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - LIFETIME)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), *addresses]), critical=False)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
