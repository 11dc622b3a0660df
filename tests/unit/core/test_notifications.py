"""When a message rings for a person, and when it does not."""

from typing import Any

import pytest
from msgspec.structs import replace

from parley.core.notifications import (
    NEW_MESSAGE,
    PREVIEW_CHARS_MAX,
    NotificationFacts,
    SkipReason,
    decide_notification,
    is_quiet,
    minute_of,
    preview_of,
)
from parley.model import AccountState, MemberSettings, Notify, QuietHours
from parley.wire.frames import Entry

ENTRY = Entry(
    chat_id="chat_1",
    sequence=10,
    epoch=1,
    kind="message",
    message_id="msg_1",
    sender_id="user_b",
    client_message_id=None,
    content="hello",
    content_type="text/plain",
    created_at="2027-01-15T08:00:00.000Z",
    server_timestamp="2027-01-15T08:00:00.000Z",
    mentions=["user_c"],
)
FACTS = NotificationFacts(
    user_id="user_a",
    is_member=True,
    account=AccountState.ACTIVE,
    is_bot=False,
    settings=MemberSettings(),
    has_blocked_sender=False,
    is_active=False,
    is_logged_in=True,
    is_older=False,
    rung_through=0,
    is_muted=False,
    is_quiet=False,
)


def test_a_message_rings_for_a_member_who_is_away() -> None:
    """Nothing speaks against it."""
    assert decide_notification(ENTRY, FACTS) is None


@pytest.mark.parametrize(
    ("changed", "silence"),
    [
        ({"user_id": "user_b"}, SkipReason.OWN),
        ({"is_member": False}, SkipReason.NOT_A_MEMBER),
        ({"account": AccountState.DISABLED}, SkipReason.ACCOUNT),
        ({"account": AccountState.DELETED}, SkipReason.ACCOUNT),
        ({"has_blocked_sender": True}, SkipReason.BLOCKED),
        ({"is_logged_in": False}, SkipReason.LOGGED_OUT),
        ({"is_older": True}, SkipReason.BEFORE_DEVICE),
        ({"rung_through": 11}, SkipReason.REPLACED),
        ({"rung_through": 10}, None),
        ({"is_active": True}, SkipReason.ACTIVE),
        ({"is_quiet": True}, SkipReason.DO_NOT_DISTURB),
        ({"settings": MemberSettings(read_up_to=10)}, SkipReason.READ),
        ({"is_muted": True}, SkipReason.MUTED),
        ({"settings": MemberSettings(notify=Notify.NONE)}, SkipReason.NOTIFY_NONE),
        ({"settings": MemberSettings(notify=Notify.MENTIONS)}, SkipReason.NOT_MENTIONED),
        ({"settings": MemberSettings(read_up_to=9)}, None),
        ({"settings": MemberSettings(delivered_up_to=10)}, None),
        ({"settings": MemberSettings(notify=Notify.MENTIONS), "user_id": "user_c"}, None),
        ({"settings": MemberSettings(notify=Notify.NONE), "user_id": "user_c"}, SkipReason.NOTIFY_NONE),
    ],
)
def test_each_reason_for_silence(changed: dict[str, Any], silence: SkipReason | None) -> None:
    """One fact at a time decides."""
    assert decide_notification(ENTRY, replace(FACTS, **changed)) is silence


def test_other_entries_do_not_ring() -> None:
    """Only messages do: nobody is woken because a member joined."""
    assert decide_notification(replace(ENTRY, kind="member"), FACTS) is SkipReason.NO_MESSAGE


@pytest.mark.parametrize(
    ("starts", "ends", "quiet", "loud"),
    [
        ("22:00", "07:00", ["22:00", "23:59", "00:00", "06:59"], ["21:59", "07:00", "12:00"]),
        ("12:30", "13:00", ["12:30", "12:59"], ["12:29", "13:00", "00:00"]),
        ("08:00", "08:00", ["08:00", "07:59", "20:00"], []),
    ],
)
def test_quiet_hours(starts: str, ends: str, quiet: list[str], loud: list[str]) -> None:
    """They may go over midnight; the first minute is quiet and the last one is not."""
    hours = QuietHours(starts, ends, "UTC")
    assert [is_quiet(hours, minute_of(text)) for text in quiet] == [True] * len(quiet)
    assert [is_quiet(hours, minute_of(text)) for text in loud] == [False] * len(loud)


@pytest.mark.parametrize(
    "text", ["", "7:00", "24:00", "07:60", "07-00", "0700", "٠٧:٠٠", "-1:00", "07:00:00"]
)
def test_what_is_no_time_of_day(text: str) -> None:
    """It is refused, not guessed."""
    with pytest.raises(ValueError):
        minute_of(text)


def test_previews() -> None:
    """One line, shortened; what is no text is not shown."""
    assert preview_of(replace(ENTRY, content="  two\n\tlines ")) == "two lines"
    long = preview_of(replace(ENTRY, content="x" * 1_000))
    assert (len(long), long[-1]) == (PREVIEW_CHARS_MAX, "…")
    assert preview_of(replace(ENTRY, content_type="application/json")) == NEW_MESSAGE
    assert preview_of(replace(ENTRY, content_type="text/plain; charset=utf-8")) == "hello"
