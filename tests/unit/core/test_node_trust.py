"""Proofs between nodes: each call is let in once, and nothing else is."""

import pytest

from parley.core.cluster_keys import ClusterKeys
from parley.core.node_trust import (
    CALL_AGE_MS_MAX,
    REPLAYED,
    TOO_MANY,
    UNSIGNED,
    WRONG_SIGNATURE,
    WRONG_TARGET,
    WRONG_TIME,
    CallKeys,
    CallVerifier,
    NodeCall,
    is_answer_proven,
    prove_answer,
    prove_call,
)

SECRET = "a secret of some length"
START_MS = 1_767_225_600_000
HERE = "node_7.1"
CALL = NodeCall(HERE, "POST", "/v1/sequences/allocate", b'{"allocations":[]}')
KEYS = CallKeys(ClusterKeys(SECRET))


def proof_at(now_ms: int, nonce: bytes = b"once", secret: str = SECRET, call: NodeCall = CALL) -> str:
    return prove_call(CallKeys(ClusterKeys(secret)), call, now_ms, nonce)


def verifier(name: str = HERE) -> CallVerifier:
    return CallVerifier(KEYS, name, START_MS)


def test_a_proven_call_is_let_in() -> None:
    """The proof that the caller makes is the one that is asked for."""
    assert verifier().why_refused(proof_at(START_MS), CALL, START_MS + 5) is None


@pytest.mark.parametrize(
    "call",
    [
        CALL._replace(target="node_8.1"),
        CALL._replace(method="PUT"),
        CALL._replace(path="/v1/sequences/restore"),
        CALL._replace(path="/node/append"),
        CALL._replace(path=CALL.path + "?all=1"),
        CALL._replace(body=b'{"allocations":[1]}'),
    ],
)
def test_a_tampered_call_is_refused(call: NodeCall) -> None:
    """Another target, method, path, query or body does not fit the proof."""
    keeper = verifier(call.target)
    assert keeper.why_refused(proof_at(START_MS), call, START_MS) == WRONG_SIGNATURE


def test_a_call_to_another_node_is_refused() -> None:
    """A proof is good for the process that it names, and for no other."""
    call = CALL._replace(target="node_8.1")
    assert verifier().why_refused(proof_at(START_MS, call=call), call, START_MS) == WRONG_TARGET


def test_the_keys_of_nodes_and_of_the_sequence_service_differ() -> None:
    """What is signed for one kind of call is worth nothing for the other."""
    assert KEYS.of("/node/append").tag(b"x") != KEYS.of("/v1/sequences/allocate").tag(b"x")


def test_a_call_of_a_node_with_the_old_or_the_new_secret_is_let_in() -> None:
    """While the secret is changed, whoever has either is of this cluster; nobody else is."""
    keeper = CallVerifier(CallKeys(ClusterKeys("the new secret", SECRET)), HERE, START_MS)
    said = [
        keeper.why_refused(proof_at(START_MS, secret=secret), CALL, START_MS)
        for secret in (SECRET, "the new secret", "a third secret")
    ]
    assert said == [None, REPLAYED, WRONG_SIGNATURE]


def test_a_tampered_stamp_is_refused() -> None:
    """Neither the time nor the nonce of a proof can be changed."""
    time, nonce, signature = proof_at(START_MS).split(".")
    keeper = verifier()
    for forged in (f"{int(time) + 1}.{nonce}.{signature}", f"{time}.{nonce}00.{signature}"):
        assert keeper.why_refused(forged, CALL, START_MS) == WRONG_SIGNATURE


@pytest.mark.parametrize("secret", ["", "another secret of some length", SECRET + " "])
def test_another_secret_is_refused(secret: str) -> None:
    """Only the very same secret opens the door."""
    proof = proof_at(START_MS, secret=secret)
    assert verifier().why_refused(proof, CALL, START_MS) == WRONG_SIGNATURE


@pytest.mark.parametrize("proof", ["", ".", "..", "a.b.c", "1" * 5000 + ".x.y", "1.\udcff.x", "١.a.b", "12"])
def test_what_is_no_proof_is_refused(proof: str) -> None:
    """Garbage is refused like nothing at all, whatever it is made of."""
    assert verifier().why_refused(proof, CALL, START_MS) == UNSIGNED


