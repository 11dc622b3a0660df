"""What a configuration says about trust between nodes: the keys of its cluster, and its certificates."""

from __future__ import annotations

import ssl

from parley.config import ClusterConfig, is_loopback
from parley.core.cluster_keys import ClusterKeys
from parley.core.node_trust import SECRET_CHARS_MIN
from parley.errors import ConfigError

MAKE_A_SECRET = "`openssl rand -hex 32` makes one; set PARLEY_CLUSTER_SECRET to it on every node"
TLS_KEYS = ("tls_certificate", "tls_key", "tls_ca")


def cluster_keys(cluster: ClusterConfig, host: str) -> ClusterKeys:
    """The keys of a node that listens at `host`.

    ConfigError without a secret, or with one that could be guessed where other machines reach the node.
    """
    if not cluster.secret:
        raise ConfigError(f"nodes that share a store need cluster.secret: {MAKE_A_SECRET}")
    secrets = [secret for secret in (cluster.secret, cluster.accepted_secret) if secret]
    if not is_loopback(host) and any(len(secret) < SECRET_CHARS_MIN for secret in secrets):
        raise ConfigError(
            f"cluster.secret must have at least {SECRET_CHARS_MIN} characters off loopback: {MAKE_A_SECRET}"
        )
    return ClusterKeys(*secrets)


def server_tls(cluster: ClusterConfig) -> ssl.SSLContext | None:
    """How this node takes calls: only from holders of a certificate of `cluster.tls_ca`. None without TLS."""
    return _tls(cluster, ssl.Purpose.CLIENT_AUTH)


def client_tls(cluster: ClusterConfig) -> ssl.SSLContext | None:
    """How this node makes calls: only to holders of a certificate of `cluster.tls_ca`. None without TLS."""
    return _tls(cluster, ssl.Purpose.SERVER_AUTH)


def _tls(cluster: ClusterConfig, purpose: ssl.Purpose) -> ssl.SSLContext | None:
    files = {key: getattr(cluster, key) for key in TLS_KEYS}
    missing = [f"cluster.{key}" for key, file in files.items() if not file]
    if len(missing) == len(files):
        return None
    if missing:
        raise ConfigError(f"TLS between nodes also needs {' and '.join(missing)}")
    try:
        context = ssl.create_default_context(purpose, cafile=cluster.tls_ca)
    except OSError as error:
        raise ConfigError(f"cluster.tls_ca cannot be used: {cluster.tls_ca}: {_words(error)}") from error
    # The authority of a cluster certifies nothing but its nodes, and the proof of a call names which one is
    # meant: a certificate need not hold the addresses of its node.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(cluster.tls_certificate, cluster.tls_key)
    except OSError as error:
        raise ConfigError(
            "cluster.tls_certificate and cluster.tls_key cannot be used:"
            f" {cluster.tls_certificate}, {cluster.tls_key}: {_words(error)}"
        ) from error
    return context


def _words(error: OSError) -> str:
    return error.strerror or str(error)
