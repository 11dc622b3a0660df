"""Notes of positions: of each the highest counts, whatever comes first."""

from hypothesis import given
from hypothesis import strategies as st

from parley.store.notes import Notes

marks = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.integers(0, 9), st.integers(0, 9)), max_size=20
)


def noted(things: list[tuple[str, str, int, int]]) -> Notes:
    notes = Notes()
    for user, chat, sequence, now_ms in things:
        notes.note_acked(user, "phone", chat, (sequence, now_ms))
        notes.note_read(user, chat, (sequence, now_ms))
        notes.note_used(user.encode(), now_ms)
    return notes


@given(marks, marks)
def test_merging_keeps_the_highest(
    first: list[tuple[str, str, int, int]], second: list[tuple[str, str, int, int]]
) -> None:
    """What comes back from a failed write never lowers what was noted meanwhile."""
    notes = noted(first)
    notes.merge(noted(second))
    for user in "ab":
        for chat in "xy":
            sequences = [s for u, c, s, _ in (*first, *second) if (u, c) == (user, chat)]
            assert notes.acked.get((user, "phone", chat), (-1, 0))[0] == max(sequences, default=-1)
            assert notes.read.get((user, chat), (-1, 0))[0] == max(sequences, default=-1)
        times = [ms for u, _, _, ms in (*first, *second) if u == user]
        assert notes.used.get(user.encode(), -1) == max(times, default=-1)


def test_an_older_note_changes_nothing() -> None:
    """A lower position, and an equal one that comes later, leave the first as it was."""
    notes = Notes()
    notes.note_acked("ann", "phone", "chat", (5, 100))
    notes.note_acked("ann", "phone", "chat", (3, 200))
    notes.note_acked("ann", "phone", "chat", (5, 300))
    assert notes.acked == {("ann", "phone", "chat"): (5, 100)}


def test_notes_are_true_when_there_are_any() -> None:
    """Whoever asks whether there is anything to write gets the answer."""
    notes = Notes()
    assert not notes
    notes.note_used(b"token", 1)
    assert notes
