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


def test_an_older_note_changes_nothing() -> None:
    """A lower position, and an equal one that comes later, leave the first as it was."""
    notes = Notes()
    notes.note_acked("ann", "phone", "chat", (5, 100))
    notes.note_acked("ann", "phone", "chat", (3, 200))
    notes.note_acked("ann", "phone", "chat", (5, 300))
    assert notes.acked == {("ann", "phone", "chat"): (5, 100)}


def test_what_is_delivered_is_the_furthest() -> None:
    """Of all devices and of what was read, the furthest counts, with its own time."""
    notes = Notes()
    notes.note_acked("ann", "phone", "one", (5, 100))
    notes.note_acked("ann", "tablet", "one", (7, 200))
    notes.note_read("ann", "one", (6, 300))
    notes.note_read("ann", "two", (4, 400))
    notes.note_acked("ann", "phone", "two", (3, 500))
    notes.note_acked("ben", "phone", "one", (1, 600))
    assert notes.delivered() == {("ann", "one"): (7, 200), ("ann", "two"): (4, 400), ("ben", "one"): (1, 600)}
    assert notes.read == {("ann", "one"): (6, 300), ("ann", "two"): (4, 400)}


def test_a_forgotten_device_leaves_the_others() -> None:
    """Only what one device of one person has said is forgotten."""
    notes = Notes()
    for user, device, chat in (("ann", "phone", "a"), ("ann", "phone", "b"), ("ann", "tablet", "a")):
        notes.note_acked(user, device, chat, (1, 1))
    notes.note_acked("ben", "phone", "a", (1, 1))
    notes.note_read("ann", "a", (1, 1))
    notes.forget_device("ann", "phone")
    notes.forget_device("ann", "watch")
    assert set(notes.acked) == {("ann", "tablet", "a"), ("ben", "phone", "a")}
    assert set(notes.read) == {("ann", "a")}


def test_notes_are_true_when_there_are_any() -> None:
    """Whoever asks whether there is anything to write gets the answer."""
    notes = Notes()
    assert not notes
    notes.note_read("ann", "chat", (1, 1))
    assert notes
