"""`parley webhook` and `parley dlq`, on a store that nobody serves."""

from pathlib import Path

import apsw
import pytest

from parley.core.deliveries import DeadLetter, pending_line
from parley.store.folder import DATABASE_NAME
from parley.store.sqlite.record_rows import load
from parley.store.tables import DEAD_LETTERS, PENDING_DEAD_LETTERS
from tests.integration.cli.running import parley, succeed
from tests.integration.cli.stores import one

URL = "https://example.com/parley"
QUEUED = "SELECT count(*) FROM records WHERE kind = 'dead_letters' AND record ->> 'is_queued'"
STATUS = "SELECT record ->> 'status' FROM records WHERE kind = 'dead_letters' AND place = '{}'"


def put_letters(data: Path, *errors: str) -> None:
    """Dead letters of the server's, one for each error."""
    dead_letters = [
        DeadLetter(
            dlq_id=f"dlq_{number}",
            chat_id="chat_x",
            sequence=number,
            recipient="wh_1",
            message_id="msg_1",
            sender_id="user_ann",
            created_ms=0,
            error=error,
            detail="",
            retry_count=3,
            first_attempt_ms=0,
            last_attempt_ms=0,
            dlq_ms=number * 1_000,
            changed_ms=number * 1_000,
            source_topic="messages.outbound",
            source_offset=number,
        )
        for number, error in enumerate(errors, 1)
    ]
    with apsw.Connection(str(data / DATABASE_NAME)) as connection:
        load(connection, DEAD_LETTERS, dead_letters)
        load(connection, PENDING_DEAD_LETTERS, [pending_line(dead_letter, 0) for dead_letter in dead_letters])


def test_webhooks_are_added_listed_and_removed(data: Path) -> None:
    """The secret is printed once, and every action is recorded."""
    succeed("user", "list", data=data)
    made = succeed("webhook", "add", URL, "--event", "message.created", "--json", data=data).json
    assert made["secret"].startswith("whs_")
    (listed,) = succeed("webhook", "list", "--json", data=data).json["webhooks"]
    assert (listed["webhook_id"], listed["url"]) == (made["webhook_id"], URL)
    assert made["secret"] not in succeed("webhook", "list", data=data).stdout
    succeed("webhook", "remove", made["webhook_id"], data=data)
    assert succeed("webhook", "list", "--json", data=data).json == {"webhooks": []}
    records = succeed("user", "audit", "--json", data=data).json["records"]
    assert [record["action"] for record in records] == ["webhook.remove", "webhook.add"]


@pytest.mark.parametrize(
    "arguments",
    [("add", "https://127.0.0.1/"), ("add", URL, "--event", "message.burnt"), ("remove", "wh_none")],
)
def test_what_cannot_be_done_is_said(data: Path, arguments: tuple[str, ...]) -> None:
    """Status 1 and a sentence."""
    run = parley("webhook", *arguments, data=data)
    assert (run.status, run.stdout) == (1, "")
    assert "Traceback" not in run.stderr
    assert run.stderr.strip()


def test_a_run_without_apply_names_what_the_next_one_does(data: Path) -> None:
    """Its token stands for these dead letters, and no other option selects others beside it."""
    put_letters(data, "timeout", "timeout", "refused")
    dry = succeed("dlq", "replay", "--error", "timeout", "--json", data=data).json
    done = succeed("dlq", "replay", "--preview", dry["token"], "--apply", "--json", data=data).json
    assert (done["matched"], one(data, QUEUED)) == (2, 2)
    given = ("dlq", "discard", "--reason", "x", "--apply")
    assert parley(*given, "--preview", "nonsense", data=data).status == 1
    both = parley(*given, "--preview", dry["token"], "--error", "refused", data=data)
    assert (both.status, "--preview" in both.stderr) == (2, True)


def test_dead_letters_are_found_and_replayed_on_demand(data: Path) -> None:
    """Without --apply nothing changes; with it, exactly the selection is queued, once."""
    put_letters(data, "timeout", "timeout", "refused")
    listed = succeed("dlq", "list", "--json", data=data).json
    assert listed["total"] == 3
    assert {group["error"]: group["count"] for group in listed["groups"]} == {"timeout": 2, "refused": 1}
    assert (
        len(succeed("dlq", "list", "--since", "1970-01-01T00:00:02Z", "--json", data=data).json["records"])
        == 2
    )
    dry = succeed("dlq", "replay", "--error", "timeout", "--json", data=data).json
    assert (dry["matched"], dry["job_id"]) == (2, None)
    assert one(data, QUEUED) == 0
    job = succeed("dlq", "replay", "--error", "timeout", "--apply", "--json", data=data).json
    assert job["matched"] == 2
    assert one(data, QUEUED) == 2
    again = succeed("dlq", "replay", "--error", "timeout", "--apply", "--json", data=data).json
    assert again["matched"] == 0
    shown = succeed("dlq", "show", "dlq_1", "--json", data=data).json
    assert (shown["queued"], shown["job_id"], shown["history"][-1]["action"]) == (
        True,
        job["job_id"],
        "replay",
    )
    assert shown["history"][-1]["actor"].startswith("cli:")


def test_dead_letters_are_discarded_with_a_reason(data: Path) -> None:
    """By id; without a reason it is wrong usage, without --apply a dry run."""
    put_letters(data, "timeout", "refused")
    assert parley("dlq", "discard", "--apply", data=data).status == 2
    discard = ("dlq", "discard", "--reason", "no use", "--id", "dlq_2")
    assert "would be" in succeed(*discard, data=data).stdout
    assert succeed(*discard, "--apply", "--json", data=data).json["matched"] == 1
    assert one(data, STATUS.format("dlq_2")) == "permanently_failed"
    assert one(data, STATUS.format("dlq_1")) == "pending"
    (record, *_) = succeed("user", "audit", "--json", data=data).json["records"]
    assert (record["action"], record["outcome"]) == ("dlq.discard", "done")
    assert "no use" in record["detail"]
