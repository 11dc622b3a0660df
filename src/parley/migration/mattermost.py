"""Bulk exports of Mattermost: JSON Lines, alone or in a ZIP file."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO
from zipfile import ZipFile, is_zipfile

from parley.migration.workspaces import (
    ImportedChat,
    ImportedMessage,
    ImportedPerson,
    ImportFailed,
    shown_reaction,
)
from parley.migration.zipped_lists import Json, check_packing
from parley.wire.limits import MIB

LINE_BYTES_MAX = 64 * MIB
"""A line is a post with all of its replies."""


class MattermostExport:
    """Replies stand with their root, so a chat is put into order in memory."""

    def __init__(self, path: Path, source: str) -> None:
        """ImportFailed unless it is an export of Mattermost."""
        self.source = source
        self.left_out: Counter[str] = Counter()
        self._people: dict[str, Json] = {}
        self._chats: dict[str, ImportedChat] = {}
        self._members: dict[str, list[str]] = {}
        self._messages: dict[str, list[ImportedMessage]] = {}
        for number, line in enumerate(_lines(path), 1):
            try:
                self._take(json.loads(line), number)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ImportFailed(f"{path}, line {number}, cannot be read: {error!r}") from error

    def _take(self, line: Json, number: int) -> None:
        kind = line["type"]
        if number == 1 and kind != "version":
            raise ValueError("the first line of an export names its version")
        match kind:
            case "channel":
                channel = line["channel"]
                key = f"{channel['team']}/{channel['name']}"
                title = str(channel.get("display_name") or channel["name"])
                self._chats[key] = ImportedChat(key=key, title=title, members=())
            case "user":
                self._take_user(line["user"])
            case "post":
                post = line["post"]
                self._take_post(f"{post['team']}/{post['channel']}", post)
            case "direct_channel":
                self._direct(line["direct_channel"].get("members") or _participants(line["direct_channel"]))
            case "direct_post":
                post = line["direct_post"]
                self._take_post(self._direct(post["channel_members"]), post)
            case "version" | "team":
                pass
            case _:
                self.left_out[str(kind)] += 1

    def _take_user(self, user: Json) -> None:
        name = str(user["username"])
        self._people[name] = user
        for team in user.get("teams") or ():
            for channel in team.get("channels") or ():
                self._members.setdefault(f"{team['name']}/{channel['name']}", []).append(name)

    def _direct(self, members: list[str]) -> str:
        """The chat of these people; also of one who writes to themselves."""
        people = sorted(set(map(str, members)))
        key = "direct/" + ",".join(people)
        is_direct = len(people) <= 2
        title = None if is_direct else ", ".join(people)
        self._chats.setdefault(key, ImportedChat(key=key, title=title, members=(), is_direct=is_direct))
        self._members[key] = people
        return key

    def _take_post(self, chat: str, post: Json) -> None:
        root = self._add(chat, post, "")
        for reply in post.get("replies") or ():
            self._add(chat, reply, root)

    def _add(self, chat: str, post: Json, thread: str) -> str:
        """The key of a post: its author, time and text, which is what Mattermost itself goes by."""
        author, text, at_ms = str(post["user"]), str(post.get("message") or ""), int(post["create_at"])
        if str(post.get("type") or "").startswith("system_"):
            self.left_out[str(post["type"])] += 1
            return ""
        files = [Path(str(one["path"])).name for one in post.get("attachments") or ()]
        self.left_out["files"] += len(files)
        named = [(str(one["user"]), str(one["emoji_name"])) for one in post.get("reactions") or ()]
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
            user = self._people.get(name, {})
            full = " ".join(filter(None, (user.get("first_name"), user.get("last_name"))))
            yield ImportedPerson(
                key=name,
                username=name,
                display_name=str(user.get("nickname") or full or name),
                about=str(user.get("position") or ""),
                is_gone=bool(user.get("delete_at")) or name not in self._people,
            )

    def chats(self) -> Iterator[ImportedChat]:
        for key, chat in self._chats.items():
            members = tuple(dict.fromkeys(self._members.get(key, ())))
            yield ImportedChat(key=key, title=chat.title, members=members, is_direct=chat.is_direct)

    def messages(self, chat: ImportedChat) -> Iterator[ImportedMessage]:
        """By time; those of one moment as the file has them, and a reply never before its root."""
        yield from sorted(self._messages.get(chat.key, ()), key=lambda one: one.at_ms)


def _participants(channel: Json) -> list[str]:
    """Newer versions list the people with what they have read."""
    return [str(one["username"]) for one in channel.get("participants") or ()]


def _lines_of(file: IO[bytes], path: Path) -> Iterator[bytes]:
    while line := file.readline(LINE_BYTES_MAX):
        if len(line) == LINE_BYTES_MAX:
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
    except OSError as error:
        raise ImportFailed(f"{path} cannot be read: {error.strerror}") from error
