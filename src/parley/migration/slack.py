"""Exports of Slack: a ZIP file with lists of people and channels, and a JSON file for each day of each."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from parley.migration.workspaces import (
    ImportedChat,
    ImportedMessage,
    ImportedPerson,
    ImportFailed,
    shown_reaction,
)
from parley.migration.zipped_lists import Json, ZippedLists
from parley.wire.limits import ABOUT_CHARS_MAX, DISPLAY_NAME_CHARS_MAX

PEOPLE = ("users.json", "org_users.json")
CHANNELS, PRIVATE, DIRECT, GROUP_DIRECT = "channels.json", "groups.json", "dms.json", "mpims.json"
MESSAGE_SUBTYPES = frozenset({"", "bot_message", "file_share", "me_message", "thread_broadcast"})
"""Those that somebody has written. Others tell of joins, topics and the like."""
BOT = "bot:"
"""Before the name of a bot that is no person of the list."""
MARK = re.compile(r"<([^<>]+)>")
PEOPLE_MAX = 500_000
DAY_MESSAGES_MAX = 100_000
"""In one channel."""


class SlackPerson(Struct, frozen=True):
    """What an account needs of a person of the list; the rest is not kept."""

    name: str
    shown: str
    about: str
    is_gone: bool


class SlackExport:
    def __init__(self, path: Path, source: str) -> None:
        """ImportFailed unless it is an export of Slack."""
        self.source = source
        self.left_out: Counter[str] = Counter()
        self._lists = ZippedLists(path)
        found = [name for name in PEOPLE if name in self._lists.names]
        if not found:
            raise ImportFailed(f"{path} has no users.json: it is no export of Slack")
        self._people = dict(self._read_people(found[0]))
        self._days: dict[str, list[str]] = {}
        """The files of each folder; their names are dates."""
        for name in self._lists.names:
            folder, slash, _ = name.rpartition("/")
            if slash:
                self._days.setdefault(folder, []).append(name)

    def _list(self, name: str) -> Iterator[Json]:
        return (one for one, _ in self._lists.objects(name) if one.get("id"))

    def _read_people(self, name: str) -> Iterator[tuple[str, SlackPerson]]:
        for number, one in enumerate(self._list(name)):
            if number == PEOPLE_MAX:
                raise ImportFailed(f"{name} names more than {PEOPLE_MAX} people")
            profile = one.get("profile") or {}
            known = str(one.get("name") or one["id"])
            shown = profile.get("display_name") or profile.get("real_name") or one.get("real_name") or known
            yield (
                str(one["id"]),
                SlackPerson(
                    known[:DISPLAY_NAME_CHARS_MAX],
                    str(shown)[:DISPLAY_NAME_CHARS_MAX],
                    str(profile.get("title") or "")[:ABOUT_CHARS_MAX],
                    bool(one.get("deleted")),
                ),
            )

    def people(self) -> Iterator[ImportedPerson]:
        for key, one in self._people.items():
            yield ImportedPerson(
                key=key, username=one.name, display_name=one.shown, about=one.about, is_gone=one.is_gone
            )
        yield from self._bots()

    def _bots(self) -> Iterator[ImportedPerson]:
        """Bots of incoming webhooks write under a name, and are in no list."""
        found = {
            author
            for chat in self.chats()
            for message in self._raw_messages(chat)
            if (author := self._author(message)).startswith(BOT)
        }
        for author in sorted(found):
            name = author.removeprefix(BOT)
            yield ImportedPerson(key=author, username=f"bot-{name}", display_name=name, is_gone=True)

    def chats(self) -> Iterator[ImportedChat]:
        for name in (CHANNELS, PRIVATE, GROUP_DIRECT):
            for one in self._list(name):
                yield ImportedChat(
                    key=str(one["id"]),
                    title=str(one.get("name") or one["id"]),
                    members=self._members(one),
                    creator=str(one.get("creator") or ""),
                    created_ms=int(one.get("created") or 0) * 1_000,
                )
        for one in self._list(DIRECT):
            members, created = self._members(one), int(one.get("created") or 0) * 1_000
            key = str(one["id"])
            yield ImportedChat(key=key, title=None, members=members, is_direct=True, created_ms=created)

    def _members(self, one: Json) -> tuple[str, ...]:
        return tuple(str(key) for key in one.get("members") or () if key in self._people)

    def messages(self, chat: ImportedChat) -> Iterator[ImportedMessage]:
        for raw in self._raw_messages(chat):
            author, subtype = self._author(raw), str(raw.get("subtype") or "")
            if raw.get("type") != "message" or subtype not in MESSAGE_SUBTYPES or not author:
                self.left_out[subtype or str(raw.get("type"))] += 1
                continue
            key, thread = str(raw["ts"]), str(raw.get("thread_ts") or "")
            text, mentions = self._text(raw)
            yield ImportedMessage(
                key=key,
                author=author,
                text=text,
                at_ms=_ms(key),
                thread=thread if thread != key else "",
                mentions=mentions,
                reactions=tuple(self._reactions(raw)),
            )

    def _reactions(self, raw: Json) -> Iterator[tuple[str, str]]:
        for one in raw.get("reactions") or ():
            shown = shown_reaction(str(one.get("name") or ""))
            for user in one.get("users") or ():
                if shown is not None and user in self._people:
                    yield str(user), shown
                else:
                    self.left_out["reactions"] += 1

    def _raw_messages(self, chat: ImportedChat) -> Iterator[Json]:
        """Folders are named after channels, and those of direct messages after their ids."""
        for folder in (chat.title, chat.key):
            days = self._days.get(folder or "", [])
            for day in days:
                yield from map(json.loads, self._by_time(day))
            if days:
                return

    def _by_time(self, day: str) -> list[bytes]:
        """The messages of a day as JSON: it takes as much memory as the file, and objects take much more."""
        found: list[tuple[int, bytes]] = []
        for one, text in self._lists.objects(day):
            if one.get("ts"):
                found.append((_micros(str(one["ts"])), text))
            if len(found) > DAY_MESSAGES_MAX:
                raise ImportFailed(f"{day} has more than {DAY_MESSAGES_MAX} messages")
        found.sort(key=lambda one: one[0])
        return [text for _, text in found]

    def _author(self, raw: Json) -> str:
        user = str(raw.get("user") or "")
        if user in self._people:
            return user
        name = raw.get("username") or (raw.get("bot_profile") or {}).get("name") or raw.get("bot_id") or user
        return f"{BOT}{str(name)[:DISPLAY_NAME_CHARS_MAX]}" if name else ""

    def _text(self, raw: Json) -> tuple[str, tuple[str, ...]]:
        """As people read it: names instead of ids, addresses, and the names of files."""
        mentions: dict[str, None] = {}

        def shown(mark: re.Match[str]) -> str:
            target, _, label = mark[1].partition("|")
            if target.startswith("@"):
                if target[1:] in self._people:
                    mentions[target[1:]] = None
                known = self._people.get(target[1:])
                return "@" + (known.name if known is not None else label or target[1:])
            if target.startswith("#"):
                return f"#{label or target[1:]}"
            if target.startswith("!"):
                return label or f"@{target[1:].partition('^')[0]}"
            return f"{label} ({target})" if label and label != target else target

        text = html.unescape(MARK.sub(shown, str(raw.get("text") or "")))
        files = [str(one.get("name") or one.get("id")) for one in raw.get("files") or ()]
        self.left_out["files"] += len(files)
        return "\n".join(filter(None, [text, *(f"[file: {name}]" for name in files)])), tuple(mentions)


def _ms(ts: str) -> int:
    return _micros(ts) // 1_000


def _micros(ts: str) -> int:
    """The time of a message, which is also its id: seconds, a point, and six digits."""
    seconds, _, rest = ts.partition(".")
    try:
        return int(seconds) * 1_000_000 + int(f"{rest:0<6}"[:6])
    except ValueError as error:
        raise ImportFailed(f"{ts!r} is no time of a message") from error
