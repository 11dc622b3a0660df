"""How the nodes of one cluster know each other: a proof with every call, and one with its answer.

A proof is `time.nonce.signature`: an HMAC-SHA256 with the secret that all nodes share, over the method, the
path, the time, the nonce and the digest of the body. It says who speaks, not what the network can read: where
that matters, calls go over TLS. Whoever has seen a call cannot use it again at the node that took it.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

CALL_AGE_MS_MAX = 30_000
"""How old a call may be; also how far a peer's clock may be ahead."""

NONCE_BYTES = 16
CALLS_REMEMBERED_MAX = 1_000_000
SECRET_LETTERS_MIN = 16
PROOF_LETTERS_MAX = 128

UNSIGNED = "the call is not signed"
WRONG_SIGNATURE = "the signature is wrong"
WRONG_TIME = "the call is too old, or the clocks of the two nodes differ"
REPLAYED = "the call was made before"
TOO_MANY = "too many calls at once"


def prove_call(secret: str, method: str, path: str, body: bytes, now_ms: int, nonce: bytes) -> str:
    """What goes with a call. The nonce is never used again."""
    stamp = f"{now_ms}.{nonce.hex()}"
    return f"{stamp}.{_sign_call(secret, method, path, body, stamp)}"


def prove_answer(secret: str, call_proof: str, status: int, body: bytes) -> str:
    """What goes with an answer: it was given to this call, by somebody who knows the secret."""
    return _sign(secret, f"answer\n{call_proof}\n{status}\n{sha256(body).hexdigest()}")


def is_answer_proven(secret: str, call_proof: str, status: int, body: bytes, proof: str) -> bool:
    return _equal(prove_answer(secret, call_proof, status, body), proof)


class Doorkeeper:
    """Lets each proven call in once. Time is passed in; only proven calls are remembered.

    It forgets a call only when it would refuse it as too old, even if the clock is set back, and takes none
    from before its own beginning: a call seen by the process that stood here before is not let in again.
    """

    def __init__(self, secret: str, now_ms: int) -> None:
        self._secret = secret
        self._oldest_ms = now_ms
        self._seen: dict[int, set[str]] = {}

    def why_refused(self, proof: str, method: str, path: str, body: bytes, now_ms: int) -> str | None:
        """None lets the call in, this one time; otherwise one sentence for the caller's operator."""
        stamp, _, signature = proof.rpartition(".")
        made = stamp.partition(".")[0]
        if not made.isdecimal() or not proof.isascii() or len(proof) > PROOF_LETTERS_MAX:
            return UNSIGNED
        if not _equal(_sign_call(self._secret, method, path, body, stamp), signature):
            return WRONG_SIGNATURE
        self._forget(now_ms)
        if not self._oldest_ms <= int(made) <= now_ms + CALL_AGE_MS_MAX:
            return WRONG_TIME
        return self._remember(stamp, int(made))

    def _forget(self, now_ms: int) -> None:
        self._oldest_ms = max(self._oldest_ms, now_ms - CALL_AGE_MS_MAX)
        first = self._oldest_ms // CALL_AGE_MS_MAX
        if any(period < first for period in self._seen):
            self._seen = {period: seen for period, seen in self._seen.items() if period >= first}

    def _remember(self, stamp: str, made_ms: int) -> str | None:
        seen = self._seen.setdefault(made_ms // CALL_AGE_MS_MAX, set())
        if stamp in seen:
            return REPLAYED
        if sum(map(len, self._seen.values())) >= CALLS_REMEMBERED_MAX:
            return TOO_MANY
        seen.add(stamp)
        return None


def _sign_call(secret: str, method: str, path: str, body: bytes, stamp: str) -> str:
    return _sign(secret, f"call\n{method}\n{path}\n{stamp}\n{sha256(body).hexdigest()}")


def _sign(secret: str, text: str) -> str:
    return hmac.digest(secret.encode(), text.encode(), "sha256").hex()


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
