"""How a person sees entries."""

import json

import pytest

from parley.cli.showing import EntryPrinter, Names
from parley.wire.frames import Entry

MORNING = "2026-03-01T09:30:00.000Z"
NEXT_DAY = "2026-03-03T09:30:00.000Z"


class KnownNames(Names):
    """Names that need no server."""

    def __init__(self) -> None:
        pass

    async def of(self, user_id: str) -> str:
        return user_id.removeprefix("user_")


def entry(content: str, kind: str = "message", created_at: str = MORNING) -> Entry:
    return Entry(
        chat_id="chat_1",
        sequence=12,
        epoch=1,
        kind=kind,
        message_id="msg_1",
        sender_id="user_ann",
        client_message_id=None,
        content=content,
        content_type="text/plain",
        created_at=created_at,
        server_timestamp=created_at,
        display_time=None,
    )


def change(action: str, **fields: str) -> Entry:
    kind = "chat" if action in ("renamed", "read_receipts") else "member"
    return entry(json.dumps({"action": action, **fields}), kind)


@pytest.mark.parametrize(
    ("shown", "says"),
    [
        (entry("hi"), "ann: hi"),
        (entry("two\nlines"), "ann: two\n          lines"),
        (entry("\x1b[2J"), "ann: \\x1b[2J"),
        (entry("?", "hologram"), "ann: (hologram)"),
        (change("joined", user_id="user_ben", role="member"), "ann added ben"),
        (change("joined", user_id="user_ann", role="member"), "ann joined"),
        (change("left", user_id="user_ann", role="member"), "ann left"),
        (change("removed", user_id="user_ben", role="member"), "ann removed ben"),
        (change("role", user_id="user_ben", role="admin"), "ann made ben admin"),
        (change("renamed", title="Tea\x07"), 'ann called the chat "Tea\\x07"'),
        (change("read_receipts", read_receipts="none"), "ann lets the chat show nothing of who has read"),
        (change("painted", title="blue"), "ann: (member)"),
    ],
)
async def test_an_entry_is_a_line(shown: Entry, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Messages and changes read as sentences with names, numbers and times."""
    await EntryPrinter(KnownNames(), is_terminal=False).show(shown)
    _, _, line = capsys.readouterr().out.partition("\n")
    assert line.split("  ", 1)[1] == f"#12  {says}\n"


async def test_a_new_day_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The date stands before the first entry of each day."""
    printer = EntryPrinter(KnownNames(), is_terminal=False)
    for at in (MORNING, MORNING, NEXT_DAY):
        await printer.show(entry("hi", created_at=at))
    days = [line for line in capsys.readouterr().out.splitlines() if line.startswith("—")]
    assert [day.split()[2] for day in days] == ["01", "03"]


async def test_only_a_terminal_gets_colours(capsys: pytest.CaptureFixture[str]) -> None:
    """Escape sequences are ours alone, and only for a terminal."""
    await EntryPrinter(KnownNames(), is_terminal=True).show(entry("hi"))
    assert "\x1b[1mann\x1b[0m: hi" in capsys.readouterr().out
