"""Short words for what the contract tests do: people, chats, drafts, and what is in a log."""

import uuid
from collections.abc import Iterable
from itertools import count

import msgspec

from parley import ids
from parley.clock import iso
from parley.errors import Refusal
from parley.model import (
    Action,
    Appended,
    Change,
    ChatSummary,
    ChatType,
    CursorMove,
    Draft,
    Kind,
    MemberCursor,
    Outcome,
    Page,
    ReadReceipts,
    ReceiptKind,
    Relation,
    Role,
    StoredChat,
    User,
)
from parley.wire.frames import Entry
from tests.contracts.engines import OpenStore

_numbers = count(1)
decode_entry = msgspec.json.Decoder(Entry).decode


def new_id() -> str:
    """A client's UUIDv4, the same in each run of a test."""
    return str(uuid.UUID(int=next(_numbers) << 8, version=4))


async def add_person(store: OpenStore, username: str) -> str:
    """A person's user_id."""
    user = User(store.ids.next(ids.USER, store.clock()), username, username, "", False, iso(store.clock()))
    assert await store.accounts.add_user(user, f"hash of {username}")
    return user.user_id


async def add_people(store: OpenStore, *usernames: str) -> list[str]:
    return [await add_person(store, username) for username in usernames]


def new_chat(
    store: OpenStore, owner: str, chat_type: ChatType = ChatType.GROUP, open_to_join: bool = False
) -> StoredChat:
    now = iso(store.clock())
    title = "group" if chat_type is ChatType.GROUP else None
    chat_id = store.ids.next(ids.CHAT, store.clock())
    return StoredChat(chat_id, chat_type, title, owner, now, now, 1, open_to_join)


async def add_group(store: OpenStore, owner: str, *members: str, open_to_join: bool = False) -> str:
    """A group's chat_id."""
    chat, _ = await store.directory.create_chat(
        new_chat(store, owner, open_to_join=open_to_join), list(members)
    )
    return chat.chat_id


async def add_direct(store: OpenStore, creator: str, other: str) -> str:
    """The chat_id of the direct chat of two people."""
    chat, _ = await store.directory.create_chat(new_chat(store, creator, ChatType.DIRECT), [other])
    return chat.chat_id


async def block(store: OpenStore, blocker: str, blocked: str) -> None:
    await store.relations.set_relation(blocker, blocked, Relation.BLOCK, iso(store.clock()))


async def unblock(store: OpenStore, blocker: str, blocked: str) -> None:
    await store.relations.set_relation(blocker, blocked, Relation.BLOCK, None)


async def add_contact(store: OpenStore, user_id: str, other_id: str) -> None:
    await store.relations.set_relation(user_id, other_id, Relation.CONTACT, iso(store.clock()))


def message(chat_id: str, sender: str, content: str = "hi", client_id: str = "", after: str = "") -> Draft:
    """A draft as `check_send` makes it; without an id, one is made."""
    client_id = client_id or new_id()
    return Draft(
        chat_id=chat_id,
        sender_id=sender,
        content=content,
        client_message_id=client_id,
        client_key=ids.client_key(client_id),
        after_key=ids.client_key(after) if after else None,
    )


def change(chat_id: str, actor: str, action: Action, about: str = "", role: Role = Role.MEMBER) -> Draft:
    """A draft of a membership change."""
    content = msgspec.json.encode({"action": action, "user_id": about, "role": role}).decode()
    return Draft(
        chat_id=chat_id,
        sender_id=actor,
        content=content,
        content_type="application/json",
        kind=Kind.MEMBER.value,
        change=Change(action, about, role),
    )


def rename(chat_id: str, actor: str, title: str) -> Draft:
    content = msgspec.json.encode({"action": "renamed", "title": title}).decode()
    return Draft(
        chat_id=chat_id,
        sender_id=actor,
        content=content,
        content_type="application/json",
        kind=Kind.CHAT.value,
        change=Change(Action.RENAMED, title=title),
    )


