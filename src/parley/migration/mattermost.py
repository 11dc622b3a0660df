"""Bulk exports of Mattermost: JSON Lines, alone or in a ZIP file."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO
from zipfile import ZipFile, is_zipfile

import msgspec
from msgspec import Struct

from parley.migration.workspaces import (
    ImportedChat,
    ImportedMessage,
    ImportedPerson,
    ImportFailed,
    shown_reaction,
)
from parley.migration.zipped_lists import UNREADABLE, check_packing
from parley.wire.limits import MIB

LINE_BYTES_MAX = 16 * MIB
"""A line is a post with all of its replies."""


# What is read of a line. The rest of it, however much that is, takes no memory.


class ExportedChannel(Struct):
    team: str
    name: str
    display_name: str | None = None


class ExportedNamed(Struct):
    name: str


class ExportedTeam(Struct):
    name: str
    channels: list[ExportedNamed] | None = None


class ExportedUser(Struct):
    username: str
    nickname: str | None = None
    first_name: str | None = None
    last_name: str | None = None
    position: str | None = None
    delete_at: int | None = None
    teams: list[ExportedTeam] | None = None


class ExportedParticipant(Struct):
    username: str


class ExportedDirectChannel(Struct):
    """Newer versions list the people with what they have read."""

    members: list[str] | None = None
    participants: list[ExportedParticipant] | None = None


class ExportedFile(Struct):
    path: str


class ExportedReaction(Struct):
    user: str
    emoji_name: str


class ExportedPost(Struct, kw_only=True):
    user: str
    create_at: int
    message: str | None = None
    type: str | None = None
    attachments: list[ExportedFile] | None = None
    reactions: list[ExportedReaction] | None = None
    replies: list[ExportedPost] | None = None


class ExportedChannelPost(ExportedPost, kw_only=True):
    team: str
    channel: str


class ExportedDirectPost(ExportedPost, kw_only=True):
    channel_members: list[str]


class ExportedLine(Struct):
    type: str
    channel: ExportedChannel | None = None
    user: ExportedUser | None = None
    post: ExportedChannelPost | None = None
    direct_channel: ExportedDirectChannel | None = None
    direct_post: ExportedDirectPost | None = None


class MattermostExport:
    """Replies stand with their root, so a chat is put into order in memory."""

    def __init__(self, path: Path, source: str) -> None:
        """ImportFailed unless it is an export of Mattermost."""
        self.source = source
        self.left_out: Counter[str] = Counter()
        self._people: dict[str, ExportedUser] = {}
        self._chats: dict[str, ImportedChat] = {}
        self._members: dict[str, list[str]] = {}
        self._messages: dict[str, list[ImportedMessage]] = {}
        read = msgspec.json.Decoder(ExportedLine).decode
        for number, line in enumerate(_lines(path), 1):
            try:
                self._take(read(line), number)
            except (ValueError, RecursionError, msgspec.DecodeError) as error:
                raise ImportFailed(f"{path}, line {number}, cannot be read: {error}") from error

    def _take(self, line: ExportedLine, number: int) -> None:
        if number == 1 and line.type != "version":
            raise ValueError("the first line of an export names its version")
        match line:
            case ExportedLine(type="channel", channel=ExportedChannel() as channel):
                key = f"{channel.team}/{channel.name}"
                title = channel.display_name or channel.name
                self._chats[key] = ImportedChat(key=key, title=title, members=())
            case ExportedLine(type="user", user=ExportedUser() as user):
                self._take_user(user)
            case ExportedLine(type="post", post=ExportedChannelPost() as post):
                self._take_post(f"{post.team}/{post.channel}", post)
            case ExportedLine(type="direct_channel", direct_channel=ExportedDirectChannel() as chat):
                self._direct(chat.members or [one.username for one in chat.participants or ()])
            case ExportedLine(type="direct_post", direct_post=ExportedDirectPost() as post):
                self._take_post(self._direct(post.channel_members), post)
            case ExportedLine(type="version" | "team"):
                pass
            case ExportedLine(type="channel" | "user" | "post" | "direct_channel" | "direct_post"):
                raise ValueError(f"a line of type {line.type} has none")
            case _:
                self.left_out[line.type] += 1

    def _take_user(self, user: ExportedUser) -> None:
        self._people[user.username] = user
        for team in user.teams or ():
            for channel in team.channels or ():
                self._members.setdefault(f"{team.name}/{channel.name}", []).append(user.username)

    def _direct(self, members: list[str]) -> str:
        """The chat of these people; also of one who writes to themselves."""
        people = sorted(set(members))
        key = "direct/" + ",".join(people)
        is_direct = len(people) <= 2
        title = None if is_direct else ", ".join(people)
        self._chats.setdefault(key, ImportedChat(key=key, title=title, members=(), is_direct=is_direct))
        self._members[key] = people
        return key

    def _take_post(self, chat: str, post: ExportedPost) -> None:
        root = self._add(chat, post, "")
        for reply in post.replies or ():
            self._add(chat, reply, root)

    def _add(self, chat: str, post: ExportedPost, thread: str) -> str:
        """The key of a post: its author, time and text, which is what Mattermost itself goes by."""
        author, text, at_ms = post.user, post.message or "", post.create_at
        if post.type and post.type.startswith("system_"):
            self.left_out[post.type] += 1
            return ""
        files = [Path(one.path).name for one in post.attachments or ()]
        self.left_out["files"] += len(files)
        named = [(one.user, one.emoji_name) for one in post.reactions or ()]
        reactions = [(who, shown) for who, name in named if (shown := shown_reaction(name)) is not None]
        self.left_out["reactions"] += len(named) - len(reactions)
        body = "\n".join(filter(None, [text, *(f"[file: {name}]" for name in files)]))
        key = f"{at_ms}:{author}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        message = ImportedMessage(
            key=key, author=author, text=body, at_ms=at_ms, thread=thread, reactions=tuple(reactions)
        )
        self._messages.setdefault(chat, []).append(message)
        return key

    def people(self) -> Iterator[ImportedPerson]:
        written = [message for messages in self._messages.values() for message in messages]
        authors = {message.author for message in written}
        authors |= {who for message in written for who, _ in message.reactions}
        members = {name for names in self._members.values() for name in names}
        for name in sorted(self._people.keys() | authors | members):
            user = self._people.get(name, ExportedUser(name))
            full = " ".join(filter(None, (user.first_name, user.last_name)))
            yield ImportedPerson(
                key=name,
                username=name,
                display_name=user.nickname or full or name,
                about=user.position or "",
                is_gone=bool(user.delete_at) or name not in self._people,
            )

    def chats(self) -> Iterator[ImportedChat]:
        for key, chat in self._chats.items():
            members = tuple(dict.fromkeys(self._members.get(key, ())))
            yield ImportedChat(key=key, title=chat.title, members=members, is_direct=chat.is_direct)

    def messages(self, chat: ImportedChat) -> Iterator[ImportedMessage]:
        """By time; those of one moment as the file has them, and a reply never before its root."""
        yield from sorted(self._messages.get(chat.key, ()), key=lambda one: one.at_ms)


def _lines_of(file: IO[bytes], path: Path) -> Iterator[bytes]:
    while line := file.readline(LINE_BYTES_MAX):
        if len(line) >= LINE_BYTES_MAX:
            raise ImportFailed(f"{path} has a line of more than {LINE_BYTES_MAX // MIB} MiB")
        if line.strip():
            yield line


def _lines(path: Path) -> Iterable[bytes]:
    try:
        if not is_zipfile(path):
            with open(path, "rb") as file:
                yield from _lines_of(file, path)
            return
        with ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".jsonl") and "/" not in name]
            if len(names) != 1:
                raise ImportFailed(f"{path} has {len(names)} files of JSON Lines, an export has one")
            check_packing(archive.getinfo(names[0]))
            with archive.open(names[0]) as file:
                yield from _lines_of(file, path)
    except UNREADABLE as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ImportFailed(f"{path} cannot be read: {reason}") from error
