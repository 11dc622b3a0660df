"""How a person sees entries: a line each, with names instead of ids."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import quote

from msgspec import Struct

from parley.cli.output import printable
from parley.client.api import Api
from parley.client.errors import RequestRefused
from parley.client.opened import readable_change
from parley.clock import from_iso
from parley.model import Action, Change, ReadReceipts
from parley.wire.frames import Entry

INDENT = " " * 10
WRITTEN_APART_MS_MIN = 60_000
"""A message that took less from its sender's clock to the server's was written when it was stored."""
STYLES = {"dim": "\x1b[2m", "bold": "\x1b[1m", "read": "\x1b[36m"}
PLAIN = "\x1b[0m"
RECEIPTS_SHOWN = {
    ReadReceipts.FULL: "who has read",
    ReadReceipts.SIMPLE: "whether anybody has read, not who",
    ReadReceipts.NONE: "nothing of who has read",
}


class Profile(Struct):
    username: str


class Names:
    """Usernames by id, each asked for once."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[str, str] = {}

    async def of(self, user_id: str) -> str:
        if user_id not in self._known:
            try:
                profile = await self._api.call("GET", f"users/{quote(user_id, safe='')}", Profile)
                self._known[user_id] = printable(profile.username)
            except RequestRefused:
                self._known[user_id] = printable(user_id)
        return self._known[user_id]


class EntryPrinter:
    """Entries as lines, with a line of its own when the day changes."""

    def __init__(self, names: Names, is_terminal: bool) -> None:
        self._names = names
        self._is_terminal = is_terminal
        self._day = ""

    async def show(self, entry: Entry) -> None:
        print(await self.text(entry), flush=True)

    async def text(self, entry: Entry) -> str:
        moment = datetime.fromtimestamp(from_iso(entry.created_at) / 1000).astimezone()
        day = f"{moment:%A, %d %B %Y}"
        told = await self._told(entry)
        at = self.styled("dim", f"{moment:%H:%M:%S}")
        number = self.styled("dim", f"#{entry.sequence}")
        line = f"{at}  {number}  {told}"
        if day == self._day:
            return line
        self._day = day
        return f"{self.styled('dim', f'— {day} —')}\n{line}"

    def styled(self, style: str, text: str) -> str:
        return f"{STYLES[style]}{text}{PLAIN}" if self._is_terminal else text

    async def _told(self, entry: Entry) -> str:
        who = await self._names.of(entry.sender_id)
        change = readable_change(entry)
        if change is not None:
            return self.styled("dim", await self._change(who, change))
        if entry.kind != "message":
            return self.styled("dim", f"{who}: ({printable(entry.kind)})")
        text = printable(entry.content, keep_lines=True).replace("\n", f"\n{INDENT}")
        when = written(entry)
        # Before the colon, where no text of the sender can stand.
        aside = f" {self.styled('dim', f'({when})')}" if when else ""
        return f"{self.styled('bold', who)}{aside}: {text}"

    async def _change(self, who: str, change: Change) -> str:
        if change.action is Action.RENAMED:
            return f'{who} called the chat "{printable(change.title)}"'
        if change.read_receipts is not None:
            return f"{who} lets the chat show {RECEIPTS_SHOWN[change.read_receipts]}"
        whom = await self._names.of(change.user_id)
        match change.action:
            case Action.JOINED:
                return f"{who} joined" if who == whom else f"{who} added {whom}"
            case Action.LEFT:
                return f"{who} left"
            case Action.REMOVED:
                return f"{who} removed {whom}"
            case Action.ROLE:
                return f"{who} made {whom} {change.role}"
            case _:
                return f"{who} changed the chat"


def written(entry: Entry) -> str:
    """When its sender wrote a message, if that is not when it was stored, give or take a minute."""
    if entry.display_time is None:
        return ""
    try:
        written_ms, stored_ms = from_iso(entry.display_time), from_iso(entry.created_at)
        moment, stored = (datetime.fromtimestamp(ms / 1000).astimezone() for ms in (written_ms, stored_ms))
    except (ValueError, OverflowError, OSError):  # a time that no calendar of this machine has
        return ""
    if abs(stored_ms - written_ms) < WRITTEN_APART_MS_MIN:
        return ""
    year = "" if moment.year == stored.year else f" {moment.year}"
    day = "" if moment.date() == stored.date() else f"{moment.day} {moment:%B}{year}, "
    doubt = " by their clock" if written_ms > stored_ms else ""
    return f"written {day}{moment:%H:%M}{doubt}"
