"""The model server in the hands of a test in another language. Calls and answers are lines of JSON.

    ["new"]                                     → {"value": 1}
    [1, "add_chat", "chat_1", ["user_a"]]       → {"value": null, "sent": {}}
    [1, "connect", 1, "user_a", "phone"]        → {"value": null, "sent": {"1": [{"type": "welcome", …}]}}
    [1, "answer", 1, {"type": "heartbeat", …}]  → {"value": null, "sent": {"1": [{…}]}}

`sent` has what the server says to each open session of that scene because of the call, in order.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from parley.model import ChatMember, ChatType, Role, StoredChat, User
from parley.wire.frames import ChatChanged, Entry, PresenceChanged, Request, ServerFrames
from tests.memory.tables import MemoryState
from tests.model_server.server import TIME, ModelServer, make_entry


class Scene:
    """One server, and the sessions of a test; every public method is a call."""

    def __init__(self) -> None:
        self._server = ModelServer([])
        self._sessions: dict[int, str] = {}
        self._sent: dict[int, list[Any]] = defaultdict(list)
        self._tells_live = True

    def take_sent(self) -> dict[int, list[Any]]:
        sent, self._sent = self._sent, defaultdict(list)
        return sent

    # What a test does at the server

    def limits(self, page_entries_max: int, overview_chats_max: int, tells_live: bool) -> None:
        self._server.page_entries_max = page_entries_max
        self._server.overview_chats_max = overview_chats_max
        self._tells_live = tells_live

    def add_chat(self, chat_id: str, user_ids: list[str]) -> None:
        tables = self._server.tables
        chat = StoredChat(chat_id, ChatType.GROUP, None, "", TIME, TIME, 1, open_to_join=True)
        record = tables.add_chat(chat, [])
        self._server.sent_through[chat_id] = 0
        for user_id in user_ids:
            tables.put_user(User(user_id, user_id, user_id, "", False, TIME))
            record.members[user_id] = ChatMember(user_id, Role.MEMBER, TIME, 0)
            tables.states[user_id, chat_id] = MemoryState(tables.next_change())

    def connect(self, session: int, user_id: str, device_id: str) -> None:
        device = f"{user_id}/{device_id}"
        if not self._server.tables.has_account(user_id):
            self._server.tables.put_user(User(user_id, user_id, user_id, "", False, TIME))
        self._sessions[session] = device
        self._server.connected(device)
        self._sent[session].append(self._server.welcome(user_id))

    def close(self, session: int) -> None:
        self._sessions.pop(session, None)

    def post(self, chat_id: str, sender_id: str, content: str, more: dict[str, Any]) -> Entry:
        """Somebody writes, on a device that no test looks at."""
        epoch = self._server.tables.chats[chat_id].chat.epoch
        sequence = self._server.head(chat_id) + 1
        made = make_entry(chat_id, sequence, content, epoch=epoch, sender=sender_id)
        entry = msgspec.convert({**msgspec.to_builtins(made), **more}, Entry)
        self._server.add(chat_id, entry)
        self._tell(chat_id)
        return entry

    def add_void(self, chat_id: str) -> None:
        self._server.add(chat_id)
        self._tell(chat_id)

    def join(self, chat_id: str, user_id: str) -> None:
        self._come_or_go(chat_id, user_id, joins=True)

    def leave(self, chat_id: str, user_id: str) -> None:
        self._come_or_go(chat_id, user_id, joins=False)

    def mute(self, chat_id: str, user_id: str, until: str | None) -> None:
        self._tell_person(user_id, self._server.mute(chat_id, user_id, until))

    def start_over(self, chat_id: str, kept: int) -> None:
        self._server.start_over(chat_id, kept)

    def tamper(self, chat_id: str, sequence: int, content: str) -> None:
        """An entry is changed where it is stored, and nobody notices."""
        record = self._server.tables.chats[chat_id]
        entry = record.entries[sequence]
        assert entry is not None, "a void says nothing"
        changed = msgspec.structs.replace(entry, content=content)
        record.entries[sequence], record.wires[sequence] = changed, msgspec.json.encode(changed)

    def forget_ids(self) -> None:
        """The server no longer knows the ids of sends; their entries stay."""
        for record in self._server.tables.chats.values():
            record.keys.clear()

    def come_online(self, user_id: str, is_online: bool) -> None:
        if (user_id in self._server.online) != is_online:
            self._broadcast([self._server.come_or_go(user_id)])

    def read_up_to(self, chat_id: str, user_id: str, sequence: int) -> None:
        self._broadcast(self._server.read_up_to(chat_id, user_id, sequence))

    # What a test asks

    def log(self, chat_id: str) -> Sequence[Entry | None]:
        return self._server.logs[chat_id]

    def acked(self, user_id: str, chat_id: str, device_id: str) -> int:
        return self._server.cursor(f"{user_id}/{device_id}", chat_id)

    def read(self, user_id: str, chat_id: str) -> int:
        return self._server.read(chat_id, user_id)

    def find_send(self, chat_id: str, client_message_id: str) -> dict[str, Any] | None:
        found = self._server.stored(chat_id, client_message_id)
        if found is None:
            return None
        names = ("chat_id", "message_id", "sequence", "epoch", "created_at")
        fields = {name: getattr(found, name) for name in names}
        return {"status": "stored", "client_message_id": client_message_id, **fields}

    def snapshot(self, chat_id: str, viewer_id: str) -> Any:
        if not self._server.is_member(chat_id, viewer_id):
            return None
        return self._server.snapshot(chat_id, [viewer_id])

    # Requests

    def answer(self, session: int, request: dict[str, Any]) -> None:
        """A request arrives: the answer comes before what everybody hears."""
        decoded = msgspec.convert(request, Request)
        answers, news = self._server.answer(decoded, self._sessions[session])
        self._sent[session] += answers
        self._broadcast(news)

    def _come_or_go(self, chat_id: str, user_id: str, *, joins: bool) -> None:
        self._tell(chat_id)
        self._broadcast(self._server.change(chat_id, user_id, joins=joins))
        frame = ChatChanged(chat_id=chat_id, change="joined" if joins else "left", user_id=user_id)
        if joins:
            frame.head = self._server.head(chat_id)
        self._tell_person(user_id, frame)

    def _tell(self, chat_id: str) -> None:
        if self._tells_live:
            self._broadcast(self._server.unsent(chat_id))

    def _tell_person(self, user_id: str, frame: ServerFrames) -> None:
        for session, device in self._sessions.items():
            if device.partition("/")[0] == user_id:
                self._sent[session].append(frame)

    def _broadcast(self, news: Iterable[ServerFrames]) -> None:
        for frame in news:
            for session, device in self._sessions.items():
                if self._reaches(device, frame):
                    self._sent[session].append(frame)

    def _reaches(self, device: str, frame: ServerFrames) -> bool:
        if isinstance(frame, PresenceChanged):
            return frame.user_id in self._server.watched[device]
        return self._server.hears(device.partition("/")[0], frame)


def serve(asked: Path, answered: Path) -> None:
    """Answer calls from one file in another until the first ends: named pipes, in which nobody polls."""
    scenes: list[Scene] = []
    with asked.open("rb") as calls, answered.open("wb") as answers:
        for line in calls:
            answers.write(msgspec.json.encode(said_to(scenes, msgspec.json.decode(line))) + b"\n")
            answers.flush()


def said_to(scenes: list[Scene], call: list[Any]) -> dict[str, Any]:
    """The answer to one call."""
    number, *words = call
    if number == "new":
        scenes.append(Scene())
        return {"value": len(scenes)}
    scene = scenes[number - 1]
    value = getattr(scene, words[0])(*words[1:])
    return {"value": value, "sent": scene.take_sent()}