def test_a_call_is_let_in_once() -> None:
    """The same proof is refused the second time, for as long as it would be young enough."""
    keeper = verifier()
    for ahead_ms in (0, CALL_AGE_MS_MAX):
        proof = proof_at(START_MS + ahead_ms)
        assert keeper.why_refused(proof, CALL, START_MS) is None
        for later_ms in (0, CALL_AGE_MS_MAX - 1, CALL_AGE_MS_MAX):
            assert keeper.why_refused(proof, CALL, START_MS + later_ms) == REPLAYED


def test_two_calls_of_one_moment_are_both_let_in() -> None:
    """Another nonce makes another call."""
    keeper = verifier()
    assert keeper.why_refused(proof_at(START_MS, b"one"), CALL, START_MS) is None
    assert keeper.why_refused(proof_at(START_MS, b"two"), CALL, START_MS) is None


def test_an_old_call_is_refused() -> None:
    """Thirty seconds are the most, to either side."""
    now_ms = START_MS + 10 * CALL_AGE_MS_MAX
    keeper = verifier()
    assert keeper.why_refused(proof_at(now_ms - CALL_AGE_MS_MAX - 1), CALL, now_ms) == WRONG_TIME
    assert keeper.why_refused(proof_at(now_ms + CALL_AGE_MS_MAX + 1), CALL, now_ms) == WRONG_TIME
    assert keeper.why_refused(proof_at(now_ms - CALL_AGE_MS_MAX), CALL, now_ms) is None
    assert keeper.why_refused(proof_at(now_ms + CALL_AGE_MS_MAX), CALL, now_ms) is None


def test_a_clock_that_is_set_back_opens_nothing() -> None:
    """A call that was forgotten as too old is not let in when time goes back to its moment."""
    keeper = verifier()
    old = proof_at(START_MS)
    assert keeper.why_refused(old, CALL, START_MS) is None
    later_ms = START_MS + 5 * CALL_AGE_MS_MAX
    assert keeper.why_refused(proof_at(later_ms), CALL, later_ms) is None
    assert keeper.why_refused(old, CALL, START_MS) == WRONG_TIME


def test_a_call_to_the_process_before_is_refused() -> None:
    """A restarted node remembers nothing, and so takes nothing from before its start."""
    assert verifier().why_refused(proof_at(START_MS - 1), CALL, START_MS + 1) == WRONG_TIME


def test_memory_is_bounded_and_forgets_the_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full memory refuses rather than forgets, and is free again when the calls have grown old."""
    monkeypatch.setattr("parley.core.node_trust.CALLS_REMEMBERED_MAX", 2)
    keeper = verifier()
    answers = [keeper.why_refused(proof_at(START_MS, bytes([n])), CALL, START_MS) for n in range(3)]
    assert answers == [None, None, TOO_MANY]
    later_ms = START_MS + 2 * CALL_AGE_MS_MAX
    assert keeper.why_refused(proof_at(later_ms), CALL, later_ms) is None


def test_a_refused_call_is_not_remembered() -> None:
    """Strangers cannot fill the memory, nor use up a proof by sending it with another body."""
    keeper = verifier()
    proof = proof_at(START_MS)
    assert keeper.why_refused(proof, CALL._replace(body=b"other"), START_MS) == WRONG_SIGNATURE
    assert keeper.why_refused(proof, CALL, START_MS) is None


def test_an_answer_belongs_to_its_call() -> None:
    """The proof of an answer holds for this call, status, body and secret only."""
    call, other = proof_at(START_MS), proof_at(START_MS, b"other")
    proof = prove_answer(KEYS, CALL.path, call, 200, b"yes")
    assert is_answer_proven(KEYS, CALL.path, call, 200, b"yes", proof)
    for forged in ((other, 200, b"yes"), (call, 503, b"yes"), (call, 200, b"no")):
        assert not is_answer_proven(KEYS, CALL.path, *forged, proof)
    others = CallKeys(ClusterKeys("another"))
    assert not is_answer_proven(others, CALL.path, call, 200, b"yes", proof)
    assert not is_answer_proven(KEYS, CALL.path, call, 200, b"yes", "no tag")


def test_the_secret_is_not_in_the_proof() -> None:
    """What travels shows nothing of the secret."""
    assert SECRET not in proof_at(START_MS)
    assert SECRET.encode().hex() not in proof_at(START_MS)
