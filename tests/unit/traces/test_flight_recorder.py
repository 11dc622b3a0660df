"""What a node remembers of what it did, and for how long."""

from parley.core.timeline import TraceQuestion
from parley.model import Persisted, StoredEntry
from parley.traces.flight_recorder import FlightRecorder, RecordedOutbox, RunRing

CHAT = "chat_1"


class Now:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.ms = 1_000

    def __call__(self) -> int:
        return self.ms


class Door:
    """Who is connected now, and since when."""

    def __init__(self) -> None:
        self.devices: dict[str, list[tuple[str, int]]] = {}

    def __call__(self, user_id: str) -> list[tuple[str, int]]:
        return self.devices.get(user_id, [])


def asked(sequence: int, *user_ids: str) -> TraceQuestion:
    return TraceQuestion(CHAT, sequence, list(user_ids))


def stored(*sequences: int) -> list[StoredEntry]:
    return [StoredEntry(sequence, b"{}") for sequence in sequences]


def test_a_ring_remembers_the_last_runs() -> None:
    """Older ones are overwritten, and it says since when everything is there."""
    ring = RunRing(3)
    for number in range(1, 6):
        ring.add(CHAT if number % 2 else "chat_2", number * 10, number * 10 + 1, number * 100, number)
    assert [(run.first, run.last, run.at_ms, run.waited_ms) for run in ring.runs_of(CHAT)] == [
        (30, 31, 300, 3),
        (50, 51, 500, 5),
    ]
    assert ring.since_ms == 300
    assert ring.runs_of("chat_3") == []


def test_a_ring_that_is_not_full_remembers_everything() -> None:
    """Nothing was forgotten before the first run."""
    ring = RunRing(3)
    ring.add(CHAT, 1, 1, 100)
    assert ring.since_ms == 0


def test_a_frame_was_sent_to_those_who_were_connected_at_its_time() -> None:
    """To those who still are, and to those who have gone since; to no other, and of no other run."""
    now, door = Now(), Door()
    recorder = FlightRecorder("one", now, door)
    door.devices = {"ann": [("phone", 1_500)], "ben": [("pc", 2_500)]}
    now.ms = 2_000
    recorder.sent(CHAT, 4, 6)
    recorder.ended("cem", "gone_in_the_same_ms", 1_500)
    now.ms = 3_000
    recorder.ended("cem", "phone", 2_000)
    recorder.ended("dora", "phone", 2_001)
    trace = recorder.trace(asked(5, "ann", "ben", "cem", "dora"))
    assert (trace.sent_ms, trace.devices) == (2_000, [("ann", "phone"), ("cem", "phone")])
    assert recorder.trace(asked(5, "ben")).devices == []
    assert recorder.trace(asked(7, "ann")).sent_ms is None


def test_a_commit_is_remembered_with_how_long_it_took() -> None:
    """Accepted is when the first draft came; a commit with holes speaks only of its own positions."""
    now = Now()
    recorder = FlightRecorder("one", now, Door())
    now.ms = 2_000
    recorder.persisted([Persisted(CHAT, 1, stored(1, 2, 3), waited_ms=25)])
    recorder.persisted([Persisted(CHAT, 1, stored(4, 6), waited_ms=10)])
    assert [recorder.trace(asked(number)).accepted_ms for number in range(1, 8)] == [
        1_975,
        1_975,
        1_975,
        1_990,
        None,
        1_990,
        None,
    ]


def test_a_mark_says_when_only_if_the_one_before_is_known() -> None:
    """Everything before a mark that no other precedes was published then or earlier."""
    now = Now()
    recorder = FlightRecorder("one", now, Door())
    for now.ms, through in ((2_000, 5), (3_000, 8)):
        recorder.published(CHAT, through)
    told = [recorder.trace(asked(sequence)) for sequence in (3, 5, 6, 9)]
    assert [(trace.published_ms, trace.is_published_then) for trace in told] == [
        (2_000, False),
        (2_000, True),
        (3_000, True),
        (None, True),
    ]


async def test_an_outbox_is_recorded_and_used() -> None:
    """The recorder hears of a mark, and the outbox itself too."""

    class Marks:
        def __init__(self) -> None:
            self.noted: list[tuple[str, int]] = []

        def note_published(self, chat_id: str, through: int) -> None:
            self.noted.append((chat_id, through))

        async def unpublished(self) -> dict[str, int]:
            return {CHAT: 3}

        async def flush(self) -> None:
            self.noted.append(("flushed", 0))

    marks, recorder = Marks(), FlightRecorder("one", Now(), Door())
    outbox = RecordedOutbox(marks, recorder)
    outbox.note_published(CHAT, 4)
    await outbox.flush()
    assert marks.noted == [(CHAT, 4), ("flushed", 0)]
    assert await outbox.unpublished() == {CHAT: 3}
    assert recorder.trace(asked(4)).published_ms == 1_000
