"""`parley archive` and `parley retention`, as an operator runs them."""

from pathlib import Path

from tests.integration.cli.running import Run, parley, succeed
from tests.integration.cli.stores import one

SETTINGS = {"PARLEY_ARCHIVE_TARGET": "cold", "PARLEY_RETENTION_DAYS": "7"}
ARCHIVED = 5
"""Of the group's entries, all but the newest."""


def run(*arguments: str, data: Path) -> Run:
    return parley(*arguments, data=data, environment=SETTINGS)


def good(*arguments: str, data: Path) -> Run:
    done = run(*arguments, data=data)
    assert done.status == 0, done.stdout + done.stderr
    return done


def test_old_entries_are_moved_counted_and_verified(data: Path) -> None:
    """Everything but the newest entry of each chat, and what `parley check` says stays the same."""
    moved = good("archive", "run", "--json", data=data).json
    assert (moved["entries"], moved["trimmed"], moved["failed"]) == (ARCHIVED, ARCHIVED, {})
    assert good("archive", "run", "--json", data=data).json["entries"] == 0
    (status,) = good("archive", "status", "--json", data=data).json
    assert (status["chat_id"], status["head"], status["trimmed_through"]) == ("chat_group", 6, ARCHIVED)
    verified = good("archive", "verify", "--json", data=data).json
    assert (verified["entries"], verified["faults"]) == (ARCHIVED, [])
    assert "Every segment is what was written." in good("archive", "verify", data=data).stdout
    good("check", data=data)
    assert one(data, "SELECT count(*) FROM entries WHERE chat_no = 1") == 1


def test_a_damaged_segment_is_named(data: Path) -> None:
    """Status 1, and the object's name with what is wrong with it."""
    good("archive", "run", data=data)
    (segment,) = (data / "cold").glob("chats/*/*.seg")
    segment.write_bytes(segment.read_bytes()[:-3])
    verified = run("archive", "verify", data=data)
    assert verified.status == 1
    assert segment.name in verified.stdout
    assert "cut off" in verified.stdout
    (fault,) = run("archive", "verify", "--json", data=data).json["faults"]
    assert fault["chat_id"] == "chat_group"


def test_without_a_target_a_command_says_what_to_set(data: Path) -> None:
    """One sentence, and status 1."""
    done = parley("archive", "run", data=data)
    assert done.status == 1
    assert "archive.target" in done.stderr
    assert "Traceback" not in done.stderr


def test_retention_is_reported_before_it_is_applied(data: Path) -> None:
    """A dry run changes nothing; applied, bodies are gone from both tiers, and it is in the audit log."""
    good("archive", "run", data=data)
    report = good("retention", "report", "--json", data=data).json
    assert (report["hot"], report["cold"]) == (1, 4)
    assert good("retention", "report", "--json", data=data).json["cold"] == 4
    assert "nothing was changed" in good("retention", "report", data=data).stdout
    applied = good("retention", "apply", "--json", data=data).json
    assert (applied["hot"], applied["cold"]) == (1, 4)
    assert good("retention", "apply", "--json", data=data).json["cold"] == 0
    verified = good("archive", "verify", "--json", data=data).json
    assert (verified["erased"], verified["faults"]) == (4, [])
    good("check", data=data)
    records = succeed("user", "audit", "--json", data=data).json["records"]
    assert [record["action"] for record in records] == ["retention.apply", "retention.apply"]


def test_a_chat_under_a_hold_keeps_its_bodies(data: Path) -> None:
    """Until it is released; days of its own count instead of the server's."""
    good("retention", "set", "Tea", "--hold", data=data)
    report = good("retention", "report", "--json", data=data).json
    assert [line["is_held"] for line in report["lines"] if line["chat_id"] == "chat_group"] == [True]
    good("retention", "set", "Tea", "--release", "--days", "0", data=data)
    lines = good("retention", "report", "--json", data=data).json["lines"]
    assert "chat_group" not in {line["chat_id"] for line in lines}
    said = good("retention", "set", "Tea", "--days", "default", data=data).stdout
    assert "retention.days" in said
    assert run("retention", "set", "Tea", data=data).status == 2
    assert run("retention", "set", "Tea", "--days", "-3", data=data).status == 2
