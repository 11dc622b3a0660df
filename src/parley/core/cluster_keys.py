"""The keys of a cluster: one for each purpose, derived from the secret that all nodes share. Pure.

A key is derived by HKDF-SHA256 (RFC 5869), so a tag that was made for one purpose is worth nothing for
another, and no key tells anything of the secret. A tag is a keyed BLAKE2b. Why:
docs/decisions/0013-derived-keys-and-signed-hints.md.
"""

from __future__ import annotations

import hashlib
import hmac

KEY_BYTES = 32
TAG_BYTES = 16
SALT = b"parley cluster keys, version 1"

CALLS = "calls"
SEQUENCER = "sequencer"
ANNOUNCEMENTS = "announcements"
SIGNALS = "signals"
EVENTS = "events"
JOB_RECORDS = "job records"


def derive_key(secret: bytes, salt: bytes, info: bytes, length: int = KEY_BYTES) -> bytes:
    """HKDF-SHA256: extract, then expand."""
    extracted = hmac.digest(salt, secret, "sha256")
    key = block = b""
    counter = 0
    while len(key) < length:
        counter += 1
        block = hmac.digest(extracted, block + info + bytes([counter]), "sha256")
        key += block
    return key[:length]


class KeyRing:
    """The keys of one purpose. The first one signs and each is accepted, so that a secret can be changed."""

    def __init__(self, *keys: bytes) -> None:
        # Copying a state that has taken its key in costs less than taking it in for every tag.
        self._states = [hashlib.blake2b(key=key, digest_size=TAG_BYTES) for key in keys]

    def tag(self, data: bytes) -> bytes:
        return _tag(self._states[0], data)

    def accepts(self, data: bytes, tag: bytes) -> bool:
        """Whether a holder of one of these keys made this tag of this data."""
        is_made = False
        for state in self._states:
            is_made |= hmac.compare_digest(_tag(state, data), tag)
        return is_made


def _tag(state: hashlib.blake2b, data: bytes) -> bytes:
    started = state.copy()
    started.update(data)
    return started.digest()


class ClusterKeys:
    """Every key of a cluster. The first secret signs, and what was signed with any of them is accepted."""

    def __init__(self, *secrets: str) -> None:
        self._secrets = [secret.encode() for secret in secrets]

    def ring(self, purpose: str, place: str = "") -> KeyRing:
        """The keys of a purpose. `place`: the topic, channel or key of Redis that they are used at."""
        info = f"{purpose}\n{place}".encode()
        return KeyRing(*(derive_key(secret, SALT, info) for secret in self._secrets))
