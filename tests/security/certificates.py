"""Certificates of a test's own authority, as an operator would make them with other tools."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from parley.config import ClusterConfig

VALID_DAYS = 2


class Authority:
    """Certifies nodes; what it certifies says nothing about addresses."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder / name
        self._folder.mkdir()
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        made = _certificate(self._name, self._name, self._key.public_key(), self._key, is_authority=True)
        self.file = self._folder / "ca.pem"
        self.file.write_bytes(_pem(made))

    def certify(self, name: str) -> tuple[str, str]:
        """The files of a new certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = _certificate(_named(name), self._name, key.public_key(), self._key, is_authority=False)
        certificate, key_file = (self._folder / f"{name}.{end}" for end in ("pem", "key"))
        certificate.write_bytes(_pem(made))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return str(certificate), str(key_file)

    def config(self, name: str, trusting: Authority | None = None) -> ClusterConfig:
        """The settings of a node with a certificate of this authority; it trusts this one or another."""
        certificate, key = self.certify(name)
        ca = (trusting or self).file
        return ClusterConfig(tls_certificate=certificate, tls_key=key, tls_ca=str(ca))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    signing_key: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=VALID_DAYS))
        .not_valid_after(now + dt.timedelta(days=VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .sign(signing_key, hashes.SHA256())
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
