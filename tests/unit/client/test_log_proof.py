"""The SDK compares what it read with the log: whatever a server lost, changed or moved is noticed."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from parley.client.events import Update, What
from parley.client.inbox import Budget, Inbox, slots_of
from parley.client.log_proof import LogDifference
from parley.client.storage import Cursor, SqliteStorage, StateChanges
from parley.core import log_hash
from parley.wire.frames import Entry, MessageBatch, Messages, SyncRequest, answer_to
from tests.harness.log_replay import as_fields, replayed
from tests.model_server.server import make_entry, raw
from tests.unit.client.harness import CHAT, Harness, of

Log = list[Entry | None]


def make_log(size: int, *voids: int) -> Log:
    return [None if at in voids else make_entry(CHAT, at, f"text {at}") for at in range(1, size + 1)]


def numbered(log: Log) -> Log:
    """The same entries at the places that they have in this list."""
    return [
        entry and msgspec.structs.replace(entry, sequence=sequence) for sequence, entry in enumerate(log, 1)
    ]


def hash_of(log: Log, through: int) -> bytes:
    return replayed(CHAT, [as_fields(entry) for entry in log[:through]])[-1]


def page_of(
    log: Log, after: int, to: int | None = None, *, is_hashed: bool = True, shown: Log | None = None
) -> MessageBatch:
    """A page as a server with this log answers; `shown`: what it reads its entries from instead."""
    to = len(log) if to is None else to
    positions = (shown or log)[after:to]
    page = MessageBatch(
        chat_id=CHAT,
        epoch=1,
        entries=[raw(entry) for entry in positions if entry is not None],
        voids=[after + at for at, entry in enumerate(positions, 1) if entry is None],
        from_sequence=after + 1,
        to_sequence=to,
        head=len(log),
        complete=to == len(log),
        reset=False,
    )
    if is_hashed:
        page.log_hash = log_hash.shown(hash_of(log, to))
    return page


def receive(inbox: Inbox, page: MessageBatch) -> None:
    entries = [msgspec.json.decode(entry, type=Entry) for entry in page.entries]
    inbox.receive_page(page, slots_of(entries, page.voids))


def reader_of(log: Log) -> Inbox:
    """An inbox that has read this log from its start, and processed it."""
    inbox = Inbox(CHAT, Cursor(), Budget())
    receive(inbox, page_of(log, 0))
    while inbox.take() is not None:
        pass
    assert inbox.difference is None
    return inbox


def found(inbox: Inbox) -> str:
    """What the last page has shown, as the core takes it."""
    difference, inbox.difference = inbox.difference, None
    if difference is None:
        return "nothing"
    return "lasting difference" if difference.is_lasting else "difference"


def resumed(inbox: Inbox) -> Inbox:
    """The next run of the program: it has only the cursor that was saved."""
    return Inbox(CHAT, inbox.processed, Budget())


def test_equal_logs_are_equal() -> None:
    """Pages, live entries, voids, an unknown kind and a removed body: nothing is told."""
    log = make_log(8, 3)
    log[4] = make_entry(CHAT, 5, kind="from the future")
    log[5] = log_hash.without_body(make_entry(CHAT, 6, "secret"))
    inbox = Inbox(CHAT, Cursor(), Budget())
    receive(inbox, page_of(log, 0, 2))
    receive(inbox, page_of(log, 2, 6))
    inbox.receive_live(1, slots_of([entry for entry in log[6:] if entry is not None], []))
    receive(inbox, page_of(log, 8))
    assert inbox.resolved == 8
    assert (inbox.difference, inbox.restarts) == (None, 0)


def lost(log: Log) -> Log:
    return numbered([*log[:2], *log[3:]])


def changed(log: Log) -> Log:
    return [*log[:2], make_entry(CHAT, 3, "another text"), *log[3:]]


def reordered(log: Log) -> Log:
    return numbered([log[0], log[2], log[1], *log[3:]])


def voided(log: Log) -> Log:
    return [*log[:2], None, *log[3:]]


def inserted(log: Log) -> Log:
    new = msgspec.structs.replace(make_entry(CHAT, 3, "new"), message_id="msg_new")
    return numbered([*log[:2], new, *log[2:]])


@pytest.mark.parametrize("fault", [lost, changed, reordered, voided, inserted])
def test_a_fault_behind_the_cursor_is_noticed(fault: Callable[[Log], Log]) -> None:
    """In the next run, with the cursor's own hash: the difference is told, and all is read again."""
    log = make_log(6)
    inbox = resumed(reader_of(log))
    after = fault([*log, *make_log(8)[6:]])
    receive(inbox, page_of(after, 6))
    assert inbox.difference is not None
    assert (inbox.difference.sequence, inbox.difference.is_lasting) == (len(after), False)
    assert (inbox.resolved, inbox.processed, inbox.restarts) == (0, Cursor(1), 1)
    assert inbox.wants_sync
    assert inbox.sync_request(7, 100).last_acked_sequence == 0


