"""Ann, Ben and Cas with their two chats, put into a store of any engine through its ports."""

import uuid
from itertools import count

from parley import ids
from parley.clock import from_iso
from parley.model import Action, Change, ChatType, Draft, Kind, Role, StoredChat, User
from parley.records.kinds import Kinds
from parley.store.ports import Engine

BEGINNING = "2026-01-01T00:00:00.000Z"
GROUP_ENTRIES = 6
"""Messages 1 to 5, then Cas joins."""
VOID_AT = 4
"""Which of them the engine's own part makes void afterwards."""


class Ticking:
    """A clock that is a second later each time it is looked at."""

    def __init__(self, beginning: str = BEGINNING) -> None:
        self._ticks = count(from_iso(beginning), 1000)

    def __call__(self) -> int:
        return next(self._ticks)


def message(chat_id: str, sender_id: str, text: str) -> Draft:
    client_message_id = str(uuid.uuid4())
    return Draft(
        chat_id=chat_id,
        sender_id=sender_id,
        content=text,
        client_message_id=client_message_id,
        client_key=ids.client_key(client_message_id),
    )


async def populate(store: Engine) -> None:
    """A group, a direct chat, and Ben's positions in the group."""
    kinds = Kinds(store, lambda: 0)
    for name in ("ann", "ben", "cas"):
        await kinds.accounts.add_user(User(f"user_{name}", name, name, "", False, BEGINNING), "no hash")
    await store.directory.create_chat(_chat("chat_group", ChatType.GROUP, "Tea"), ["user_ben"])
    await store.directory.create_chat(_chat("chat_direct", ChatType.DIRECT, None), ["user_ben"])
    for number in range(1, GROUP_ENTRIES):
        await store.log.append([message("chat_group", "user_ann", f"message {number}")])
    joining = Draft(
        chat_id="chat_group",
        sender_id="user_ann",
        content='{"action":"joined","user_id":"user_cas","role":"member"}',
        kind=Kind.MEMBER.value,
        change=Change(Action.JOINED, "user_cas", Role.MEMBER),
    )
    await store.log.append([joining])
    await store.log.append([message("chat_direct", "user_ben", "psst")])
    store.cursors.note_acked("user_ben", "phone", "chat_group", 3, from_iso(BEGINNING))
    store.cursors.note_read("user_ben", "chat_group", 2, from_iso(BEGINNING))


def _chat(chat_id: str, chat_type: ChatType, title: str | None) -> StoredChat:
    return StoredChat(chat_id, chat_type, title, "user_ann", BEGINNING, BEGINNING, 1)
