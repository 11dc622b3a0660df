"""How the nodes of a cluster authenticate each other: a proof with every call, and one with its answer.

A proof is `time.nonce.tag`, made with a key of the cluster over the target, the method, the path, the time,
the nonce and the digest of the body. It authenticates and does not encrypt: where the network must not read
calls, use TLS. A recorded call can be replayed neither to the node that accepted it nor to any other: it
names its target, and a node of the cluster has another name after each start.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

from parley.core.cluster_keys import CALLS, SEQUENCER, ClusterKeys, KeyRing

CALL_AGE_MS_MAX = 30_000
"""How old a call may be; also how far a peer's clock may be ahead."""

NONCE_BYTES = 16
CALLS_REMEMBERED_MAX = 1_000_000
SECRET_CHARS_MIN = 16
PROOF_CHARS_MAX = 128
SEQUENCES = "/v1/sequences/"
"""Calls to these paths are the Sequence Service's, which has a key of its own."""

UNSIGNED = "the call is not signed"
WRONG_SIGNATURE = "the signature is wrong"
WRONG_TARGET = "the call is meant for another node, or for this one before it started anew"
WRONG_TIME = "the call is too old, or the clocks of the two nodes differ"
REPLAYED = "the call was made before"
TOO_MANY = "too many calls at once"


class NodeCall(NamedTuple):
    """What is called. `target`: the name of the process that is meant."""

    target: str
    method: str
    path: str
    body: bytes


class CallKeys:
    """The keys of calls; which one follows from the path."""

    def __init__(self, keys: ClusterKeys) -> None:
        self._calls = keys.ring(CALLS)
        self._sequencer = keys.ring(SEQUENCER)

    def of(self, path: str) -> KeyRing:
        return self._sequencer if path.startswith(SEQUENCES) else self._calls


def prove_call(keys: CallKeys, call: NodeCall, now_ms: int, nonce: bytes) -> str:
    """The proof of a call. Never use a nonce twice."""
    stamp = f"{now_ms}.{nonce.hex()}"
    return f"{stamp}.{keys.of(call.path).tag(_text_of_call(call, stamp)).hex()}"


def prove_answer(keys: CallKeys, path: str, call_proof: str, status: int, body: bytes) -> str:
    """The proof of an answer: a node that knows the secret gave it to this call."""
    return keys.of(path).tag(_text_of_answer(call_proof, status, body)).hex()


def is_answer_proven(
    keys: CallKeys, path: str, call_proof: str, status: int, body: bytes, proof: str
) -> bool:
    return keys.of(path).accepts(_text_of_answer(call_proof, status, body), _bytes_of(proof))


class CallVerifier:
    """Accepts each proven call once. Time is passed in; only proven calls are remembered.

    `name`: what calls to this process name as their target. It forgets a call only when it would refuse it
    as too old, even if the clock is set back, and accepts none from before its own start: a call that an
    earlier process of this name accepted is refused.
    """

    def __init__(self, keys: CallKeys, name: str, now_ms: int) -> None:
        assert name, "a process without a name could not tell calls to it from calls to others"
        self._keys = keys
        self._name = name
        self._oldest_ms = now_ms
        self._seen: dict[int, set[str]] = {}

    def why_refused(self, proof: str, call: NodeCall, now_ms: int) -> str | None:
        """None accepts the call, this one time; otherwise one sentence for the caller's operator."""
        stamp, _, tag = proof.rpartition(".")
        made = stamp.partition(".")[0]
        if not made.isdecimal() or not proof.isascii() or len(proof) > PROOF_CHARS_MAX:
            return UNSIGNED
        if not self._keys.of(call.path).accepts(_text_of_call(call, stamp), _bytes_of(tag)):
            return WRONG_SIGNATURE
        if call.target != self._name:
            return WRONG_TARGET
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


def _text_of_call(call: NodeCall, stamp: str) -> bytes:
    digest = sha256(call.body).hexdigest()
    return f"call\n{call.target}\n{call.method}\n{call.path}\n{stamp}\n{digest}".encode(errors="replace")


def _text_of_answer(call_proof: str, status: int, body: bytes) -> bytes:
    return f"answer\n{call_proof}\n{status}\n{sha256(body).hexdigest()}".encode(errors="replace")


def _bytes_of(tag: str) -> bytes:
    """Empty for what is no tag, which no key accepts."""
    try:
        return bytes.fromhex(tag)
    except ValueError:
        return b""
