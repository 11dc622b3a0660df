"""Proofs between nodes: each call is let in once, and nothing else is."""

import pytest

from parley.core.node_trust import (
    CALL_AGE_MS_MAX,
    REPLAYED,
    TOO_MANY,
    UNSIGNED,
    WRONG_SIGNATURE,
    WRONG_TIME,
    Doorkeeper,
    is_answer_proven,
    prove_answer,
    prove_call,
)

SECRET = "a secret of some length"
START_MS = 1_767_225_600_000
CALL = ("POST", "/v1/sequences/allocate", b'{"allocations":[]}')


def proof_at(now_ms: int, nonce: bytes = b"once", secret: str = SECRET) -> str:
    return prove_call(secret, *CALL, now_ms, nonce)


def test_a_proven_call_is_let_in() -> None:
    """The proof that the caller makes is the one that is asked for."""
    assert Doorkeeper(SECRET, START_MS).why_refused(proof_at(START_MS), *CALL, START_MS + 5) is None


@pytest.mark.parametrize(
    "call",
    [
        ("PUT", CALL[1], CALL[2]),
        ("POST", "/v1/sequences/restore", CALL[2]),
        ("POST", CALL[1], b'{"allocations":[1]}'),
        ("POST", CALL[1] + "?all=1", CALL[2]),
    ],
)
def test_a_tampered_call_is_refused(call: tuple[str, str, bytes]) -> None:
    """Another method, path, query or body does not fit the proof."""
    assert Doorkeeper(SECRET, START_MS).why_refused(proof_at(START_MS), *call, START_MS) == WRONG_SIGNATURE


def test_a_tampered_stamp_is_refused() -> None:
    """Neither the time nor the nonce of a proof can be changed."""
    time, nonce, signature = proof_at(START_MS).split(".")
    keeper = Doorkeeper(SECRET, START_MS)
    for forged in (f"{int(time) + 1}.{nonce}.{signature}", f"{time}.{nonce}00.{signature}"):
        assert keeper.why_refused(forged, *CALL, START_MS) == WRONG_SIGNATURE


@pytest.mark.parametrize("secret", ["", "another secret of some length", SECRET + " "])
def test_another_secret_is_refused(secret: str) -> None:
    """Only the very same secret opens the door."""
    proof = proof_at(START_MS, secret=secret)
    assert Doorkeeper(SECRET, START_MS).why_refused(proof, *CALL, START_MS) == WRONG_SIGNATURE


@pytest.mark.parametrize("proof", ["", ".", "..", "a.b.c", "1" * 5000 + ".x.y", "1.\udcff.x", "١.a.b", "12"])
def test_what_is_no_proof_is_refused(proof: str) -> None:
    """Garbage is refused like nothing at all, whatever it is made of."""
    assert Doorkeeper(SECRET, START_MS).why_refused(proof, *CALL, START_MS) == UNSIGNED


def test_a_call_is_let_in_once() -> None:
    """The same proof is refused the second time, for as long as it would be young enough."""
    keeper = Doorkeeper(SECRET, START_MS)
    for ahead_ms in (0, CALL_AGE_MS_MAX):
        proof = proof_at(START_MS + ahead_ms)
        assert keeper.why_refused(proof, *CALL, START_MS) is None
        for later_ms in (0, CALL_AGE_MS_MAX - 1, CALL_AGE_MS_MAX):
            assert keeper.why_refused(proof, *CALL, START_MS + later_ms) == REPLAYED


def test_two_calls_of_one_moment_are_both_let_in() -> None:
    """Another nonce makes another call."""
    keeper = Doorkeeper(SECRET, START_MS)
    assert keeper.why_refused(proof_at(START_MS, b"one"), *CALL, START_MS) is None
    assert keeper.why_refused(proof_at(START_MS, b"two"), *CALL, START_MS) is None


def test_an_old_call_is_refused() -> None:
    """Thirty seconds are the most, to either side."""
    now_ms = START_MS + 10 * CALL_AGE_MS_MAX
    keeper = Doorkeeper(SECRET, START_MS)
    assert keeper.why_refused(proof_at(now_ms - CALL_AGE_MS_MAX - 1), *CALL, now_ms) == WRONG_TIME
    assert keeper.why_refused(proof_at(now_ms + CALL_AGE_MS_MAX + 1), *CALL, now_ms) == WRONG_TIME
    assert keeper.why_refused(proof_at(now_ms - CALL_AGE_MS_MAX), *CALL, now_ms) is None
    assert keeper.why_refused(proof_at(now_ms + CALL_AGE_MS_MAX), *CALL, now_ms) is None


def test_a_clock_that_is_set_back_opens_nothing() -> None:
    """A call that was forgotten as too old is not let in when time goes back to its moment."""
    keeper = Doorkeeper(SECRET, START_MS)
    old = proof_at(START_MS)
    assert keeper.why_refused(old, *CALL, START_MS) is None
    later_ms = START_MS + 5 * CALL_AGE_MS_MAX
    assert keeper.why_refused(proof_at(later_ms), *CALL, later_ms) is None
    assert keeper.why_refused(old, *CALL, START_MS) == WRONG_TIME


def test_a_call_to_the_process_before_is_refused() -> None:
    """A restarted node remembers nothing, and so takes nothing from before its start."""
    assert Doorkeeper(SECRET, START_MS).why_refused(proof_at(START_MS - 1), *CALL, START_MS + 1) == WRONG_TIME


def test_memory_is_bounded_and_forgets_the_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full memory refuses rather than forgets, and is free again when the calls have grown old."""
    monkeypatch.setattr("parley.core.node_trust.CALLS_REMEMBERED_MAX", 2)
    keeper = Doorkeeper(SECRET, START_MS)
    answers = [keeper.why_refused(proof_at(START_MS, bytes([n])), *CALL, START_MS) for n in range(3)]
    assert answers == [None, None, TOO_MANY]
    later_ms = START_MS + 2 * CALL_AGE_MS_MAX
    assert keeper.why_refused(proof_at(later_ms), *CALL, later_ms) is None


def test_a_refused_call_is_not_remembered() -> None:
    """Strangers cannot fill the memory, nor use up a proof by sending it with another body."""
    keeper = Doorkeeper(SECRET, START_MS)
    proof = proof_at(START_MS)
    assert keeper.why_refused(proof, "POST", CALL[1], b"other", START_MS) == WRONG_SIGNATURE
    assert keeper.why_refused(proof, *CALL, START_MS) is None


def test_an_answer_belongs_to_its_call() -> None:
    """The proof of an answer holds for this call, status, body and secret only."""
    call, other = proof_at(START_MS), proof_at(START_MS, b"other")
    proof = prove_answer(SECRET, call, 200, b"yes")
    assert is_answer_proven(SECRET, call, 200, b"yes", proof)
    for forged in ((SECRET, other, 200, b"yes"), (SECRET, call, 503, b"yes"), (SECRET, call, 200, b"no")):
        assert not is_answer_proven(*forged, proof)
    assert not is_answer_proven("another", call, 200, b"yes", proof)


def test_the_secret_is_not_in_the_proof() -> None:
    """What travels shows nothing of the secret."""
    assert SECRET not in proof_at(START_MS)
    assert SECRET.encode().hex() not in proof_at(START_MS)
