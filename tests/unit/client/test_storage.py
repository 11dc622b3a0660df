"""What survives the process."""

import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from parley.client.errors import OutboxUnusable
from parley.client.storage import (
    Cursor,
    MemoryStorage,
    OutgoingMessage,
    SavedState,
    SqliteStorage,
    StateChanges,
    open_storage,
)


def message(name: str, chat_id: str = "chat_1") -> OutgoingMessage:
    return OutgoingMessage(
        chat_id=chat_id,
        client_message_id=name,
        content=f"NUL \x00 and 👋 of {name}",
        content_type="text/x",
        display_time="2026-01-30T14:30:00Z",
        created_at_ms=5,
        mentions=("user_1", "user 2"),
        attachments=("att_1", "att_2"),
    )


def test_messages_come_back_in_the_order_of_sending(tmp_path: Path) -> None:
    """A file that is opened again holds what was not removed, as it was and in its order."""
    storage = SqliteStorage(str(tmp_path / "outbox.db"))
    storage.commit(StateChanges(added=[message("b"), message("a", "chat_2")]))
    storage.commit(StateChanges(added=[message("c")], removed=[("chat_2", "a")]))
    storage.close()
    again = SqliteStorage(str(tmp_path / "outbox.db"))
    assert again.load().outgoing == [message("b"), message("c")]
    again.close()


FORMAT_1 = """
    CREATE TABLE outbox (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        chat_id TEXT NOT NULL,
        client_message_id TEXT NOT NULL,
        content TEXT NOT NULL,
        content_type TEXT NOT NULL,
        display_time TEXT,
        created_at_ms INTEGER NOT NULL,
        UNIQUE (chat_id, client_message_id)
    );
    CREATE TABLE cursors (
        chat_id TEXT PRIMARY KEY,
        epoch INTEGER NOT NULL,
        last_acked_sequence INTEGER NOT NULL,
        message_id TEXT
    ) WITHOUT ROWID;
    CREATE TABLE owner (user_id TEXT NOT NULL, device_id TEXT NOT NULL);
    INSERT INTO outbox VALUES (1, 'chat_1', 'a', 'hi', 'text/plain', NULL, 1769783400123);
    INSERT INTO owner VALUES ('user_a', 'phone');
    PRAGMA user_version = 1;
"""
"""A file of a version whose messages said when they were sent only if the application did."""


def test_an_outbox_of_an_earlier_version_still_opens(tmp_path: Path) -> None:
    """Its messages get the time at which they were queued."""
    path = str(tmp_path / "outbox.db")
    db = sqlite3.connect(path)
    db.executescript(FORMAT_1)
    db.close()
    storage = SqliteStorage(path)
    storage.claim("user_a", "phone")
    (message,) = storage.load().outgoing
    assert (message.client_message_id, message.display_time) == ("a", "2026-01-30T14:30:00.123Z")
    storage.close()


def test_an_id_may_be_used_again_once_it_is_settled(tmp_path: Path) -> None:
    """A message that leaves and one of the same id that comes, in one commit, leave the new one."""
    storage = SqliteStorage(str(tmp_path / "outbox.db"))
    storage.commit(StateChanges(added=[message("a")]))
    storage.commit(StateChanges(added=[message("a")], removed=[("chat_1", "a")]))
    assert storage.load().outgoing == [message("a")]
    storage.close()


def test_cursors_come_back(tmp_path: Path) -> None:
    """The newest cursor of each chat is kept, with and without a message_id."""
    storage = SqliteStorage(str(tmp_path / "outbox.db"))
    storage.commit(StateChanges(cursors={"chat_1": Cursor(1, 5, "msg_5"), "chat_2": Cursor(2, 7)}))
    storage.commit(StateChanges(cursors={"chat_1": Cursor(1, 6, "msg_6")}))
    storage.close()
    again = SqliteStorage(str(tmp_path / "outbox.db"))
    assert again.load().cursors == {"chat_1": Cursor(1, 6, "msg_6"), "chat_2": Cursor(2, 7)}
    again.close()


