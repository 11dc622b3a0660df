"""Histories of real connections and of a real store."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from tests.harness.clients import Frame, Person
from tests.harness.events import (
    Acknowledged,
    CursorMoved,
    EntrySeen,
    Paged,
    Requested,
    Resumed,
    SendRejected,
    Sent,
    Stored,
    StoredVoid,
    StoreRead,
    VoidSeen,
)
from tests.harness.history import History

CHAT_NAMES = ("chat_id", "conversation_id", "conv_id")
STORED_FIELDS = ("chat_id", "sequence", "message_id", "sender_id", "client_message_id", "content", "epoch")


class Recording:
    """Observes one connection and adds its frames to a history.

    Live entries and each page are streams of their own; an `ack` moves the cursor of the live one.
    """

    def __init__(self, history: History, person: Person, connection: str) -> None:
        self._history = history
        self._person = person
        self._connection = connection
        self._requests: dict[int, Frame] = {}

    @property
    def live_stream(self) -> str:
        return f"{self._connection}/live"

    def sent(self, frame: Frame) -> None:
        if "id" in frame:
            self._requests[frame["id"]] = frame
        match frame["type"]:
            case "send_message":
                self._history.add(
                    Sent(
                        chat_id=chat_of(frame),
                        sender_id=self._person.user_id,
                        device_id=self._person.device_id,
                        client_message_id=frame["client_message_id"],
                        content=frame["content"],
                    )
                )
            case "sync_request":
                self._history.add(
                    Requested(
                        chat_id=chat_of(frame),
                        reader=self._page_stream(frame["id"]),
                        after=frame["last_acked_sequence"],
                    )
                )
            case "ack":
                self._history.add(
                    CursorMoved(
                        chat_id=chat_of(frame), reader=self.live_stream, sequence=frame["last_acked_sequence"]
                    )
                )

    def received(self, frame: Frame) -> None:
        request = self._requests.pop(frame.get("re") or 0, None)
        match frame["type"]:
            case "ack":
                self._acknowledged(frame)
            case "refused" if request is not None and request["type"] == "send_message":
                self._refused(request, frame)
            case "messages":
                self._seen(self.live_stream, frame)
            case "message_batch":
                self._paged(self._page_stream(frame["re"]), frame)

    def _page_stream(self, request_id: int) -> str:
        return f"{self._connection}/page {request_id}"

    def _acknowledged(self, frame: Frame) -> None:
        self._history.add(
            Acknowledged(
                chat_id=frame["chat_id"],
                sender_id=self._person.user_id,
                client_message_id=frame["client_message_id"],
                message_id=frame["message_id"],
                sequence=frame["sequence"],
                epoch=frame["epoch"],
                deduplicated=frame["deduplicated"],
            )
        )

    def _refused(self, request: Frame, frame: Frame) -> None:
        self._history.add(
            SendRejected(
                chat_id=chat_of(request),
                sender_id=self._person.user_id,
                client_message_id=request["client_message_id"],
                code=frame["code"],
                temporary=frame["temporary"],
            )
        )

    def _seen(self, reader: str, frame: Frame) -> None:
        """Entries and voids of one frame, in the order of their positions."""
        things: list[Frame] = [*frame["entries"], *({"sequence": void} for void in frame.get("voids") or [])]
        for thing in sorted(things, key=lambda thing: int(thing["sequence"])):
            self._history.add(seen(reader, frame["chat_id"], frame["epoch"], thing))

    def _paged(self, reader: str, frame: Frame) -> None:
        chat_id, epoch = frame["chat_id"], frame["epoch"]
        if frame["reset"]:
            self._history.add(Resumed(chat_id=chat_id, reader=reader, after=0, epoch=epoch))
        self._seen(reader, frame)
        self._history.add(
            Paged(
                chat_id=chat_id,
                reader=reader,
                to_sequence=frame["to_sequence"],
                head=frame["head"],
                epoch=epoch,
            )
        )


def chat_of(frame: Frame) -> str:
    """The chat of a request, under any of its names."""
    return next(str(frame[name]) for name in CHAT_NAMES if frame.get(name))


def seen(reader: str, chat_id: str, epoch: int, thing: Frame) -> EntrySeen | VoidSeen:
    """The event of one entry, or of a void, which has only a sequence."""
    if "message_id" not in thing:
        return VoidSeen(chat_id=chat_id, reader=reader, sequence=thing["sequence"], epoch=epoch)
    return EntrySeen(
        chat_id=chat_id,
        reader=reader,
        sequence=thing["sequence"],
        message_id=thing["message_id"],
        client_message_id=thing["client_message_id"],
        content=thing["content"],
        epoch=thing["epoch"],
    )


def read_store(history: History, sqlite_path: Path) -> None:
    """Add what a SQLite store holds of the history's chats.

    A server may use the store meanwhile: all reads are in one snapshot.
    """
    opened = apsw.Connection(str(sqlite_path), flags=apsw.SQLITE_OPEN_READWRITE)
    with closing(opened) as connection, connection:
        for chat_id in sorted({event.chat_id for event in history.events}):
            _read_chat(history, connection, chat_id)


def _read_chat(history: History, connection: apsw.Connection, chat_id: str) -> None:
    def rows(query: str) -> list[Any]:
        return connection.execute(f"{query} WHERE chat_id = ?", (chat_id,)).fetchall()

    for row in rows(f"SELECT {', '.join(STORED_FIELDS)} FROM messages"):
        history.add(Stored(**dict(zip(STORED_FIELDS, row, strict=True))))
    for (epoch,) in rows("SELECT epoch FROM chats"):
        for (sequence,) in rows("SELECT sequence FROM voids"):
            history.add(StoredVoid(chat_id=chat_id, sequence=sequence, epoch=epoch))
    for (counter,) in rows("SELECT sequence_counter FROM chat_counters"):
        history.add(StoreRead(chat_id=chat_id, head=counter))