def posting(chat_id: str, actor: str, **wanted: int | bool) -> Draft:
    """A change of who may post; without a setting it changes nothing."""
    return Draft(
        chat_id=chat_id,
        sender_id=actor,
        content=msgspec.json.encode({"action": "posting", **wanted}).decode(),
        content_type="application/json",
        kind="chat",
        change=Change(Action.POSTING, **wanted),  # type: ignore[arg-type]
    )


def show_receipts(chat_id: str, actor: str, read_receipts: ReadReceipts) -> Draft:
    """A draft that says how much a chat tells of who has read."""
    content = msgspec.json.encode({"action": "read_receipts", "read_receipts": read_receipts}).decode()
    return Draft(
        chat_id=chat_id,
        sender_id=actor,
        content=content,
        content_type="application/json",
        kind=Kind.CHAT.value,
        change=Change(Action.READ_RECEIPTS, read_receipts=read_receipts),
    )


async def outcome(store: OpenStore, draft: Draft) -> Outcome:
    """What became of one draft."""
    return (await store.log.append([draft])).outcomes[0]


async def stored(store: OpenStore, draft: Draft) -> Appended:
    """Where one draft is; it must not be refused."""
    result = await outcome(store, draft)
    assert isinstance(result, Appended), result
    return result


async def code_of(store: OpenStore, draft: Draft) -> str:
    """The code that one draft is refused with."""
    return told(await outcome(store, draft))


def told(result: Outcome) -> str:
    """An outcome in one word: the refusal's code, or what was done."""
    if isinstance(result, Refusal):
        return result.code
    return "deduplicated" if result.deduplicated else "stored"


def place(result: Outcome) -> tuple[int, str]:
    """Where a draft is, whoever stored it; it must not be refused."""
    assert isinstance(result, Appended), result
    return result.sequence, result.message_id


async def places(store: OpenStore, chat_id: str) -> dict[str, tuple[int, str]]:
    """Where each content is in a chat, as its readers see it."""
    return {entry.content: (entry.sequence, entry.message_id) for entry in await read_all(store, chat_id)}


async def said(store: OpenStore, chat_id: str, sender: str, *contents: str) -> list[Appended]:
    """Messages, each committed before the next."""
    return [await stored(store, message(chat_id, sender, content)) for content in contents]


async def read_all(store: OpenStore, chat_id: str) -> list[Entry]:
    return entries_of(await store.log.read(chat_id, 0, 1000))


def entries_of(page: Page) -> list[Entry]:
    return [decode_entry(entry) for entry in page.entries]


def contents(entries: Iterable[Entry]) -> list[str]:
    return [entry.content for entry in entries]


def sequences(entries: Iterable[Entry]) -> list[int]:
    return [entry.sequence for entry in entries]


def resolved(page: Page) -> list[int]:
    """Every position of a page, entries and voids, ascending."""
    return sorted([*sequences(entries_of(page)), *page.voids])


async def head_of(store: OpenStore, chat_id: str) -> int:
    return (await store.log.heads([chat_id]))[chat_id].sequence


async def position_of(store: OpenStore, user_id: str, chat_id: str, device_id: str = "phone") -> ChatSummary:
    """A chat in a person's overview."""
    changed = await store.overviews.changed(user_id, device_id, None, 1000)
    return next(position for position in changed.positions if position.chat_id == chat_id)


async def mark_of(store: OpenStore, user_id: str, chat_id: str) -> MemberCursor:
    """How far a member is, once everything noted is durable."""
    await store.cursors.flush()
    return next(mark for mark in await store.member_states.cursors(chat_id) if mark.user_id == user_id)


def hearing(store: OpenStore) -> list[CursorMove]:
    """What the store tells of positions that rose, from now until it is reopened."""
    heard: list[CursorMove] = []
    store.cursors.subscribe(heard.extend)
    return heard


def rises(heard: list[CursorMove]) -> list[tuple[str, ReceiptKind, int]]:
    """Who got how far, in the order of what was told."""
    return [(moved.user_id, moved.kind, moved.up_to) for moved in heard]


async def listed(
    store: OpenStore, user_id: str, token: str | None, limit: int = 1000
) -> tuple[list[str], str]:
    """The chats of one page of an overview, and its token."""
    changed = await store.overviews.changed(user_id, "phone", token, limit)
    return [position.chat_id for position in changed.positions], changed.token
