"""One chat's order: from frames in any order to entries in the one order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.client.inbox import CHAT_ENTRIES_MAX, RECENT_IDS_MAX, Budget, Inbox, Slot, slots_of
from parley.client.storage import Cursor
from parley.errors import NOT_A_MEMBER
from parley.wire.frames import Entry, MessageBatch
from tests.model_server.server import make_entry

CHAT = "chat_1"


def slots(*sequences: int, epoch: int = 1) -> list[Slot]:
    return slots_of([make_entry(CHAT, sequence, epoch=epoch) for sequence in sequences], [])


def voids(*sequences: int) -> list[Slot]:
    return slots_of([], sequences)


def batch(
    positions: list[Slot], head: int, *, epoch: int = 1, reset: bool = False, after: int = 0
) -> MessageBatch:
    to_sequence = positions[-1].sequence if positions else after
    return MessageBatch(
        chat_id=CHAT,
        epoch=epoch,
        entries=[],
        voids=[],
        from_sequence=positions[0].sequence if positions else after + 1,
        to_sequence=to_sequence,
        head=head,
        complete=to_sequence >= head,
        reset=reset,
    )


def placed(at: int = 0, *, epoch: int = 1, budget: Budget | None = None) -> Inbox:
    """An inbox whose position the server has confirmed."""
    cursor = Cursor(epoch, at, f"msg_{CHAT}_{epoch}_{at}" if at else None)
    inbox = Inbox(CHAT, cursor, budget or Budget())
    inbox.receive_page(batch([], at, epoch=epoch, after=at), [])
    return inbox


def place(inbox: Inbox) -> tuple[int, int, str | None]:
    """The cursor of an inbox, without the hash."""
    return inbox.processed.epoch, inbox.processed.sequence, inbox.processed.message_id


def take_all(inbox: Inbox) -> list[int]:
    taken = []
    while (entry := inbox.take()) is not None:
        taken.append(entry.sequence)
    return taken


def test_live_entries_come_in_order() -> None:
    """What follows the cursor is ready at once."""
    inbox = placed(4)
    inbox.receive_live(1, slots(5, 6))
    assert take_all(inbox) == [5, 6]
    assert not inbox.wants_sync


def test_nothing_is_shown_past_a_gap() -> None:
    """An entry that comes too early is held, and the log is asked for what is missing."""
    inbox = placed(4)
    inbox.receive_live(1, slots(6, 7))
    assert take_all(inbox) == []
    assert inbox.wants_sync
    request = inbox.sync_request(9, 100)
    assert (request.last_acked_sequence, request.epoch, request.last_message_id) == (4, 1, f"msg_{CHAT}_1_4")


def test_a_late_entry_releases_what_was_held() -> None:
    """Once the gap is filled, everything behind it follows, each once."""
    inbox = placed(4)
    inbox.receive_live(1, slots(6, 7))
    inbox.receive_live(1, slots(5))
    assert take_all(inbox) == [5, 6, 7]
    assert not inbox.wants_sync


def test_a_page_fills_the_gap() -> None:
    """A page and what was held overlap, and still each entry comes once."""
    inbox = placed(4)
    inbox.receive_live(1, slots(7, 8))
    inbox.receive_page(batch(slots(5, 6, 7), 8), slots(5, 6, 7))
    assert take_all(inbox) == [5, 6, 7, 8]
    assert not inbox.wants_sync


def test_duplicates_are_dropped() -> None:
    """The same frame twice, and a page over it, show nothing again."""
    inbox = placed(0)
    inbox.receive_live(1, slots(1, 2))
    inbox.receive_live(1, slots(1, 2))
    inbox.receive_page(batch(slots(1, 2), 2), slots(1, 2))
    assert take_all(inbox) == [1, 2]


def test_the_same_message_at_a_second_position_is_shown_once() -> None:
    """A message id is shown once, while the cursor still passes its second position."""
    inbox = placed(0)
    again = slots(2)[0]._replace(message_id=slots(1)[0].message_id)
    inbox.receive_live(1, [*slots(1), again])
    assert take_all(inbox) == [1]
    assert inbox.processed.sequence == 2


def test_the_memory_of_message_ids_is_bounded() -> None:
    """Only the recent ones are remembered."""
    inbox = placed(0)
    for sequence in range(1, RECENT_IDS_MAX + 100):
        inbox.receive_live(1, slots(sequence))
        inbox.take()
    assert len(inbox._recent_ids) <= RECENT_IDS_MAX


def test_voids_are_stepped_over_silently() -> None:
    """A declared void blocks nobody and is shown to nobody."""
    inbox = placed(0)
    inbox.receive_live(1, [*slots(1), *voids(2), *slots(3)])
    assert take_all(inbox) == [1, 3]


def test_a_cursor_may_rest_on_a_void() -> None:
    """Then no message_id is named with it."""
    inbox = placed(0)
    inbox.receive_live(1, [*slots(1), *voids(2)])
    take_all(inbox)
    assert place(inbox) == (1, 2, None)
    assert inbox.sync_request(1, 10).last_message_id is None


def test_an_unknown_kind_is_passed_over() -> None:
    """A kind of entry that this SDK does not know moves the cursor and is not shown."""
    inbox = placed(0)
    strange = make_entry(CHAT, 1)
    strange.kind = "hologram"
    inbox.receive_live(1, slots_of([strange, make_entry(CHAT, 2)], []))
    assert take_all(inbox) == [2]
    assert inbox.processed.sequence == 2


def test_a_page_with_a_hole_is_not_passed() -> None:
    """Even a server that leaves a position out does not move the cursor past it."""
    inbox = placed(0)
    inbox.receive_page(batch(slots(1, 3), 3), slots(1, 3))
    assert take_all(inbox) == [1]
    assert inbox.wants_sync


def test_a_page_that_tells_nothing_new_says_so() -> None:
    """Whoever asks again and again for nothing can notice it."""
    inbox = placed(2)
    assert not inbox.receive_page(batch([], 5, after=2), [])
    assert inbox.receive_page(batch(slots(3), 5), slots(3))


def test_an_incomplete_page_asks_for_the_next() -> None:
    """Pages are handed on one by one, and the log is asked until its head."""
    inbox = placed(0)
    inbox.receive_page(batch(slots(1, 2), 4), slots(1, 2))
    assert take_all(inbox) == [1, 2]
    assert inbox.wants_sync
    assert inbox.sync_request(1, 10).last_acked_sequence == 2


def test_an_entry_is_processed_when_the_next_is_asked_for() -> None:
    """Taking an entry does not yet move the cursor; asking for another does."""
    inbox = placed(0)
    inbox.receive_live(1, slots(1, 2))
    inbox.take()
    assert inbox.processed.sequence == 0
    inbox.take()
    assert place(inbox) == (1, 1, f"msg_{CHAT}_1_1")


def test_an_entry_that_was_put_back_comes_again() -> None:
    """A loop that ended without asking for the next entry shows it again in the next loop."""
    inbox = placed(0)
    inbox.receive_live(1, slots(1, 2))
    inbox.take()
    inbox.put_back()
    assert take_all(inbox) == [1, 2]


def test_a_new_inbox_asks_before_it_shows() -> None:
    """Until a page has confirmed the position, live entries wait."""
    inbox = Inbox(CHAT, Cursor(1, 4, "msg_x"), Budget())
    inbox.receive_live(1, slots(5))
    assert take_all(inbox) == []
    assert inbox.wants_sync
    inbox.receive_page(batch([], 4, after=4), [])
    assert take_all(inbox) == [5]


def test_reset_starts_over() -> None:
    """Entries come again from 1, and what was ready of the old log is forgotten."""
    inbox = placed(0)
    inbox.receive_live(1, slots(1, 2, 3))
    inbox.take()
    page = slots(1, 2, epoch=2)
    inbox.receive_page(batch(page, 2, epoch=2, reset=True), page)
    assert inbox.restarts == 1
    assert inbox.processed == Cursor(2)
    assert take_all(inbox) == [1, 2]
    assert place(inbox) == (2, 2, f"msg_{CHAT}_2_2")


def test_a_higher_epoch_makes_the_position_doubtful() -> None:
    """A live entry of a rebuilt log is not mixed with the old one; the log is asked."""
    inbox = placed(3)
    inbox.receive_live(2, slots(4, epoch=2))
    assert take_all(inbox) == []
    assert inbox.wants_sync


def test_an_old_epoch_is_ignored() -> None:
    """A late frame of a log that is gone changes nothing."""
    inbox = placed(3, epoch=2)
    inbox.receive_live(1, slots(4))
    assert take_all(inbox) == []
    assert not inbox.wants_sync


def test_an_entry_told_before_a_reset_is_not_forgotten() -> None:
    """A live entry that was heard while the reset page was read is fetched after it."""
    inbox = placed(3)
    inbox.receive_live(2, slots(3, epoch=2))
    page = slots(1, 2, epoch=2)
    inbox.receive_page(batch(page, 2, epoch=2, reset=True), page)
    assert inbox.wants_sync


def test_another_message_at_the_cursor_is_noticed() -> None:
    """The same sequence with another id means another log, even in the same epoch."""
    inbox = placed(3)
    inbox.receive_live(1, [slots(3)[0]._replace(message_id="msg_other")])
    assert inbox.wants_sync


def test_a_head_below_the_cursor_is_noticed() -> None:
    """A log that became shorter is not the log that was read."""
    inbox = placed(3)
    inbox.note_head(2, 1)
    assert inbox.wants_sync


def test_a_head_above_the_cursor_is_fetched() -> None:
    """A lost notice is found by the head alone."""
    inbox = placed(3)
    inbox.note_head(3)
    assert not inbox.wants_sync
    inbox.note_head(4)
    assert inbox.wants_sync


def test_what_an_old_connection_told_is_not_believed_for_ever() -> None:
    """After a reconnect the log is asked once, and what this server says counts."""
    inbox = placed(3)
    inbox.note_head(9)
    inbox.connected()
    assert inbox.wants_sync
    inbox.receive_page(batch([], 3, after=3), [])
    assert not inbox.wants_sync


def test_a_new_connection_asks_nothing_of_a_log_that_is_complete_here() -> None:
    """Everything told of had come: the overview will tell what is new."""
    inbox = placed(3)
    inbox.note_head(3)
    inbox.connected()
    assert not inbox.wants_sync


def test_a_slow_consumer_costs_bounded_memory() -> None:
    """What does not fit is dropped and read again from the log."""
    budget = Budget()
    inbox = placed(0, budget=budget)
    for sequence in range(1, CHAT_ENTRIES_MAX * 2):
        inbox.receive_live(1, slots(sequence))
    assert budget.entries <= CHAT_ENTRIES_MAX
    had_room = inbox.has_room
    assert take_all(inbox) == list(range(1, CHAT_ENTRIES_MAX + 1))
    assert (had_room, inbox.has_room) == (False, True)
    assert inbox.wants_sync


def test_what_is_held_never_takes_all_the_room() -> None:
    """However much comes too early, there is room for the page that is missing."""
    budget = Budget(bytes_max=10_000, entries_max=1_000_000)
    inbox = placed(0, budget=budget)
    inbox.receive_live(1, slots(*range(2, 500)))
    assert inbox.has_room
    assert budget.held_bytes <= 10_000 * 0.6


def test_a_released_inbox_gives_its_budget_back() -> None:
    """Nothing leaks from a budget that others share."""
    budget = Budget()
    inbox = placed(0, budget=budget)
    inbox.receive_live(1, slots(1, 2, 5, 6))
    inbox.clear()
    assert (budget.entries, budget.ready_bytes, budget.held_bytes) == (0, 0, 0)


def test_a_failed_inbox_asks_no_more() -> None:
    """What was refused for good is not asked again."""
    inbox = placed(0)
    inbox.note_head(5)
    inbox.failure = NOT_A_MEMBER
    assert not inbox.wants_sync


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 12), st.integers(1, 5)), max_size=40),
    st.sets(st.integers(1, 16)),
)
def test_any_frames_give_a_contiguous_prefix(frames: list[tuple[bool, int, int]], holes: set[int]) -> None:
    """However stretches of one log come, live or as pages, what is shown is a prefix of it."""
    log: list[Entry | None] = [
        None if number in holes else make_entry(CHAT, number) for number in range(1, 17)
    ]
    inbox = placed(0)
    shown = []
    for is_page, after, count in frames:
        positions = [
            Slot(number, entry.message_id if entry else None, entry)
            for number, entry in enumerate(log[after : after + count], after + 1)
        ]
        if is_page:
            inbox.receive_page(batch(positions, len(log), after=after), positions)
        else:
            inbox.receive_live(1, positions)
        shown += take_all(inbox)
    wanted = [entry.sequence for entry in log if entry is not None]
    assert shown == wanted[: len(shown)]
    assert inbox.processed.sequence == inbox.resolved


@pytest.mark.parametrize("order", [[1, 2, 3], [3, 2, 1], [2, 3, 1]])
def test_positions_of_a_frame_are_sorted(order: list[int]) -> None:
    """Entries and voids of one frame are merged by sequence."""
    positions = slots_of([make_entry(CHAT, 2)], [sequence for sequence in order if sequence != 2])
    assert [position.sequence for position in positions] == [1, 2, 3]
