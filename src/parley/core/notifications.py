"""Whether a message notifies a person: the only place that knows the rules, and their order.

A notification goes to a device that is not connected. Most rules are about the moment it goes out, not
the moment the message was sent: what was read, muted or answered meanwhile notifies nobody.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from parley.model import AccountState, Kind, MemberSettings, Notify, QuietHours
from parley.wire.frames import Entry

MINUTES_PER_DAY = 24 * 60
PREVIEW_CHARS_MAX = 300
NEW_MESSAGE = "New message"
"""What is shown instead of a preview."""
READABLE = frozenset({"text/plain", "text/markdown"})


class SkipReason(StrEnum):
    """Why a message does not notify. The values are stable: operators and timelines show them."""

    NO_MESSAGE = "no_message"
    OWN = "own_message"
    NOT_A_MEMBER = "not_a_member"
    ACCOUNT = "account_not_active"
    BOT = "bot"
    BLOCKED = "blocked"
    NOTIFY_NONE = "notify_none"
    NOT_MENTIONED = "not_mentioned"
    BEFORE_DEVICE = "before_device"
    LOGGED_OUT = "logged_out"
    READ = "read"
    REPLACED = "replaced"
    ACTIVE = "active"
    MUTED = "muted"
    DO_NOT_DISTURB = "do_not_disturb"


class NotificationFacts(Struct, frozen=True, kw_only=True):
    """What is known about a person when a message may notify them."""

    user_id: str
    is_member: bool
    account: AccountState
    is_bot: bool
    settings: MemberSettings
    has_blocked_sender: bool
    is_active: bool
    """A device of theirs is connected."""
    is_logged_in: bool
    """The device that would get it has a session."""
    is_older: bool
    """The message is older than the registration of the device."""
    rung_through: int
    """The newest message of the chat that the device was notified of."""
    is_muted: bool
    is_quiet: bool
    """By their quiet hours, at this moment, where they live."""


def wanted(entry: Entry, user_id: str, settings: MemberSettings) -> SkipReason | None:
    """Why an entry never notifies a person, by what both say; None if it may notify."""
    if entry.kind != Kind.MESSAGE.value or entry.deleted is True:
        return SkipReason.NO_MESSAGE
    if entry.sender_id == user_id:
        return SkipReason.OWN
    if settings.notify is Notify.NONE:
        return SkipReason.NOTIFY_NONE
    if settings.notify is Notify.MENTIONS and not mentions(entry, user_id):
        return SkipReason.NOT_MENTIONED
    return None


def decide_notification(entry: Entry, facts: NotificationFacts) -> SkipReason | None:
    """Why a message does not notify on a device now; None if it does."""
    silence = wanted(entry, facts.user_id, facts.settings)
    if silence is not None:
        return silence
    if not facts.is_member:
        return SkipReason.NOT_A_MEMBER
    if facts.account is not AccountState.ACTIVE:
        return SkipReason.ACCOUNT
    if facts.is_bot:
        return SkipReason.BOT
    if not facts.is_logged_in:
        return SkipReason.LOGGED_OUT
    if facts.is_older:
        return SkipReason.BEFORE_DEVICE
    if facts.has_blocked_sender:
        return SkipReason.BLOCKED
    if facts.settings.read_up_to >= entry.sequence:
        return SkipReason.READ
    if facts.rung_through > entry.sequence:
        return SkipReason.REPLACED
    if facts.is_active:
        return SkipReason.ACTIVE
    if facts.is_muted:
        return SkipReason.MUTED
    return SkipReason.DO_NOT_DISTURB if facts.is_quiet else None


def mentions(entry: Entry, user_id: str) -> bool:
    return bool(entry.mentions) and user_id in (entry.mentions or ())


def is_quiet(hours: QuietHours, minute: int) -> bool:
    """Whether a minute of the day is in the quiet hours, which may go over midnight.

    The first minute is quiet, the last one is not. From a time to itself is the whole day.
    """
    first, last = minute_of(hours.starts), minute_of(hours.ends)
    return (minute - first) % MINUTES_PER_DAY < ((last - first) % MINUTES_PER_DAY or MINUTES_PER_DAY)


def minute_of(text: str) -> int:
    """The minute of the day that HH:MM names; ValueError if it is none."""
    hours, colon, minutes = text.partition(":")
    is_time = colon and len(hours) == len(minutes) == 2 and (hours + minutes).isascii()
    if not is_time or not (hours + minutes).isdigit() or int(hours) > 23 or int(minutes) > 59:
        raise ValueError(f"{text!r} is not a time of day like 22:30")
    return int(hours) * 60 + int(minutes)


def preview_of(entry: Entry) -> str:
    """What a notification shows of a message: its text, shortened, or nothing of it if it is no text."""
    if entry.content_type.partition(";")[0].strip() not in READABLE:
        return NEW_MESSAGE
    text = " ".join(entry.content.split())
    return text if len(text) <= PREVIEW_CHARS_MAX else text[: PREVIEW_CHARS_MAX - 1] + "…"
