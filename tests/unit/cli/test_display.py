"""How a person sees entries."""

import json
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from parley.cli.display import EntryPrinter, Names
from parley.core.message_actions import edit_window_content
from parley.wire.frames import Entry

MORNING = "2026-03-01T09:30:00.000Z"
NEXT_DAY = "2026-03-03T09:30:00.000Z"


class KnownNames(Names):
    """Names that need no server."""

    def __init__(self) -> None:
        pass

    async def of(self, user_id: str) -> str:
        return user_id.removeprefix("user_")


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clock on this wall is that of Greenwich."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


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
        (change("renamed", title="Tea\x07"), 'ann renamed the chat to "Tea\\x07"'),
        (change("read_receipts", read_receipts="none"), "ann set the chat to show no read receipts"),
        (change("painted", title="blue"), "ann: (member)"),
        (entry(edit_window_content(60), "chat"), "ann lets messages be edited for 60 seconds"),
        (entry(edit_window_content(0), "chat"), "ann lets messages be edited for ever"),
        (
            entry(edit_window_content(None), "chat"),
            "ann lets messages be edited as long as the server lets",
        ),
    ],
)
async def test_an_entry_is_a_line(shown: Entry, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Messages and changes read as sentences with names, numbers and times."""
    await EntryPrinter(KnownNames(), is_terminal=False).show(shown)
    _, _, line = capsys.readouterr().out.partition("\n")
    assert line.split("  ", 1)[1] == f"#12  {says}\n"


def about(kind: str, content: str = "", **fields: Any) -> Entry:
    """Something done to the message that was shown as #12, or to another one."""
    made = msgspec.structs.replace(entry(content, kind), message_id="msg_2", sequence=13)
    return msgspec.structs.replace(made, **fields)


@pytest.mark.parametrize(
    ("shown", "says"),
    [
        (about("edit", "new\ntext", target_id="msg_1"), "ann edited #12: new\n          text"),
        (about("edit", target_id="msg_1", deleted=True), "ann edited #12"),
        (about("delete", target_id="msg_1"), "ann deleted #12"),
        (about("delete", target_id="msg_0"), "ann deleted an earlier message"),
        (about("reaction", "👍", target_id="msg_1", reaction="👍", on=True), "ann 👍 to #12"),
        (about("reaction", "👍", target_id="msg_1", reaction="👍", on=False), "ann took 👍 back from #12"),
        (about("message", "yes", reply_to="msg_1"), "ann (answers #12): yes"),
        (about("message", "", deleted=True), "ann: (deleted)"),
        (about("message", "new", edited_at=MORNING), "ann (edited): new"),
    ],
)
async def test_what_is_done_to_a_message_names_it(
    shown: Entry, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the number that it was shown with, which commands take, too."""
    printer = EntryPrinter(KnownNames(), is_terminal=False)
    await printer.show(entry("hi"))
    capsys.readouterr()
    await printer.show(shown)
    assert capsys.readouterr().out.split("  ", 1)[1] == f"#13  {says}\n"


def written(display_time: str, created_at: str = MORNING) -> Entry:
    return msgspec.structs.replace(entry("hi", created_at=created_at), display_time=display_time)


@pytest.mark.parametrize(
    ("shown", "says"),
    [
        (written("2026-03-01T09:29:00.001Z"), "ann: hi"),
        (written("2026-03-01T09:30:59.999Z"), "ann: hi"),
        (written("2026-03-01T09:29:00.000Z"), "ann (written 09:29): hi"),
        (written("2026-03-01T02:00:00+02:00"), "ann (written 00:00): hi"),
        (written("2026-02-28T23:59:59Z"), "ann (written 28 February, 23:59): hi"),
        (written("2025-12-31T23:59:59Z"), "ann (written 31 December 2025, 23:59): hi"),
        (written("2026-03-01T09:31:00Z"), "ann (written 09:31 by their clock): hi"),
        (written("2026-03-02T00:00:00Z"), "ann (written 2 March, 00:00 by their clock): hi"),
        (written("0001-01-01T00:00:00+14:00"), "ann: hi"),
        (written("9999-12-31T23:59:59-14:00"), "ann: hi"),
        (written("soon"), "ann: hi"),
    ],
)
async def test_when_a_message_was_written_is_said_if_it_came_later(
    shown: Entry, says: str, utc: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a minute on, with the day if it was another; a time that no calendar knows is left out."""
    await EntryPrinter(KnownNames(), is_terminal=False).show(shown)
    _, _, line = capsys.readouterr().out.partition("\n")
    assert line == f"09:30:00  #12  {says}\n"


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