@pytest.mark.parametrize("fault", [lost, changed, reordered, voided, inserted])
def test_who_starts_over_reads_what_the_log_holds(fault: Callable[[Log], Log]) -> None:
    """The second reading is whole and equal, and comparing goes on."""
    log = make_log(6)
    inbox = resumed(reader_of(log))
    after = fault([*log, *make_log(8)[6:]])
    receive(inbox, page_of(after, 6))
    inbox.difference = None
    receive(inbox, page_of(after, 0, 3))
    receive(inbox, page_of(after, 3))
    taken = []
    while (entry := inbox.take()) is not None:
        taken.append(entry)
    assert taken == [entry for entry in after if entry is not None]
    assert inbox.difference is None
    assert inbox.processed.log_hash == hash_of(after, len(after))
    receive(inbox, page_of([None, *after[1:]], len(after)))
    assert found(inbox) == "difference", "a later fault is a new one"


def test_a_server_that_cannot_prove_its_log_is_read_all_the_same() -> None:
    """Its entries are not those of its hash: told once more as lasting, and nobody reads in circles."""
    log = make_log(6)
    inbox = Inbox(CHAT, Cursor(), Budget())
    receive(inbox, page_of(log, 0, 3, shown=changed(log)))
    assert found(inbox) == "difference"
    receive(inbox, page_of(log, 0, 2, shown=changed(log)))
    assert found(inbox) == "nothing", "up to here it is equal, and that settles nothing"
    receive(inbox, page_of(log, 2, 6, shown=changed(log)))
    assert found(inbox) == "lasting difference"
    assert (inbox.resolved, inbox.wants_sync) == (6, False)
    receive(inbox, page_of(log, 6))
    assert found(inbox) == "nothing"


def test_a_page_without_a_hash_is_read_without() -> None:
    """The server may not have it yet."""
    log = make_log(6)
    inbox = resumed(reader_of(log))
    receive(inbox, page_of(changed([*log, *make_log(8)[6:]]), 6, is_hashed=False))
    assert (found(inbox), inbox.resolved) == ("nothing", 8)


def test_a_difference_says_what_was_compared() -> None:
    """Enough for a person who looks into it."""
    log = make_log(4)
    inbox = resumed(reader_of(log))
    other = changed(log)
    receive(inbox, page_of(other, 4))
    own, theirs = log_hash.shown(hash_of(log, 4)), log_hash.shown(hash_of(other, 4))
    assert inbox.difference == LogDifference(CHAT, 1, 4, own, theirs, False)


def test_without_a_saved_hash_the_first_page_is_believed() -> None:
    """A device that starts at the server's position, or had an older SDK, compares from there on."""
    log = make_log(6)
    inbox = Inbox(CHAT, Cursor(1, 3), Budget())
    receive(inbox, page_of(log, 3))
    while inbox.take() is not None:
        pass
    assert (inbox.difference, inbox.processed.log_hash) == (None, hash_of(log, 6))
    inbox = resumed(inbox)
    receive(inbox, page_of(changed(log), 6))
    assert inbox.difference is not None


