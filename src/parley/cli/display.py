"""A chat as text: entries as lines with names, ticks, typing and presence."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from urllib.parse import quote

from parley.cli.output import printable
from parley.client.api import Api
from parley.client.errors import RequestRefused
from parley.client.members import Member, readable_change
from parley.clock import from_iso
from parley.core.message_actions import edit_window_in
from parley.core.receipts import MessageReceipts
from parley.model import Action, AttachedFile, Change, DeliveryStatus, ReadReceipts
from parley.wire.bodies import Profile
from parley.wire.frames import Entry

INDENT = " " * 10
WRITTEN_APART_MS_MIN = 60_000
"""If the sender's time and the server's differ by less, a message counts as written when stored."""
STYLES = {"dim": "\x1b[2m", "bold": "\x1b[1m", "read": "\x1b[36m"}
PLAIN = "\x1b[0m"
RECEIPTS_SHOWN = {
    ReadReceipts.FULL: "who has read",
    ReadReceipts.SIMPLE: "whether a member has read, but not who",
    ReadReceipts.NONE: "no read receipts",
}

TICKS = {DeliveryStatus.SENT: "✓", DeliveryStatus.DELIVERED: "✓✓", DeliveryStatus.READ: "✓✓"}
TYPISTS_NAMED_MAX = 3
NUMBERS_KEPT_MAX = 10_000
"""Of so many of the last messages a line says which one was edited, deleted or answered."""


class Names:
    """Usernames by id; each is requested once."""

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
        self._numbers: dict[str, int] = {}
        """Of the messages that were shown, by their ids."""

    async def show(self, entry: Entry) -> None:
        print(await self.text(entry), flush=True)

    async def text(self, entry: Entry) -> str:
        moment = datetime.fromtimestamp(from_iso(entry.created_at) / 1000).astimezone()
        day = f"{moment:%A, %d %B %Y}"
        line = await self._line(entry)
        at = self.styled("dim", f"{moment:%H:%M:%S}")
        number = self.styled("dim", f"#{entry.sequence}")
        line = f"{at}  {number}  {line}"
        if day == self._day:
            return line
        self._day = day
        return f"{self.styled('dim', f'— {day} —')}\n{line}"

    def styled(self, style: str, text: str) -> str:
        return f"{STYLES[style]}{text}{PLAIN}" if self._is_terminal else text

    async def _line(self, entry: Entry) -> str:
        who = await self._names.of(entry.sender_id)
        change = readable_change(entry)
        if change is not None:
            return self.styled("dim", await self._change(who, change))
        window = edit_window_in(entry.content) if entry.kind == "chat" else None
        if window is not None:
            return self.styled(
                "dim", f"{who} lets messages be edited {_how_long(window.edit_window_seconds)}"
            )
        if entry.target_id:
            return self.styled("dim", f"{who} {self._done_to_message(entry)}")
        self._note_number(entry)
        if entry.deleted is True:
            return self.styled("dim", f"{who}: (deleted)")
        if entry.kind != "message":
            return self.styled("dim", f"{who}: ({printable(entry.kind)})")
        text = printable(entry.content, keep_lines=True).replace("\n", f"\n{INDENT}")
        # Before the colon, where a sender cannot put text.
        asides = [written(entry), "edited" if entry.edited_at else ""]
        if entry.reply_to:
            asides.insert(0, f"answers {self._number(entry.reply_to)}")
        about = ", ".join(filter(None, asides))
        aside = f" {self.styled('dim', f'({about})')}" if about else ""
        return f"{self.styled('bold', who)}{aside}: {text}" + "".join(
            f"\n{INDENT}{self.styled('dim', shown_file(file))}" for file in entry.attachments or ()
        )

    def _done_to_message(self, entry: Entry) -> str:
        number = self._number(entry.target_id or "")
        match entry.kind:
            case "edit" if entry.deleted is not True:
                text = printable(entry.content, keep_lines=True)
                return f"edited {number}: {text}".replace("\n", f"\n{INDENT}")
            case "edit":
                return f"edited {number}"
            case "delete":
                return f"deleted {number}"
            case "reaction":
                what = printable(entry.reaction or entry.content)
                return f"took {what} back from {number}" if entry.on is False else f"{what} to {number}"
            case _:
                return f"({printable(entry.kind)} of {number})"

    def _note_number(self, entry: Entry) -> None:
        self._numbers[entry.message_id] = entry.sequence
        if len(self._numbers) > NUMBERS_KEPT_MAX:
            self._numbers.pop(next(iter(self._numbers)))

    def _number(self, message_id: str) -> str:
        """The number of a message that was shown before."""
        at = self._numbers.get(message_id)
        return "an earlier message" if at is None else f"#{at}"

    async def _change(self, who: str, change: Change) -> str:
        if change.action is Action.RENAMED:
            return f'{who} renamed the chat to "{printable(change.title)}"'
        if change.read_receipts is not None:
            return f"{who} set the chat to show {RECEIPTS_SHOWN[change.read_receipts]}"
        if change.action is Action.POSTING:
            return f"{who} {_posting(change)}"
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


def _how_long(seconds: int | None) -> str:
    if seconds is None:
        return "as long as the server lets"
    return f"for {seconds:,} seconds" if seconds else "for ever"


def shown_file(file: AttachedFile) -> str:
    """A line for a file: `parley file get` takes its id."""
    return f"[{printable(file.name)}, {file.size:,} bytes, {printable(file.attachment_id)}]"


def written(entry: Entry) -> str:
    """When the sender wrote a message, if it was stored a minute or more apart from that."""
    if entry.display_time is None:
        return ""
    try:
        written_ms, stored_ms = from_iso(entry.display_time), from_iso(entry.created_at)
        moment, stored = (datetime.fromtimestamp(ms / 1000).astimezone() for ms in (written_ms, stored_ms))
    except (ValueError, OverflowError, OSError):  # a time that this machine cannot convert
        return ""
    if abs(stored_ms - written_ms) < WRITTEN_APART_MS_MIN:
        return ""
    year = "" if moment.year == stored.year else f" {moment.year}"
    day = "" if moment.date() == stored.date() else f"{moment.day} {moment:%B}{year}, "
    doubt = " by their clock" if written_ms > stored_ms else ""
    return f"written {day}{moment:%H:%M}{doubt}"


def ticks(receipts: MessageReceipts) -> tuple[str, str]:
    """The ticks of a message and their style; also how many have read it, while not all have."""
    if receipts.status is DeliveryStatus.READ:
        return "read", TICKS[DeliveryStatus.READ]
    read = f" read by {len(receipts.read)} of {receipts.member_count}" if receipts.read else ""
    return "dim", f"{TICKS[receipts.status]}{read}"


def typing(names: Sequence[str]) -> str:
    """Who types, as a sentence; empty if no one does."""
    if not names:
        return ""
    if len(names) > TYPISTS_NAMED_MAX:
        return "several people are typing…"
    *others, last = names
    return f"{', '.join(others)} and {last} are typing…" if others else f"{last} is typing…"


def presence(member: Member, name: str) -> str:
    """Whether a person is online, or when they last were."""
    if member.status == "online":
        return f"{name} is online"
    if member.last_seen is None:
        return f"{name} is offline"
    try:
        moment = datetime.fromtimestamp(from_iso(member.last_seen) / 1000).astimezone()
    except ValueError:
        return f"{name}, last seen: unavailable"
    return f"{name}, last seen: {moment:%d %B, %H:%M}"


def _posting(change: Change) -> str:
    """What changed about who may post."""
    said = []
    if change.announcement_only is not None:
        said.append("let only admins post" if change.announcement_only else "let everybody post")
    if change.slow_mode_seconds is not None:
        seconds = change.slow_mode_seconds
        said.append(f"set slow mode to {seconds} s" if seconds else "ended slow mode")
    return " and ".join(said) or "changed who may post"
