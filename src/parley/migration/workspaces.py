"""What an export of another chat server holds, in a form that all of them have; and ids that follow from it.

The same export gives the same ids however often it is read, so an import may be repeated. Pure.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from zipfile import ZipFile, is_zipfile

from msgspec import Struct

from parley import ids
from parley.core.session import is_reaction
from parley.errors import ParleyError


class ImportFailed(ParleyError):
    """The file cannot be read as an export."""


class ImportedPerson(Struct, frozen=True, kw_only=True):
    """`key`: what the other server calls them. `is_gone`: their account there is deactivated."""

    key: str
    username: str
    display_name: str
    about: str = ""
    is_gone: bool = False


class ImportedChat(Struct, frozen=True, kw_only=True):
    """A channel, or a conversation of some people. `members`: who is in it by now, by their keys."""

    key: str
    title: str | None
    members: tuple[str, ...]
    is_direct: bool = False
    creator: str = ""
    created_ms: int = 0


class ImportedMessage(Struct, frozen=True, kw_only=True):
    """`thread`: the key of the message that it replies to. `mentions`: people, by their keys.

    `reactions`: a person's key and a text for each. Its text is the newest one: no export has older ones.
    """

    key: str
    author: str
    text: str
    at_ms: int
    thread: str = ""
    mentions: tuple[str, ...] = ()
    reactions: tuple[tuple[str, str], ...] = ()


class Workspace(Protocol):
    """An export that was opened."""

    source: str
    """Which server it is of: ids follow from it."""
    left_out: Counter[str]
    """What has no place in a log, and how often it was met while messages were read."""

    def people(self) -> Iterator[ImportedPerson]:
        """Everybody who is named."""
        ...

    def chats(self) -> Iterator[ImportedChat]:
        """Every channel and conversation."""
        ...

    def messages(self, chat: ImportedChat) -> Iterator[ImportedMessage]:
        """The messages of a chat in the order in which they were sent."""
        ...


def kind_of(path: Path) -> str:
    """Which server a file seems to be of: Slack's are ZIP files with lists, Mattermost's hold JSON Lines."""
    if is_zipfile(path):
        with ZipFile(path) as archive:
            is_slack = any(name.endswith("users.json") for name in archive.namelist())
            return "slack" if is_slack else "mattermost"
    return "mattermost"


def user_id(source: str, key: str) -> str:
    return ids.USER + ids.ulid(0, _number("person", source, key))


def chat_id(source: str, chat: ImportedChat) -> str:
    return ids.CHAT + ids.ulid(chat.created_ms, _number("chat", source, chat.key))


def client_message_id(source: str, chat: ImportedChat, key: str) -> str:
    return str(uuid.UUID(bytes=_digest("message", source, chat.key, key)[:16], version=4))


def reaction_id(source: str, chat: ImportedChat, key: str, person: str, reaction: str) -> str:
    digest = _digest("reaction", source, chat.key, key, person, reaction)
    return str(uuid.UUID(bytes=digest[:16], version=4))


def shown_reaction(name: str) -> str | None:
    """A reaction by the name of its emoji, as such names are written; None if it is too long for one."""
    text = f":{name}:"
    return text if is_reaction(text) else None


def _number(*parts: str) -> int:
    return int.from_bytes(_digest(*parts)[: ids.RANDOM_BITS // 8])


def _digest(*parts: str) -> bytes:
    return hashlib.sha256("\x1f".join(parts).encode()).digest()