def test_what_was_read_without_a_hash_is_not_saved_with_one() -> None:
    """A hash belongs to its own position alone."""
    log = make_log(6)
    inbox = Inbox(CHAT, Cursor(1, 3), Budget())
    receive(inbox, page_of(log, 3))
    inbox.take()
    inbox.take()
    assert (inbox.processed.sequence, inbox.processed.log_hash) == (4, None)


def test_a_hash_of_another_version_is_ignored() -> None:
    """A newer server serves this client without a proof."""
    inbox = reader_of(make_log(3))
    page = page_of(make_log(3), 3)
    page.log_hash = "2:" + "0" * 64
    receive(inbox, page)
    assert (inbox.difference, inbox.resolved) == (None, 3)


def test_a_reset_is_no_difference() -> None:
    """The server says itself that the log is another one: its hash is that of the new one."""
    inbox = reader_of(make_log(6))
    other = changed(make_log(4))
    page = page_of(other, 0)
    page.reset, page.epoch = True, 2
    receive(inbox, page)
    assert (inbox.difference, inbox.resolved, inbox.restarts) == (None, 4, 1)


@given(st.integers(1, 12), st.data())
def test_any_fault_is_noticed(size: int, data: st.DataObject) -> None:
    """Wherever the fault is, and wherever the pages end."""
    log = make_log(size)
    at = data.draw(st.integers(0, size - 1))
    fault = data.draw(st.sampled_from(["lost", "void", "changed", "moved"]))
    other = list(log)
    if fault == "moved":
        other.insert(data.draw(st.integers(0, size - 1)), other.pop(at))
    else:
        forged = make_entry(CHAT, at + 1, "forged") if fault == "changed" else None
        other[at : at + 1] = [] if fault == "lost" else [forged]
    other = numbered(other)
    assume(other != log and len(other) >= 1)
    inbox = resumed(reader_of(log))
    other += [make_entry(CHAT, sequence) for sequence in range(len(other) + 1, size + 3)]
    receive(inbox, page_of(other, size))
    assert inbox.difference is not None


# In the core, and on disk


def test_the_application_is_told() -> None:
    """An update names the chat, the chat says what was found, and the log is asked for from its start."""
    log = make_log(4)
    harness = Harness({CHAT: Cursor(1, 3, "msg_chat_1_1_3", hash_of(log, 3))})
    chat = harness.core.chat(CHAT)
    harness.core.read(chat)
    harness.connect()
    (request,) = of(SyncRequest, harness.frames())
    assert isinstance(request, SyncRequest)
    page = page_of(changed(log), 3)
    page.re = answer_to(request.id)
    harness.receive(page)
    assert Update(What.LOG, CHAT) in harness.core.events()
    assert chat.log_difference is not None
    assert chat.log_difference.sequence == 4
    (again,) = of(SyncRequest, harness.frames())
    assert isinstance(again, SyncRequest)
    assert again.last_acked_sequence == 0
    assert harness.core.take(chat, 0) is None, "nothing of the wrong log is shown"


def test_live_entries_are_part_of_the_proof() -> None:
    """What came live is compared by the next page."""
    log = make_log(5)
    inbox = reader_of(log[:3])
    live = Messages(chat_id=CHAT, epoch=1, entries=[raw(entry) for entry in log[3:] if entry is not None])
    inbox.receive_live(1, slots_of([msgspec.json.decode(entry, type=Entry) for entry in live.entries], []))
    receive(inbox, page_of([*log[:4], make_entry(CHAT, 5, "other")], 5))
    assert inbox.difference is not None


def test_the_hash_is_saved_with_the_cursor(tmp_path: Path) -> None:
    """It survives the process."""
    path = str(tmp_path / "outbox.db")
    storage = SqliteStorage(path)
    cursor = Cursor(1, 6, "msg_6", hash_of(make_log(6), 6))
    storage.commit(StateChanges(cursors={CHAT: cursor, "chat_2": Cursor(1, 2, None)}))
    storage.close()
    again = SqliteStorage(path)
    assert again.load().cursors == {CHAT: cursor, "chat_2": Cursor(1, 2, None)}
    again.close()