def test_every_commit_is_synced(tmp_path: Path) -> None:
    """The file is written ahead and synced, so that a power cut loses nothing that was kept."""
    storage = SqliteStorage(str(tmp_path / "outbox.db"))
    assert storage._db.execute("PRAGMA synchronous").fetchone()[0] == 2
    assert storage._db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    storage.close()


def test_a_second_process_is_turned_away(tmp_path: Path) -> None:
    """Two clients on one outbox would mix one device's messages."""
    storage = SqliteStorage(str(tmp_path / "outbox.db"))
    with pytest.raises(OutboxUnusable, match="another process"):
        SqliteStorage(str(tmp_path / "outbox.db"))
    storage.close()


def test_an_outbox_belongs_to_one_device(tmp_path: Path) -> None:
    """Nobody's messages are ever sent under another name."""
    storage = SqliteStorage(str(tmp_path / "outbox.db"))
    storage.claim("user_a", "phone")
    storage.claim("user_a", "phone")
    with pytest.raises(OutboxUnusable, match="user_a"):
        storage.claim("user_b", "phone")
    storage.close()


def test_an_outbox_is_for_its_owner_only(tmp_path: Path) -> None:
    """Other people of the machine cannot read what waits to be sent."""
    SqliteStorage(str(tmp_path / "outbox.db")).close()
    assert (tmp_path / "outbox.db").stat().st_mode & 0o077 == 0


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    """The error names the file and what is wrong with it."""
    with pytest.raises(OutboxUnusable, match=r"nowhere/outbox\.db.*No such file"):
        SqliteStorage(str(tmp_path / "nowhere" / "outbox.db"))


def test_what_is_no_outbox_is_told_so(tmp_path: Path) -> None:
    """A file of another kind is neither used nor changed."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to look at" * 100)
    with pytest.raises(OutboxUnusable):
        SqliteStorage(str(path))
    assert path.read_text().startswith("not a database")


def test_a_newer_format_is_left_alone(tmp_path: Path) -> None:
    """An older SDK does not touch what it does not understand."""
    path = str(tmp_path / "outbox.db")
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(OutboxUnusable, match="format 99"):
        SqliteStorage(path)


def test_cursors_of_an_older_format_have_no_hash(tmp_path: Path) -> None:
    """What an earlier SDK left is used as it is: the next page brings a hash."""
    path = str(tmp_path / "outbox.db")
    storage = SqliteStorage(path)
    plain = replace(message("a"), attachments=())
    storage.commit(StateChanges(added=[plain], cursors={"chat_1": Cursor(1, 6, "msg_6")}))
    storage.close()
    db = sqlite3.connect(path)
    db.execute("ALTER TABLE cursors DROP COLUMN log_hash")
    for column in ("reply_to", "kind", "target_id", "is_on", "attachments"):
        db.execute(f"ALTER TABLE outbox DROP COLUMN {column}")
    db.execute("PRAGMA user_version = 2")
    db.commit()
    db.close()
    again = SqliteStorage(path)
    assert again.load() == SavedState([plain], {"chat_1": Cursor(1, 6, "msg_6")})
    again.close()


def test_a_failed_commit_is_told(tmp_path: Path) -> None:
    """A message that could not be kept is not taken for kept, and nothing of its commit stays."""
    storage = SqliteStorage(str(tmp_path / "outbox.db"))
    storage.commit(StateChanges(added=[message("a")]))
    with pytest.raises(OutboxUnusable):
        storage.commit(StateChanges(added=[message("b"), message("a")]))
    assert storage.load().outgoing == [message("a")]
    storage.close()


def test_without_a_path_nothing_is_kept() -> None:
    """The memory storage takes everything and remembers nothing."""
    storage = open_storage(None)
    assert isinstance(storage, MemoryStorage)
    storage.claim("user_a", "phone")
    storage.commit(StateChanges(added=[message("a")]))
    assert storage.load() == SavedState()
